"""What correct guesses about canaries prove about epsilon.

In one run, a fair coin for each of m canaries decides whether it is in or out. The auditor gives every canary a score,
guesses "in" for the highest scores and "out" for the lowest, and makes no guess about the others. Privacy limits how
many of r guesses can be right; more right guesses refute the claim.

Two tests of the number v of right guesses:

- Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run", https://arxiv.org/abs/2305.08846,
  Theorem 5.2 and Appendix D: under (epsilon, delta)-DP the count is dominated by W + F, with W binomial
  (r, q = e^epsilon / (1 + e^epsilon)) and F >= 0 of mean at most 2 m delta: `p_value` and `epsilon_lower_bound`.
- Mahloujifar, Melis and Chaudhuri 2024, "Auditing f-differential privacy in one run",
  https://arxiv.org/abs/2410.22235: a test of all certified (epsilon, delta) at once (`profile_p_value`). For a Gaussian
  it refutes noise that is half as large as claimed with ten times fewer canaries.

The number of guesses must not depend on the result. It is fixed in advance (`default_guesses`). If several numbers are,
each is tested at its share of the error (a union bound, in `judge`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from simfl.privacy import checks

#: (epsilon, delta) pairs that hold for one mechanism.
Profile = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class AuditVerdict:
    """The conclusion from the guesses of one audit.

    The mechanism is not (epsilon, delta)-DP for any epsilon below `lower_bound`, at the given confidence. `p_value` is
    at least the chance of as many right guesses if the certified curve holds; 1 without one.
    """

    lower_bound: float
    p_value: float
    correct: int
    guesses: int
    canaries: int


def p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Bound the chance of `correct` right guesses or more under (epsilon, delta)-DP.

    With W ~ Binomial(r, q), q = e^epsilon / (1 + e^epsilon):

        p = P[W >= v] + 2 m delta max_{1 <= i <= v} P[v > W >= v - i] / i

    (Steinke et al. 2023, Theorem 5.2: the maximum is over the ways to use the mean 2 m delta of F; the best one is F =
    i with probability 2 m delta / i for one i.) With delta = 0 it is the binomial tail.

    A count that W reaches with probability above 1/2 is not evidence, and gets p = 1. There the formula would not be a
    bound: with m = r = 2, epsilon = 2, delta = 0.1 and v = 1 it gives 0.9915, but the mechanism with the lowest
    probability of two wrong guesses, found by linear programming over all mechanisms, reaches 0.9991. For counts that
    are evidence, no mechanism was found that exceeds the formula.

    v = `correct`, r = `guesses`, fixed before the scores are seen, and m = `canaries` >= 1, with 0 <= v <= r <= m;
    `epsilon` >= 0 may be infinite; `delta` is in [0, 1].
    """
    _check_counts(correct, guesses, canaries)
    checks.not_negative(epsilon=epsilon)
    checks.unit(delta=delta)
    if correct == 0 or math.isinf(epsilon):
        return 1.0
    q = float(special.expit(epsilon))
    least = np.arange(correct, 0, -1)
    at_least = np.append(special.betainc(least, guesses - least + 1, q), 1.0)  # P[W >= v - i], i = 0..v
    if at_least[0] > 0.5:
        return 1.0
    extra = 0.0
    if delta > 0.0:
        extra = 2.0 * canaries * delta * float(np.max((at_least[1:] - at_least[0]) / np.arange(1, correct + 1)))
    return min(1.0, float(at_least[0]) + extra)


def epsilon_lower_bound(correct: int, guesses: int, canaries: int, delta: float, confidence: float = 0.95) -> float:
    """Return the largest epsilon >= 0 that the guesses refute at this delta, or 0.

    By bisection on `p_value` < 1 - confidence, with its arguments. A mechanism that is (epsilon', delta)-DP for a
    smaller epsilon' is also (epsilon, delta)-DP, so every epsilon below the bound is refuted too.
    """
    level = error_at(confidence)
    return _largest(lambda epsilon: p_value(correct, guesses, canaries, epsilon, delta) < level)


def pair_lower_bound(
    correct: int, guesses: int, pairs: int, delta: float, neighbors: str, confidence: float = 0.95
) -> float:
    """Return the largest epsilon that guesses about pairs split by a coin refute.

    A guess which of two examples was used distinguishes two data sets that differ by a replaced example. A mechanism
    that is (epsilon, delta)-DP under add_or_remove is (2 epsilon, (1 + e^epsilon) delta)-DP for these. The arguments
    are as in `p_value`, a pair for each canary; the bound holds at `delta` for `neighbors`, "replace_one" or
    "add_or_remove".
    """
    if neighbors == "replace_one":
        return epsilon_lower_bound(correct, guesses, pairs, delta, confidence)
    level = error_at(confidence)

    def refuted(epsilon: float) -> bool:
        group = min(1.0, (1.0 + math.exp(min(epsilon, 700.0))) * delta)
        return p_value(correct, guesses, pairs, 2.0 * epsilon, group) < level

    return _largest(refuted)


def _largest(refuted: Callable[[float], bool]) -> float:
    """Return the largest refuted epsilon >= 0, by bisection; 0 if none is refuted."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2.0 * high
    while high - low > 1e-9 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def profile_p_value(correct: int, guesses: int, canaries: int, profile: Profile) -> float:
    """Bound the chance of `correct` right guesses or more if a profile holds.

    Let p_i be the probability of exactly i right guesses, and j a random canary. If the coin of j is flipped, a right
    guess on j among k right ones becomes a wrong guess beside k - 1 right ones. So, for every k (Mahloujifar et al.
    2024),

        r_k <= F(h_{k-1}),   r_k = sum_{i >= k} (i / m) p_i,   h_k = sum_{i >= k} ((r - i) / m) p_i,

    where the concave F bounds the probability of an event by that on a neighboring data set: F(x) = min over the
    profile of min(e^epsilon x + delta, 1 - e^-epsilon (1 - delta - x)). Given P[>= v right] = tau, the constraints
    require the least mass on fewer right guesses if all of tau is on v itself; tau is possible if the total mass is at
    most 1. The p-value is the largest possible tau, found by bisection. `correct`, `guesses` and `canaries` are as in
    `p_value`; infinite epsilons of the profile are ignored.
    """
    _check_counts(correct, guesses, canaries)
    points = [(e, d) for e, d in profile if math.isfinite(e)]
    if not all(e >= 0.0 and 0.0 <= d <= 1.0 for e, d in points):
        raise ValueError("profile: expected pairs of epsilon >= 0 and delta from 0 to 1")
    if correct == 0 or not points:
        return 1.0
    factors = [(math.exp(min(e, 700.0)), d) for e, d in points]

    def least(true_rate: float) -> float:
        """Return the smallest x with F(x) >= true_rate."""
        # Few points and many calls: faster without arrays.
        above = max([(true_rate - d) / factor for factor, d in factors])
        below = max([1 - d - factor * (1 - true_rate) for factor, d in factors])
        return max(0.0, above, below)

    def possible(tau: float) -> bool:
        right, wrong = tau * correct / canaries, tau * (guesses - correct) / canaries
        for i in range(correct - 1, -1, -1):
            more = least(right) - wrong
            if more <= 0.0:
                break  # neither changes from here on
            wrong += more
            right += more * i / (guesses - i)
            if right + wrong > guesses / canaries:
                return False
        return right + wrong <= guesses / canaries

    if possible(1.0):
        return 1.0
    low, high = -700.0, 0.0  # of ln tau
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if possible(math.exp(middle)) else (low, middle)
    return math.exp(high)


def default_guesses(canaries: int) -> int:
    """Return an even number of guesses near max(m / 8, min(m / 2, 100)).

    An eighth is near the optimum for Gaussian noise of any size if m is in the thousands. For smaller m, fewer than a
    hundred guesses could refute little even if all were right: r right guesses bound epsilon by about ln(r / 3).
    """
    _check_counts(0, 0, canaries)
    wanted = max(canaries / 8, min(canaries / 2, 100.0))
    return min(canaries, max(1, 2 * round(wanted / 2)))


def guess(scores: NDArray[np.float64], guesses: int) -> NDArray[np.int8]:
    """Guess +1 (in) for the highest scores, -1 (out) for the lowest, 0 for others.

    For an odd number of guesses the larger half is "in". Equal scores are ranked in order of the canaries, which does
    not depend on their coins. Scores are float [m], higher for canaries that seem to be in; returns int8 [m].
    """
    _check_counts(0, guesses, len(scores))
    order = np.argsort(np.asarray(scores, dtype=np.float64), kind="stable")
    guessed = np.zeros(len(scores), dtype=np.int8)
    guessed[order[: guesses // 2]] = -1
    guessed[order[len(scores) - (guesses - guesses // 2) :]] = 1
    return guessed


def right_guesses(scores: NDArray[np.float64], included: NDArray[np.bool_], guesses: int) -> int:
    """Return how many of r guesses are right; see `guess` and `judge`."""
    guessed = guess(scores, guesses)
    return int(np.count_nonzero(np.where(included, guessed == 1, guessed == -1)))


def judge(
    scores: NDArray[np.float64],
    included: NDArray[np.bool_],
    guess_numbers: Sequence[int],
    *,
    delta: float,
    profile: Profile = (),
    confidence: float = 0.95,
) -> AuditVerdict:
    """Guess, count the right guesses, and conclude.

    `scores`, float [m], are higher for canaries that seem to be in; `included`, bool [m], are the coins. The numbers of
    guesses are fixed before the scores are seen. Each is tested at its share (1 - confidence) / len(guess_numbers), and
    the best result is returned. `delta` is that of the lower bound, `profile` the certified curve.
    """
    if len(guess_numbers) == 0:
        raise ValueError("guess_numbers: expected one number of guesses or more, found none")
    shares = len(guess_numbers)
    level = error_at(confidence) / shares
    verdicts = []
    for guesses in guess_numbers:
        correct = right_guesses(scores, included, guesses)
        lower = epsilon_lower_bound(correct, guesses, len(scores), delta, 1.0 - level)
        p = min(1.0, shares * profile_p_value(correct, guesses, len(scores), profile))
        verdicts.append(AuditVerdict(lower, p, correct, guesses, len(scores)))
    best = min(verdicts, key=lambda verdict: (verdict.p_value, -verdict.lower_bound))
    return replace(best, lower_bound=max(verdict.lower_bound for verdict in verdicts))


def error_at(confidence: float) -> float:
    """Return 1 - confidence; raise a `ValueError` unless it is between 0 and 1."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence: expected a number between 0 and 1, found {confidence}")
    return 1.0 - confidence


def _check_counts(correct: int, guesses: int, canaries: int) -> None:
    if canaries < 1:
        raise ValueError(f"canaries: expected an integer >= 1, found {canaries}")
    if not 0 <= guesses <= canaries:
        raise ValueError(f"guesses: expected an integer from 0 to {canaries}, the canaries, found {guesses}")
    if not 0 <= correct <= guesses:
        raise ValueError(f"correct: expected an integer from 0 to {guesses}, the guesses, found {correct}")
