"""Sign flipping. Li et al. 2020, https://arxiv.org/abs/1811.03761."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from simfl.models.lazy import jax, jnp
from simfl.robust.base import AbstractAttack, mean_where

if TYPE_CHECKING:
    from simfl.tape.maps import Given


@dataclass(frozen=True)
class SignFlip(AbstractAttack):
    """Send the opposite of the honest mean."""

    kind: ClassVar[str] = "sign_flip"
    summary: ClassVar[str] = "minus the model or update that an honest client would send"
    knows: ClassVar[Literal["own", "everything"]] = "own"

    def __call__(self, rows: Any, given: Given) -> jax.Array:
        """Return -mean_j x_j."""
        return -mean_where(jnp.asarray(rows), given.present)
