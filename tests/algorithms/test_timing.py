"""Virtual times equal closed forms in deterministic worlds; speed-ups equal those that the A(DP)^2SGD paper expects."""

import heapq
import math

import numpy as np
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


def nth_of(periods, n):
    """Return when the n-th of the ticks at i * period_k (k = 0.., i = 1..) happens."""
    heap = [(period, period) for period in periods]
    heapq.heapify(heap)
    for _ in range(n - 1):
        at, period = heap[0]
        heapq.heapreplace(heap, (at + period, period))
    return heap[0][0]


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


@rules
@links
@pytest.mark.parametrize("pairing", ["senders", "everyone"])
def test_adpsgd_by_messages_overlaps_the_exchange_with_the_gradient(rule, link, pairing):
    world = world_of(rule, link, topology="ring" if pairing == "senders" else "complete")
    starts = [k % 2 == 0 for k in range(8)] if pairing == "senders" else [True] * 8
    updates = 150
    algorithm, rows = run_without_numbers(
        "adpsgd", world, training=TRAINING, updates=updates, exchange="messages", pairing=pairing
    )
    exchange = 2 * transfer_seconds(link)
    computing = batch_seconds(rule)
    periods = [max(c, exchange) if s else c for c, s in zip(computing, starts, strict=True)]
    if pairing == "everyone" and LINKS[link].bandwidth:
        # A request and an answer may queue for one link, and two requests that cross are one exchange.
        crossing = [max(c, exchange / 2) for c in computing]
        assert nth_of(crossing, updates) * (1 - 1e-12) <= world.clock.now <= nth_of(periods, updates) + exchange
        return
    assert world.clock.now == pytest.approx(nth_of(periods, updates), rel=1e-12)
    for k in range(8):
        made = sum(row[1] == k for row in rows)
        assert algorithm.times.communicated_s(k) == pytest.approx(made * (periods[k] - computing[k]), abs=1e-12)


def rate(kind, num_clients, slowdowns, horizon, **options):
    """Return the updates per virtual second, in units of 1 / (seconds of a batch)."""
    world = make_world(num_clients, slowdowns=slowdowns, seconds_per_example=SECONDS)
    training = make_training([64] * num_clients, batch_size=BATCH)
    algorithm, _ = run_without_numbers(
        kind, world, training=training, until=(horizon + 0.01) * BATCH * SECONDS, **options
    )
    return algorithm.updates / horizon


@pytest.mark.parametrize("exchange", ["atomic", "messages"])
def test_adpsgd_is_faster_than_sync_with_a_slow_learner(exchange):
    """One learner is slower by 10, or by 2 one that is drawn for each batch."""
    count, horizon = 16, 500
    sync, adpsgd = (
        rate(kind, count, [Slowdown(10.0, frozenset({1}))], horizon, **options)
        for kind, options in (("sync_sgd", {}), ("adpsgd", {"exchange": exchange}))
    )
    assert adpsgd / sync == pytest.approx((count - 1 + 1 / 10) * 10 / count, rel=0.01)
    drawn = [Slowdown(2.0, random=1)]
    sync, adpsgd = rate("sync_sgd", count, drawn, horizon), rate("adpsgd", count, drawn, horizon, exchange=exchange)
    spread = 5 * math.sqrt(horizon / count) / horizon  # of the number of slow batches of a client
    assert sync == pytest.approx(count / 2)
    assert adpsgd / sync == pytest.approx(2 / (1 + 1 / count), rel=spread + 2 / horizon)


def test_neighbors_are_chosen_uniformly():
    world = make_world(8, topology="complete", seconds_per_example=SECONDS)
    _, rows = run_without_numbers("adpsgd", world, training=TRAINING, updates=8 * 3500)
    counts = np.zeros((8, 8))
    for row in rows:
        counts[row[1], row[2]] += 1
    assert not counts.diagonal().any()
    others = counts[~np.eye(8, dtype=bool)]
    chi_square = ((others - 500) ** 2 / 500).sum()
    assert chi_square < 48 + 5 * math.sqrt(2 * 48)
