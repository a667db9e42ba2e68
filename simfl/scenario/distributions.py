"""Distributions of factors, of times and of values of links, and traces of values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field, PlainSerializer

from simfl.scenario.fields import (
    Bandwidth,
    ByKind,
    Config,
    Loss,
    Positive,
    PositiveSeconds,
    Probability,
    Seconds,
    Sigma,
    Text,
    WorldFile,
    option,
    variant,
)
from simfl.scenario.problems import Problem
from simfl.scenario.units import format_bandwidth, format_time

#: The type of a quantity: `Seconds`, `Bandwidth`, `Loss`, or a factor (`Positive`).
Q = TypeVar("Q", bound=float)

_NUMBER = ByKind(scalar="constant")
_QUANTITY = ByKind(scalar="constant", quantities=True)


class Constant(Config, Generic[Q]):
    """The same value always."""

    kind: Literal["constant"] = variant("constant")
    value: Q = Field(description="the value")


class Uniform(Config, Generic[Q]):
    """Uniform between two bounds."""

    kind: Literal["uniform"] = variant("uniform")
    low: Q = Field(description="smallest value")
    high: Q = Field(description="largest value")

    def problems(self) -> Iterator[Problem]:
        """Yield a problem if the bounds are in the wrong order."""
        if self.high < self.low:
            marks = type(self).model_fields["low"].metadata
            text: Any = next((mark.func for mark in marks if isinstance(mark, PlainSerializer)), "{:g}".format)
            noun = {format_time: "a time", format_bandwidth: "a bandwidth"}.get(text, "a number")
            expected = f"{noun} >= low, which is {text(self.low)}"
            yield Problem(expected, text(self.high), "swap low and high", ("high",))


class Exponential(Config, Generic[Q]):
    """Exponential with a given mean."""

    kind: Literal["exponential"] = variant("exponential")
    mean: Q = Field(description="mean value")


class Lognormal(Config, Generic[Q]):
    """Log-normal with a given mean: mean * exp(N(-sigma²/2, sigma²))."""

    kind: Literal["lognormal"] = variant("lognormal")
    mean: Q = Field(description="mean value")
    sigma: Sigma = Field(description="standard deviation of the logarithm, no unit")


class ConstantFactor(Constant[Positive]):
    """The same factor always."""

    value: Positive = option(1.0, "the factor, > 0")


class UniformFactor(Uniform[Positive]):
    """Uniform between two bounds."""


class LognormalFactor(Config):
    """Log-normal with mean 1: exp(N(-sigma²/2, sigma²))."""

    kind: Literal["lognormal"] = variant("lognormal")
    sigma: Sigma = Field(description="standard deviation of the logarithm, no unit")


class ExponentialFactor(Config):
    """Exponential with mean 1."""

    kind: Literal["exponential"] = variant("exponential")


class ListedFactors(Config):
    """One factor per client, listed."""

    kind: Literal["list"] = variant("list")
    values: tuple[Positive, ...] = Field(description="the factor of each client, in the order of their numbers")


class TracedFactors(Config):
    """Factors drawn from a column of a CSV file, such as device benchmarks."""

    kind: Literal["trace"] = variant("trace")
    path: WorldFile = Field(description="CSV file with a header line")
    column: Text = Field(description="name of the column that holds the factors")


Jitter = Annotated[ConstantFactor | UniformFactor | LognormalFactor | ExponentialFactor, _NUMBER]
Speed = Annotated[
    ConstantFactor | UniformFactor | LognormalFactor | ExponentialFactor | ListedFactors | TracedFactors, _NUMBER
]


class ConstantTime(Constant[Seconds]):
    """The same time always."""


class UniformTime(Uniform[Seconds]):
    """Uniform between two bounds."""


class ExponentialTime(Exponential[PositiveSeconds]):
    """Exponential with a given mean."""


class LognormalTime(Lognormal[PositiveSeconds]):
    """Log-normal with a given mean: mean * exp(N(-sigma²/2, sigma²))."""


Duration = Annotated[ConstantTime | UniformTime | ExponentialTime | LognormalTime, _QUANTITY]

Drawing = Literal["message", "link", "client"]
_DRAWN = "for every message, once for each link (both directions alike), or once for each client"


class PerMessage(Config):
    """Base of distributions that are drawn for every message by default."""

    drawn: Drawing = option("message", _DRAWN)


class PerLinkOrClient(Config):
    """Base of distributions of bandwidths."""

    drawn: Drawing | None = option(
        None,
        "once for each link (both directions alike), once for each client, or for every message; null: once for each",
    )


class UniformLatency(PerMessage, UniformTime):
    """Uniform between two bounds."""


class ExponentialLatency(PerMessage, ExponentialTime):
    """Exponential with a given mean."""


class LognormalLatency(PerMessage, LognormalTime):
    """Log-normal with a given mean: mean * exp(N(-sigma²/2, sigma²))."""


class Trace(Config):
    """Measured values from a CSV file, each until the next.

    Values before the first, and those of other clients, are unchanged.
    """

    kind: Literal["trace"] = variant("trace")
    path: WorldFile = Field(
        description="CSV file with columns time and value, and client, or source and target, or neither for all"
    )
    unit: Text | None = option(None, "unit of plain numbers in the column value; null: values have units")
    every: PositiveSeconds | None = option(None, "period after which the trace repeats; null: never")


Latency = Annotated[ConstantTime | UniformLatency | ExponentialLatency | LognormalLatency, _QUANTITY]
LatencyRule = Annotated[ConstantTime | UniformLatency | ExponentialLatency | LognormalLatency | Trace, _QUANTITY]


class ConstantBandwidth(Constant[Bandwidth]):
    """The same always."""


class UniformBandwidth(PerLinkOrClient, Uniform[Bandwidth]):
    """Uniform between two bounds."""


class LognormalBandwidth(PerLinkOrClient, Lognormal[Bandwidth]):
    """Log-normal with a given mean: mean * exp(N(-sigma²/2, sigma²))."""


BandwidthRule = Annotated[ConstantBandwidth | UniformBandwidth | LognormalBandwidth | Trace, _QUANTITY]


class ConstantLoss(Constant[Loss]):
    """The same probability always."""


class UniformLoss(Uniform[Loss]):
    """A probability that is uniform between two bounds."""

    drawn: Drawing = option("link", _DRAWN)


class GilbertElliott(Config):
    """Losses in bursts.

    The link alternates between a good and a bad state, each for an exponential time.
    """

    kind: Literal["gilbert_elliott"] = variant("gilbert_elliott")
    good: PositiveSeconds = Field(description="mean length of the good state")
    bad: PositiveSeconds = Field(description="mean length of the bad state")
    loss_good: Loss = option(0.0, "probability that a message is lost in the good state")
    loss_bad: Probability = option(1.0, "probability that a message is lost in the bad state")
    drawn: Literal["link", "client"] = option(
        "link", "each link has states of its own (both directions alike), or each client"
    )


LossRule = Annotated[ConstantLoss | UniformLoss | GilbertElliott | Trace, _NUMBER]
