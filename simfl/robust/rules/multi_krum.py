"""Multi-Krum.

Blanchard et al. 2017, Machine learning with adversaries, NeurIPS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.lazy import jax
from simfl.robust.base import mean_where, ranks, tolerated
from simfl.robust.rules.krum import Krum


@dataclass(frozen=True)
class MultiKrum(Krum):
    """The mean of the n - f models with the smallest scores of Krum."""

    kind: ClassVar[str] = "multi_krum"
    summary: ClassVar[str] = "the mean of the n - f models with the smallest scores of Krum"

    def aggregate(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the mean of the models with the smallest scores."""
        return mean_where(models, self._kept(models, present) & present)

    def _kept(self, models: jax.Array, present: jax.Array) -> jax.Array:
        return ranks(self.scores(models, present)) < present.sum() - tolerated(self.f, present)

    def accepted(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return 1 for the models of the mean, 0 for others."""
        return self._kept(models, present).astype(models.dtype)
