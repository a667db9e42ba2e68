"""Servers that discard late gradients: Ringmaster ASGD."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from simfl.scenario.algorithms.base import Sections, ServerAlgorithmConfig
from simfl.scenario.compression import UPLINK, Scheme
from simfl.scenario.fields import Count, option, variant
from simfl.scenario.optimizers import USUAL_SERVER_STEPS
from simfl.scenario.problems import Problem


class LateConfig(ServerAlgorithmConfig):
    """Base of algorithms whose server discards late gradients."""

    compresses: ClassVar[tuple[Scheme, ...]] = UPLINK
    no_optimizer: ClassVar[str] = "its clients send gradients and take no step; use server_optimizer"
    optimizer_steps = (("step_size", "server_optimizer", USUAL_SERVER_STEPS),)

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield a staleness bound beside the algorithm's own."""
        yield from super().contradictions(scenario)
        if self.staleness_bound is not None:
            advice = "remove it: the algorithm discards late gradients itself"
            yield Problem(f"null with '{self.kind}'", "a bound", advice, ("algorithm", "staleness_bound"))

    late: Literal["drop", "stop"] = option(
        "drop",
        "gradients that are late: the server discards them on arrival (drop), or it sends its model to their clients, "
        "which stop computing and start again at that model (stop)",
    )


class Ringmaster(LateConfig):
    """Ringmaster ASGD: as async_sgd, but gradients R steps late are not applied."""

    kind: Literal["ringmaster"] = variant("ringmaster")
    threshold: Count | None = option(
        None,
        "R: a gradient is late if the server took R or more steps since its model was read; null: clients.count",
    )
