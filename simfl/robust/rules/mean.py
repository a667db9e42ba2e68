"""The weighted mean, which one attacker can move anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.lazy import jax, jnp
from simfl.robust.base import AbstractRule, weighted_sum


@dataclass(frozen=True)
class Mean(AbstractRule):
    """The weighted mean: sum_j w_j x_j."""

    kind: ClassVar[str] = "mean"
    summary: ClassVar[str] = "the weighted mean, which is not robust"

    def aggregate(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the weighted mean."""
        return weighted_sum(weights, jnp.where(present[:, None], models, 0.0))

    def accepted(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return 1 for each."""
        return jnp.ones(len(models), models.dtype)
