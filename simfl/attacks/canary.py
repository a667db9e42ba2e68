"""A model with canaries: examples whose gradient an auditor knows.

A gradient canary is an example whose gradient is one coordinate direction for all parameters, so the clipped sum of a
mini-batch shows directly whether it was in the batch (the "Dirac canary" of Nasr, Hayes, Steinke, Balle, Tramer,
Jagielski, Carlini and Terzis 2023, "Tight auditing of differentially private machine learning",
https://arxiv.org/abs/2302.07956). Canaries are orthogonal to each other, so many can be distinguished in one run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from simfl.models.base import AbstractModel, Array, clipping_scale

#: Codes of examples: an ordinary one, and one without any gradient. A gradient canary i has +(i + 1) or -(i + 1).
ORDINARY, SILENT = 0.0, 0.5
#: Factor of a code beside the features: so small that it does not change the norm of an example.
UNIT = 2.0**-40
#: Raw norm of a canary's gradient over the clipping norm, so that clipping cuts it.
EXCESS = 10.0
#: The same if each gradient has its own clipping norm, which may be far from the scenario's.
OWN_EXCESS = 2.0**20


@dataclass(frozen=True)
class CanaryModel(AbstractModel):
    """Another model for examples with a code after their features, of shape (p + 1,).

    An example with code 0 is one of the `inner` model. With code 1/2 it has no loss and no gradient, and represents an
    absent example. With code +(i + 1) or -(i + 1) its gradient, before clipping, is +norm or -norm in coordinate
    `coordinates[i]`, for at most m = `canaries`. Coordinates are those of the inner model, spread over all its layers;
    if it has fewer parameters than canaries, or with `beside`, zeros that nothing else uses are appended. `blank`
    coordinates come last: no example has a gradient there, so a release contains only noise.
    """

    inner: AbstractModel = field(kw_only=True)
    canaries: int = field(kw_only=True)
    norm: float = field(kw_only=True)
    blank: int = field(default=0, kw_only=True)
    beside: bool = field(default=False, kw_only=True)

    kind: ClassVar[str] = "canary"
    summary: ClassVar[str] = "another model, with canaries among its examples"

    @classmethod
    def around(cls, inner: AbstractModel, canaries: int, norm: float, blank: int = 0) -> CanaryModel:
        """Return the model around another one."""
        shape = (inner.num_features + 1,)
        return cls(shape, inner.num_classes, inner.l2, inner=inner, canaries=canaries, norm=norm, blank=blank)

    @property
    def convolutional(self) -> bool:  # type: ignore[override]
        """Whether the inner model is convolutional."""
        return self.inner.convolutional

    @property
    def clipped_by(self) -> str | None:
        """See the inner model."""
        return self.inner.clipped_by

    @property
    def draws(self) -> bool:  # type: ignore[override]
        """See the inner model."""
        return self.inner.draws

    @property
    def first_convolution(self) -> int | None:
        """See the inner model."""
        return self.inner.first_convolution

    @property
    def size(self) -> int:
        """The inner model's size, or m if that is more, and the blank coordinates."""
        return self.touched + self.blank

    @property
    def touched(self) -> int:
        """The number of leading coordinates in which examples have gradients."""
        return self.inner.size + self.canaries if self.beside else max(self.inner.size, self.canaries)

    @property
    def coordinates(self) -> NDArray[np.int32]:
        """The coordinate of each canary, int32 [m], all different."""
        if self.beside:
            return np.arange(self.inner.size, self.touched, dtype=np.int32)
        size = self.touched
        stride = max(1, round(0.618 * size))
        while math.gcd(stride, size) != 1:
            stride += 1
        return (np.arange(self.canaries, dtype=np.int64) * stride % size).astype(np.int32)

    def init(self, key: Array | np.ndarray) -> Array:
        """Return the inner model's initial parameters, and zeros."""
        return jnp.concatenate([self.inner.init(key), jnp.zeros(self.size - self.inner.size)])

    def predict(self, params: Array, x: Array) -> Array:
        """Return the inner model's predictions."""
        return self.inner.predict(self._inner_params(params), self._features(x))

    def losses(self, params: Array, x: Array, y: Array) -> Array:
        """Return the inner model's losses, 0 for canaries and silent examples."""
        losses = self.inner.losses(self._inner_params(params), self._features(x), y)
        return jnp.where(self._codes(x) == ORDINARY, losses, 0.0)

    def correct(self, params: Array, x: Array, y: Array) -> Array:
        """Return which predictions of the inner model are right."""
        return self.inner.correct(self._inner_params(params), self._features(x), y)

    def gradient_sum(self, params: Array, x: Array, y: Array, weight: Array) -> Array:
        """Return the inner model's sum, plus the canaries' directions."""
        ordinary = jnp.where(self._codes(x) == ORDINARY, weight, 0.0)
        total = self.inner.gradient_sum(self._inner_params(params), self._features(x), y, ordinary)
        return self._with_canaries(total, self._codes(x), weight)

    def clip_and_sum(
        self, params: Array, x: Array, y: Array, weight: Array, clipping_norm: float | Array
    ) -> tuple[Array, Array]:
        """Return the sum with every example's gradient clipped, including canaries."""
        ordinary, inner = jnp.where(self._codes(x) == ORDINARY, weight, 0.0), self._inner_params(params)
        total, zeroed = self.inner.clip_and_sum(inner, self._features(x), y, ordinary, clipping_norm)
        scale = clipping_scale(jnp.full(weight.shape, self.norm**2), weight, clipping_norm)
        return self._with_canaries(total, self._codes(x), scale), zeroed

    def gradient_norms(self, params: Array, x: Array, y: Array) -> Array:
        """Return the norms of all examples' gradients, f32[b]."""
        norms = self.inner.gradient_norms(self._inner_params(params), self._features(x), y)
        return jnp.where(self._codes(x) == ORDINARY, norms, jnp.where(self._codes(x) == SILENT, 0.0, self.norm))

    def _inner_params(self, params: Array) -> Array:
        return params[: self.inner.size]

    def _features(self, x: Array) -> Array:
        features = x[:, :-1].reshape(x.shape[0], *self.inner.input_shape)
        return features.astype(jnp.int32) if self.inner.tokens else features

    def _codes(self, x: Array) -> Array:
        return x[:, -1] * np.float32(1.0 / UNIT)

    def _with_canaries(self, total: Array, code: Array, scale: Array) -> Array:
        """Add scale_i * norm * (sign of the code) in each canary's coordinate."""
        total = jnp.concatenate([total, jnp.zeros(self.size - self.inner.size)])
        number = jnp.abs(code).astype(jnp.int32) - 1  # -1 for ordinary and silent examples
        amount = jnp.where(number >= 0, scale * self.norm * jnp.sign(code), 0.0)
        at = jnp.asarray(self.coordinates)[jnp.maximum(number, 0)]
        return total.at[at].add(amount)


def with_codes(x: NDArray[np.float32], codes: NDArray[np.float32] | float) -> NDArray[np.float32]:
    """Return examples [n, ...] with codes for the canary model, f32 [n, p + 1]."""
    flat = np.asarray(x, dtype=np.float32).reshape(len(x), -1)
    column = np.float32(UNIT) * np.broadcast_to(np.asarray(codes, dtype=np.float32), (len(x),))
    return np.concatenate([flat, column[:, None]], axis=1)
