"""Who is linked with whom where that changes: graphs as time goes by.

At each moment a graph is in force; it need not be connected, as long as all are over time. What a message under way
meets when its link goes depends on what the graph means:

- A graph that is redrawn, sampled or scripted says whom a client turns to: what is under way arrives, answers too.
- A contact plan says who reaches whom at all, of vehicles or satellites: what is under way when a contact ends is lost,
  and waits for the next contact of the two, as across a partition (`simfl.world.links`).

Sources: Ying et al. 2021, https://arxiv.org/abs/2110.13363 (one-peer exponential graphs); Jelasity et al. 2007,
"Gossip-based peer sampling", https://doi.org/10.1145/1275517.1275520 (here as its ideal: uniform and independent).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence

import networkx as nx
import numpy as np

from simfl.world.cuts import Cut, Cuts
from simfl.world.topology import Others, Topology

CHANGING: dict[str, str] = {
    "one_peer": "client i is linked with i ± 1, then i ± 2, i ± 4, ...: one power of two at a time, in turn",
    "peer_sampling": "everyone links with `peers` others, drawn afresh again and again",
    "sequence": "a list of graphs, each from its time on",
    "contacts": "a contact plan: who meets whom from when to when (path)",
}
"""The kinds of topologies that change by themselves; the random ones of `topology` may be redrawn."""


class Changing(ABC):
    """Graphs as time goes by.

    Attributes:
        kind: the name of its family.
        num_clients: K.
    """

    def __init__(self, kind: str, num_clients: int) -> None:
        self.kind = kind
        self.num_clients = num_clients

    @abstractmethod
    def at(self, time: float) -> Topology:
        """Return the graph in force: the same object for as long as it is."""

    @abstractmethod
    def meets_s(self, client: int, time: float) -> float:
        """Return when the client has a neighbor: `time` itself, or later; infinite for never again."""

    @abstractmethod
    def acquaintances(self, client: int) -> Sequence[int]:
        """Return whom the client is or may be linked with at some time."""

    @abstractmethod
    def known(self) -> Topology:
        """Return all links that are known beforehand: of those that are drawn, the first graph's."""

    def neighbors(self, client: int, time: float) -> Sequence[int]:
        """Return the sorted ids that the client has a link with at a time."""
        return self.at(time).neighbors(client)


class Redrawn(Changing):
    """A new graph every so often, in which everybody has a neighbor.

    Args:
        kind: the name of its family.
        num_clients: K.
        draw: returns a graph by its number, the same whenever it is asked.
        every_s: how long each is in force.
    """

    def __init__(self, kind: str, num_clients: int, draw: Callable[[int], Topology], every_s: float) -> None:
        super().__init__(kind, num_clients)
        self._draw, self._every_s = draw, every_s
        self._first = draw(0)
        self._last = 0, self._first

    def at(self, time: float) -> Topology:
        """Draw it when it is asked for first."""
        number = int(time // self._every_s)
        if number != self._last[0]:
            self._last = number, self._draw(number) if number else self._first
        return self._last[1]

    def meets_s(self, client: int, time: float) -> float:
        """Everybody always has a neighbor."""
        return time

    def acquaintances(self, client: int) -> Sequence[int]:
        """Everybody else: nobody knows who will be drawn."""
        return Others(client, self.num_clients)

    def known(self) -> Topology:
        """Return the first graph."""
        return self._first


class Scripted(Changing):
    """Graphs with times.

    Args:
        kind: the name of its family.
        graphs: when each begins, and what it is; the first begins at 0.
        every_s: after this time they begin anew, and so on; infinite: the last one stays.
    """

    def __init__(self, kind: str, graphs: Sequence[tuple[float, Topology]], every_s: float = math.inf) -> None:
        super().__init__(kind, graphs[0][1].num_clients)
        self._starts_s, self._graphs = [start for start, _ in graphs], [graph for _, graph in graphs]
        self._every_s = every_s

    def at(self, time: float) -> Topology:
        """Return the last one that has begun."""
        phase = time if math.isinf(self._every_s) else time % self._every_s
        return self._graphs[bisect_right(self._starts_s, phase) - 1]

    def meets_s(self, client: int, time: float) -> float:
        """Each graph is connected."""
        return time

    def acquaintances(self, client: int) -> Sequence[int]:
        """Return its neighbors in any of them."""
        return self.known().neighbors(client)

    def known(self) -> Topology:
        """Return the links of all."""
        return _union(self.kind, self._graphs)


def _union(kind: str, graphs: Sequence[Topology]) -> Topology:
    """Return the links of several graphs."""
    if complete := next((graph for graph in graphs if graph.is_complete), None):
        return complete
    return Topology.from_graph(nx.compose_all([graph.graph for graph in graphs]), kind)


class Contacts(Changing):
    """A contact plan.

    Args:
        num_clients: K.
        contacts: (from, until, one, other), in seconds and ids; those of two clients may overlap.
        every_s: after this time they come again, and so on; infinite for never.
    """

    def __init__(
        self, num_clients: int, contacts: Iterable[tuple[float, float, int, int]], every_s: float = math.inf
    ) -> None:
        super().__init__("contacts", num_clients)
        self._every_s = every_s
        spans: dict[tuple[int, int], list[tuple[float, float]]] = {}
        for begin, end, one, other in sorted(contacts):
            mine = spans.setdefault((min(one, other), max(one, other)), [])
            if mine and begin <= mine[-1][1]:
                mine[-1] = mine[-1][0], max(mine[-1][1], end)
            else:
                mine.append((begin, end))
        self._spans: Mapping[tuple[int, int], list[tuple[float, float]]] = spans
        peers: list[list[int]] = [[] for _ in range(num_clients)]
        for one, other in spans:
            peers[one].append(other)
            peers[other].append(one)
        self._peers = [tuple(sorted(ids)) for ids in peers]
        self._changes = sorted({time for mine in spans.values() for span in mine for time in span})
        self._last: tuple[tuple[float, int], Topology] | None = None

    def _phase(self, time: float) -> tuple[float, float]:
        """Return when the repetition that a time lies in began, and the time since."""
        if math.isinf(self._every_s):
            return 0.0, time
        begun = math.floor(time / self._every_s) * self._every_s
        return begun, time - begun

    def contact(self, one: int, other: int, time: float) -> tuple[float, float]:
        """Return the contact of two clients that is on at a time, or the next one: infinite if there is none."""
        mine = self._spans.get((min(one, other), max(one, other)))
        if not mine:
            return math.inf, math.inf
        begun, phase = self._phase(time)
        place = bisect_right(mine, phase, key=lambda span: span[1])
        while place < len(mine) and begun + mine[place][1] <= time:  # by rounding
            place += 1
        if place < len(mine):
            return begun + mine[place][0], begun + mine[place][1]
        if math.isinf(self._every_s):
            return math.inf, math.inf
        again = begun + self._every_s
        return again + mine[0][0], again + mine[0][1]

    def linked_s(self, one: int, other: int, time: float) -> float:
        """Return when two clients are in contact: `time` itself, or later; infinite for never again."""
        return max(time, self.contact(one, other, time)[0])

    def neighbors(self, client: int, time: float) -> Sequence[int]:
        """Ask its own contacts only."""
        return tuple(k for k in self._peers[client] if self.contact(client, k, time)[0] <= time)

    def at(self, time: float) -> Topology:
        """Put together what all have."""
        begun, phase = self._phase(time)
        place = begun, bisect_right(self._changes, phase)
        if self._last is None or self._last[0] != place:
            adjacency = tuple(self.neighbors(k, time) for k in range(self.num_clients))
            self._last = place, Topology(self.kind, adjacency)
        return self._last[1]

    def meets_s(self, client: int, time: float) -> float:
        """Return when its next contact begins."""
        return min((self.linked_s(client, k, time) for k in self._peers[client]), default=math.inf)

    def acquaintances(self, client: int) -> Sequence[int]:
        """Return whom it ever meets."""
        return self._peers[client]

    def known(self) -> Topology:
        """Return who ever meets."""
        graph: nx.Graph[int] = nx.empty_graph(self.num_clients)
        graph.add_edges_from(self._spans)
        return Topology.from_graph(graph, self.kind)


class ContactCuts(Cuts):
    """Partitions, and clients that reach each other in contacts only; other nodes are in contact with everybody.

    Args:
        cuts: the partitions.
        contacts: the plan.
    """

    def __init__(self, cuts: Cuts, contacts: Contacts) -> None:
        super().__init__(cuts._cuts)
        self._contacts = contacts

    def __bool__(self) -> bool:
        return True

    def _linked_s(self, nodes: Sequence[int], time: float) -> float:
        one, other = min(nodes), max(nodes)
        if one == other or other >= self._contacts.num_clients:
            return time
        return self._contacts.linked_s(one, other, time)

    def joined_s(self, nodes: Sequence[int], time: float) -> float:
        """Return when neither a partition nor the lack of a contact keeps two nodes apart."""
        found = super().joined_s(nodes, time)
        while found < (linked_s := self._linked_s(nodes, found)) < math.inf:
            found = super().joined_s(nodes, linked_s)
        return max(found, linked_s)

    def hit(self, nodes: Sequence[int], begin: float, end: float) -> Cut | None:
        """Return what separates the nodes first from `begin` until `end`: a partition, or the end of their contact."""
        found, now = super().hit(nodes, begin, end), begin
        while now <= end and (found is None or now < found.start_s):
            linked_s = self._linked_s(nodes, now)
            if linked_s > now:
                return Cut((frozenset({nodes[0]}),), now, linked_s)
            if max(nodes) >= self._contacts.num_clients or nodes[0] == nodes[-1]:
                return found
            now = self._contacts.contact(min(nodes), max(nodes), now)[1]
        return found


def one_peer(num_clients: int, number: int) -> Topology:
    """Return graph `number` of those that link client i with i ± 2^h, one h after the other."""
    hop = 2 ** (number % max(1, (num_clients - 1).bit_length()))
    return Topology(
        "one_peer",
        tuple(tuple(sorted({(k + hop) % num_clients, (k - hop) % num_clients})) for k in range(num_clients)),
    )


def sampled_peers(num_clients: int, peers: int, generator: np.random.Generator) -> Topology:
    """Return a graph in which everybody links with so many others, drawn without replacement."""
    neighbors: list[set[int]] = [set() for _ in range(num_clients)]
    for client in range(num_clients):
        for drawn in generator.choice(num_clients - 1, peers, replace=False).tolist():
            other = drawn + (drawn >= client)
            neighbors[client].add(other)
            neighbors[other].add(client)
    return Topology("peer_sampling", tuple(tuple(sorted(ids)) for ids in neighbors))
