"""The arguments that a tape passes to functions of models."""

import jax
import jax.numpy as jnp
import numpy as np

from simfl.tape.maps import Given

PUBLISHED = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])


def given_of(x, pads=False, weights=()):
    """Return rows and `Given` of models; with `pads`, rows that are not models hold NaN."""
    count = len(x)
    size = max(2, 1 << count.bit_length()) if pads and not weights else len(weights) or count
    rows = np.full((size, x.shape[1]), np.nan, np.float32)
    rows[:count] = x
    seed = jnp.asarray(jax.random.key_data(jax.random.key(0, impl="threefry2x32")))
    given = Given(jnp.asarray(weights, jnp.float32), jnp.arange(size) < count, jnp.int32(0), jnp.int32(0), seed)
    return jnp.asarray(rows), given
