"""The clients: how many, how fast, and when some of them are slower."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from simfl.scenario.distributions import ConstantFactor, Jitter, Speed
from simfl.scenario.fields import (
    Clients,
    Config,
    Count,
    Positive,
    PositiveSeconds,
    RegionNames,
    Seconds,
    Share,
    WorldFile,
)
from simfl.scenario.problems import InvalidValueError, Problem
from simfl.scenario.units import format_time


class SpeedTrace(Config):
    """Factors on compute times over time, read when each mini-batch starts."""

    path: WorldFile = Field(
        description="CSV file, relative to the current folder, with the columns time (in seconds, or with a unit), "
        "client (a number, or all; all where there is no such column) and factor: a line says from when on it holds; "
        "before its first line a client has 1"
    )
    every: PositiveSeconds | None = Field(
        default=None, description="time after which the file begins anew, and so on; null: the last factors stay"
    )


class Population(Config):
    """The clients.

    A mini-batch of b examples takes (seconds_per_batch + b * seconds_per_example) * speed * slowdown * trace * jitter.
    """

    count: Count = Field(default=16, description="number of clients")
    seconds_per_example: PositiveSeconds = Field(
        default=1e-4, description="time to compute the gradient of one example"
    )
    seconds_per_batch: Seconds = Field(
        default=0.0, description="time that every mini-batch takes beside that, however small it is"
    )
    devices: WorldFile | None = Field(
        default=None,
        description="CSV file of devices, relative to the current folder, of which each client draws one: a line for "
        "each with name and seconds_per_example, and perhaps seconds_per_batch, memory, uplink, downlink and share (of "
        "the clients, 1 by default); their times take the place of the two above; null: all are the same",
    )
    speed: Speed = Field(
        default=ConstantFactor(),
        description="factor on a client's compute time, drawn once per client: 2 is half as fast",
    )
    jitter: Jitter = Field(
        default=ConstantFactor(), description="factor on each single computation, drawn afresh every time"
    )
    trace: SpeedTrace | None = Field(
        default=None, description="a factor on compute times that changes over time, from a file; null: none"
    )

    def batch_s(self, examples: int) -> float:
        """Return the seconds of a mini-batch at speed 1 on a uniform device."""
        return self.seconds_per_batch + examples * self.seconds_per_example


class Slowdown(Config):
    """Clients that compute more slowly: stragglers.

    Select them by exactly one of clients, fraction, regions and random; the factors of several rules multiply.
    """

    clients: Clients | None = Field(default=None, description="these clients, by number; the first is 0")
    fraction: Share | None = Field(default=None, description="this share of all clients, drawn once")
    regions: RegionNames | None = Field(default=None, description="the clients in these regions, of regions.names")
    random: Count | None = Field(default=None, description="this many clients, drawn afresh in every iteration")
    factor: Positive = Field(description="factor on the compute time: 10 is ten times slower")
    start: Seconds = Field(default=0.0, alias="from", description="virtual time at which the slowdown begins")
    until: PositiveSeconds | None = Field(
        default=None, description="virtual time at which it ends; null: at the end of the run"
    )

    @model_validator(mode="after")
    def _contradictions(self) -> Self:
        problems = list(exactly_one(self, "clients", "fraction", "regions", "random"))
        if self.until is not None and self.until <= self.start:
            expected = f"a time after 'from', which is {format_time(self.start)}"
            problems.append(Problem(expected, format_time(self.until), "swap from and until", ("until",)))
        if problems:
            raise InvalidValueError(*problems)
        return self


def exactly_one(section: Config, *keys: Annotated[str, "keys of the section"]) -> tuple[Problem, ...]:
    """Return a problem unless exactly one of these keys is given (not null)."""
    given = [key for key in keys if getattr(section, key) is not None]
    if len(given) == 1:
        return ()
    advice = f"keep one of {' and '.join(given)}" if given else f"add {keys[0]}"
    listed = ", ".join(keys[:-1]) + " and " + keys[-1]
    return (Problem(f"exactly one of {listed}", " and ".join(given) or "none of them", advice),)
