"""Compressed messages without memory.

Scheme Q2-G of Koloskova, Stich, Jaggi 2019, https://arxiv.org/abs/1902.00340, which does not reach consensus:

    x <- x + gamma sum_j W_ij (Q(x_j) - Q(x_i)) - step * gradient
"""

from __future__ import annotations

from typing import ClassVar

from simfl.compression.base import AbstractScheme
from simfl.tape import Model


class Direct(AbstractScheme):
    """Clients send Q(x); the compression error is lost."""

    kind: ClassVar[str] = "direct"
    summary: ClassVar[str] = "no memory: what a message leaves out is lost"
    remembers: ClassVar[bool] = False

    def show(self, me: int, model: Model) -> Model:
        """Return Q(x)."""
        (self.shown[me],) = self._map(self._compressor, [model], me)
        return self.shown[me]

    def undo(self, me: int, before: Model, sent: Model) -> None:
        """Keep s, the last message: later ones may be on their way."""
