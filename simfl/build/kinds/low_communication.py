"""Steps of a round by the speed of the client (DyLU)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from simfl.build.devices import devices_of, pace_of
from simfl.build.kinds.local_rounds import LocalRoundsKind
from simfl.build.world import speeds
from simfl.scenario.algorithms.low_communication import AsyncLocalSgd
from simfl.streams import Streams


class AsyncLocalSgdKind(LocalRoundsKind):
    """Asynchronous local SGD: slower clients may make fewer steps."""

    kinds = ("async_local_sgd",)

    def round_steps(self, sizes: Sequence[int]) -> list[int]:
        """Return how many mini-batches a round has at each client, [K]."""
        steps, config = super().round_steps(sizes), cast(AsyncLocalSgd, self.config)
        if config.steps == "equal":
            return steps
        streams = Streams(self.scenario.seed)
        pace = pace_of(self.scenario, devices_of(self.scenario, streams))
        batch_s = np.asarray(pace.seconds_per_batch) + pace.batch_size * np.asarray(pace.seconds_per_example)
        each_s = batch_s * speeds(self.scenario, streams)
        shares = each_s.min() / each_s
        return [max(1, math.floor(count * share + 1e-9)) for count, share in zip(steps, shares.tolist(), strict=True)]
