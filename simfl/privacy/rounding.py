"""Noise on a grid: its law, its cost, and why floating point does not affect it.

Let z C be the noise scale of a client, g the largest power of two with g <= z C 2^-14, and n_i the clipped gradient of
example i rounded to whole multiples of g. A release is

    g (sum_i n_i + N),    N in Z^d with P[N = k] proportional to exp(-|k|^2 / (2 s^2)),    s = z C / g in [2^14, 2^15).

The sum is one of integers, exact in any order. Everything computed from it (the product with g, the step, the model) is
a function of these integers and of earlier releases. `simfl.tape.kernels` computes n_i by a loop over the examples, so
n_i depends only on the model and the example: not on the example's place in a batch, nor on the other examples. So
neighbors change only the sum of integers.

Sensitivity. The norm of a gradient is the root of a sum of d squares in float32, in an unknown order. With x
= d 2^-24 the square loses at most a share x / (1 - x) (Higham 2002, "Accuracy and stability of numerical algorithms",
section 3.1). So a clipped gradient is at most C ((1 - x) / (1 - 2 x))^(1/2) <= C (1 + x) for x <= 1/4, except for the
roundings of root, quotient, product and C, for which 16 2^-24 is more than enough. Rounding to the grid adds at most g
sqrt(d) / 2. An example more or less changes the sum by one n_i, an example replaced by two: in units of C,

    |shift| <= 1 + (d + 16) 2^-24 + z sqrt(d) 2^-15,    or twice that,    z' = z / (that bound) is the multiplier.

Account. Let p_m be the law of m + N, r = p_m / p_0, for a shift m in Z^d. Because k m maps the lattice onto itself,

    E_0[r^k] = sum_x p_0(x) exp((2 k <x, m> - k |m|^2) / (2 s^2)) = exp((k^2 - k) |m|^2 / (2 s^2))    for whole k,

as for continuous Gaussians. So their closed form at integer orders holds for Poisson sampling with an example more or
less (Mironov, Talwar and Zhang 2019, https://arxiv.org/abs/1908.10530, section 3.3): E_0[((1-q) + q r)^alpha] is a sum
of these moments, and grows with |m|. It also bounds the other direction (their Theorem 5): x -> m - x maps the lattice
onto itself and swaps p_0 and p_m. The rest of the batch is averaged over, and the divergence is quasi-convex. Without
sampling, k = alpha gives alpha |m|^2 / (2 s^2) (Canonne, Kamath and Steinke 2020, "The discrete Gaussian for
differential privacy", https://arxiv.org/abs/2004.00010). At other orders, and for privacy loss distributions, no such
law holds: in more than one dimension the discrete Gaussian differs between directions. So there is no account of
sampled batches with an example replaced.

Draws. 127 random bits look up |N| in a table of cumulative probabilities in 127 binary places, up to 15 s; one more bit
is its sign. Each of less than 2^19 cells has an error of 2^-127. A mass of 2 exp(-112) < 2^-160 lies beyond the table
(the discrete Gaussian is subgaussian, Canonne et al.). A Poisson batch is too large for an operation, and ends the run,
with a probability below 2^-107 (`simfl.tape.problem.widest_batch`). So each release is within a total variation of (d +
1) 2^-107 of the accounted one, all of them within t, and (epsilon, delta) becomes (epsilon, delta + (1 + e^epsilon) t).
A thousandth of delta is reserved for it; if that is not enough, nothing is certified. As for all noise, the words of
threefry are assumed to be random, and their key secret.
"""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

#: The noise has at least 2^FINENESS grid steps to a standard deviation.
FINENESS = 14
#: End of the table, in standard deviations.
TAIL = 15
#: The table has 2^LOOKUPS places of four words each.
LOOKUPS = 19
#: Coordinates up to which the bound on rounded norms holds.
MOST_COORDINATES = 2**22
#: Total variation of one coordinate's noise, and bound on the probability of a batch that is too large.
DRIFT = 2.0**-107

_BITS = 127
#: Binary places of the recurrence below.
_PLACES = 320


@dataclass(frozen=True)
class Rounding:
    """The cost of rounding, for vectors of `size` coordinates."""

    size: int

    @property
    def drift(self) -> float:
        """Total variation between a release and the accounted one."""
        return (self.size + 1) * DRIFT

    def multiplier(self, level: float) -> float:
        """Return the multiplier z' to account for at a noise multiplier z."""
        exceeds = (self.size + 16) * 2.0**-24
        return level / (1.0 + exceeds + level * math.sqrt(self.size) * 2.0 ** -(FINENESS + 1))


def step_of(scale: float) -> float:
    """Return g, the largest power of two with g <= scale 2^-14."""
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - FINENESS)


@dataclass(frozen=True, eq=False)
class Grid:
    """The grids of all clients, as arrays.

    Attributes:
        steps: f32 [K, 3]: g, 1 / g and s.
        laws: int32 [K], number of each client's table.
        tables: uint32 [tables * 2^19, 4], concatenated; see `cumulative`.
    """

    steps: NDArray[np.float32]
    laws: NDArray[np.int32]
    tables: NDArray[np.uint32]

    @classmethod
    def of(cls, scales: Sequence[float]) -> Grid:
        """Return the grids for noise of these scales, [K]."""
        steps = [step_of(scale) for scale in scales]
        deviations = [Fraction(scale) / Fraction(step) for scale, step in zip(scales, steps, strict=True)]
        distinct = sorted(set(deviations))
        return cls(
            np.array([(g, 1.0 / g, float(s)) for g, s in zip(steps, deviations, strict=True)], dtype=np.float32),
            np.array([distinct.index(s) for s in deviations], dtype=np.int32),
            np.concatenate([cumulative(s) for s in distinct]),
        )

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays that the programs of `simfl.tape.kernels` need."""
        return {"grid_steps": self.steps, "grid_laws": self.laws, "grid_tables": self.tables}


@functools.lru_cache(maxsize=16)
def cumulative(deviation: Fraction) -> NDArray[np.uint32]:
    """Return 2 floor(2^127 P[|N| <= j]) as four words each, uint32 [2^19, 4].

    p_{j+1} = p_j r^(2j+1), r = exp(-1 / (2 s^2)), p_0 = 1, in integers of 320 binary places: each product loses less
    than 2^-320, so their sum is exact to 2^-260. The largest words fill the rest of the table. The deviation is s of
    the discrete Gaussian, not an integer in general; 15 s is below 2^19.
    """
    count = min(math.ceil(TAIL * deviation), 2**LOOKUPS - 1)
    one = 1 << _PLACES
    with decimal.localcontext() as context:
        context.prec = 110  # 2^-320 is 5e-97
        exponent = -1 / (2 * deviation * deviation)
        root = (decimal.Decimal(exponent.numerator) / decimal.Decimal(exponent.denominator)).exp()
        ratio = int(root * one)
    growth = (ratio * ratio) >> _PLACES
    mass, total = one, one  # of 0; then of j and -j together
    sums = [total]
    for _ in range(count):
        mass = (mass * ratio) >> _PLACES
        ratio = (ratio * growth) >> _PLACES
        total += 2 * mass
        sums.append(total)
    words = b"".join((2 * ((sum_ << _BITS) // total)).to_bytes(16, "big") for sum_ in sums[:-1])
    table = np.full((2**LOOKUPS, 4), 0xFFFFFFFF, dtype=np.uint32)
    table[:count] = np.frombuffer(words, dtype=">u4").reshape(-1, 4)
    table.setflags(write=False)
    return table
