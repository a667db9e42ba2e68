"""DCD-PSGD: differences of models.

Tang, Gan, Zhang, Zhang, Liu 2018, "Communication compression for decentralized training",
https://arxiv.org/abs/1803.06443, Algorithm 1:

    x <- x + Q(sum_j W_ij x_j - step * gradient - x)

Neighbors keep exact replicas of x, which messages update. The scheme diverges if Q leaves out much.
"""

from __future__ import annotations

from typing import ClassVar

from simfl.compression.base import AbstractScheme
from simfl.compression.schemes.choco import Follow
from simfl.tape import Model


class DCD(AbstractScheme):
    """A client changes its model only by the compressed change that it sends."""

    kind: ClassVar[str] = "dcd"
    summary: ClassVar[str] = "DCD-PSGD: models change by what is sent, so that neighbors' replicas are exact"

    def show(self, me: int, model: Model) -> Model:
        """Return x: the change of the last round is sent now."""
        self.shown[me] = model
        return model

    def after(self, me: int, model: Model, stepped: Model) -> Model:
        """Return x + Q(stepped - x)."""
        return self._map(Follow(self._compressor), [stepped, model], me)[0]
