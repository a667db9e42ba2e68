"""Centered clipping.

Karimireddy, He, Jaggi 2021, https://arxiv.org/abs/2012.10333.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from simfl.models.lazy import jax, jnp
from simfl.robust.base import AbstractRule, clipped, factors, mean_where
from simfl.scenario.fields import Count, Positive, option


@dataclass(frozen=True)
class CenteredClipping(AbstractRule):
    """Steps v <- v + mean_j clip(x_j - v, tau).

    clip(z, tau) = z min(1, tau / |z|).

    Attributes:
        from_own: whether v begins with the client's own model (row 0), which is its last aggregate; if not, with 0.
    """

    kind: ClassVar[str] = "centered_clipping"
    summary: ClassVar[str] = "the mean of differences to a center, clipped to norm tau"

    tau: Positive = option(100.0, "bound on the L2 norm of a difference")
    steps: Count = option(1, "number of steps of the center")
    from_own: bool = True

    def aggregate(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the center after the last step."""
        return self._center(models, present, self.steps)

    def _center(self, models: jax.Array, present: jax.Array, steps: int) -> jax.Array:
        """Return the center after some steps."""
        center = models[0] if self.from_own else jnp.zeros_like(models[0])
        for _ in range(steps):
            center = center + mean_where(clipped(models - center, self.tau), present)
        return center

    def without_own(self) -> Self:
        """Return the rule that begins with 0."""
        return replace(self, from_own=False)

    def accepted(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the factor of each difference in the last step."""
        return factors(models - self._center(models, present, self.steps - 1), self.tau)
