"""Softmax regression: z_i = W x_i + b, loss log sum_k exp z_ik - z_iy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.layered import AbstractClassifier, AbstractLinear
from simfl.scenario.fields import Flag, option


@dataclass(frozen=True)
class Softmax(AbstractLinear, AbstractClassifier):
    """Softmax regression; layout: W [c, p] by rows, then b [c] with an intercept."""

    intercept: Flag = option(True, "add a constant term to each class")

    kind: ClassVar[str] = "softmax"
    summary: ClassVar[str] = "softmax regression over the classes"
