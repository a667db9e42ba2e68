"""Epidemic Learning: an independent loop, the law of its draws, event times, and rounds ahead of D-PSGD."""

import numpy as np
import pytest

from simfl.world.availability import Outage
from simfl.world.changing import random_receivers
from simfl.world.links import LinkModel
from tests.helpers import constant, exponential, lognormal, make_world, pulled, run_without_numbers, targets

D, STEP, BATCH_S = 3, 0.1, 8e-3


def after(kind, count, rounds, *, seed=1, topology="ring", **options):
    """Return the models after a number of rounds at equal speeds, f64 [count, D]."""
    world = make_world(count, topology=topology, seed=seed)
    return pulled(kind, world, (rounds + 0.5) * BATCH_S, models=np.zeros((count, D)), **options)[1]


@pytest.mark.parametrize("graph", ["local", "oracle"])
def test_models_equal_those_of_a_loop_over_the_draws(graph):
    count, rounds, drawn = 7, 12, {}

    def watch(algorithm):
        original = algorithm.drawn
        algorithm.drawn = lambda number: drawn.setdefault(number, original(number))

    models = after("epidemic", count, rounds, graph=graph, peers=2, prepare=watch)
    x, pulls = np.zeros((count, D)), targets(count, D)
    for number in range(rounds):
        x = x - STEP * (x - pulls)
        heard = [[j for j in range(count) if i in drawn[number][0][j]] for i in range(count)]
        x = np.array([np.mean([x[i], *(x[j] for j in heard[i])], axis=0) for i in range(count)])
    np.testing.assert_allclose(models, x, atol=1e-5)
    assert len({str(one) for one in drawn.values()}) > rounds / 2, "drawn again in every round"


def test_receivers_are_uniform_and_independent_or_a_regular_graph():
    generator, count, rounds, s = np.random.default_rng(0), 9, 4000, 3
    times, heard = np.zeros((count, count)), []
    for _ in range(rounds):
        receivers = random_receivers(count, s, generator)
        assert all(len(set(own)) == s and k not in own for k, own in enumerate(receivers))
        for k, own in enumerate(receivers):
            times[k, own] += 1
        heard += np.bincount(np.concatenate(receivers), minlength=count).tolist()
    each = s / (count - 1)
    others = times[~np.eye(count, dtype=bool)]
    assert np.abs(others / rounds - each).max() < 5 * np.sqrt(each * (1 - each) / rounds)
    assert np.var(heard) == pytest.approx((count - 1) * each * (1 - each), rel=0.05), "binomial: clients draw alone"
    for size, degree in ((8, 3), (9, 2), (9, 4)):
        graph = random_receivers(size, degree, generator, regular=True)
        assert all(len(own) == degree for own in graph)
        assert all(k in graph[j] for k, own in enumerate(graph) for j in own)
    assert {len(own) for own in random_receivers(7, 3, generator, regular=True)} == {4}, "3 x 7 is odd"
    assert (
        random_receivers(3, 5, generator, regular=True) == random_receivers(3, 2, generator) == [[1, 2], [0, 2], [0, 1]]
    )
    assert random_receivers(1, 2, generator) == [[]]


def test_a_round_ends_when_the_models_of_its_senders_are_there():
    """Times of all updates equal a loop over rounds, with random computing times and one latency."""
    count, latency, durations = 6, 3e-3, {k: [] for k in range(6)}
    world = make_world(count, jitter=lognormal(0.5), links=LinkModel(latency=constant(latency)))
    original = world.compute.duration

    def duration(client, examples, now):
        durations[client].append(original(client, examples, now))
        return durations[client][-1]

    world.compute.duration = duration
    algorithm, rows = run_without_numbers("epidemic", world, updates=300, peers=2)
    begun, ends = np.zeros(count), {}
    for number in range(40):
        done = np.array([begun[k] + durations[k][number] for k in range(count)])
        ends |= {(number, k): done[k] for k in range(count)}
        generator = world.streams.generator("epidemic", 0, number)
        receivers = random_receivers(count, 2, generator)
        arrivals = [[done[j] + latency for j in range(count) if k in receivers[j]] for k in range(count)]
        begun = np.array([max([done[k], *arrivals[k]]) for k in range(count)])
    for row in rows:
        if row[3] < 40:
            assert row[0] == pytest.approx(ends[row[3], row[1]])
    assert algorithm.peers == 2
    assert world.network.bytes_sent == 2 * 4 * 4 * 300


def test_a_crash_delays_and_a_client_that_left_is_not_drawn():
    rough = LinkModel(latency=exponential(2e-3), loss=0.2, resend_timeout_s=0.02)
    outages = {1: [Outage(0.2, 0.4, crash=True)], 4: [Outage(0.3, np.inf, crash=True)], 2: [Outage(0.0, 0.5)]}
    for graph in ("local", "oracle"):
        world = make_world(5, links=rough, outages=outages)
        algorithm, rows = run_without_numbers("epidemic", world, until=2.0, graph=graph, peers=2)
        assert 4 not in algorithm.drawn(algorithm.rounds)[0]
        assert 2 in algorithm.drawn(algorithm.rounds)[0]
        assert {row[1] for row in rows if row[0] > 1.8} == {0, 1, 2, 3}
        assert all(len(inbox) < 10 for inbox in algorithm._inbox)
