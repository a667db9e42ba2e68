"""The clients: how many, how fast, and when some of them are slower."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from simfl.scenario.distributions import ConstantFactor, Jitter, Speed
from simfl.scenario.fields import (
    Clients,
    Config,
    Count,
    Index,
    Positive,
    PositiveSeconds,
    RegionNames,
    Seconds,
    Share,
    WorldFile,
    option,
)
from simfl.scenario.problems import Problem
from simfl.scenario.units import format_time


class SpeedTrace(Config):
    """Factors on compute times over time, read when each mini-batch starts."""

    path: WorldFile = Field(
        description="CSV file with the columns time (in seconds, or with a unit), client (a number, or all; all if "
        "there is no such column) and factor: a line holds from its time on; before its first line, a client has "
        "factor 1"
    )
    every: PositiveSeconds | None = option(None, "time after which the file repeats; null: the last factors stay")


class Population(Config):
    """The clients.

    A mini-batch of b examples takes (seconds_per_batch + b * seconds_per_example) * speed * slowdown * trace * jitter.
    """

    count: Count = option(16, "number of clients")
    users: Count | tuple[Index, ...] | None = option(
        None,
        "users that own the clients, for privacy.unit: user: their number (clients in a row belong to one user), or "
        "the user of each client, from 0; null: every client is a user",
        exclude_if=lambda users: users is None,
    )
    seconds_per_example: PositiveSeconds = option(1e-4, "time to compute the gradient of one example")
    seconds_per_batch: Seconds = option(0.0, "fixed time of every mini-batch, in addition to that of its examples")
    devices: WorldFile | None = option(
        None,
        "CSV file of devices; each client draws one. A line for each device has name and seconds_per_example, "
        "and perhaps seconds_per_batch, memory, uplink, downlink and share (of the clients, 1 by default); their "
        "times replace the two above. null: all devices are the same",
    )
    speed: Speed = option(
        ConstantFactor(), "factor on a client's compute time, drawn once per client: 2 is half as fast"
    )
    jitter: Jitter = option(ConstantFactor(), "factor on each single computation, drawn for each of them")
    trace: SpeedTrace | None = option(None, "a factor on compute times that changes over time, from a file; null: none")

    @property
    def owners(self) -> tuple[int, ...] | None:
        """The user of each client; None if every client is a user."""
        if self.users is None:
            return None
        if isinstance(self.users, int):
            return tuple(client * self.users // self.count for client in range(self.count))
        return self.users

    def batch_s(self, examples: int) -> float:
        """Return the seconds of a mini-batch at speed 1 on a uniform device."""
        return self.seconds_per_batch + examples * self.seconds_per_example


class Slowdown(Config):
    """Clients that compute more slowly: stragglers.

    Select them by exactly one of clients, fraction, regions and random; the factors of several rules multiply.
    """

    clients: Clients | None = option(None, "these clients, by number; the first is 0")
    fraction: Share | None = option(None, "this fraction of all clients, drawn once")
    regions: RegionNames | None = option(None, "the clients in these regions, of regions.names")
    random: Count | None = option(None, "this many clients, drawn again in every iteration")
    factor: Positive = Field(description="factor on the compute time: 10 is ten times slower")
    start: Seconds = option(0.0, "virtual time at which the slowdown begins", alias="from")
    until: PositiveSeconds | None = option(None, "virtual time at which it ends; null: at the end of the run")

    def problems(self) -> Iterator[Problem]:
        """Yield a problem unless one selection is given and the times are in order."""
        yield from exactly_one(self, "clients", "fraction", "regions", "random")
        yield from ends_after_start(self.start, self.until)


def exactly_one(section: Config, *keys: str) -> Iterator[Problem]:
    """Yield a problem unless exactly one of these keys is given (not null)."""
    given = [key for key in keys if getattr(section, key) is not None]
    if len(given) != 1:
        advice = f"keep one of {' and '.join(given)}" if given else f"add {keys[0]}"
        listed = ", ".join(keys[:-1]) + " and " + keys[-1]
        yield Problem(f"exactly one of {listed}", " and ".join(given) or "none of them", advice)


def ends_after_start(start: float, until: float | None) -> Iterator[Problem]:
    """Yield a problem if `until` is not after `from`."""
    if until is not None and until <= start:
        expected = f"a time after 'from', which is {format_time(start)}"
        yield Problem(expected, format_time(until), "swap from and until", ("until",))
