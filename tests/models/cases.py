"""Models, batches, and the slow, plain oracle with which closed forms are compared.

Compiling is what takes time in these tests, so functions are jitted with few optimizations, several
results at once, and everything between them is NumPy.
"""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simfl.models import AbstractModel, build_model
from simfl.models.base import mean_loss

Arrays = tuple[np.ndarray, ...]

KEY = np.array([7, 11], dtype=np.uint32)

MODELS: dict[str, AbstractModel] = {
    "linear": build_model("linear", input_shape=(5,), num_classes=0, l2=0.1),
    "linear without intercept": build_model("linear", input_shape=(5,), num_classes=0, intercept=False),
    "quadratic": build_model("quadratic", input_shape=(4,), num_classes=0, curvature=(0.5, 1.0, 2.0, 8.0)),
    "logistic": build_model("logistic", input_shape=(6,), num_classes=2, l2=0.01),
    "logistic without intercept": build_model("logistic", input_shape=(6,), num_classes=2, intercept=False),
    "one_vs_all": build_model("one_vs_all", input_shape=(6,), num_classes=4, l2=0.01),
    "one_vs_all without intercept": build_model("one_vs_all", input_shape=(3, 2), num_classes=3, intercept=False),
    "softmax": build_model("softmax", input_shape=(3, 2), num_classes=4),
    "softmax without intercept": build_model("softmax", input_shape=(6,), num_classes=4, intercept=False),
    "svm": build_model("svm", input_shape=(3, 2), num_classes=4, l2=0.01),
    "svm one vs rest": build_model("svm", input_shape=(6,), num_classes=4, intercept=False, loss_kind="one_vs_rest"),
    "mlp relu": build_model("mlp", input_shape=(6,), num_classes=3, hidden=(7, 5)),
    "mlp tanh": build_model("mlp", input_shape=(6,), num_classes=3, hidden=(4,), activation="tanh", l2=0.2),
    "cnn": build_model("cnn", input_shape=(8, 8), num_classes=10, activation="tanh"),
    "lenet5": build_model("lenet5", input_shape=(64,), num_classes=10),
    "resnet": build_model("resnet", input_shape=(8, 8, 3), num_classes=10),
    "resnet, normalized projections": build_model(
        "resnet", input_shape=(8, 8, 3), num_classes=10, channels=(8, 16), normalized_projections=True
    ),
    "vgg": build_model("vgg", input_shape=(8, 8, 3), num_classes=10, depth=11, channels=(8, 8, 8, 8, 8)),
    "mobilenet": build_model("mobilenet", input_shape=(8, 8, 3), num_classes=10, channels=(8, 16, 8), blocks=(1, 1)),
    "lstm": build_model("lstm", input_shape=(4,), num_classes=5, width=3, layers=2, positions="last", l2=0.01),
    "transformer": build_model("transformer", input_shape=(4,), num_classes=5, width=4),
}
DENSE = [name for name, model in MODELS.items() if not model.convolutional]


def quick_jit(function: Callable[..., Any], static_argnums: tuple[int, ...] = ()) -> Callable[..., Any]:
    """Compile quickly, and return NumPy arrays."""
    options = {"xla_backend_optimization_level": 0}
    compiled = jax.jit(function, static_argnums=static_argnums, compiler_options=options)

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return jax.device_get(compiled(*args))

    return call


of_a_model = functools.partial(quick_jit, static_argnums=(0,))


@of_a_model
def _init(model: AbstractModel, key: np.ndarray) -> jax.Array:
    return model.init(key)


@of_a_model
def plain_gradients(model: AbstractModel, params: np.ndarray, x: np.ndarray, y: np.ndarray) -> jax.Array:
    """Gradient of every example, f32[b, d], by automatic differentiation of its loss, one after the other."""

    def single(example: tuple[jax.Array, jax.Array]) -> jax.Array:
        x_i, y_i = example
        return jax.grad(lambda w: model.losses(w, x_i[None], y_i[None])[0])(params)

    return jax.lax.map(single, (x, y))


@of_a_model
def _sums(
    model: AbstractModel, params: np.ndarray, x: np.ndarray, y: np.ndarray, weight: np.ndarray, clipping_norm: float
) -> tuple[jax.Array, ...]:
    clipped, zeroed = model.clip_and_sum(params, x, y, weight, clipping_norm)
    return model.gradient_sum(params, x, y, weight), clipped, model.gradient_norms(params, x, y), zeroed


def all_gradients(model: AbstractModel, *arguments: Any) -> Arrays:
    """Gradient sum, clipped gradient sum and norms."""
    return _sums(model, *arguments)[:3]


def all_clipped(model: AbstractModel, *arguments: Any) -> Arrays:
    """Clipped gradient sum, and how many count as zero."""
    return _sums(model, *arguments)[1::2]


@of_a_model
def outputs(
    model: AbstractModel, params: np.ndarray, x: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> tuple[jax.Array, ...]:
    """Predictions, losses, correct ones and the mean loss."""
    losses, correct = model.losses(params, x, y), model.correct(params, x, y)
    return model.predict(params, x), losses, correct, mean_loss(model, params, x, y, weight)


def plain_clipped_sum(gradients: np.ndarray, weight: np.ndarray, clipping_norm: float) -> np.ndarray:
    """sum_i weight_i g_i min(1, C / ||g_i||) in float64, by a loop."""
    total = np.zeros(gradients.shape[1])
    for gradient, w in zip(gradients.astype(np.float64), weight, strict=True):
        norm = np.linalg.norm(gradient)
        total += w * gradient * (1.0 if norm <= clipping_norm else clipping_norm / norm)
    return total


def initial(model: AbstractModel, seed: int = 0) -> np.ndarray:
    """The initial parameters from one key."""
    return _init(model, KEY + np.uint32(seed))


def params_of(model: AbstractModel, seed: int = 0) -> np.ndarray:
    """Parameters away from zero, where all terms of a gradient matter."""
    noise = np.random.default_rng(seed).normal(size=model.size).astype(np.float32)
    return initial(model) + np.float32(0.02 if model.convolutional else 0.5) * noise


def batch_of(model: AbstractModel, size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels (or targets)."""
    generator = np.random.default_rng(seed)
    if model.tokens:
        x, y = (generator.integers(0, model.num_classes, shape) for shape in ((size, *model.input_shape), size))
        return x.astype(np.int32), y.astype(np.int32)
    x = generator.normal(size=(size, *model.input_shape)).astype(np.float32)
    if model.num_classes:
        return x, generator.integers(0, model.num_classes, size).astype(np.int32)
    return x, generator.normal(size=size).astype(np.float32)


def parts_of(params: jax.Array, shapes: Iterable[tuple[int, ...]]) -> list[jax.Array]:
    """The arrays of these shapes that a vector has one after the other."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(jnp.split(params, ends[:-1]), shapes, strict=True)]


def convolved(h: jax.Array, weights: jax.Array, bias: jax.Array) -> jax.Array:
    """Convolve [b, channels, side, side] by XLA, examples first."""
    return jax.lax.conv_general_dilated(h, weights, (1, 1), "VALID") + bias[:, None, None]


def pooled(h: jax.Array) -> jax.Array:
    """Average squares of four by XLA."""
    return jax.lax.reduce_window(h, 0.0, jax.lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4


def checked_size(model: AbstractModel, size: int) -> None:
    """Assert how many parameters a model for CIFAR-10 has, and the shape of its logits, without a computation."""
    assert model.size == size
    assert jax.eval_shape(model.init, KEY).shape == (size,)
    shapes = jax.ShapeDtypeStruct((size,), np.float32), jax.ShapeDtypeStruct((5, 32, 32, 3), np.float32)
    assert jax.eval_shape(model.predict, *shapes).shape == (5, 10)
