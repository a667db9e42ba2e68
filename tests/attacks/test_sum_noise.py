"""Noise of sums as independent normal numbers: matrices in closed form, laws by brute force."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy import linalg, special, stats

from simfl.attacks.sum_noise import FINE_FROM, Whitening, law_of_sum, normal_on_grid
from simfl.privacy.distributed import GridSum
from simfl.privacy.in_time import Participation
from simfl.privacy.strategies import Blt, Tree, square_root

STRATEGIES = [Tree(), Tree(efficient=False), Tree(5), square_root(4), Blt((0.9, 0.5), (0.25, 0.125))]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_whitened_noise_is_independent(strategy):
    rows, mixing = Whitening(strategy, 13).rows, strategy.matrix(13)
    assert rows @ mixing @ mixing.T @ rows.T == pytest.approx(np.eye(13), abs=1e-12)
    assert (np.triu(rows, 1) == 0).all()


@pytest.mark.parametrize("strategy", STRATEGIES[3:])
def test_a_toeplitz_strategy_is_its_own_whitening(strategy):
    coefficients = strategy.coefficients(13) if isinstance(strategy, Blt) else np.pad(strategy.coefficients, (0, 9))
    assert Whitening(strategy, 13).rows == pytest.approx(linalg.toeplitz(coefficients, np.eye(13)[0]), abs=1e-12)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_come_one_by_one(strategy):
    whitening, values = Whitening(strategy, 13), np.random.default_rng(0).normal(size=(13, 3))
    made = [whitening.next(row) for row in values]
    assert np.stack(made) == pytest.approx(whitening.rows @ values)
    assert not whitening._kept, "no row is kept for nothing"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_pattern_shows_more_than_the_account_allows(strategy):
    """All participations of three releases or fewer, four apart."""
    rows, count = Whitening(strategy, 12).rows, 12
    allowed = [
        list(taken)
        for times in (1, 2, 3)
        for taken in itertools.combinations(range(count), times)
        if all(later - one >= 4 for one, later in itertools.pairwise(taken))
    ]
    largest = max(float(np.linalg.norm(rows[:, taken].sum(axis=1))) for taken in allowed)
    limit = strategy.sensitivity(count, Participation(4, 3))
    assert largest <= limit * (1 + 1e-9)
    if not isinstance(strategy, Tree):
        assert largest == pytest.approx(limit), "a Toeplitz strategy is seen as a whole"


@pytest.mark.parametrize("deviation", [0.5, 3.0, 4.0, 20.0])
@pytest.mark.parametrize("members", [1, 2, 7])
def test_the_law_of_a_sum_is_the_convolution(deviation, members):
    places = np.arange(-400, 401)
    one = np.exp(-0.5 * (places / deviation) ** 2)
    law = one = one / one.sum()
    for _ in range(members - 1):
        law = np.convolve(law, one)
    made = law_of_sum(deviation, members)
    middle = len(law) // 2
    assert made == pytest.approx(law[middle : middle + len(made)], abs=1e-14)
    assert 2 * made[1:].sum() + made[0] == pytest.approx(1.0, abs=1e-12)


def drawn(deviation, members, count, generator):
    """Sums of discrete Gaussians by a plain search."""
    places = np.arange(-int(12 * deviation) - 1, int(12 * deviation) + 2)
    mass = np.exp(-0.5 * (places / deviation) ** 2)
    return generator.choice(places, (members, count), p=mass / mass.sum()).sum(axis=0).astype(float)


@pytest.mark.parametrize(("deviation", "members"), [(0.5, 3), (1.5, 7), (9.0, 4), (600.0, 9)])
def test_noise_on_a_grid_becomes_normal_and_a_shift_makes_it_larger(deviation, members):
    generator, step = np.random.default_rng(3), 0.125
    grid = GridSum(1, 16, 1.0, step, Fraction(deviation))
    noise = drawn(deviation, members, 100_000, generator)
    assert (deviation * members**0.5 > FINE_FROM) == (deviation == 600.0)
    normal = normal_on_grid(step * noise, grid, members, generator)
    assert stats.kstest(normal, "norm").pvalue > 1e-3
    assert np.square(normal).mean() == pytest.approx(1.0, abs=0.02)
    for shift in (1, 3, -2):
        moved = np.abs(normal_on_grid(step * (noise + shift), grid, members, generator))
        for edge in (0.1, 0.5, 1.0, 2.0):
            inside = 2 * special.ndtr(edge) - 1
            assert (moved < edge).mean() <= inside + 4 * np.sqrt(inside / len(moved))


def test_numbers_far_outside_of_a_law_stay_finite():
    grid = GridSum(1, 16, 1.0, 1.0, Fraction(2))
    made = normal_on_grid(np.array([-1e6, -30.0, 0.0, 30.0, 1e6]), grid, 3, np.random.default_rng(0))
    assert np.isfinite(made).all()
    assert made[0] < -10
    assert made[4] > 10
