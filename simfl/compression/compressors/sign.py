"""Signs, with the mean absolute value.

Karimireddy, Rebjock, Stich, Jaggi 2019, "Error feedback fixes SignSGD", https://arxiv.org/abs/1901.09847.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.compression.base import VALUE_BITS, AbstractCompressor
from simfl.models.lazy import jax, jnp


@dataclass(frozen=True)
class Sign(AbstractCompressor):
    """Q(x) = (|x|_1 / d) sign(x), where the sign of 0 is 1.

    |Q(x) - x|² = (1 - |x|_1² / (d |x|²)) |x|², so delta = 1/d holds for every x; for normally distributed x it is
    about 2/pi. A message contains |x|_1 and a sign for each coordinate.
    """

    kind: ClassVar[str] = "sign"
    summary: ClassVar[str] = "the sign of each coordinate, and the mean absolute value"

    def compress(self, x: jax.Array, key: jax.Array) -> jax.Array:
        """Return the signs of x, times the mean absolute value."""
        return jnp.where(x < 0.0, -1.0, 1.0) * jnp.abs(x).mean()

    def bits(self, size: int) -> int:
        """Return 32 + d."""
        return VALUE_BITS + size

    def quality(self, size: int) -> float:
        """Return 1/d, which holds for every vector."""
        return 1.0 / size
