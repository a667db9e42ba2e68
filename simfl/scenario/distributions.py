"""Random quantities of the world: factors on compute times, and times."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from simfl.scenario.fields import ByKind, Config, Positive, PositiveSeconds, Seconds, Sigma, Text, WorldFile, variant
from simfl.scenario.problems import InvalidValueError, Problem
from simfl.scenario.units import format_time


class ConstantFactor(Config):
    """The same factor always; a plain number is short for it."""

    kind: Literal["constant"] = variant("constant")
    value: Positive = Field(default=1.0, description="the factor, > 0")


class UniformFactor(Config):
    """Uniform between two bounds."""

    kind: Literal["uniform"] = variant("uniform")
    low: Positive = Field(description="smallest factor, > 0")
    high: Positive = Field(description="largest factor")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high < self.low:
            problem = Problem(f"a number >= low, which is {self.low:g}", f"{self.high:g}", "swap low and high")
            raise InvalidValueError(problem.below(("high",)))
        return self


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
    """Factors drawn from a measured column of a CSV file, for example of device benchmarks."""

    kind: Literal["trace"] = variant("trace")
    path: WorldFile = Field(description="CSV file with a header line, relative to the current folder")
    column: Text = Field(description="name of the column that holds the factors")


Speed = Annotated[
    ConstantFactor | UniformFactor | LognormalFactor | ExponentialFactor | ListedFactors | TracedFactors,
    ByKind(scalar="constant"),
]
Jitter = Annotated[
    ConstantFactor | UniformFactor | LognormalFactor | ExponentialFactor,
    ByKind(scalar="constant"),
]


class ConstantTime(Config):
    """The same time always; a plain time such as "1 ms" is short for it."""

    kind: Literal["constant"] = variant("constant")
    value: Seconds = Field(description="the time, >= 0")


class UniformTime(Config):
    """Uniform between two bounds."""

    kind: Literal["uniform"] = variant("uniform")
    low: Seconds = Field(description="shortest time")
    high: Seconds = Field(description="longest time")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high < self.low:
            expected = f"a time >= low, which is {format_time(self.low)}"
            raise InvalidValueError(Problem(expected, format_time(self.high), "swap low and high", ("high",)))
        return self


class ExponentialTime(Config):
    """Exponential."""

    kind: Literal["exponential"] = variant("exponential")
    mean: PositiveSeconds = Field(description="mean time")


class LognormalTime(Config):
    """Log-normal with a given mean: mean * exp(N(-sigma²/2, sigma²))."""

    kind: Literal["lognormal"] = variant("lognormal")
    mean: PositiveSeconds = Field(description="mean time")
    sigma: Sigma = Field(description="standard deviation of the logarithm, no unit")


Duration = Annotated[
    ConstantTime | UniformTime | ExponentialTime | LognormalTime,
    ByKind(scalar="constant", quantities=True),
]
