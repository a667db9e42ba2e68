"""The claim of Theorem 2 for the noise and the mini-batches of a run."""

from __future__ import annotations

import math
from collections.abc import Callable

from simfl.accounts.check import check_gaussian
from simfl.comparison.claims import Claimed
from simfl.errors import ConditionError
from simfl.papers.adp2sgd.theory import smallest_admissible_epsilon, theorem2
from simfl.privacy.ledger import Ledger
from simfl.privacy.releases import Releases
from simfl.scenario.privacy import MechanismConfig


def claimed(privacy: MechanismConfig, ledger: Ledger, releases: Releases) -> list[Claimed]:
    """Return the smallest epsilon for which Theorem 2 accepts the noise."""
    check_gaussian(privacy, ledger)
    count = len(ledger.sizes)
    setting = {
        "num_workers": count,
        "examples": int(ledger.sizes.min()),
        "batch_size": ledger.batch_size,
        "steps": max(1, sum(releases.total(k) for k in range(count))),
    }
    level = min(ledger.levels)

    def enough(epsilon: float) -> bool:
        return theorem2(epsilon, ledger.delta, **setting).noise_multiplier <= level

    source, objection, epsilon = "A(DP)²SGD, Theorem 2", "", math.nan
    try:
        least = smallest_admissible_epsilon(ledger.delta, **setting)
        if math.isinf(least):
            raise ConditionError("Theorem 2 covers no epsilon for these batches and steps")
        epsilon = _smallest(enough, least * (1 + 1e-9))
        if math.isinf(epsilon):
            objection = "Theorem 2 covers no epsilon with so little noise"
            epsilon = math.nan
    except ConditionError as error:
        objection = str(error)
    return [Claimed(epsilon, ledger.delta, "replace_one", source, objection)] * count


def _smallest(enough: Callable[[float], bool], least: float) -> float:
    """Return the smallest sufficient number >= least, within 1e-6; inf for none."""

    def covered(epsilon: float) -> bool:
        try:
            return enough(epsilon)
        except ConditionError:
            return False  # too large: the theorem's other condition bounds epsilon from above

    if covered(least):
        return least
    high = least
    while not covered(high):
        high *= 1.1
        if high > 1e4 * least:
            return math.inf
    low = high / 1.1
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if covered(middle) else (middle, high)
    return high
