"""Networks: chains of layers with per-example clipping from one backward pass.

Adding a variable t = 0 (a tap) to the outputs of every layer makes the errors of all layers and examples the gradient
with respect to the taps: one ordinary backward pass, because examples do not influence each other. From the errors and
the inputs of the layers, `simfl.models.layers` computes the norm of every example's gradient and the reweighted sum:

    ||g_i||^2 = sum over layers of ||g_i,layer||^2,   sum_i s_i g_i with s_i = weight_i min(1, C / ||g_i||).

Clipping therefore costs about as much as the gradient itself, not b times as much. Flat layout: the layers in the order
of `layers`, each as its class documents.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from simfl.models import base
from simfl.models.base import AbstractModel, Array, Layout, SumOfExamples
from simfl.models.layers import AbstractLayer, Convolution, Dense
from simfl.models.lazy import jax, jnp, np
from simfl.models.precision import rounded

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda z: jax.nn.relu(z),  # JAX is not imported here, see `simfl.models.lazy`
    "tanh": lambda z: jnp.tanh(z),
}


class Pass:
    """One pass through a network; each call applies the next layer.

    `params` is f32[d]; `taps`, one array per layer, are added to its outputs.
    """

    def __init__(self, layers: tuple[AbstractLayer, ...], params: Array, taps: list[Array] | None) -> None:
        self._layers = layers
        self._params = params
        self._taps = taps
        self._offset = 0
        self.lifted: list[Array] = []

    def __call__(self, h: Array) -> Array:
        """Apply the next layer to its input, without activation function."""
        index = len(self.lifted)
        layer = self._layers[index]
        u = layer.lift(h)
        z = layer.outputs(self._params[self._offset : self._offset + layer.size], u)
        self._offset += layer.size
        self.lifted.append(u)
        return z if self._taps is None else z + self._taps[index]


@dataclass(frozen=True)
class AbstractNetwork(AbstractModel):
    """A model of layers and an output loss, which subclasses define."""

    max_batch: ClassVar[int] = 65_536
    """Larger batches are processed in parts, to bound the memory of patches."""
    cpu_batch: ClassVar[int] = 65_536
    """The same for gradients on a CPU, where smaller parts fit the cache."""

    @property
    @abstractmethod
    def layers(self) -> tuple[AbstractLayer, ...]:
        """The layers in the order in which `forward` applies them."""

    @abstractmethod
    def forward(self, apply: Pass, x: Array) -> Array:
        """Return outputs f32[c, b] of x [b, ...], calling `apply` once per layer."""

    @abstractmethod
    def output_losses(self, z: Array, y: Array) -> Array:
        """Return the losses f32[b] of outputs z [c, b]."""

    @abstractmethod
    def output_errors(self, z: Array, y: Array) -> Array:
        """Return d loss_i / d z_i, f32[c, b]."""

    @property
    def first_convolution(self) -> int | None:
        """Number of parameters of the first layer, if that is a convolution."""
        first = self.layers[0]
        return first.size if isinstance(first, Convolution) else None

    @property
    def size(self) -> int:
        """Sum of the layers' sizes."""
        return sum(layer.size for layer in self.layers)

    @property
    def layout(self) -> Layout:
        """Parts layer1.weights, layer1.bias, ...; bare names for one layer."""
        layers = self.layers
        if len(layers) == 1:
            return layers[0].layout
        return tuple((f"layer{i}.{name}", shape) for i, layer in enumerate(layers, 1) for name, shape in layer.layout)

    def init(self, key: Array | np.ndarray) -> Array:
        """Draw each layer from its own key."""
        drawn: Array = _drawing(self.layers)(jnp.asarray(key))
        return drawn

    def predict(self, params: Array, x: Array) -> Array:
        """Return the logits, f32[b, c]."""
        return self._outputs(params, x).T

    def losses(self, params: Array, x: Array, y: Array) -> Array:
        """Return the losses of the outputs, f32[b]."""
        return self.output_losses(self._outputs(params, x), y)

    @rounded
    def gradient_sum(self, params: Array, x: Array, y: Array, weight: Array) -> Array:
        """Return sum_i weight_i g_i, f32[d]; the weights scale the errors at the outputs."""

        def part(x: Array, y: Array, weight: Array) -> tuple[Array, Array]:
            lifted, errors = self._backward(params, x, y, weight)
            parts = zip(self.layers, lifted, errors, strict=True)
            return jnp.concatenate([layer.gradient_sum(u, e) for layer, u, e in parts]), jnp.int32(0)

        return self._in_parts(part, x, y, weight)[0]

    def clip_and_sum(
        self, params: Array, x: Array, y: Array, weight: Array, clipping_norm: float | Array
    ) -> tuple[Array, Array]:
        """Return the clipped sum f32[d] and the number of gradients counted as zero."""

        def part(x: Array, y: Array, weight: Array) -> tuple[Array, Array]:
            lifted, errors = self._backward(params, x, y, jnp.where(weight != 0, 1.0, 0.0))
            squared_norms = self._squared_norms(lifted, errors)
            scale = base.clipping_scale(squared_norms, weight, clipping_norm)
            parts = zip(self.layers, lifted, errors, strict=True)
            total = jnp.concatenate([layer.scaled_gradient_sum(u, e, scale) for layer, u, e in parts])
            return total, base.count_unbounded(squared_norms, weight)

        return self._in_parts(part, x, y, weight)

    def gradient_norms(self, params: Array, x: Array, y: Array) -> Array:
        """Return ||g_i||, f32[b]."""
        return jnp.sqrt(self._squared_norms(*self._backward(params, x, y, jnp.ones(x.shape[0]))))

    def _outputs(self, params: Array, x: Array) -> Array:
        """Return z, f32[c, b], in parts of at most `max_batch` examples."""

        def outputs(x: Array) -> Array:
            return self.forward(Pass(self.layers, params, None), x)

        b = x.shape[0]
        if b <= self.max_batch:
            return outputs(x)
        z = jax.lax.map(outputs, base.in_parts(x, self.max_batch))
        return jnp.moveaxis(z, 0, 1).reshape(z.shape[1], -1)[:, :b]

    @rounded
    def _backward(self, params: Array, x: Array, y: Array, weight: Array) -> tuple[list[Array], list[Array]]:
        def tapped(taps: list[Array]) -> tuple[Array, list[Array]]:
            apply = Pass(self.layers, params, taps)
            return self.forward(apply, x), apply.lifted

        taps = [jnp.zeros(layer.output_shape(x.shape[0])) for layer in self.layers]
        z, pull_back, lifted = jax.vjp(tapped, taps, has_aux=True)
        # Selected, not only multiplied: the error of padding may be anything.
        errors = jnp.where(weight != 0, self.output_errors(z, y) * weight, 0.0)
        return lifted, pull_back(errors)[0]

    def _squared_norms(self, lifted: list[Array], errors: list[Array]) -> Array:
        parts = zip(self.layers, lifted, errors, strict=True)
        return sum((layer.squared_norms(u, e) for layer, u, e in parts), start=jnp.float32(0.0))

    def _in_parts(self, part: SumOfExamples, x: Array, y: Array, weight: Array) -> tuple[Array, Array]:
        """Return the sums of an additive function, in parts that fit the device."""
        if x.shape[0] <= min(self.cpu_batch, self.max_batch):
            return part(x, y, weight)
        cpu, default = base.sum_in_parts(part, self.cpu_batch), base.sum_in_parts(part, self.max_batch)
        sums: tuple[Array, Array] = jax.lax.platform_dependent(x, y, weight, cpu=cpu, default=default)
        return sums


@functools.lru_cache(maxsize=16)
def _drawing(layers: tuple[AbstractLayer, ...]) -> Callable[[Array], Array]:
    """Return one program that draws all layers, f32[d], from a raw key."""

    def draw(key: Array) -> Array:
        keys = jax.random.split(jax.random.wrap_key_data(key, impl="threefry2x32"), len(layers))
        return jnp.concatenate([layer.init(keys[index]) for index, layer in enumerate(layers)])

    drawing: Callable[[Array], Array] = jax.jit(draw)
    return drawing


@dataclass(frozen=True)
class AbstractLinear(AbstractNetwork):
    """A linear model: one dense layer, initially zero; `l2` includes the intercept."""

    intercept: bool = True

    one_output: ClassVar[bool] = False
    """Whether the model has one output, rather than one for each class."""

    @property
    def layers(self) -> tuple[AbstractLayer, ...]:
        """The dense layer."""
        rows = 1 if self.one_output else self.num_classes
        return (Dense(self.num_features, rows, self.intercept, "zeros", example_first=True),)

    def init(self, key: Array | np.ndarray) -> Array:
        """Return zeros, which takes no JAX."""
        del key
        return np.zeros(self.size, np.float32)

    def forward(self, apply: Pass, x: Array) -> Array:
        """Return the outputs, f32[c, b]."""
        return apply(x.reshape(x.shape[0], -1))

    def predict(self, params: Array, x: Array) -> Array:
        """Return the logits f32[b, c], or the one output f32[b]."""
        z = self._outputs(params, x)
        return z[0] if self.one_output else z.T


@dataclass(frozen=True)
class AbstractClassifier(AbstractNetwork):
    """A network whose outputs are logits, with the loss log sum_k exp z_k - z_y."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_classes < 2:
            raise ValueError(
                f"{self.kind}: expected data with 2 or more classes, found {self.num_classes}; "
                f"use kind: linear for regression"
            )

    def output_losses(self, z: Array, y: Array) -> Array:
        """Return the cross-entropy; subtracting the largest logit prevents overflow."""
        return jax.nn.logsumexp(z, axis=0) - jnp.sum(jnp.where(self._is_label(y), z, 0.0), axis=0)

    def output_errors(self, z: Array, y: Array) -> Array:
        """Return softmax(z) minus the one-hot label."""
        return jax.nn.softmax(z, axis=0) - self._is_label(y)

    def correct(self, params: Array, x: Array, y: Array) -> Array:
        """Return 1.0 where the largest logit is the label's, f32[b]."""
        return jnp.where(jnp.argmax(self._outputs(params, x), axis=0) == y, 1.0, 0.0)

    def _is_label(self, y: Array) -> Array:
        return jnp.arange(self.num_classes)[:, None] == y[None, :]


@dataclass(frozen=True)
class AbstractImageClassifier(AbstractClassifier):
    """A convolutional classifier of square images.

    It accepts images (side, side) or (side, side, channels), and flat squares (side * side,).
    """

    convolutional: ClassVar[bool] = True
    max_batch: ClassVar[int] = 128
    cpu_batch: ClassVar[int] = 16
    smallest: ClassVar[int] = 8
    largest: ClassVar[int | None] = None
    """Bounds of the side."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.image  # refuses other shapes and sides

    @property
    def image(self) -> tuple[int, int]:
        """Side and channels of the images; ValueError for other shapes and sides."""
        shape = self.input_shape
        side, channels = shape[0], 1
        if len(shape) == 1:
            side = math.isqrt(side)
        elif len(shape) == 3:
            channels = shape[2]
        if shape not in ((side, side), (side, side, channels), (side * side,)):
            raise ValueError(
                f"{self.kind}: input_shape: expected square images as (side, side), (side, side, channels) or "
                f"(side * side,), found {shape}; use kind: mlp for data that are not images"
            )
        if side < self.smallest or (self.largest is not None and side > self.largest):
            bounds = f">= {self.smallest}" if self.largest is None else f"from {self.smallest} to {self.largest}"
            raise ValueError(
                f"{self.kind}: input_shape: expected a side {bounds}, found {side} of {shape}; use kind: mlp"
            )
        return side, channels

    def images(self, x: Array, padded: int | None = None) -> Array:
        """Return examples as [channels, side, side, b], padded with zeros to a side."""
        side, channels = self.image
        h = x.reshape(-1, side, side, channels).transpose(3, 1, 2, 0)
        missing = 0 if padded is None else padded - side
        frame = (missing // 2, missing - missing // 2)
        return jnp.pad(h, ((0, 0), frame, frame, (0, 0))) if padded is not None else h
