"""Turn the noise of a server's releases into independent standard normal numbers.

An audit tests noise that is drawn afresh for each release. Two kinds of noise of sums become such noise first.

**Correlated over releases** (`simfl.privacy.strategies`). The releases are y = x + s zeta with zeta = Z xi, s = z C and
the sums x of updates. Let W be the inverse of the Cholesky factor of Z Z^T, so that W Z Z^T W^T = 1. Then

    W y = W x + s nu,    nu independent standard normal vectors.

W is lower triangular, so row n is complete when release n is, and (W x)_n depends on nu_0 ... nu_(n-1) only, as in
independent releases. A canary adds its direction times p_n to release n (p_n: C times its weight, 0 if it is not in
it). Its log likelihood ratio, in or out, is

    (<W p, W y> - |W p|^2 / 2) / s^2,    <.,.> over releases, y along the direction,

the best statistic by Neyman and Pearson. For a Toeplitz matrix, Z is the inverse of the strategy S and W = S: that is
<S p, S x + s xi>, and |S p| <= sens(S) C is what the account allows. For trees, S has more rows than there are
releases. The account covers S x + s xi, from which y follows, so |W p| <= |S p|.

**On a grid** (`simfl.privacy.distributed`). The server sees y = g k, k = sum_i k_i + N, where N is a sum of discrete
Gaussians and k_i are integers. With F the distribution function of N and a uniform U,

    w = Phi^-1(F(k - 1) + U P[N = k])

is standard normal without k_i. It is an odd increasing function of k + U - 1/2. The law of N + U - 1/2 is symmetric and
unimodal, a mixture of uniform ones on symmetric intervals, so k_i make |w| larger in law. Coordinates are independent,
so this holds for any sum of increasing functions of |w|, as Anderson's inequality (`simfl.attacks.noise`) does for
Gaussian noise. Guesses use y itself.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from simfl.privacy.distributed import GridSum
from simfl.privacy.strategies import Strategy

Floats = NDArray[np.float64]

#: Largest number of releases whose correlated noise an audit takes apart.
MOST_RELEASES = 4096
#: Entries of W below this are rounding errors.
NEGLIGIBLE = 1e-12
#: Deviation of a user's noise, in steps of the grid, from which a sum of discrete Gaussians is one.
GAUSSIAN_FROM = 4.0
#: Deviation of a sum's noise, in steps, from which the grid is finer than an audit can tell.
FINE_FROM = 1000.0
#: End of a law of integers, in standard deviations.
TAIL = 12.0


class Whitening:
    """Makes the noise of releases independent, in order.

    Args:
        strategy: how it is correlated.
        releases: T, the number of releases.
    """

    def __init__(self, strategy: Strategy, releases: int) -> None:
        mixing = strategy.matrix(releases)
        factor = np.linalg.cholesky(mixing @ mixing.T)
        rows: Floats = linalg.solve_triangular(factor, np.eye(releases), lower=True)
        #: W, [T, T].
        self.rows = np.where(np.abs(rows) > NEGLIGIBLE, rows, 0.0)
        used = self.rows != 0.0
        self._last = releases - 1 - np.argmax(used[::-1], axis=0)
        self._kept: dict[int, Floats] = {}
        self._number = 0

    def next(self, values: Floats) -> Floats:
        """Return the row of W times all releases so far, of which this is the newest."""
        number, self._number = self._number, self._number + 1
        self._kept[number] = values
        made: Floats = np.zeros_like(values)
        for other, earlier in self._kept.items():
            made += self.rows[number, other] * earlier
        self._kept = {other: earlier for other, earlier in self._kept.items() if self._last[other] > number}
        return made


@functools.lru_cache(maxsize=32)
def law_of_sum(deviation: float, members: int) -> Floats:
    """Return P[N = 0], P[N = 1], ... of a sum of discrete Gaussians."""
    total = deviation * math.sqrt(members)
    if deviation >= GAUSSIAN_FROM:
        mass = np.exp(-0.5 * np.square(np.arange(math.ceil(TAIL * total) + 1) / total))
        return np.asarray(mass / (mass[0] + 2.0 * mass[1:].sum()))
    places = np.arange(-math.ceil(TAIL * deviation), math.ceil(TAIL * deviation) + 1)
    one = np.exp(-0.5 * np.square(places / deviation))
    law = one = one / one.sum()
    for _ in range(members - 1):
        law = np.convolve(law, one)
    return np.asarray(law[len(law) // 2 :])


def normal_on_grid(values: Floats, grid: GridSum, members: int, generator: np.random.Generator) -> Floats:
    """Return w of a release's coordinates."""
    units, deviation = values / grid.step, float(grid.deviation)
    uniform = generator.random(values.shape)
    total = deviation * math.sqrt(members)
    if total > FINE_FROM:
        return np.asarray((units + uniform - 0.5) / math.sqrt(total**2 + 1.0 / 12.0))
    law = law_of_sum(deviation, members)
    beyond = np.append(np.cumsum(law[::-1])[::-1], 0.0)  # P[N >= k], k = 0, 1, ...
    whole = np.rint(units).astype(np.int64)
    size = np.minimum(np.abs(whole), len(law) - 1)
    # The share of the law on the side of k, so that both tails keep all digits.
    outside = beyond[size + 1] + uniform * (beyond[size] - beyond[size + 1])
    outside = np.where(whole == 0, beyond[1] + uniform * law[0], outside)
    normal = -special.ndtri(np.clip(outside, 1e-300, 1.0))
    return np.asarray(np.where(whole < 0, -normal, normal))
