"""Who is linked with whom."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simfl.scenario.fields import (
    ByKind,
    Config,
    Count,
    Probability,
    Share,
    Text,
    Within,
    variant,
)
from simfl.scenario.problems import Problem


class TopologyConfig(Config):
    """Base of all topologies."""

    equal_degrees: ClassVar[bool | None] = None
    """Whether all clients have equally many neighbors; None if that is known only once the graph is built."""

    mixing: Literal["metropolis", "uniform", "max_degree"] = Field(
        default="metropolis",
        description="weights of gossip averaging: metropolis and max_degree for any graph, uniform for equal degrees",
    )

    def impossible(self, count: int) -> Iterator[Problem]:
        """Yield what rules out this graph for `count` clients."""
        yield from ()

    def bipartite(self, count: int) -> bool | None:
        """Return whether the clients split in two sides with all links between them; None if not known yet."""
        return None


class Ring(TopologyConfig):
    """A cycle: every client has two neighbors."""

    equal_degrees: ClassVar[bool | None] = True

    kind: Literal["ring"] = variant("ring")

    def bipartite(self, count: int) -> bool:
        """Only even cycles are (two clients are a single link)."""
        return count % 2 == 0


class Complete(TopologyConfig):
    """Every client is linked with every other."""

    equal_degrees: ClassVar[bool | None] = True

    kind: Literal["complete"] = variant("complete")

    def bipartite(self, count: int) -> bool:
        """Three clients make a triangle."""
        return count <= 2


class Bipartite(TopologyConfig):
    """Every even client is linked with every odd one: any sender may pick any receiver."""

    equal_degrees: ClassVar[bool | None] = None

    kind: Literal["bipartite"] = variant("bipartite")

    def bipartite(self, count: int) -> bool:
        """Even against odd."""
        return True


class Star(TopologyConfig):
    """Client 0 in the middle, all others linked to it alone."""

    equal_degrees: ClassVar[bool | None] = False

    kind: Literal["star"] = variant("star")

    def bipartite(self, count: int) -> bool:
        """The middle against the rest."""
        return True


class Torus(TopologyConfig):
    """A grid whose borders are joined."""

    equal_degrees: ClassVar[bool | None] = True

    kind: Literal["torus"] = variant("torus")
    rows: Annotated[int, Within(at_least=2)] | None = Field(
        default=None, description="number of rows, a divisor of clients.count; null: as square as it can be"
    )

    def _sides(self, count: int) -> tuple[int, int]:
        rows = self.rows or max(divisor for divisor in range(1, math.isqrt(count) + 1) if count % divisor == 0)
        return rows, count // rows

    def impossible(self, count: int) -> Iterator[Problem]:
        """The grid must be full, with at least two rows and two columns."""
        if self.rows is None:
            if self._sides(count)[0] == 1:
                advice = "choose clients.count with a divisor, or topology kind: ring"
                yield Problem("clients.count = rows * columns, both >= 2", f"{count} clients", advice)
        elif count % self.rows or count // self.rows < 2:
            expected = f"a divisor of clients.count, which is {count}, with at least 2 columns"
            yield Problem(expected, str(self.rows), "change rows or clients.count", ("rows",))

    def bipartite(self, count: int) -> bool:
        """A chessboard, if both sides are even."""
        return all(side % 2 == 0 for side in self._sides(count))


class Regular(TopologyConfig):
    """A random graph in which everyone has equally many neighbors."""

    equal_degrees: ClassVar[bool | None] = True

    kind: Literal["regular"] = variant("regular")
    degree: Count = Field(default=4, description="number of neighbors of every client")

    def impossible(self, count: int) -> Iterator[Problem]:
        """A graph with these degrees must exist, and be connected."""
        if self.degree >= count:
            yield Problem(_fewer(count), str(self.degree), "lower degree or add clients", ("degree",))
        elif self.degree * count % 2:
            expected = f"an even number, because {count} clients are odd"
            yield Problem(expected, str(self.degree), "change degree or clients.count by one", ("degree",))
        elif self.degree == 1 and count > 2:
            yield Problem("at least 2", "1", "pairs alone are not connected: raise degree", ("degree",))


class ErdosRenyi(TopologyConfig):
    """A random graph in which every pair is linked with the same probability; redrawn until it is connected."""

    kind: Literal["erdos_renyi"] = variant("erdos_renyi")
    probability: Share | None = Field(
        default=None, description="probability of each link; null: 2 ln(count) / count, twice what makes it connected"
    )


class WattsStrogatz(TopologyConfig):
    """A small world: a ring lattice, some of its links moved at random."""

    kind: Literal["watts_strogatz"] = variant("watts_strogatz")
    neighbors: Annotated[int, Within(at_least=2)] = Field(
        default=4, description="neighbors of every client in the lattice, even"
    )
    rewiring: Probability = Field(default=0.1, description="share of the links that are moved")

    def impossible(self, count: int) -> Iterator[Problem]:
        """The lattice takes half of the neighbors on either side."""
        if self.neighbors >= count:
            yield Problem(_fewer(count), str(self.neighbors), "lower neighbors or add clients", ("neighbors",))
        elif self.neighbors % 2:
            yield Problem("an even number", str(self.neighbors), "take as many on either side", ("neighbors",))


class BarabasiAlbert(TopologyConfig):
    """Scale-free: every newcomer links with some clients, preferring the well linked."""

    equal_degrees: ClassVar[bool | None] = None

    kind: Literal["barabasi_albert"] = variant("barabasi_albert")
    attachments: Count = Field(default=2, description="number of links of every newcomer")

    def impossible(self, count: int) -> Iterator[Problem]:
        """The first newcomer must find as many clients."""
        if self.attachments >= count:
            yield Problem(_fewer(count), str(self.attachments), "lower attachments or add clients", ("attachments",))


class Exponential(TopologyConfig):
    """Client i is linked with the clients i ± 1, 2, 4, 8, ... modulo the number of clients."""

    equal_degrees: ClassVar[bool | None] = True

    kind: Literal["exponential"] = variant("exponential")


class Tree(TopologyConfig):
    """A balanced tree below client 0."""

    equal_degrees: ClassVar[bool | None] = False

    kind: Literal["tree"] = variant("tree")
    branching: Annotated[int, Within(at_least=2)] = Field(default=2, description="number of children of every client")

    def bipartite(self, count: int) -> bool:
        """Even against odd depths."""
        return True


class GraphMl(TopologyConfig):
    """Any connected graph from a GraphML file."""

    kind: Literal["graphml"] = variant("graphml")
    path: Text = Field(description="GraphML file with one node per client, relative to the current folder")


class EdgeList(TopologyConfig):
    """Any connected graph from a text file with one link 'a b' per line."""

    kind: Literal["edge_list"] = variant("edge_list")
    path: Text = Field(description="text file with one link per line, relative to the current folder")


def _fewer(count: int) -> str:
    return f"fewer than clients.count, which is {count}"


Topology = Annotated[
    Ring
    | Complete
    | Bipartite
    | Star
    | Torus
    | Regular
    | ErdosRenyi
    | WattsStrogatz
    | BarabasiAlbert
    | Exponential
    | Tree
    | GraphMl
    | EdgeList,
    ByKind(default="ring"),
]
