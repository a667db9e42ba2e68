"""Discrete Gaussian noise in parts that users add to a secure sum.

Kairouz, Liu, Steinke 2021, "The distributed discrete Gaussian mechanism for federated learning with secure
aggregation", ICML, https://arxiv.org/abs/2102.06387. User i rounds its clipped update to whole multiples k_i of a step
g, adds N_i in Z^d with P[N = x] proportional to exp(-|x|^2 / (2 s^2)), and sends the sum modulo 2^b. The server sees

    sum_i (k_i + N_i) mod 2^b,    n' of the users are honest,    sigma = g s sqrt(n'),    z C = sigma

Everything is about integers, so floating point does not matter after the rounding.

**Rounding.** Each coordinate is rounded up or down at random, so that its mean is right, again and again until |k|^2 <=
K^2. With probability 1 - exp(-1/2) or more one attempt is enough for

    g^2 K^2 = min(C^2 + g^2 d / 4 + g (C + g sqrt(d) / 2),  (C + g sqrt(d))^2)                 (their Theorem 1)

After `ATTEMPTS` of them, all coordinates are rounded towards 0. So K is a bound without exceptions.

**Floating point.** The norm of a vector is the root of a sum of d squares in float32, in an unknown order. With x = d
2^-24 the square loses at most a share x / (1 - x) (Higham 2002, "Accuracy and stability of numerical algorithms",
section 3.1). So a clipped vector is at most C ((1 - x) / (1 - 2 x))^(1/2) <= C (1 + x) for x <= 1/4, except for the
roundings of root, quotient, product and C, for which 16 2^-24 is more than enough. The same margin is in the check of
K.

**Sums of discrete Gaussians.** Let X, Y have s_1, s_2. Completing the square, P[X + Y = x] is that of a discrete
Gaussian of variance s_1^2 + s_2^2 times a factor that is proportional to sum_j exp(-(j - m_x)^2 / (2 v)), v = s_1^2
s_2^2 / (s_1^2 + s_2^2). By Poisson's formula it is within 1 -+ 2 r of a constant, r = sum_{j >= 1} exp(-2 pi^2 v j^2).
So all ratios of the two laws are within exp(+-tau), and convolution with more noise keeps that. For n' parts

    tau = sum_{k=1}^{n'-1} ln((1 + 2 r_k) / (1 - 2 r_k)),    v_k = s^2 k / (k + 1)

in each coordinate. (The paper has 10 exp(-2 pi^2 v_k) for each term, which is more.)

**Account.** T releases of discrete Gaussians with shifts of at most K are rho-concentrated, rho = T K^2 / (2 n' s^2),
or four times that for replaced data (Canonne, Kamath, Steinke 2020, https://arxiv.org/abs/2004.00010, Proposition 5, in
all orders and adaptively). For every order a > 1, epsilon is at most

    a rho + (ln(1 / delta) - ln(a - 1) + a ln(1 - 1 / a)) / (a - 1)                           (their Proposition 12)

All ratios of the real laws to these are within exp(+-T d tau). So (epsilon + 2 T d tau, delta exp(T d tau)) holds for
them. The draws differ from their law by 2^-107 in total variation for each coordinate, user and release, for which a
thousandth of delta is reserved: (epsilon, delta) becomes (epsilon, delta + (1 + e^epsilon) t) for a total variation t.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from simfl.models.lazy import jax, jnp
from simfl.privacy.cohorts import AbstractGrid, CohortLedger
from simfl.privacy.discrete import DRIFT, LOOKUPS, TAIL, cumulative

#: Attempts to round a vector.
ATTEMPTS = 64
#: The least and the largest s: tau is finite, and the table of the law is large enough.
LEAST, MOST = 0.5, (2**LOOKUPS - 1) / TAIL
#: The largest number of bits of a sum: each part is exact in float32.
MOST_BITS = 24
#: A sum leaves the range of b bits if its noise is larger than this many standard deviations.
ROOM = 8.0
#: Share of delta that is reserved for the difference between draws and their law.
RESERVED = 1e-3


@dataclass(frozen=True)
class GridSum(AbstractGrid):
    """How users round updates to a grid and add noise.

    Attributes:
        size: d.
        bits: b.
        clipping_norm: C.
        step: g.
        deviation: s.
    """

    size: int
    bits: int
    clipping_norm: float
    step: float
    deviation: Fraction

    @classmethod
    def of(cls, size: int, bits: int, members: int, parts: int, clipping_norm: float, noise_scale: float) -> GridSum:
        """Return the grid on which sums of up to `members` users fit into b bits.

        Raises:
            ValueError: there is no such grid.
        """
        room = 2.0 ** (bits - 1) - members
        if room <= 0 or bits > MOST_BITS:
            raise ValueError(f"expected 2^(bits - 1) above {members}, the users of a sum, and at most {MOST_BITS} bits")
        spread = ROOM * noise_scale * math.sqrt(members / parts)
        step = float(np.float32((members * clipping_norm + spread) / room))
        deviation = Fraction(noise_scale / step / math.sqrt(parts))
        if not LEAST <= deviation <= MOST:
            advice = "more" if deviation < LEAST else "fewer"
            raise ValueError(
                f"expected noise of {LEAST:g} to {MOST:.0f} steps of the grid at each user, found "
                f"{float(deviation):.3g}; use {advice} bits"
            )
        return cls(size, bits, clipping_norm, step, deviation)

    def part(self) -> Part:
        """Return what a user sends of its clipped update."""
        return Part(self)

    def whole(self) -> Whole:
        """Return the sum of what users sent."""
        return Whole(self)

    @property
    def margin(self) -> float:
        """Relative error of norms in float32."""
        return (self.size + 16) * 2.0**-24

    @property
    def bound(self) -> float:
        """K^2."""
        norm, root = self.clipping_norm * (1.0 + self.margin) / self.step, math.sqrt(self.size)
        return min(norm**2 + 0.25 * self.size + norm + 0.5 * root, (norm + root) ** 2)

    @property
    def rows(self) -> int:
        """Rows of the noise's table that are needed, a power of two."""
        return 1 << min(LOOKUPS, max(3, math.ceil(TAIL * self.deviation).bit_length()))

    def tau(self, parts: int) -> float:
        """Return the bound on the log ratio of a sum's law to a discrete Gaussian's."""
        total = 0.0
        for k in range(1, parts):
            r = math.exp(-2.0 * math.pi**2 * float(self.deviation) ** 2 * k / (k + 1))
            r /= 1.0 - r**3  # the further terms: r^4 + r^9 + ...
            total += math.log1p(2.0 * r) - math.log1p(-2.0 * r)
        return total

    def epsilon(self, delta: float, releases: float, parts: int, moved: float = 1.0) -> float:
        """Return an upper bound on epsilon after some releases.

        Args:
            delta: in (0, 1).
            releases: T.
            parts: n'.
            moved: shift between neighbors, in bounds on an update.
        """
        if releases == 0.0:
            return 0.0
        variance = parts * float(self.deviation) ** 2
        rho = releases * moved**2 * self.bound / (2.0 * variance)
        drift, tau = releases * parts * self.size * DRIFT, releases * self.size * self.tau(parts)
        if math.isinf(rho) or tau > 1.0:
            return math.inf
        found = concentrated_epsilon(rho, delta * (1.0 - RESERVED) * math.exp(-tau)) + 2.0 * tau
        within = found < 700.0 and (1.0 + math.exp(found)) * drift <= RESERVED * delta
        return found if within else math.inf


@functools.lru_cache(maxsize=4096)
def concentrated_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon of rho-concentrated privacy at delta, an upper bound."""

    def at(log_order: float) -> float:
        order = 1.0 + math.exp(log_order)
        rest = -math.log(delta) - log_order + order * math.log1p(-1.0 / order)
        return order * rho + rest / (order - 1.0)

    low, high = -20.0, 40.0  # unimodal: any order gives a bound, the best one lies in between
    for _ in range(200):
        a, b = low + (high - low) / 3.0, high - (high - low) / 3.0
        low, high = (low, b) if at(a) <= at(b) else (a, high)
    return max(0.0, at(0.5 * (low + high)))


@dataclass(frozen=True)
class Part:
    """What a user sends: its update on the grid with its part of the noise.

    A function for `Tape.map`; the result holds integers of b bits.
    """

    grid: GridSum

    def __call__(self, rows: Any, given: Any) -> jax.Array:
        """Return (k + N) mod 2^b, f32 [d], centered."""
        from simfl.privacy.noise import discrete_gaussian  # imports JAX

        rounding, noising = jax.random.split(given.key)
        zero = jnp.int32(0)
        deviation = jnp.float32(float(self.grid.deviation))
        table = jnp.asarray(cumulative(self.grid.deviation)[: self.grid.rows])
        keys = jax.random.key_data(noising)
        noise = discrete_gaussian(keys, zero, zero, self.grid.size, table, deviation)
        return wrapped(self.rounded(rows[0], rounding) + noise, self.grid.bits).astype(jnp.float32)

    def rounded(self, x: jax.Array, key: jax.Array) -> jax.Array:
        """Return k, int32 [d], with |k| <= K."""
        units = x / jnp.float32(self.grid.step)
        low = jnp.floor(units)
        share, most = units - low, jnp.float32(self.grid.bound * (1.0 - 2.0 * self.grid.margin))

        def fits(k: jax.Array) -> jax.Array:
            return jnp.sum(k * k) <= most

        def attempt(carried: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            count, _ = carried
            up = jax.random.uniform(jax.random.fold_in(key, count), units.shape) < share
            return count + 1, low + up.astype(jnp.float32)

        def again(carried: tuple[jax.Array, jax.Array]) -> jax.Array:
            return (carried[0] < ATTEMPTS) & ~fits(carried[1])

        _, k = jax.lax.while_loop(again, attempt, attempt((jnp.int32(0), low)))
        return jnp.where(fits(k), k, jnp.trunc(units)).astype(jnp.int32)


@dataclass(frozen=True)
class Whole:
    """The sum of parts modulo 2^b, times the step: a function for `Tape.map`."""

    grid: GridSum

    def __call__(self, rows: Any, given: Any) -> jax.Array:
        """Return g times the centered sum, f32 [d]."""
        parts = jnp.where(given.present[:, None], rows, 0.0).astype(jnp.int32)
        return wrapped(jnp.sum(parts, axis=0), self.grid.bits).astype(jnp.float32) * jnp.float32(self.grid.step)


def wrapped(x: jax.Array, bits: int) -> jax.Array:
    """Return integers modulo 2^bits in [-2^(bits - 1), 2^(bits - 1))."""
    half = 1 << (bits - 1)
    return ((x + half) & ((1 << bits) - 1)) - half


class DiscreteLedger(CohortLedger):
    """Accounts for users in secure sums with discrete Gaussian noise."""

    def _spent(self, squares: float) -> float:
        """Return epsilon; `squares` is the sum of z^-2 over releases."""
        grid, level = self.plan.grid, self.levels[0]
        assert isinstance(grid, GridSum)
        if squares == 0.0 or math.isinf(squares):
            return squares
        return grid.epsilon(self.delta, squares * level**2, self.plan.parts, self.terms.moved)

    @property
    def _accountant(self) -> str:
        return "as concentrated differential privacy of sums of discrete Gaussians"
