"""The coordinate-wise trimmed mean.

Yin et al. 2018, https://arxiv.org/abs/1803.01498.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.lazy import jax, jnp
from simfl.robust.base import TOLERATED, AbstractRule, ordered, row_at, tolerated, within
from simfl.scenario.fields import Index, option


@dataclass(frozen=True)
class TrimmedMean(AbstractRule):
    """The mean of each coordinate without its f smallest and f largest values."""

    kind: ClassVar[str] = "trimmed_mean"
    summary: ClassVar[str] = "the mean of each coordinate without its f smallest and f largest values"

    f: Index = option(1, TOLERATED)

    def aggregate(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the trimmed mean of each coordinate."""
        rows, first, last = self._kept(models, present)
        total = jnp.zeros_like(rows[0])
        for place, row in enumerate(rows):
            total += jnp.where((place >= first) & (place <= last), row, 0.0)
        return total / (last - first + 1)

    def accepted(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the fraction of coordinates whose value is within the kept range."""
        rows, first, last = self._kept(models, present)
        return within(models, row_at(rows, first), row_at(rows, last))

    def _kept(self, models: jax.Array, present: jax.Array) -> tuple[list[jax.Array], jax.Array, jax.Array]:
        """Return the values in order, and the first and the last place that counts."""
        first = tolerated(self.f, present)
        return ordered(models, present), first, present.sum() - first - 1
