"""The underlay of a scenario: routers, edges and attachments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simfl.errors import DataError, ScenarioError
from simfl.scenario import Scenario
from simfl.scenario import underlay as schema
from simfl.scenario.problems import InvalidValueError, is_number
from simfl.scenario.units import parse_bandwidth, parse_time
from simfl.streams import Streams
from simfl.world.graph_files import read_graphml
from simfl.world.topology import EDGE_LIMIT, build_topology
from simfl.world.underlay import Underlay, by_name, fat_tree, leaves, single_edges, star_of_switches, two_level_tree

if TYPE_CHECKING:
    import networkx as nx


def underlay_of(scenario: Scenario, streams: Streams) -> Underlay | None:
    """Return the underlay; None without one.

    Raises:
        ScenarioError: the graph is not connected, or a client is attached to a node outside it.
        DataError: a file is missing or malformed.
    """
    config = scenario.underlay
    if config is None:
        return None
    graph = _graph(config, streams)
    for _, _, values in graph.edges(data=True):
        values.setdefault("latency", config.latency)
        values.setdefault("bandwidth", config.bandwidth)
    return Underlay(graph, _attached(config, graph, scenario.clients.count, streams), config.servers, config.paths)


def _graph(config: schema.UnderlayConfig, streams: Streams) -> nx.Graph[Any]:
    match config:
        case schema.StarOfSwitches():
            return star_of_switches(config.switches)
        case schema.TwoLevelTree():
            return two_level_tree(config.branches, config.racks, config.trunk)
        case schema.FatTree():
            return fat_tree(config.ports)
        case schema.FromGraphMl():
            return _measured(read_graphml(config.path, "underlay.path"), config.path)
        case schema.Generated():
            return _generated(config, streams)
    raise AssertionError(f"unknown network {type(config).__name__}")


def _generated(config: schema.Generated, streams: Streams) -> nx.Graph[Any]:
    """Return a network that is drawn."""
    options = config.graph.model_dump(exclude={"kind", "mixing", "redraw_every"})
    try:
        built = build_topology(config.graph.kind, config.nodes, streams.generator("underlay"), **options)
    except (ScenarioError, DataError) as error:
        text = str(error).replace("topology", "underlay.graph").replace("clients.count", "underlay.nodes")
        raise type(error)(text) from error
    if built.degrees.sum() > 2 * EDGE_LIMIT:
        raise ScenarioError(f"underlay.nodes: more than the {EDGE_LIMIT:,} edges that fit; ask for fewer nodes")
    return by_name(built.graph)


def _measured(graph: nx.Graph[Any], path: str) -> nx.Graph[Any]:
    """Return a file's graph with latencies in s and bandwidths in bytes per s."""
    parsers: dict[str, Callable[[object], float]] = {"latency": parse_time, "bandwidth": parse_bandwidth}
    simple = single_edges(graph)
    if graph.is_multigraph() and simple.number_of_edges() < graph.number_of_edges():
        raise DataError(f"{path}: underlay.path: expected one edge between two nodes, found several; add them up")
    for a, b, values in simple.edges(data=True):
        for name in [name for name in parsers if name in values]:
            try:
                values[name] = parsers[name](values[name])
            except InvalidValueError as error:
                raise DataError(f"{path}: underlay.path: edge {a} - {b}: {name}: {error}") from error
    return simple


def _attached(config: schema.UnderlayConfig, graph: nx.Graph[Any], count: int, streams: Streams) -> list[Any]:
    """Return the node of each client."""
    places = leaves(graph)
    match config.clients:
        case schema.Listed(nodes=nodes):
            return list(nodes)
        case schema.ByAttribute(name=name):
            return _by_attribute(graph, name, count)
        case schema.AtRandom():
            return [places[i] for i in streams.generator("underlay-clients").integers(len(places), size=count)]
        case schema.RoundRobin():
            return [places[k % len(places)] for k in range(count)]


def _by_attribute(graph: nx.Graph[Any], name: str, count: int) -> list[Any]:
    where = "underlay.clients.name"
    attached: list[Any] = []
    for node, values in graph.nodes(data=True):
        if (number := values.get(name)) is None:
            continue
        whole = is_number(number) and float(number).is_integer()
        if not whole or number < 0:
            raise ScenarioError(f"{where}: node {node}: {name}: expected a number of clients, found {number!r}")
        attached += [node] * min(int(number), count + 1 - len(attached))
    if len(attached) != count:
        found = f"{len(attached)}" if len(attached) < count else "more"
        raise ScenarioError(
            f"{where}: expected nodes whose {name} add up to clients.count, which is {count}, found {found}; "
            "a client that is not attached cannot reach others"
        )
    return attached
