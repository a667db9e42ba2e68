"""Nearest-neighbor mixing.

Allouah et al. 2023, https://arxiv.org/abs/2302.01772.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from simfl.models.lazy import jax, jnp
from simfl.robust.base import AbstractRule, distances, ranks
from simfl.robust.rules.trimmed_mean import TrimmedMean


@dataclass(frozen=True)
class NearestNeighborMixing(AbstractRule):
    """Another rule over the mean of the n - f models nearest to each.

    A model is among those nearest to itself.

    Attributes:
        f: attackers that are tolerated; less than the number of models.
        rule: what aggregates the means.
    """

    kind: ClassVar[str] = "nearest_neighbor_mixing"
    summary: ClassVar[str] = "another rule over means of each model's n - f nearest"

    f: int = 1
    rule: AbstractRule = field(default_factory=TrimmedMean)

    def mix(self, models: jax.Array, present: jax.Array) -> jax.Array:
        """Return the mean of each model's nearest, f32 [n, d]."""
        count = jnp.maximum(present.sum() - self.f, 1)
        near = (ranks(distances(models, present)) < count) & present
        known = jnp.where(present[:, None] & jnp.isfinite(models), models, 0.0)
        mixing = near / jnp.maximum(near.sum(axis=1, keepdims=True), 1)
        return jnp.matmul(mixing.astype(models.dtype), known, precision="highest")

    def aggregate(self, models: jax.Array, present: jax.Array, weights: jax.Array) -> jax.Array:
        """Return the other rule's aggregate of the means."""
        return self.rule.aggregate(self.mix(models, present), present, weights)
