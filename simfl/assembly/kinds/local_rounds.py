"""Kinds of algorithms with local training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from simfl.assembly.kinds.base import BoundedKind, Kind
from simfl.assembly.setup import Setup
from simfl.scenario.algorithms import KGt, LocalRoundsConfig, LocalStepsConfig, Plexus
from simfl.tape.problem import LocalRounds

L = TypeVar("L", bound=LocalStepsConfig)


class LocalStepsKind(Kind[L]):
    """Base of kinds whose clients train in rounds."""

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
    """FedAvg and its relatives, FedAsync and FedBuff."""

    kinds: ClassVar[tuple[str, ...]] = (
        "fedavg", "fedprox", "scaffold", "feddyn", "fednova", "ditto", "diloco", "streaming_diloco",
        "fedasync", "fedbuff", "ca2fl", "ace", "fadas", "fedat", "favas", "area",
    )  # fmt: skip

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the pull that belongs to the algorithm."""
        pulls = {"feddyn": "alpha", "fednova": "mu"}
        pull = {pulls[self.config.kind]: self.config.proximal} if self.config.kind in pulls else {}
        return {**super().options(setup), **pull}


class KGtKind(LocalStepsKind[KGt]):
    """K-GT: rounds of local steps with the mixing matrix of the topology."""

    kinds = ("k_gt",)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the rule of the mixing matrix."""
        return {**super().options(setup), "mixing": self.scenario.topology.mixing}


class PlexusKind(LocalStepsKind[Plexus]):
    """Plexus: rounds of local steps."""

    kinds = ("plexus",)
