"""Numbers modulo a bound, on a grid.

Lu, De Sa 2020, "Moniqua: modulo quantized communication in decentralized SGD", https://arxiv.org/abs/2002.11787, with
nearest rounding and without shared random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from simfl.compression.base import AbstractCompressor
from simfl.models.lazy import jax, jnp
from simfl.scenario.fields import Positive, Within, option


@dataclass(frozen=True)
class Moniqua(AbstractCompressor):
    """Q(x) = x mod B, rounded to a multiple of B / 2^b.

    B = 2 theta / (1 - 2 delta) and delta = 2^-(b+1); mod B has values from -B/2 to B/2. A message has b bits
    for each coordinate. A receiver whose model is within theta of x in each coordinate finds x within delta B: see
    `simfl.compression.schemes.moniqua`. theta bounds |x_i - x_j|_inf of a sender and a receiver; bits_each is b.
    """

    kind: ClassVar[str] = "moniqua"
    summary: ClassVar[str] = "each coordinate modulo B = 2 theta / (1 - 2^-bits_each)"
    note: ClassVar[str] = "A receiver finds the vector nearest to its own model."

    schemes: ClassVar[tuple[str, ...]] = ("moniqua",)

    theta: Positive = field(
        metadata={
            "description": "largest difference of a coordinate of the models of two neighbors; a larger one is not "
            "noticed, and makes models wrong by a multiple of B"
        }
    )
    bits_each: Annotated[int, Within(at_least=1, at_most=16)] = option(8, "number of bits of a coordinate")

    @property
    def modulus(self) -> float:
        """B."""
        return 2.0 * self.theta / (1.0 - 0.5**self.bits_each)

    def compress(self, x: jax.Array, key: jax.Array) -> jax.Array:
        """Return x mod B on the grid."""
        count = 2**self.bits_each
        step = self.modulus / count
        return step * (jnp.mod(jnp.round(x / step) + count // 2, count) - count // 2)

    def near(self, message: jax.Array, x: jax.Array) -> jax.Array:
        """Return, of the vectors that a message may be of, the one nearest to x, minus x."""
        apart = message - x
        return apart - self.modulus * jnp.round(apart / self.modulus)

    def bits(self, size: int) -> int:
        """Return b d."""
        return self.bits_each * size

    def quality(self, size: int) -> float:
        """Return -3: without a model near x, Q(x) may be twice as far from x as 0 is."""
        return -3.0
