"""Values of links: constants, distributions, traces, and bursts of losses."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simfl.scenario.distributions import (
    Constant,
    ConstantTime,
    ExponentialTime,
    Lognormal,
    LognormalTime,
    Uniform,
    UniformTime,
)
from simfl.scenario.fields import (
    Bandwidth,
    ByKind,
    Config,
    Loss,
    PositiveSeconds,
    Probability,
    Text,
    WorldFile,
    option,
    variant,
)

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


Latency = Annotated[
    ConstantTime | UniformLatency | ExponentialLatency | LognormalLatency,
    ByKind(scalar="constant", quantities=True),
]
LatencyRule = Annotated[
    ConstantTime | UniformLatency | ExponentialLatency | LognormalLatency | Trace,
    ByKind(scalar="constant", quantities=True),
]


class ConstantBandwidth(Constant[Bandwidth]):
    """The same always; a plain bandwidth such as "10 Mbit/s" is short for it."""


class UniformBandwidth(PerLinkOrClient, Uniform[Bandwidth]):
    """Uniform between two bounds."""


class LognormalBandwidth(PerLinkOrClient, Lognormal[Bandwidth]):
    """Log-normal with a given mean: mean * exp(N(-sigma²/2, sigma²))."""


BandwidthRule = Annotated[
    ConstantBandwidth | UniformBandwidth | LognormalBandwidth | Trace,
    ByKind(scalar="constant", quantities=True),
]


class ConstantLoss(Constant[Loss]):
    """The same probability always; a plain number is short for it."""


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


LossRule = Annotated[ConstantLoss | UniformLoss | GilbertElliott | Trace, ByKind(scalar="constant")]
