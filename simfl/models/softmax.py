"""Softmax (multinomial logistic) regression: logits z_i = W x_i + b, loss log sum_k exp z_ik - z_iy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.base import Array
from simfl.models.layers import AbstractLayer, Dense
from simfl.models.network import AbstractClassifier, Pass


@dataclass(frozen=True)
class Softmax(AbstractClassifier):
    """Softmax regression; layout: W [c, p] by rows, then b [c] if there is an intercept.

    Args:
        intercept: whether there is a b. It is penalised by `l2` like the rest.
    """

    intercept: bool = True

    kind: ClassVar[str] = "softmax"
    summary: ClassVar[str] = "softmax regression for any number of classes, convex"

    @property
    def layers(self) -> tuple[AbstractLayer, ...]:
        """One logit per class."""
        return (Dense(self.num_features, self.num_classes, self.intercept, "zeros", example_first=True),)

    def forward(self, apply: Pass, x: Array) -> Array:
        """Return the logits, f32[c, b]."""
        return apply(x.reshape(x.shape[0], -1))
