import math

import networkx as nx
import pytest

from simfl.streams import Streams
from simfl.world import Availability, Clock, Network
from simfl.world.flows import Flows
from simfl.world.link_values import Period, Rule, Sampled
from simfl.world.links import LinkModel
from simfl.world.underlay import Underlay, star_of_switches
from tests.helpers import constant
from tests.world.test_links import MB, deliveries


def make_network(num_clients=8, seed=0, outages=None, rows=None, underlay=None, **links):
    clock, streams = Clock(), Streams(seed)
    on_delivery = None if rows is None else rows.append
    availability = Availability(streams, outages)
    carrier = lambda network: Flows(network, underlay)  # noqa: E731
    return Network(clock, LinkModel(**links), num_clients, streams, availability, on_delivery, carrier)


def measured(graph, latency, bandwidth):
    nx.set_edge_attributes(graph, latency, "latency")
    nx.set_edge_attributes(graph, bandwidth, "bandwidth")
    return graph


def dumbbell():
    """Two switches, clients 0 to 2 at the one, 3 to 5 at the other."""
    graph = measured(nx.Graph([("a", "b")]), 0.25, float(MB))
    return Underlay(graph, ["a"] * 3 + ["b"] * 3, ["b"])


def test_a_message_takes_its_latencies_and_then_its_bytes():
    network = make_network(latency=constant(0.5), bandwidth=4 * MB, underlay=dumbbell())
    assert deliveries(network, [(1.0, 0, 3, 2 * MB), (20.0, 0, 1, 2 * MB)]) == [(3.75, 0), (21.0, 1)]
    network = make_network(latency=constant(0.5), uplink=4 * MB, downlink=2 * MB)
    assert deliveries(network, [(1.0, 0, 1, 2 * MB)]) == [(2.5, 0)]


def test_a_message_without_costs_is_delivered_at_once():
    network = make_network()
    assert network.free
    assert deliveries(network, [(1.0, 0, 1, MB), (1.0, 1, 2, MB)]) == [(1.0, 0), (1.0, 1)]
    assert not make_network(underlay=dumbbell()).free


def test_messages_share_what_they_cross_in_the_same_direction():
    sends = [(0.0, 0, 3, MB), (0.0, 1, 4, MB), (0.0, 4, 2, MB), (0.0, 0, 1, MB)]
    seen = {index: time for time, index in deliveries(make_network(underlay=dumbbell(), uplink=2 * MB), sends)}
    # The two across share the edge; the one back has its other direction; the one within the switch the uplink's rest.
    assert seen == pytest.approx({0: 2.25, 1: 2.25, 2: 1.25, 3: 0.25 + 0.5 / 1.5})
    network, sends = make_network(bandwidth=MB), [(0.0, 0, 1, MB)] * 2 + [(0.0, 1, 0, MB)]
    seen = {index: time for time, index in deliveries(network, sends)}
    assert seen == pytest.approx({0: 2.0, 1: 2.0, 2: 1.0})


def test_the_backlog_is_that_of_the_busiest_resource():
    network = make_network(uplink=float(MB))
    server = network.add_node(downlink=2.0 * MB)
    for k in range(4):
        network.send(k, server, 3 * MB, lambda: None)
    network.clock.run(until=1.0)
    assert network.carrier.backlog_s() == pytest.approx(5.0), "10 of 12 MB are left, for 2 MB/s"


def test_transfers_side_by_side_share_the_edges_beneath():
    """Around a ring of clients at two switches, 0-2-4 at the one, the edge between them carries all six messages."""
    graph = measured(nx.Graph([("a", "b")]), 0.0, float(MB))
    network = make_network(underlay=Underlay(graph, ["a", "b"] * 3), latency=constant(0.5), uplink=10.0 * MB)
    ring = [(k, (k + 1) % 6) for k in range(6)]
    assert (network.values.repeats, network.steady) == (True, False)
    assert network.transfers_s(ring, MB) == pytest.approx([3.5] * 6), "three in each direction"
    assert network.expected_s(ring, MB) == pytest.approx([3.5] * 6)
    assert network.expected_s([(0, 2), (1, 3)], MB) == pytest.approx([0.6] * 2)
    assert (network.messages, network.delivered) == (6, 6)
    alone = make_network(bandwidth=MB, uplink=2 * MB)
    assert alone.steady
    assert alone.expected_s(ring, MB) == pytest.approx([1.0] * 6)


def test_one_pending_call_serves_all_flows():
    network = make_network(
        1000, underlay=Underlay(measured(star_of_switches(4), 0.0, 1e9), ["switch0"] * 1000), uplink=1e6
    )
    server = network.add_node(downlink=1e8)
    for k in range(1000):
        network.send(k, server, 10_000 + k, lambda: None)
    network.clock.run()
    assert network.delivered == 1000
    assert network.clock.events < 5 * 1000
    assert math.isclose(network.clock.now, sum(10_000 + k for k in range(1000)) / 1e8, rel_tol=1e-3)


def varied(*rules, **links):
    clock, streams = Clock(), Streams(0)
    model = LinkModel(rules=rules, **links)
    return Network(clock, model, 8, streams, Availability(streams), None, Flows)


def test_rates_follow_capacities_that_change():
    """Two share an uplink of 2 MB/s, which has 1 from 1 to 4 s, and none of its own limit from 6 s on."""
    rules = Rule({"uplink": 2.0 * MB}), Rule({"uplink": 1.0 * MB}, window=Period(1.0, 4.0))
    seen = deliveries(varied(*rules), [(0.0, 0, 1, 3 * MB), (0.0, 0, 2, 4 * MB), (9.0, 0, 3, 2 * MB)])
    # By 4 s each has 1 + 1.5 MB; the first ends half a second later, the second then has 2 MB/s for its last MB.
    assert seen == [(pytest.approx(4.5), 0), (pytest.approx(5.0), 1), (pytest.approx(10.0), 2)]
    network = varied(Rule({"bandwidth": 1.0 * MB}, window=Period(1.0, 3.0, 4.0)))
    assert deliveries(network, [(1.0, 0, 1, MB), (5.5, 0, 1, 3 * MB), (12.5, 0, 1, 10 * MB)]) == [
        (pytest.approx(2.0), 0), (pytest.approx(7.0), 1), (pytest.approx(12.5), 2),
    ]  # fmt: skip
    assert not network.carrier._resources


def test_links_may_differ_and_what_is_drawn_for_a_message_is_its_own():
    slow = Rule({"bandwidth": 1.0 * MB, "latency": 0.5}, ways=((frozenset({0}), None),))
    seen = deliveries(varied(slow, bandwidth=4.0 * MB), [(0.0, 0, 1, MB), (0.0, 2, 1, MB)])
    assert seen == [(pytest.approx(0.25), 1), (pytest.approx(1.5), 0)]
    drawn = varied(Rule({"bandwidth": Sampled(lambda g, n: g.uniform(1, 2, n) * MB, "message", "bandwidth")}))
    times = [time for time, _ in deliveries(drawn, [(0.0, 0, 1, MB)] * 20)]
    assert 0.5 < min(times) < 0.6 < 0.75 < max(times) < 1.0, "each at its own pace"


def test_rates_by_latency_are_proportional_to_one_over_it():
    graph = measured(nx.Graph([("near", "hub"), ("far", "hub"), ("hub", "target")]), 0.1, None)
    graph["far"]["hub"]["latency"] = 0.3
    graph["hub"]["target"]["bandwidth"] = float(MB)
    beneath = Underlay(graph, ["near", "far", "target"])
    clock, streams = Clock(), Streams(0)
    carrier = lambda network: Flows(network, beneath, by_latency=True)  # noqa: E731
    network = Network(clock, LinkModel(), 3, streams, Availability(streams), None, carrier)
    seen = deliveries(network, [(0.2, 0, 2, MB), (0.0, 1, 2, MB)])
    # Both begin at 0.4 s, with latencies of 0.2 and 0.4 s: two thirds and one third, then the rest alone.
    assert seen == [(pytest.approx(0.4 + 1.5), 0), (pytest.approx(0.4 + 2.0), 1)]
    assert network.transfers_s([(0, 2), (1, 2)], MB) == pytest.approx([1.6, 2.2])
