"""Mimic. Karimireddy, He, Jaggi 2022, https://arxiv.org/abs/2006.09365."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from simfl.models.lazy import jax, jnp
from simfl.robust.base import AbstractAttack
from simfl.scenario.fields import Index, option

if TYPE_CHECKING:
    from simfl.tape.maps import Given


@dataclass(frozen=True)
class Mimic(AbstractAttack):
    """Send a copy of one honest model, which gives that client more weight."""

    kind: ClassVar[str] = "mimic"
    summary: ClassVar[str] = "a copy of one honest message"
    messages_only: ClassVar[bool] = True

    row: Index = option(0, "which of the honest messages, by the number of their senders; the last if there are fewer")

    def __call__(self, rows: Any, given: Given) -> jax.Array:
        """Return x_row."""
        return jnp.asarray(rows)[jnp.minimum(self.row, given.present.sum() - 1)]
