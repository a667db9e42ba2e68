"""Test secret draws: how many members were in releases, against the declared rate.

An account of secret draws says that each of n members (examples of a client, or users) is in a release with probability
q. The auditor of a run knows who was in which release, which the adversary of the account does not. Tests of
T releases at one rate:

- `total`: the number of members in all releases is binomial (T n, q). More of them refute the rate.
- `most`: each member's number of releases is binomial (T, q). The largest is compared with it n times.

If members are drawn independently, and T is fixed, four more tests tell other draws of the same rate, such as turns or
cohorts of a fixed size, whose account is another one:

- `sizes`: each release's number of members is binomial (n, q). The largest and the smallest are compared with it.
- `members`, `releases`: the number of members (of releases) whose count is between the quartiles of its law is
  binomial. There are too many of them if draws are even, and too few if they come together.
- `again`: the number of members of two releases that are 1, 2, ... `LAGS` apart, counted in disjoint pairs, is binomial
  with q^2.

A test fails at a share of `FALSE_ALARMS` (Bonferroni over all comparisons). The number of a client's releases may
depend on the sizes of its batches, which take time. So p-values of these are multiplied by T (T + 1): whatever ends the
run, the sum over T of the chances of an alarm is bounded. Fewer draws than declared are no alarm there, because a large
batch may be lost more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from simfl.attacks.faults import TRIALS
from simfl.attacks.noise import FALSE_ALARMS

#: Maximum distance of releases whose common members are counted.
LAGS = 8
#: Factor of the rate in the artificial fault.
FACTOR = 3
#: The artificial fault.
MORE = f"{FACTOR} times as many drawn"


@dataclass(frozen=True)
class DrawVerdict:
    """Secret draws of a run.

    `drawn` members were in releases, and `expected` follow from the rates. `p_value` bounds the chance of such draws if
    they are as declared; 1 without any.
    """

    drawn: int
    expected: float
    p_value: float


class DrawCheck:
    """Who was in releases with secret draws.

    `independent`: members are drawn independently, and the number of releases is fixed beforehand.
    """

    def __init__(self, independent: bool) -> None:
        self._independent = independent
        self._counts: dict[float, NDArray[np.int64]] = {}
        self._made: dict[float, int] = {}
        self._rows: dict[float, list[NDArray[np.bool_]]] = {}

    def hear(self, rate: float, present: NDArray[np.bool_]) -> None:
        """Note which of n members are in a release, [n], each drawn at `rate`."""
        if rate >= 1.0:
            return
        self._counts[rate] = self._counts.get(rate, np.zeros(len(present), dtype=np.int64)) + present
        self._made[rate] = self._made.get(rate, 0) + 1
        if self._independent:
            self._rows.setdefault(rate, []).append(present)

    def verdict(self) -> DrawVerdict:
        """Return the verdict on all draws."""
        drawn = sum(int(counts.sum()) for counts in self._counts.values())
        expected = sum(rate * made * len(self._counts[rate]) for rate, made in self._made.items())
        chances = [len(self._counts) * self._p_value(rate) for rate in self._counts]
        return DrawVerdict(drawn, expected, min([1.0, *chances]))

    def shows(self, generator: np.random.Generator) -> dict[str, bool]:
        """Return whether simulated totals show more draws; empty without any draw."""
        if not self._counts:
            return {}

        def seen(rate: float) -> bool:
            trials = self._made[rate] * len(self._counts[rate])
            drawn = generator.binomial(trials, min(1.0, FACTOR * rate), TRIALS)
            weight = len(self._counts) * self._weight(self._made[rate]) * self._tests
            return bool((weight * stats.binom.sf(drawn - 1, trials, rate) < FALSE_ALARMS).all())

        return {MORE: any(map(seen, self._counts))}

    @property
    def _tests(self) -> int:
        return 6 + LAGS if self._independent else 2

    def _weight(self, made: int) -> int:
        """Return the factor of p-values for a number of releases."""
        return 1 if self._independent else made * (made + 1)

    def _p_value(self, rate: float) -> float:
        counts, made = self._counts[rate], self._made[rate]
        chances = [
            float(stats.binom.sf(counts.sum() - 1, made * len(counts), rate)),
            len(counts) * float(stats.binom.sf(counts.max(initial=0) - 1, made, rate)),
        ]
        if self._independent:
            chances += _chances(np.stack(self._rows[rate]), rate)
        return self._tests * self._weight(made) * min(chances)


def _chances(table: NDArray[np.bool_], rate: float) -> Sequence[float]:
    """Return p-values of independent draws, [releases, members]."""
    made, count = table.shape
    sizes, times = table.sum(axis=1), table.sum(axis=0)
    chances = [
        made * float(stats.binom.sf(sizes.max() - 1, count, rate)),
        made * float(stats.binom.cdf(sizes.min(), count, rate)),
        _central(sizes, count, rate),
        _central(times, made, rate),
    ]
    for lag in range(1, LAGS + 1):
        # Releases t and t + lag are a pair if t is in an even block of `lag` releases: no release is in two pairs.
        first = [t for t in range(made - lag) if (t // lag) % 2 == 0]
        again = int((table[first] & table[[t + lag for t in first]]).sum())
        chances.append(_two_sided(again, len(first) * count, rate**2))
    return chances


def _central(counts: NDArray[np.int64], trials: int, rate: float) -> float:
    """Return the p-value of the number of binomial counts between their quartiles."""
    low, high = stats.binom.ppf((0.25, 0.75), trials, rate)
    chance = float(stats.binom.cdf(high, trials, rate) - stats.binom.cdf(low - 1, trials, rate))
    return _two_sided(int(((low <= counts) & (counts <= high)).sum()), len(counts), chance)


def _two_sided(count: int, trials: int, chance: float) -> float:
    tails = stats.binom.cdf(count, trials, chance), stats.binom.sf(count - 1, trials, chance)
    return min(1.0, 2.0 * float(min(tails)))
