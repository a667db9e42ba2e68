"""DeepSqueeze.

Tang, Lian, Qiu, Yuan, Zhang, Zhang, Liu 2019, https://arxiv.org/abs/1907.07346:

    v = x + e,  send c = Q(v),  e <- v - c,  x <- x + gamma sum_j W_ij (c_j - c_i) - step * gradient

A message is complete by itself, so receivers keep no state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from simfl.compression.base import AbstractScheme, Compressing, CompressionPlan
from simfl.models.lazy import jax
from simfl.tape import Model, Tape
from simfl.tape.maps import Given


@dataclass(frozen=True)
class WithError(Compressing):
    """(x, e) -> c = Q(x + e), and x + e - c."""

    outputs: ClassVar[int] = 2

    def __call__(self, rows: Any, given: Given) -> tuple[jax.Array, jax.Array]:
        """Return the message, and its compression error."""
        whole = rows[0] + rows[1]
        message = self.compressor.compress(whole, given.key)
        return message, whole - message


class DeepSqueeze(AbstractScheme):
    """A client adds the compression error of its last messages to the next one."""

    kind: ClassVar[str] = "deep_squeeze"
    summary: ClassVar[str] = "DeepSqueeze: what a message leaves out is added to the next one"
    remembers: ClassVar[bool] = False

    def __init__(self, tape: Tape, plan: CompressionPlan, models: Mapping[int, Model]) -> None:
        super().__init__(tape, plan, models)
        self._error = {client: tape.combine((0.0, model)) for client, model in models.items()}

    def show(self, me: int, model: Model) -> Model:
        """Return Q(x + e)."""
        self.shown[me], self._error[me] = self._map(WithError(self._compressor), [model, self._error[me]], me)
        return self.shown[me]

    def undo(self, me: int, before: Model, sent: Model) -> None:
        """Add the message to what is left out: e <- e + c."""
        self._error[me] = self._tape.combine((1.0, self._error[me]), (1.0, sent))
