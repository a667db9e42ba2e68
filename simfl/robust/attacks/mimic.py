"""Mimic. Karimireddy, He, Jaggi 2022, https://arxiv.org/abs/2006.09365."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from simfl.models.lazy import jax, jnp
from simfl.robust.base import AbstractAttack

if TYPE_CHECKING:
    from simfl.tape.maps import Given


@dataclass(frozen=True)
class Mimic(AbstractAttack):
    """Send a copy of one honest model, which gives that client more weight.

    Attributes:
        row: index of the model among those that the attacker knows; the last one if there are fewer.
    """

    kind: ClassVar[str] = "mimic"
    summary: ClassVar[str] = "a copy of one honest model"
    messages_only: ClassVar[bool] = True

    row: int = 0

    def __call__(self, rows: Any, given: Given) -> jax.Array:
        """Return x_row."""
        return jnp.asarray(rows)[jnp.minimum(self.row, given.present.sum() - 1)]
