"""Separation of members from others by scores: the ROC curve and paired guesses.

DeLong, DeLong and Clarke-Pearson 1988, "Comparing the areas under two or more correlated receiver operating
characteristic curves", https://doi.org/10.2307/2531595, for the interval; Carlini, Chien, Nasr, Song, Terzis and Tramer
2022, "Membership inference attacks from first principles", https://arxiv.org/abs/2112.03570, for the reasons why the
true positive rate at a low false positive rate is more informative than the area.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata


def true_positive_rates(
    members: NDArray[np.float64], others: NDArray[np.float64], false_positive_rates: Sequence[float]
) -> NDArray[np.float64]:
    """Return the largest true positive rates at given false positive rates.

    `members` [m] and `others` [n] are scores, higher for examples that seem to have been used; rates are in [0, 1].
    """
    ordered = np.sort(others)[::-1]
    allowed = np.floor(np.asarray(false_positive_rates) * len(ordered) + 1e-9).astype(int)
    thresholds = np.append(ordered, -np.inf)[allowed]  # with n allowed, everything is above
    above = len(members) - np.searchsorted(np.sort(members), thresholds, side="right")
    rates: NDArray[np.float64] = above / len(members)
    rates[allowed == len(ordered)] = 1.0
    return rates


def area(
    members: NDArray[np.float64], others: NDArray[np.float64], confidence: float = 0.95
) -> tuple[float, float, float]:
    """Return the area under the ROC curve and its interval (DeLong).

    The area is P[member's score > other's] + P[equal] / 2. The interval assumes independent examples, two of each kind
    or more.
    """
    m, n = len(members), len(others)
    ranks = rankdata(np.concatenate((members, others)))
    of_members = (ranks[:m] - rankdata(members)) / n  # share of others below each member
    of_others = 1.0 - (ranks[m:] - rankdata(others)) / m
    auc = float(of_members.mean())
    deviation = float(np.sqrt(of_members.var(ddof=1) / m + of_others.var(ddof=1) / n))
    half = NormalDist().inv_cdf(0.5 + confidence / 2) * deviation
    return auc, max(0.0, auc - half), min(1.0, auc + half)


def right_pairs(members: NDArray[np.float64], others: NDArray[np.float64], guesses: int) -> int:
    """Return how many guesses on the r pairs that differ most are right.

    `members` and `others` are scores [m] of the two examples of each pair. A guess on equal scores counts as wrong.
    """
    gap = members - others
    largest = gap[np.argsort(-np.abs(gap), kind="stable")[:guesses]]
    return int(np.count_nonzero(largest > 0))
