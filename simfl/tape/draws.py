"""Mini-batches drawn on the device, each determined by (seed, client, draw).

No permutation is stored: the position of an example in a client's shuffled data is computed by a
swap-or-not network (Hoang, Morris and Rogaway 2012, "An enciphering scheme based on a card
shuffle"), which permutes 0..n-1 for any n and vectorizes. It orders data; it keeps no secret.

A permutation is named by 32 bits: `mix` of a client's number plus that of the mini-batch (or of the pass). `mix` is a
bijection, so that the mini-batches of a client have different keys up to 2^32 of them, and clients begin at different
numbers. Two clients that draw T batches each share keys with a probability of about 2T / 2^32; docs/privacy.md says
what that means for an account.

The noise of a release is named by the same numbers, under keys of 64 bits: see `simfl.privacy.noise`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from simfl.privacy.noise import traced_once
from simfl.tape.problem import Drawing

#: Each round moves an element with probability 1/2: after 24 rounds one in 17 million has not moved.
ROUNDS = 24

_U32 = jnp.uint32


def mix(h: jax.Array) -> jax.Array:
    """Return a bijective hash of uint32 with good avalanche (Wellons's lowbias32)."""
    h ^= h >> 16
    h *= _U32(0x7FEB352D)
    h ^= h >> 15
    h *= _U32(0x846CA68B)
    return h ^ (h >> 16)


def uniform_below(bits: jax.Array, n: jax.Array) -> jax.Array:
    """Return integers in 0..n-1 (n < 2^24) from 32 random bits."""
    u = (bits >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)
    return jnp.minimum((u * n.astype(jnp.float32)).astype(jnp.int32), n - 1)


def permute(key: jax.Array, x: jax.Array, n: jax.Array) -> jax.Array:
    """Return the image of x under the pseudo-random permutation of 0..n-1 of `key`.

    Args:
        key: uint32, broadcastable to x (one permutation per entry).
        x: int32 in 0..n-1.
        n: int32 scalar, 1 <= n < 2^24.
    """
    for r in range(ROUNDS):
        x = _swap_or_not(key, _U32((r * 0x9E3779B9) & 0xFFFFFFFF), x, n)
    return x


@traced_once
def _swap_or_not(key: jax.Array, constant: jax.Array, x: jax.Array, n: jax.Array) -> jax.Array:
    """One round of `permute`."""
    round_key = mix(key + constant)
    partner = uniform_below(round_key, n) - x
    partner = jnp.where(partner < 0, partner + n, partner)
    canonical = jnp.maximum(x, partner).astype(jnp.uint32)
    swap = mix(canonical + round_key * _U32(0x85EBCA6B)) >> 31
    return jnp.where(swap == 1, partner, x)


def batch_positions(
    sampling: Drawing,
    keys: jax.Array,
    client: jax.Array,
    draw: jax.Array,
    first: jax.Array,
    batch_size: int,
    lanes: int,
    n: jax.Array,
) -> jax.Array:
    """Return the examples at entries first..first+lanes-1 of a batch, int32 [lanes].

    - `shuffle`: consecutive pieces of a new permutation per epoch; a batch may span two epochs.
    - `same_order`: the same, with one permutation for all epochs.
    - `poisson`: a uniform subset without replacement. The number of examples is drawn by the world
      (binomial), and a binomial number of distinct examples is Poisson sampling.
    - `without_replacement`: a uniform subset of B examples, drawn for every batch.
    - `with_replacement`: independent uniform examples.

    Args:
        sampling: as above; static.
        keys: uint32 [2], the stream "data" of the run.
        client: int32, draw: int32 (count of the client's mini-batches), first: int32.
        batch_size: nominal size B, static; min(B, n) is the length of a piece of the permutation.
        lanes: number of entries to return, static.
        n: int32, examples of the client; for `shuffle`, entries from the n-th on are padding of any value.
    """
    entry = first + jnp.arange(lanes, dtype=jnp.int32)
    base = mix(mix(client.astype(jnp.uint32) ^ keys[0]) ^ keys[1])
    if sampling == "with_replacement":
        return uniform_below(mix(mix(base + draw.astype(jnp.uint32)) ^ entry.astype(jnp.uint32)), n)
    if sampling in ("poisson", "without_replacement"):
        key = mix(base + draw.astype(jnp.uint32))
        return permute(key, jnp.minimum(entry, n - 1), n)
    # One division for the whole batch: a division per entry would keep the loop below from vectorizing.
    start = draw * jnp.minimum(batch_size, n) + first
    epoch, position = start // n, start % n + jnp.arange(lanes, dtype=jnp.int32)
    beyond = position >= n  # at most once, because a batch is not larger than the data
    key = base if sampling == "same_order" else mix(base + (epoch + beyond).astype(jnp.uint32))
    return permute(key, jnp.where(beyond, position - n, position), n)
