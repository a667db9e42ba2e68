"""All-reduces: every client ends with the sum of all vectors, after the expected time."""

import math

import numpy as np
import pytest

from simfl.world.collectives import (
    ALL_GATHERS,
    ALL_REDUCES,
    equal_seconds,
    fastest,
    lockstep_seconds,
    messages,
    pairs_of,
    seconds,
    sent,
)

LATENCY, BANDWIDTH, SIZE = 1e-3, 1e6, 48_000
real = pytest.mark.parametrize("name", ["ring", "halving", "doubling"])
counts = pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 8, 12, 16])


def travel_s(size):
    return LATENCY + size / BANDWIDTH


@real
@counts
@pytest.mark.parametrize("plans", [ALL_REDUCES, ALL_GATHERS], ids=["reduce", "gather"])
def test_every_node_receives_every_vector(name, count, plans):
    """In each step, a node receives all vectors that its partner had before the step."""
    heard = [{k} for k in range(count)]
    for step in plans[name](count, SIZE):
        for _ in range(step.times):
            before = [set(one) for one in heard]
            for source, target in pairs_of(step):
                heard[target] |= before[source]
    assert all(one == set(range(count)) for one in heard)


def each_s(step):
    return np.full(len(step.sources), travel_s(step.size))


@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_times_on_equal_links_are_the_closed_forms(count):
    lg, once = math.log2(count), 2 * (count - 1) / count * SIZE / BANDWIDTH
    expected = {
        "ring": 2 * (count - 1) * LATENCY + once,
        "halving": 2 * lg * LATENCY + once,
        "doubling": lg * travel_s(SIZE),
        "ideal": LATENCY + once,
    }
    for name, time in expected.items():
        plan = ALL_REDUCES[name](count, SIZE)
        assert equal_seconds(plan, each_s) == pytest.approx(time)
        assert seconds(plan, count, each_s) == pytest.approx(time)


@pytest.mark.parametrize("plans", [ALL_REDUCES, ALL_GATHERS], ids=["reduce", "gather"])
def test_in_lockstep_the_duration_is_that_of_all_nodes_to_the_last_bit(plans):
    draw = np.random.default_rng(0).lognormal
    for name, build in plans.items():
        for count in range(2, 70):
            plan = build(count, SIZE)
            if any(len(step.sources) < count for step in plan):
                continue
            times = {id(step): np.full(len(step.sources), draw()) for step in plan}
            travel = lambda step, times=times: times[id(step)]  # noqa: E731
            assert lockstep_seconds(plan, travel) == seconds(plan, count, travel), (name, count)


@counts
def test_an_all_gather_sends_each_vector_to_each_node_once(count):
    steps = {"ring": count - 1, "halving": math.ceil(math.log2(count)), "ideal": 1}
    steps["doubling"] = steps["halving"]
    for name, build in ALL_GATHERS.items():
        plan = build(count, SIZE)
        assert sum(size * times for _, size, times in sent(plan)) == count * (count - 1) * SIZE
        time = steps[name] * LATENCY + (count - 1) * SIZE / BANDWIDTH
        assert equal_seconds(plan, each_s) == pytest.approx(time)
        assert seconds(plan, count, each_s) == pytest.approx(time)
    assert fastest(count, SIZE, each_s, ALL_GATHERS) == "doubling"


@real
@pytest.mark.parametrize("count", [3, 6, 12])
def test_other_counts_than_powers_of_two_cost_two_more_vectors_except_on_a_ring(name, count):
    power = 2 ** int(math.log2(count))
    more = 0.0 if name == "ring" else 2 * travel_s(SIZE)
    whole = count if name == "ring" else power
    lg = math.log2(power)
    steps = {"ring": 2 * (count - 1), "halving": 2 * lg, "doubling": lg}[name]
    size = lg * SIZE if name == "doubling" else 2 * (whole - 1) / whole * SIZE
    time = equal_seconds(ALL_REDUCES[name](count, SIZE), each_s)
    assert time == pytest.approx(more + steps * LATENCY + size / BANDWIDTH)


@counts
def test_messages_of_nodes_add_up_to_those_of_the_plan(count):
    for name, build in ALL_REDUCES.items():
        plan = build(count, SIZE)
        assert sum(times for _, _, times in sent(plan)) == messages(plan)
        if name in ("ring", "ideal"):
            assert sum(size * times for _, size, times in sent(plan)) == pytest.approx(2 * (count - 1) * SIZE, rel=1e-3)


@pytest.mark.parametrize(("count", "size", "name"), [(8, 100, "doubling"), (8, 10**6, "halving"), (7, 10**8, "ring")])
def test_the_fastest_follows_the_size(count, size, name):
    assert fastest(count, size, each_s) == name


def test_a_ring_waits_for_its_slow_link_twice():
    def travel(i, j, part):
        return 10.0 if {i, j} == {0, 1} else 1.0

    ring = ALL_REDUCES["ring"](4, 4)
    times = {id(step): np.array([travel(i, j, step.size) for i, j in pairs_of(step)]) for step in ring}
    assert seconds(ring, 4, lambda step: times[id(step)]) == pytest.approx(10.0 * 2 + 4)
