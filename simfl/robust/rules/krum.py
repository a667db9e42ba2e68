"""Krum. Blanchard et al. 2017, Machine learning with adversaries, NeurIPS.

The score of a model is its mean squared distance to its nearest others. The paper takes n - f - 2 of them. byzfl
(https://github.com/LPD-EPFL/byzfl) takes the n - f nearest with the model itself among them, which is n - f - 1 others.
With n - f - 1, which is the default, all honest models count where exactly f are hostile. The two may choose
different models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from simfl.models.lazy import jax, jnp
from simfl.robust.base import TOLERATED, AbstractRule, distances, mean_where, tolerated
from simfl.scenario.fields import Index, option


@dataclass(frozen=True)
class Krum(AbstractRule):
    """The model with the smallest mean squared distance to its nearest others."""

    kind: ClassVar[str] = "krum"
    summary: ClassVar[str] = "the model nearest to its n - f - 1 nearest others"

    f: Index = option(1, TOLERATED)
    neighbors: Literal["n - f - 1", "n - f - 2"] = option(
        "n - f - 1",
        "how many nearest others count in a model's score, of n models: n - f - 1 (as in byzfl, which counts the model "
        "itself too) or n - f - 2 (as in the paper)",
    )

    def scores(self, models: jax.Array, present: jax.Array) -> jax.Array:
        """Return mean squared distances to the nearest models; inf if absent, f32 [n]."""
        ordered = jnp.sort(distances(models, present), axis=1).T
        place = jnp.arange(len(models))
        most = present.sum() - tolerated(self.f, present) - (2 if self.neighbors == "n - f - 2" else 1)
        near = (place >= 1) & (place <= jnp.maximum(most, 1))
        usable = present & jnp.isfinite(models).all(axis=1)
        return jnp.where(usable, mean_where(ordered, near), jnp.inf)

    def aggregate(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the model with the smallest score."""
        return models[jnp.argmin(self.scores(models, present))]

    def accepted(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return 1 for the model that is returned, 0 for others."""
        return jax.nn.one_hot(jnp.argmin(self.scores(models, present)), len(models))
