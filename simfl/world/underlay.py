"""The network beneath the links: routers, edges, and paths of messages.

Clients and servers are attached to nodes of a graph. A message follows a shortest path, by latency (of equally long
paths, one with fewer edges) or by the number of edges. It crosses each edge in one of two directions, which do not
share capacity. If there are several shortest paths, each pair of nodes uses one, picked by a hash at every node on the
way, like routers that spread flows over paths of equal cost (ECMP, RFC 2992): in a fat tree all cores are used.

Memory is bounded for any number of clients: only a limited number of paths, and of distances to targets, is kept.

Sources: Al-Fares, Loukissas, Vahdat 2008, https://doi.org/10.1145/1402958.1402967 (fat tree of k-port switches).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
import scipy
from numpy.typing import NDArray

from simfl.errors import ScenarioError, nearest

#: Latencies are rounded to multiples of the longest one over `_LATENCY_STEPS`; each edge adds `_EDGE_STEP` multiples,
#: so that paths of equal latency differ by their number of edges. With fewer nodes than `_LONGEST` over
#: `_LATENCY_STEPS`, sums are exact, so that lengths can be compared.
_LATENCY_STEPS, _LONGEST, _EDGE_STEP = 2**28, 2**38, 2**-14
#: Number of distances and of paths that are kept in memory.
_KEPT_DISTANCES, _KEPT_PATHS = 2**23, 2**17


@dataclass(frozen=True, slots=True)
class Path:
    """A path between nodes: its directed edges in order, and its latency."""

    edges: tuple[int, ...]
    latency_s: float


class Underlay:
    """A connected graph of routers with attached clients and servers.

    Args:
        graph: edges have a `latency` in seconds and a `bandwidth` in bytes per second (None: unlimited), in both
            directions, or one each if the graph is directed. The defaults are 0 and None.
        attached: the node of each client.
        servers: the nodes of servers, used in turn.
        by: "latency" or "hops".

    Raises:
        ScenarioError: the graph is not connected, an edge has an impossible latency or bandwidth, or a client or server
            is attached to a node that does not exist.
    """

    def __init__(
        self, graph: nx.Graph[Any], attached: Sequence[Any], servers: Sequence[Any] = (), by: str = "latency"
    ) -> None:
        directed: nx.DiGraph[Any] = nx.DiGraph(graph)
        if not directed or not nx.is_strongly_connected(directed):
            parts = nx.number_strongly_connected_components(directed)
            raise ScenarioError(f"underlay: expected a connected graph, found {parts} parts; add edges between them")
        self.names = list(directed)
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._attached = [self._number(f"client {k}", node) for k, node in enumerate(attached)]
        self._servers = [self._number("the server", node) for node in servers or self.names[:1]]
        rows = [(one, other, values) for one, other, values in directed.edges(data=True) if one != other]
        #: Names of both ends of each directed edge.
        self.edges = [(one, other) for one, other, _ in rows]
        self.latencies_s = [_checked(row, "latency", 0.0) for row in rows]
        #: Bytes per second of each directed edge, infinite ones included.
        self.bandwidths = [_checked(row, "bandwidth", math.inf) for row in rows]
        self._ends = np.array([[self._numbers[one], self._numbers[other]] for one, other, _ in rows], np.int64)
        self._ends = self._ends.reshape(-1, 2)
        longest, count = max(self.latencies_s, default=0.0), len(self.names)
        if by == "hops" or not longest:
            steps = np.zeros(len(rows))
        else:
            steps = np.round(np.array(self.latencies_s) / longest * min(_LATENCY_STEPS, _LONGEST // count))
        self._lengths = steps + _EDGE_STEP
        backwards = (self._lengths, (self._ends[:, 1], self._ends[:, 0]))
        self._backwards = scipy.sparse.csr_array(backwards, shape=(count, count))
        self._out: list[list[int]] = [[] for _ in self.names]
        for number, (begin, _) in enumerate(self._ends.tolist()):
            self._out[begin].append(number)
        self._distances = functools.lru_cache(max(1, _KEPT_DISTANCES // count))(self._find_distances)
        self._path: Callable[[int, int], Path] = functools.lru_cache(_KEPT_PATHS)(self._find_path)

    def arrays(self) -> list[NDArray[Any]]:
        """Return the edges, latencies, bandwidths and places as arrays."""
        places = np.array([*self._attached, *self._servers])
        return [self._ends, np.array(self.latencies_s), np.array(self.bandwidths), places]

    def node(self, member: int) -> int:
        """Return the node to which a client, or a server (from K on), is attached."""
        clients = len(self._attached)
        return self._attached[member] if member < clients else self._servers[(member - clients) % len(self._servers)]

    def path(self, source: int, target: int) -> Path:
        """Return the path between clients or servers; no edges within one node."""
        return self._path(self.node(source), self.node(target))

    def _number(self, who: str, node: Any) -> int:
        if node not in self._numbers:
            names = [str(name) for name in self.names]
            some = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            hint = nearest(str(node), names) if len(names) < 10_000 else ""
            raise ScenarioError(
                f"underlay: {who} is attached to the node {str(node)!r}, which the graph does not have{hint}; "
                f"its nodes are {some}"
            )
        return self._numbers[node]

    def _find_distances(self, target: int) -> NDArray[np.float64]:
        """Return the distance to the target from every node, [nodes]."""
        from scipy.sparse.csgraph import dijkstra

        distances: NDArray[np.float64] = dijkstra(self._backwards, indices=target)
        return distances

    def _find_path(self, source: int, target: int) -> Path:
        distances, edges, at = self._distances(target), [], source
        while at != target:
            shortest = [
                edge for edge in self._out[at] if distances[self._ends[edge, 1]] + self._lengths[edge] == distances[at]
            ]
            edges.append(shortest[_mixed(source, target, at) % len(shortest)])
            at = int(self._ends[edges[-1], 1])
        return Path(tuple(edges), sum(self.latencies_s[edge] for edge in edges))


def _mixed(*numbers: int) -> int:
    """Return a hash of node numbers, the same on every machine (SplitMix64)."""
    mixed = 0
    for number in numbers:
        mixed = (mixed + (number + 1) * 0x9E3779B97F4A7C15) % 2**64
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        mixed ^= mixed >> 31
    return mixed


def _checked(row: tuple[Any, Any, dict[str, Any]], name: str, neutral: float) -> float:
    one, other, values = row
    value = values.get(name)
    if value is None:
        return neutral
    number = float(value) if isinstance(value, int | float) else math.nan
    if not (number >= 0 if name == "latency" else number > 0) or (name == "latency" and math.isinf(number)):
        expected = "a finite time >= 0" if name == "latency" else "bytes per second > 0"
        raise ScenarioError(f"underlay: edge {one} - {other}: {name}: expected {expected}, found {value}")
    return number


def star_of_switches(switches: int) -> nx.Graph[str]:
    """Return a core with `switches` around it."""
    return _with_leaves(nx.Graph(("core", f"switch{i}") for i in range(switches)), "switch")


def two_level_tree(branches: int, racks: int, trunk: float | None = None) -> nx.Graph[str]:
    """Return a core, `branches` switches below it, and `racks` below each of those.

    `trunk` is the bandwidth of the core's edges, in bytes per second; None: that of all edges.
    """
    graph = nx.Graph(("core", f"branch{i}") for i in range(branches))
    graph.add_edges_from((f"branch{i}", f"rack{i * racks + j}") for i in range(branches) for j in range(racks))
    if trunk is not None:
        nx.set_edge_attributes(graph, dict.fromkeys(graph.edges("core"), trunk), "bandwidth")
    return _with_leaves(graph, "rack")


def fat_tree(ports: int) -> nx.Graph[str]:
    """Return a fat tree of k ports: (k/2)² cores and k pods of k switches, k even."""
    half = ports // 2
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(f"core{i}" for i in range(half**2))
    for switch in range(ports * half):
        pod, at = divmod(switch, half)
        graph.add_edges_from((f"aggregation{switch}", f"edge{pod * half + i}") for i in range(half))
        graph.add_edges_from((f"core{at * half + i}", f"aggregation{switch}") for i in range(half))
    return _with_leaves(graph, "edge")


def by_name(graph: nx.Graph[int]) -> nx.Graph[Any]:
    """Return a graph whose nodes are named by their numbers, as strings."""
    named: nx.Graph[Any] = nx.relabel_nodes(graph, str)
    return named


def single_edges(graph: nx.Graph[Any]) -> nx.Graph[Any]:
    """Return a graph without parallel edges, directed if it was."""
    return nx.DiGraph(graph) if graph.is_directed() else nx.Graph(graph)


def leaves(graph: nx.Graph[Any]) -> list[Any]:
    """Return default nodes of clients: edge switches, else nodes of degree 1, or all."""
    built = graph.graph.get("leaves")
    return built or [node for node in graph if len(set(graph.to_undirected()[node]) - {node}) == 1] or list(graph)


def _with_leaves(graph: nx.Graph[str], prefix: str) -> nx.Graph[str]:
    names = [node for node in graph if node.startswith(prefix)]
    graph.graph["leaves"] = sorted(names, key=lambda name: int(name.removeprefix(prefix)))
    return graph
