"""Noise that is correlated over time: its sensitivity against dense matrices and jax_privacy, and its account."""

import itertools
import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from simfl.errors import RunError, ScenarioError
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.privacy.in_time import (
    InTimeLedger,
    InTimeTally,
    Participation,
    noising_coefficients,
    participation,
    sensitivity,
    strategy_coefficients,
)
from simfl.privacy.ledger import Ledger
from simfl.privacy.releases import Releases
from simfl.privacy.terms import Terms

TERMS = Terms("gaussian", 1e-5, neighbors="replace_one", amplification=False)
#: Falling strategies, and others.
FALLING = [(1.0,), (1.0, -0.5), noising_coefficients("square_root", 3), noising_coefficients("square_root", 9)]
OTHERS = [(1.0, -0.625, -0.125, 0.0, 0.0, 0.25), (1.0, 0.5), (1.0, -1.25, 0.5)]


def dense(noising, releases):
    """W, a lower triangular matrix."""
    return sum(weight * np.eye(releases, k=-back) for back, weight in enumerate(noising[:releases]))


def patterns(releases, takes):
    """All sets of releases that an example may be in."""
    for size in range(takes.times + 1):
        for chosen in itertools.combinations(range(releases), size):
            if all(later - sooner >= takes.separation for sooner, later in itertools.pairwise(chosen)):
                yield list(chosen)


def largest(gram, releases, takes):
    """The largest sum of absolute entries over a pattern."""
    return max(np.abs(gram[np.ix_(some, some)]).sum() for some in patterns(releases, takes))


@pytest.mark.parametrize("noising", FALLING + OTHERS)
def test_sensitivity_equals_that_of_dense_matrices(noising):
    for releases, separation, times in itertools.product((1, 2, 5, 7), (1, 2, 3), (1, 2, 7)):
        takes = Participation(separation, times)
        strategy = np.linalg.inv(dense(noising, releases))
        np.testing.assert_allclose(strategy[:, 0], strategy_coefficients(noising, releases), atol=1e-12)
        exact, squared = largest(strategy.T @ strategy, releases, takes), sensitivity(noising, releases, takes) ** 2
        if noising in FALLING:
            assert squared == pytest.approx(exact, rel=1e-8)
        assert squared >= exact * (1 - 1e-12)
    assert sensitivity(noising, 0, Participation(1, 1)) == 0.0


def test_sensitivity_equals_that_of_jax_privacy():
    toeplitz = pytest.importorskip("jax_privacy.matrix_factorization.toeplitz", reason="jax-privacy is not installed")
    noising, releases = noising_coefficients("square_root", 8), 60
    strategy = strategy_coefficients(noising, releases).astype(np.float32)
    for separation, times in ((1, 60), (6, 10), (6, 3), (7, 60)):
        theirs = toeplitz.minsep_sensitivity_squared(strategy, separation, times, releases, skip_checks=True)
        ours = sensitivity(noising, releases, Participation(separation, times))
        assert ours**2 == pytest.approx(float(theirs), rel=1e-5)


@pytest.mark.parametrize("noising", [FALLING[2], OTHERS[0]])
def test_the_account_covers_all_releases_after_any_crashes(noising):
    """Any part of the releases, under any signs of an example's contributions, is within the account of all of them."""
    releases, takes = 6, Participation(2, 3)
    whole = dense(noising, releases)
    account = sensitivity(noising, releases, takes) ** 2
    dearest = 0.0
    for bits in range(1, 2**releases):
        kept = [t for t in range(releases) if bits >> t & 1]
        data, noise = np.eye(releases)[kept], whole[kept]
        told = data.T @ np.linalg.pinv(noise @ noise.T) @ data
        for some in patterns(releases, takes):
            for signs in itertools.product((1.0, -1.0), repeat=len(some)):
                moved = np.zeros(releases)
                moved[some] = signs
                dearest = max(dearest, moved @ told @ moved)
                assert moved @ told @ moved <= account * (1 + 1e-9)
    assert dearest == pytest.approx(account, rel=1e-6 if noising in FALLING else 0.2)


def test_participation_follows_from_sampling():
    assert participation("poisson", 100, 10, 25) == Participation(1, 25)
    assert participation("shuffle", 100, 10, 25) == Participation(10, 3)
    assert participation("shuffle", 100, 30, 10) == Participation(3, 3)
    assert participation("shuffle", 100, 100, 4) == Participation(1, 4)
    # Against the stream itself: the same order in every pass, batches that reach over its end.
    for n, size, releases in ((10, 3, 12), (7, 7, 3), (8, 5, 9)):
        takes = participation("shuffle", n, size, releases)
        for example in range(n):
            rounds = sorted({t for t in range(releases) for i in range(size) if (t * size + i) % n == example})
            assert len(rounds) <= takes.times
            assert all(later - sooner >= takes.separation for sooner, later in itertools.pairwise(rounds))


def ledger(sampling="shuffle", noising=FALLING[2], sizes=(100, 40), levels=(2.0, 3.0), **terms):
    changed = {**TERMS.__dict__, **terms}
    return InTimeLedger(Terms(**changed), np.array(sizes), 10, sampling, levels, noising)


def test_the_account_is_one_gaussian_mechanism():
    book, made = ledger(), Releases([25, 9])
    expected = [
        gaussian_epsilon(1e-5, 2.0 * sensitivity(FALLING[2], 25, Participation(10, 3)) / 2.0),
        gaussian_epsilon(1e-5, 2.0 * sensitivity(FALLING[2], 9, Participation(4, 3)) / 3.0),
    ]
    np.testing.assert_allclose(book.epsilon(made), expected)
    np.testing.assert_array_equal(book.final_epsilon(made, "global_hidden"), book.epsilon(made))
    assert book.largest(made) == max(expected)
    assert book.epsilon_after(0, 25, "renyi") == expected[0]
    (((release, count),), _) = book.compositions(made)
    assert (count, release.sampling) == (1, "none")
    assert release.noise_multiplier == pytest.approx(2.0 / sensitivity(FALLING[2], 25, Participation(10, 3)))
    for words in ("in the same order in every pass", "correlated over 3 releases, exact as one Gaussian mechanism"):
        assert words in book.statement
    every = ledger("poisson", neighbors="add_or_remove")
    assert "no amplification by sampling" in every.statement
    whole = sensitivity(FALLING[2], 25, Participation(1, 25))
    assert every.epsilon(made)[0] == pytest.approx(gaussian_epsilon(1e-5, whole / 2.0))
    assert not ledger(neighbors="add_or_remove").certified
    assert math.isnan(ledger(neighbors="add_or_remove").largest(made))
    assert ledger(levels=(0.0, 1.0)).largest(made) == math.inf


def test_without_correlation_the_account_is_that_of_passes():
    """Batches that divide the data: three passes are three releases of the same example."""
    plain = Ledger(TERMS, np.array([100, 40]), 10, "shuffle", (2.0, 3.0))
    made = Releases([30, 12])
    np.testing.assert_allclose(ledger(noising=(1.0,)).epsilon(made), plain.final_epsilon(made), rtol=2e-3)


def test_budgets_allow_the_releases_that_the_account_permits():
    book = ledger()
    for budget in (3.0, 10.0):
        allowed = book.allowances([budget, budget])
        assert (book.epsilon(Releases(allowed)) <= budget).all()
        assert (book.epsilon(Releases([count + 1 for count in allowed])) > budget).all()
    assert book.allowances([1e3, 1e3], most=5) == [5, 5]
    assert book.allowances([0.5, 3.0])[0] == 0


def promise(client, draw, size=10, scale=2.0, norm=None):
    return SimpleNamespace(
        client=client, draw=draw, size=size, examples=size, expected=0, noise_scale=scale, own_norm=norm,
        released=False, begin=(draw, 0),
    )  # fmt: skip


def test_a_skipped_number_counts_as_released():
    tally = InTimeTally(ledger(), [2.0, 3.0], 1.0)
    for draw in (0, 1, 4, 3):  # 2 was lost, and 3 came later than 4
        tally.name(promise(0, draw)) if draw != 3 else None
        tally.count(promise(0, draw))
    assert tally.counts == [5, 0]
    assert tally.total(0) == 5
    assert tally.refusal is None
    again = promise(0, 5)
    tally.name(again)
    tally.forget(again)  # lost in a crash, and assigned again
    tally.name(promise(0, 5))
    tally.count(promise(0, 5))
    assert tally.counts == [6, 0]
    tally.limits = [7, 7]
    tally.count(promise(0, 6))
    with pytest.raises(RunError, match="at most 7 releases"):
        tally.count(promise(0, 8))


@pytest.mark.parametrize("other", [{"size": 9}, {"scale": 4.0}, {"norm": 0.5}])
def test_releases_of_other_kinds_are_not_certified(other):
    tally = InTimeTally(ledger(), [2.0, 3.0], 1.0)
    tally.count(promise(0, 0, **other))
    assert "correlated over time is made for these" in tally.refusal


def test_square_root_coefficients_need_no_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax_privacy", None)
    monkeypatch.setitem(sys.modules, "jax_privacy.matrix_factorization", None)
    assert noising_coefficients("square_root", 5) == (1.0, -0.5, -0.125, -0.0625, -0.0390625)
    with pytest.raises(ScenarioError, match=r"pip install 'simfl\[correlated\]'") as missing:
        noising_coefficients("banded", 5, size=3, releases=7)
    assert "\n" not in str(missing.value)


@pytest.mark.slow
def test_strategies_of_jax_privacy_are_banded_or_geometric():
    """Noise covers fewer releases than the strategy's inverse; for these it equals that inverse."""
    pytest.importorskip("jax_privacy", reason="jax-privacy is not installed")
    takes = Participation(4, 4)
    banded = noising_coefficients("banded", 12, size=4, releases=16, takes=takes)
    assert len(banded) == 12
    assert np.array_equal(np.float32(banded), np.float64(banded)), "exact in float32"
    strategy = strategy_coefficients(banded, 12)
    assert (strategy[:4] > 0.2).all()
    np.testing.assert_allclose(strategy[4:], 0.0, atol=1e-5)
    geometric = strategy_coefficients(noising_coefficients("blt", 12, size=1, releases=16, takes=takes), 12)
    ratios = geometric[2:] / geometric[1:-1]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-3)
    assert 0.5 < ratios[0] < 1.0
