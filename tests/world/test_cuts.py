"""Partitions of the network: when nodes reach each other, and what happens to messages."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.world.availability import Outage
from simfl.world.cuts import Cut, Cuts
from tests.helpers import constant
from tests.world.test_links import MB, deliveries, make_network

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


def test_a_message_in_flight_is_lost_and_a_later_one_waits():
    network = make_network(cuts=Cuts([SPLIT]), latency=constant(2.0), resend_timeout_s=0.5)
    sends = [
        (7.0, 0, 2, 10),  # there before the partition
        (9.0, 0, 2, 10),  # lost at 10 s, sent again at 20 s
        (12.0, 0, 1, 10),  # on one side
        (15.0, 2, 0, 10),  # waits
        (21.0, 0, 2, 10),
    ]
    assert deliveries(network, sends) == [(9.0, 0), (14.0, 2), (22.0, 1), (22.0, 3), (23.0, 4)]
    assert (network.messages, network.delivered, network.lost, network.in_flight) == (6, 5, 1, 0)
    assert [traffic.messages for traffic in network.traffic[:3]] == [5, 0, 1], "an attempt that is lost counts"


def test_a_message_that_is_cut_is_sent_again_a_timeout_after_its_last_byte_has_left():
    """The sender goes on sending: it learns nothing from a partition that is over before its last byte has left."""
    short = Cut((frozenset({0}),), 10.0, 10.2)
    network = make_network(cuts=Cuts([short]), bandwidth=MB, latency=constant(0.25), resend_timeout_s=0.5)
    # Bytes leave from 9 s until 12 s, and again from 12.5 s on.
    assert deliveries(network, [(9.0, 0, 2, 3 * MB)]) == [(15.75, 0)]
    network = make_network(cuts=Cuts([short]), uplink=MB, latency=constant(0.25), resend_timeout_s=2.0)
    # The second one leaves from 11 s on, when the partition is over, the first one again from 13 s on.
    assert deliveries(network, [(9.0, 0, 2, 2 * MB), (9.5, 0, 3, MB)]) == [(12.25, 1), (15.25, 0)]


def test_a_message_that_has_left_is_sent_again_a_timeout_after_the_partition_began():
    network = make_network(
        cuts=Cuts([Cut((frozenset({0}),), 10.0, 10.2)]), bandwidth=MB, latency=constant(2.0), resend_timeout_s=0.5
    )
    assert deliveries(network, [(8.5, 0, 2, MB)]) == [(13.5, 0)]


def test_a_sender_with_refused_is_told_after_a_timeout_that_the_target_is_unreachable():
    network, seen = make_network(cuts=Cuts([SPLIT]), latency=constant(2.0), resend_timeout_s=0.5, fifo=True), []
    for time in (9.0, 12.0, 18.5):
        network.clock.call_at(
            time,
            lambda: network.send(
                0, 2, MB, lambda: seen.append("came"), lambda: seen.append(("refused", network.clock.now))
            ),
        )
    network.clock.call_at(20.0, lambda: network.send(0, 2, MB, lambda: seen.append(("came", network.clock.now))))
    network.clock.run()
    assert seen == [("refused", 10.5), ("refused", 12.5), ("refused", 19.0), ("came", 22.0)]
    assert (network.messages, network.delivered, network.lost) == (4, 1, 3)


def test_a_message_across_a_permanent_partition_is_stuck():
    network = make_network(cuts=Cuts([Cut(SPLIT.groups, 10.0)]), latency=constant(2.0))
    assert deliveries(network, [(9.0, 0, 2, 10), (11.0, 3, 1, 10)]) == []
    assert dict(network.stuck) == {(0, 2): 1, (3, 1): 1}
    assert (network.messages, network.lost, network.in_flight) == (1, 1, 0)


def test_an_offline_server_neither_sends_nor_receives():
    network = make_network(num_clients=2, outages={2: [Outage(1.0, 5.0), Outage(8.0, math.inf)]}, latency=constant(0.5))
    server = network.add_node()
    sends = [
        (0.75, 0, server, 10),
        (2.0, 1, server, 10),
        (3.0, server, 0, 10),
        (9.0, 1, server, 10),
        (9.0, server, 1, 1),
    ]
    assert deliveries(network, sends) == [(5.0, 0), (5.0, 1), (5.5, 2)]
    assert dict(network.stuck) == {(1, server): 1, (server, 1): 1}


def test_nodes_numbered_after_the_clients_are_on_the_servers_side():
    network = make_network(num_clients=2, cuts=Cuts([Cut((frozenset({2}),), 0.0, 4.0)]))
    server, aggregator = network.add_node(), network.add_node()
    assert (server, aggregator) == (2, 3)
    assert network.joined_s((server, aggregator), 1.0) == 1.0
    assert network.joined_s((0, aggregator), 1.0) == 4.0
    assert not network.free
