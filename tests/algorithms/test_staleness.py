"""Bounds on staleness if clients apply their own updates, in worlds drawn by hypothesis."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.algorithms.staleness import StalenessBound
from simfl.world.availability import Outage
from simfl.world.cuts import Cut, Cuts
from simfl.world.links import LinkModel
from tests.algorithms.test_server import ROUGH_LINKS, bounds, leaves, outage
from tests.helpers import constant, lognormal, make_training, make_world, run_without_numbers

WAYS = [("adpsgd", {"exchange": "messages"}), ("adpsgd", {"exchange": "atomic"}), ("gossip_learning", {})]
ways = pytest.mark.parametrize(("kind", "options"), WAYS, ids=["messages", "atomic", "gossip_learning"])
APART = (frozenset({0, 1}),)
#: A partition that ends, or does not.
partitions = st.builds(lambda begin, end: Cuts([Cut(APART, begin, end)]), st.floats(0, 2), st.sampled_from([3.0, 9e9]))


@st.composite
def rough_worlds(draw, num_clients=5):
    """Draw slow clients, losses, overtaking, crashes, departures and partitions; temporary ones end by 3 s."""
    outages = {k: draw(st.lists(outage, max_size=2)) for k in range(num_clients)}
    for k in range(1, num_clients):
        if draw(st.integers(0, 4)) == 0:
            outages[k].append(draw(leaves))
    links = draw(st.sampled_from([LinkModel(), ROUGH_LINKS, replace(ROUGH_LINKS, fifo=True)]))
    cuts = draw(st.none() | partitions)
    if cuts is not None:
        links = replace(links, cuts=Cuts([replace(c, end_s=math.inf if c.end_s > 9 else c.end_s) for c in cuts._cuts]))
    return make_world(
        num_clients,
        topology=draw(st.sampled_from(["complete", "ring"])),
        speeds=[draw(st.sampled_from([0.3, 1.0, 4.0])) for _ in range(num_clients)],
        jitter=lognormal(0.4),
        links=links,
        outages={k: rules for k, rules in outages.items() if rules},
        seed=draw(st.integers(0, 99)),
    )


class Watch:
    """Records the gradients that an algorithm promises, loses and drops."""

    def __init__(self, algorithm):
        self.promised, self.lost = Counter(), Counter()
        promise, lose = algorithm.batches.gradient, algorithm.batches.lost

        def gradient(model, client):
            self.promised[client] += 1
            return promise(model, client)

        def lost(gradient):
            self.lost[gradient.client] += 1
            return lose(gradient)

        algorithm.batches.gradient, algorithm.batches.lost = gradient, lost


def run(kind, world, **options):
    watches = []
    algorithm, rows = run_without_numbers(kind, world, prepare=lambda a: watches.append(Watch(a)), **options)
    return algorithm, rows, watches[0]


@pytest.mark.slow
@ways
@settings(max_examples=15, deadline=None, derandomize=True)
@given(world=rough_worlds(), bound=bounds)
def test_the_bound_holds_counts_add_up_and_no_client_waits_forever(kind, options, world, bound):
    algorithm, rows, watch = run(kind, world, until=6.0, staleness=bound, **options)
    staleness = np.array([row[4] for row in rows])
    assert staleness.min(initial=0) >= 0
    if bound.policy != "down_weight":
        assert staleness.max(initial=0) <= bound.bound
    for k in range(5):
        # Every gradient is applied once, lost (in a crash, or dropped), or still being computed.
        done = algorithm.client_updates[k] + watch.lost[k]
        assert 0 <= watch.promised[k] - done <= 1
        assert algorithm.client_dropped[k] <= watch.lost[k]
        assert bound.policy == "drop" or not algorithm.client_dropped[k]
        assert algorithm.releases.counts[k] == algorithm.client_updates[k], "nobody sees what is dropped"
    # From 3 s on there are no faults: clients that are left continue, except those whose answer never arrives.
    waiting = {me for _, me in world.network.stuck}
    for k in range(5):
        there = {j for j in world.topology.neighbors(k) if not world.availability.gone(j, 6.0)}
        alone = not there or world.network.joined_s((k, *there), 6.0) > 6.0
        if bound.policy != "drop" and not (alone or k in waiting or world.availability.gone(k, 6.0)):
            assert any(row[0] > 4.0 and row[1] == k for row in rows), f"client {k} is stuck"


@ways
def test_a_bound_that_never_binds_changes_nothing(kind, options):
    def rows(**bound):
        world = make_world(6, jitter=lognormal(0.4), links=ROUGH_LINKS, outages={2: [Outage(0.3, 0.5, crash=True)]})
        return run_without_numbers(kind, world, updates=300, **options, **bound)[1]

    free = rows()
    assert max(row[4] for row in free) > 5
    for policy in ("wait", "drop", "down_weight"):
        assert rows(staleness=StalenessBound(10**6, policy)) == free


def test_clients_do_not_wait_for_an_answer_that_never_comes():
    """A permanent partition separates a request from its answer: the client that asked is stuck, the others are not."""
    links = LinkModel(latency=constant(0.1), cuts=Cuts([Cut((frozenset({0}),), 0.15)]))
    algorithm, rows = run_without_numbers(
        "adpsgd", make_world(4, links=links), until=5.0, staleness=StalenessBound(3, "wait")
    )
    assert algorithm.awaits(0).startswith("waits for the answer of client")
    assert algorithm.client_updates[0] == 0
    assert min(algorithm.client_updates[1:]) > 10
    assert max(row[4] for row in rows) <= 3


with_a_server = pytest.mark.parametrize(("kind", "options"), [*WAYS, ("async_sgd", {})])


@with_a_server
def test_a_spent_budget_frees_waiting_clients(kind, options):
    training = make_training([64] * 3)
    object.__setattr__(training, "allowances", [5, 1000, 1000])
    algorithm, rows = run_without_numbers(
        kind, make_world(3), updates=100, training=training, staleness=StalenessBound(1, "wait"), **options
    )
    assert (algorithm.client_updates[0], len(rows)) == (5, 100)
    assert 0 in algorithm.budgets.spent_s


@ways
def test_dropped_batches_are_handed_out_again(kind, options):
    """Every pass over shuffled data has every mini-batch, because dropped ones, which were never sent, come again."""
    world = make_world(4, topology="complete", speeds=[1.0, 1.1, 1.2, 4.5], jitter=lognormal(0.3))
    used = []

    def prepare(algorithm):
        apply = algorithm.apply

        def applied(me, gradient, peer, weight, staleness):
            if weight:
                used.append((me, gradient.draw))
            apply(me, gradient, peer, weight, staleness)

        algorithm.apply = applied

    algorithm, rows = run_without_numbers(
        kind, world, updates=400, staleness=StalenessBound(5, "drop"), prepare=prepare, **options
    )
    assert algorithm.client_dropped[3] > 10
    assert algorithm.client_updates[3] > 0
    for k in range(4):
        assert [draw for me, draw in used if me == k] == list(range(algorithm.client_updates[k]))
    assert len(rows) == len(used) == 400


@with_a_server
def test_stale_updates_take_smaller_steps(kind, options):
    world = make_world(4, topology="complete", speeds=[1.0, 1.0, 1.0, 9.5], jitter=lognormal(0.3))
    bound = StalenessBound(3, "down_weight")
    _, rows = run_without_numbers(kind, world, updates=200, staleness=bound, **options)
    assert max(row[4] for row in rows) > 10
    for row in rows:
        assert row[6] == pytest.approx(0.5 * min(1.0, 4 / (row[4] + 1)))
