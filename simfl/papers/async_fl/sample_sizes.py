"""Options of async_fl: gradients of each round, and gates."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from simfl.scenario.fields import ByKind, Config, Count, Index, NonNegative, Positive, Within, variant
from simfl.scenario.problems import InvalidValueError, Problem, show


class ConstantSize(Config):
    """The same size in every round; a plain number is short for it."""

    kind: Literal["constant"] = variant("constant")
    value: Count = Field(description="gradients of a round")


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
    shift: NonNegative = Field(description="m; the larger, the more the sizes are like constant ones")
    power: NonNegative = Field(default=1.0, description="p, 0 to 1 in the paper")


class Lemma1Size(Config):
    """Sizes that a delay of order t^(1/g) allows under a gate of `ahead` rounds."""

    kind: Literal["lemma1"] = variant("lemma1")
    g: Annotated[float, Within(above=1)] = Field(default=2.0, description="delays grow like t^(1/g), sizes i^(1/(g-1))")
    growth: Literal["constant", "log"] = Field(
        default="constant", description="gam of the lemma: 1, or max(8, 4 ln z), which Theorem 5 has"
    )
    shift: Index = Field(default=0, description="m, how far into the sequence to start")
    ahead: Index = Field(default=1, description="d, the gate that the sizes are made for")


class Theorem5Size(Config):
    """Sizes of order i / ln i, optimal for strongly convex problems.

    The step sizes are Theorem 5's where step_size is null.
    """

    kind: Literal["theorem5"] = variant("theorem5")
    smoothness: Positive = Field(description="L, of the loss of each example, the penalty included")
    strong_convexity: Positive | None = Field(default=None, description="mu of the mean loss; null: model.l2")
    shift: Index = Field(default=10, description="m, at least 2 e (d + 1) - 1")
    ahead: Index = Field(default=1, description="d, the gate that the sizes are made for")


Sizes = Annotated[
    ConstantSize | PolynomialSize | OverLogSize | ShiftedPowerSize | Lemma1Size | Theorem5Size,
    ByKind(scalar="constant"),
]


class RoundsAhead(Config):
    """A client may run this many rounds ahead of the rounds in its model."""

    kind: Literal["rounds"] = variant("rounds")
    ahead: Index = Field(default=1, description="d; 0 is synchronous")


class WithinDelay(Config):
    """The model of gradient t may lack offset + scale t^power earlier gradients."""

    kind: Literal["delay"] = variant("delay")
    scale: NonNegative = Field(default=1.0, description="gradients")
    power: Annotated[float, Within(at_least=0, at_most=1)] = Field(default=0.5, description="of t, at most 1")
    offset: NonNegative = Field(
        default=0.0, description="gradients; has to allow at least the first round of a client to be computed"
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
