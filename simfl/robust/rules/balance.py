"""BALANCE.

Fang et al. 2024, https://arxiv.org/abs/2406.10416.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.lazy import jax, jnp
from simfl.robust.base import AbstractRule, Among, mean_where
from simfl.scenario.fields import NonNegative, Positive, Probability, option


@dataclass(frozen=True)
class Balance(AbstractRule):
    """Average the own model with the mean of the models that are close to it.

    alpha x_i + (1 - alpha) mean of the x_j with |x_i - x_j| <= gamma exp(-kappa t / T) |x_i|, where x_i is row 0 and
    t / T the fraction of the run that is over. If no x_j is that close, x_i stays.
    """

    kind: ClassVar[str] = "balance"
    summary: ClassVar[str] = "the own model averaged with the mean of models that are close to it"
    among: ClassVar[Among] = "own"

    alpha: Probability = option(0.5, "weight of the own model")
    gamma: Positive = option(0.3, "largest distance at the start, as a fraction of the own model's norm")
    kappa: NonNegative = option(1.0, "the largest distance shrinks by exp(-kappa) until the end of the run")

    def aggregate(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the average."""
        close = self._close(models, progress) & present & (jnp.arange(len(models)) > 0)
        mean = mean_where(models, close)
        return jnp.where(close.any(), self.alpha * models[0] + (1.0 - self.alpha) * mean, models[0])

    def _close(self, models: jax.Array, progress: float | jax.Array) -> jax.Array:
        limit = self.gamma * jnp.exp(-self.kappa * progress) * jnp.linalg.norm(models[0])
        return jnp.linalg.norm(models - models[0], axis=1) <= limit

    def accepted(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return 1 for models that are close, 0 for others."""
        return self._close(models, progress).astype(models.dtype)
