"""DCD-PSGD: differences of models.

Tang, Gan, Zhang, Zhang, Liu 2018, "Communication compression for decentralized training",
https://arxiv.org/abs/1803.06443, Algorithm 1:

    x <- x + Q(sum_j W_ij x_j - step * gradient - x)

A message makes the neighbors' replicas of x exact. It fails if Q leaves out much.
"""

from __future__ import annotations

from typing import ClassVar

from simfl.compression.base import AbstractScheme
from simfl.compression.schemes.choco import Follow
from simfl.tape import Model


class DCD(AbstractScheme):
    """A client changes its model only by what it can send."""

    kind: ClassVar[str] = "dcd"
    summary: ClassVar[str] = "DCD-PSGD: models change by what is sent, and replicas of them are exact"

    def show(self, me: int, model: Model) -> Model:
        """Return x: the last change arrives now."""
        self.shown[me] = model
        return model

    def after(self, me: int, model: Model, stepped: Model) -> Model:
        """Return x + Q(stepped - x)."""
        return self._map(Follow(self._compressor), [stepped, model], me)[0]
