"""Account for releases that contain a table of earlier gradients (SAGA).

A client has M fixed mini-batches. Release t takes one of them, m_t, uniformly, and is, as a sum over a mini-batch,

    v_t = S_t - T_(m_t) + (1 / M) sum_m T_m + z C xi_t,   then T_(m_t) <- S_t.

S_t is a sum of clipped gradients, and T_m is the last S of mini-batch m, 0 before the first. Let an example of
mini-batch j be replaced, which moves S by at most 2C. Given the draws m_1, m_2, ... and all earlier releases, v_t moves

    by at most 2C            the first time that j is drawn, for T_j is 0,
    by at most 2C (2 - 1/M)  at each further time: S and T_j may move in opposite directions,
    by at most 2C / M        in every other release after the first time: the table still has j.

The draws do not depend on data. An adversary that knows them sees a Gaussian mechanism: with j drawn N times in K
releases, mu(N)^2 = (2/z)^2 (1 + (N - 1) (2 - 1/M)^2 + (K - N) / M^2), and mu(0) = 0. One that does not know them sees
less. So

    delta(eps) <= sum_N Binomial(N; K, 1/M) delta of a Gaussian mechanism with mu(N) at eps.

This certifies no amplification by sampling within a release: v_t depends on earlier secret draws by the table, so that
no release can be considered alone. Only replacing an example is certified, for a mini-batch has a fixed size.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import scipy
from numpy.typing import NDArray

from simfl.privacy.accounting import Release
from simfl.privacy.closed_form import ClosedFormLedger
from simfl.privacy.gaussian import mixture_delta, smallest_epsilon
from simfl.privacy.ledger import Composition
from simfl.privacy.releases import Promise, Releases, Tally
from simfl.privacy.terms import View

#: Added to each delta: more than the rounding error of a sum of Gaussian deltas, and the numbers that are left out.
SLACK = 1e-13


def cost_of(rows: int, releases: int, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the squared changes, in clipping norms, of an example drawn `times`."""
    again = (times - 1.0) * (2.0 - 1.0 / rows) ** 2
    return np.where(times > 0.0, 1.0 + again + (releases - times) / rows**2, 0.0)


@functools.lru_cache(maxsize=4096)
def _chances(rows: int, releases: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the costs of numbers of draws, and their probabilities."""
    draws = scipy.stats.binom(releases, 1.0 / rows)
    least, most = int(draws.ppf(SLACK / 10.0)), min(releases, int(draws.isf(SLACK / 10.0)) + 1)
    times = np.arange(least, most + 1.0)
    chances = draws.pmf(times)
    chances[0] = draws.cdf(least)  # fewer draws count as `least`, which costs more
    return cost_of(rows, releases, times), chances


def delta_of(epsilon: float, rows: int, releases: int, moved_over_noise: float) -> float:
    """Return delta of a client's releases; `moved_over_noise` is 2 / z."""
    costs, chances = _chances(rows, releases)
    drawn = costs > 0.0
    return mixture_delta(epsilon, moved_over_noise * np.sqrt(costs[drawn]), chances[drawn]) + SLACK


@functools.lru_cache(maxsize=4096)
def epsilon_of_table(delta: float, rows: int, releases: int, moved_over_noise: float) -> float:
    """Return the smallest epsilon, rounded up, at which `delta_of` is at most delta."""
    if releases == 0:
        return 0.0
    if not math.isfinite(moved_over_noise) or delta <= SLACK:
        return math.inf
    return smallest_epsilon(delta, lambda epsilon: delta_of(epsilon, rows, releases, moved_over_noise))


class TableTally(Tally):
    """Counts releases with a table."""

    def hold(self, promise: Promise) -> None:
        """Accept that a client keeps gradients: the account counts them in later releases."""


class TableLedger(ClosedFormLedger):
    """Accounts for releases with a table; the arguments are those of `Ledger`."""

    counted_by = TableTally

    def _reason(self) -> str | None:
        if self.pure or self.terms.unit != "example":
            return "releases with a table of gradients have an account for mechanism: gaussian only"
        if self.terms.neighbors != "replace_one":
            return "releases with a table of gradients have an epsilon under neighbors: replace_one only; use it"
        return None

    def _sampled(self, sizes: set[int]) -> str:
        return (
            f"one of a client's ceil(n/{self.batch_size}) fixed mini-batches drawn for each release, earlier gradients "
            "counted in every later one, no amplification by sampling"
        )

    @property
    def _accountant(self) -> str:
        return "a mixture of Gaussian mechanisms over the number of draws, exact if draws are known"

    def _rows(self, examples: int) -> int:
        return -(-examples // self.nominal(examples))

    def _spent(self, examples: int, level: float, releases: int) -> float:
        moved = self.terms.moved / level if level else math.inf
        return epsilon_of_table(self.delta, self._rows(examples), releases, moved)

    def _level_of(self, client: int, releases: Releases) -> float:
        """Return the least noise of a client's releases."""
        return min((level for _, level in self._kinds_of(client, releases)), default=self.levels[client])

    def compositions(self, releases: Releases, view: View | None = None) -> list[Composition]:
        """Return releases that cost more: as if one mini-batch were drawn each time."""
        compositions: list[Composition] = []
        for client, n in enumerate(self.sizes.tolist()):
            made, level = releases.total(client), self._level_of(client, releases)
            cost = math.ceil(cost_of(self._rows(n), made, np.array(float(made))))
            compositions.append(((Release(level, 1.0, "none"), cost),) if made else ())
        return compositions
