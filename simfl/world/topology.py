"""The graph of the clients, its mixing matrix and its spectral gap.

A topology is an undirected connected graph over the clients 0..K-1. Gossip over it averages with a symmetric doubly
stochastic matrix W [K, K]: row i has the weights of the models that client i holds and receives,
x_i <- sum_j W_ij x_j. One step shrinks the distance to the mean by at least max(|lambda_2|, |lambda_K|); the spectral
gap is 1 minus that.

Sources: Boyd, Diaconis, Xiao 2004, "Fastest mixing Markov chain on a graph", https://doi.org/10.1137/S0036144503423264
(Metropolis and maximum-degree weights); Ying et al. 2021, https://arxiv.org/abs/2110.13363 (exponential graph).
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import networkx as nx
import numpy as np
import scipy

from simfl import plugins
from simfl.catalogue import Catalogue
from simfl.errors import ScenarioError, nearest
from simfl.world import graph_files

MIXING_RULES = {
    "metropolis": "W_ij = 1 / (1 + max(degree i, degree j)): doubly stochastic on every graph",
    "max_degree": "W_ij = 1 / (1 + largest degree of the graph): doubly stochastic on every graph, lazier",
    "uniform": "W_ij = 1 / (1 + degree i): the plain mean over a client and its neighbors, regular graphs only",
}

DENSE_LIMIT = 1000  # below this many clients, eigenvalues come from the dense matrix
EDGE_LIMIT = 5_000_000  # a networkx graph with more edges would not fit into a laptop's memory
TRIES = 100  # largest number of draws of a random graph until it is connected


class Others(Sequence[int]):
    """The ids 0..num_clients-1 without one of them, in order, computed on demand."""

    __slots__ = ("_client", "_num_clients")

    def __init__(self, client: int, num_clients: int) -> None:
        self._client = client
        self._num_clients = num_clients

    def __len__(self) -> int:
        return self._num_clients - 1

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        if isinstance(index, slice):
            return tuple(self[position] for position in range(*index.indices(len(self))))
        position = range(self._num_clients - 1)[index]
        return position + (position >= self._client)

    def __iter__(self) -> Iterator[int]:
        yield from range(self._client)
        yield from range(self._client + 1, self._num_clients)

    def __contains__(self, value: object) -> bool:
        return value in range(self._num_clients) and value != self._client

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((self._client, self._num_clients))

    def __repr__(self) -> str:
        return f"<all of 0..{self._num_clients - 1} but {self._client}>"


@dataclass(frozen=True, eq=False)
class Topology:
    """A connected undirected graph over the clients 0..K-1.

    Args:
        kind: the name of its family, used in messages.
        adjacency: item k holds the sorted ids of client k's neighbors; `Others` for a complete graph.
        unread: the parts of its file that were not read, one phrase each.
        of_links: values of links in its file, (source, target) -> "latency", "bandwidth" or "loss" -> text or number in
            the file, and "line" -> its line in a text file.
    """

    kind: str
    adjacency: Sequence[Sequence[int]]
    unread: tuple[str, ...] = ()
    of_links: Mapping[tuple[int, int], Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def from_graph(cls, graph: nx.Graph[Any], kind: str = "graph") -> Topology:
        """Convert a networkx graph whose nodes are 0..K-1.

        Directions, parallel edges and self-loops are dropped: a link goes both ways, and a client always keeps its own
        model.

        Raises:
            ScenarioError: the nodes have other names, or the graph is not connected.
        """
        num_clients = graph.number_of_nodes()
        if set(graph) != set(range(num_clients)):
            raise ScenarioError(f"topology: {kind}: the nodes must be numbered 0 to {num_clients - 1}")
        undirected = graph.to_undirected(as_view=True)
        parts = nx.number_connected_components(undirected)
        if parts != 1:
            raise ScenarioError(
                f"topology: {kind}: expected a connected graph, found {parts} separate parts; "
                "add edges until it is connected"
            )
        adjacency = tuple(tuple(sorted(set(undirected[k]) - {k})) for k in range(num_clients))
        return cls(kind, adjacency, tuple(graph.graph.get(graph_files.UNREAD, ())), graph_files.of_links(graph))

    @property
    def num_clients(self) -> int:
        """K."""
        return len(self.adjacency)

    @property
    def is_complete(self) -> bool:
        """Whether the graph was built as a complete one."""
        return isinstance(self.adjacency[0], Others)

    def neighbors(self, client: int) -> Sequence[int]:
        """Return the sorted ids of the client's neighbors."""
        return self.adjacency[client]

    @functools.cached_property
    def degrees(self) -> np.ndarray:
        """Number of neighbors of each client, int64 [K]."""
        return np.fromiter((len(ids) for ids in self.adjacency), np.int64, self.num_clients)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """All links (i, j) with i < j, sorted; K (K - 1) / 2 of them on a complete graph."""
        return tuple((i, j) for i, ids in enumerate(self.adjacency) for j in ids if i < j)

    @functools.cached_property
    def graph(self) -> nx.Graph[int]:
        """The networkx graph, built on first use."""
        graph: nx.Graph[int] = nx.empty_graph(self.num_clients)
        graph.add_edges_from(self.edges)
        return graph

    @functools.cached_property
    def _colors(self) -> bytes | None:
        """A 2-coloring with client 0 in color 0, or None if the graph has an odd cycle."""
        if self.is_complete and self.num_clients > 2:
            return None
        colors = [-1] * self.num_clients
        colors[0] = 0
        reached = [0]
        for client in reached:
            for other in self.adjacency[client]:
                if colors[other] < 0:
                    colors[other] = 1 - colors[client]
                    reached.append(other)
                elif colors[other] == colors[client]:
                    return None
        return bytes(colors)

    @property
    def is_bipartite(self) -> bool:
        """Whether the clients split into two sides with all links between the sides."""
        return self._colors is not None

    def sides(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Split the clients into (senders, receivers); client 0 sends.

        On a ring, even ids send and odd ids receive (Xu, Zhang, Wang, A(DP)²SGD, appendix A).

        Raises:
            ScenarioError: the graph has an odd cycle.
        """
        if self._colors is None:
            raise ScenarioError(
                f"topology: {self.kind} of {self.num_clients} clients has an odd cycle, so it cannot be split into "
                "senders and receivers; use a bipartite graph (an even ring, a star, a tree) or pairing: everyone"
            )
        senders = tuple(client for client, color in enumerate(self._colors) if color == 0)
        receivers = tuple(client for client, color in enumerate(self._colors) if color == 1)
        return senders, receivers

    def mixing_matrix(self, rule: str = "metropolis") -> scipy.sparse.csr_array:
        """Return W, float64 [K, K], symmetric, non-negative, rows summing to 1.

        Raises:
            ScenarioError: the rule is not in `MIXING_RULES`, or `uniform` on a graph that is not regular.
        """
        if rule not in MIXING_RULES:
            raise ScenarioError(
                f"topology.mixing: expected one of {', '.join(MIXING_RULES)}, found "
                f"{rule!r}{nearest(rule, MIXING_RULES)}"
            )
        places, values = self._weights(rule)
        matrix = scipy.sparse.coo_array((values, places), shape=(self.num_clients, self.num_clients)).tocsr()
        matrix.sort_indices()
        return matrix

    def _weights(self, rule: str) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
        """Return rows, columns and values of the non-zero entries of W."""
        num_clients, degrees = self.num_clients, self.degrees
        largest = int(degrees.max())
        if rule == "uniform" and int(degrees.min()) != largest:
            raise ScenarioError(
                f"topology.mixing: uniform is doubly stochastic only if all degrees are equal, and {self.kind} has "
                f"degrees from {degrees.min()} to {largest}; use metropolis"
            )
        everyone = np.arange(num_clients)
        if self.is_complete:  # all rules agree: the mean of all models
            places = np.repeat(everyone, num_clients), np.tile(everyone, num_clients)
            return places, np.full(num_clients**2, 1.0 / num_clients)
        sources, targets = self.directed_edges()
        divisors = (
            np.maximum(degrees[sources], degrees[targets]) if rule == "metropolis" else np.full(len(sources), largest)
        )
        weights = 1.0 / (1.0 + divisors)
        own = 1.0 - np.bincount(sources, weights, minlength=num_clients)
        places = np.concatenate([sources, everyone]), np.concatenate([targets, everyone])
        return places, np.concatenate([weights, own])

    def spectral_gap(self, rule: str = "metropolis") -> float:
        """Return 1 - max(|lambda_2|, |lambda_K|) of the mixing matrix; 1 for one client."""
        if self.is_complete or self.num_clients == 1:
            return 1.0
        if self.num_clients >= DENSE_LIMIT:
            return 1.0 - _second_eigenvalue(self.mixing_matrix(rule))
        dense = np.zeros((self.num_clients, self.num_clients))  # quicker than to import SciPy
        places, values = self._weights(rule)
        dense[places] = values
        eigenvalues = np.linalg.eigvalsh(dense)
        return float(1.0 - max(abs(eigenvalues[0]), abs(eigenvalues[-2])))

    def directed_edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Return both directions of every edge as (sources, targets), int64 [2 E] each."""
        sources = np.repeat(np.arange(self.num_clients), self.degrees)
        targets = np.fromiter((j for ids in self.adjacency for j in ids), np.int64, len(sources))
        return sources, targets


def _second_eigenvalue(matrix: scipy.sparse.csr_array) -> float:
    """Return max(|lambda_2|, |lambda_K|) of a large W.

    Lanczos on W - 11'/K is quick on expanders, where the gap is wide. On long thin graphs lambda_2 is so close to 1
    that Lanczos does not converge; their factors of W - 1 are sparse, so inverse iteration around 1 is quick.
    """
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    size = matrix.shape[0]
    start = np.random.Generator(np.random.Philox(0)).standard_normal(size)  # ARPACK's default is drawn globally
    centered = LinearOperator((size, size), matvec=lambda x: matrix @ x - np.mean(x), dtype=np.float64)
    try:
        values = eigsh(centered, k=1, which="LM", v0=start, ncv=40, maxiter=100, tol=1e-9, return_eigenvectors=False)
        return float(abs(values[0]))
    except ArpackNoConvergence:
        around_one = eigsh(matrix.tocsc(), k=2, sigma=1.0 + 1e-9, v0=start, return_eigenvectors=False)
        second = float(np.min(around_one))
        if np.min(2.0 * matrix.diagonal() - 1.0) > -second:  # Gershgorin's circles: lambda_K cannot be the larger one
            return second
        smallest = eigsh(matrix, k=1, which="SA", v0=start, tol=1e-6, return_eigenvectors=False)
        return max(second, float(abs(smallest[0])))


def _bipartite(num_clients: int) -> nx.Graph[int]:
    """Link even with odd ids (Xu et al., A(DP)²SGD, appendix A)."""
    even, odd = range(0, num_clients, 2), range(1, num_clients, 2)
    _check_edges(len(even) * len(odd), "use fewer clients or another topology")
    graph: nx.Graph[int] = nx.empty_graph(num_clients)
    graph.add_edges_from((sender, receiver) for sender in even for receiver in odd)
    return graph


def _torus(num_clients: int, rows: int | None = None) -> nx.Graph[int]:
    if rows is None:
        rows = max(divisor for divisor in range(1, math.isqrt(num_clients) + 1) if num_clients % divisor == 0)
        if rows == 1:
            raise ScenarioError(
                f"topology: torus: {num_clients} clients do not fill a grid of at least 2 rows; "
                "choose a number of clients with a divisor, or kind: ring"
            )
    expected = f"a divisor of {num_clients} with at least 2 rows and 2 columns"
    _check("rows", rows, rows >= 2 and num_clients % rows == 0 and num_clients // rows >= 2, expected)
    grid: nx.Graph[Any] = nx.grid_2d_graph(rows, num_clients // rows, periodic=True)
    return nx.convert_node_labels_to_integers(grid)


def _exponential(num_clients: int) -> nx.Graph[int]:
    hops = [2**power for power in range(max(num_clients - 1, 0).bit_length())]
    graph: nx.Graph[int] = nx.circulant_graph(num_clients, hops)
    return graph


def _tree(num_clients: int, branching: int = 2) -> nx.Graph[int]:
    _check("branching", branching, branching >= 1, "at least 1")
    graph: nx.Graph[int] = nx.empty_graph(num_clients)
    graph.add_edges_from((client, (client - 1) // branching) for client in range(1, num_clients))
    return graph


def _regular(num_clients: int, generator: np.random.Generator, degree: int = 4) -> nx.Graph[int]:
    _check("degree", degree, 1 <= degree < num_clients, f"from 1 to {num_clients - 1}, less than the number of clients")
    expected = f"an even number, because the number of clients, {num_clients}, is odd"
    _check("degree", degree, num_clients * degree % 2 == 0, expected)
    _check("degree", degree, degree >= 2 or num_clients == 2, "at least 2: pairs alone are not connected")
    _check_edges(num_clients * degree / 2, "lower topology.degree")
    graph: nx.Graph[int] = nx.random_regular_graph(degree, num_clients, seed=generator)
    return graph


def _erdos_renyi(num_clients: int, generator: np.random.Generator, probability: float | None = None) -> nx.Graph[int]:
    if probability is None:  # twice the threshold of being connected
        probability = min(1.0, 2.0 * math.log(max(num_clients, 2)) / num_clients)
    _check("probability", probability, 0 < probability <= 1, "above 0 and at most 1")
    _check_edges(probability * num_clients * (num_clients - 1) / 2, "lower topology.probability, or use kind: complete")
    graph: nx.Graph[int] = nx.fast_gnp_random_graph(num_clients, probability, seed=generator)
    return graph


def _watts_strogatz(
    num_clients: int, generator: np.random.Generator, neighbors: int = 4, rewiring: float = 0.1
) -> nx.Graph[int]:
    expected = f"an even number from 2 to {num_clients - 1}, less than the number of clients"
    _check("neighbors", neighbors, 2 <= neighbors < num_clients and neighbors % 2 == 0, expected)
    _check("rewiring", rewiring, 0 <= rewiring <= 1, "from 0 to 1")
    _check_edges(num_clients * neighbors / 2, "lower topology.neighbors")
    graph: nx.Graph[int] = nx.watts_strogatz_graph(num_clients, neighbors, rewiring, seed=generator)
    return graph


def _barabasi_albert(num_clients: int, generator: np.random.Generator, attachments: int = 2) -> nx.Graph[int]:
    expected = f"from 1 to {num_clients - 1}, less than the number of clients"
    _check("attachments", attachments, 1 <= attachments < num_clients, expected)
    _check_edges(num_clients * attachments, "lower topology.attachments")
    graph: nx.Graph[int] = nx.barabasi_albert_graph(num_clients, attachments, seed=generator)
    return graph


def _check(option: str, value: float, fits: bool, expected: str) -> None:
    if not fits:
        raise ScenarioError(f"topology.{option}: expected {expected}, found {value}")


def _check_edges(expected: float, advice: str) -> None:
    if expected > EDGE_LIMIT:
        raise ScenarioError(f"topology: about {expected:,.0f} edges, more than the {EDGE_LIMIT:,} that fit; {advice}")


@dataclass(frozen=True)
class Family:
    """A kind of topology.

    Attributes:
        summary: one line for `simfl list`.
        build: makes the graph of K clients, given K, the generator if `random`, and the options by name.
        random: whether the graph is random; it is then redrawn until it is connected.
        kind: its name in a scenario, if a plugin adds it.
    """

    summary: str
    build: Callable[..., nx.Graph[int] | Topology]
    random: bool = False
    kind: str = ""

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The options by name: the arguments of `build` after K and the generator."""
        return dict(list(inspect.signature(self.build).parameters.items())[1 + self.random :])


_CORE: dict[str, Family] = {
    "ring": Family("a cycle: every client has two neighbors", lambda count: nx.cycle_graph(count)),
    "complete": Family(
        "every client is linked with every other",
        lambda count: Topology("complete", tuple(Others(client, count) for client in range(count))),
    ),
    "bipartite": Family("every even client is linked with every odd one", _bipartite),
    "star": Family(
        "client 0 in the center; the others are linked with it only", lambda count: nx.star_graph(count - 1)
    ),
    "torus": Family("a grid whose borders are joined, as square as possible (rows)", _torus),
    "regular": Family("a random graph in which every client has `degree` neighbors (4)", _regular, random=True),
    "erdos_renyi": Family("every pair is linked with `probability` (2 ln K / K)", _erdos_renyi, random=True),
    "watts_strogatz": Family(
        "a small world: a ring lattice of `neighbors` (4), a part `rewiring` (0.1) of its links moved at random",
        _watts_strogatz,
        random=True,
    ),
    "barabasi_albert": Family(
        "scale-free: each new client links with `attachments` (2) others, preferably those with many links",
        _barabasi_albert,
        random=True,
    ),
    "exponential": Family("client i is linked with i ± 1, 2, 4, 8, ... modulo K", _exponential),
    "tree": Family("a balanced tree under client 0 with `branching` (2) children each", _tree),
    "graphml": Family("a GraphML file (path)", graph_files.of_format(graph_files.read_graphml)),
    "gml": Family("a GML file (path)", graph_files.of_format(graph_files.read_gml)),
    "pajek": Family("a Pajek file (path)", graph_files.of_format(graph_files.read_pajek)),
    "edge_list": Family("a text file with one edge 'a b' per line (path)", graph_files.read_edges),
    "adjacency_list": Family("a text file with a node and its neighbors per line (path)", graph_files.read_neighbors),
}

_FAMILIES: Mapping[str, Family] = Catalogue(
    lambda: _CORE | {module.FAMILY.kind: module.FAMILY for module in plugins.modules("topologies")}
)

TOPOLOGIES: Mapping[str, str] = Catalogue(lambda: {kind: family.summary for kind, family in _FAMILIES.items()})


def build_topology(kind: str, num_clients: int, generator: np.random.Generator, **options: Any) -> Topology:
    """Build the graph of a scenario.

    Args:
        generator: draws the random kinds, which are redrawn until they are connected.
        **options: options of the kind (`degree`, `probability`, `path`, ...); None means the default.

    Raises:
        ScenarioError: the graph is impossible or not connected.
        DataError: a file is missing or malformed.
    """
    if kind not in _FAMILIES:
        raise ScenarioError(
            f"topology.kind: expected one of {', '.join(_FAMILIES)}, found {kind!r}{nearest(kind, _FAMILIES)}"
        )
    if num_clients < 1:
        raise ScenarioError(f"clients.count: expected at least 1, found {num_clients}")
    family = _FAMILIES[kind]
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in family.options:
            takes = f"takes {', '.join(family.options)} only" if family.options else "takes no options"
            raise ScenarioError(f"topology.{name}: kind: {kind} {takes}{nearest(name, family.options)}")
    for name, argument in family.options.items():
        if argument.default is argument.empty and name not in given:
            raise ScenarioError(f"topology.{name}: kind: {kind} needs it")
    for _ in range(TRIES):
        graph = family.build(num_clients, *([generator] if family.random else []), **given)
        if isinstance(graph, Topology):  # it computes its links on demand
            return graph
        if not family.random or nx.is_connected(graph):
            return Topology.from_graph(graph, kind)
    raise ScenarioError(
        f"topology: {kind} of {num_clients} clients with {given or 'its defaults'} was not connected in {TRIES} draws; "
        "choose options with more edges"
    )
