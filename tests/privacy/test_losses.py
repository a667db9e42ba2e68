"""Losses that are composed, and read at delta, are those of dp-accounting's own methods."""

import math

import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from simfl.privacy import losses
from simfl.privacy.accounting import Pair, _loss_distribution

CASES = [
    (Pair(1.0, 0.02), 300, 1e-3),
    (Pair(2.0, 0.3), 7, 1e-3),
    (Pair(0.5, 0.05), 40, 2e-3),
    (Pair(0.6, 1.0), 3, 2e-2),
    (Pair(3.0, 0.01, True, None, True), 1000, 2e-4),
    (Pair(1.5, 0.2, True), 25, 1e-3),
    (Pair(0.0, 1.0, True, 0.4), 9, 1e-2),  # a pure mechanism has two losses, whose bins dp-accounting lists
]


def sides(whole):
    return [one for one in (whole._pmf_remove, whole._pmf_add) if one is not None]


@pytest.mark.parametrize(("pair", "count", "interval"), CASES)
def test_composed_losses_are_those_of_the_library(pair, count, interval):
    whole = _loss_distribution(pair, interval)
    ours, theirs = losses.self_composed(whole, count), whole.self_compose(count)
    for one, other in zip(sides(ours), sides(theirs), strict=True):
        one, other = one.to_dense_pmf(), other.to_dense_pmf()
        assert one._lower_loss == other._lower_loss
        np.testing.assert_array_equal(one._probs, other._probs)
        assert one._infinity_mass == other._infinity_mass
    for delta in (1e-16, 1e-9, 1e-5, 1e-3, 0.1, 0.5, 0.999, 1.0):
        assert losses.epsilon_at(ours, delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-12), delta


@pytest.mark.parametrize("first", [-40, -7, 0, 5, 700_000])
def test_epsilon_is_the_librarys_for_any_losses(first):
    """Losses of one sign, an infinite one, and such that e^-loss is too small for a number."""
    generator = np.random.default_rng(first + 50)
    for beyond in (0.0, 1e-6, 0.2):
        probs = generator.random(40) ** 4
        probs *= (1.0 - beyond) / probs.sum()
        side = pld_pmf.DensePLDPmf(1e-3 if first < 100 else 2e-3, first, probs, beyond, True)
        for delta in (0.0, 1e-7, 1e-3, 0.1, 0.3, 1.0):
            ours, theirs = losses.epsilon_at(PrivacyLossDistribution(side), delta), side.get_epsilon_for_delta(delta)
            assert ours == theirs == math.inf or ours == pytest.approx(theirs, rel=1e-9, abs=1e-12), (beyond, delta)
