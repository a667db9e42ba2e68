"""The law of discrete Gaussian noise, as a table.

P[N = k] is proportional to exp(-k^2 / (2 s^2)). 127 random bits look up |N| among cumulative probabilities in 127
binary places, up to 15 s; one more bit is its sign. Each of less than 2^19 cells has an error of 2^-127. A mass of 2
exp(-112) < 2^-160 lies beyond the table, because the discrete Gaussian is subgaussian (Canonne, Kamath and Steinke
2020, "The discrete Gaussian for differential privacy", https://arxiv.org/abs/2004.00010). So each coordinate is drawn
within a total variation of 2^-107 of its law. As for all noise, the words of threefry are assumed to be random, and
their key secret. `simfl.privacy.noise.discrete_gaussian` draws.
"""

from __future__ import annotations

import decimal
import functools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

#: End of the table, in standard deviations.
TAIL = 15
#: The table has 2^LOOKUPS places of four words each.
LOOKUPS = 19
#: Total variation between one coordinate's noise and its law.
DRIFT = 2.0**-107

_BITS = 127
#: Binary places of the recurrence below.
_PLACES = 320


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
