"""The noise that a promised (epsilon, delta) needs, and how long a promise lasts: bisection over the accountant."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from scipy import optimize

from simfl.errors import ConditionError
from simfl.privacy import checks
from simfl.privacy.accounting import Accountant, Neighbors, Release, Sampling, epsilon_of

_MOST_NOISE = 1e6


@functools.lru_cache(maxsize=256)
def noise_multiplier_for(
    epsilon: float,
    delta: float,
    *,
    steps: int,
    sampling_rate: float = 1.0,
    sampling: Sampling = "poisson",
    neighbors: Neighbors = "add_or_remove",
    accountant: Accountant = "tightest",
) -> float:
    """Return the smallest noise multiplier z with which `steps` releases are (epsilon, delta)-private.

    Args:
        epsilon: > 0.
        delta: in (0, 1).
        steps: number of releases, >= 1.
        sampling_rate: q, share of the examples in each.
        sampling, neighbors, accountant: as in `simfl.privacy.accounting`.

    Returns:
        z, within 1e-4 of the smallest and not below it: its epsilon does not exceed the one asked for.

    Raises:
        ConditionError: if no amount of noise would do.
    """
    checks.positive(epsilon=epsilon)
    checks.whole(1, steps=steps)

    def spent(noise_multiplier: float, by: Accountant) -> float:
        release = Release(noise_multiplier, sampling_rate, sampling)
        return epsilon_of([(release, steps)], delta, neighbors=neighbors, accountant=by)

    return least_noise(spent, epsilon, accountant)


def least_noise(spent: Callable[[float, Accountant], float], epsilon: float, accountant: Accountant) -> float:
    """Return the smallest noise multiplier whose epsilon does not exceed the one given, within 1e-4 of itself.

    Args:
        spent: (noise multiplier, accountant) -> epsilon, which does not increase with the noise.
        epsilon: > 0.
        accountant: whose word counts. The Renyi accountant, which is cheap, says where to look.

    Raises:
        ConditionError: if no amount of noise would do.
    """

    def excess(log_z: float, by: Accountant) -> float:
        return math.log(min(max(spent(math.exp(log_z), by), 1e-12), 1e300) / epsilon)

    low, high = _bracket(lambda z: excess(math.log(z), "renyi") <= 0, 0.05)
    if accountant != "renyi":
        low, high = _bracket(lambda z: excess(math.log(z), accountant) <= 0, high)
    found = float(optimize.brentq(lambda log_z: excess(log_z, accountant), math.log(low), math.log(high), xtol=2e-5))
    while excess(found, accountant) > 0:
        found += 2e-5
    return math.exp(found)


def _bracket(enough: Callable[[float], bool], start: float) -> tuple[float, float]:
    """Return (too little, enough), not far apart."""
    high = start
    if enough(high):
        low = high / 1.2
        while low > 1e-6 and enough(low):
            low, high = low / 1.5, low
        return low, high
    step = 1.5
    while not enough(high):
        low, high = high, high * step
        if high > _MOST_NOISE:
            raise ConditionError(
                f"noise: expected a noise multiplier of at most {_MOST_NOISE:g}, found that it is not enough; "
                "ask for a larger epsilon or delta, or fewer steps"
            )
    return low, high


def releases_within(epsilon_after: Callable[[int], float], epsilon: float, most: int, at_least: int = 0) -> int:
    """Return the largest number of releases, up to `most`, whose epsilon does not exceed the one given.

    Args:
        epsilon_after: number of releases -> epsilon, which does not decrease.
        epsilon: the budget.
        most: where to stop looking.
        at_least: a number that is known to be within.
    """
    if epsilon_after(most) <= epsilon:
        return most
    low, high = at_least, at_least + 1
    while high < most and epsilon_after(high) <= epsilon:
        low, high = high, at_least + 2 * (high - at_least)
    high = min(high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if epsilon_after(middle) <= epsilon else (low, middle)
    return low
