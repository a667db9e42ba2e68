"""The coordinate-wise median.

Yin et al. 2018, https://arxiv.org/abs/1803.01498.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.lazy import jax
from simfl.robust.base import AbstractRule, ordered, row_at, within


@dataclass(frozen=True)
class Median(AbstractRule):
    """The median of each coordinate; the mean of the middle two of an even number."""

    kind: ClassVar[str] = "median"
    summary: ClassVar[str] = "the median of each coordinate"

    def aggregate(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the median of each coordinate."""
        low, high = self._middle(models, present)
        return 0.5 * low + 0.5 * high

    def accepted(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the fraction of coordinates whose value is one of the middle two."""
        return within(models, *self._middle(models, present))

    def _middle(self, models: jax.Array, present: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the middle two values of each coordinate; one twice if n is odd."""
        rows, count = ordered(models, present), present.sum()
        return row_at(rows, (count - 1) // 2), row_at(rows, count // 2)
