"""Linear support vector machine for classes: z_i = W x_i + b, hinge loss.

    crammer_singer  max(0, 1 + max_{k != y} z_ik - z_iy)
    one_vs_rest     sum_k max(0, 1 - s_ik z_ik), s_ik = 1 if k is the label and -1 if not

Crammer and Singer 2001, "On the algorithmic implementation of multiclass kernel-based vector machines",
https://jmlr.org/papers/v2/crammer01a.html. At a kink, the gradient is one-sided: 0 at the start of the hinge, and the
first of equally wrong classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from simfl.models.base import Array
from simfl.models.layered import AbstractClassifier, AbstractLinear
from simfl.models.lazy import jnp
from simfl.scenario.fields import Flag, option


@dataclass(frozen=True)
class SVM(AbstractLinear, AbstractClassifier):
    """Linear hinge-loss classifier; layout: W [c, p] by rows, then b [c]."""

    intercept: Flag = option(True, "add a constant term to each class")
    loss_kind: Literal["crammer_singer", "one_vs_rest"] = option(
        "crammer_singer",
        "hinge of the margin to the worst other class (crammer_singer), or one hinge for each class (one_vs_rest)",
    )

    kind: ClassVar[str] = "svm"
    summary: ClassVar[str] = "a linear support vector machine over the classes"

    def output_losses(self, z: Array, y: Array) -> Array:
        """Return the hinge losses, f32[b]."""
        if self.loss_kind == "one_vs_rest":
            return jnp.sum(jnp.maximum(0.0, 1.0 - self._signs(y) * z), axis=0)
        right = jnp.sum(jnp.where(self._is_label(y), z, 0.0), axis=0)
        return jnp.maximum(0.0, 1.0 + jnp.max(self._others(z, y), axis=0) - right)

    def output_errors(self, z: Array, y: Array) -> Array:
        """Return a subgradient, f32[c, b]: 1 for the worst other class, -1, or 0."""
        if self.loss_kind == "one_vs_rest":
            signs = self._signs(y)
            return jnp.where(signs * z < 1.0, -signs, 0.0)
        worst = jnp.arange(self.num_classes)[:, None] == jnp.argmax(self._others(z, y), axis=0)[None, :]
        errors = worst.astype(jnp.float32) - self._is_label(y)
        return jnp.where(self.output_losses(z, y) > 0.0, errors, 0.0)

    def _others(self, z: Array, y: Array) -> Array:
        return jnp.where(self._is_label(y), -jnp.inf, z)

    def _signs(self, y: Array) -> Array:
        return jnp.where(self._is_label(y), 1.0, -1.0)
