"""Steps by the speed of the client (DyLU), regional servers, and tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np

from simfl.assembly.kinds.local_rounds import LocalRoundsKind
from simfl.assembly.places import Places
from simfl.assembly.setup import Setup
from simfl.assembly.world import batch_times_s
from simfl.scenario.algorithms import AlgorithmConfig
from simfl.scenario.algorithms.low_communication import BySpeed, DecoupledDiLoCo, Halos
from simfl.streams import Streams


class AsyncLocalSgdKind(LocalRoundsKind):
    """Asynchronous local SGD: slower clients may make fewer steps."""

    sections: ClassVar[tuple[type[AlgorithmConfig], ...]] = (BySpeed,)

    def round_steps(self, sizes: Sequence[int]) -> list[int]:
        """Return how many mini-batches a round has at each client, [K]."""
        steps, config = super().round_steps(sizes), cast(BySpeed, self.config)
        if config.steps == "equal":
            return steps
        stop, streams = self.scenario.stop, Streams(self.scenario.seed)
        ends = [] if stop.updates is None else [stop.updates * sum(steps) / len(steps)]
        if stop.epochs is not None:
            ends.append(stop.epochs * sum(sizes) * len(sizes) / sum(self.batch_sizes(sizes)))
        each_s = batch_times_s(self.scenario, streams, sizes, min(ends, default=math.inf))
        shares, rounding = each_s.min() / each_s, math.ceil if config.rounds_up else math.floor
        off = -1e-9 if config.rounds_up else 1e-9
        return [max(1, rounding(count * share + off)) for count, share in zip(steps, shares.tolist(), strict=True)]


class DecoupledDiLoCoKind(LocalRoundsKind):
    """Decoupled DiLoCo: fragments of whole tensors."""

    sections = (DecoupledDiLoCo,)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the length of each tensor, and whether it is an embedding."""
        model = setup.moved
        parts = model.parts(np.empty((1, model.size), np.float32))
        tensors = [(part.size, name in model.embeddings) for name, part in parts.items()]
        return {**super().options(setup), "tensors": tensors}


class HalosKind(AsyncLocalSgdKind):
    """HALoS: a server in each region."""

    sections = (Halos,)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the region of each client."""
        regions = Places(self.scenario, Streams(self.scenario.seed)).regions
        region_of = [regions[client] for client in range(self.scenario.clients.count)] if regions else None
        return {**super().options(setup), "region_of": region_of}
