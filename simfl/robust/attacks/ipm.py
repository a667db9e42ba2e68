"""Inner-product manipulation.

Xie, Koyejo, Gupta 2019, https://arxiv.org/abs/1903.03936.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from simfl.models.lazy import jax, jnp
from simfl.robust.base import AbstractAttack, mean_where
from simfl.scenario.fields import Positive, option

if TYPE_CHECKING:
    from simfl.tape.maps import Given


@dataclass(frozen=True)
class InnerProductManipulation(AbstractAttack):
    """Send the honest mean times -tau."""

    kind: ClassVar[str] = "ipm"
    summary: ClassVar[str] = "inner-product manipulation: the honest mean times -tau"

    tau: Positive = option(2.0, "factor")

    def __call__(self, rows: Any, given: Given) -> jax.Array:
        """Return -tau mean_j x_j."""
        return -self.tau * mean_where(jnp.asarray(rows), given.present)
