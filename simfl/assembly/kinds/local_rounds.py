"""Kinds of algorithms with local training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from simfl.assembly.kinds.base import BoundedKind, Kind
from simfl.assembly.setup import Setup
from simfl.scenario.algorithms import AlgorithmConfig, KGt, LocalRoundsConfig, LocalStepsConfig
from simfl.tape.problem import LocalRounds

L = TypeVar("L", bound=LocalStepsConfig)


class LocalStepsKind(Kind[L]):
    """Clients that train in rounds, with a server or without."""

    sections: ClassVar[tuple[type[AlgorithmConfig], ...]] = (LocalStepsConfig,)

    @property
    def local(self) -> bool:
        """A round is one operation."""
        return True

    def round_steps(self, sizes: Sequence[int]) -> list[int]:
        """Return how many mini-batches a round has at each client, [K]."""
        config = self.config
        steps = config.usual_steps if config.local_steps is None and config.local_epochs is None else config.local_steps
        if steps is not None:
            return [steps] * len(sizes)
        passes = config.local_epochs or 1.0
        each = zip(sizes, self.batch_sizes(sizes), strict=True)
        return [max(1, math.ceil(passes * n / size - 1e-9)) for n, size in each]

    def problem(self, setup: Setup) -> dict[str, Any]:
        """Return the fields for rounds of local steps, perhaps with a pull."""
        proximal = getattr(self.config, "proximal", 0.0)
        return {"rounds": LocalRounds(proximal=proximal, corrected=self.config.uses.gradient == "corrected")}

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the mini-batches of a round."""
        return {**super().options(setup), "steps": self.round_steps(setup.sizes.tolist())}


class LocalRoundsKind(LocalStepsKind[LocalRoundsConfig], BoundedKind[LocalRoundsConfig]):
    """A server and clients that train in rounds: FedAvg, FedBuff and their kin."""

    sections: ClassVar[tuple[type[AlgorithmConfig], ...]] = (LocalRoundsConfig,)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the pull that belongs to the algorithm."""
        pulls = {"feddyn": "alpha", "fednova": "mu", "pfedme": "mu"}
        pull = {pulls[self.config.kind]: self.config.proximal} if self.config.kind in pulls else {}
        return {**super().options(setup), **pull}


class KGtKind(LocalStepsKind[KGt]):
    """K-GT: rounds of local steps with the mixing matrix of the topology."""

    sections = (KGt,)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the rule of the mixing matrix."""
        return {**super().options(setup), "mixing": self.scenario.topology.mixing}
