"""Regions of clients, and latencies and bandwidths between them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from simfl.scenario.clients import exactly_one
from simfl.scenario.fields import (
    Bandwidth,
    ByKind,
    Config,
    Flag,
    Index,
    Probability,
    Seconds,
    Text,
    WorldFile,
    option,
    variant,
)
from simfl.scenario.problems import Problem, one_each, show, suggestion


class Matrix(Config):
    """A list of one row for each sending region, one column for each receiving."""

    def shape(self, count: int) -> Iterator[Problem]:
        """Yield problems of the numbers of rows and columns."""
        if (rows := getattr(self, "values", None)) is None:
            return
        if len(rows) != count:
            yield Problem(f"{count} rows, one for each of regions.names", str(len(rows)), "add or remove rows")
        for i, row in enumerate(rows):
            if len(row) != count:
                found, at = str(len(row)), ("values", i)
                yield Problem(f"{count} values, one for each of regions.names", found, "change the row", at)


class _Table(Matrix):
    """A CSV file with a matrix."""

    path: WorldFile = Field(
        description="CSV file: a header of names, then for each region its name and a row of values"
    )
    unit: Text | None = option(None, "unit of plain numbers in the file; null: numbers have units")


class LatencyMatrix(Matrix):
    """A list of one row for each sending region, one column for each receiving."""

    kind: Literal["matrix"] = variant("matrix")
    values: tuple[tuple[Seconds | None, ...], ...] = Field(
        description="rows and columns in the order of names; null: as links say"
    )
    round_trips: Flag = option(False, "they are round trips: a message takes half of it")


class LatencyTable(_Table):
    """A CSV file with such a matrix; an empty cell is as links say."""

    kind: Literal["csv"] = variant("csv")
    round_trips: Flag = option(False, "they are round trips: a message takes half of it")


class BandwidthMatrix(Matrix):
    """A list of one row for each sending region, one column for each receiving."""

    kind: Literal["matrix"] = variant("matrix")
    values: tuple[tuple[Bandwidth | None, ...], ...] = Field(
        description="rows and columns in the order of names; null: as links say"
    )


class BandwidthTable(_Table):
    """A CSV file with such a matrix; an empty cell is as links say."""

    kind: Literal["csv"] = variant("csv")


class Regions(Config):
    """The regions of clients, and the distances between them.

    Give exactly one of counts, shares, clients and path.
    """

    names: tuple[Text, ...] = Field(description="names of the regions; rules about links may use them")
    counts: tuple[Index, ...] | None = option(
        None, "clients in each region, in the order of their numbers: the first ones in the first"
    )
    shares: tuple[Probability, ...] | None = option(None, "fraction of all clients in each region, drawn once")
    clients: tuple[Text, ...] | None = option(None, "name of the region of each client")
    path: WorldFile | None = option(None, "CSV file with a row for each client")
    column: Text = option("region", "column of that file with the name of the client's region")
    latency: Annotated[LatencyMatrix | LatencyTable, ByKind(listed="matrix")] | None = option(
        None, "latency of messages from one region to another; a list of lists is short for a matrix"
    )
    bandwidth: Annotated[BandwidthMatrix | BandwidthTable, ByKind(listed="matrix")] | None = option(
        None, "bandwidth of links from one region to another; a list of lists is short for a matrix"
    )

    def problems(self) -> Iterator[Problem]:
        """Yield problems of the names, and of lists and matrices that do not fit them."""
        yield from exactly_one(self, "counts", "shares", "clients", "path")
        count, twice = len(self.names), [name for i, name in enumerate(self.names) if name in self.names[:i]]
        if not count:
            yield Problem("at least one name", "[]", "name the regions", ("names",))
        elif twice or "server" in self.names:
            found = f"{twice[0]!r} more than once" if twice else "'server', which is the server"
            yield Problem("a name of its own for each region", found, "rename it", ("names",))
        for key in ("counts", "shares"):
            given = getattr(self, key)
            if given is not None and len(given) != count:
                expected = f"{count} values, one for each of names"
                yield Problem(expected, str(len(given)), "change the list or names", (key,))
        if self.shares is not None and not math.isclose(sum(self.shares), 1.0, abs_tol=1e-6):
            yield Problem("shares that add up to 1", f"{sum(self.shares):g}", "change them", ("shares",))
        for i, name in enumerate(self.clients or ()):
            if name not in self.names:
                advice = suggestion(name, self.names, "add it there")
                yield Problem("one of regions.names", show(name), advice, ("clients", i))
        for key in ("latency", "bandwidth"):
            if (matrix := getattr(self, key)) is not None:
                yield from (problem.below((key,)) for problem in matrix.shape(count))

    def uneven(self, count: int) -> Iterator[Problem]:
        """Yield a problem if not each of `count` clients is in a region."""
        if self.clients is not None:
            yield from one_each(len(self.clients), count, ("clients",))
        if self.counts is not None and sum(self.counts) != count:
            expected = f"counts that add up to clients.count, which is {count}"
            yield Problem(expected, str(sum(self.counts)), "change them or clients.count", ("counts",))
