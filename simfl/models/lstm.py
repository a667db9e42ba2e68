"""A recurrent network: long short-term memory cells over the tokens of a sequence.

Hochreiter and Schmidhuber 1997, with the forget gate of Gers, Schmidhuber and Cummins 2000:

    (i, f, g, o) = W u_t + R h_{t-1} + b,   c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g),   h_t = sigmoid(o) tanh(c_t),

with u_t the token (one-hot) in the first layer and the h_t of the layer below in the others. Each layer is linear in
its parameters at every place, so gradients need only the errors e_t = d loss / d (i, f, g, o) from one backward pass
through time: that of W is sum_t e_t u_t^T, that of R sum_t e_t h_{t-1}^T. They are products of large matrices; the loop
over time accumulates nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.base import PRECISION, Array, Layout, masked
from simfl.models.lazy import jax, jnp
from simfl.models.precision import rounded
from simfl.models.sequence import AbstractSequenceModel
from simfl.scenario.fields import Count, option


@dataclass(frozen=True)
class LSTM(AbstractSequenceModel):
    """LSTM; layout: per layer input [4 width, in], recurrent, bias; then output.

    The four gates are in the order input, forget, cell, output. Initial biases are 0, except 1 for forget gates
    (Jozefowicz et al. 2015). `width` is the number of units of each of the stacked `layers`.
    """

    width: Count = option(64, "number of units of each layer")
    layers: Count = option(1, "number of layers")

    kind: ClassVar[str] = "lstm"
    summary: ClassVar[str] = "LSTM over the characters of a text, to predict the next one"

    @property
    def layout(self) -> Layout:
        """See the class."""
        gates, parts = 4 * self.width, []
        for layer in range(self.layers):
            inputs = self.num_classes if layer == 0 else self.width
            parts += [
                (f"layer{layer + 1}.input", (gates, inputs)),
                (f"layer{layer + 1}.recurrent", (gates, self.width)),
                (f"layer{layer + 1}.bias", (gates,)),
            ]
        output = (("output.weights", (self.num_classes, self.width)), ("output.bias", (self.num_classes,)))
        return (*parts, *output)

    def first(self, name: str, shape: tuple[int, ...], key: Array) -> Array:
        """Draw a part from a typed key; biases of forget gates are 1."""
        drawn = super().first(name, shape, key)
        return drawn.at[self.width : 2 * self.width].set(1.0) if name.startswith("layer") and len(shape) == 1 else drawn

    def logits(self, params: Array, x: Array) -> Array:
        """Return the logits at every place, f32 [b, length, tokens]."""
        return self._pass(params, x, None)[0]

    @rounded
    def gradient_sum(self, params: Array, x: Array, y: Array, weight: Array) -> Array:
        """Return sum_i weight_i g_i, f32[d]; the weights scale the errors at the outputs."""
        x = masked(x, weight)
        parts = []
        for error, inputs in self._backward(params, x, y, weight):
            parts += [jnp.einsum("blo,bli->oi", error, u, precision=PRECISION).reshape(-1) for u in inputs]
            parts.append(error.sum(axis=(0, 1)))
        return jnp.concatenate(parts)

    @rounded
    def _gradients(self, params: Array, x: Array, y: Array) -> Array:
        b, parts = x.shape[0], []
        for error, inputs in self._backward(params, x, y, jnp.ones(b)):
            parts += [jnp.einsum("blo,bli->boi", error, u, precision=PRECISION).reshape(b, -1) for u in inputs]
            parts.append(error.sum(axis=1))
        return jnp.concatenate(parts, axis=1)

    def _pass(self, params: Array, x: Array, taps: list[Array] | None) -> tuple[Array, list[list[Array]]]:
        """Return the logits, and the factors of each layer's matrices.

        `taps` are added to the gates of each layer, [b, length, 4 width], and to the logits.
        """
        named, b = self.parts(params), x.shape[0]
        u = jax.nn.one_hot(x, self.num_classes)
        inputs: list[list[Array]] = []
        for layer in range(self.layers):
            prefix = f"layer{layer + 1}"
            if layer == 0:
                gates = named[f"{prefix}.input"].T[x]  # the product with a one-hot vector
            else:
                gates = jnp.einsum("bli,oi->blo", u, named[f"{prefix}.input"], precision=PRECISION)
            gates = gates + named[f"{prefix}.bias"]
            gates = gates if taps is None else gates + taps[layer]
            recurrent = named[f"{prefix}.recurrent"].T

            def step(
                carried: tuple[Array, Array], gates: Array, recurrent: Array = recurrent
            ) -> tuple[tuple[Array, Array], Array]:
                h, c = carried
                gates = gates + jnp.matmul(h, recurrent, precision=PRECISION)
                i, f, g, o = jnp.split(gates, 4, axis=1)
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                h = jax.nn.sigmoid(o) * jnp.tanh(c)
                return (h, c), h

            rest = jnp.zeros((b, self.width))
            h = jnp.moveaxis(jax.lax.scan(step, (rest, rest), jnp.moveaxis(gates, 1, 0))[1], 0, 1)
            inputs.append([u, jnp.concatenate([rest[:, None], h[:, :-1]], axis=1)])
            u = h
        logits = jnp.einsum("bli,oi->blo", u, named["output.weights"], precision=PRECISION) + named["output.bias"]
        return logits if taps is None else logits + taps[-1], [*inputs, [u]]

    def _backward(self, params: Array, x: Array, y: Array, weight: Array) -> list[tuple[Array, list[Array]]]:
        """Return each layer's output errors, weighted, and its matrices' factors."""

        def tapped(taps: list[Array]) -> tuple[Array, list[list[Array]]]:
            logits, inputs = self._pass(params, x, taps)
            return jnp.sum(weight * self.losses_of(logits, x, y)), inputs

        shape = (x.shape[0], self.length)
        taps = [jnp.zeros((*shape, 4 * self.width))] * self.layers + [jnp.zeros((*shape, self.num_classes))]
        errors, inputs = jax.grad(tapped, has_aux=True)(taps)
        return list(zip(errors, inputs, strict=True))
