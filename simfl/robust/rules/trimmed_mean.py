"""The coordinate-wise trimmed mean.

Yin et al. 2018, https://arxiv.org/abs/1803.01498.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.lazy import jax, jnp
from simfl.robust.base import AbstractRule, mean_where, sortable, tolerated, within


@dataclass(frozen=True)
class TrimmedMean(AbstractRule):
    """The mean of each coordinate without its f smallest and f largest values.

    Attributes:
        f: attackers that are tolerated; less than half of the models.
    """

    kind: ClassVar[str] = "trimmed_mean"
    summary: ClassVar[str] = "mean of each coordinate without the f smallest and f largest values"

    f: int = 1

    def aggregate(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the trimmed mean of each coordinate."""
        ordered = jnp.sort(sortable(models, present), axis=0)
        place, f = jnp.arange(len(models)), tolerated(self.f, present)
        return mean_where(ordered, (place >= f) & (place < present.sum() - f))

    def accepted(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the share of coordinates whose value is within the kept range."""
        ordered, f = jnp.sort(sortable(models, present), axis=0), tolerated(self.f, present)
        return within(models, ordered[f], ordered[present.sum() - f - 1])
