"""Every algorithm: a client does one thing at a time, also where messages arrive in bursts."""

import dataclasses

import pytest

from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.algorithms.test_contract import EVERY
from tests.algorithms.test_secure_sums import PROTOCOLS
from tests.helpers import exponential, lognormal, make_training, make_world, run_without_numbers
from tests.papers.without_replacement import test_passing

#: Links that keep their order: a message that is sent again holds back those after it, and they arrive together.
ORDERED = LinkModel(latency=exponential(5e-3), loss=0.3, resend_timeout_s=0.05, fifo=True)
#: Rounds that are short beside the latency, so that several of them reach a client together.
BUSY = [("plexus", {"sample": 3, "success": 0.34}), ("teleportation", {"active": 8, "graph": "complete"})]


class Intervals:
    """An observer that keeps each client's last computation, (start, end), and rejects one that begins in another."""

    def __init__(self, algorithm):
        self.clock, self.open = algorithm.clock, [(0.0, 0.0)] * algorithm.num_clients
        algorithm.times.observer = self

    def computes(self, client, until, lost):
        _, end = self.open[client]
        assert end <= self.clock.now + 1e-12, f"client {client} computes until {end}, and again from {self.clock.now}"
        self.open[client] = self.clock.now, until

    def stopped(self, client):
        start, end = self.open[client]
        assert start <= self.clock.now <= end, f"client {client} stops a computation that is not under way"
        self.open[client] = start, self.clock.now

    def communicated(self, client, seconds):
        """Messages may come while a client computes."""


@pytest.mark.parametrize(
    ("kind", "options"), [*EVERY, *BUSY], ids=["-".join([kind, *map(str, o.values())]) for kind, o in [*EVERY, *BUSY]]
)
def test_no_client_computes_two_things_at_once(kind, options):
    for seed in range(2):
        outages = {1: [Outage(0.2, 0.3)], 2: [Outage(0.1, 0.4, crash=True)], 3: [Outage(0.5, float("inf"), crash=True)]}
        world = make_world(6, topology="complete", jitter=lognormal(0.5), links=ORDERED, outages=outages, seed=seed)
        algorithm, rows = run_without_numbers(kind, world, until=1.0, prepare=Intervals, **options)
        assert rows
        for client in range(6):
            assert algorithm.times.computed_s(client) <= algorithm.times.present_s(client, 0.0, 1.0) + 1e-9


@test_passing.every
def test_a_node_works_on_one_of_the_models_that_came(kind, options):
    training = dataclasses.replace(make_training([200] * 6), tasks=4)
    world = make_world(6, topology="complete", jitter=lognormal(0.5), links=ORDERED)
    _, rows = run_without_numbers(kind, world, training=training, prepare=Intervals, until=1.0, **options)
    assert rows


@pytest.mark.parametrize(("kind", "protocol"), [("fedavg", name) for name in PROTOCOLS] + [("fedbuff", "lightsecagg")])
def test_a_client_makes_no_mask_while_it_trains(kind, protocol):
    training = dataclasses.replace(make_training([64] * 6), secure_sum=PROTOCOLS[protocol])
    world = make_world(6, jitter=lognormal(0.5), links=ORDERED)
    options = {"buffer_size": 4, "after_update": "wait"} if kind == "fedbuff" else {}
    _, rows = run_without_numbers(kind, world, training=training, prepare=Intervals, until=2.0, **options)
    assert rows
