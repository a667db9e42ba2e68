"""Adaptive clipping norms: the split of the noise, the account, how far an update moves, and the quantile."""

import functools
import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import assume, given
from hypothesis import strategies as st

from simfl.models.lazy import jax
from simfl.privacy.adaptive import BEFORE, AdaptiveNorm, adapted_sum
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.tape.layout import padded_size
from simfl.tape.maps import Given

DELTA = 1e-5


def norm_of(start=1.0, quantile=0.5, learning_rate=0.2, count_noise=1.0, members=20.0):
    return AdaptiveNorm(start, quantile, learning_rate, count_noise, members)


@functools.cache
def compiled():
    return jax.jit(lambda rows, numbers, present: adapted_sum(rows, Given(numbers, present, None, None, None)))


def released(rule, norm, updates, weights=None, noise=0.0, count=0.0, junk=np.nan):
    """Return the sum and the next norm; rows that are padding hold `junk`."""
    updates = np.asarray(updates, np.float32)
    size, rows = updates.shape[1], padded_size(BEFORE + len(updates))
    given_rows = np.full((rows, size), junk, np.float32)
    given_rows[0], given_rows[1], given_rows[2] = norm, noise, count
    given_rows[BEFORE : BEFORE + len(updates)] = updates
    numbers = rule.numbers([1.0] * len(updates) if weights is None else weights, rows)
    present = np.arange(rows) < BEFORE + len(updates)
    total, following = map(np.asarray, compiled()(given_rows, np.array(numbers, np.float32), present))
    assert len(set(following.tolist())) == 1
    return total.astype(float), float(following[0])


# -- the split -------------------------------------------------------------------------------------


@given(st.floats(1e-3, 1e3), st.floats(1.0, 1e4, exclude_min=True))
def test_sum_and_count_together_have_the_noise_multiplier(z, factor):
    """Whatever the noise of the count; the noise of the sum is more than without a count."""
    rule = norm_of(count_noise=0.5 * z * factor, members=1e9)
    assume(2.0 * rule.count_noise / z > 1.0)
    of_sum = rule.noise_on_sum(z)
    assert of_sum**-2 + (2 * rule.count_noise) ** -2 == pytest.approx(z**-2, rel=1e-9)
    assert of_sum >= z


@given(st.floats(1e-3, 1e3), st.floats(0.0, 1.0))
def test_a_count_with_too_little_noise_is_refused(z, share):
    with pytest.raises(ValueError, match=r"expected more than .*, half of the noise multiplier"):
        norm_of(count_noise=0.5 * z * share).noise_on_sum(z)


def test_noise_that_alone_moves_the_norm_is_refused():
    assert norm_of(count_noise=100.0, members=20.0).noise_on_sum(1.0) == pytest.approx(1.0, rel=1e-4)
    with pytest.raises(ValueError, match=r"expected at most 100, the 20 users of a sum divided by learning_rate"):
        norm_of(count_noise=101.0, members=20.0).noise_on_sum(1.0)


def test_without_any_noise_there_is_nothing_to_split():
    assert norm_of(count_noise=0.0).noise_on_sum(0.0) == 0.0
    with pytest.raises(ValueError, match="expected 0 without noise on the sum, found 1"):
        norm_of(count_noise=1.0).noise_on_sum(0.0)


@pytest.mark.parametrize(("z", "count_noise"), [(1.0, 0.6), (1.0, 5.0), (3.3, 2.0), (0.5, 0.3)])
def test_the_account_is_that_of_both_mechanisms_in_dp_accounting(z, count_noise):
    of_sum = norm_of(count_noise=count_noise).noise_on_sum(z)
    both = dp_event.ComposedDpEvent([dp_event.GaussianDpEvent(of_sum), dp_event.GaussianDpEvent(2 * count_noise)])
    for event, alone in (
        (both, dp_event.GaussianDpEvent(z)),
        (dp_event.PoissonSampledDpEvent(0.1, both), dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(z))),
    ):
        spent, expected = (
            RdpAccountant().compose(dp_event.SelfComposedDpEvent(one, 50)).get_epsilon(DELTA) for one in (event, alone)
        )
        assert spent == pytest.approx(expected, rel=1e-9)
    tight = PLDAccountant(value_discretization_interval=1e-4).compose(both).get_epsilon(DELTA)
    assert tight == pytest.approx(gaussian_epsilon(DELTA, 1 / z), rel=1e-3)
    exact = gaussian_epsilon(DELTA, math.hypot(1 / of_sum, 1 / (2 * count_noise)))
    assert exact == pytest.approx(gaussian_epsilon(DELTA, 1 / z), rel=1e-6)


# -- how far an update moves sum and count -----------------------------------------------------------


@st.composite
def cohorts(draw):
    vector = st.lists(st.floats(-3, 3, width=32), min_size=2, max_size=2)
    updates = draw(st.lists(vector, min_size=1, max_size=6))
    weights = draw(st.lists(st.floats(0.0, 1.0, width=32), min_size=len(updates), max_size=len(updates)))
    return updates, weights, draw(st.floats(0.1, 3.0)), draw(vector)


@given(cohorts(), st.booleans(), st.integers(1, 3))
def test_a_user_moves_the_pair_by_at_most_its_share_of_the_noise(cohort, replaces, times):
    """At most 1 / z of the noise's unit; twice that if replaced, and m times with m updates."""
    updates, weights, norm, other = cohort
    z, rule = 1.0, norm_of(count_noise=0.7, members=8.0)
    own = [updates[0]] * (times - 1) + updates
    shares = weights[:1] * (times - 1) + weights
    if replaces:
        neighbor, left = [other] * times + updates[1:], shares
    else:
        neighbor, left = updates[1:] or [[0.0, 0.0]], weights[1:] or [0.0]
    found = []
    for some, weighed in ((own, shares), (neighbor, left)):
        total, following = released(rule, norm, some, weighed)
        count = rule.members * (rule.quantile - math.log(following / norm) / rule.learning_rate - 0.5)
        found.append((total, count))
    (one, count), (two, other_count) = found
    moved = np.hypot(np.linalg.norm(one - two) / (rule.noise_on_sum(z) * norm), (count - other_count) / 0.7)
    assert moved <= (2 if replaces else 1) * times / z * (1 + 1e-4) + 1e-3


def test_the_bound_is_reached():
    """By an update of norm C and weight 1: an account that charges less would be wrong."""
    rule = norm_of(count_noise=0.7, members=8.0)
    one, following = released(rule, 0.5, [[3.0, 4.0]])
    two, empty = released(rule, 0.5, np.zeros((0, 2)))
    count = rule.members * math.log(following / empty) / -rule.learning_rate
    moved = np.linalg.norm(one - two) / (rule.noise_on_sum(1.0) * 0.5)
    assert np.hypot(moved, count / 0.7) == pytest.approx(1.0, rel=1e-4)


# -- the function ------------------------------------------------------------------------------------


def test_it_is_a_plain_loop():
    random = np.random.default_rng(3)
    for count in (0, 1, 5, 13, 14):
        updates, weights = random.standard_normal((count, 7)), random.random(count)
        updates[3:5] = 0.0
        noise, of_count, norm = random.standard_normal(), random.standard_normal(), 2.5
        rule = norm_of(quantile=0.3, learning_rate=0.7, members=9.0)
        total, inside = np.full(7, norm * noise), 0.0
        for update, weight in zip(updates, weights, strict=True):
            length = max(np.linalg.norm(update), 1e-30)
            total += weight * update * min(1.0, norm / length)
            inside += 0.0 if not update.any() else 0.5 if length <= norm else -0.5
        share = 0.5 + (inside + of_count) / 9.0
        made, following = released(rule, norm, updates, weights, noise, of_count)
        np.testing.assert_allclose(made, total, atol=1e-5)
        assert following == pytest.approx(norm * math.exp(-0.7 * (share - 0.3)), rel=1e-6)


@pytest.mark.parametrize("junk", [np.nan, np.inf, 1e30, 0.0])
def test_padding_changes_nothing(junk):
    made = released(norm_of(), 1.0, [[1.0, 2.0], [0.1, 0.2]], noise=0.3, count=0.4, junk=junk)
    np.testing.assert_array_equal(made[0], released(norm_of(), 1.0, [[1.0, 2.0], [0.1, 0.2]], noise=0.3, count=0.4)[0])
    assert made[1] == released(norm_of(), 1.0, [[1.0, 2.0], [0.1, 0.2]], noise=0.3, count=0.4)[1]


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("start", [0.01, 100.0])
def test_the_norm_converges_to_the_quantile(quantile, start):
    """Norms that stay the same, without noise. Far below them all, and far above, the steps are geometric."""
    norms = np.sort(np.random.default_rng(0).lognormal(0.0, 1.0, 101))
    rule = norm_of(quantile=quantile, learning_rate=0.2, members=101.0)
    norm, path = start, [start]
    for _ in range(500):
        _, norm = released(rule, norm, norms[:, None])
        path.append(norm)
    share = 0.0 if start < 1 else 1.0
    away = [value for value in path if value < norms[0] or value > norms[-1]]
    assert len(away) > 10
    expected = start * np.exp(-0.2 * (share - quantile) * np.arange(len(away)))
    np.testing.assert_allclose(away, expected, rtol=1e-4)  # of float32
    target = np.quantile(norms, quantile)
    assert np.abs(np.log(np.array(path[-20:]) / target)).max() < 0.05
    assert abs(np.mean(norms <= path[-1]) - quantile) < 0.02
