"""CHOCO-SGD; without gradient steps it is CHOCO-Gossip.

Koloskova, Stich, Jaggi 2019, "Decentralized stochastic optimization and gossip algorithms with compressed
communication", https://arxiv.org/abs/1902.00340; in the order of the paper's program:

    q = Q(x - xhat),  xhat <- xhat + q,  x <- x + gamma sum_j W_ij (xhat_j - xhat_i) - step * gradient
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from simfl.compression.base import AbstractScheme, Compressing
from simfl.models.lazy import jax
from simfl.tape import Model
from simfl.tape.maps import Given


@dataclass(frozen=True)
class Follow(Compressing):
    """(x, xhat) -> xhat + Q(x - xhat)."""

    def __call__(self, rows: Any, given: Given) -> jax.Array:
        """Return the next xhat."""
        model, estimate = rows
        return estimate + self.compressor.compress(model - estimate, given.key)


class Choco(AbstractScheme):
    """Neighbors keep estimates xhat of each other's models; messages update them."""

    kind: ClassVar[str] = "choco"
    summary: ClassVar[str] = "CHOCO-SGD: messages update the neighbors' estimates of a model"

    def show(self, me: int, model: Model) -> Model:
        """Return xhat + Q(x - xhat)."""
        (self.shown[me],) = self._map(Follow(self._compressor), [model, self.shown[me]], me)
        return self.shown[me]


def theory_gamma(rho: float, beta: float, delta: float) -> float:
    """Return the step size at which CHOCO-Gossip converges linearly, for any delta.

    gamma = rho² delta / (16 rho + rho² + 4 beta² + 2 rho beta² - 8 rho delta); Theorem 2 of 1902.00340. The squared
    distances from consensus and of the estimates then shrink by 1 - rho² delta / 82 in every round.

    Args:
        rho: spectral gap of W.
        beta: |I - W|_2, or an upper bound on it.
        delta: quality of the compressor, in (0, 1].
    """
    divisor = 16.0 * rho + rho**2 + 4.0 * beta**2 + 2.0 * rho * beta**2 - 8.0 * rho * delta
    return rho**2 * delta / divisor
