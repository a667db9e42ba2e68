"""Random-k sparsification.

Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with memory", https://arxiv.org/abs/1809.07599.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.compression.base import VALUE_BITS, AbstractCompressor
from simfl.compression.compressors.top_k import kept
from simfl.models.lazy import jax, jnp
from simfl.scenario.fields import Flag, Share, option


@dataclass(frozen=True)
class RandomK(AbstractCompressor):
    """Keeps k coordinates, drawn anew for every message; delta = k/d.

    A message contains k values. Sender and receiver draw the same places from a shared seed.
    If it is unbiased, E Q(x) = x and delta = 2 - d/k.
    """

    kind: ClassVar[str] = "random_k"
    summary: ClassVar[str] = "random coordinates; sender and receiver share the seed"
    draws: ClassVar[bool] = True

    share: Share = option(0.01, "fraction of the coordinates that a message has, k/d")
    unbiased: Flag = option(False, "whether values are multiplied by d/k")

    def compress(self, x: jax.Array, key: jax.Array) -> jax.Array:
        """Return x with all but k random coordinates set to 0."""
        size = x.shape[0]
        count = kept(self.share, size)
        _, places = jax.lax.top_k(jax.random.uniform(key, (size,)), count)
        factor = size / count if self.unbiased else 1.0
        return jnp.zeros_like(x).at[places].set(factor * x[places])

    def bits(self, size: int) -> int:
        """Return 32 k."""
        return kept(self.share, size) * VALUE_BITS

    def quality(self, size: int) -> float:
        """Return k/d, or 2 - d/k if unbiased."""
        share = kept(self.share, size) / size
        return 2.0 - 1.0 / share if self.unbiased else share
