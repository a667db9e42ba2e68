"""A small transformer that reads from left to right.

Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, as a decoder alone with the normalisation before each block
(Xiong et al. 2020, https://arxiv.org/abs/2002.04745): with h the embedding of the token plus that of its place,

    h <- h + O softmax(Q K^T / sqrt(width / heads) + mask) V,   h <- h + D gelu(U norm(h) + b) + c,

Q, K and V linear in norm(h), each of `layers` times, and logits linear in norm(h). Nothing is dropped out and no
statistics are taken over a batch: examples do not depend on each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from simfl.models.base import Array, Layout
from simfl.models.layers import PRECISION
from simfl.models.sequence import AbstractSequenceModel


@dataclass(frozen=True)
class Transformer(AbstractSequenceModel):
    """Transformer; layout: embeddings, layers, last normalization, output.

    Embeddings are Gaussian with deviation 0.02 at first. The matrices that end a block, O and D, begin at 0: so does
    every block, and the model sees tokens one by one.

    Args:
        width: of the embeddings.
        layers: blocks of attention and of a perceptron, whose hidden layer has 4 width units.
        heads: of attention; they divide the width.
    """

    width: int = 32
    layers: int = 1
    heads: int = 2

    kind: ClassVar[str] = "transformer"
    summary: ClassVar[str] = "small transformer over sequences of characters, for the next one"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("width", "layers", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"transformer: {name}: expected an integer >= 1, found {getattr(self, name)}")
        if self.width % self.heads:
            raise ValueError(
                f"transformer: heads: expected a divisor of the width, {self.width}, found {self.heads}; change one"
            )

    @property
    def layout(self) -> Layout:
        """As the class says."""
        width, wide = self.width, 4 * self.width
        parts: list[tuple[str, tuple[int, ...]]] = [
            ("tokens", (self.num_classes, width)),
            ("places", (self.length, width)),
        ]
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
        """As the class says, and as all models of sequences."""
        if name.endswith(("attention.output", "down.weights")):
            return jnp.zeros(shape)
        return 0.02 * jax.random.normal(key, shape) if name in ("tokens", "places") else super().first(name, shape, key)

    def logits(self, params: Array, x: Array) -> Array:
        """Return the logits at every place, f32 [b, length, tokens]."""
        named = self.named(params)
        h = named["tokens"][x] + named["places"]
        for layer in range(1, self.layers + 1):
            own = {name.partition(".")[2]: part for name, part in named.items() if name.startswith(f"layer{layer}.")}
            h = h + self._attention(own, _normalised(own, "norm1", h))
            up = _linear(own["up.weights"], _normalised(own, "norm2", h)) + own["up.bias"]
            h = h + _linear(own["down.weights"], jax.nn.gelu(up)) + own["down.bias"]
        return _linear(named["output.weights"], _normalised(named, "norm", h)) + named["output.bias"]

    def _attention(self, own: dict[str, Array], h: Array) -> Array:
        """Return causal attention, f32 [b, length, width]."""
        (b, length, _), each = h.shape, self.width // self.heads
        query, key, value = jnp.moveaxis(
            _linear(own["attention.weights"], h).reshape(b, length, 3, self.heads, each), 2, 0
        )
        scores = jnp.einsum("bqhe,bkhe->bhqk", query, key, precision=PRECISION) / math.sqrt(each)
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
        taken = jnp.einsum("bhqk,bkhe->bqhe", jax.nn.softmax(scores, axis=-1), value, precision=PRECISION)
        return _linear(own["attention.output"], taken.reshape(b, length, self.width))


def _linear(weights: Array, h: Array) -> Array:
    """Return W h at every place, [b, length, in] to [b, length, out]."""
    return jnp.einsum("bli,oi->blo", h, weights, precision=PRECISION)


def _normalised(named: dict[str, Array], name: str, h: Array) -> Array:
    """Return h normalized at every place, scaled and shifted (Ba et al. 2016)."""
    centred = h - h.mean(axis=-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    return named[f"{name}.gain"] * centred * jax.lax.rsqrt(variance + 1e-5) + named[f"{name}.bias"]
