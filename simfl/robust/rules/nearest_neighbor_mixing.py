"""Nearest-neighbor mixing.

Allouah et al. 2023, https://arxiv.org/abs/2302.01772.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from simfl.models.lazy import jax, jnp
from simfl.robust.base import AbstractRule, Among, distances, ranks
from simfl.robust.rules.trimmed_mean import TrimmedMean
from simfl.scenario.fields import Index, option


@dataclass(frozen=True)
class NearestNeighborMixing(AbstractRule):
    """Apply another rule to the means of each model's n - f nearest models.

    A model counts as one of its own nearest.

    Attributes:
        rule: the rule that aggregates the means.
    """

    kind: ClassVar[str] = "nearest_neighbor_mixing"
    summary: ClassVar[str] = "nearest-neighbor mixing: each model becomes the mean of its n - f nearest"
    among: ClassVar[Among] = "before"

    f: Index = option(
        1, "number of attackers that are tolerated; the n - f nearest of n models are averaged, one if f is n or more"
    )
    rule: AbstractRule = field(default_factory=TrimmedMean)

    def _mixing(self, models: jax.Array, present: jax.Array) -> jax.Array:
        """Return the weights of models in the means, f32 [n, n]; one row for each mean."""
        count = jnp.maximum(present.sum() - self.f, 1)
        near = (ranks(distances(models, present)) < count) & present
        return (near / jnp.maximum(near.sum(axis=1, keepdims=True), 1)).astype(models.dtype)

    def mix(self, models: jax.Array, present: jax.Array) -> jax.Array:
        """Return the mean of each model's nearest models, f32 [n, d]."""
        known = jnp.where(present[:, None] & jnp.isfinite(models), models, 0.0)
        return jnp.matmul(self._mixing(models, present), known, precision="highest")

    def aggregate(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the other rule's aggregate of the means."""
        return self.rule.aggregate(self.mix(models, present), present, weights, progress)

    def accepted(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the sum of each model's weights in the accepted means, at most 1."""
        counts = self.rule.accepted(self.mix(models, present), present, weights, progress)
        return jnp.minimum(1.0, jnp.where(present, counts, 0.0) @ self._mixing(models, present))

    def without_own(self) -> Self:
        """Return the same mixing with the other rule's form for a server."""
        return replace(self, rule=self.rule.without_own())
