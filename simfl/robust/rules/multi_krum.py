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
    summary: ClassVar[str] = "mean of the n - f models with the smallest scores of Krum"

    def aggregate(self, models: jax.Array, present: jax.Array, weights: jax.Array) -> jax.Array:
        """Return the mean of the models with the smallest scores."""
        kept = ranks(self.scores(models, present)) < present.sum() - tolerated(self.f, present)
        return mean_where(models, kept & present)
