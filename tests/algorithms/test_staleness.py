"""Bounds on staleness if clients apply their own updates, in worlds drawn by hypothesis."""

import pytest

from simfl.algorithms.staleness import StalenessBound
from simfl.world.availability import Outage
from simfl.world.cuts import Cut, Cuts
from simfl.world.links import LinkModel
from tests.helpers import constant, exponential, lognormal, make_training, make_world, run_without_numbers

ROUGH_LINKS = LinkModel(latency=exponential(4e-3), bandwidth=1e5, loss=0.3, resend_timeout_s=0.02, uplink=1e5)
WAYS = [("adpsgd", {"exchange": "messages"}), ("adpsgd", {"exchange": "atomic"}), ("gossip_learning", {})]
ways = pytest.mark.parametrize(("kind", "options"), WAYS, ids=["messages", "atomic", "gossip_learning"])


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
