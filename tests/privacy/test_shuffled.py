"""How often an example is in the releases of shuffled data, against all places that it may have."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.privacy.pure import composed_epsilon
from simfl.privacy.shuffled import KnownUses, Passes, planned_uses


def worst(n, intervals):
    """Look at every place in every epoch; return (largest sum of squares, all multiplicities that occur)."""
    stop = max(start + size for start, size in intervals)
    taken = {at: which for which, (start, size) in enumerate(intervals) for at in range(start, start + size)}
    uses = set()
    for places in itertools.product(range(n), repeat=-(-stop // n)):
        held = Counter(taken.get(epoch * n + place, -1) for epoch, place in enumerate(places))
        held.pop(-1, None)
        uses.add(tuple(sorted(held.values(), reverse=True)))
    return max(sum(m * m for m in each) for each in uses), uses


@st.composite
def released(draw):
    """Disjoint intervals of a stream of epochs of n examples, in any order."""
    n = draw(st.integers(1, 4))
    at, intervals = 0, []
    for gap, size in draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=6)):
        if at + gap + size > 6 * n:
            break
        intervals.append((at + gap, size))
        at += gap + size
    return n, draw(st.permutations(intervals or [(0, n)]))


@settings(max_examples=150, deadline=None)
@given(released())
def test_the_cost_is_that_of_the_worst_example(case):
    n, intervals = case
    passes = Passes(n)
    for start, size in intervals:
        assert passes.add(start, size)
        assert passes.cost >= 1
    most, uses = worst(n, intervals)
    assert passes.cost == most
    assert KnownUses(passes.copies()).cost == most
    # Additive epsilons: no placement in the releases costs more, at any delta.
    counted = [m for m, count in passes.copies(additive=True).items() for _ in range(count)]
    for delta in (1e-9, 0.01, 0.3):
        assert pure(counted, delta) >= max(pure(each, delta) for each in uses) - 1e-9


def pure(copies, delta, epsilon=0.5):
    """The smallest epsilon of randomized responses with epsilons m * 0.5, composed, by enumeration of all outcomes."""
    losses = {}
    for signs in itertools.product((1, -1), repeat=len(copies)):
        first = second = 1.0
        for sign, m in zip(signs, copies, strict=True):
            likely = 1.0 / (1.0 + 2.718281828459045 ** -(m * epsilon))
            first *= likely if sign > 0 else 1.0 - likely
            second *= 1.0 - likely if sign > 0 else likely
        losses[signs] = first, second
    low, high = 0.0, epsilon * sum(copies)
    for _ in range(60):
        middle = 0.5 * (low + high)
        hidden = sum(max(0.0, p - 2.718281828459045**middle * q) for p, q in losses.values())
        low, high = (low, middle) if hidden <= delta else (middle, high)
    return high


def test_the_oracle_of_pure_releases_agrees_with_the_closed_form():
    assert pure([1] * 5, 0.01) == pytest.approx(composed_epsilon(0.5, 5, 0.01), abs=1e-6)


def test_a_part_that_was_released_before_is_detected():
    passes = Passes(10)
    assert passes.add(20, 5)
    assert passes.add(0, 5)
    assert passes.add(5, 5)
    assert not passes.add(24, 5)
    assert not passes.add(18, 5)
    assert not passes.add(3, 1)
    assert passes.add(10, 10)
    assert not passes.add(0, 25)
    assert passes.add(25, 0), "an empty batch holds no examples"
    assert (passes.cost, passes.copies()) == (3, {1: 3})


def test_lost_batches_spread_releases_over_more_passes():
    """Every second of 22 batches was lost: 11 releases, in seven or eight passes of three batches each."""
    passes = Passes(357)
    for draw in range(0, 22, 2):
        passes.add(draw * 119, 119)
    assert passes.cost == 7
    assert planned_uses(357, {119: 11}) == {1: 4}


def test_rounds_larger_than_the_data_hold_an_example_several_times():
    """Three rounds of 1,800 of 359 examples reach over 6, 6 and 6 epochs, which share two."""
    passes = Passes(359)
    for number in range(3):
        passes.add(1800 * number, 1800)
    assert passes.copies() == {6: 2, 4: 1}
    assert passes.cost == 88
    assert passes.copies(additive=True) == {6: 3}
    assert planned_uses(10, {25: 1, 5: 4}, additive=True) == {4: 1, 2: 2, 1: 1}, "five epochs, and the long one in full"
    assert planned_uses(359, {1800: 3}) == {7: 2, 2: 1}, "a round of 1,800 may reach over seven"


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 9), st.lists(st.integers(1, 24), max_size=12), st.booleans())
def test_a_plan_costs_at_least_as_much_as_its_releases(n, sizes, additive):
    passes, at = Passes(n), 0
    for size in sizes:
        passes.add(at, size)
        at += size
    planned, copies = planned_uses(n, Counter(sizes), additive), passes.copies(additive)
    assert KnownUses(planned).cost >= KnownUses(copies).cost
    assert sum(m * count for m, count in planned.items()) >= sum(m * count for m, count in copies.items())
    if len(set(sizes)) == 1 and sizes[0] <= n:
        assert planned == copies, "exact for batches of one size"


def test_a_plan_of_many_batches_is_fast():
    """64,424,510 epochs, every third of which begins with a batch; in the others a batch crosses the border."""
    assert planned_uses(1000, {30: 2**31}) == {1: 21474836, 2: 21474837}
