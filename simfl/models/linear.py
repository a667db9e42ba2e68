"""Linear regression by least squares: f_i(w, b) = 1/2 (w . x_i + b - y_i)^2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.base import Array
from simfl.models.layered import AbstractLinear
from simfl.models.lazy import jnp
from simfl.scenario.fields import Flag, option


@dataclass(frozen=True)
class Linear(AbstractLinear):
    """Least squares; layout: w [p], then b if there is an intercept."""

    intercept: Flag = option(True, "add a constant term")

    kind: ClassVar[str] = "linear"
    one_output: ClassVar[bool] = True
    summary: ClassVar[str] = "linear regression with the squared error"
    tasks: ClassVar[tuple[str, ...]] = ("regression", "unknown")
    fits_targets: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_classes:
            raise ValueError(
                f"linear: expected regression data (0 classes), found {self.num_classes} classes; "
                f"use kind: {'logistic' if self.num_classes == 2 else 'softmax'}"
            )

    def output_losses(self, z: Array, y: Array) -> Array:
        """Return half the squared residuals."""
        return 0.5 * (z[0] - y) ** 2

    def output_errors(self, z: Array, y: Array) -> Array:
        """Return the residuals, f32[1, b]."""
        return z - y

    def correct(self, params: Array, x: Array, y: Array) -> Array:
        """Return NaN: a regression has no accuracy."""
        del params, y
        return jnp.full(x.shape[0], jnp.nan)
