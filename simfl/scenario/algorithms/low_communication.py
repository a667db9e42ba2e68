"""Training that communicates rarely: DiLoCo, asynchronous local SGD, HALoS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from simfl.scenario.algorithms.base import Sections
from simfl.scenario.algorithms.local_rounds import FedAvg, LocalRoundsConfig
from simfl.scenario.fields import (
    OF_CLIENTS,
    Arithmetic,
    Count,
    Index,
    NonNegative,
    Positive,
    Probability,
    Seconds,
    Settled,
    Share,
    option,
    variant,
)
from simfl.scenario.optimizers import Adam, Decay, Optimizer, ServerNesterov, ServerOptimizer
from simfl.scenario.problems import Problem
from simfl.scenario.schedules import ConstantStep, StepSize
from simfl.scenario.seams import Uses


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

    kind: Literal["diloco"] = variant("diloco")  # type: ignore[assignment]
    concurrency: Settled[Count | None] = option(None, "null: rounds are synchronous")
    weighting: Literal["data", "uniform"] = option(
        "uniform", "how the mean weighs clients: by their examples, or all alike"
    )
    server_step: Arithmetic[Positive] = option(0.7, "lr of the server's step")
    server_optimizer: Settled[ServerOptimizer] = option(
        ServerNesterov(), "the optimizer of the server's steps on minus the mean change"
    )


class BySpeed(KeptStates):
    """Base of asynchronous servers whose slower clients may make fewer steps."""

    fixed: ClassVar[Mapping[str, str]] = {
        "server_optimizer": "its momentum is that of the algorithm; use momentum, or fedbuff"
    }
    #: Whether the steps of a slower client are rounded up.
    rounds_up: ClassVar[bool] = False

    steps: Settled[Literal["equal", "by_speed"]] = option(
        "equal", "mini-batches of a round: as many at all clients, or fewer at slower ones (DyLU)"
    )


class AsyncLocalSgd(BySpeed):
    """Asynchronous local SGD: each change is a step of the server, with momentum."""

    uses: ClassVar[Uses] = replace(LocalRoundsConfig.uses, sum="steps")
    kind: Literal["async_local_sgd"] = variant("async_local_sgd")
    server_step: Arithmetic[Positive] = option(0.7, "lr of the server's step")
    momentum: Arithmetic[Decay] = option(0.9, "beta of Nesterov's momentum at the server")
    momentum_every: Count | None = option(
        None, "N, updates after which the momentum moves; 1: with each update; null: clients.count"
    )
    momentum_share: Arithmetic[NonNegative] = option(
        0.0, "c, at most 1 / N: the part of the momentum's step that each update in between takes"
    )
    staleness_exponent: Arithmetic[NonNegative] = option(0.0, "a of the weight 1/(1 + staleness)^a of an update")
    grace: Seconds = option(0.0, "the longest wait after an update for computations that end within this time")

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield also a momentum whose parts add up to more than one step."""
        yield from super().contradictions(scenario)
        every = self.momentum_every or scenario.clients.count
        if self.momentum_share * every > 1.0:
            expected = f"at most 1 / momentum_every, which is {1 / every:g}"
            yield Problem(expected, f"{self.momentum_share:g}", "lower it", ("algorithm", "momentum_share"))


class InFragments(KeptStates):
    """Base of DiLoCo in fragments, whose clients train on while fragments travel."""

    uses: ClassVar[Uses] = replace(LocalRoundsConfig.uses, channel="fragments", sum="fragments")
    fixed: ClassVar[Mapping[str, str]] = {
        "server_optimizer": "its momentum is that of the algorithm; use momentum, or diloco",
        "concurrency": "remove it: all clients train",
        "staleness_bound": "remove it: fragments have no staleness bound",
    }
    concurrency: Settled[Count | None] = option(None, "null: all clients train")
    fragments: Count = option(
        8, "P, fragments of the model; a client sends one after each turn of local_steps mini-batches"
    )
    server_step: Arithmetic[Positive] = option(0.7, "lr of the server's step on a fragment")
    momentum: Arithmetic[Decay] = option(0.9, "beta of Nesterov's momentum at the server")


class DecoupledDiLoCo(InFragments):
    """Decoupled DiLoCo: learners never wait; a server merges what a quorum sent."""

    kind: Literal["decoupled_diloco"] = variant("decoupled_diloco")
    usual_steps: ClassVar[int | None] = 1
    local_steps: Settled[Count | None] = option(
        None, "number of mini-batches of a turn; 1, as in the paper, if local_epochs is null too"
    )
    local_epochs: Settled[Positive | None] = option(
        None, "number of passes over a client's data in a turn; null: local_steps says it"
    )
    fragments: Count = option(
        24,
        "P, turns of local_steps mini-batches after which a client sends the same fragment, whole tensors, "
        "again; with fewer tensors some turns send nothing",
    )
    quorum: Annotated[Count, OF_CLIENTS] = option(
        1,
        "K, clients that must have sent a fragment before the server steps on it; all that are left in the run, if "
        "they are fewer",
    )
    overlap_steps: NonNegative = option(
        2.0, "tau, mini-batches of the fastest sender within which a fragment should come back: the slack for the grace"
    )
    margin: Probability = option(0.8, "fraction of the slack for which the server waits for more than the quorum")
    averaging: Literal["radial", "mean"] = option(
        "radial",
        "radial: mean length times mean direction of clients' changes, for each tensor that is not an embedding; mean: "
        "their weighted mean",
    )
    local_share: Arithmetic[Decay] = option(
        0.0, "alpha, the fraction of the client's own fragment when the server's arrives; 0: the server's replaces it"
    )


class StreamingDiLoCo(InFragments):
    """Streaming DiLoCo: one fragment at a time is synchronized, and applied later."""

    kind: Literal["streaming_diloco"] = variant("streaming_diloco")
    delay: Index = option(
        1, "turns of local_steps mini-batches from sending a fragment to applying its mean, below fragments"
    )
    local_share: Arithmetic[Decay] = option(
        0.5, "alpha, the fraction of the client's own fragment when it applies the mean"
    )

    def problems(self) -> Iterator[Problem]:
        """Yield also a fragment that is sent again before its mean is applied."""
        yield from super().problems()
        if self.delay >= self.fragments:
            expected = f"below fragments, which is {self.fragments}"
            yield Problem(expected, str(self.delay), "lower it, or use more fragments", ("delay",))


class Halos(BySpeed):
    """HALoS: asynchronous local SGD at a server in each region, and one server above."""

    uses: ClassVar[Uses] = replace(LocalRoundsConfig.uses, sum="regions")
    rounds_up: ClassVar[bool] = True
    kind: Literal["halos"] = variant("halos")
    server_step: Arithmetic[Positive] = option(
        0.3, "lr of the global server, which the mean over momentum_every divides"
    )
    momentum: Arithmetic[Decay] = option(0.5, "beta of Nesterov's momentum at the global server")
    momentum_every: Count = option(2, "N, changes of regions after which that momentum moves")
    regional_step: Arithmetic[Positive] = option(
        3.2, "lr of regional servers, which the mean over regional_momentum_every divides"
    )
    regional_momentum: Arithmetic[Decay] = option(0.9, "beta of Nesterov's momentum at regional servers")
    regional_momentum_every: Count = option(16, "N, changes of clients after which that momentum moves")
    accumulate: Count = option(32, "K, changes of clients after which a regional server sends their sum")
    merging: Arithmetic[Share] = option(
        0.25, "alpha, the fraction of the global model in a region's model when it arrives"
    )

    def nodes_beside_server(self, scenario: Sections) -> Sequence[str | None]:
        """Return the regions, or None for the halves of the clients without regions."""
        return (None,) * min(2, scenario.clients.count) if scenario.regions is None else scenario.regions.names
