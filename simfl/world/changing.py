"""Topologies that change over time.

At each moment one graph is in force. It need not be connected, as long as all graphs together are. What happens to a
message in flight when its link disappears depends on the kind of graph:

- A redrawn, sampled or scripted graph decides which peers a client contacts. Messages in flight, and answers, arrive.
- A contact plan, of vehicles or satellites, decides which clients can reach each other. A message in flight when a
  contact ends is lost, and is sent again in the next contact of the two, as after a partition (`simfl.world.links`).

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
from simfl.world.steps import repetition
from simfl.world.topology import Others, Topology

CHANGING: dict[str, str] = {
    "one_peer": "client i is linked with i ± 1, then i ± 2, i ± 4, ...: one power of two at a time, in turn",
    "peer_sampling": "every client links with `peers` others, drawn again at regular intervals",
    "sequence": "a list of graphs, each with the time at which it begins",
    "contacts": "a contact plan: which clients are in contact, and from when until when (path)",
}
"""The kinds of topologies that always change; random kinds of `topology` change if they are redrawn."""


class Changing(ABC):
    """A topology that changes over time. `kind` is the name of its family."""

    def __init__(self, kind: str, num_clients: int) -> None:
        self.kind = kind
        self.num_clients = num_clients

    @abstractmethod
    def at(self, time: float) -> Topology:
        """Return the graph in force; the same object while it does not change."""

    @abstractmethod
    def meets_s(self, client: int, time: float) -> float:
        """Return when the client next has a neighbor, from `time` on; inf for never."""

    @abstractmethod
    def acquaintances(self, client: int) -> Sequence[int]:
        """Return the clients that may be neighbors at some time."""

    @abstractmethod
    def known(self) -> Topology:
        """Return all links known before the run; of random graphs, the first ones."""

    def neighbors(self, client: int, time: float) -> Sequence[int]:
        """Return the sorted ids of the client's neighbors at a time."""
        return self.at(time).neighbors(client)


class Redrawn(Changing):
    """A new graph at regular intervals; every client has a neighbor in each.

    Args:
        draw: returns the graph of a number; the same number must give the same graph.
        every_s: how long each graph is in force.
    """

    def __init__(self, kind: str, num_clients: int, draw: Callable[[int], Topology], every_s: float) -> None:
        super().__init__(kind, num_clients)
        self._draw, self._every_s = draw, every_s
        self._first = draw(0)
        self._last = 0, self._first

    def at(self, time: float) -> Topology:
        """Return the graph in force, drawn on first use."""
        number = int(time // self._every_s)
        if number != self._last[0]:
            self._last = number, self._draw(number) if number else self._first
        return self._last[1]

    def meets_s(self, client: int, time: float) -> float:
        """Return `time`: every client always has a neighbor."""
        return time

    def acquaintances(self, client: int) -> Sequence[int]:
        """Return all other clients: any of them may be drawn."""
        return Others(client, self.num_clients)

    def known(self) -> Topology:
        """Return the first graph."""
        return self._first


class Scripted(Changing):
    """Given graphs at given times.

    Args:
        graphs: when each begins, and the graph; the first begins at 0.
        every_s: the period after which they repeat; infinite: the last one stays.
    """

    def __init__(self, kind: str, graphs: Sequence[tuple[float, Topology]], every_s: float = math.inf) -> None:
        super().__init__(kind, graphs[0][1].num_clients)
        self._starts_s, self._graphs = [start for start, _ in graphs], [graph for _, graph in graphs]
        self._every_s = every_s

    def at(self, time: float) -> Topology:
        """Return the last graph that has begun."""
        phase = time if math.isinf(self._every_s) else time % self._every_s
        return self._graphs[bisect_right(self._starts_s, phase) - 1]

    def meets_s(self, client: int, time: float) -> float:
        """Return `time`: each graph is connected."""
        return time

    def acquaintances(self, client: int) -> Sequence[int]:
        """Return the client's neighbors in any graph."""
        return self.known().neighbors(client)

    def known(self) -> Topology:
        """Return the links of all graphs."""
        if complete := next((graph for graph in self._graphs if graph.is_complete), None):
            return complete
        return Topology.from_graph(nx.compose_all([graph.graph for graph in self._graphs]), self.kind)


class Contacts(Changing):
    """A contact plan.

    Args:
        contacts: (from, until, one, other), in seconds and ids; contacts of the same two clients may overlap.
        every_s: the period after which they repeat; infinite if they do not.
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

    def contact(self, one: int, other: int, time: float) -> tuple[float, float]:
        """Return the interval of two clients' current or next contact."""
        mine = self._spans.get((min(one, other), max(one, other)))
        if not mine:
            return math.inf, math.inf
        begun = repetition(time, self._every_s)
        place = bisect_right(mine, time - begun, key=lambda span: span[1])
        while place < len(mine) and begun + mine[place][1] <= time:  # already over; `time - begun` was rounded
            place += 1
        if place < len(mine):
            return begun + mine[place][0], begun + mine[place][1]
        if math.isinf(self._every_s):
            return math.inf, math.inf
        again = begun + self._every_s
        return again + mine[0][0], again + mine[0][1]

    def linked_s(self, one: int, other: int, time: float) -> float:
        """Return when two clients are next in contact, from `time` on; inf for never."""
        return time if math.isinf(time) else max(time, self.contact(one, other, time)[0])

    def neighbors(self, client: int, time: float) -> Sequence[int]:
        """Return the clients with which this client is in contact at a time."""
        return tuple(k for k in self._peers[client] if self.contact(client, k, time)[0] <= time)

    def at(self, time: float) -> Topology:
        """Return the graph of all contacts at a time."""
        begun = repetition(time, self._every_s)
        place = begun, bisect_right(self._changes, time - begun)
        if self._last is None or self._last[0] != place:
            adjacency = tuple(self.neighbors(k, time) for k in range(self.num_clients))
            self._last = place, Topology(self.kind, adjacency)
        return self._last[1]

    def meets_s(self, client: int, time: float) -> float:
        """Return when the client is next in contact, from `time` on; inf for never."""
        return min((self.linked_s(client, k, time) for k in self._peers[client]), default=math.inf)

    def acquaintances(self, client: int) -> Sequence[int]:
        """Return the clients with which this client is ever in contact."""
        return self._peers[client]

    def known(self) -> Topology:
        """Return the graph of all contacts."""
        graph: nx.Graph[int] = nx.empty_graph(self.num_clients)
        graph.add_edges_from(self._spans)
        return Topology.from_graph(graph, self.kind)


class ContactCuts(Cuts):
    """The partitions of a run whose clients reach each other only during contacts."""

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
        """Return when two nodes next reach each other, from `time` on; inf for never."""
        joined_s = super().joined_s(nodes, time)
        while joined_s < (linked_s := self._linked_s(nodes, joined_s)) < math.inf:
            joined_s = super().joined_s(nodes, linked_s)
        return max(joined_s, linked_s)

    def hit(self, nodes: Sequence[int], begin: float, end: float) -> Cut | None:
        """Return the first partition or end of contact between `begin` and `end`."""
        cut, now = super().hit(nodes, begin, end), begin
        while now <= end and (cut is None or now < cut.start_s):
            linked_s = self._linked_s(nodes, now)
            if linked_s > now:
                return Cut((frozenset({nodes[0]}),), now, linked_s)
            if max(nodes) >= self._contacts.num_clients or nodes[0] == nodes[-1]:
                return cut
            now = self._contacts.contact(min(nodes), max(nodes), now)[1]
        return cut


def one_peer(num_clients: int, number: int) -> Topology:
    """Return graph `number` of the sequence of links from i to i ± 2^h."""
    hop = 2 ** (number % max(1, (num_clients - 1).bit_length()))
    return Topology(
        "one_peer",
        tuple(tuple(sorted({(k + hop) % num_clients, (k - hop) % num_clients})) for k in range(num_clients)),
    )


def sampled_peers(num_clients: int, peers: int, generator: np.random.Generator) -> Topology:
    """Return a graph in which each client draws `peers` others to link with."""
    neighbors: list[set[int]] = [set() for _ in range(num_clients)]
    for client in range(num_clients):
        for drawn in generator.choice(num_clients - 1, peers, replace=False).tolist():
            other = drawn + (drawn >= client)
            neighbors[client].add(other)
            neighbors[other].add(client)
    return Topology("peer_sampling", tuple(tuple(sorted(ids)) for ids in neighbors))


def random_receivers(
    num_clients: int, count: int, generator: np.random.Generator, *, regular: bool = False
) -> list[list[int]]:
    """Return the others to which each client sends, `count` of them.

    Args:
        num_clients: K; if it is `count` or less, all send to all.
        count: s.
        generator: draws.
        regular: whether they are neighbors in a random graph of equal degrees, s, or s + 1 if s K is odd. Otherwise
            each client draws on its own.
    """
    if count >= num_clients - 1:
        return [[other for other in range(num_clients) if other != client] for client in range(num_clients)]
    if regular:
        graph: nx.Graph[int] = nx.random_regular_graph(count + num_clients * count % 2, num_clients, seed=generator)
        return [sorted(graph.neighbors(client)) for client in range(num_clients)]
    others = (generator.choice(num_clients - 1, count, replace=False).tolist() for _ in range(num_clients))
    return [sorted(drawn + (drawn >= client) for drawn in own) for client, own in enumerate(others)]
