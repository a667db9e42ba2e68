"""Topologies: which clients are linked."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from simfl.scenario.fields import (
    ByKind,
    Config,
    Count,
    PositiveSeconds,
    Probability,
    Seconds,
    Share,
    Within,
    WorldFile,
    option,
    variant,
)
from simfl.scenario.problems import Problem
from simfl.scenario.units import format_time


class TopologyConfig(Config):
    """Base of all topologies."""

    equal_degrees: ClassVar[bool | None] = None
    """Whether all clients have the same number of neighbors; None if that depends on the graph that is built."""
    two_sides: ClassVar[bool | None] = None
    """Whether the graph is bipartite; None if that depends on the number of clients or on the graph that is built."""

    if TYPE_CHECKING:  # each class names itself
        kind: str

    mixing: Literal["metropolis", "uniform", "max_degree"] = option(
        "metropolis", "weights of gossip averaging: metropolis and max_degree for any graph, uniform for equal degrees"
    )

    @property
    def changes(self) -> bool:
        """Whether the graph changes during a run."""
        return False

    def impossible(self, count: int) -> Iterator[Problem]:
        """Yield why this graph is impossible for `count` clients."""
        yield from ()

    def bipartite(self, count: int) -> bool | None:
        """Return whether the graph is bipartite; None if not known yet."""
        return self.two_sides


class DrawnTopology(TopologyConfig):
    """Base of random graphs."""

    redraw_every: PositiveSeconds | None = option(
        None, "time after which the graph is drawn again, repeatedly; null: drawn once"
    )

    @property
    def changes(self) -> bool:
        """Whether it is drawn anew."""
        return self.redraw_every is not None


class Ring(TopologyConfig):
    """A cycle: every client has two neighbors."""

    equal_degrees: ClassVar[bool | None] = True
    kind: Literal["ring"] = variant("ring")

    def bipartite(self, count: int) -> bool:
        """Return whether the cycle is even; two clients have a single link."""
        return count % 2 == 0


class Complete(TopologyConfig):
    """Every client is linked with every other."""

    equal_degrees: ClassVar[bool | None] = True
    kind: Literal["complete"] = variant("complete")

    def bipartite(self, count: int) -> bool:
        """Return whether there is no triangle."""
        return count <= 2


class Bipartite(TopologyConfig):
    """Links between every even and every odd client."""

    two_sides: ClassVar[bool | None] = True
    kind: Literal["bipartite"] = variant("bipartite")


class Star(TopologyConfig):
    """Client 0 in the center; the others are linked with it only."""

    equal_degrees: ClassVar[bool | None] = False
    two_sides: ClassVar[bool | None] = True
    kind: Literal["star"] = variant("star")


class Torus(TopologyConfig):
    """A grid whose borders are joined."""

    equal_degrees: ClassVar[bool | None] = True
    kind: Literal["torus"] = variant("torus")
    rows: Annotated[int, Within(at_least=2)] | None = option(
        None, "number of rows, a divisor of clients.count; null: as square as possible"
    )

    def _sides(self, count: int) -> tuple[int, int]:
        rows = self.rows or max(divisor for divisor in range(1, math.isqrt(count) + 1) if count % divisor == 0)
        return rows, count // rows

    def impossible(self, count: int) -> Iterator[Problem]:
        """Yield a grid that is not full, or has less than two rows or columns."""
        if self.rows is None:
            if self._sides(count)[0] == 1:
                advice = "choose clients.count with a divisor, or topology kind: ring"
                yield Problem("clients.count = rows * columns, both >= 2", f"{count} clients", advice)
        elif count % self.rows or count // self.rows < 2:
            expected = f"a divisor of clients.count, which is {count}, with at least 2 columns"
            yield Problem(expected, str(self.rows), "change rows or clients.count", ("rows",))

    def bipartite(self, count: int) -> bool:
        """Return whether both sides are even, as those of a chessboard."""
        return all(side % 2 == 0 for side in self._sides(count))


class Regular(DrawnTopology):
    """A random graph in which every client has the same number of neighbors."""

    equal_degrees: ClassVar[bool | None] = True
    kind: Literal["regular"] = variant("regular")
    degree: Count = option(4, "number of neighbors of every client")

    def impossible(self, count: int) -> Iterator[Problem]:
        """Yield why no connected graph has these degrees."""
        if self.degree >= count:
            yield _too_many(self.degree, "degree", count)
        elif self.degree * count % 2:
            expected = f"an even number, because the number of clients, {count}, is odd"
            yield Problem(expected, str(self.degree), "change degree or clients.count by one", ("degree",))
        elif self.degree == 1 and count > 2:
            yield Problem("at least 2", "1", "pairs alone are not connected: raise degree", ("degree",))


class ErdosRenyi(DrawnTopology):
    """A random graph with the same probability of every link.

    It is redrawn until it is connected.
    """

    kind: Literal["erdos_renyi"] = variant("erdos_renyi")
    probability: Share | None = option(
        None, "probability of each link; null: 2 ln(count) / count, twice what makes it connected"
    )


class WattsStrogatz(DrawnTopology):
    """A small world: a ring lattice, some of its links moved at random."""

    kind: Literal["watts_strogatz"] = variant("watts_strogatz")
    neighbors: Annotated[int, Within(at_least=2)] = option(4, "neighbors of every client in the lattice, even")
    rewiring: Probability = option(0.1, "fraction of the links that are moved")

    def impossible(self, count: int) -> Iterator[Problem]:
        """Yield why the lattice cannot have half of the neighbors on each side."""
        if self.neighbors >= count:
            yield _too_many(self.neighbors, "neighbors", count)
        elif self.neighbors % 2:
            yield Problem("an even number", str(self.neighbors), "take as many on either side", ("neighbors",))


class BarabasiAlbert(DrawnTopology):
    """Scale-free: each new client links with others, preferably those with many links."""

    kind: Literal["barabasi_albert"] = variant("barabasi_albert")
    attachments: Count = option(2, "number of links that each new client makes")

    def impossible(self, count: int) -> Iterator[Problem]:
        """Yield a problem if the first new client finds too few clients."""
        if self.attachments >= count:
            yield _too_many(self.attachments, "attachments", count)


class Exponential(TopologyConfig):
    """Links from client i to i ± 1, 2, 4, 8, ..., modulo the number of clients."""

    equal_degrees: ClassVar[bool | None] = True
    kind: Literal["exponential"] = variant("exponential")


class Tree(TopologyConfig):
    """A balanced tree below client 0."""

    equal_degrees: ClassVar[bool | None] = False
    two_sides: ClassVar[bool | None] = True
    kind: Literal["tree"] = variant("tree")
    branching: Annotated[int, Within(at_least=2)] = option(2, "number of children of every client")


class GraphMl(TopologyConfig):
    """Any connected graph from a GraphML file."""

    kind: Literal["graphml"] = variant("graphml")
    path: WorldFile = Field(description="GraphML file with one node per client")


class Gml(TopologyConfig):
    """Any connected graph from a GML file."""

    kind: Literal["gml"] = variant("gml")
    path: WorldFile = Field(description="GML file with one node per client")


class Pajek(TopologyConfig):
    """Any connected graph from a Pajek file."""

    kind: Literal["pajek"] = variant("pajek")
    path: WorldFile = Field(description="one vertex per client")


class EdgeList(TopologyConfig):
    """Any connected graph from a text file with one link 'a b' per line."""

    kind: Literal["edge_list"] = variant("edge_list")
    path: WorldFile = Field(description="perhaps with a header")


class AdjacencyList(TopologyConfig):
    """Any connected graph from a text file of nodes and neighbors.

    Each line has a node and its neighbors: 'a b c'.
    """

    kind: Literal["adjacency_list"] = variant("adjacency_list")
    path: WorldFile = Field(description="the file")


def _too_many(number: int, key: str, count: int) -> Problem:
    return Problem(f"fewer than clients.count, which is {count}", str(number), f"lower {key} or add clients", (key,))


_Fixed = (
    Ring | Complete | Bipartite | Star | Torus | Regular | ErdosRenyi | WattsStrogatz | BarabasiAlbert | Exponential
    | Tree | GraphMl | Gml | Pajek | EdgeList | AdjacencyList
)  # fmt: skip
FixedTopology = Annotated[_Fixed, ByKind(default="ring")]


def once(graph: TopologyConfig, advice: str) -> Iterator[Problem]:
    """Yield a problem if a graph that has to stay is redrawn."""
    if isinstance(graph, DrawnTopology) and graph.redraw_every is not None:
        yield Problem("null: one graph", format_time(graph.redraw_every), advice, ("graph", "redraw_every"))


class ChangingTopology(TopologyConfig):
    """Base of graphs that change by themselves."""

    @property
    def changes(self) -> bool:
        """Whether the graph changes during a run: yes."""
        return True


class OnePeer(ChangingTopology):
    """Links from i to i ± 1, then to i ± 2, i ± 4, ...

    This is the exponential graph, one power of two at a time.
    """

    equal_degrees: ClassVar[bool | None] = True
    kind: Literal["one_peer"] = variant("one_peer")
    redraw_every: PositiveSeconds = Field(description="how long each power of two is in force")


class PeerSampling(ChangingTopology):
    """Each client is linked with random others, redrawn repeatedly.

    This is an ideal peer sampling service.
    """

    equal_degrees: ClassVar[bool | None] = False
    kind: Literal["peer_sampling"] = variant("peer_sampling")
    peers: Count = option(1, "how many others each client draws; it may be drawn by more")
    redraw_every: PositiveSeconds = Field(description="time after which all clients draw again, repeatedly")

    def impossible(self, count: int) -> Iterator[Problem]:
        """Yield a problem unless `peers` is smaller than the number of clients."""
        if self.peers >= count:
            yield _too_many(self.peers, "peers", count)


class TimedGraph(Config):
    """A graph that is in force from its time on."""

    start: Seconds = option(0.0, "virtual time at which it begins", alias="from")
    graph: FixedTopology = Field(description="the graph from then on: a topology", examples=["ring"])

    def problems(self) -> Iterator[Problem]:
        """Yield a problem if the graph changes by itself."""
        return once(self.graph, "remove it: the next graph of the sequence is another")


class Sequence(ChangingTopology):
    """A list of graphs, each from its time on."""

    equal_degrees: ClassVar[bool | None] = False
    kind: Literal["sequence"] = variant("sequence")
    graphs: tuple[TimedGraph, ...] = Field(description="graphs in the order of their times, the first from 0 s")
    every: PositiveSeconds | None = option(None, "time after which they repeat; null: the last one stays")

    def problems(self) -> Iterator[Problem]:
        """Yield problems of the order of times."""
        times = [graph.start for graph in self.graphs]
        if not times:
            yield Problem("at least one graph", "[]", "add one", ("graphs",))
        elif times[0]:
            found = format_time(times[0])
            yield Problem("0 s for the first graph", found, "say what holds before", ("graphs", 0, "from"))
        for i, (before, time) in enumerate(itertools.pairwise(times), start=1):
            if time <= before:
                expected = f"a time after that of the graph before, {format_time(before)}"
                yield Problem(expected, format_time(time), "sort them", ("graphs", i, "from"))
        if self.every is not None and times and self.every <= times[-1]:
            expected = f"a time after the last graph begins, at {format_time(times[-1])}"
            yield Problem(expected, format_time(self.every), "choose a longer time", ("every",))

    def impossible(self, count: int) -> Iterator[Problem]:
        """Yield why one of the graphs is impossible."""
        for i, timed in enumerate(self.graphs):
            yield from (problem.below(("graphs", i, "graph")) for problem in timed.graph.impossible(count))


class Contacts(ChangingTopology):
    """A contact plan: intervals in which clients meet, as vehicles or satellites.

    At other times they cannot reach each other.
    """

    equal_degrees: ClassVar[bool | None] = False
    kind: Literal["contacts"] = variant("contacts")
    path: WorldFile = Field(
        description=("CSV file with the columns from and until (seconds, or with a unit), a and b (clients by number)")
    )
    every: PositiveSeconds | None = option(None, "time after which the plan repeats; null: it does not repeat")


CORE = _Fixed | OnePeer | PeerSampling | Sequence | Contacts
