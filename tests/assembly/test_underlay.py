"""From `underlay:` in a scenario to routers with clients, and invalid underlays."""

import networkx as nx
import pytest

from simfl.assembly.underlay import underlay_of
from simfl.errors import DataError, ScenarioError, SimflError
from simfl.scenario import loads
from simfl.streams import Streams


def built(underlay, count=6, links="{}"):
    text = f"clients: {{count: {count}}}\nunderlay: {underlay}\nlinks: {links}\nalgorithm: {{kind: fedasync}}\n"
    return underlay_of(loads(text), Streams(0))


def places(underlay, count=6):
    return [underlay.names[underlay.node(k)] for k in range(count)]


def test_clients_are_at_the_outermost_switches_and_the_server_at_the_core():
    tree = built("{kind: two_level, branches: 2, racks: 2, trunk: 10 Gbit/s, bandwidth: 1 Gbit/s, latency: 50 us}")
    assert places(tree, 8) == ["rack0", "rack1", "rack2", "rack3", "rack0", "rack1", "core", "core"]
    path = tree.path(0, 2)
    assert path.latency_s == pytest.approx(4 * 50e-6)
    assert [tree.bandwidths[edge] for edge in path.edges] == [1.25e8, 1.25e9, 1.25e9, 1.25e8]
    star = built("{kind: star, switches: 4, servers: [switch2, core]}")
    assert places(star, 9) == [
        "switch0",
        "switch1",
        "switch2",
        "switch3",
        "switch0",
        "switch1",
        "switch2",
        "core",
        "switch2",
    ]
    assert places(built("{kind: fat_tree, ports: 4}"), 7)[-2:] == ["edge5", "core0"]


def test_clients_may_be_listed_drawn_or_counted_by_an_attribute(tmp_path):
    assert places(built("{kind: graph, nodes: 4, clients: {kind: nodes, nodes: [3, 3, 0, 1, 1, 2]}}")) == list("330112")
    drawn = built("{kind: star, switches: 3, clients: random}", 60)
    assert {*places(drawn, 60)} == {"switch0", "switch1", "switch2"}
    assert places(drawn, 60) == places(built("{kind: star, switches: 3, clients: random}", 60), 60)
    graph = nx.Graph([("a", "b", {"latency": "5 ms", "bandwidth": "8 Mbit/s"}), ("b", "c", {"latency": 0.25})])
    nx.set_node_attributes(graph, {"a": 2, "c": 4}, "clients")
    nx.write_graphml(graph, tmp_path / "net.graphml")
    file = f"path: {tmp_path}/net.graphml, bandwidth: null, latency: 1 ms"
    counted = built(f"{{kind: graphml, {file}, clients: {{kind: attribute}}, servers: [b]}}")
    assert places(counted, 7) == ["a", "a", "c", "c", "c", "c", "b"]
    assert counted.path(0, 2).latency_s == pytest.approx(0.255)
    assert [counted.bandwidths[edge] for edge in counted.path(0, 2).edges] == [1e6, float("inf")]
    assert places(built(f"{{kind: graphml, {file}}}"), 7) == ["a", "c", "a", "c", "a", "c", "a"], "at its ends"


@pytest.mark.parametrize(
    ("underlay", "links", "said"),
    [
        ("{kind: fat_tree, ports: 5}", "{}", r"underlay.ports: expected an even number, found 5; half of the ports"),
        ("{latency: 1 ms}", "{}", r"underlay.kind: expected star, two_level, fat_tree, graph or graphml, found"),
        ("{kind: star, latency: -1 ms}", "{}", r"underlay.latency: expected a time >= 0, found '-1 ms'"),
        ("{kind: star, servers: [hub]}", "{}", r"underlay: the server is attached to the node 'hub', which the graph"),
        ("{kind: star}", "{sharing: fifo}", r"links.sharing: expected fair over an underlay, found 'fifo'; leave"),
        ("{kind: star, clients: {kind: nodes, nodes: [switch0]}}", "{}",
         r"underlay.clients.nodes: expected a node for each of clients.count, which is 6, found 1 nodes; a client "
         r"that is not attached"),
        ("{kind: star, clients: {kind: nodes, nodes: [core, core, core, core, core, swich1]}}", "{}",
         r"underlay: client 5 is attached to the node 'swich1', which the graph does not have.*'switch1'"),
        ("{kind: star, clients: {kind: attribute}}", "{}",
         r"underlay.clients.name: expected nodes whose clients add up to clients.count, which is 6, found 0"),
        ("{kind: graph, nodes: 4, graph: {kind: regular, degree: 4}}", "{}",
         r"underlay.graph.degree: expected fewer than nodes, which is 4, found 4"),
        ("{kind: graph, nodes: 40, graph: {kind: erdos_renyi, probability: 0.001}}", "{}",
         r"underlay.graph: erdos_renyi of 40 clients .* was not connected"),
        ("{kind: graphml, path: nowhere.graphml}", "{}", r"nowhere.graphml: underlay.path: cannot read the file"),
    ],
)  # fmt: skip
def test_impossible_underlay_is_rejected_in_one_line(underlay, links, said):
    with pytest.raises(SimflError, match=said) as caught:
        built(underlay, links=links)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        ([("a", "b", {"latency": "-2 ms"})], r"edge a - b: latency: expected a finite time >= 0, found -0.002"),
        ([("a", "b", {"latency": "soon"})], r"underlay.path: edge a - b: latency: expected a time like '10 ms'"),
        ([("a", "b", {"bandwidth": 1e6})], r"edge a - b: bandwidth: expected a bandwidth like '100 Mbit/s'"),
        ([("a", "b", {}), ("c", "d", {})], r"underlay: expected a connected graph, found 2 parts"),
    ],
)
def test_invalid_file_is_rejected_in_one_line(edges, said, tmp_path):
    nx.write_graphml(nx.Graph(edges), tmp_path / "net.graphml")
    with pytest.raises((ScenarioError, DataError), match=said) as caught:
        built(f"{{kind: graphml, path: {tmp_path}/net.graphml}}")
    assert "\n" not in str(caught.value)
