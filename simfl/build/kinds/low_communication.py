"""Steps of a round by the speed of the client (DyLU)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from simfl.build.kinds.local_rounds import LocalRoundsKind
from simfl.build.world import batch_times_s
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
        each_s = batch_times_s(self.scenario, Streams(self.scenario.seed))
        shares = each_s.min() / each_s
        return [max(1, math.floor(count * share + 1e-9)) for count, share in zip(steps, shares.tolist(), strict=True)]
