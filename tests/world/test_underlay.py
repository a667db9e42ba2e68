import itertools
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.errors import ScenarioError
from simfl.world.underlay import Underlay, fat_tree, leaves, star_of_switches, two_level_tree


def hops(underlay, source, target):
    """The nodes on the route, by name."""
    path = underlay.path(source, target)
    ways = [underlay.edges[edge] for edge in path.edges]
    assert all(one[1] == other[0] for one, other in itertools.pairwise(ways))
    return [ways[0][0], *(way[1] for way in ways)] if ways else []


def test_built_graphs_have_the_switches_and_edges_they_should():
    star, tree, fat = star_of_switches(5), two_level_tree(3, 4), fat_tree(4)
    assert sorted(dict(star.degree()).values()) == [1, 1, 1, 1, 1, 5]
    assert leaves(star) == [f"switch{i}" for i in range(5)]
    assert (tree.degree("core"), tree.degree("branch1"), tree.degree("rack7")) == (3, 5, 1)
    assert leaves(tree) == [f"rack{i}" for i in range(12)]
    assert (fat.number_of_nodes(), fat.number_of_edges()) == (20, 32)
    kinds = {
        kind: [fat.degree(node) for node in fat if node.startswith(kind)] for kind in ("core", "aggregation", "edge")
    }
    assert kinds == {"core": [4] * 4, "aggregation": [4] * 8, "edge": [2] * 8}
    assert nx.diameter(fat) == 4
    assert all(len(list(nx.all_shortest_paths(fat, "edge0", edge))) == 4 for edge in ("edge2", "edge7"))
    big = fat_tree(48)
    assert (big.number_of_nodes(), len(leaves(big))) == (2880, 1152)


def test_a_path_is_as_short_as_networkx_finds():
    graph = nx.gnm_random_graph(40, 90, seed=1)
    assert nx.is_connected(graph)
    generator = np.random.default_rng(0)
    for _, _, values in graph.edges(data=True):
        values["latency"] = float(generator.integers(0, 5)) * 1e-3
    by_latency, by_hops = (Underlay(graph, range(40), by=by) for by in ("latency", "hops"))
    lengths = dict(nx.all_pairs_dijkstra_path_length(graph, weight="latency"))
    edges = dict(nx.all_pairs_shortest_path_length(graph))
    for one, other in itertools.permutations(range(40), 2):
        assert by_latency.path(one, other).latency_s == pytest.approx(lengths[one][other])
        assert len(by_hops.path(one, other).edges) == edges[one][other]
        path = hops(by_latency, one, other)
        assert (path[0], path[-1], len(set(path))) == (one, other, len(path))


def test_clients_of_one_node_cross_no_edge_and_servers_take_their_nodes_round_by_round():
    graph = star_of_switches(2)
    nx.set_edge_attributes(graph, 1e-3, "latency")
    underlay = Underlay(graph, ["switch0", "switch1", "switch0"], ["core", "switch1"])
    assert underlay.path(0, 2).edges == ()
    assert hops(underlay, 0, 1) == ["switch0", "core", "switch1"]
    assert underlay.path(0, 1).latency_s == pytest.approx(2e-3)
    assert hops(underlay, 0, 3) == ["switch0", "core"]
    assert hops(underlay, 4, 3) == ["switch1", "core"]
    assert underlay.node(5) == underlay.node(3)


def test_paths_of_equal_length_are_all_used():
    """Of a fat tree's cores, pairs of edge switches in different pods take each about equally often."""
    graph = fat_tree(8)
    nx.set_edge_attributes(graph, 1e-4, "latency")
    places = leaves(graph)
    underlay = Underlay(graph, places)
    used = dict.fromkeys((node for node in graph if node.startswith("core")), 0)
    for one, other in itertools.permutations(range(32), 2):
        if one // 4 != other // 4:
            (core,) = [node for node in hops(underlay, one, other) if node.startswith("core")]
            used[core] += 1
    expected = 32 * 28 / 16
    chi_squared = sum((count - expected) ** 2 / expected for count in used.values())
    assert chi_squared < 40, "15 degrees of freedom: 0.05 % of random choices are that uneven"


def test_directions_may_differ():
    graph = nx.DiGraph()
    graph.add_edge("a", "b", latency=1e-3, bandwidth=5.0)
    graph.add_edge("b", "a", latency=4e-3)
    underlay = Underlay(graph, ["a", "b"])
    there, back = underlay.path(0, 1), underlay.path(1, 0)
    assert (there.latency_s, back.latency_s) == (1e-3, 4e-3)
    assert [underlay.bandwidths[edge] for path in (there, back) for edge in path.edges] == [5.0, math.inf]


def test_clients_are_at_the_ends_of_a_graph_or_everywhere():
    assert leaves(nx.path_graph(4)) == [0, 3]
    assert leaves(nx.cycle_graph(3)) == [0, 1, 2]
    both_ways = nx.DiGraph([(0, 1), (1, 0), (1, 2), (2, 1), (2, 2)])
    assert leaves(both_ways) == [0, 2]


@pytest.mark.parametrize(
    ("graph", "attached", "said"),
    [
        (nx.Graph([("a", "b"), ("c", "d")]), ["a"], r"expected a connected graph, found 2 parts"),
        (nx.DiGraph([("a", "b")]), ["a"], r"expected a connected graph, found 2 parts"),
        (nx.Graph([("a", "b", {"latency": -1.0})]), ["a"],
         r"edge a - b: latency: expected a finite time >= 0, found -1"),
        (nx.Graph([("a", "b", {"bandwidth": 0})]), ["a"],
         r"edge a - b: bandwidth: expected bytes per second > 0, found 0"),
        (nx.Graph([("a", "b", {"latency": math.nan})]), ["a"], r"latency: expected a finite time"),
        (nx.Graph([("alpha", "b")]), ["b", "alhpa"], r"client 1 is attached to the node 'alhpa', which .* 'alpha'"),
    ],
)  # fmt: skip
def test_an_invalid_underlay_is_refused(graph, attached, said):
    with pytest.raises(ScenarioError, match=said):
        Underlay(graph, attached)


def test_a_node_of_the_server_must_exist():
    with pytest.raises(ScenarioError, match=r"the server is attached to the node 'x', which the graph does not have"):
        Underlay(nx.Graph([("a", "b")]), ["a"], ["x"])


def test_ten_thousand_clients_keep_no_more_than_their_switches_need():
    graph = fat_tree(16)
    nx.set_edge_attributes(graph, 1e-4, "latency")
    places = leaves(graph)
    underlay = Underlay(graph, [places[k % len(places)] for k in range(10_000)])
    generator = np.random.default_rng(0)
    for one, other in generator.integers(0, 10_000, (3000, 2)).tolist():
        assert len(underlay.path(one, other).edges) in (0, 2, 4)
    assert underlay._path.cache_info().maxsize == 2**17
    assert underlay._distances.cache_info().currsize <= len(places)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), longest=st.sampled_from([0.0, 1e-6, 10.0]))
def test_a_way_out_is_as_long_as_the_way_back(seed, longest):
    graph = nx.random_labeled_tree(12, seed=seed)
    generator = np.random.default_rng(seed)
    for one, other in generator.integers(0, 12, (8, 2)).tolist():
        graph.add_edge(one, other)
    for _, _, values in graph.edges(data=True):
        values["latency"] = float(generator.uniform(0, longest))
    underlay = Underlay(graph, range(12))
    for one, other in itertools.combinations(range(12), 2):
        assert underlay.path(one, other).latency_s == pytest.approx(
            underlay.path(other, one).latency_s, abs=1e-8 * longest
        )
