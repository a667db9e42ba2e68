"""Noise for an epsilon, and releases within a budget, by search."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import scipy

from simfl.errors import ConditionError
from simfl.privacy.accounting import Accountant

_LEAST_NOISE, _MOST_NOISE = 1e-4, 1e6


def least_noise(spent: Callable[[float, Accountant], float], epsilon: float, accountant: Accountant) -> float:
    """Return the smallest noise multiplier within epsilon, to 1e-4 of itself.

    `spent` is (noise multiplier, accountant) -> epsilon, which does not increase with the noise. The cheap Renyi
    accountant brackets the result, which `accountant` then determines.

    Raises:
        ConditionError: no amount of noise is enough.
    """

    def excess(log_z: float, by: Accountant) -> float:
        return math.log(min(max(spent(math.exp(log_z), by), 1e-12), 1e300) / epsilon)

    low, high = _bracket(lambda z: excess(math.log(z), "renyi") <= 0, 0.05)
    if accountant != "renyi" and low < high:
        low, high = _bracket(lambda z: excess(math.log(z), accountant) <= 0, high)
    if low == high:
        return high
    log_low, log_high = math.log(low), math.log(high)
    log_z = float(scipy.optimize.brentq(lambda log_z: excess(log_z, accountant), log_low, log_high, xtol=2e-5))
    while excess(log_z, accountant) > 0:
        log_z += 2e-5
    if accountant == "tightest" and excess(log_z, "renyi") <= 0.0:  # the two agree here, and their searches may not
        return min(math.exp(log_z), least_noise(spent, epsilon, "renyi"))
    return math.exp(log_z)


def _bracket(enough: Callable[[float], bool], start: float) -> tuple[float, float]:
    """Return close values of noise, (too little, enough), or twice the least noise."""
    high, step = start, 1.2
    if enough(high):
        while high > _LEAST_NOISE and enough(low := max(_LEAST_NOISE, high / step)):
            high, step = low, 1.5 * step
        return (high, high) if high == _LEAST_NOISE else (low, high)
    step = 1.5
    while not enough(high):
        low, high = high, high * step
        if high > _MOST_NOISE:
            raise ConditionError(
                f"noise: expected a noise multiplier of at most {_MOST_NOISE:g}, found that it is not enough; "
                "ask for a larger epsilon or delta, or fewer steps"
            )
    return low, high


def releases_within(
    epsilon_after: Callable[[int], float], epsilon: float, most: int, first: int = 1, close: float = 1.0
) -> int:
    """Return the largest number of releases, up to `most`, within epsilon.

    Epsilon grows approximately like a power of the number, a half for few and one for many releases. So the next number
    is interpolated in logarithms, which needs few evaluations; each may be expensive. `epsilon_after` is number of
    releases -> epsilon, which does not decrease; `first` is evaluated first. The search ends at a number that spends at
    least the share `close` of the budget.
    """
    low, high = 0, most + 1  # within the budget, and beyond it
    seen: dict[int, float] = {}
    guess = max(1, first)
    while high - low > 1:
        guess = max(low + 1, min(high - 1, guess))
        spent = seen[guess] = epsilon_after(guess)
        before = high - low
        low, high = (guess, high) if spent <= epsilon else (low, guess)
        if close < 1.0 and low and seen[low] >= close * epsilon:
            break
        # Interpolation approaches from one side only: from time to time the range is halved.
        stuck = len(seen) % 4 == 0 and high <= most and 2 * (high - low) > before
        guess = math.isqrt(max(1, low) * high) if stuck else _next_number(seen, guess, epsilon)
    return low


def _next_number(seen: Mapping[int, float], last: int, epsilon: float) -> int:
    """Return the number at which a power law through two points reaches epsilon.

    The points are the last one and the one nearest to it.
    """
    if not 0.0 < seen[last] < math.inf:
        return last * 64 if seen[last] == 0.0 else max(1, last // 64)
    others = [n for n in seen if n != last and 0.0 < seen[n] < math.inf and seen[n] != seen[last]]
    power = 0.5
    if others:
        near = min(others, key=lambda n: abs(math.log(n / last)))
        power = math.log(seen[near] / seen[last]) / math.log(near / last)
    ratio = epsilon / seen[last]  # underflows to 0 for the smallest budgets
    reach = math.log(ratio) / max(power, 0.05) if ratio > 0.0 else -math.inf
    guess = last * math.exp(max(-math.log(64.0), min(math.log(64.0), reach)))
    # When the guess is this near, one side of the budget is known: try the other one.
    return math.floor(guess) + (seen[last] <= epsilon and math.floor(guess) <= last)
