"""Random quantization to a few levels.

Alistarh, Grubic, Li, Tomioka, Vojnovic 2017, "QSGD", https://arxiv.org/abs/1610.02132. The divisor that makes it a
contraction is that of Koloskova, Stich, Jaggi 2019, https://arxiv.org/abs/1902.00340.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from simfl.compression.base import VALUE_BITS, AbstractCompressor
from simfl.models.lazy import jax, jnp
from simfl.scenario.fields import Count, Flag, option


@dataclass(frozen=True)
class Qsgd(AbstractCompressor):
    """Rounds s |x_i| / |x| up or down at random, so that its mean is kept.

    Q(x)_i = sign(x_i) |x| l_i / (s tau),  l_i = floor(v) + Bernoulli(v - floor(v)),  v = s |x_i| / |x|,
    tau = 1 + min(d/s², sqrt(d)/s),  delta = 1/tau. A message contains |x|, and a sign and a level for each coordinate.
    If it is unbiased, tau is 1, E Q(x) = x and delta = 1 - min(d/s², sqrt(d)/s).
    """

    kind: ClassVar[str] = "qsgd"
    summary: ClassVar[str] = "QSGD: the norm, and a sign and a random level for each coordinate"
    draws: ClassVar[bool] = True

    levels: Count = option(16, "number s of levels of an absolute value, not counting 0")
    unbiased: Flag = option(False, "whether the mean of Q(x) is x; false: Q(x) is scaled down")

    def compress(self, x: jax.Array, key: jax.Array) -> jax.Array:
        """Return Q(x); 0 for the zero vector."""
        norm = jnp.linalg.norm(x)
        level = self.levels * jnp.abs(x) / jnp.where(norm > 0.0, norm, 1.0)
        low = jnp.floor(level)
        up = jax.random.uniform(key, x.shape) < level - low
        divisor = self.levels * (1.0 if self.unbiased else 1.0 + self._spread(x.shape[0]))
        return jnp.sign(x) * norm * (low + up) / divisor

    def _spread(self, size: int) -> float:
        return min(size / self.levels**2, math.sqrt(size) / self.levels)

    def bits(self, size: int) -> int:
        """Return 32 + d (1 + ceil(log2(s + 1)))."""
        return VALUE_BITS + size * (1 + self.levels.bit_length())

    def quality(self, size: int) -> float:
        """Return 1/tau, or 1 - min(d/s², sqrt(d)/s) if unbiased."""
        spread = self._spread(size)
        return 1.0 - spread if self.unbiased else 1.0 / (1.0 + spread)
