"""Quadratic with known optimum: f_i(w) = 1/2 (w - a_i)^T H (w - a_i).

The mean over any set of points has its minimum at their mean for every H, so distances to the optimum are exact; the
ratio of the largest to the smallest curvature is the condition number.

Problems given as matrices have f_i(w) = 1/2 w^T A_i w - b_i^T w: an example is A_i [d, d] by rows, then b_i [d].
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from simfl.models.base import AbstractModel, Array, masked
from simfl.models.lazy import jnp, np
from simfl.models.precision import rounded


@dataclass(frozen=True)
class Quadratic(AbstractModel):
    """Quadratic around the points of the data; layout: w [d]. Labels are ignored.

    `curvature` is the diagonal of H, one number > 0 for each of d = p features, or one for all. None: each example has
    a matrix and a vector of its own, p = d² + d.
    """

    curvature: tuple[float, ...] | float | None = 1.0

    kind: ClassVar[str] = "quadratic"
    summary: ClassVar[str] = "the loss 1/2 (w - a_i)^T H (w - a_i) of each example a_i"
    note: ClassVar[str] = (
        "H has the curvatures of the data set quadratic. Problems given as matrices have 1/2 w^T A_i w - b_i^T w."
    )
    tasks: ClassVar[tuple[str, ...]] = ("points",)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.curvature
        if given is None:
            if self.size * (self.size + 1) != self.num_features:
                raise ValueError(f"quadratic: expected d² + d features, of A and b, found {self.num_features}")
            return
        values = tuple(float(h) for h in given) if isinstance(given, Iterable) else (float(given),) * self.num_features
        if len(values) != self.num_features or not all(math.isfinite(h) and h > 0 for h in values):
            span = f" from {min(values):g} to {max(values):g}" if values else ""
            raise ValueError(
                f"quadratic: curvature: expected {self.num_features} finite numbers > 0, one per dimension of the "
                f"points, found {len(values)}{span}"
            )
        object.__setattr__(self, "curvature", values)

    @property
    def size(self) -> int:
        """The dimension of the points, d."""
        return self.num_features if self.curvature is not None else (math.isqrt(4 * self.num_features + 1) - 1) // 2

    def init(self, key: Array | np.ndarray) -> Array:
        """Return zeros, which takes no JAX."""
        del key
        return np.zeros(self.size, np.float32)

    def predict(self, params: Array, x: Array) -> Array:
        """Return w for every example, f32[b, p]."""
        return jnp.broadcast_to(params, (x.shape[0], self.size))

    def losses(self, params: Array, x: Array, y: Array) -> Array:
        """Return 1/2 (w - a_i)^T H (w - a_i), or 1/2 w^T A_i w - b_i^T w, f32[b]."""
        if self.curvature is None:
            matrices, vectors = self._forms(x)
            return (0.5 * (matrices @ params) - vectors) @ params
        difference = params - x.reshape(x.shape[0], -1)
        return 0.5 * jnp.sum(self._diagonal() * difference * difference, axis=1)

    def correct(self, params: Array, x: Array, y: Array) -> Array:
        """Return NaN: points have no labels."""
        del params, y
        return jnp.full(x.shape[0], jnp.nan)

    def gradient_sum(self, params: Array, x: Array, y: Array, weight: Array) -> Array:
        """Return sum_i weight_i times the gradient, f32[d]."""
        return jnp.sum(weight[:, None] * self._gradients(params, masked(x, weight), y), axis=0)

    @rounded
    def _gradients(self, params: Array, x: Array, y: Array) -> Array:
        """Return H (w - a_i), or A_i w - b_i, f32[b, d], at most as large as the batch."""
        if self.curvature is None:
            matrices, vectors = self._forms(x)
            return matrices @ params - vectors
        return self._diagonal() * (params - x.reshape(x.shape[0], -1))

    def _forms(self, x: Array) -> tuple[Array, Array]:
        """Return A_i, f32[b, d, d], and b_i, f32[b, d]."""
        flat, d = x.reshape(x.shape[0], -1), self.size
        return flat[:, : d * d].reshape(-1, d, d), flat[:, d * d :]

    def _diagonal(self) -> Array:
        return jnp.asarray(self.curvature, dtype=jnp.float32)
