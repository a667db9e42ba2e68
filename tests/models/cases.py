"""Models, batches and the slow, plain oracle that the closed forms are held against."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from simfl.models import AbstractModel, build_model

quick_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
"""jit for tests, where compiling takes longer than running."""

KEY = np.array([7, 11], dtype=np.uint32)

MODELS: dict[str, AbstractModel] = {
    "linear": build_model("linear", input_shape=(5,), num_classes=0, l2=0.1),
    "linear without intercept": build_model("linear", input_shape=(5,), num_classes=0, intercept=False),
    "quadratic": build_model("quadratic", input_shape=(4,), num_classes=0, curvature=(0.5, 1.0, 2.0, 8.0)),
    "logistic": build_model("logistic", input_shape=(6,), num_classes=2, l2=0.01),
    "logistic without intercept": build_model("logistic", input_shape=(6,), num_classes=2, intercept=False),
    "softmax": build_model("softmax", input_shape=(3, 2), num_classes=4),
    "softmax without intercept": build_model("softmax", input_shape=(6,), num_classes=4, intercept=False),
    "mlp relu": build_model("mlp", input_shape=(6,), num_classes=3, hidden=(7, 5)),
    "mlp tanh": build_model("mlp", input_shape=(6,), num_classes=3, hidden=(4,), activation="tanh", l2=0.2),
    "lenet5": build_model("lenet5", input_shape=(64,), num_classes=10),
    "resnet": build_model("resnet", input_shape=(8, 8, 3), num_classes=10),
}
DENSE = [name for name, model in MODELS.items() if not model.convolutional]


_init = quick_jit(lambda model, key: model.init(key), static_argnums=0)


def initial(model: AbstractModel, seed: int = 0) -> jax.Array:
    """The initial parameters from one key."""
    return _init(model, KEY + np.uint32(seed))


def params_of(model: AbstractModel, seed: int = 0) -> jax.Array:
    """Parameters away from zero, where all terms of a gradient matter."""
    noise = np.random.default_rng(seed).normal(size=model.size).astype(np.float32)
    return initial(model) + (0.02 if model.convolutional else 0.5) * noise


def batch_of(model: AbstractModel, size: int, seed: int = 0) -> tuple[jax.Array, jax.Array]:
    """Inputs and labels (or targets)."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(size, *model.input_shape)).astype(np.float32)
    if model.num_classes:
        return jnp.asarray(x), jnp.asarray(generator.integers(0, model.num_classes, size), dtype=jnp.int32)
    return jnp.asarray(x), jnp.asarray(generator.normal(size=size), dtype=jnp.float32)


@functools.partial(quick_jit, static_argnums=0)
def plain_gradients(model: AbstractModel, params: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Gradient of every example, f32[b, d], by automatic differentiation of its loss, one after the other."""

    def single(example: tuple[jax.Array, jax.Array]) -> jax.Array:
        x_i, y_i = example
        return jax.grad(lambda w: model.losses(w, x_i[None], y_i[None])[0])(params)

    return jax.lax.map(single, (x, y))


def plain_clipped_sum(gradients: jax.Array, weight: np.ndarray, clipping_norm: float) -> np.ndarray:
    """sum_i weight_i g_i min(1, C / ||g_i||) in float64, by a loop."""
    total = np.zeros(gradients.shape[1])
    for gradient, w in zip(np.asarray(gradients, dtype=np.float64), weight, strict=True):
        norm = np.linalg.norm(gradient)
        total += w * gradient * (1.0 if norm <= clipping_norm else clipping_norm / norm)
    return total


@functools.partial(quick_jit, static_argnums=0)
def all_gradients(
    model: AbstractModel, params: jax.Array, x: jax.Array, y: jax.Array, weight: jax.Array, clipping_norm: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gradient sum, clipped gradient sum and norms: compiled together, because compiling is what takes time here."""
    return (
        model.gradient_sum(params, x, y, weight),
        model.clipped_gradient_sum(params, x, y, weight, clipping_norm),
        model.gradient_norms(params, x, y),
    )


@functools.partial(quick_jit, static_argnums=0)
def outputs(
    model: AbstractModel, params: jax.Array, x: jax.Array, y: jax.Array, weight: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Predictions, losses, correct ones and the mean loss."""
    losses, correct = model.losses(params, x, y), model.correct(params, x, y)
    return model.predict(params, x), losses, correct, model.loss(params, x, y, weight)
