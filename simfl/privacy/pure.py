"""Pure releases in closed form: amplification by sampling, and what many of them cost together.

Kairouz, Oh and Viswanath 2015, "The composition theorem for differential privacy", https://arxiv.org/abs/1311.0776:
whatever k releases of epsilon each are, chosen one after the other in view of those before, they hide no less than k
randomized responses, and these are known exactly. Dwork, Rothblum and Vadhan 2010, "Boosting and differential privacy",
https://doi.org/10.1109/FOCS.2010.12, is the older bound that papers quote as advanced composition.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from simfl.privacy import checks


def amplified_epsilon(epsilon: float, sampling_rate: float) -> float:
    """Return epsilon of one release on a random share q of the data: ln(1 + q (e^epsilon - 1)).

    Under add_or_remove for Poisson sampling, under replace_one for batches of fixed size without replacement. Balle,
    Barthe and Gaboardi 2018, "Privacy amplification by subsampling", Theorems 8 and 9,
    https://arxiv.org/abs/1807.01647.

    Args:
        epsilon: >= 0, of one release on all data.
        sampling_rate: q in (0, 1].
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
    """Return what advanced composition says of T releases: eps sqrt(2 T ln(1/delta)) + T eps (e^eps - 1).

    A valid bound, but never better than `composed_epsilon`, and worse than T eps where eps is not small.

    Args:
        epsilon: >= 0, of one release.
        releases: T >= 0.
        delta: in (0, 1).
    """
    checks.at_least(0.0, epsilon=epsilon)
    checks.whole(0, releases=releases)
    checks.open_unit(delta=delta)
    growth = math.expm1(epsilon) if epsilon < 700.0 else math.inf
    return epsilon * math.sqrt(-2.0 * releases * math.log(delta)) + (releases * epsilon * growth if releases else 0.0)


def composed_epsilon(epsilon: float, releases: int, delta: float) -> float:
    """Return the smallest epsilon such that T releases of epsilon each are together (that, delta)-private.

    Of T randomized responses, each right with probability p = e^eps / (1 + e^eps), the privacy loss is (2 J - T) eps
    with J right answers: delta = P[J > j] - e^total P'[J > j], j = (total/eps + T)/2, where J is binomial with p under
    one data set and with 1 - p under its neighbor. Exact: attained by them, a bound for all others; at most T eps, and
    never more than `advanced_epsilon`.

    Args:
        epsilon: >= 0, of one release.
        releases: T >= 0.
        delta: in (0, 1).
    """
    checks.at_least(0.0, epsilon=epsilon)
    checks.whole(0, releases=releases)
    checks.open_unit(delta=delta)
    if epsilon == 0.0 or releases == 0:
        return 0.0
    here, there = _tails(epsilon, releases)
    losses = epsilon * (2.0 * np.arange(releases + 1) - releases)
    enough = _difference(here, there, np.maximum(losses, 0.0)) <= delta
    above = int(np.argmax(enough & (losses >= 0.0)))  # the first loss that will do; the last one always does
    if losses[above - 1] <= 0.0 and _difference(here[above - 1], there[above - 1], 0.0) <= delta:
        return 0.0
    # From one loss to the next, delta is a - e^total b.
    return float(np.clip(math.log(math.exp(here[above - 1]) - delta) - there[above - 1], 0.0, losses[above]))


def _difference(here: NDArray[np.float64], there: NDArray[np.float64], total: Any) -> NDArray[np.float64]:
    """e^here - e^(total + there), where not negative."""
    with np.errstate(invalid="ignore"):
        ratio = np.where(np.isneginf(there), 0.0, np.exp(np.minimum(total + there - here, 0.0)))
    return np.exp(here) * (1.0 - ratio)


def _tails(epsilon: float, releases: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ln P[J > j] for j = 0..T, with J binomial of p = e^eps / (1 + e^eps), and the same for 1 - p."""
    j = np.arange(releases + 1)
    log_choose = gammaln(releases + 1.0) - gammaln(j + 1.0) - gammaln(releases - j + 1.0)
    log_p, log_rest = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))
    tails = []
    for up, down in ((log_p, log_rest), (log_rest, log_p)):
        at_least = np.logaddexp.accumulate((log_choose + j * up + (releases - j) * down)[::-1])[::-1]
        tails.append(np.append(at_least[1:], -np.inf))
    return tails[0], tails[1]
