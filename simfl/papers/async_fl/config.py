"""Schema of async_fl: sizes of rounds, gates that make clients wait, and options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from simfl.scenario.algorithms.base import AlgorithmConfig, Sections
from simfl.scenario.fields import ByKind, Config, Count, Flag, Index, NonNegative, Positive, Settled, Within, variant
from simfl.scenario.problems import InvalidValueError, Problem, one_each, show
from simfl.scenario.schedules import StepSize
from simfl.scenario.seams import Uses


class ConstantSize(Config):
    """The same size in every round."""

    kind: Literal["constant"] = variant("constant")
    value: Count = Field(description="gradients per round")


class PolynomialSize(Config):
    """Round i has a i^power + b gradients, rounded up, i counting from `start`."""

    kind: Literal["polynomial"] = variant("polynomial")
    a: NonNegative = Field(description="slope, gradients")
    power: NonNegative = Field(default=1.0, description="c, 0 to 1 in the paper")
    b: NonNegative = Field(default=0.0, description="gradients")
    start: Index = Field(default=1, description="i of the first round")


class OverLogSize(Config):
    """Round i has a i / ln i + b gradients, rounded up, i counting from `start`."""

    kind: Literal["over_log"] = variant("over_log")
    a: NonNegative = Field(description="slope, gradients")
    b: NonNegative = Field(default=0.0, description="gradients")
    start: Annotated[int, Within(at_least=2)] = Field(default=2, description="i of the first round")


class ShiftedPowerSize(Config):
    """Round i, from 0, has slope (i + shift)^power gradients, rounded up.

    These are the sizes of the DP theorems.
    """

    kind: Literal["shifted_power"] = variant("shifted_power")
    slope: Positive = Field(description="N q, gradients")
    shift: NonNegative = Field(description="m; with a larger m, sizes grow more slowly relative to the first one")
    power: NonNegative = Field(default=1.0, description="p, 0 to 1 in the paper")


class Lemma1Size(Config):
    """Sizes that a delay of order t^(1/g) allows with `ahead` rounds."""

    kind: Literal["lemma1"] = variant("lemma1")
    g: Annotated[float, Within(above=1)] = Field(default=2.0, description="delays grow like t^(1/g), sizes i^(1/(g-1))")
    growth: Literal["constant", "log"] = Field(
        default="constant", description="gam of the lemma: 1 (constant), or that of Theorem 5, max(8, 4 ln z) (log)"
    )
    shift: Index = Field(default=0, description="m, how far into the sequence to start")
    ahead: Index = Field(default=1, description="d, the rounds ahead that the sizes are made for")


class Theorem5Size(Config):
    """Sizes of order i / ln i, optimal for strongly convex problems.

    The step sizes are Theorem 5's where step_size is null.
    """

    kind: Literal["theorem5"] = variant("theorem5")
    smoothness: Positive = Field(description="L, of the loss of each example, including the penalty")
    strong_convexity: Positive | None = Field(default=None, description="mu of the mean loss; null: model.l2")
    shift: Index = Field(default=10, description="m, at least 2 e (d + 1) - 1")
    ahead: Index = Field(default=1, description="d, the rounds ahead that the sizes are made for")


Sizes = Annotated[
    ConstantSize | PolynomialSize | OverLogSize | ShiftedPowerSize | Lemma1Size | Theorem5Size,
    ByKind(scalar="constant"),
]


class LaterRounds(Config):
    """A later stage of the run, with other noise and sizes (Proactive DP, Figure 15)."""

    begin: Count = Field(description="its first round; the run's first round is 0")
    noise_factor: Positive = Field(description="noise of these rounds, relative to that of `privacy`")
    size: Count | None = Field(default=None, description="gradients of each of these rounds; null: those of sizes")


class RoundsAhead(Config):
    """A client may run this many rounds ahead of those that its model contains."""

    kind: Literal["rounds"] = variant("rounds")
    ahead: Index = Field(default=1, description="d; 0 is synchronous")


class WithinDelay(Config):
    """The model of gradient t may lack offset + scale t^power earlier gradients."""

    kind: Literal["delay"] = variant("delay")
    scale: NonNegative = Field(default=1.0, description="gradients")
    power: Annotated[float, Within(at_least=0, at_most=1)] = Field(default=0.5, description="of t, at most 1")
    offset: NonNegative = Field(
        default=0.0, description="gradients; must be large enough for a client to compute its first round"
    )


class WithinOwnDelay(Config):
    """The delay that belongs to sizes lemma1 and theorem5."""

    kind: Literal["own_delay"] = variant("own_delay")


Gate = Annotated[RoundsAhead | WithinDelay | WithinOwnDelay, ByKind(default="rounds")]


def _weights(value: object) -> object:
    if value in ("uniform", "data"):
        return value
    if not isinstance(value, list | tuple) or not value:
        raise InvalidValueError(Problem("uniform, data or a list of numbers > 0", show(value), "write one of them"))
    return tuple(Within(above=0).number(item) for item in value)


Weights = Annotated[
    tuple[float, ...] | Literal["uniform", "data"],
    BeforeValidator(_weights),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["uniform", "data"]},
                {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "minItems": 1},
            ]
        }
    ),
]


class AsyncFl(AlgorithmConfig):
    """Asynchronous FL: growing rounds, broadcast when complete.

    With privacy, this is Proactive DP's asynchronous DP-SGD.
    """

    uses: ClassVar[Uses] = Uses(graph="none", server=True, channel="sums", sum="single")
    fixed: ClassVar[Mapping[str, str]] = {
        "small_clients": "its rounds have sizes of their own, which count single gradients",
        "optimizer": "its updates are sums of single gradients, which a server adds up as they come",
    }

    kind: Literal["async_fl"] = variant("async_fl")
    step_size: StepSize | None = Field(  # type: ignore[assignment]
        default=None,
        description="step size of each single gradient; t counts the gradients, or the rounds (updates), before a "
        "round (see step_size_of); null: that of Theorem 5 with sizes theorem5; otherwise 0.1/(1 + 0.001 t) with l2 "
        "and 0.1/(1 + 0.01 sqrt t) without",
    )
    batch_size: Count = Field(
        default=32,
        description="examples per round and client if sizes is null; otherwise examples that one operation processes, "
        "without influence on results; with local_steps, examples per mini-batch",
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
        default="all", description="whether sizes count the gradients of all clients together, or of each client"
    )
    stages: Settled[tuple[LaterRounds, ...]] = Field(
        default=(), description="later stages, in the order of their rounds; the account composes the noise of all"
    )
    weights: Settled[Weights] = Field(
        default="uniform",
        description="each client's part of a round: uniform, by the size of its data, or a list with a number for "
        "each client",
    )
    assignment: Settled[Literal["proportional", "random"]] = Field(
        default="proportional",
        description="proportional: clients get their parts, rounded to whole numbers; random: each gradient goes to a "
        "client drawn by its part",
    )
    gate: Gate = Field(default=RoundsAhead(), description="when a client waits for the others")
    rounds: Count | None = Field(default=None, description="T, the rounds after which the run ends; null: no limit")
    gradients: Settled[Count | None] = Field(
        default=None,
        description="K, gradients of all clients: the run makes as many rounds as it takes to compute them; null: no "
        "limit",
    )
    local_steps: Flag = Field(
        default=False,
        description="true: clients step after every mini-batch and adopt models that arrive meanwhile, which no "
        "privacy proof covers; false: all gradients of a round are at one model",
    )
    step_per: Settled[Literal["round", "gradient"]] = Field(
        default="round",
        description="whether step sizes fall from round to round (diminishing_2), or from gradient to gradient "
        "(diminishing_1, only with local_steps)",
    )
    step_size_of: Literal["all", "each"] = Field(
        default="all",
        description="whose gradients t of the step size counts: those of all clients together, or of each",
    )
    mask: Count = Field(
        default=1,
        description="D: an update contains a random 1/D of the entries, multiplied by D; 1: all of them",
    )
    aggregation: Literal["sum", "mean"] = Field(
        default="sum",
        description="how the server combines updates: their sum, as in the papers' listings, or their mean",
    )
    aggregators: tuple[Count, ...] = Field(
        default=(),
        description="number of aggregators on each level between server and clients, starting at the server",
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
        begins = [stage.begin for stage in self.stages]
        if begins != sorted(set(begins)):
            problems.append(Problem("rounds in increasing order", show(begins), "sort the stages", ("stages",)))
        if self.stages and (self.local_steps or isinstance(self.gate, WithinOwnDelay)):
            expected = "none with local_steps or gate own_delay"
            problems.append(Problem(expected, f"{len(begins)}", "use another gate without local_steps", ("stages",)))
        if self.local_steps and self.sampling == "poisson":
            advice = "use auto or with_replacement"
            problems.append(Problem("batches of one size with local_steps", "'poisson'", advice, ("sampling",)))
        if isinstance(self.gate, WithinOwnDelay) and not isinstance(self.sizes, Lemma1Size | Theorem5Size):
            advice = "use kind: delay, or rounds"
            problems.append(Problem("own_delay with sizes lemma1 or theorem5", "other sizes", advice, ("gate",)))
        if problems:
            raise InvalidValueError(*problems)
        return self

    def nodes_beside_server(self, scenario: Sections) -> Sequence[str | None]:
        """Return the region of each aggregator."""
        named = scenario.server.aggregator_regions
        return (*named, *[scenario.server.region] * (sum(self.aggregators) - len(named)))

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
        if privacy.protects != "example":
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
