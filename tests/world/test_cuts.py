"""Partitions of the network: when nodes reach each other, and what happens to messages."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.world.cuts import Cut, Cuts
from tests.helpers import constant
from tests.world.test_links import deliveries, make_network

SPLIT = Cut((frozenset({0, 1}),), 10.0, 20.0)  # against all others
times = st.integers(0, 20).map(float)
cuts = st.builds(
    lambda group, begin, length: Cut((frozenset(group),), begin, begin + length),
    st.sets(st.integers(0, 4), min_size=1),
    times,
    times | st.just(math.inf),
)


def test_nodes_in_none_of_the_groups_form_one_more_group():
    cut = Cut((frozenset({0, 1}), frozenset({2})))
    assert cut.separates([0, 2])
    assert not cut.separates([3, 4])
    assert not cut.separates([3])
    assert not cut.separates([])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(drawn_cuts=st.lists(cuts, max_size=4), one=st.integers(0, 4), other=st.integers(0, 4), begin=times, length=times)
def test_cuts_agree_with_looking_at_every_moment(drawn_cuts, one, other, begin, length):
    all_cuts, pair = Cuts(drawn_cuts), (one, other)

    def apart(time):
        return any(cut.start_s <= time < cut.end_s and cut.separates(pair) for cut in drawn_cuts)

    joined_s = all_cuts.joined_s(pair, begin)
    moments = np.arange(begin, 200.0, 0.5)
    assert joined_s == next((time for time in moments if not apart(time)), math.inf)
    hit = all_cuts.hit(pair, begin, begin + length)
    assert (hit is not None) == any(map(apart, np.arange(begin, begin + length + 0.25, 0.5)))
    assert hit is None or hit.separates(pair)


def test_a_message_across_a_permanent_partition_is_stuck():
    network = make_network(cuts=Cuts([Cut(SPLIT.groups, 10.0)]), latency=constant(2.0))
    assert deliveries(network, [(9.0, 0, 2, 10), (11.0, 3, 1, 10)]) == []
    assert dict(network.stuck) == {(0, 2): 1, (3, 1): 1}
    assert (network.messages, network.lost, network.in_flight) == (1, 1, 0)


def test_nodes_numbered_after_the_clients_are_on_the_servers_side():
    network = make_network(num_clients=2, cuts=Cuts([Cut((frozenset({2}),), 0.0, 4.0)]))
    server, aggregator = network.add_node(), network.add_node()
    assert (server, aggregator) == (2, 3)
    assert network.joined_s((server, aggregator), 1.0) == 1.0
    assert network.joined_s((0, aggregator), 1.0) == 4.0
    assert not network.free
