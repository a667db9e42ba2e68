"""ClippedGossip.

He, Karimireddy, Jaggi 2022, https://arxiv.org/abs/2202.01545.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.lazy import jax, jnp
from simfl.robust.base import AbstractRule, Among, clipped, factors, weighted_sum
from simfl.scenario.fields import Positive, option


@dataclass(frozen=True)
class ClippedGossip(AbstractRule):
    """Self-centered clipping.

    x_i + sum_j w_ij clip(x_j - x_i, tau), where x_i is row 0. The paper's adaptive bound is not implemented.
    """

    kind: ClassVar[str] = "clipped_gossip"
    summary: ClassVar[str] = "the own model plus weighted differences to it, clipped to norm tau"

    among: ClassVar[Among] = "own"

    tau: Positive = option(1.0, "bound on the L2 norm of a difference")

    def aggregate(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the own model plus the weighted sum of clipped differences."""
        moved = jnp.where(present[:, None], clipped(models - models[0], self.tau), 0.0)
        return models[0] + weighted_sum(weights, moved)

    def accepted(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the factor of each difference."""
        return factors(models - models[0], self.tau)
