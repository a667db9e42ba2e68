"""Top-k sparsification.

Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with memory", https://arxiv.org/abs/1809.07599.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.compression.base import VALUE_BITS, AbstractCompressor
from simfl.models.lazy import jax, jnp
from simfl.scenario.fields import Share, option


def kept(share: float, size: int) -> int:
    """Return k, the number of coordinates in a fraction of all, at least 1."""
    return max(1, round(share * size))


@dataclass(frozen=True)
class TopK(AbstractCompressor):
    """Keeps the k coordinates of largest absolute value; delta = k/d.

    A message contains k values and their places, ceil(log2 d) bits for each place.
    """

    kind: ClassVar[str] = "top_k"
    summary: ClassVar[str] = "the coordinates of largest absolute value"

    share: Share = option(0.01, "fraction of the coordinates that a message has, k/d")

    def compress(self, x: jax.Array, key: jax.Array) -> jax.Array:
        """Return x with all but its k largest coordinates set to 0; ties keep the first."""
        _, places = jax.lax.top_k(jnp.abs(x), kept(self.share, x.shape[0]))
        return jnp.zeros_like(x).at[places].set(x[places])

    def bits(self, size: int) -> int:
        """Return k (32 + ceil(log2 d))."""
        return kept(self.share, size) * (VALUE_BITS + (size - 1).bit_length())

    def quality(self, size: int) -> float:
        """Return k/d."""
        return kept(self.share, size) / size
