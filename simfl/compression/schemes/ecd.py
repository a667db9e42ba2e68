"""ECD-PSGD: extrapolated models.

Tang, Gan, Zhang, Zhang, Liu 2018, "Communication compression for decentralized training",
https://arxiv.org/abs/1803.06443, Algorithm 2; t counts rounds from 1:

    x' = sum_j W_ij xhat_j - step * gradient at x
    z = (1 - t/2) x + (t/2) x',  xhat <- (1 - 2/t) xhat + (2/t) Q(z),  x <- x'

The scheme diverges unless Q leaves out little, because z grows with t.
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
class Extrapolate(Compressing):
    """(x, x', xhat; t) -> (1 - 2/t) xhat + (2/t) Q((1 - t/2) x + (t/2) x')."""

    def __call__(self, rows: Any, given: Given) -> jax.Array:
        """Return the next xhat."""
        before, after, estimate = rows
        half = given.scalars[0] / 2.0
        message = self.compressor.compress((1.0 - half) * before + half * after, given.key)
        return (1.0 - 1.0 / half) * estimate + message / half


class ECD(AbstractScheme):
    """A client mixes the estimates xhat that all keep, including its own."""

    kind: ClassVar[str] = "ecd"
    summary: ClassVar[str] = "ECD-PSGD: estimates follow extrapolations of the models"

    def __init__(self, tape: Tape, plan: CompressionPlan, models: Mapping[int, Model]) -> None:
        super().__init__(tape, plan, models)
        self._rounds = dict.fromkeys(models, 0)

    def show(self, me: int, model: Model) -> Model:
        """Return xhat: the change of the last round is sent now."""
        return self.shown[me]

    def base(self, me: int, model: Model) -> Model:
        """Return xhat."""
        return self.shown[me]

    def after(self, me: int, model: Model, stepped: Model) -> Model:
        """Return x', and update xhat."""
        self._rounds[me] += 1
        models = [model, stepped, self.shown[me]]
        (self.shown[me],) = self._map(Extrapolate(self._compressor), models, me, [float(self._rounds[me])])
        return stepped
