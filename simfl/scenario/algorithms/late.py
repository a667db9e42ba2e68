"""Servers with rules of their own for late gradients: Ringmaster and relatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from simfl.scenario.algorithms.base import Sections, ServerAlgorithmConfig
from simfl.scenario.fields import OF_CLIENTS, Arithmetic, AtLeastOne, Count, Positive, Share, option, variant
from simfl.scenario.optimizers import USUAL_SERVER_STEPS
from simfl.scenario.problems import Problem
from simfl.scenario.seams import Uses


class GradientsConfig(ServerAlgorithmConfig):
    """Base of algorithms whose server bounds the age of gradients itself."""

    fixed: ClassVar[Mapping[str, str]] = {
        "optimizer": "its clients send gradients and take no step; use server_optimizer",
        "staleness_bound": "remove it: the algorithm discards late gradients itself",
    }
    optimizer_steps = (("step_size", "server_optimizer", USUAL_SERVER_STEPS),)


class LateConfig(GradientsConfig):
    """Base of algorithms whose server discards late gradients."""

    late: Literal["drop", "stop"] = option(
        "drop",
        "late gradients: the server discards them (drop), or sends its model to their clients, which start again "
        "at it (stop)",
    )


class Ringmaster(LateConfig):
    """Ringmaster ASGD: as async_sgd, but gradients R steps late are not applied."""

    kind: Literal["ringmaster"] = variant("ringmaster")
    threshold: Count | None = option(
        None,
        "R: a gradient is late if the server took R or more steps since its model was read; null: clients.count",
    )


class Rennala(LateConfig):
    """Rennala SGD: a server takes a step for every S gradients at its model."""

    uses: ClassVar[Uses] = replace(ServerAlgorithmConfig.uses, sum="gradients")
    kind: Literal["rennala"] = variant("rennala")
    gradients_per_step: Count | None = option(
        None, "S, gradients at the present model that make a step of the server; null: clients.count"
    )


class MSyncSgd(LateConfig):
    """m-synchronous SGD: each step waits for the first m clients."""

    uses: ClassVar[Uses] = replace(ServerAlgorithmConfig.uses, sum="gradients")
    kind: Literal["m_sync_sgd"] = variant("m_sync_sgd")
    wait_for: Annotated[Count | None, OF_CLIENTS] = option(
        None, "m, clients whose gradients make a step of the server; the others are backup workers; null: all"
    )


class Ringleader(GradientsConfig):
    """Ringleader ASGD: a server steps along the mean over clients, once for each."""

    uses: ClassVar[Uses] = replace(ServerAlgorithmConfig.uses, sum="table")
    fixed: ClassVar[Mapping[str, str]] = {
        "staleness_bound": "remove it: gradients in its table are at most 2 clients.count - 2 steps old"
    }
    kind: Literal["ringleader"] = variant("ringleader")
    harmonic_batch: AtLeastOne = option(
        1.0,
        "B: a round begins to step when each client has sent a gradient, and the harmonic mean of their numbers is B",
    )


class MindFlayer(GradientsConfig):
    """MindFlayer SGD: clients give up computations that take too long, and try again."""

    uses: ClassVar[Uses] = replace(ServerAlgorithmConfig.uses, sum="gradients")
    fixed: ClassVar[Mapping[str, str]] = {
        "staleness_bound": "remove it: no gradient is late, because all clients wait for the step"
    }
    kind: Literal["mindflayer"] = variant("mindflayer")
    trials: Count = option(1, "B, computations that each client begins in a step of the server")
    trial_factor: Positive = option(
        2.0,
        "after how long a client gives up a computation, in units of its time of a mini-batch without jitter, "
        "slowdowns and traces",
    )
    completed: Arithmetic[Share | None] = option(
        None,
        "p: the step divides the sum of gradients by p times the number of trials, as in the paper; null: by the "
        "number of gradients that came",
    )

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield also trials that no client can complete."""
        yield from super().contradictions(scenario)
        jitter = scenario.clients.jitter
        least = {"constant": "value", "uniform": "low"}.get(jitter.kind)
        shortest = 0.0 if least is None else getattr(jitter, least)
        if self.trial_factor < shortest:
            expected = f"at least {shortest:g}, the smallest factor of clients.jitter"
            advice = "raise it: else no client completes a computation"
            yield Problem(expected, f"{self.trial_factor:g}", advice, ("algorithm", "trial_factor"))
