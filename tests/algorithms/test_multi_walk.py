"""Multi-Walk: an independent loop with event times, the law of its walks, one walk, and clients that leave."""

import heapq
import itertools

import numpy as np
import pytest

from simfl.world.availability import Outage
from simfl.world.compute import Draws
from simfl.world.links import LinkModel
from tests.helpers import constant, exponential, make_world, pulled, run_without_numbers, targets

D, STEP, BATCH_S, LATENCY_S = 3, 0.1, 8e-3, 2e-3
SPEEDS = [1.0, 1.37, 2.11, 0.53, 3.17, 0.71, 1.9]


def loop(world, walks, until):
    """Return (time, client) of each update, u, and the last model of each client: a heap of events in float64."""
    count, topology = world.num_clients, world.topology
    pulls, draws = targets(count, D), Draws(world.streams, "walk", lambda g, n: g.random(n))
    u, own, parted, free = np.zeros(D), np.zeros((count, D)), np.zeros((walks, D)), np.zeros(count)
    queue, order, made = [], itertools.count(), []
    for walk in range(walks):
        heapq.heappush(queue, (0.0, next(order), "arrive", walk, 0, np.zeros(D)))
    while queue and queue[0][0] < until:
        now, _, what, walk, me, x = heapq.heappop(queue)
        if what == "arrive":
            own[me] = x
            free[me] = max(now, free[me]) + BATCH_S * SPEEDS[me]
            heapq.heappush(queue, (free[me], next(order), "step", walk, me, x))
            continue
        x = x - STEP * (x - pulls[me])
        if me == 0:
            u = parted[walk] = x = u + (x - parted[walk]) / walks
        own[me] = x
        made.append((now, me))
        near = topology.neighbors(me)
        to = near[int(draws.next(walk) * len(near))]
        to = to if draws.next(walk) < len(near) / len(topology.neighbors(to)) else me
        heapq.heappush(queue, (now + LATENCY_S * (to != me), next(order), "arrive", walk, to, x))
    return made, u, own


@pytest.mark.parametrize(("topology", "walks"), [("ring", 1), ("ring", 5), ("star", 3), ("complete", 2)])
def test_models_and_times_equal_those_of_a_loop(topology, walks):
    def world():
        return make_world(7, topology=topology, speeds=SPEEDS, links=LinkModel(latency=constant(LATENCY_S)))

    rows, until = [], 1.0

    def watch(algorithm):
        algorithm.on_update = lambda row: rows.append((row[0], row[1]))

    algorithm, models = pulled("multi_walk", world(), until, prepare=watch, walks=walks)
    made, u, own = loop(world(), walks, until)
    assert [client for _, client in rows] == [client for _, client in made]
    np.testing.assert_allclose([time for time, _ in rows], [time for time, _ in made], rtol=0, atol=1e-12)
    np.testing.assert_allclose(models, [u], atol=1e-6)
    np.testing.assert_allclose(algorithm.tape.values(algorithm.client_models()), own, atol=1e-6)


def test_walks_visit_all_clients_equally_often():
    """On a star the center has all neighbors, and a walk that always moved would be there half of the time."""
    _, rows = run_without_numbers("multi_walk", make_world(5, topology="star"), updates=40_000, walks=2)
    visits = np.bincount([row[1] for row in rows], minlength=5) / len(rows)
    assert np.abs(visits - 0.2).max() < 0.03


def test_one_walk_is_never_at_two_clients():
    _, rows = run_without_numbers("multi_walk", make_world(6), updates=200, walks=1)
    assert np.diff([row[0] for row in rows]).min() == pytest.approx(BATCH_S)


def test_models_outlive_clients_that_leave_and_late_ones_take_part():
    rough = LinkModel(latency=exponential(2e-3), loss=0.2, resend_timeout_s=0.02)
    outages = {k: [Outage(0.1 * k, np.inf, crash=True)] for k in range(1, 4)} | {6: [Outage(0.0, 0.3)]}
    world = make_world(7, topology="complete", links=rough, outages=outages)
    algorithm, rows = run_without_numbers("multi_walk", world, until=3.0, walks=4)
    assert {row[1] for row in rows if row[0] > 1.0} == {0, 4, 5, 6}
    assert sum(row[0] > 2.0 for row in rows) > 100
    assert all(place in (0, 4, 5, 6) for place in algorithm.place)
    # All leave, the root too, and one joins later: it goes on with all models.
    outages = {0: [Outage(0.1, np.inf)], 1: [Outage(0.2, np.inf, crash=True)], 2: [Outage(0.0, 0.5)]}
    _, rows = run_without_numbers("multi_walk", make_world(3, outages=outages), until=1.0, walks=3)
    assert {row[1] for row in rows if row[0] > 0.5} == {2}
    assert not [row for row in rows if 0.21 < row[0] < 0.5]
