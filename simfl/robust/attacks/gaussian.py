"""Gaussian noise instead of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from simfl.models.lazy import jax, jnp
from simfl.robust.base import AbstractAttack
from simfl.scenario.fields import NonNegative, Number, option

if TYPE_CHECKING:
    from simfl.tape.maps import Given


@dataclass(frozen=True)
class GaussianModel(AbstractAttack):
    """Send mean + std N(0, I) instead of a model.

    The random numbers are those of the client that the call names.
    """

    kind: ClassVar[str] = "gaussian"
    summary: ClassVar[str] = "Gaussian noise instead of a model"
    knows: ClassVar[Literal["own", "everything"]] = "own"

    mean: Number = option(0.0, "mean of each coordinate")
    std: NonNegative = option(1.0, "standard deviation of each coordinate")

    def __call__(self, rows: Any, given: Given) -> jax.Array:
        """Return noise, f32 [d]."""
        noise: jax.Array = self.mean + self.std * jax.random.normal(given.key, jnp.asarray(rows)[0].shape)
        return noise
