"""The coordinate-wise median.

Yin et al. 2018, https://arxiv.org/abs/1803.01498.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.lazy import jax, jnp
from simfl.robust.base import AbstractRule, sortable, within


@dataclass(frozen=True)
class Median(AbstractRule):
    """The median of each coordinate; the mean of the middle two of an even number."""

    kind: ClassVar[str] = "median"
    summary: ClassVar[str] = "median of each coordinate"

    def aggregate(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the median of each coordinate."""
        ordered = jnp.sort(sortable(models, present), axis=0)
        count = present.sum()
        return 0.5 * ordered[(count - 1) // 2] + 0.5 * ordered[count // 2]

    def accepted(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the share of coordinates whose value is one of the middle two."""
        ordered, count = jnp.sort(sortable(models, present), axis=0), present.sum()
        return within(models, ordered[(count - 1) // 2], ordered[count // 2])
