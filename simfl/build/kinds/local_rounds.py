"""Kinds of algorithms with local training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from simfl.build.kinds.base import BoundedKind
from simfl.build.setup import Setup
from simfl.scenario.algorithms import LocalRoundsConfig
from simfl.tape.problem import LocalRounds


class LocalRoundsKind(BoundedKind[LocalRoundsConfig]):
    """FedAvg and its relatives, FedAsync and FedBuff."""

    kinds = ("fedavg", "fedprox", "fedasync", "fedbuff", "scaffold", "feddyn", "fednova", "ca2fl", "ace", "fadas")

    @property
    def local(self) -> bool:
        """A round is one operation."""
        return True

    def round_steps(self, sizes: Sequence[int]) -> list[int]:
        """Return how many mini-batches a round has at each client, [K]."""
        config = self.config
        if config.local_steps is not None:
            return [config.local_steps] * len(sizes)
        passes = config.local_epochs or 1.0
        return [max(1, math.ceil(passes * n / config.batch_size - 1e-9)) for n in sizes]

    def problem(self, setup: Setup) -> dict[str, Any]:
        """Return the fields for rounds of local steps with a proximal term."""
        return {"rounds": LocalRounds(proximal=self.config.proximal, corrected=setup.algorithm.corrects_rounds)}

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the mini-batches of a round."""
        pulls = {"feddyn": "alpha", "fednova": "mu"}
        pull = {pulls[self.config.kind]: self.config.proximal} if self.config.kind in pulls else {}
        return {**super().options(setup), **pull, "steps": self.round_steps(setup.sizes.tolist())}
