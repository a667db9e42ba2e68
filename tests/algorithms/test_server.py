"""Algorithms with a server in worlds drawn by hypothesis: bounds hold, counts add up, and there is no deadlock."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.algorithms.staleness import StalenessBound
from simfl.world import ServerModel
from simfl.world.links import LinkModel
from tests.algorithms.test_contract import absence, departure
from tests.helpers import exponential, lognormal, make_world, run_without_numbers

ROUGH_LINKS = LinkModel(latency=exponential(4e-3), bandwidth=1e5, loss=0.3, resend_timeout_s=0.02, uplink=1e5)
outage, leaves = absence(3), departure(3)


@st.composite
def rough_worlds(draw, num_clients):
    """Draw a world with slow clients, losses, overtaking, crashes and departures, without new faults after 3 s."""
    outages = {k: draw(st.lists(outage, max_size=2)) for k in range(num_clients)}
    for k in range(1, num_clients):
        if draw(st.integers(0, 4)) == 0:
            outages[k].append(draw(leaves))
    world = make_world(
        num_clients,
        topology="complete",
        speeds=[draw(st.sampled_from([0.3, 1.0, 4.0])) for _ in range(num_clients)],
        jitter=lognormal(0.4),
        links=draw(st.sampled_from([LinkModel(), ROUGH_LINKS, replace(ROUGH_LINKS, fifo=True)])),
        outages={k: rules for k, rules in outages.items() if rules},
        seed=draw(st.integers(0, 99)),
    )
    world.server = ServerModel(seconds_per_update=draw(st.sampled_from([0.0, 1e-3])))
    return world


class Watch:
    """Records what a server algorithm sends, applies and drops."""

    def __init__(self, algorithm):
        self.algorithm = algorithm
        self.sent = [0] * algorithm.num_clients
        push = algorithm.push

        def counted(me, gradient, read):
            self.sent[me] += 1
            return push(me, gradient, read)

        algorithm.push = counted


def run(world, until=6.0, **options):
    watches = []
    algorithm, rows = run_without_numbers(
        "async_sgd", world, until=until, prepare=lambda a: watches.append(Watch(a)), **options
    )
    return algorithm, rows, watches[0]


bounds = st.builds(StalenessBound, st.integers(0, 6), st.sampled_from(["wait", "drop", "down_weight"]))


@pytest.mark.slow
@settings(max_examples=30, deadline=None, derandomize=True)
@given(world=rough_worlds(5), bound=st.none() | bounds)
def test_the_bound_holds_counts_add_up_and_no_client_waits_forever(world, bound):
    algorithm, rows, watch = run(world, staleness=bound)
    staleness = np.array([row[4] for row in rows])
    assert (staleness >= 0).all()
    if bound is not None and bound.policy != "down_weight":
        assert staleness.max() <= bound.bound
    # Every update is applied once, dropped, or still in flight: at most one for each client.
    for k in range(5):
        done = algorithm.client_updates[k] + algorithm.client_dropped[k]
        assert 0 <= watch.sent[k] - done <= 1
        assert algorithm.client_updates[k] == sum(row[1] == k for row in rows)
        assert algorithm.releases.counts[k] == watch.sent[k]
    if bound is None or bound.policy != "drop":
        assert sum(algorithm.client_dropped) == 0
    assert algorithm.version == algorithm.updates == len(rows)
    # From 3 s on there are no faults: the server continues, and so does every client whose updates are not dropped.
    assert sum(row[0] > 4.0 for row in rows) > 20
    if bound is None or bound.policy != "drop":
        for k in range(5):
            if not world.availability.gone(k, 6.0):
                assert any(row[0] > 4.0 and row[1] == k for row in rows), f"client {k} is stuck"


@settings(max_examples=20, deadline=None, derandomize=True)
@given(world=rough_worlds(4))
def test_clients_that_take_turns_are_served_in_order(world):
    algorithm, rows, _ = run(world, delays="cyclic")
    there = [k for k in range(4) if not world.availability.gone(k, 6.0)]
    late = [row[1] for row in rows if row[0] > 4.5]
    assert len(late) > 10
    for before, after in itertools.pairwise(late):
        assert after == there[(there.index(before) + 1) % len(there)]
    assert all(row[4] == len(there) - 1 for row in rows if row[0] > 4.5)
    assert algorithm.updates == len(rows)


def test_dropped_updates_are_counted_and_released():
    world = make_world(4, speeds=[1.0, 1.0, 1.0, 9.5])
    algorithm, rows = run_without_numbers("async_sgd", world, updates=200, staleness=StalenessBound(5, "drop"))
    assert algorithm.client_dropped[3] > 3
    assert algorithm.client_updates[3] == 0
    assert algorithm.releases.counts[3] == algorithm.client_dropped[3], "the server saw them"
    assert max(row[4] for row in rows) <= 5
