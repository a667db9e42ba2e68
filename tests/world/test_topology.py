import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.errors import DataError, ScenarioError
from simfl.streams import Streams
from simfl.world.topology import DENSE_LIMIT, MIXING_RULES, TOPOLOGIES, Topology, build_topology

FILES = {"graphml", "gml", "pajek", "edge_list", "adjacency_list"}
EVERY_KIND = sorted(set(TOPOLOGIES) - FILES)


def build(kind, num_clients, seed=0, **options):
    return build_topology(kind, num_clients, Streams(seed).generator("topology"), **options)


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(EVERY_KIND), half=st.integers(3, 12), seed=st.integers(0, 1000))
def test_every_kind_is_a_simple_connected_graph_with_a_doubly_stochastic_mixing_matrix(kind, half, seed):
    topology = build(kind, 2 * half, seed)
    assert topology.num_clients == 2 * half
    assert nx.is_connected(topology.graph)
    for client in range(topology.num_clients):
        neighbors = list(topology.neighbors(client))
        assert neighbors == sorted(set(neighbors))
        assert client not in neighbors
        assert neighbors == sorted(topology.graph[client])
        assert all(client in topology.neighbors(other) for other in neighbors)
    assert list(topology.edges) == sorted(tuple(sorted(edge)) for edge in topology.graph.edges)
    regular = len(set(topology.degrees.tolist())) == 1
    for rule in ("metropolis", "max_degree", *(["uniform"] if regular else [])):
        matrix = topology.mixing_matrix(rule).toarray()
        np.testing.assert_allclose(matrix.sum(axis=0), 1, atol=1e-12)
        np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-12)
        np.testing.assert_array_equal(matrix, matrix.T)
        assert matrix.min() >= 0
        assert (matrix[~np.eye(len(matrix), dtype=bool)] > 0).sum() == 2 * len(topology.edges)
        assert 0 < topology.spectral_gap(rule) <= 1 + 1e-12


@settings(max_examples=30, deadline=None)
@given(kind=st.sampled_from(EVERY_KIND), half=st.integers(3, 12), seed=st.integers(0, 1000))
def test_the_sides_are_a_two_coloring_exactly_where_one_exists(kind, half, seed):
    topology = build(kind, 2 * half, seed)
    assert topology.is_bipartite == nx.is_bipartite(topology.graph)
    if topology.is_bipartite:
        senders, receivers = topology.sides()
        assert 0 in senders
        assert sorted(senders + receivers) == list(range(topology.num_clients))
        assert all((one in senders) != (other in senders) for one, other in topology.edges)
    else:
        with pytest.raises(ScenarioError, match=r"odd cycle.*pairing: everyone"):
            topology.sides()


def test_on_an_even_ring_the_even_ids_send():
    assert build("ring", 6).sides() == ((0, 2, 4), (1, 3, 5))


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_the_same_seed_draws_the_same_graph_and_another_seed_another(kind):
    edges = build(kind, 30, seed=1).edges
    assert build(kind, 30, seed=1).edges == edges
    is_random = kind in {"regular", "erdos_renyi", "watts_strogatz", "barabasi_albert"}
    assert (build(kind, 30, seed=2).edges != edges) == is_random


@pytest.mark.parametrize("rule", MIXING_RULES)
def test_spectral_gaps_equal_known_values(rule):
    assert build("complete", 9).spectral_gap(rule) == 1
    for num_clients in (4, 5, 16, 33):
        expected = 2 / 3 * (1 - np.cos(2 * np.pi / num_clients))
        assert build("ring", num_clients).spectral_gap(rule) == pytest.approx(expected, abs=1e-12)
    expected = 2 / 5 * (1 - np.cos(2 * np.pi / 8))  # the long side of the torus decides
    assert build("torus", 40).spectral_gap(rule) == pytest.approx(expected, abs=1e-12)
    if rule != "uniform":
        assert build("star", 12).spectral_gap(rule) == pytest.approx(1 / 12, abs=1e-12)


@pytest.mark.slow(every=3)
@pytest.mark.parametrize("kind", ["ring", "torus", "exponential", "watts_strogatz", "tree"])
def test_the_sparse_spectral_gap_equals_the_dense_one(kind, monkeypatch):
    topology = build(kind, 400)
    dense = topology.spectral_gap()
    monkeypatch.setattr("simfl.world.topology.DENSE_LIMIT", 0)
    assert topology.spectral_gap() == pytest.approx(dense, rel=1e-6)
    assert topology.spectral_gap() == topology.spectral_gap()


def test_the_sparse_spectral_gap_sees_a_negative_eigenvalue(monkeypatch):
    graph = nx.complete_bipartite_graph(20, 20)  # W has -1 + 2/21 at its lower end, and 1/21 below 1
    topology = Topology.from_graph(graph)
    dense = topology.spectral_gap()
    assert dense == pytest.approx(2 / 21)
    monkeypatch.setattr("simfl.world.topology.DENSE_LIMIT", 0)
    assert topology.spectral_gap() == pytest.approx(dense, rel=1e-6)


def test_the_gap_of_a_long_ring_has_its_closed_form():
    gap = build("ring", 4 * DENSE_LIMIT).spectral_gap()
    assert gap == pytest.approx(2 / 3 * (1 - np.cos(2 * np.pi / (4 * DENSE_LIMIT))), rel=1e-5)


def test_the_neighbors_on_a_complete_graph_behave_like_a_tuple():
    neighbors = build("complete", 5).neighbors(2)
    assert tuple(neighbors) == (0, 1, 3, 4)
    assert [neighbors[i] for i in range(4)] == [0, 1, 3, 4]
    assert neighbors[-1] == 4
    assert neighbors[1:3] == (1, 3)
    assert neighbors == (0, 1, 3, 4)
    assert 2 not in neighbors
    assert 4 in neighbors
    assert 5 not in neighbors
    with pytest.raises(IndexError):
        neighbors[4]


def test_exponential_hops_are_powers_of_two():
    assert build("exponential", 10).neighbors(0) == (1, 2, 4, 6, 8, 9)


def test_trees_and_tori_have_their_shapes():
    assert build("tree", 7, branching=3).edges == ((0, 1), (0, 2), (0, 3), (1, 4), (1, 5), (1, 6))
    torus = build("torus", 12, rows=3)
    assert torus.neighbors(0) == (1, 3, 4, 8)
    assert set(torus.degrees) == {4}


@pytest.mark.parametrize("kind", ["ring", "complete", "star", "tree", "exponential", "erdos_renyi"])
@pytest.mark.parametrize("num_clients", [1, 2])
def test_graphs_of_one_and_two_clients_are_valid(kind, num_clients):
    topology = build(kind, num_clients)
    assert topology.edges == (() if num_clients == 1 else ((0, 1),))
    assert topology.spectral_gap() == pytest.approx(1)
    assert topology.sides() == ((0,), tuple(range(1, num_clients)))


def test_unread_attributes_of_a_file_are_named(tmp_path):
    path = tmp_path / "links.graphml"
    graph = nx.DiGraph([(0, 1), (1, 2)], title="a campus")
    nx.set_edge_attributes(graph, 5.0, "latency")
    nx.set_edge_attributes(graph, 2, "weight")
    nx.set_node_attributes(graph, "old", "machine")
    nx.write_graphml(graph, path)
    unread = ("weight (of links)", "machine (of nodes)", "title (of the graph)", "directions")
    assert build("graphml", 3, path=path).unread == unread
    nx.write_graphml(nx.path_graph(3), path)
    assert build("graphml", 3, path=path).unread == ()
    path.write_text("0 1 0.5\n1 2 1\n")
    assert build("edge_list", 3, path=path).unread == ("the columns after the first two",)


def test_files_keep_their_numbers_or_are_numbered_in_order(tmp_path):
    edges = tmp_path / "links.txt"
    edges.write_text("# three in a row\n2,1,0.5\n1,0,0.5\n\n")
    assert build("edge_list", 3, path=edges).edges == ((0, 1), (1, 2))
    edges.write_text("paris lyon\nlyon nice # south\n")
    assert build("edge_list", 3, path=edges).edges == ((0, 1), (1, 2))
    graphml = tmp_path / "links.graphml"
    nx.write_graphml(nx.relabel_nodes(nx.path_graph(4), {0: 3, 3: 0}), graphml)
    assert build("graphml", 4, path=str(graphml)).edges == ((0, 2), (1, 2), (1, 3))
    nx.write_graphml(nx.DiGraph([("a", "b"), ("b", "a"), ("b", "b"), ("b", "c")]), graphml)
    assert build("graphml", 3, path=graphml).edges == ((0, 1), (1, 2))


GML_TWICE = """graph [
  multigraph 1
  node [ id 0 label "a" ]
  node [ id 1 label "b" ]
  edge [ source 0 target 1 latency "5 ms" ]
  edge [ source 1 target 0 latency "6 ms" ]
]"""


@pytest.mark.parametrize(
    ("kind", "num_clients", "options", "message"),
    [
        ("rign", 4, {}, r"topology\.kind: expected one of ring, .*, found 'rign'; did you mean 'ring'\?"),
        ("ring", 0, {}, r"clients\.count: expected at least 1, found 0"),
        ("ring", 4, {"degree": 2}, r"topology\.degree: kind: ring takes no options"),
        ("regular", 8, {"degre": 3}, r"topology\.degre: kind: regular takes degree only; did you mean 'degree'\?"),
        ("regular", 5, {"degree": 3},
         r"topology\.degree: expected an even number, .*number of clients, 5, is odd, found 3"),
        ("regular", 4, {"degree": 4}, r"topology\.degree: expected from 1 to 3.*, found 4"),
        ("regular", 8, {"degree": 1}, r"topology\.degree: expected at least 2.*, found 1"),
        ("regular", 10_000, {"degree": 9_000}, r"about 45,000,000 edges.*lower topology\.degree"),
        ("torus", 13, {}, r"torus: 13 clients do not fill a grid"),
        ("torus", 12, {"rows": 5}, r"topology\.rows: expected a divisor of 12.*, found 5"),
        ("torus", 12, {"rows": 12}, r"topology\.rows: expected a divisor of 12.*, found 12"),
        ("erdos_renyi", 100, {"probability": 0.001}, r"not connected in 100 draws; choose options with more edges"),
        ("erdos_renyi", 10, {"probability": 1.5}, r"topology\.probability: expected above 0 and at most 1, found 1\.5"),
        ("erdos_renyi", 10_000, {"probability": 0.9}, r"edges.*use kind: complete"),
        ("watts_strogatz", 10, {"neighbors": 3}, r"topology\.neighbors: expected an even number from 2 to 9.*found 3"),
        ("watts_strogatz", 10, {"rewiring": 2}, r"topology\.rewiring: expected from 0 to 1, found 2"),
        ("barabasi_albert", 3, {"attachments": 3}, r"topology\.attachments: expected from 1 to 2.*found 3"),
        ("tree", 3, {"branching": 0}, r"topology\.branching: expected at least 1, found 0"),
        ("graphml", 3, {}, r"topology\.path: kind: graphml needs it"),
    ],
)  # fmt: skip
def test_impossible_graphs_are_refused_in_one_line(kind, num_clients, options, message):
    with pytest.raises(ScenarioError, match=message) as caught:
        build(kind, num_clients, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "text", "error", "message"),
    [
        ("edge_list", "source target latency\n0 1 5 ms\n", DataError,
         r"graph:2: .* 3 values, as in line 1, found 4, '0 1 5"),
        ("edge_list", "a b latency name\n0 1 5 ms\n", DataError,
         "graph:1: .* as spaces separate values, found name; sep"),
        ("edge_list", "source,target\n0,1,5\n", DataError, "graph:2: .*expected 2 values, as in line 1, found 3"),
        ("edge_list", "0 1 2\n1 3\n", DataError, "graph:2: .*expected 3 values, as in line 1, found 2.*adjacency_list"),
        ("edge_list", "0 1\n1,2\n", DataError, "graph:2: .*expected two nodes 'a b', found '1,2'"),
        ("edge_list", "a,b\n,c\n", DataError, "graph:2: .*expected two nodes 'a b', found ' c'; name both"),
        ("edge_list", "u v\na b\nb c\n", ScenarioError,
         r"has 5 nodes \(u, v, a, b, c\) and clients\.count is 4; if all"),
        ("edge_list", "u v\na b\n", ScenarioError,
         "found 2 separate parts, one of them with the nodes u, v; add edges"),
        ("edge_list", "4 5\n1 2\n2 3\n3 4\n4 1\n1 3\n", DataError, "graph:1: .*found '4 5', the numbers of nodes and"),
        ("edge_list", "5 5\n2 5\n1 3\n2 4\n3 5\n1 4\n", DataError,
         "graph:1: .*found '5 5', the numbers of nodes and links"),
        ("edge_list", "%%M\n4 4 3\n1 2 .5\n2 3 1\n3 4 1\n", DataError,
         "graph:2: .*found '4 4 3', the numbers of nodes"),
        ("edge_list", "a,b,latency\n0,1,5 ms\n2,3,1 ms\n1,0,7 ms\n", DataError,
         "graph:4: .*expected the values of link 1 - 0 in line 2, latency 5 ms, found latency 7 ms; keep one"),
        ("adjacency_list", "4 5\n2 3\n1 3 4\n1 2 4\n2 3\n", DataError, "graph:1: .*found '4 5', the numbers of nodes"),
        ("adjacency_list", "0 1 {'w': 1}\n", DataError,
         "graph:1: .*expected a node and its neighbors 'a b c'.*kind: edge_list"),
        ("gml", "graph [", DataError, "expected a GML file, found NetworkXError"),
        ("gml", GML_TWICE, DataError,
         r"link a - b: expected one latency.*, found latency 5 ms, and latency 6 ms; keep"),
        ("pajek", "0 1\n", DataError, r"expected a Pajek file with \*Vertices, .*, found none of them"),
        ("pajek", "*Vertices 2\n1 a\n2 b\n*Edgeslist\n1 2\n", DataError, r"expected .*, found \*vertices \*edgeslist"),
        ("pajek", "*Vertices 2\n1 a\n2 a\n*Edges\n1 2\n", DataError,
         r"expected 2 vertices, as \*Vertices says, found 1"),
        ("pajek", "*Vertices 2\n1 a\n2 b\n*Edges\n1 3\n", DataError,
         r"expected 2 vertices, as \*Vertices says, found 3"),
        ("pajek", "*Vertices 2\n*Edges\n1 2\n", DataError, "expected a Pajek file, found ValueError"),
        ("edge_list", "0 1\n2 3\n", ScenarioError, "expected a connected graph, found 2 separate parts"),
        ("edge_list", "0 1\n1 2\n", ScenarioError, r"has 3 nodes \(0, 1, 2\) and clients\.count is 4; if all"),
        ("edge_list", "0 1\n2\n", DataError, r"graph:2: topology\.path: expected two nodes 'a b', found '2'"),
        ("edge_list", "", ScenarioError, "has 0 nodes"),
        ("graphml", "<graphml><graph>", DataError, r"topology\.path: expected a GraphML file, found \w+"),
        ("graphml", "0 1\n", DataError, r"topology\.path: expected a GraphML file"),
        ("graphml", "<other/>", DataError, r"topology\.path: expected a GraphML file"),
        ("graphml", None, DataError, r"graph: topology\.path: cannot read the file: No such file"),
        ("edge_list", None, DataError, r"graph: topology\.path: cannot read the file: No such file"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_in_one_line(tmp_path, kind, text, error, message):
    path = tmp_path / "graph"
    if text is not None:
        path.write_text(text)
    with pytest.raises(error, match=message) as caught:
        build(kind, 4, path=path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff1 0\n1 2\n",  # with the mark in its name, 1 would be node 0
        "% sym unweighted\n%% 2 3 3\n0 1\n1 2\n",
        "# Nodes: 3 Edges: 2\n# FromNodeId\tToNodeId\n0\t1\n1\t2\n",
        "0 1 # the first\r\n1 2\r\n",
        "source target\n0 1\n1 2\n",
        "person,friend\n0,1\n1,2\n",
        "Source;Target;Weight\n0;1;2\n1;2;1\n",
        "Source,Target,Type,Id,Label,timeset,Weight\n0,1,Undirected,0,,,1.0\n1,2,Undirected,1,,,1.0\n",
        "Id,Source,Target\n7,0,1\n8,1,2\n",
        "0 1 {}\n1 2 {'weight': 1, 'color': 'a,b'}\n",
        "0 1\n1 0\n1 2\n0 1\n",
        "1 2\n0 1\n",  # 1 2 are also the numbers of links and nodes below
    ],
)
def test_comments_headers_and_marks_are_no_nodes(tmp_path, text):
    path = tmp_path / "graph"
    path.write_text(text, encoding="utf-8", newline="")
    assert build("edge_list", 3, path=path).edges == ((0, 1), (1, 2))


def test_columns_and_attributes_have_the_values_of_links(tmp_path):
    path = tmp_path / "graph"
    for text in (
        "source,target,Latency,note\n0,1,5 ms,a\n1,2\n1,0,5 ms,b\n",
        "source\ttarget\tlatency\tnote\n0\t1\t5 ms\ta\n1\t2\n",
        "id,target,source,latency\n1,0,1,5 ms\n2,1,2,\n",
        "0 1 {'latency': '5 ms', 'id': 1}\n1 2 {}\n",
    ):
        path.write_text(text)
        topology = build("edge_list", 3, path=path)
        assert topology.edges == ((0, 1), (1, 2))
        assert {link: values["latency"] for link, values in topology.of_links.items()} == {
            (0, 1): "5 ms",
            (1, 0): "5 ms",
        }
        assert topology.unread in (("note",), ("id",))


def written(graph, kind, path):
    """Write a graph in a format of topologies."""
    match kind:
        case "edge_list":
            nx.write_edgelist(graph, path)
        case "adjacency_list":
            nx.write_adjlist(graph, path)
        case "csv":
            rows = [f"{a},{b},{values.get('latency', '')}" for a, b, values in graph.edges(data=True)]
            path.write_text("\n".join(["source,target,latency", *rows]))
        case "pajek":
            nx.write_pajek(nx.relabel_nodes(graph, str), path)
        case _:
            getattr(nx, f"write_{kind}")(graph, path)


@settings(max_examples=100, deadline=None)
@given(
    kind=st.sampled_from(["edge_list", "adjacency_list", "csv", "gml", "graphml", "pajek"]),
    count=st.integers(2, 9),
    seed=st.integers(0, 10**6),
    own_numbers=st.booleans(),
)
def test_a_graph_in_any_format_is_read_as_it_was_written(tmp_path_factory, kind, count, seed, own_numbers):
    path = tmp_path_factory.mktemp("graph") / "file"
    generator = np.random.default_rng(seed)
    graph = nx.random_labeled_tree(count, seed=seed)
    graph.add_edges_from(edge for edge in nx.complete_graph(count).edges if generator.random() < 0.3)
    for number, edge in enumerate(graph.edges):
        if kind != "adjacency_list" and generator.random() < 0.5:
            graph.edges[edge]["latency"] = f"{number + 1} ms"
    names = {k: k if own_numbers else f"n{generator.integers(10**9)}-{k}" for k in graph}
    written(nx.relabel_nodes(graph, names), kind, path)
    topology = build("edge_list" if kind == "csv" else kind, count, path=path)
    if own_numbers:
        assert set(topology.edges) == {tuple(sorted(edge)) for edge in graph.edges}
        assert {link: values["latency"] for link, values in topology.of_links.items()} == {
            link: value
            for edge, value in nx.get_edge_attributes(graph, "latency").items()
            for link in (edge, edge[::-1])
        }
    else:
        assert nx.is_isomorphic(topology.graph, graph)
        latencies = sorted(values["latency"] for values in topology.of_links.values())
        assert latencies == sorted(2 * list(nx.get_edge_attributes(graph, "latency").values()))


def test_unknown_and_unfit_mixing_rules_are_refused():
    star = build("star", 4)
    with pytest.raises(ScenarioError, match=r"topology\.mixing: expected one of .*; did you mean 'metropolis'\?"):
        star.mixing_matrix("metropol")
    with pytest.raises(ScenarioError, match=r"topology\.mixing: uniform .* degrees from 1 to 3; use metropolis"):
        star.mixing_matrix("uniform")


def test_a_graph_with_other_names_is_refused():
    with pytest.raises(ScenarioError, match="numbered 0 to 2"):
        Topology.from_graph(nx.path_graph(["a", "b", "c"]))
