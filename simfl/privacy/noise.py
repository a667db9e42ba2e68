"""Unit noise drawn on the device, determined by (seed, client, draw).

A sampler has the signature (keys uint32[2], client, draw, size) -> f32[size]; `SAMPLERS` has them by name. It is a pure
function of its arguments, elementwise except for a few words that all coordinates share. So it gives the same bits in
any lane of a `vmap` and in any loop, and fuses with the gradient that it is added to. Random words come from threefry,
like JAX's own random numbers: a release's key takes all of its 20 rounds, the words of each coordinate `ROUNDS` rounds
under that key.

Isotropic Laplace noise, of density proportional to exp(-||x||) on R^d, is drawn without a norm or a sum over
coordinates, as a random multiple of a Gaussian vector (see `laplace_l2`).

The tails are long enough for any delta: 2^-55 of a normal law lies beyond 8.5 standard deviations, and 2^-55 of an
exponential one beyond 38 scales. But noise in float32 is not noise on the real numbers: the accountants of simfl do not
cover attacks on the last bits of floating-point noise (Mironov 2012, https://doi.org/10.1145/2382196.2382264).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

Sampler: TypeAlias = Callable[[jax.Array, jax.Array, jax.Array, int], jax.Array]
"""(keys uint32[2], client int32, draw int32, size) -> f32[size]."""

#: Attempts of Marsaglia and Tsang's method. Each fails with probability < 0.05, all of them with less than 1e-20.
ATTEMPTS = 16
#: Rounds of threefry for the words of a coordinate. 13 rounds pass all of BigCrush (Salmon et al. 2011; the authors'
#: Random123 knows of no flaw from 13 on); three more include the fourth injection of the key.
ROUNDS = 16

Function = TypeVar("Function", bound=Callable[..., Any])

_U32 = jnp.uint32
_CELL, _SHARE, _WORD = np.float32(2.0**-24), np.float32(2.0**-31), np.float32(2.0**-32)

#: sqrt(2) erfinv(v) / v over t = -log2(1 - v^2), 0 <= t < 55: numerator and denominator, from the constant term up.
_ABOVE, _BELOW = (
    tuple(np.float32(factor * c * math.log(2.0) ** k) for k, c in enumerate(map(float, coefs.split())))
    for factor, coefs in (
        (
            math.sqrt(2.0),
            "8.8622707168e-01 3.2653785564e-01 6.7231427205e-02 9.3123393864e-03 8.5323910875e-04 3.6451844832e-05 "
            "1.0327822605e-07",
        ),
        (1.0, "1.0 1.0666281940e-01 3.4893446867e-02 2.6337442687e-03 2.3449425609e-04 3.0335631268e-06"),
    )
)
#: log2(1 + r) / r over -1/4 <= r < 1/2, from the constant term up: a minimax fit, log2(1 + r) within 3.2e-7.
_LOG2 = tuple(
    np.float32(c)
    for c in (
        *(1.4426984345e00, -7.2130938114e-01, 4.8052107205e-01, -3.6200963803e-01, 2.9976708718e-01),
        *(-2.4070556519e-01, 1.1452356108e-01),
    )
)


def traced_once(function: Function, static: str | None = None) -> Function:
    """Trace a function once for each shape and `static` argument.

    XLA inlines the calls, so results and speed do not change; a window's program is traced in a third of the time.
    """
    return cast(Function, jax.jit(function, static_argnames=static))


@functools.partial(traced_once, static="rounds")
def threefry(
    key0: jax.Array, key1: jax.Array, x0: jax.Array, x1: jax.Array, rounds: int = 20
) -> tuple[jax.Array, jax.Array]:
    """Threefry-2x32: two words of random bits for every (key, counter), all uint32.

    Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", https://doi.org/10.1145/2063384.2063405. This is
    the generator of `jax.random` with its rounds written out: XLA fuses them into one pass, three times faster on a CPU
    than JAX's own, which loops over them.
    """
    keys = (key0, key1, key0 ^ key1 ^ _U32(0x1BD11BDA))
    turns = (13, 15, 26, 6, 17, 29, 16, 24)
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for done in range(1, rounds + 1):
        turn = turns[(done - 1) % 8]
        x0 = x0 + x1
        x1 = ((x1 << turn) | (x1 >> (32 - turn))) ^ x0
        if done % 4 == 0:
            group = done // 4
            x0 = x0 + keys[group % 3]
            x1 = x1 + keys[(group + 1) % 3] + _U32(group)
    return x0, x1


def _fraction(further: jax.Array) -> jax.Array:
    """Return f32 in (0, 1) from the upper 24 further bits."""
    return ((further >> 8) | _U32(1)).astype(jnp.int32).astype(jnp.float32) * _CELL


def _further(bits: jax.Array) -> jax.Array:
    """Return the further bits of two words that each make a number.

    The odd factor permutes the words, so that the partner of a large value is not another large one.
    """
    return bits * _U32(0x9E3779B1)


def _bits(x: jax.Array) -> jax.Array:
    """Return 62 - log2(x) of f32 x in (0, 2^62], within 4e-7, and its last bit.

    x = 2^e (1 + r) with -1/4 <= r < 1/2, from the bits of the exponent. XLA's logarithm would also select among cases
    that do not occur here.
    """
    digits = jax.lax.bitcast_convert_type(x, jnp.int32)
    e = (digits - jnp.int32(0x3F400000)) >> 23  # 0x3F400000 is 3/4
    r = jax.lax.bitcast_convert_type(digits - (e << 23), jnp.float32) - np.float32(1.0)
    return (62 - e).astype(jnp.float32) - r * _polynomial(_LOG2, r)


def _polynomial(coefs: Sequence[Any], x: jax.Array) -> jax.Array:
    """Return sum_k coefs[k] x^k by Estrin's scheme, which halves the dependent steps."""
    terms: list[Any] = list(coefs)
    while len(terms) > 1:
        pairs = [low + high * x for low, high in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[2 * len(pairs) :]
        x = x * x
    total: jax.Array = terms[0]
    return total


def _signed(magnitude: jax.Array, bits: jax.Array) -> jax.Array:
    """Return the magnitude with the lowest of the bits as its sign."""
    return jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(magnitude, _U32) ^ (bits << 31), jnp.float32)


def normal(bits: jax.Array, further: jax.Array) -> jax.Array:
    """Return standard normals f32 from 32 random bits and further bits, up to 8.5.

    v = (m + f) 2^-31 with m the bits as a signed integer and f the fraction from the further bits. The share of the law
    beyond, p = 1 - |v|, is the number of integers between m and the end plus the same fraction, each exact to its last
    bit, so p goes down to 2^-55. (Where one of the two matters, the other one does not.)
    """
    m = bits.astype(jnp.int32)
    beyond = m ^ (m >> 31) ^ jnp.int32(0x7FFFFFFF)
    f = _fraction(further)
    return _inverse(m.astype(jnp.float32) + f, beyond.astype(jnp.float32) + f)


def _inverse(v: jax.Array, p: jax.Array) -> jax.Array:
    """Return sqrt(2) erfinv(v) for v in (-1, 1), p = 1 - |v|, both in units of 2^-31.

    erfinv(v) = v P(t) with t = -log2(1 - v^2) = -log2(p (2 - p)): Giles 2012, "Approximating the erfinv function". P is
    smooth and positive on 0 <= t < 55, so one quotient of polynomials of degrees 6 and 5 (a minimax fit, relative error
    1.7e-7) covers the center and the tail. All its coefficients are positive, v is not a difference and 2 - p at least
    1, so nothing cancels: the relative error of the inverse is within 1e-6.

    The quotient comes last: XLA computes its inputs once, but would merge a product into the loops that use it, and
    compute the words of each of its factors again (a fifth of a private step).
    """
    t = _bits(p * (np.float32(2.0**32) - p))
    return v * _SHARE * _polynomial(_ABOVE, t) / _polynomial(_BELOW, t)


def exponential(bits: jax.Array, further: jax.Array) -> jax.Array:
    """Return exponentials of mean 1, f32, up to 38.1.

    p = (m + f) 2^-31 with m these bits. The lowest bit is left for a sign. Values below 1 are multiples of 6e-8, the
    last bit of p.
    """
    return -jnp.log(((bits >> 1).astype(jnp.int32).astype(jnp.float32) + _fraction(further)) * _SHARE)


def _pick(values: jax.Array, index: jax.Array | int) -> jax.Array:
    """Return values[index], f32[], by a sum over all values.

    XLA computes a sum separately. It merges any other scalar into the loop over coordinates that uses it, computes it
    again for each of them and, on a CPU, does not vectorize that loop (14 times slower).
    """
    return jnp.sum(jnp.where(jnp.arange(len(values)) == index, values, 0.0))


def root_gamma(first: jax.Array, second: jax.Array, shape: float, factor: float = 1.0) -> jax.Array:
    """Return `factor` times the square root of a Gamma(shape, 1) variable, f32[].

    Marsaglia and Tsang 2000, "A simple method for generating gamma variables",
    https://doi.org/10.1145/358407.358414: with a = shape - 1/3, t = N(0, 1) / sqrt(9 a) and u uniform, a (1 + t)^3 is a
    Gamma variable if 1 + t > 0 and ln u < 3 a (ln(1 + t) - t + t^2/2 - t^3/3). The right side is the paper's, without
    the terms that cancel: as printed, it loses all digits in float32 for the shapes of large models.

    The attempts take words uint32 [ATTEMPTS] for normal variables (`first`) and uniform ones (`second`); shape >= 1 and
    factor are static. The result is the first accepted attempt, or the first one if none is accepted (probability below
    1e-20).
    """
    a = shape - 1.0 / 3.0
    t = normal(first, _further(second)) * np.float32(1.0 / (3.0 * math.sqrt(a)))
    inside = t > -1.0
    t = jnp.where(inside, t, 0.0)
    # ln(1 + t) - t + t^2/2 - t^3/3 by its series where the difference cancels; elsewhere a < 60 and it is harmless.
    series = jnp.zeros_like(t)
    for k in range(14, 3, -1):
        series = series * t + np.float32((-1) ** (k + 1) / k)
    direct = jnp.log1p(t) - t + t**2 * 0.5 - t**3 * np.float32(1.0 / 3.0)
    bound = np.float32(3.0 * a) * jnp.where(jnp.abs(t) < 0.25, series * t**4, direct)
    accepted = inside & (-exponential(second, _further(first)) < bound)
    return _pick(np.float32(factor * math.sqrt(a)) * ((1.0 + t) * jnp.sqrt(1.0 + t)), jnp.argmax(accepted))


def _words(
    keys: jax.Array, client: jax.Array, draw: jax.Array, size: int, more: int = 0
) -> tuple[jax.Array, jax.Array]:
    """Return two random words for each coordinate of a release, uint32 [size].

    Each coordinate has its own counter, which gives both words. One counter for two coordinates would not be faster: to
    join the results, XLA computes all rounds for each element.
    """
    key0, key1 = threefry(keys[0], keys[1], client.astype(jnp.uint32), draw.astype(jnp.uint32))
    counter = jnp.arange(size, dtype=jnp.uint32)
    return threefry(key0, key1, counter, jnp.full_like(counter, more), rounds=ROUNDS)


def _shared_words(keys: jax.Array, client: jax.Array, draw: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Return words that all coordinates share, uint32 [count] twice, unlike `_words`."""
    return _words(keys, client, draw, count, 1)


def gaussian(keys: jax.Array, client: jax.Array, draw: jax.Array, size: int) -> jax.Array:
    """Return standard normal noise f32 [size] of the release (client, draw)."""
    return normal(*_words(keys, client, draw, size))


def laplace_l2(keys: jax.Array, client: jax.Array, draw: jax.Array, size: int) -> jax.Array:
    """Return isotropic noise x, f32 [size], of density ~ exp(-||x||) on R^size.

    Its direction is uniform, its norm has the law Gamma(size, 1): E||x|| = d, E||x||^2 = d (d + 1). Times Delta /
    epsilon it is epsilon-DP for a release of L2 sensitivity Delta.

    Drawn as x = sqrt(2 G) z, with z the noise of `gaussian` and G ~ Gamma((d + 1)/2, 1), because exp(-||x||) is
    proportional to the integral over v of N(x; 0, v I) v^{(d-1)/2} e^{-v/2}: given v = 2 G, noise is Gaussian of
    variance v. So beside Gaussian noise it needs one number, whose cost does not depend on d, and no sum over
    coordinates.
    """
    first, second = _shared_words(keys, client, draw, ATTEMPTS)
    return root_gamma(first, second, 0.5 * (size + 1), np.sqrt(2.0)) * gaussian(keys, client, draw, size)


def laplace_l2_radius_only(keys: jax.Array, client: jax.Array, draw: jax.Array, size: int) -> jax.Array:
    """Return the noise of the MAPA paper's code, f32 [size]: NOT private, size >= 2.

    Direction uniform, norm ~ Exponential(1): a one-dimensional Laplace law for the norm. The density on R^d,
    ||x||^{-(d-1)} e^{-||x||}, is unbounded at the true value, so no epsilon bounds the ratio of two such densities.
    E||x|| = 1 and E||x||^2 = 2 for every d. It reproduces the paper's experiments as they were run;
    `simfl.papers.mapa.theory.radius_only_delta` computes what it reveals.

    Drawn as x = |n| sqrt(1 - u^{2/(d-2)}) z, with z the noise of `gaussian`, n normal and u uniform: the factor of z is
    |n| times the root of a Beta(1, (d - 2)/2) variable B, and all moments of n^2 B ||z||^2 are those of a squared
    exponential variable. (The published code's direction, from a cube, is not uniform.)
    """
    if size == 1:
        return laplace_l2(keys, client, draw, size)  # the same law in one dimension
    first, second = _shared_words(keys, client, draw, 2)
    scale = jnp.abs(normal(first, _further(second)))
    if size > 2:
        scale = scale * jnp.sqrt(-jnp.expm1(exponential(second, _further(first)) * np.float32(-2.0 / (size - 2))))
    return _pick(scale, 0) * gaussian(keys, client, draw, size)


def laplace(keys: jax.Array, client: jax.Array, draw: jax.Array, size: int) -> jax.Array:
    """Return Laplace variables of scale 1, f32 [size]: density exp(-|x_i|)/2."""
    bits, further = _words(keys, client, draw, size)
    return _signed(exponential(bits, further), bits)


def discrete_gaussian(
    keys: jax.Array,
    client: jax.Array,
    draw: jax.Array,
    size: int,
    table: jax.Array,
    deviation: jax.Array,
) -> jax.Array:
    """Return independent discrete Gaussian variables, int32 [size], of one release.

    |x| is the number of cumulative probabilities that do not exceed 127 random bits. The last of 128 bits is the sign;
    it does not affect comparisons, because entries of the table are even. The search starts at a normal variable of
    these bits in floating point, rounded, which is next to |x|. Where it is not (tails beyond its polynomials), the
    whole table is bisected. Counters differ from those of `_words` and `_shared_words`.

    `table` is uint32 [rows, 4], the first rows of `simfl.privacy.discrete.cumulative`, a power of two; `deviation`,
    f32, is the approximate standard deviation in steps of the grid.
    """
    key0, key1 = threefry(keys[0], keys[1], client.astype(jnp.uint32), draw.astype(jnp.uint32))
    counter = jnp.arange(size, dtype=jnp.uint32)
    words = [word for more in (2, 3) for word in threefry(key0, key1, counter, jnp.full_like(counter, more))]
    places = _places(jnp.stack(words), table, deviation)
    return jnp.where(words[3] & _U32(1) == 1, -places, places)


@jax.custom_batching.sequential_vmap  # type: ignore[untyped-decorator]
def _places(words: jax.Array, table: jax.Array, deviation: jax.Array) -> jax.Array:
    """Return the number of a table's rows that are <= words [4, size], int32 [size].

    It runs lane by lane: XLA's CPU code for a batch axis is twenty times slower.
    """
    rows = table.shape[0]

    def reached(place: jax.Array) -> jax.Array:
        """Return whether the words are >= the row at a place, bool [size]."""
        entry = table.at[place].get(mode="promise_in_bounds")
        less = entry[:, 3] <= words[3]
        for i in (2, 1, 0):
            less = (entry[:, i] < words[i]) | ((entry[:, i] == words[i]) & less)
        return less

    v, p = (
        (high.astype(jnp.float32) + low.astype(jnp.float32) * _WORD) * _WORD + _WORD * _WORD * _CELL
        for high, low in ((words[0], words[1]), (~words[0], ~words[1]))
    )
    guess = jnp.round(deviation * _inverse(v / _SHARE, p / _SHARE)).astype(jnp.int32)
    first = jnp.clip(guess - 2, 0, rows - 4)
    near = [reached(first + i) for i in range(4)]
    near_place = first + sum(one.astype(jnp.int32) for one in near)
    missed = (~near[0] & (first > 0)) | near[3]

    def bisect(_: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        place = jnp.zeros(near_place.shape, jnp.int32)
        for bit in reversed(range(rows.bit_length() - 1)):
            tried = place + 2**bit
            place = jnp.where(reached(tried - 1), tried, place)
        return place, jnp.bool_(False)

    place: jax.Array = jax.lax.while_loop(lambda carried: carried[1], bisect, (near_place, jnp.any(missed)))[0]
    return place


#: The samplers by name.
SAMPLERS: dict[str, Sampler] = {
    "gaussian": gaussian,
    "laplace_l2": laplace_l2,
    "laplace_l2_radius_only": laplace_l2_radius_only,
    "laplace": laplace,
}


def unit_std(sampler: str, size: int) -> float:
    """Return the standard deviation of each coordinate of a sampler's noise.

    The sampler is a name in `SAMPLERS`, or "discrete_gaussian".
    """
    variances = {"laplace_l2": size + 1.0, "laplace_l2_radius_only": 2.0 / size, "laplace": 2.0}
    return math.sqrt({"gaussian": 1.0, "discrete_gaussian": 1.0, **variances}[sampler])
