"""Asynchronous federated learning in rounds that grow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from simfl.papers.async_fl.sample_sizes import (
    Gate,
    Lemma1Size,
    RoundsAhead,
    Sizes,
    Theorem5Size,
    Weights,
    WithinOwnDelay,
)
from simfl.scenario.algorithms.base import AlgorithmConfig, Sections
from simfl.scenario.fields import Count, Flag, Settled, variant
from simfl.scenario.problems import InvalidValueError, Problem, one_each
from simfl.scenario.schedules import StepSize


class AsyncFl(AlgorithmConfig):
    """Asynchronous FL: growing rounds, broadcast when complete.

    With privacy, this is Proactive DP's asynchronous DP-SGD.
    """

    uses_topology: ClassVar[bool] = False
    has_server: ClassVar[bool | None] = True
    no_optimizer: ClassVar[str] = "its updates are sums of single gradients, which a server adds up as they come"

    kind: Literal["async_fl"] = variant("async_fl")
    step_size: StepSize | None = Field(  # type: ignore[assignment]
        default=None,
        description="step size on each single gradient, since updates are sums; t counts the gradients, or the rounds "
        "(updates), before a round (see step_size_of); null: Theorem 5's with its sizes, or 0.1/(1 + 0.001 t) with l2 "
        "and 0.1/(1 + 0.01 sqrt t) without",
    )
    batch_size: Count = Field(
        default=32,
        description="examples of a round at each client where sizes is null; else examples that one operation "
        "processes, without influence on results, and with local_steps examples of a mini-batch",
    )
    sampling: Literal["auto", "poisson", "without_replacement", "shuffle", "with_replacement"] = Field(
        default="auto",
        description="how a round's examples are drawn: poisson (each example on its own), without_replacement (a fresh "
        "subset of fixed size), shuffle (each example once per pass), with_replacement, or auto: poisson with privacy, "
        "with_replacement without and with local_steps",
    )
    sizes: Sizes | None = Field(
        default=None, description="gradients of each round: a number or a sequence; null: batch_size at each client"
    )
    sizes_of: Settled[Literal["all", "each"]] = Field(
        default="all", description="who computes that many: all clients together, or each of them"
    )
    weights: Settled[Weights] = Field(
        default="uniform", description="each client's share of a round: uniform, by its data, or one number for each"
    )
    assignment: Settled[Literal["proportional", "random"]] = Field(
        default="proportional", description="shares are kept as well as whole numbers allow, or each gradient is drawn"
    )
    gate: Gate = Field(default=RoundsAhead(), description="when a client waits for the others")
    rounds: Count | None = Field(default=None, description="T, the rounds after which the run ends; null: no limit")
    gradients: Settled[Count | None] = Field(
        default=None,
        description="K, those of all clients: as many rounds as it takes to compute them; null: no limit",
    )
    local_steps: Flag = Field(
        default=False,
        description="true: clients move their model after every mini-batch of a round, and adopt a model that "
        "arrives meanwhile, which no proof of privacy covers; false: a round's gradients are taken at one model",
    )
    step_per: Settled[Literal["round", "gradient"]] = Field(
        default="round",
        description="whether step sizes fall from round to round (diminishing_2), or from gradient to gradient "
        "(diminishing_1), with local_steps only",
    )
    step_size_of: Literal["all", "each"] = Field(
        default="all",
        description="whose gradients t of the step size counts before a round: those of all clients together, or of "
        "each, which is a share of one over the number of clients",
    )
    mask: Count = Field(
        default=1, description="D: an update has a random 1/D of the entries, D times as large; 1: all of them"
    )
    aggregation: Literal["sum", "mean"] = Field(
        default="sum",
        description="how the server combines updates: their sum, as in the papers' listings, or their mean",
    )
    aggregators: tuple[Count, ...] = Field(
        default=(),
        description="number of aggregators between clients and server on each level, the server's side first",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = []
        if self.rounds is not None and self.gradients is not None:
            problems.append(Problem("rounds or gradients", "both", "remove one of them", ("gradients",)))
        if self.step_per == "gradient" and not self.local_steps:
            problems.append(Problem("round without local_steps", "'gradient'", "set local_steps: true", ("step_per",)))
        if self.local_steps and self.mask > 1:
            problems.append(Problem("1 with local_steps", str(self.mask), "set local_steps: false", ("mask",)))
        if self.sampling == "shuffle" and self.mask > 1:
            problems.append(Problem("1 with sampling 'shuffle'", str(self.mask), "use auto", ("mask",)))
        if self.local_steps and self.sampling == "poisson":
            advice = "use auto or with_replacement"
            problems.append(Problem("batches of one size with local_steps", "'poisson'", advice, ("sampling",)))
        if isinstance(self.gate, WithinOwnDelay) and not isinstance(self.sizes, Lemma1Size | Theorem5Size):
            advice = "use kind: delay, or rounds"
            problems.append(Problem("own_delay with sizes lemma1 or theorem5", "other sizes", advice, ("gate",)))
        if problems:
            raise InvalidValueError(*problems)
        return self

    @property
    def nodes_beside_server(self) -> int:
        """The aggregators."""
        return sum(self.aggregators)

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield conflicts: rounds of changing sizes need a given noise multiplier."""
        privacy, count = scenario.privacy, scenario.clients.count
        if isinstance(self.weights, tuple):
            yield from one_each(len(self.weights), count, ("algorithm", "weights"))
        if self.aggregators and max(self.aggregators) > count:
            expected = f"at most clients.count aggregators on a level, which is {count}"
            yield Problem(expected, str(max(self.aggregators)), "use fewer", ("algorithm", "aggregators"))
        if privacy is None:
            return
        if privacy.unit == "client":
            advice = "use gaussian, or algorithm kind: fedavg"
            yield Problem(
                "a mechanism for sums of gradients", repr(privacy.mechanism), advice, ("privacy", "mechanism")
            )
        elif privacy.calibrated:
            advice = "add it: `simfl privacy proactive-dp` and `simfl privacy async-fl` say which"
            expected = f"a noise multiplier with algorithm '{self.kind}'"
            yield Problem(expected, "nothing", advice, ("privacy", "noise_multiplier"))
        if self.mask > 1 and scenario.model.l2 > 0:
            advice = "set mask: 1, or l2: 0: a masked penalty would tell how many examples were drawn"
            yield Problem("1 with privacy and l2", str(self.mask), advice, ("algorithm", "mask"))
