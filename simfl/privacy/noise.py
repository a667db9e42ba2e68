"""Noise of unit scale drawn on the device, each release's named by (seed, client, draw) and by nothing else.

A sampler has the signature (keys uint32[2], client, draw, size) -> f32[size]; `SAMPLERS` has them by
name. It is a pure function of its arguments, elementwise but for a few words that all coordinates
share, so that it gives the same bits in any lane of a `vmap` and in any loop, and fuses with the
gradient that it is added to. Random words come from threefry, as JAX's own random numbers do.

Isotropic Laplace noise, density proportional to exp(-||x||) on R^d, is drawn without a norm and without
a sum over coordinates, as a random multiple of a Gaussian vector (see `laplace_l2`).

Noise in float32 is not noise on the real numbers: the attacks on the last bits of floating-point noise
(Mironov 2012, https://doi.org/10.1145/2382196.2382264) are outside of what simfl's accountants say.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

Sampler: TypeAlias = Callable[[jax.Array, jax.Array, jax.Array, int], jax.Array]
"""(keys uint32[2], client int32, draw int32, size) -> f32[size]."""

#: Attempts of Marsaglia and Tsang's method. Each fails with probability < 0.05, so all of them with less than 1e-20.
ATTEMPTS = 16

_U32 = jnp.uint32


def threefry(key0: jax.Array, key1: jax.Array, x0: jax.Array, x1: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Threefry-2x32 with 20 rounds: two words of random bits for every (key, counter), all uint32.

    Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", https://doi.org/10.1145/2063384.2063405.
    The generator behind `jax.random`, written out: XLA then fuses all rounds into one pass, three
    times faster on a CPU than JAX's own, which loops over them.
    """
    keys = (key0, key1, key0 ^ key1 ^ _U32(0x1BD11BDA))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for turn in (13, 15, 26, 6) if group % 2 == 0 else (17, 29, 16, 24):
            x0 = x0 + x1
            x1 = ((x1 << turn) | (x1 >> (32 - turn))) ^ x0
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + _U32(group + 1)
    return x0, x1


def normal(bits: jax.Array) -> jax.Array:
    """Standard normals from 32 random bits each, by the inverse of the distribution function, float32."""
    one_to_two = jax.lax.bitcast_convert_type((bits >> 9) | _U32(0x3F800000), jnp.float32)
    lowest = np.nextafter(np.float32(-1.0), np.float32(0.0))
    # Uniform in [lowest, 1): 2^23 values, none of which is -1, where the inverse is infinite.
    uniform = jnp.maximum(lowest, (one_to_two - 1.0) * (np.float32(1.0) - lowest) + lowest)
    return np.float32(np.sqrt(2.0)) * jax.lax.erf_inv(uniform)


def exponential(bits: jax.Array) -> jax.Array:
    """Exponentials of mean 1 from the upper 31 of 32 random bits, float32; the lowest bit stays for a sign.

    The uniform numbers are the midpoints of 2^30 cells: the largest value is 31 ln 2 = 21.5.
    """
    odd = ((bits >> 1) | _U32(1)).astype(jnp.int32)
    return -jnp.log(odd.astype(jnp.float32) * np.float32(2.0**-31))


def _pick(values: jax.Array, index: jax.Array | int) -> jax.Array:
    """Return values[index], f32[], by a sum over all values.

    XLA keeps a sum apart, but merges any other scalar into the loop over coordinates that uses it, where it
    is computed again for each of them and, on a CPU, keeps that loop from being vectorised (14 times slower).
    """
    return jnp.sum(jnp.where(jnp.arange(len(values)) == index, values, 0.0))


def root_gamma(first: jax.Array, second: jax.Array, shape: float, factor: float = 1.0) -> jax.Array:
    """Return `factor` times the square root of a Gamma(shape, scale 1) variable, f32[].

    Marsaglia and Tsang 2000, "A simple method for generating gamma variables",
    https://doi.org/10.1145/358407.358414: with a = shape - 1/3, t = N(0, 1) / sqrt(9 a) and u uniform,
    a (1 + t)^3 is a Gamma variable if 1 + t > 0 and ln u < 3 a (ln(1 + t) - t + t^2/2 - t^3/3). The right
    side is the paper's, with the terms taken out that cancel: written as there, it loses all digits in float32
    for the shapes of large models.

    Args:
        first: words for the normal variables of the attempts, uint32 [ATTEMPTS].
        second: words for the uniform variables, uint32 [ATTEMPTS].
        shape: >= 1, static.
        factor: static.

    Returns:
        That of the first attempt that is accepted. With probability below 1e-20 none is, and the first counts.
    """
    a = shape - 1.0 / 3.0
    t = normal(first) * np.float32(1.0 / (3.0 * math.sqrt(a)))
    inside = t > -1.0
    t = jnp.where(inside, t, 0.0)
    # ln(1 + t) - t + t^2/2 - t^3/3 by its series where the difference cancels; elsewhere a < 60 and it does no harm.
    series = jnp.zeros_like(t)
    for k in range(14, 3, -1):
        series = series * t + np.float32((-1) ** (k + 1) / k)
    direct = jnp.log1p(t) - t + t**2 * 0.5 - t**3 * np.float32(1.0 / 3.0)
    bound = np.float32(3.0 * a) * jnp.where(jnp.abs(t) < 0.25, series * t**4, direct)
    accepted = inside & (-exponential(second) < bound)
    return _pick(np.float32(factor * math.sqrt(a)) * ((1.0 + t) * jnp.sqrt(1.0 + t)), jnp.argmax(accepted))


def _words(keys: jax.Array, client: jax.Array, draw: jax.Array, size: int) -> jax.Array:
    """Return the random words of one release's coordinates, uint32 [size].

    Joined as words: where the two halves were joined after the work done on each, XLA's CPU compiler did not
    vectorise what they were fused into, which made noise eight times slower without a batch axis.
    """
    key0, key1 = threefry(keys[0], keys[1], client.astype(jnp.uint32), draw.astype(jnp.uint32))
    counter = jnp.arange(-(-size // 2), dtype=jnp.uint32)
    return jnp.concatenate(threefry(key0, key1, counter, jnp.zeros_like(counter)))[:size]


def _shared_words(keys: jax.Array, client: jax.Array, draw: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Return random words that all coordinates of a release share, uint32 [count] twice; others than `_words`."""
    key0, key1 = threefry(keys[0], keys[1], client.astype(jnp.uint32), draw.astype(jnp.uint32))
    counter = jnp.arange(count, dtype=jnp.uint32)
    return threefry(key0, key1, counter, jnp.ones_like(counter))


def gaussian(keys: jax.Array, client: jax.Array, draw: jax.Array, size: int) -> jax.Array:
    """Return standard normal noise f32 [size] of one release, named by (client, draw)."""
    return normal(_words(keys, client, draw, size))


def laplace_l2(keys: jax.Array, client: jax.Array, draw: jax.Array, size: int) -> jax.Array:
    """Return isotropic Laplace noise x, f32 [size], of density proportional to exp(-||x||) on R^size.

    Its direction is uniform, its norm has the law Gamma(size, 1): E||x|| = d, E||x||^2 = d (d + 1).
    Times Delta / epsilon it is epsilon-DP for a release of L2 sensitivity Delta.

    Drawn as x = sqrt(2 G) z, with z the noise of `gaussian` and G ~ Gamma((d + 1)/2, 1), because
    exp(-||x||) is proportional to the integral over v of N(x; 0, v I) v^{(d-1)/2} e^{-v/2}: given
    v = 2 G, noise is Gaussian of variance v. So all that is added to Gaussian noise is one number, whose
    cost does not depend on d, and nothing has to be summed over coordinates.
    """
    first, second = _shared_words(keys, client, draw, ATTEMPTS)
    return root_gamma(first, second, 0.5 * (size + 1), np.sqrt(2.0)) * gaussian(keys, client, draw, size)


def laplace_l2_radius_only(keys: jax.Array, client: jax.Array, draw: jax.Array, size: int) -> jax.Array:
    """Return the noise of the MAPA paper's published code, f32 [size]: NOT private for size >= 2.

    Direction uniform, norm ~ Exponential(1): a one-dimensional Laplace law for the norm, of density
    ||x||^{-(d-1)} e^{-||x||} on R^d, which is unbounded at the true value, so that no epsilon bounds the
    ratio of two such densities. E||x|| = 1 and E||x||^2 = 2 whatever d. Here to run the paper's experiments as they
    were run; `simfl.theory.mapa.radius_only_delta` says what it gives away.

    Drawn as x = |n| sqrt(1 - u^{2/(d-2)}) z, with z the noise of `gaussian`, n normal and u uniform: the
    factor beside z is |n| times the root of a Beta(1, (d - 2)/2) variable B, and all moments of n^2 B ||z||^2
    are those of a squared exponential variable. (The published code's direction, from a cube, is not uniform.)
    """
    if size == 1:
        return laplace_l2(keys, client, draw, size)  # the same law in one dimension
    first, second = _shared_words(keys, client, draw, 2)
    scale = jnp.abs(normal(first))
    if size > 2:
        scale = scale * jnp.sqrt(-jnp.expm1(exponential(second) * np.float32(-2.0 / (size - 2))))
    return _pick(scale, 0) * gaussian(keys, client, draw, size)


def laplace(keys: jax.Array, client: jax.Array, draw: jax.Array, size: int) -> jax.Array:
    """Return independent Laplace variables of scale 1, f32 [size]: density exp(-|x_i|)/2 each, variance 2."""
    bits = _words(keys, client, draw, size)
    magnitude = jax.lax.bitcast_convert_type(exponential(bits), _U32)
    return jax.lax.bitcast_convert_type(magnitude ^ (bits << 31), jnp.float32)


#: The samplers by name.
SAMPLERS: dict[str, Sampler] = {
    "gaussian": gaussian,
    "laplace_l2": laplace_l2,
    "laplace_l2_radius_only": laplace_l2_radius_only,
    "laplace": laplace,
}


def unit_std(sampler: str, size: int) -> float:
    """Return the standard deviation of each of `size` coordinates of a sampler's noise: sqrt(E||x||^2 / d).

    Args:
        sampler: a name in `SAMPLERS`.
        size: d >= 1.
    """
    variances = {"gaussian": 1.0, "laplace_l2": size + 1.0, "laplace_l2_radius_only": 2.0 / size, "laplace": 2.0}
    return math.sqrt(variances[sampler])
