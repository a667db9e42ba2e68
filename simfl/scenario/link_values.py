"""What a link can be given: values, distributions and how often they are drawn, traces, and losses in bursts."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from simfl.scenario.distributions import ConstantTime, ExponentialTime, LognormalTime, UniformTime
from simfl.scenario.fields import (
    Bandwidth,
    ByKind,
    Config,
    Loss,
    PositiveSeconds,
    Probability,
    Sigma,
    Text,
    WorldFile,
    variant,
)
from simfl.scenario.problems import InvalidValueError, Problem
from simfl.scenario.units import format_bandwidth

Drawing = Literal["message", "link", "client"]
_DRAWN = "for every message anew, once for each link (both directions alike), or once for each client"


class UniformLatency(UniformTime):
    """Uniform between two bounds."""

    drawn: Drawing = Field(default="message", description=_DRAWN)


class ExponentialLatency(ExponentialTime):
    """Exponential."""

    drawn: Drawing = Field(default="message", description=_DRAWN)


class LognormalLatency(LognormalTime):
    """Log-normal with a given mean: mean * exp(N(-sigma²/2, sigma²))."""

    drawn: Drawing = Field(default="message", description=_DRAWN)


class Trace(Config):
    """Measured values of a CSV file, from each time on until the next; before the first, and for others: as without."""

    kind: Literal["trace"] = variant("trace")
    path: WorldFile = Field(
        description="CSV file with columns time and value, and client, or source and target, or neither for everybody"
    )
    unit: Text | None = Field(default=None, description="of plain numbers in the column value; null: they have theirs")
    every: PositiveSeconds | None = Field(default=None, description="the trace begins anew after so long; null: never")


Latency = Annotated[
    ConstantTime | UniformLatency | ExponentialLatency | LognormalLatency,
    ByKind(scalar="constant", quantities=True),
]
LatencyRule = Annotated[
    ConstantTime | UniformLatency | ExponentialLatency | LognormalLatency | Trace,
    ByKind(scalar="constant", quantities=True),
]

_OF_PACES = (
    "once for each link (both directions alike), once for each client, or for every message; null: once for each"
)


class ConstantBandwidth(Config):
    """The same always; a plain bandwidth such as "10 Mbit/s" is short for it."""

    kind: Literal["constant"] = variant("constant")
    value: Bandwidth = Field(description="the bandwidth")


class UniformBandwidth(Config):
    """Uniform between two bounds."""

    kind: Literal["uniform"] = variant("uniform")
    low: Bandwidth = Field(description="smallest bandwidth")
    high: Bandwidth = Field(description="largest bandwidth")
    drawn: Drawing | None = Field(default=None, description=_OF_PACES)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high < self.low:
            expected = f"a bandwidth >= low, which is {format_bandwidth(self.low)}"
            raise InvalidValueError(Problem(expected, format_bandwidth(self.high), "swap low and high", ("high",)))
        return self


class LognormalBandwidth(Config):
    """Log-normal with a given mean: mean * exp(N(-sigma²/2, sigma²))."""

    kind: Literal["lognormal"] = variant("lognormal")
    mean: Bandwidth = Field(description="mean bandwidth")
    sigma: Sigma = Field(description="standard deviation of the logarithm, no unit")
    drawn: Drawing | None = Field(default=None, description=_OF_PACES)


BandwidthRule = Annotated[
    ConstantBandwidth | UniformBandwidth | LognormalBandwidth | Trace,
    ByKind(scalar="constant", quantities=True),
]


class ConstantLoss(Config):
    """The same probability always; a plain number is short for it."""

    kind: Literal["constant"] = variant("constant")
    value: Loss = Field(description="probability that a message is lost")


class UniformLoss(Config):
    """A probability that is uniform between two bounds."""

    kind: Literal["uniform"] = variant("uniform")
    low: Loss = Field(description="smallest probability")
    high: Loss = Field(description="largest probability")
    drawn: Drawing = Field(default="link", description=_DRAWN)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high < self.low:
            expected = f"a number >= low, which is {self.low:g}"
            raise InvalidValueError(Problem(expected, f"{self.high:g}", "swap low and high", ("high",)))
        return self


class GilbertElliott(Config):
    """Losses in bursts: the link is in a good or a bad state, each for exponential times."""

    kind: Literal["gilbert_elliott"] = variant("gilbert_elliott")
    good: PositiveSeconds = Field(description="mean length of the good state")
    bad: PositiveSeconds = Field(description="mean length of the bad state")
    loss_good: Loss = Field(default=0.0, description="probability that a message is lost in the good state")
    loss_bad: Probability = Field(default=1.0, description="probability that a message is lost in the bad state")
    drawn: Literal["link", "client"] = Field(
        default="link", description="each link has states of its own (both directions alike), or each client"
    )


LossRule = Annotated[ConstantLoss | UniformLoss | GilbertElliott | Trace, ByKind(scalar="constant")]
