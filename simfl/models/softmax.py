"""Softmax regression: z_i = W x_i + b, loss log sum_k exp z_ik - z_iy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.layered import AbstractClassifier, AbstractLinear


@dataclass(frozen=True)
class Softmax(AbstractLinear, AbstractClassifier):
    """Softmax regression; layout: W [c, p] by rows, then b [c] with an intercept."""

    kind: ClassVar[str] = "softmax"
    summary: ClassVar[str] = "softmax regression for any number of classes, convex"
