"""Mini-batches and noise drawn on the device, each named by (seed, client, draw) and by nothing else.

No permutation is stored: the position of an example in a client's shuffled data is computed by a
swap-or-not network (Hoang, Morris and Rogaway 2012, "An enciphering scheme based on a card
shuffle"), which permutes 0..n-1 for any n and vectorises. It orders data; it keeps no secret.
Noise comes from threefry, as JAX's own random numbers do.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

Sampling = Literal["poisson", "shuffle", "with_replacement"]

#: Each round moves an element with probability 1/2: after 24 rounds one in 17 million has not moved.
ROUNDS = 24

_U32 = jnp.uint32


def mix(h: jax.Array) -> jax.Array:
    """A bijective 32-bit hash with good avalanche (Wellons's lowbias32); uint32 in and out."""
    h ^= h >> 16
    h *= _U32(0x7FEB352D)
    h ^= h >> 15
    h *= _U32(0x846CA68B)
    return h ^ (h >> 16)


def _uniform_below(bits: jax.Array, n: jax.Array) -> jax.Array:
    """Integers in 0..n-1 (n < 2^24) from 32 random bits."""
    u = (bits >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)
    return jnp.minimum((u * n.astype(jnp.float32)).astype(jnp.int32), n - 1)


def permute(key: jax.Array, x: jax.Array, n: jax.Array) -> jax.Array:
    """Return the image of x under the pseudo-random permutation of 0..n-1 named by `key`.

    Args:
        key: uint32, broadcastable to x (one permutation per entry).
        x: int32 in 0..n-1.
        n: int32 scalar, 1 <= n < 2^24.
    """
    for r in range(ROUNDS):
        round_key = mix(key + _U32((r * 0x9E3779B9) & 0xFFFFFFFF))
        partner = _uniform_below(round_key, n) - x
        partner = jnp.where(partner < 0, partner + n, partner)
        canonical = jnp.maximum(x, partner).astype(jnp.uint32)
        swap = mix(canonical + round_key * _U32(0x85EBCA6B)) >> 31
        x = jnp.where(swap == 1, partner, x)
    return x


def batch_positions(
    sampling: Sampling,
    keys: jax.Array,
    client: jax.Array,
    draw: jax.Array,
    first: jax.Array,
    batch_size: int,
    lanes: int,
    n: jax.Array,
) -> jax.Array:
    """Return which of a client's n examples are entries first..first+lanes-1 of a mini-batch, int32 [lanes].

    - `shuffle`: consecutive pieces of a fresh permutation per epoch; a batch may span two epochs.
    - `poisson`: a uniform subset without replacement. The number of examples is drawn by the world
      (binomial), and a binomial number of distinct examples is Poisson sampling.
    - `with_replacement`: independent uniform examples.

    Args:
        sampling: as above; static.
        keys: uint32 [2], the stream "data" of the run.
        client: int32, draw: int32 (count of the client's mini-batches), first: int32.
        batch_size: nominal size B, static; the length of a piece of the permutation.
        lanes: number of entries wanted, static.
        n: int32, examples of the client; `lanes` <= n for `shuffle`.
    """
    entry = first + jnp.arange(lanes, dtype=jnp.int32)
    base = mix(mix(client.astype(jnp.uint32) ^ keys[0]) ^ keys[1])
    if sampling == "with_replacement":
        return _uniform_below(mix(mix(base + draw.astype(jnp.uint32)) ^ entry.astype(jnp.uint32)), n)
    if sampling == "poisson":
        key = mix(base + draw.astype(jnp.uint32))
        return permute(key, jnp.minimum(entry, n - 1), n)
    # One division for the whole batch: a division per entry would keep the loop below from vectorising.
    start = draw * batch_size + first
    epoch, position = start // n, start % n + jnp.arange(lanes, dtype=jnp.int32)
    beyond = position >= n  # at most once, because a batch is not larger than the data
    key = mix(base + (epoch + beyond).astype(jnp.uint32))
    return permute(key, jnp.where(beyond, position - n, position), n)


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


def noise(keys: jax.Array, client: jax.Array, draw: jax.Array, size: int) -> jax.Array:
    """Return standard normal noise f32 [size] of one release, named by (client, draw)."""
    key0, key1 = threefry(keys[0], keys[1], client.astype(jnp.uint32), draw.astype(jnp.uint32))
    half = -(-size // 2)
    counter = jnp.arange(half, dtype=jnp.uint32)
    first, second = threefry(key0, key1, counter, jnp.zeros_like(counter))
    return jnp.concatenate([normal(first), normal(second)])[:size]
