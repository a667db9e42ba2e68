"""Training that communicates rarely: DiLoCo and asynchronous local SGD."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from simfl.scenario.algorithms.base import Sections
from simfl.scenario.algorithms.local_rounds import FedAvg, LocalRoundsConfig
from simfl.scenario.fields import Count, NonNegative, Positive, Seconds, Settled, option, variant
from simfl.scenario.optimizers import Adam, Decay, Optimizer, ServerNesterov, ServerOptimizer
from simfl.scenario.problems import Problem
from simfl.scenario.schedules import ConstantStep, StepSize


class KeptStates(LocalRoundsConfig):
    """Base of algorithms whose clients keep the state of AdamW between rounds."""

    step_size: StepSize = option(ConstantStep(value=4e-4), "step size of local steps; 0.001 for an adam of your own")
    optimizer: Optimizer = option(
        Adam(weight_decay=0.1), "the optimizer of local steps; clients keep its state between rounds by default"
    )

    @property
    def keeps_states(self) -> bool:
        """Whether clients keep the states of their optimizers, as they do by default."""
        return self.optimizer.state.rounds != "new"


class DiLoCo(KeptStates, FedAvg):
    """DiLoCo: long rounds of AdamW at the clients, Nesterov's momentum at the server."""

    sums_updates: ClassVar[bool] = False
    kind: Literal["diloco"] = variant("diloco")  # type: ignore[assignment]
    concurrency: Settled[Count | None] = option(None, "null: rounds are synchronous")
    weighting: Literal["data", "uniform"] = option(
        "uniform", "how the mean weighs clients: by their examples, or all alike"
    )
    server_step: Positive = option(0.7, "lr of the server's step")
    server_optimizer: Settled[ServerOptimizer] = option(
        ServerNesterov(), "the optimizer of the server's steps on minus the mean change"
    )


class AsyncLocalSgd(KeptStates):
    """Asynchronous local SGD: each change is a step of the server, with momentum."""

    no_server_optimizer: ClassVar[str] = "its momentum is that of the algorithm; use momentum, or fedbuff"
    kind: Literal["async_local_sgd"] = variant("async_local_sgd")
    server_step: Positive = option(0.7, "lr of the server's step")
    momentum: Decay = option(0.9, "beta of Nesterov's momentum at the server")
    momentum_every: Count | None = option(
        None, "N, updates after which the momentum moves; 1: with each update; null: clients.count"
    )
    momentum_share: NonNegative = option(
        0.0, "c, at most 1 / N: the part of the momentum's step that each update in between takes"
    )
    staleness_exponent: NonNegative = option(0.0, "a of the weight 1/(1 + staleness)^a of an update")
    grace: Seconds = option(0.0, "the longest wait after an update for computations that end within this time")
    steps: Settled[Literal["equal", "by_speed"]] = option(
        "equal", "mini-batches of a round: as many at all clients, or fewer at slower ones (DyLU)"
    )

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield also a momentum whose parts add up to more than one step."""
        yield from super().contradictions(scenario)
        every = self.momentum_every or scenario.clients.count
        if self.momentum_share * every > 1.0:
            expected = f"at most 1 / momentum_every, which is {1 / every:g}"
            yield Problem(expected, f"{self.momentum_share:g}", "lower it", ("algorithm", "momentum_share"))
