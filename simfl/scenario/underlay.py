"""The network beneath the clients: routers, edges, and attachments of clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from simfl.scenario.fields import Bandwidth, ByKind, Config, Count, Seconds, Text, Within, WorldFile, option, variant
from simfl.scenario.problems import Problem, invalid, show
from simfl.scenario.topologies import FixedTopology, Ring, once


def _router(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise invalid("the name of a node, or its number", show(value), "write one node")
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
    name: Text = option("clients", "attribute of nodes: a number of clients")


Attachment = Annotated[RoundRobin | AtRandom | Listed | ByAttribute, ByKind(default="round_robin")]


class UnderlayConfig(Config):
    """Base of all networks beneath."""

    latency: Seconds = option(1e-4, "latency of every edge without its own")
    bandwidth: Bandwidth | None = option(1.25e8, "bandwidth of every edge without its own, each way; null: unlimited")
    paths: Literal["latency", "hops"] = option(
        "latency", "messages take a path of least latency (of equals one of fewest edges), or of hops"
    )
    clients: Attachment = option(RoundRobin(), "the nodes to which clients are attached")
    servers: tuple[Router, ...] = option(
        (),
        "nodes to which the server and then the aggregators are attached, round by round; []: the first "
        "node of the graph, which is a core of those that have one",
    )

    def impossible(self, count: int) -> Iterator[Problem]:
        """Yield why this network is impossible for `count` clients."""
        if isinstance(self.clients, Listed) and len(self.clients.nodes) != count:
            expected = f"a node for each of clients.count, which is {count}"
            advice = "a client that is not attached cannot reach others: name as many nodes as clients"
            yield Problem(expected, f"{len(self.clients.nodes)} nodes", advice, ("clients", "nodes"))


class StarOfSwitches(UnderlayConfig):
    """A core with switches around it. Nodes: core, switch0, switch1, ...

    Clients are at the switches.
    """

    kind: Literal["star"] = variant("star")
    switches: Count = option(4, "number of switches around the core")


class TwoLevelTree(UnderlayConfig):
    """A core with branches, and racks below them.

    Nodes: core, branch0, ..., rack0, ... Clients are at the racks.
    """

    kind: Literal["two_level"] = variant("two_level")
    branches: Count = option(2, "number of branches of the core")
    racks: Count = option(4, "number of racks of every branch")
    trunk: Bandwidth | None = option(None, "bandwidth of the core's edges, each way; null: that of the others")


class FatTree(UnderlayConfig):
    """A fat tree of equal switches.

    Nodes: core0, ..., aggregation0, ..., edge0, ... Clients are at the edge switches.
    """

    kind: Literal["fat_tree"] = variant("fat_tree")
    ports: Annotated[int, Within(at_least=2, at_most=128)] = option(
        4, "ports k of every switch, even: k²/4 cores, k²/2 aggregation and k²/2 edge switches"
    )

    def problems(self) -> Iterator[Problem]:
        """Yield a problem for an odd number of ports."""
        if self.ports % 2:
            yield Problem("an even number", str(self.ports), "half of the ports lead up, half down", ("ports",))


class Generated(UnderlayConfig):
    """Any of the graphs that `topology` knows, over routers. Nodes: 0, 1, ..."""

    kind: Literal["graph"] = variant("graph")
    nodes: Count = option(8, "number of routers")
    graph: FixedTopology = option(Ring(), "how the routers are linked: a topology; its `mixing` has no effect")

    def impossible(self, count: int) -> Iterator[Problem]:
        """Yield also why the graph is impossible for this number of nodes."""
        yield from super().impossible(count)
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
    path: WorldFile = Field(description="GraphML file")


Underlay = Annotated[StarOfSwitches | TwoLevelTree | FatTree | Generated | FromGraphMl, ByKind(default=None)]
