"""The clients: how many, how fast, and when some of them are slower."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from simfl.scenario.distributions import ConstantFactor, Jitter, Speed
from simfl.scenario.fields import Clients, Config, Count, Positive, PositiveSeconds, Seconds, Share
from simfl.scenario.problems import InvalidValueError, Problem
from simfl.scenario.units import format_time


class Population(Config):
    """The clients and their compute time: b * seconds_per_example * speed * slowdown * jitter for b examples."""

    count: Count = Field(default=16, description="number of clients")
    seconds_per_example: PositiveSeconds = Field(
        default=1e-4, description="time to compute the gradient of one example"
    )
    speed: Speed = Field(
        default=ConstantFactor(),
        description="factor on a client's compute time, drawn once per client: 2 is half as fast",
    )
    jitter: Jitter = Field(
        default=ConstantFactor(), description="factor on each single computation, drawn afresh every time"
    )


class Slowdown(Config):
    """Clients that compute slower, named by exactly one of clients, fraction and random; several rules multiply."""

    clients: Clients | None = Field(default=None, description="these clients, by number; the first is 0")
    fraction: Share | None = Field(default=None, description="this share of all clients, drawn once")
    random: Count | None = Field(default=None, description="this many clients, drawn afresh in every iteration")
    factor: Positive = Field(description="factor on the compute time: 10 is ten times slower")
    start: Seconds = Field(default=0.0, alias="from", description="virtual time at which the slowdown begins")
    until: PositiveSeconds | None = Field(
        default=None, description="virtual time at which it ends; null: at the end of the run"
    )

    @model_validator(mode="after")
    def _contradictions(self) -> Self:
        problems = list(exactly_one(self, "clients", "fraction", "random"))
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
