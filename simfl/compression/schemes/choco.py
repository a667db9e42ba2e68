"""CHOCO-SGD, and CHOCO-Gossip if no step is taken.

Koloskova, Stich, Jaggi 2019, "Decentralized stochastic optimization and gossip algorithms with compressed
communication", https://arxiv.org/abs/1902.00340; in the order of its program:

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
        """Return the next estimate."""
        model, estimate = rows
        return estimate + self.compressor.compress(model - estimate, given.key)


class Choco(AbstractScheme):
    """Neighbors keep an estimate xhat of each other's models; messages change it."""

    kind: ClassVar[str] = "choco"
    summary: ClassVar[str] = "CHOCO-SGD: messages change estimates that neighbors keep"

    def show(self, me: int, model: Model) -> Model:
        """Return xhat + Q(x - xhat)."""
        (self.shown[me],) = self._map(Follow(self._compressor), [model, self.shown[me]], me)
        return self.shown[me]


def theory_gamma(rho: float, beta: float, delta: float) -> float:
    """Return the step size at which CHOCO-Gossip converges linearly, for any delta.

    gamma = rho² delta / (16 rho + rho² + 4 beta² + 2 rho beta² - 8 rho delta); Theorem 2 of 1902.00340. The squared
    distance from consensus and of the estimates then shrinks by 1 - rho² delta / 82 in a round.

    Args:
        rho: spectral gap of W.
        beta: |I - W|_2, or a bound above it.
        delta: quality of the compressor, in (0, 1].
    """
    divisor = 16.0 * rho + rho**2 + 4.0 * beta**2 + 2.0 * rho * beta**2 - 8.0 * rho * delta
    return rho**2 * delta / divisor
