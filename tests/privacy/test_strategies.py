"""Noise correlated over a server's releases: matrices, their noise, and sensitivities by brute force."""

import functools
import itertools
import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

from simfl.privacy import strategies
from simfl.privacy.in_time import Participation
from simfl.privacy.strategies import Banded, Blt, Tree, square_root

BLT = Blt((0.95, 0.5), (0.3, 0.2))
STRATEGIES = {
    "tree": Tree(),
    "tree of single nodes": Tree(efficient=False),
    "restarts": Tree(restart=5),
    "restarts, single nodes": Tree(restart=4, efficient=False),
    "square root": square_root(4),
    "square root, all bands": square_root(40),
    "identity": Banded((1.0,)),
    "blt": BLT,
}


def rows_of_tree(tree, releases):
    """C: the nodes that are used, as rows."""
    span, rows = tree.restart or releases, []
    for begin in range(0, releases, span):
        size = min(span, releases - begin)
        for height in range(size.bit_length()):
            for place in range(size >> height):
                if tree.efficient or place % 2 == 0:
                    row = np.zeros(releases)
                    row[begin + (place << height) : begin + (place + 1 << height)] = 1.0
                    rows.append(row)
    return np.array(rows)


def encoder(strategy, releases):
    """C, from the definition."""
    if isinstance(strategy, Tree):
        return rows_of_tree(strategy, releases)
    coefficients = [1.0] + [0.0] * releases
    if isinstance(strategy, Blt):
        for t in range(1, releases):
            coefficients[t] = sum(w * d ** (t - 1) for d, w in zip(strategy.decays, strategy.weights, strict=True))
    else:
        coefficients[: len(strategy.coefficients)] = strategy.coefficients
    return np.array([[coefficients[i - j] if i >= j else 0.0 for j in range(releases)] for i in range(releases)])


def patterns(releases, apart, times):
    """All participations that a gate allows."""

    def after(begin, left):
        yield ()
        if left:
            for first in range(begin, releases):
                for rest in after(first + apart, left - 1):
                    yield (first, *rest)

    return set(after(0, times))


def brute_force(matrix, releases, apart, times):
    gram = np.abs(matrix.T @ matrix)
    allowed = patterns(releases, apart, times)
    return math.sqrt(max(gram[np.ix_(list(one), list(one))].sum() if one else 0.0 for one in allowed))


@pytest.mark.parametrize("releases", [1, 2, 3, 6, 7, 8, 11, 13])
@pytest.mark.parametrize("name", STRATEGIES)
def test_sensitivity_is_the_largest_over_all_participations(name, releases):
    strategy = STRATEGIES[name]
    matrix = encoder(strategy, releases)
    for apart, times in itertools.product((1, 2, 3, 5, 20), (1, 2, 3, 13)):
        found = strategy.sensitivity(releases, Participation(apart, times))
        assert found == pytest.approx(brute_force(matrix, releases, apart, times), rel=1e-7), (apart, times)
    assert strategy.sensitivity(0, Participation(1, 1)) == strategy.sensitivity(releases, Participation(1, 0)) == 0.0


@pytest.mark.parametrize(("releases", "apart"), [(40, 7), (31, 4), (64, 9), (50, 11)])
@pytest.mark.parametrize("tree", [Tree(), Tree(efficient=False), Tree(restart=13), Tree(restart=16)])
def test_sensitivity_of_larger_trees_is_that_of_a_search_over_places(tree, releases, apart):
    """By branch and bound over sums of squares: a slow search that shares nothing with the tables."""
    matrix = rows_of_tree(tree, releases)

    @functools.cache
    def most(position, counts):
        if position >= releases:
            return sum(count**2 for count in counts)
        closed = sum(c**2 for c, row in zip(counts, matrix, strict=True) if not row[position:].any())
        open_ = tuple(c if row[position:].any() else 0 for c, row in zip(counts, matrix, strict=True))
        taken = tuple(c + int(row[position]) for c, row in zip(open_, matrix, strict=True))
        return closed + max(most(position + 1, open_), most(position + apart, taken))

    found = tree.sensitivity(releases, Participation(apart, releases))
    assert found == pytest.approx(math.sqrt(most(0, (0,) * len(matrix))), rel=1e-9)


@pytest.mark.parametrize("tree", [Tree(), Tree(efficient=False), Tree(restart=12)])
def test_the_bound_for_long_runs_is_not_below_the_exact_value(tree, monkeypatch):
    exact = {
        (n, b, k): tree.sensitivity(n, Participation(b, k)) for n in (5, 37, 64) for b in (1, 3, 8) for k in (1, 4)
    }
    monkeypatch.setattr(strategies, "MOST_WORK", 0.0)
    Tree._most.cache_clear()
    for (n, b, k), value in exact.items():
        assert value * (1 - 1e-12) <= tree.sensitivity(n, Participation(b, k)) <= 2.5 * value
    Tree._most.cache_clear()


@pytest.mark.parametrize("releases", [1, 2, 7, 8, 13, 32])
@pytest.mark.parametrize("name", STRATEGIES)
def test_releases_follow_from_the_strategys_rows_alone(name, releases):
    """x + zeta is a function of C x + xi: with D of zeta = D xi, D C is the identity, and D uses complete rows."""
    strategy = STRATEGIES[name]
    noises = strategy.matrix(releases)
    rows = encoder(strategy, releases)
    if isinstance(strategy, Tree):  # noises are named in the order of first use
        order = order_of_nodes(strategy, releases)
        assert noises.shape[1] == len(order) <= len(rows)
        rows = np.array(order)
    np.testing.assert_allclose(noises @ rows, np.eye(releases), atol=1e-12)
    last = [np.flatnonzero(row).max() for row in rows]
    first = [np.flatnonzero(column).min() for column in noises.T]
    assert all(used >= complete for used, complete in zip(first, last, strict=True))


def order_of_nodes(tree, releases):
    """The nodes in the order in which their noises are drawn."""
    span, order = tree.restart or releases, []
    for begin in range(0, releases, span):
        for number in range(1, min(span, releases - begin) + 1):
            trailing = (number & -number).bit_length() - 1
            for height in range(trailing + 1) if tree.efficient else [trailing]:
                row = np.zeros(releases)
                row[begin + number - (1 << height) : begin + number] = 1.0
                order.append(row)
    return order


def test_the_noise_of_trees_has_its_closed_form():
    """Prefix sums have a variance of one per binary digit, or 1 / (2 - 2^-h) for the digit of 2^h."""
    releases = 100
    prefix = np.tril(np.ones((releases, releases)))
    plain = (prefix @ Tree(efficient=False).matrix(releases)) ** 2
    better = (prefix @ Tree().matrix(releases)) ** 2
    for number in range(1, releases + 1):
        digits = [h for h in range(8) if number >> h & 1]
        assert plain[number - 1].sum() == pytest.approx(len(digits))
        assert better[number - 1].sum() == pytest.approx(sum(1 / (2 - 2.0**-h) for h in digits))
    single = Tree(efficient=False).deviations(releases)
    for number in range(1, releases + 1):
        assert single[number - 1] ** 2 == pytest.approx((number & -number).bit_length())
    assert better.sum() < 0.65 * plain.sum()


def test_restarts_repeat_a_tree():
    whole, first = Tree(restart=6).matrix(18), Tree().matrix(6)
    for part in range(3):
        block = whole[6 * part : 6 * part + 6]
        np.testing.assert_array_equal(block[:, part * first.shape[1] : (part + 1) * first.shape[1]], first)
        assert np.count_nonzero(block) == np.count_nonzero(first)
    assert Tree(restart=6).sensitivity(18, Participation(6, 3)) < Tree().sensitivity(18, Participation(6, 3))


@pytest.mark.parametrize("releases", [1, 5, 8, 100, 2000])
def test_one_participation_in_a_tree_costs_as_much_as_in_dp_accounting(releases):
    z = 3.0
    event = dp_event.SingleEpochTreeAggregationDpEvent(z, releases)
    from dp_accounting import NeighboringRelation

    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL)
    theirs = accountant.compose(event).get_epsilon(1e-5)
    mu = Tree().sensitivity(releases, Participation(releases, 1)) / z
    ours = RdpAccountant().compose(dp_event.GaussianDpEvent(1 / mu)).get_epsilon(1e-5)
    assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize(("apart", "times"), [(1, 1), (4, 5), (8, 100), (10, 3)])
def test_sensitivities_are_those_of_jax_privacy(apart, times):
    toeplitz = pytest.importorskip("jax_privacy.matrix_factorization.toeplitz")
    releases = 60
    for strategy in (square_root(8), BLT):
        coefficients = encoder(strategy, releases)[:, 0]
        theirs = math.sqrt(toeplitz.minsep_sensitivity_squared(coefficients, apart, times, releases))
        assert strategy.sensitivity(releases, Participation(apart, times)) == pytest.approx(theirs, rel=1e-5)


def test_noises_of_toeplitz_matrices_are_those_of_jax_privacy():
    toeplitz = pytest.importorskip("jax_privacy.matrix_factorization.toeplitz")
    for strategy in (square_root(8), BLT):
        inverse = np.asarray(toeplitz.inverse_coef(encoder(strategy, 30)[:, 0], 30))
        np.testing.assert_allclose(strategy.matrix(30)[:, 0], inverse, atol=1e-5)


@pytest.mark.slow
def test_optimized_strategies_have_less_noise():
    """Mean squared error of prefix sums at equal sens(C), 12 releases apart, at most 4 times, of 48."""
    pytest.importorskip("jax_privacy")
    takes, prefix = Participation(12, 4), np.tril(np.ones((48, 48)))

    def error(strategy):
        return np.square(prefix @ strategy.matrix(48)).sum() * strategy.sensitivity(48, takes) ** 2

    errors = {
        "independent": error(Banded((1.0,))),
        "plain": error(Tree(efficient=False)),
        "tree": error(Tree()),
        "blt": error(strategies.blt(2, 48, takes)),
        "banded": error(strategies.banded(12, 48)),
    }
    assert list(errors.values()) == sorted(errors.values(), reverse=True), errors


@pytest.mark.parametrize("name", STRATEGIES)
def test_deviations_are_the_norms_of_the_noises_rows(name):
    strategy = STRATEGIES[name]
    for releases in (1, 2, 37, 64):
        norms = np.linalg.norm(strategy.matrix(releases), axis=1)
        np.testing.assert_allclose(strategy.deviations(releases), norms, rtol=1e-12)
