"""A module that computes with JAX when it is imported, as a user's may."""

import jax.numpy as jnp

ONES = jnp.ones(3)
