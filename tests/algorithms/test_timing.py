"""Virtual times equal closed forms in deterministic worlds; speed-ups equal those that the A(DP)^2SGD paper expects."""

import math

import pytest

from simfl.world.compute import Slowdown
from simfl.world.links import LinkModel
from tests.helpers import constant, make_training, make_world, run_without_numbers

BATCH, SECONDS = 8, 1e-3
MODEL_BYTES = 4 * 250
SPEEDS = [1.0, 1.5, 2.0, 1.0, 3.0, 1.0, 1.25, 1.0]
TRAINING = make_training([64] * 8, d=250, batch_size=BATCH)
RULES = {
    "equal speeds": ([1.0] * 8, []),
    "own speeds": (SPEEDS, []),
    "one 10x slower": ([1.0] * 8, [Slowdown(10.0, frozenset({3}))]),
    "two rules": (SPEEDS, [Slowdown(10.0, frozenset({0, 4})), Slowdown(2.0, frozenset({4}))]),
}
LINKS = {
    "free": LinkModel(),
    "latency": LinkModel(latency=constant(3e-3)),
    "both": LinkModel(latency=constant(3e-3), bandwidth=2.5e5),
    "slow": LinkModel(latency=constant(1e-3), bandwidth=2e4),
}
rules = pytest.mark.parametrize("rule", RULES)
links = pytest.mark.parametrize("link", LINKS)


def batch_seconds(rule):
    """Return every client's seconds per mini-batch in closed form."""
    speeds, slowdowns = RULES[rule]
    factors = [math.prod(s.factor for s in slowdowns if k in s.clients) for k in range(8)]
    return [BATCH * SECONDS * speed * factor for speed, factor in zip(speeds, factors, strict=True)]


def transfer_seconds(link, size=MODEL_BYTES):
    model = LINKS[link]
    latency = float(model.latency(None, 1)[0]) if model.latency else 0.0
    return latency + (size / model.bandwidth if model.bandwidth else 0.0)


def world_of(rule, link="free", topology="ring"):
    speeds, slowdowns = RULES[rule]
    return make_world(
        8, topology=topology, speeds=speeds, slowdowns=slowdowns, links=LINKS[link], seconds_per_example=SECONDS
    )


@rules
@links
@pytest.mark.parametrize("steps", ["ideal", "ring", "halving", "doubling"])
def test_sync_waits_for_the_slowest_and_then_all_reduces(rule, link, steps):
    updates = 200
    world = world_of(rule, link)
    algorithm, rows = run_without_numbers("sync_sgd", world, training=TRAINING, updates=updates, all_reduce=steps)
    times, size = {"ideal": (1, 1750), "ring": (14, 125), "halving": (6, 1750 / 6), "doubling": (3, 1000)}[steps]
    all_reduce = times * transfer_seconds(link, size)
    iteration = max(batch_seconds(rule)) + all_reduce
    assert world.clock.now == pytest.approx(updates / 8 * iteration, rel=1e-12)
    assert [row[0] for row in rows] == pytest.approx([(1 + i // 8) * iteration for i in range(updates)], rel=1e-12)
    assert world.network.bytes_sent == pytest.approx(updates * times * size)
    assert world.network.messages == updates * times == world.network.delivered
    iterations = updates // 8
    for k, seconds in enumerate(batch_seconds(rule)):
        spent = algorithm.times
        assert spent.computed_s(k) == pytest.approx(iterations * seconds)
        assert spent.waited_s(k) == pytest.approx(iterations * (max(batch_seconds(rule)) - seconds), abs=1e-12)
        assert spent.communicated_s(k) == pytest.approx(iterations * all_reduce)
        total = spent.computed_s(k) + spent.waited_s(k) + spent.communicated_s(k)
        assert total == pytest.approx(world.clock.now, rel=1e-12)
