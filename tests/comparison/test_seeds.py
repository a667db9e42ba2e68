"""Crossed seeds: intervals and components of variance hold as often as they say."""

import math

import numpy as np
import pytest
from scipy import stats

from simfl.comparison.intervals import components, crossed, half_widths
from simfl.records.seeds import Crossed, seed_of


def made(generator, worlds, learnings, spreads, count=1):
    """Values of y = mu + a + b + e, [W, L, count]."""
    shapes = (worlds, 1, count), (1, learnings, count), (worlds, learnings, count)
    a, b, e = map(generator.standard_normal, shapes)
    return 5.0 + spreads[0] * a + spreads[1] * b + spreads[2] * e


def flat(table):
    seeds = [Crossed(w, 10 + k) for w in range(table.shape[0]) for k in range(table.shape[1])]
    return seeds, table.reshape(len(seeds), *table.shape[2:])


def test_a_seed_is_a_number_or_two():
    assert seed_of(3) == 3
    assert seed_of(3, 0) == Crossed(3, 0)
    assert str(seed_of(3, 0)) == "3/0"


def test_runs_of_plain_seeds_have_the_interval_of_students_t():
    values = np.array([0.91, 0.94, 0.90, 0.95, 0.93])
    assert crossed(range(5), values) is None
    assert half_widths(range(5), values) == pytest.approx(stats.t.ppf(0.975, 4) * stats.sem(values))
    assert np.isnan(half_widths([1], values[:1]))


def test_one_world_or_one_learning_seed_is_a_row_of_independent_runs():
    values = np.array([0.91, 0.94, 0.90])
    for seeds in ([Crossed(0, k) for k in range(3)], [Crossed(k, 0) for k in range(3)]):
        assert half_widths(seeds, values) == half_widths(range(3), values)
        assert components(dict(zip(seeds, values, strict=True))) is None


def test_components_are_those_of_sums_of_squares_in_plain_loops():
    table = np.random.default_rng(1).normal(size=(3, 4))
    mean = table.mean()
    square_w = sum(4 * (table[w].mean() - mean) ** 2 for w in range(3)) / 2
    square_l = sum(3 * (table[:, k].mean() - mean) ** 2 for k in range(4)) / 3
    rest = sum((table[w, k] - table[w].mean() - table[:, k].mean() + mean) ** 2 for w in range(3) for k in range(4)) / 6
    seeds, values = flat(table)
    parts = components(dict(zip(seeds, values, strict=True)))
    assert parts["residual"].value == pytest.approx(math.sqrt(rest))
    assert parts["world"].value == pytest.approx(math.sqrt(max(0.0, square_w - rest) / 4))
    assert parts["learning"].value == pytest.approx(math.sqrt(max(0.0, square_l - rest) / 3))
    low, high = (6 * rest / stats.chi2.ppf(q, 6) for q in (0.975, 0.025))
    assert (parts["residual"].low, parts["residual"].high) == pytest.approx((math.sqrt(low), math.sqrt(high)))


def test_effects_without_a_residual_are_found_exactly():
    table = np.array([0.0, 2.0])[:, None] + np.array([0.0, 3.0, 6.0])
    seeds, values = flat(table)
    parts = components(dict(zip(seeds, values, strict=True)))
    found = [parts[name].value for name in ("world", "learning", "residual")]
    assert found == pytest.approx([math.sqrt(2.0), 3.0, 0.0], abs=1e-12)


def test_a_missing_pair_of_seeds_leaves_no_interval():
    seeds, values = flat(np.arange(6.0).reshape(2, 3))
    assert np.isnan(half_widths(seeds[:-1], values[:-1]))
    assert components(dict(zip(seeds[:-1], values[:-1], strict=True))) is None
    assert components({**dict(zip(seeds, values, strict=True)), seeds[0]: math.nan}) is None


@pytest.mark.parametrize("spreads", [(1.0, 1.0, 1.0), (2.0, 0.5, 0.1), (0.0, 1.0, 0.3), (0.0, 0.0, 1.0)])
@pytest.mark.parametrize("shape", [(5, 5), (3, 8)])
def test_intervals_hold_about_as_often_as_they_say(shape, spreads):
    count = 2000
    table = made(np.random.default_rng(7), *shape, spreads, count)
    seeds, values = flat(table)
    covered = np.abs(values.mean(axis=0) - 5.0) <= half_widths(seeds, values)
    assert covered.mean() > 0.94
    held = dict.fromkeys(("world", "learning", "residual"), 0)
    few = 500
    for k in range(few):
        parts = components(dict(zip(seeds, values[:, k], strict=True)))
        for name, spread in zip(held, spreads, strict=True):
            held[name] += parts[name].low - 1e-12 <= spread <= parts[name].high + 1e-12
    assert min(held.values()) / few > 0.92, held
