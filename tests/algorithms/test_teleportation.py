"""Teleportation: an independent loop, event times, the law of its samples, and mixing that many clients do not slow."""

import numpy as np
import pytest

from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.helpers import exponential, make_world, pulled, run_without_numbers, targets

D, STEP, BATCH_S = 3, 0.1, 8e-3


def sample(world, number, k):
    """Return the active clients of a round, by index."""
    keys = world.streams.generator("sample", 0, number).random(world.num_clients)
    return np.argsort(keys).tolist()[:k]


def hops_of(graph, k, number):
    """Return the distances of an index from those that it hears."""
    return {"one_peer": [[1], [2], [4]][number % 3 if k == 8 else number % 2], "ring": [1, k - 1]}.get(
        graph, list(range(1, k))
    )


@pytest.mark.parametrize(("graph", "k"), [("one_peer", 4), ("one_peer", 8), ("ring", 5), ("complete", 3)])
def test_models_equal_those_of_a_loop(graph, k):
    count, rounds = 11, 9
    world, members = make_world(count), {}

    def watch(algorithm):
        algorithm.on_update = lambda row: members.setdefault(row[3], []).append(row[1])

    algorithm, models = pulled("teleportation", world, (rounds + 0.5) * BATCH_S, prepare=watch, active=k, graph=graph)
    pulls, x, own = targets(count, D), np.zeros((k, D)), np.zeros((count, D))
    for number in range(rounds):
        chosen = sample(world, number, k)
        assert sorted(members[number]) == sorted(chosen)
        x = x - STEP * (x - pulls[chosen])
        hears = hops_of(graph, k, number)
        x = np.array([np.mean([x[i], *(x[(i - hop) % k] for hop in hears)], axis=0) for i in range(k)])
        own[chosen] = x
    np.testing.assert_allclose(models, x, atol=1e-5)
    np.testing.assert_allclose(algorithm.tape.values(algorithm.client_models()), own, atol=1e-5)
    assert algorithm.rounds == rounds


def test_samples_are_uniform_and_do_not_depend_on_who_else_is_present():
    world = make_world(7)
    algorithm, _ = run_without_numbers("teleportation", world, updates=1, active=3)
    rounds, times = 3000, np.zeros((7, 7))
    for number in range(1, 1 + rounds):
        order = algorithm.order(number)
        times[np.arange(7), order] += 1
        algorithm._left[2] = True
        assert algorithm.order(number) == [k for k in order if k != 2]
        algorithm._left[2] = False
    assert np.abs(times / rounds - 1 / 7).max() < 5 * np.sqrt(6 / 49 / rounds)


def test_models_outlive_clients_that_leave_and_late_ones_take_part():
    rough = LinkModel(latency=exponential(2e-3), loss=0.2, resend_timeout_s=0.02)
    outages = {k: [Outage(0.1 * k, np.inf, crash=True)] for k in range(1, 5)} | {6: [Outage(0.0, 0.3)]}
    world = make_world(7, links=rough, outages=outages)
    algorithm, rows = run_without_numbers("teleportation", world, until=2.0, active=4)
    assert {row[1] for row in rows if row[0] > 1.0} == {0, 5, 6}
    assert sum(row[0] > 1.5 for row in rows) > 20
    assert len(algorithm._inbox) < 30
    assert len(algorithm._waiting) <= 4
    # All leave, and one joins later: it goes on with all models.
    outages = {0: [Outage(0.1, np.inf)], 1: [Outage(0.2, np.inf, crash=True)], 2: [Outage(0.0, 0.5)]}
    _, rows = run_without_numbers("teleportation", make_world(3, outages=outages), until=1.0)
    assert {row[1] for row in rows if row[0] > 0.5} == {2}
    assert not [row for row in rows if 0.21 < row[0] < 0.5]
