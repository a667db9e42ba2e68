"""Pure releases in closed form: amplification by sampling, and composition.

Kairouz, Oh and Viswanath 2015, "The composition theorem for differential privacy", https://arxiv.org/abs/1311.0776: k
releases of epsilon each, even if each is chosen in view of the earlier ones, are at least as private as k randomized
responses, whose privacy is known exactly. Dwork, Rothblum and Vadhan 2010, "Boosting and differential privacy",
https://doi.org/10.1109/FOCS.2010.12, is the older bound that papers cite as advanced composition.
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from simfl.privacy import checks

#: Losses up to which the tails of both binomials do not underflow.
_MODERATE = 600.0
#: Smaller releases with larger losses, and more releases, get a bound instead of the exact value.
_SMALL, _MOST_RELEASES = 1e-4, 2**36


def amplified_epsilon(epsilon: float, sampling_rate: float) -> float:
    """Return epsilon on a random share q of the data: ln(1 + q (e^epsilon - 1)).

    It holds under add_or_remove for Poisson sampling, under replace_one for batches of fixed size without replacement.
    Balle, Barthe and Gaboardi 2018, "Privacy amplification by subsampling", Theorems 8 and 9,
    https://arxiv.org/abs/1807.01647. `epsilon` >= 0 is that of one release on all data; q = `sampling_rate` is in
    (0, 1].
    """
    checks.at_least(0.0, epsilon=epsilon)
    if not 0.0 < sampling_rate <= 1.0:
        raise ValueError(f"sampling_rate: expected a number in (0, 1], found {sampling_rate:g}")
    if sampling_rate == 1.0:
        return epsilon
    if epsilon > 700.0:  # e^epsilon overflows
        return epsilon + math.log(sampling_rate)
    return math.log1p(sampling_rate * math.expm1(epsilon))


def advanced_epsilon(epsilon: float, releases: int, delta: float) -> float:
    """Return advanced composition: eps sqrt(2 T ln(1/delta)) + T eps (e^eps - 1).

    A valid bound, but never better than `composed_epsilon`, and worse than T eps where eps is not small. The arguments
    are those of `composed_epsilon`.
    """
    checks.at_least(0.0, epsilon=epsilon)
    checks.whole(0, releases=releases)
    checks.open_unit(delta=delta)
    growth = math.expm1(epsilon) if epsilon < 700.0 else math.inf
    return epsilon * math.sqrt(-2.0 * releases * math.log(delta)) + (releases * epsilon * growth if releases else 0.0)


def composed_epsilon(epsilon: float, releases: int, delta: float) -> float:
    """Return the smallest epsilon of T releases of epsilon each, at delta.

    T randomized responses, each right with probability p = e^eps / (1 + e^eps), have the privacy loss (2 J - T) eps
    with J right answers: delta = P[J > j] - e^total P'[J > j], j = (total/eps + T)/2, where J is binomial with p under
    one data set and with 1 - p under its neighbor. This is exact for randomized responses and a bound for all other
    releases; it is at most T eps, and at most `advanced_epsilon`. For 2^36 releases and more the result is a bound.

    `epsilon` >= 0 is that of one release; `releases` is T >= 0; `delta` is in (0, 1).
    """
    checks.at_least(0.0, epsilon=epsilon)
    checks.whole(0, releases=releases)
    checks.open_unit(delta=delta)
    if epsilon == 0.0 or releases == 0:
        return 0.0
    # The loss has mean T eps tanh(eps / 2), and each release changes it by at most eps: Azuma's inequality.
    spread = epsilon * math.sqrt(-2.0 * releases * math.log(delta))
    bound = min(releases * epsilon, releases * epsilon * math.tanh(0.5 * epsilon) + spread)
    if releases > _MOST_RELEASES or (epsilon < _SMALL and bound > _MODERATE):
        return bound
    low, high = releases // 2, min(releases, math.ceil(0.5 * (releases + bound / epsilon)) + 1)
    if _difference(epsilon, releases, low, 0.0)[2] <= delta:
        return 0.0
    while high - low > 1:  # bisection for the first sufficient loss (2 j - T) eps
        middle = (low + high) // 2
        fits = _difference(epsilon, releases, middle, (2 * middle - releases) * epsilon)[2] <= delta
        low, high = (low, middle) if fits else (middle, high)
    # Between neighboring losses, delta is a - e^(total - loss) b.
    loss = max(0.0, (2 * low - releases) * epsilon)
    here, there, _ = _difference(epsilon, releases, low, loss)
    between = loss + math.log((here - delta) / there) if there > 0.0 else math.inf
    return min(bound, max(0.0, between), (2 * high - releases) * epsilon)


def _difference(epsilon: float, releases: int, j: int, total: float) -> tuple[float, float, float]:
    """Return P[J > j], e^total P'[J > j] and their difference."""
    from scipy.stats import binom

    p, rest = 1.0 / (1.0 + math.exp(-epsilon)), math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
    if j >= releases:
        return 0.0, 0.0, 0.0
    here = float(scipy.special.betainc(j + 1.0, releases - j, p))
    if total < _MODERATE:
        there = math.exp(total) * float(scipy.special.betainc(j + 1.0, releases - j, rest))
        return here, there, here - there
    # P'[J = i] = e^(-(2 i - T) eps) P[J = i], which falls so fast that only negligible terms underflow
    i = np.arange(j + 1, min(releases, j + 1 + math.ceil(20.0 / epsilon)) + 1, dtype=np.float64)
    weights = np.exp(np.minimum(total - (2.0 * i - releases) * epsilon, 0.0))
    there = float(binom.pmf(i, releases, p) @ weights)
    return here, there, here - there
