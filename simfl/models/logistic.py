"""Binary logistic regression.

f_i(w, b) = log(1 + exp z_i) - y_i z_i with z_i = w . x_i + b and y_i in {0, 1}.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.base import Array
from simfl.models.layered import AbstractLinear
from simfl.models.lazy import jax, jnp
from simfl.scenario.fields import Flag, option


@dataclass(frozen=True)
class Logistic(AbstractLinear):
    """Logistic regression for two classes; layout: w [p], then b with an intercept."""

    intercept: Flag = option(True, "add a constant term")

    kind: ClassVar[str] = "logistic"
    one_output: ClassVar[bool] = True
    summary: ClassVar[str] = "binary logistic regression"
    tasks: ClassVar[tuple[str, ...]] = ("binary", "unknown")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_classes != 2:
            raise ValueError(
                f"logistic: expected data with 2 classes, found {self.num_classes}; "
                f"use kind: {'softmax' if self.num_classes > 2 else 'linear'}"
            )

    def output_losses(self, z: Array, y: Array) -> Array:
        """Return softplus of the signed logit, accurate for small losses."""
        return jax.nn.softplus(jnp.where(y == 1, -z[0], z[0]))

    def output_errors(self, z: Array, y: Array) -> Array:
        """Return sigmoid(z) - y, f32[1, b]."""
        return jax.nn.sigmoid(z) - y

    def correct(self, params: Array, x: Array, y: Array) -> Array:
        """Return 1.0 if the logit is on the label's side of 0, f32[b]."""
        return jnp.where((self.predict(params, x) > 0) == (y == 1), 1.0, 0.0)
