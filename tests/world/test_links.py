import numpy as np
import pytest

from simfl.streams import Streams
from simfl.world import Availability, Clock, Network
from simfl.world.availability import Outage
from simfl.world.link_values import LinkModel, Rule, Value
from simfl.world.steps import Changing
from tests.helpers import constant

MB = 1_000_000


def make_network(num_clients=8, seed=0, outages=None, rows=None, **links):
    clock = Clock()
    streams = Streams(seed)
    on_delivery = None if rows is None else rows.append
    availability = Availability(streams, outages)
    return Network(clock, LinkModel(**links), num_clients, streams, availability, on_delivery)


def deliveries(network, sends):
    """Send (time, source, target, size) and return (time, index) of every delivery in order."""
    seen = []
    for index, (time, source, target, size) in enumerate(sends):

        def send(index=index, source=source, target=target, size=size):
            network.send(source, target, size, lambda: seen.append((network.clock.now, index)))

        network.clock.call_at(time, send)
    network.clock.run()
    return seen


@pytest.mark.parametrize(
    ("links", "seconds"),
    [
        ({}, 0.0),
        ({"bandwidth": MB, "latency": constant(0.25)}, 2.25),
        ({"bandwidth": 4 * MB, "uplink": 2 * MB, "latency": constant(0.25)}, 1.25),
        ({"uplink": MB}, 2.0),
        ({"bandwidth": 4 * MB, "downlink": MB}, 2.0),
    ],
)
def test_a_transfer_is_paced_by_the_slowest_part_of_the_way(links, seconds):
    network = make_network(**links)
    assert network.transfers_s([(0, 1)], 2 * MB)[0] == pytest.approx(seconds)
    assert (network.bytes_sent, network.messages) == (2 * MB, 1)


def test_a_transfer_includes_the_time_of_lost_attempts():
    network = make_network(bandwidth=MB, latency=constant(0.5), loss=0.4, resend_timeout_s=2.0)
    for _ in range(300):
        before = network.messages
        seconds = network.transfers_s([(0, 1)], MB)[0]
        resends = network.messages - before - 1
        assert seconds == pytest.approx(1.0 + 0.5 + resends * (1.0 + 2.0))
    assert network.messages - 300 == pytest.approx(300 * 0.4 / 0.6, abs=5 * np.sqrt(300 * 0.4) / 0.6)
    assert network.bytes_sent == MB * network.messages


class Bursts(Changing, Value):
    """Gilbert and Elliott's links: in a bad state nothing gets through, and states last for some attempts."""

    def __init__(self, into, out_of, uniform):
        self.into, self.out_of, self.uniform, self.bad = into, out_of, uniform, False

    def resolve(self, values, quantity, rule, source, target):
        return self

    def at(self, time, source=0):
        self.bad = self.uniform() >= self.out_of if self.bad else self.uniform() < self.into
        return float(self.bad)


def test_a_kind_of_value_is_a_class_of_its_own():
    losses = Rule({"loss": Bursts(0.1, 0.25, np.random.default_rng(0).random)})
    network = make_network(2, resend_timeout_s=1.0, rules=(losses,))
    assert not network.free
    seconds = [network.transfers_s([(0, 1)], MB)[0] for _ in range(4000)]
    again = np.array(seconds)  # resends, one second each
    assert (again > 0).mean() == pytest.approx(0.1, abs=0.015)
    assert again[again > 0].mean() == pytest.approx(4.0, rel=0.1), "a bad state lasts for 1 / out_of attempts"
    arrived = []
    network.send(0, 1, MB, lambda: arrived.append(network.clock.now))
    network.clock.run(None)
    assert network.messages - 4000 - again.sum() == 1 + arrived[0]


@pytest.mark.parametrize(
    ("links", "free"),
    [
        ({}, True),
        ({"fifo": True}, True),
        ({"latency": constant(0.1)}, False),
        ({"bandwidth": MB}, False),
        ({"uplink": MB}, False),
        ({"downlink": MB}, False),
        ({"loss": 0.1}, False),
    ],
)
def test_a_network_is_free_if_messages_take_no_time(links, free):
    assert make_network(**links).free == free


def test_a_network_with_an_offline_client_is_not_free():
    availability = Availability(Streams(0), {0: [Outage(1.0, 2.0)]})
    assert not Network(Clock(), LinkModel(), 2, Streams(0), availability).free


def test_messages_that_are_counted_together_are_those_counted_one_by_one():
    one, other = (make_network(3, overhead=7) for _ in range(2))
    for node in (0, 2):
        one.count(node, 100)
    one.count(2, 50, 3)
    other.swap(0, 2, 100)
    other.count_all([1, 2], [(1, 50, 3)])
    assert one.traffic == other.traffic == [(107, 1), (0, 0), (107 + 3 * 57, 4)]
    assert one.delivered == other.delivered == 5
