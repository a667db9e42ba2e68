"""A little is enough.

Baruch, Baruch, Goldberg 2019, https://arxiv.org/abs/1902.06156.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from simfl.models.lazy import jax, jnp
from simfl.robust.base import AbstractAttack, mean_where, weighted_sum
from simfl.scenario.fields import Number, option

if TYPE_CHECKING:
    from simfl.tape.maps import Given


@dataclass(frozen=True)
class ALittleIsEnough(AbstractAttack):
    """Send the honest mean plus tau standard deviations in each coordinate.

    The standard deviation is that of a sample, with n - 1 in the denominator.
    """

    kind: ClassVar[str] = "alie"
    summary: ClassVar[str] = "a little is enough: the honest mean plus tau standard deviations"

    tau: Number = option(1.5, "standard deviations in each coordinate")

    def __call__(self, rows: Any, given: Given) -> jax.Array:
        """Return mean + tau std."""
        models, present = jnp.asarray(rows), given.present
        mean = mean_where(models, present)
        squares = weighted_sum(present, jnp.where(present[:, None], jnp.square(models - mean), 0.0))
        return mean + self.tau * jnp.sqrt(squares / jnp.maximum(present.sum() - 1, 1))
