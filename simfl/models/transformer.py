"""A small transformer that reads from left to right.

Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, as a decoder only, with normalization before each block (Xiong et
al. 2020, https://arxiv.org/abs/2002.04745): with h the embedding of the token plus that of its place,

    h <- h + O softmax(Q K^T / sqrt(width / heads) + mask) V,   h <- h + D gelu(U norm(h) + b) + c,

Q, K and V linear in norm(h), each of `layers` times, and logits linear in norm(h). Without dropout and batch
statistics, examples do not depend on each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from simfl.models.base import PRECISION, Array, Layout
from simfl.models.lazy import jax, jnp
from simfl.models.sequence import AbstractSequenceModel
from simfl.scenario.fields import Count, option


@dataclass(frozen=True)
class Transformer(AbstractSequenceModel):
    """Transformer; layout: embeddings, layers, last normalization, output.

    Embeddings are initially Gaussian with deviation 0.02. The last matrices of a block, O and D, begin at 0, and so
    does every block: at first the model sees single tokens. The hidden layer of a block's perceptron has 4 width units;
    `heads` divide the width.
    """

    width: Count = option(32, "width of the embeddings")
    layers: Count = option(1, "number of blocks; each has attention, and a perceptron with 4 width hidden units")
    heads: Count = option(2, "number of heads of attention, a divisor of width")

    kind: ClassVar[str] = "transformer"
    summary: ClassVar[str] = "a small transformer over the characters of a text, which predicts the next one"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise ValueError(
                f"transformer: heads: expected a divisor of the width, {self.width}, found {self.heads}; change one"
            )

    @property
    def embeddings(self) -> frozenset[str]:
        """Those of tokens and of places."""
        return frozenset(("tokens", "places"))

    @property
    def layout(self) -> Layout:
        """See the class."""
        width, wide = self.width, 4 * self.width
        parts: list[tuple[str, tuple[int, ...]]] = [("tokens", (self.num_classes, width))]
        parts.append(("places", (self.length, width)))
        for layer in range(1, self.layers + 1):
            parts += [
                (f"layer{layer}.norm1.gain", (width,)),
                (f"layer{layer}.norm1.bias", (width,)),
                (f"layer{layer}.attention.weights", (3 * width, width)),
                (f"layer{layer}.attention.output", (width, width)),
                (f"layer{layer}.norm2.gain", (width,)),
                (f"layer{layer}.norm2.bias", (width,)),
                (f"layer{layer}.up.weights", (wide, width)),
                (f"layer{layer}.up.bias", (wide,)),
                (f"layer{layer}.down.weights", (width, wide)),
                (f"layer{layer}.down.bias", (width,)),
            ]
        parts += [("norm.gain", (width,)), ("norm.bias", (width,))]
        parts += [("output.weights", (self.num_classes, width)), ("output.bias", (self.num_classes,))]
        return tuple(parts)

    def first(self, name: str, shape: tuple[int, ...], key: Array) -> Array:
        """Draw a part from a typed key; see the class."""
        if name.endswith(("attention.output", "down.weights")):
            return jnp.zeros(shape)
        return 0.02 * jax.random.normal(key, shape) if name in ("tokens", "places") else super().first(name, shape, key)

    def logits(self, params: Array, x: Array) -> Array:
        """Return the logits at every place, f32 [b, length, tokens]."""
        named = self.parts(params)
        h = named["tokens"][x] + named["places"]
        for layer in range(1, self.layers + 1):
            block = {name.partition(".")[2]: part for name, part in named.items() if name.startswith(f"layer{layer}.")}
            h = h + self._attention(block, _normalized(block, "norm1", h))
            up = _linear(block["up.weights"], _normalized(block, "norm2", h)) + block["up.bias"]
            h = h + _linear(block["down.weights"], jax.nn.gelu(up)) + block["down.bias"]
        return _linear(named["output.weights"], _normalized(named, "norm", h)) + named["output.bias"]

    def _attention(self, block: dict[str, Array], h: Array) -> Array:
        (b, length, _), each = h.shape, self.width // self.heads
        together = _linear(block["attention.weights"], h).reshape(b, length, 3, self.heads, each)
        query, key, value = jnp.moveaxis(together, 2, 0)
        scores = jnp.einsum("bqhe,bkhe->bhqk", query, key, precision=PRECISION) / math.sqrt(each)
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
        taken = jnp.einsum("bhqk,bkhe->bqhe", jax.nn.softmax(scores, axis=-1), value, precision=PRECISION)
        return _linear(block["attention.output"], taken.reshape(b, length, self.width))


def _linear(weights: Array, h: Array) -> Array:
    """Return W h at every place, [b, length, in] to [b, length, out]."""
    return jnp.einsum("bli,oi->blo", h, weights, precision=PRECISION)


def _normalized(named: dict[str, Array], name: str, h: Array) -> Array:
    """Return h normalized at every place (Ba et al. 2016)."""
    centered = h - h.mean(axis=-1, keepdims=True)
    variance = jnp.mean(centered * centered, axis=-1, keepdims=True)
    return named[f"{name}.gain"] * centered * jax.lax.rsqrt(variance + 1e-5) + named[f"{name}.bias"]
