"""Robust rules: published vectors, NumPy loops, padding, and attackers that send anything."""

import jax.numpy as jnp
import numpy as np
import pytest

from simfl.robust.base import ordered, padded
from simfl.robust.rules import RULES
from simfl.robust.rules.balance import Balance
from simfl.robust.rules.centered_clipping import CenteredClipping
from simfl.robust.rules.clipped_gossip import ClippedGossip
from simfl.robust.rules.geometric_median import GeometricMedian
from simfl.robust.rules.krum import Krum
from simfl.robust.rules.mean import Mean
from simfl.robust.rules.median import Median
from simfl.robust.rules.multi_krum import MultiKrum
from simfl.robust.rules.nearest_neighbor_mixing import NearestNeighborMixing
from simfl.robust.rules.trimmed_mean import TrimmedMean
from simfl.tape import Tape
from tests.helpers import Lab, make_problem
from tests.robust.helpers import PUBLISHED, given_of

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def distances(x):
    return np.array([[np.sum((a - b) ** 2) for b in x] for a in x])


def scores(x, f, neighbors=1):
    """Mean squared distances to the n - f - 1 nearest others, or to another number."""
    return [np.mean(np.sort(row)[1 : len(x) - f - neighbors + 1]) for row in distances(x)]


def mixed(x, f):
    return np.array([x[np.argsort(row, kind="stable")[: len(x) - f]].mean(axis=0) for row in distances(x)])


def trimmed(x, f):
    return np.array([np.mean(sorted(column)[f : len(x) - f]) for column in x.T])


def weiszfeld(x):
    z = np.zeros(x.shape[1])
    for _ in range(3):
        share = [1.0 / max(0.1, np.linalg.norm(one - z)) for one in x]
        z = sum(b * one for b, one in zip(share, x, strict=True)) / sum(share)
    return z


def clip(z, tau):
    return z * min(1.0, tau / max(np.linalg.norm(z), 1e-30))


def close(x, gamma):
    return [one for one in x[1:] if np.linalg.norm(one - x[0]) <= gamma * np.linalg.norm(x[0])]


ORACLES = {
    Balance(0.25, 1.2): lambda x: 0.25 * x[0] + 0.75 * np.mean(close(x, 1.2) or [x[0]], axis=0),
    Mean(): lambda x: x.mean(axis=0),
    Median(): lambda x: np.median(x, axis=0),
    TrimmedMean(2): lambda x: trimmed(x, 2),
    Krum(2): lambda x: x[np.argmin(scores(x, 2))],
    MultiKrum(2): lambda x: x[np.argsort(scores(x, 2))[: len(x) - 2]].mean(axis=0),
    Krum(2, "n - f - 2"): lambda x: x[np.argmin(scores(x, 2, 2))],
    MultiKrum(1, "n - f - 2"): lambda x: x[np.argsort(scores(x, 1, 2))[: len(x) - 1]].mean(axis=0),
    GeometricMedian(): weiszfeld,
    CenteredClipping(tau=1.0): lambda x: x[0] + np.mean([clip(one - x[0], 1.0) for one in x], axis=0),
    CenteredClipping(tau=1.0, from_own=False): lambda x: np.mean([clip(one, 1.0) for one in x], axis=0),
    ClippedGossip(0.5): lambda x: x[0] + np.mean([clip(one - x[0], 0.5) for one in x], axis=0),
    NearestNeighborMixing(2, TrimmedMean(2)): lambda x: trimmed(mixed(x, 2), 2),
}


def test_every_rule_has_an_oracle_and_an_equal_one_is_the_same_function():
    assert {type(rule) for rule in ORACLES} == set(RULES.values())
    for kind, rule in RULES.items():
        assert rule.kind == kind
        assert rule.summary
        assert rule() == rule()
        assert hash(rule()) == hash(rule())


@pytest.mark.slow(but=["-7"])
@pytest.mark.parametrize("count", [5, 7, 8, 11])
@pytest.mark.parametrize("rule", ORACLES, ids=lambda rule: rule.kind)
def test_a_rule_is_its_numpy_loop_with_any_padding(rule, count):
    x = np.random.default_rng(count).normal(size=(count, 6))
    np.testing.assert_allclose(rule(*given_of(x)), ORACLES[rule](x), **CLOSE)
    np.testing.assert_allclose(rule(*given_of(x, pads=True)), ORACLES[rule](x), **CLOSE)


def test_rules_give_published_vectors():
    """Examples in the documentation of byzfl 0.0.11."""
    rows, given = given_of(PUBLISHED)
    np.testing.assert_allclose(TrimmedMean(1)(rows, given), [4, 5, 6], **CLOSE)
    np.testing.assert_allclose(GeometricMedian()(rows, given)[0], 3.78788764, **CLOSE)
    means = NearestNeighborMixing(1).mix(jnp.asarray(rows), given.present)
    np.testing.assert_allclose(means, [[2.5, 3.5, 4.5], [2.5, 3.5, 4.5], [5.5, 6.5, 7.5]], **CLOSE)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_krum_among_few_models_has_one_neighbor_at_least(count):
    x = np.random.default_rng(count).normal(size=(count, 4))
    nearest = np.argmin([np.sort(row)[1] for row in distances(x)])
    np.testing.assert_allclose(Krum(1, "n - f - 2")(*given_of(x, pads=True)), x[nearest], **CLOSE)


ROBUST = [Median(), TrimmedMean(2), Krum(2), MultiKrum(2), GeometricMedian(), NearestNeighborMixing(2, TrimmedMean(2))]
ROBUST += [ClippedGossip(1.0), CenteredClipping(1.0)]


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("sent", [1e6, -np.inf, np.inf, np.nan])
@pytest.mark.parametrize("rule", ROBUST, ids=lambda rule: rule.kind)
def test_two_of_eight_attackers_do_not_move_a_robust_rule_far(rule, sent):
    x = np.random.default_rng(0).normal(size=(8, 6))
    x[5:7] = sent
    assert np.abs(rule(*given_of(x, pads=True))).max() < 5.0
    if sent == 1e6:
        assert np.abs(Mean()(*given_of(x))).max() > 1e5


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("rule", ORACLES, ids=lambda rule: rule.kind)
def test_a_client_without_neighbors_keeps_its_model(rule):
    x = np.random.default_rng(0).normal(size=(1, 6)) * 0.1
    np.testing.assert_allclose(rule(*given_of(x, pads=True)), x[0], **CLOSE)


ACCEPTED = {
    Mean(): lambda x: np.ones(len(x)),
    Median(): lambda x: np.mean([np.abs(column - np.median(column)) <= gap(column) for column in x.T], axis=0),
    TrimmedMean(2): lambda x: np.mean([np.isin(c, sorted(c)[2 : len(x) - 2]) for c in x.T], axis=0),
    Krum(2): lambda x: np.arange(len(x)) == np.argmin(scores(x, 2)),
    MultiKrum(2): lambda x: np.isin(np.arange(len(x)), np.argsort(scores(x, 2))[: len(x) - 2]),
    Krum(2, "n - f - 2"): lambda x: np.arange(len(x)) == np.argmin(scores(x, 2, 2)),
    CenteredClipping(1.0): lambda x: [clipping(one - x[0], 1.0) for one in x],
    ClippedGossip(0.5): lambda x: [clipping(one - x[0], 0.5) for one in x],
    Balance(gamma=1.2): lambda x: [np.linalg.norm(one - x[0]) <= 1.2 * np.linalg.norm(x[0]) for one in x],
}


def gap(column):
    ordered = np.sort(column)
    middle = ordered[(len(column) - 1) // 2], ordered[len(column) // 2]
    return (middle[1] - middle[0]) / 2 + 1e-12


def clipping(z, tau):
    return min(1.0, tau / max(np.linalg.norm(z), 1e-30))


@pytest.mark.slow(every=3)
@pytest.mark.parametrize("count", [5, 8, 11])
@pytest.mark.parametrize("rule", ACCEPTED, ids=lambda rule: rule.kind)
def test_how_much_of_each_model_counts(rule, count):
    x = np.random.default_rng(count).normal(size=(count, 6))
    rows, given = given_of(x, pads=True)
    accepted = rule.accepted(rows, given.present, given.present / count, 0.0)[:count]
    np.testing.assert_allclose(accepted, np.array(ACCEPTED[rule](x), dtype=float), **CLOSE)


def test_how_much_counts_falls_with_the_distance_and_through_mixing():
    x = np.random.default_rng(0).normal(size=(7, 6))
    x[3] = 1e4
    given = given_of(x)[1]
    for rule in (GeometricMedian(), NearestNeighborMixing(1, TrimmedMean(1))):
        accepted = np.asarray(rule.accepted(jnp.asarray(x), given.present, given.present / 7, 0.0))
        assert accepted[3] < 0.1 < accepted.max() <= 1.0
        assert accepted.argmin() == 3


def test_balance_comes_closer_as_time_goes_on():
    x = np.array([[1.0, 0.0], [1.2, 0.0]])
    given = given_of(x)[1]
    terms = jnp.asarray(x), given.present, given.present / 2
    assert Balance().accepted(*terms, 0.0).tolist() == [1.0, 1.0]
    assert Balance().accepted(*terms, 1.0).tolist() == [1.0, 0.0]
    np.testing.assert_allclose(Balance().aggregate(*terms, 0.0), [1.1, 0.0], **CLOSE)
    np.testing.assert_allclose(Balance().aggregate(*terms, 1.0), [1.0, 0.0], **CLOSE)


def test_weights_are_the_scalars_of_a_call():
    x, weights = np.random.default_rng(0).normal(size=(3, 6)), [0.5, 0.3, 0.2]
    rows, given = given_of(x, pads=True, weights=padded(weights))
    np.testing.assert_allclose(Mean()(rows, given), np.average(x, axis=0, weights=weights), **CLOSE)
    expected = x[0] + sum(w * clip(one - x[0], 0.5) for w, one in zip(weights, x, strict=True))
    np.testing.assert_allclose(ClippedGossip(0.5)(rows, given), expected, **CLOSE)
    loose = ClippedGossip(1e9)(rows, given)
    np.testing.assert_allclose(loose, Mean()(rows, given), **CLOSE)


@pytest.mark.slow(but=["trimmed_mean"])
@pytest.mark.parametrize("rule", [TrimmedMean(1), Krum(1), ClippedGossip(0.5)], ids=lambda rule: rule.kind)
def test_a_tape_runs_a_rule_over_any_number_of_models(rule):
    problem = make_problem(2)
    x = np.random.default_rng(0).normal(size=(6, problem.model.size)).astype(np.float32)
    with Lab(problem) as lab:
        tape: Tape = lab.tape
        models = [tape.constant(one) for one in x]
        made = [tape.map(rule, models[:count], pads=True)[0] for count in (3, 5, 6)]
        values = tape.values(made)
    for count, value in zip((3, 5, 6), values, strict=True):
        np.testing.assert_allclose(value, rule(*given_of(x[:count])), **CLOSE)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8, 16, 64, 65])
def test_ordered_is_a_sort(count):
    """Values come in order, ties and infinities too, and whatever is absent or NaN comes last."""
    generator = np.random.default_rng(count)
    models = generator.integers(-3, 4, (count, 200)).astype(np.float32)
    models[generator.random(models.shape) < 0.1] = np.nan
    models[generator.random(models.shape) < 0.1] = -np.inf
    present = generator.random(count) < 0.8
    rows = np.stack(ordered(models, present))
    known = np.where(present[:, None] & ~np.isnan(models), models, np.inf)
    np.testing.assert_array_equal(rows, np.sort(known, axis=0))
