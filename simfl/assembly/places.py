"""The nodes that rules of a scenario select."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from simfl.assembly.csv_files import CsvFile
from simfl.errors import DataError, nearest
from simfl.scenario import Scenario
from simfl.streams import Streams


class Places:
    """The nodes that rules select by number, by region, at random, or as server.

    Servers are numbered after the clients: the server is node K, those below it are K + 1 and so on.
    """

    def __init__(self, scenario: Scenario, streams: Streams) -> None:
        self.count, self._streams = scenario.clients.count, streams
        beside = scenario.algorithm.nodes_beside_server(scenario)
        self.servers = frozenset(range(self.count, self.count + 1 + len(beside)))
        #: The number of the region of each node that is in a region.
        self.regions: dict[int, int] = {}
        self._names: tuple[str, ...] = ()
        if (regions := scenario.regions) is None:
            return
        self._names = regions.names
        self.regions = dict(enumerate(self._of_clients(regions)))
        for node, name in zip(sorted(self.servers), [scenario.server.region, *beside], strict=True):
            if name is not None:
                self.regions[node] = self._names.index(name)

    def _of_clients(self, regions: Any) -> Iterable[int]:
        if regions.counts is not None:
            return [number for number, count in enumerate(regions.counts) for _ in range(count)]
        if regions.clients is not None:
            return [self._names.index(name) for name in regions.clients]
        if regions.shares is not None:
            ends = np.round(np.cumsum(regions.shares) * self.count).astype(int)
            region = np.searchsorted(ends, np.arange(self.count), side="right").clip(max=len(self._names) - 1)
            return map(int, self._streams.generator("region-clients").permutation(region))
        file = CsvFile(Path(regions.path), "regions.path", (regions.column,), open_to_others=True)
        clients = _clients_of(file, self.count) if regions.column != "client" else None
        if len(file) != self.count:
            raise DataError(
                f"regions.path: {regions.path}: expected a row for each client, {self.count} rows, found {len(file)}; "
                "change clients.count or the file"
            )
        names = file.words(regions.column)
        for row, name in enumerate(names):
            if name not in self._names:
                advice = f"name it there{nearest(name, self._names)}"
                raise file.refused(row, regions.column, "one of regions.names", advice)
        region_of = dict(zip(clients or range(self.count), names, strict=True))
        return [self._names.index(region_of[client]) for client in range(self.count)]

    def of(self, places: Iterable[int | str]) -> frozenset[int]:
        """Return the nodes that numbers, `server` and names of regions stand for."""
        return frozenset(node for place in places for node in self._nodes(place))

    def _nodes(self, place: int | str) -> Iterable[int]:
        if isinstance(place, int):
            return [place]
        if place == "server":
            return self.servers
        number = self._names.index(place)
        return [node for node, region in self.regions.items() if region == number]

    def share(self, fraction: float, purpose: str, index: int) -> list[int]:
        """Draw a share of all clients, at least one."""
        size = max(1, round(fraction * self.count))
        return sorted(map(int, self._streams.generator(purpose, index).choice(self.count, size, replace=False)))

    def clients(self, rule: Any, index: int, purpose: str) -> list[int]:
        """Return the clients that a rule selects, without servers in its regions."""
        return [node for node in self.chosen(rule, index, purpose) if node < self.count]

    def chosen(self, rule: Any, index: int, purpose: str) -> Iterable[int]:
        """Return the nodes that a rule selects."""
        if rule.clients is not None:
            words = any(isinstance(place, str) for place in rule.clients)
            return sorted(self.of(rule.clients)) if words else list(rule.clients)
        if rule.regions is not None:
            return sorted(self.of(rule.regions))
        if rule.fraction is not None:
            return self.share(rule.fraction, purpose, index)
        return range(self.count)


def _clients_of(file: CsvFile, count: int) -> list[int] | None:
    """Return the client of each row by the column `client`; None without one."""
    if "client" not in file.names:
        return None
    rows: dict[int, int] = {}
    for row, word in enumerate(file.words("client")):
        if not (word.isdecimal() and int(word) < count):
            raise file.refused(row, "client", f"a client below clients.count, which is {count}")
        if (first := rows.setdefault(int(word), row)) != row:
            raise file.refused(row, "client", f"each client once; line {file.lines[first]} has it")
    return list(rows)
