"""One-vs-all logistic regression: one binary model per class.

    f_i(w) = sum_c [ log(1 + exp z_ic) - 1{y_i = c} z_ic ],   z_ic = w_c . x_i + b_c

The c models share only the data. Most algorithms train them as one vector; `without_replacement_sgd` and its relatives
train them one by one and join them for evaluations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.base import PRECISION, AbstractModel, Array, Layout, clipping_scale, count_unbounded, masked
from simfl.models.layers import squares
from simfl.models.lazy import jax, jnp, np
from simfl.models.logistic import Logistic
from simfl.models.precision import rounded
from simfl.scenario.fields import Flag, option


@dataclass(frozen=True)
class OneVsAll(AbstractModel):
    """A `Logistic` for every class; layout: per task w [p], then b with an intercept.

    `l2` penalizes the intercepts like the rest.
    """

    intercept: Flag = option(True, "add a constant term to each task")

    kind: ClassVar[str] = "one_vs_all"
    summary: ClassVar[str] = "a binary logistic regression for each class; the largest score wins"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_classes < 2:
            raise ValueError(
                f"one_vs_all: expected data with 2 or more classes, found {self.num_classes}; "
                "use kind: linear for regression"
            )

    @property
    def task_models(self) -> tuple[AbstractModel, ...]:
        """The binary models of the classes, each with label 1 for its class."""
        task = Logistic(input_shape=self.input_shape, num_classes=2, l2=self.l2, intercept=self.intercept)
        return (task.with_precision(self.precision),) * self.num_classes

    @property
    def size(self) -> int:
        """Classes times the size of a task."""
        return self.num_classes * (self.num_features + self.intercept)

    @property
    def layout(self) -> Layout:
        """One row for each task: its weights, then its b."""
        return (("tasks", (self.num_classes, self.num_features + self.intercept)),)

    def init(self, key: Array | np.ndarray) -> Array:
        """Return zeros, which takes no JAX."""
        return np.zeros(self.size, np.float32)

    def predict(self, params: Array, x: Array) -> Array:
        """Return the scores, f32[b, c]."""
        return jnp.matmul(self._features(x), params.reshape(self.num_classes, -1).T, precision=PRECISION)

    def losses(self, params: Array, x: Array, y: Array) -> Array:
        """Return the sum over tasks of softplus of the signed score, f32[b]."""
        z = self.predict(params, x)
        return jnp.sum(jax.nn.softplus(jnp.where(self._is_label(y), -z, z)), axis=1)

    def correct(self, params: Array, x: Array, y: Array) -> Array:
        """Return 1.0 where the largest score is the label's, f32[b]."""
        return jnp.where(jnp.argmax(self.predict(params, x), axis=1) == y, 1.0, 0.0)

    @rounded
    def gradient_sum(self, params: Array, x: Array, y: Array, weight: Array) -> Array:
        """Return sum_i weight_i e_i u_i^T, e = sigmoid(z) - onehot(y), u = (x, 1), f32[d]."""
        x = masked(x, weight)
        return self._weighted(self._errors(params, x, y), x, weight)

    def clip_and_sum(
        self, params: Array, x: Array, y: Array, weight: Array, clipping_norm: float | Array
    ) -> tuple[Array, Array]:
        """Clip each gradient over all tasks together; ||e u^T|| = ||e|| ||u||."""
        x = masked(x, weight)
        errors = self._errors(params, x, y)
        squared = self._squared_norms(errors, x)
        scale = clipping_scale(squared, weight, clipping_norm)
        return self._weighted(errors, x, scale), count_unbounded(squared, weight)

    def gradient_norms(self, params: Array, x: Array, y: Array) -> Array:
        """Return ||g_i||, f32[b]."""
        return jnp.sqrt(self._squared_norms(self._errors(params, x, y), x))

    def _squared_norms(self, errors: Array, x: Array) -> Array:
        return squares(errors, 1) * squares(self._features(x), 1)

    def _features(self, x: Array) -> Array:
        """Return u = (x, 1), f32[b, p + 1], or x without an intercept."""
        flat = x.reshape(x.shape[0], -1)
        return jnp.concatenate([flat, jnp.ones((x.shape[0], 1))], axis=1) if self.intercept else flat

    @rounded
    def _errors(self, params: Array, x: Array, y: Array) -> Array:
        return jax.nn.sigmoid(self.predict(params, x)) - self._is_label(y)

    def _weighted(self, errors: Array, x: Array, weight: Array) -> Array:
        scaled = jnp.where(weight[:, None] != 0, errors * weight[:, None], 0.0)
        return jnp.matmul(scaled.T, self._features(x), precision=PRECISION).reshape(-1)

    def _is_label(self, y: Array) -> Array:
        return y[:, None] == jnp.arange(self.num_classes)[None, :]
