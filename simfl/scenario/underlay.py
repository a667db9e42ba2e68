"""The network beneath the clients: routers, edges, and attachments of clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from simfl.scenario.fields import Bandwidth, ByKind, Config, Count, Seconds, Text, Within, WorldFile, variant
from simfl.scenario.problems import InvalidValueError, Problem, show
from simfl.scenario.topologies import FixedTopology, Ring, once


def _router(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise InvalidValueError(Problem("the name of a node, or its number", show(value), "write one node"))
    return str(value)


Router = Annotated[str, BeforeValidator(_router), WithJsonSchema({"type": ["string", "integer"]})]


class RoundRobin(Config):
    """Client k at leaf k, round by round.

    The leaves are the outermost switches; of a graph, its ends, or all nodes without ends.
    """

    kind: Literal["round_robin"] = variant("round_robin")


class AtRandom(Config):
    """Each client at a leaf that is drawn once."""

    kind: Literal["random"] = variant("random")


class Listed(Config):
    """Each client at the node that is named for it."""

    kind: Literal["nodes"] = variant("nodes")
    nodes: tuple[Router, ...] = Field(description="a node for each client, in order", examples=["[a, a, b, c]"])


class ByAttribute(Config):
    """At each node, as many clients as its attribute says, in the order of nodes."""

    kind: Literal["attribute"] = variant("attribute")
    name: Text = Field(default="clients", description="attribute of nodes: a number of clients")


Attachment = Annotated[RoundRobin | AtRandom | Listed | ByAttribute, ByKind(default="round_robin")]


class UnderlayConfig(Config):
    """Base of all networks beneath."""

    latency: Seconds = Field(default=1e-4, description="of every edge that has none of its own")
    bandwidth: Bandwidth | None = Field(
        default=1.25e8, description="of every edge that has none of its own, each way; null: unlimited"
    )
    paths: Literal["latency", "hops"] = Field(
        default="latency",
        description="messages take a path of least latency (of equals one of fewest edges), or of hops",
    )
    clients: Attachment = Field(default=RoundRobin(), description="the nodes to which clients are attached")
    servers: tuple[Router, ...] = Field(
        default=(),
        description="nodes to which the server and then the aggregators are attached, round by round; []: the first "
        "node of the graph, which is a core of those that have one",
    )

    def problems(self, count: int) -> Iterator[Problem]:
        """Yield conflicts with a number of clients."""
        if isinstance(self.clients, Listed) and len(self.clients.nodes) != count:
            expected = f"a node for each of clients.count, which is {count}"
            advice = "a client that is not attached cannot reach others: name as many nodes as clients"
            yield Problem(expected, f"{len(self.clients.nodes)} nodes", advice, ("clients", "nodes"))


class StarOfSwitches(UnderlayConfig):
    """A core with switches around it. Nodes: core, switch0, switch1, ...

    Clients are at the switches.
    """

    kind: Literal["star"] = variant("star")
    switches: Count = Field(default=4, description="number of switches around the core")


class TwoLevelTree(UnderlayConfig):
    """A core with branches, and racks below them.

    Nodes: core, branch0, ..., rack0, ... Clients are at the racks.
    """

    kind: Literal["two_level"] = variant("two_level")
    branches: Count = Field(default=2, description="number of branches of the core")
    racks: Count = Field(default=4, description="number of racks of every branch")
    trunk: Bandwidth | None = Field(
        default=None, description="of edges between core and branches, each way; null: that of the others"
    )


class FatTree(UnderlayConfig):
    """A fat tree of equal switches.

    Nodes: core0, ..., aggregation0, ..., edge0, ... Clients are at the edge switches.
    """

    kind: Literal["fat_tree"] = variant("fat_tree")
    ports: Annotated[int, Within(at_least=2, at_most=128)] = Field(
        default=4, description="ports k of every switch, even: k²/4 cores, k²/2 aggregation and k²/2 edge switches"
    )

    @model_validator(mode="after")
    def _even(self) -> Self:
        if self.ports % 2:
            advice = "half of the ports lead up, half down"
            raise InvalidValueError(Problem("an even number", str(self.ports), advice, ("ports",)))
        return self


class Generated(UnderlayConfig):
    """Any of the graphs that `topology` knows, over routers. Nodes: 0, 1, ..."""

    kind: Literal["graph"] = variant("graph")
    nodes: Count = Field(default=8, description="number of routers")
    graph: FixedTopology = Field(
        default=Ring(), description="how they are linked: a topology; its `mixing` does not count"
    )

    def problems(self, count: int) -> Iterator[Problem]:
        """Yield a problem if the graph is impossible for this number of nodes."""
        yield from super().problems(count)
        yield from once(self.graph, "remove it: what is beneath stays")
        for problem in self.graph.impossible(self.nodes):
            expected = problem.expected.replace("clients.count", "nodes").replace("clients", "nodes")
            advice = problem.advice.replace("clients.count", "nodes").replace("clients", "nodes")
            yield Problem(expected, problem.found.replace("clients", "nodes"), advice, ("graph", *problem.at))


class FromGraphMl(UnderlayConfig):
    """A connected graph from a GraphML file.

    Edges may have the attributes `latency` and `bandwidth`, with units.
    """

    kind: Literal["graphml"] = variant("graphml")
    path: WorldFile = Field(description="GraphML file, relative to the current folder")


Underlay = Annotated[StarOfSwitches | TwoLevelTree | FatTree | Generated | FromGraphMl, ByKind(default=None)]
