"""The prices of a run: energy, money and carbon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from simfl.scenario.clients import exactly_one
from simfl.scenario.fields import Config, NonNegative, PositiveSeconds, Short, WorldFile, option
from simfl.scenario.problems import Problem


class Carbon(Config):
    """The carbon intensity of electricity, constant or over time."""

    grams_per_kwh: NonNegative | None = option(None, "constant intensity, in grams of CO2 equivalent per kWh")
    path: WorldFile | None = option(
        None,
        "CSV file with the columns time (in seconds, or with a unit), grams_per_kwh, and region (one of "
        "regions.names, or all; all if there is no such column): a line holds from its time on, and the first "
        "line of a region is at time 0",
    )
    every: PositiveSeconds | None = option(None, "time after which the file repeats; null: the last values stay")

    def problems(self) -> Iterator[Problem]:
        """Yield a constant beside a file, neither, and a period without a file."""
        yield from exactly_one(self, "grams_per_kwh", "path")
        if self.every is not None and self.path is None:
            yield Problem("a path beside it", "none", "add path, or remove it", ("every",))


class Costs(Config):
    """What time and bytes cost; metrics then have energy_j, money and carbon_g.

    A client takes busy_watts while it computes, idle_watts in all other time online, and nothing while it is offline.
    Columns of these names in the file of clients.devices replace the first three values for each client.
    """

    busy_watts: NonNegative = option(0.0, "power of a client that computes, in watts")
    idle_watts: NonNegative = option(0.0, "power of a client that is online and does not compute, in watts")
    joules_per_byte: NonNegative = option(
        0.0, "energy of a byte that is sent, by clients and servers; the whole way of the byte is the sender's"
    )
    per_hour: NonNegative = option(0.0, "price of an hour of one client online, in any currency")
    per_gigabyte: NonNegative = option(0.0, "price of 1e9 bytes sent by clients and servers, in the same currency")
    carbon: Annotated[Carbon, Short("grams_per_kwh")] | None = option(
        None, "carbon intensity of the electricity; null: carbon_g is 0"
    )
