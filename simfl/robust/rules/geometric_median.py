"""The geometric median.

Pillutla et al. 2022 (RFA), https://arxiv.org/abs/1912.13445.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.lazy import jax, jnp
from simfl.robust.base import AbstractRule, weighted_sum
from simfl.scenario.fields import Count, Positive, option


@dataclass(frozen=True)
class GeometricMedian(AbstractRule):
    """Smoothed Weiszfeld steps to the geometric median.

    From z = 0: z <- sum_j b_j x_j / sum_j b_j with b_j = 1 / max(nu, |x_j - z|).
    """

    kind: ClassVar[str] = "geometric_median"
    summary: ClassVar[str] = "smoothed Weiszfeld steps to the geometric median"

    nu: Positive = option(0.1, "smallest distance in a denominator")
    steps: Count = option(3, "number of steps")

    def aggregate(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the point after the last step."""
        return self._steps(models, present)[0]

    def _steps(self, models: jax.Array, present: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the point after the last step, and the weights b_j of that step."""
        usable = present & jnp.isfinite(models).all(axis=1)
        known = jnp.where(usable[:, None], models, 0.0)
        z, share = jnp.zeros_like(models[0]), jnp.zeros(len(models))
        for _ in range(self.steps):
            share = jnp.where(usable, 1.0 / jnp.maximum(self.nu, jnp.linalg.norm(known - z, axis=1)), 0.0)
            z = weighted_sum(share, known) / share.sum()
        return z, share

    def accepted(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the weight of each model in the last step, as a fraction of the largest."""
        share = self._steps(models, present)[1]
        return share / share.max()
