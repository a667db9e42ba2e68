"""Layers against XLA's own convolution and against NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simfl.models.base import clipping_scale
from simfl.models.layers import AbstractLayer, Convolution, Dense, Depthwise, GroupNorm, average_pool

from .cases import quick_jit

CONVOLUTIONS = [
    Convolution(side=7, channels=2, filters=3, kernel=3),
    Convolution(side=8, channels=3, filters=4, kernel=3, stride=2, padding=1, bias=False),
    Convolution(side=6, channels=2, filters=5, kernel=1, stride=2, bias=False),
    Convolution(side=9, channels=1, filters=2, kernel=5, stride=3, padding=2),
]
DEPTHWISE = Depthwise(side=7, channels=4, filters=4, kernel=3, stride=2, padding=1, bias=False)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("layer", CONVOLUTIONS, ids=str)
def test_convolution_equals_that_of_xla(layer: Convolution) -> None:
    params = normal(layer.size)
    h = normal(layer.channels, layer.side, layer.side, 3, seed=1)
    shape = (layer.filters, layer.channels, layer.kernel, layer.kernel)
    weights = params[: math.prod(shape)].reshape(shape)

    @quick_jit
    def both(h: jax.Array) -> tuple[jax.Array, jax.Array]:
        sides = [(layer.padding, layer.padding)] * 2
        axes = ("CHWN", "OIHW", "CHWN")
        xlas = jax.lax.conv_general_dilated(h, weights, (layer.stride,) * 2, sides, dimension_numbers=axes)
        return layer.outputs(params, layer.lift(h)), xlas

    outputs, expected = both(h)
    if layer.bias:
        expected = expected + params[-layer.filters :, None, None, None]
    assert outputs.shape == layer.output_shape(3)
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("layer", "inputs"), [
    (Dense(4, 3), (4,)), (Dense(4, 3, bias=False), (4,)), (CONVOLUTIONS[0], (2, 7, 7)), (CONVOLUTIONS[1], (3, 8, 8)),
    (DEPTHWISE, (4, 7, 7)), (GroupNorm(4, 6, groups=3), (6, 4, 4)),
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_gradients_follow_from_inputs_and_errors(layer: AbstractLayer, inputs: tuple[int, ...]) -> None:
    """Against the vector-Jacobian product of each example alone."""
    params, h = normal(layer.size), normal(*inputs, 5, seed=1)
    errors = normal(*layer.output_shape(5), seed=2)
    scale = np.array([1.0, 0.0, 0.5, 2.0, 1.0], dtype=np.float32)

    def single(example: jax.Array, error: jax.Array) -> jax.Array:
        _, pull_back = jax.vjp(lambda w: layer.outputs(w, layer.lift(example[..., None]))[..., 0], params)
        return pull_back(error)[0]

    @quick_jit
    def sums(h: jax.Array) -> tuple[jax.Array, ...]:
        u = layer.lift(h)
        return (
            layer.gradient_sum(u, errors),
            layer.squared_norms(u, errors),
            layer.scaled_gradient_sum(u, errors, scale),
        )

    gradients = quick_jit(jax.vmap(single, in_axes=(-1, -1)))(h, errors)
    total, squares, scaled = sums(h)
    np.testing.assert_allclose(total, gradients.sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(squares, (gradients**2).sum(1), rtol=1e-4)
    np.testing.assert_allclose(scaled, scale @ gradients, rtol=1e-4, atol=1e-4)


def test_dense_takes_examples_first_or_last() -> None:
    last, first = Dense(4, 3), Dense(4, 3, example_first=True)
    params, u, errors = normal(last.size), normal(4, 5, seed=1), normal(3, 5, seed=2)

    def everything(layer: Dense, u: jax.Array) -> tuple[jax.Array, ...]:
        return layer.outputs(params, u), layer.gradient_sum(u, errors), layer.squared_norms(u, errors)

    expected = quick_jit(everything, (0,))(last, u)
    np.testing.assert_allclose(expected[0], params[:12].reshape(3, 4) @ u + params[12:, None], rtol=1e-5, atol=1e-6)
    for actual, other in zip(quick_jit(everything, (0,))(first, u.T), expected, strict=True):
        np.testing.assert_allclose(actual, other, rtol=1e-6)


def test_group_norm_normalizes_within_an_example() -> None:
    layer = GroupNorm(side=4, channels=6, groups=3)
    lift = quick_jit(layer.lift)
    h = 3 + 2 * normal(6, 4, 4, 5)
    u = lift(h)
    grouped = u.reshape(3, 2 * 16, 5)
    np.testing.assert_allclose(grouped.mean(axis=1), 0.0, atol=1e-5)
    np.testing.assert_allclose(grouped.std(axis=1), 1.0, atol=1e-4)
    changed = h.copy()
    changed[..., 1:] *= 5
    np.testing.assert_array_equal(lift(changed)[..., 0], u[..., 0])
    initial = quick_jit(layer.init)(jax.random.key(0))
    np.testing.assert_array_equal(quick_jit(layer.outputs)(initial, u), u)


def test_average_pool_averages_squares() -> None:
    h = normal(3, 6, 6, 2)
    expected = h.reshape(3, 3, 2, 3, 2, 2).mean(axis=(2, 4))
    np.testing.assert_allclose(quick_jit(average_pool)(h), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("init_kind", "variance"), [("he", 2 / 300), ("xavier", 2 / 700), ("zeros", 0.0)])
def test_initial_weights_have_the_stated_variance(init_kind: str, variance: float) -> None:
    params = quick_jit(Dense(300, 400, init_kind=init_kind).init)(jax.random.key(3))
    np.testing.assert_allclose(params[:120_000].var(), variance, rtol=0.02)
    assert not params[120_000:].any()


@pytest.mark.parametrize(("u", "error"), [(1e19, 1e-20), (1e-20, 1e19), (1e18, 3e-20)])
def test_a_square_that_underflows_hides_no_gradient(u: float, error: float) -> None:
    """A gradient of norm 0.1 or 0.03 whose error (or input) has a square of 0 in float32 would pass a bound of 0.01."""
    layer = Dense(inputs=1, units=1, bias=False)
    inputs, errors = jnp.full((1, 1), u, jnp.float32), jnp.full((1, 1), error, jnp.float32)
    squared = layer.squared_norms(inputs, errors)
    assert squared[0] >= 0.99 * (u * error) ** 2
    clipped = layer.scaled_gradient_sum(inputs, errors, clipping_scale(squared, jnp.ones(1), 0.01))
    assert 0 <= clipped[0] <= 0.0101
