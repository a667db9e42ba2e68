"""Constants of problems of known optimum: smoothness, convexity, heterogeneity.

A problem gives the gradients of its examples and the extreme curvatures of any of their means, in float64. It keeps the
examples as they are trained on, in float32. `simfl.assembly.known` adds what depends on the run: who holds which
examples, and how batches are drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
DoubleArray = npt.NDArray[np.float64]
Indices = npt.NDArray[np.integer] | slice


@dataclass(frozen=True, eq=False)
class Minimum:
    """The minimum of the mean loss f of some training examples, with l2.

    Attributes:
        optimum: the minimizer w*, f64 [d].
        loss: f(w*).
        suboptimality: returns f(w) - f(w*) in float64 for parameters w, f64 [d].
    """

    optimum: DoubleArray
    loss: float
    suboptimality: Callable[[DoubleArray], float]


class Known(Protocol):
    """A problem whose optimum is known."""

    def gradients(self, w: DoubleArray) -> DoubleArray:
        """Return the gradient of each training example at w [d], without l2, [n, d]."""

    def curvatures(self, examples: Indices) -> tuple[float, float]:
        """Return mu and L, without l2, of the mean loss of some training examples.

        They are the least and the largest eigenvalue of its Hessian, over all w.
        """


@dataclass(frozen=True, eq=False)
class Points:
    """1/2 (w - a_i)^T diag(h) (w - a_i), with h [d] and points [n, d]."""

    h: DoubleArray
    points: FloatArray

    def gradients(self, w: DoubleArray) -> DoubleArray:
        """Return h (w - a_i)."""
        return self.h * (w - self.points)

    def curvatures(self, examples: Indices) -> tuple[float, float]:
        """Return the extremes of h, whatever the examples."""
        return float(self.h.min()), float(self.h.max())


@dataclass(frozen=True, eq=False)
class Forms:
    """1/2 w^T A_i w - b_i^T w, with symmetric A [n, d, d] and b [n, d]."""

    matrices: FloatArray
    vectors: FloatArray

    def gradients(self, w: DoubleArray) -> DoubleArray:
        """Return A_i w - b_i."""
        return self.matrices @ w - self.vectors

    def curvatures(self, examples: Indices) -> tuple[float, float]:
        """Return the extreme eigenvalues of the mean of A_i."""
        return _extremes(self.matrices[examples].mean(axis=0, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Rows:
    """Least squares 1/2 (x_i w - y_i)^2, or log(1 + exp(-y_i x_i w)) with y_i = +-1.

    With an intercept, x_i has a last 1 beside the features x [n, p]. The Hessian of the logistic loss is at most that
    of w = 0, a quarter of the mean of x_i x_i^T, and has no positive lower bound.
    """

    x: FloatArray
    y: FloatArray
    intercept: bool
    logistic: bool

    def gradients(self, w: DoubleArray) -> DoubleArray:
        """Return (x_i w - y_i) x_i, or -y_i x_i / (1 + exp(y_i x_i w))."""
        x = design_of(self.x, self.intercept)
        z = x @ w
        factors = -self.y / (1.0 + np.exp(self.y * z)) if self.logistic else z - self.y
        return factors[:, None] * x

    def curvatures(self, examples: Indices) -> tuple[float, float]:
        """Return the extreme eigenvalues of the mean of x_i x_i^T; 0 and L/4."""
        x = design_of(self.x[examples], self.intercept)
        least, largest = _extremes(x.T @ x / len(x))
        return (0.0, largest / 4) if self.logistic else (least, largest)


@dataclass(frozen=True, eq=False)
class SomeOf:
    """The problem of some examples [m] of another one."""

    whole: Known
    examples: npt.NDArray[np.integer]

    def gradients(self, w: DoubleArray) -> DoubleArray:
        """Return the gradients of these examples."""
        gradients: DoubleArray = self.whole.gradients(w)[self.examples]
        return gradients

    def curvatures(self, examples: Indices) -> tuple[float, float]:
        """Return the extremes of some of these examples."""
        return self.whole.curvatures(self.examples[examples])


def design_of(x: FloatArray, intercept: bool) -> DoubleArray:
    """Return the features in float64, with a last column of ones for an intercept."""
    columns = [x.astype(np.float64), np.ones((len(x), 1))] if intercept else [x.astype(np.float64)]
    return np.concatenate(columns, axis=1)


def _extremes(hessian: DoubleArray) -> tuple[float, float]:
    """Return the least eigenvalue, 0 if it is only rounding, and the largest size."""
    values = np.linalg.eigvalsh(hessian)
    largest = float(np.abs(values).max())
    return float(values[0]) if abs(values[0]) > 1e-13 * largest else 0.0, largest
