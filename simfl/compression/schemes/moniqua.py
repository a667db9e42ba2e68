"""Moniqua.

Lu, De Sa 2020, https://arxiv.org/abs/2002.11787, Algorithm 1; Q and B are those of the compressor `moniqua`:

    send q = Q(x mod B);  xhat_j = x + (q_j - x) mod B, for its own message as well
    x <- x + gamma sum_j W_ij (xhat_j - xhat_i) - step * gradient

A message is complete by itself, and no client keeps a memory. A receiver finds x_j within delta B only if |x_i -
x_j|_inf <= theta in the message's round. This is not checked: a coordinate that is further away is wrong by a multiple
of B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from simfl.compression.base import Compressing
from simfl.compression.compressors.moniqua import Moniqua as Modulo
from simfl.compression.schemes.direct import Direct
from simfl.models.lazy import jax, jnp
from simfl.tape import Model
from simfl.tape.layout import padded_size
from simfl.tape.maps import Given


@dataclass(frozen=True)
class Nearest(Compressing):
    """(x, q...; a factor for each row) -> x + sum_j c_j ((q_j - x) mod B)."""

    compressor: Modulo

    def __call__(self, rows: Any, given: Given) -> jax.Array:
        """Return the mixed model."""
        known = given.present[:, None] & (jnp.arange(len(rows)) > 0)[:, None]
        apart = jnp.where(known, self.compressor.near(rows, rows[0]), 0.0)
        return rows[0] + jnp.matmul(given.scalars, apart, precision="highest")


class Moniqua(Direct):
    """Receivers take the vector nearest to their model that fits the message."""

    kind: ClassVar[str] = "moniqua"
    summary: ClassVar[str] = "Moniqua: no memory; receivers find the vector nearest to their own model"

    def mix(self, me: int, model: Model, messages: Sequence[tuple[float, Model]]) -> Model:
        """Return x + gamma sum_j W_ij (xhat_j - xhat_i) over the received messages."""
        factors = [self.plan.gamma * weight for weight, _ in messages]
        rows = [model, self.shown[me], *(message for _, message in messages)]
        numbers = [0.0, -sum(factors), *factors, *[0.0] * (padded_size(len(rows)) - len(rows))]
        assert isinstance(self._compressor, Modulo)
        return self._tape.map(Nearest(self._compressor), rows, scalars=numbers, pads=True)[0]
