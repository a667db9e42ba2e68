"""Layers against XLA's own convolution and against NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simfl.models.layers import AbstractLayer, Convolution, Dense, GroupNorm, average_pool

from .cases import quick_jit

CONVOLUTIONS = [
    Convolution(side=7, channels=2, filters=3, kernel=3),
    Convolution(side=8, channels=3, filters=4, kernel=3, stride=2, padding=1, bias=False),
    Convolution(side=6, channels=2, filters=5, kernel=1, stride=2, bias=False),
    Convolution(side=9, channels=1, filters=2, kernel=5, stride=3, padding=2),
]


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype=jnp.float32)


@pytest.mark.parametrize("layer", CONVOLUTIONS, ids=str)
def test_convolution_equals_xlas(layer: Convolution) -> None:
    params = normal(layer.size)
    h = normal(layer.channels, layer.side, layer.side, 3, seed=1)
    shape = (layer.filters, layer.channels, layer.kernel, layer.kernel)
    weights = params[: np.prod(shape)].reshape(shape)
    expected = jax.lax.conv_general_dilated(
        h, weights, (layer.stride,) * 2, [(layer.padding,) * 2] * 2, dimension_numbers=("CHWN", "OIHW", "CHWN")
    )
    if layer.bias:
        expected += params[-layer.filters :, None, None, None]
    outputs = quick_jit(lambda h: layer.outputs(params, layer.lift(h)))(h)
    assert outputs.shape == layer.output_shape(3)
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("layer", "inputs"),
    [
        (Dense(4, 3), (4,)),
        (Dense(4, 3, bias=False), (4,)),
        (CONVOLUTIONS[0], (2, 7, 7)),
        (CONVOLUTIONS[1], (3, 8, 8)),
        (GroupNorm(4, 6, groups=3), (6, 4, 4)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_gradients_follow_from_inputs_and_errors(layer: AbstractLayer, inputs: tuple[int, ...]) -> None:
    """Against the vector-Jacobian product of each example alone."""
    params, h = normal(layer.size), normal(*inputs, 5, seed=1)
    errors = normal(*layer.output_shape(5), seed=2)
    scale = jnp.array([1.0, 0.0, 0.5, 2.0, 1.0])

    def single(example: jax.Array, error: jax.Array) -> jax.Array:
        _, pull_back = jax.vjp(lambda w: layer.outputs(w, layer.lift(example[..., None]))[..., 0], params)
        return pull_back(error)[0]

    @quick_jit
    def sums(u: jax.Array) -> tuple[jax.Array, ...]:
        return (
            layer.gradient_sum(u, errors),
            layer.squared_norms(u, errors),
            layer.scaled_gradient_sum(u, errors, scale),
        )

    gradients = np.asarray(quick_jit(jax.vmap(single, in_axes=(-1, -1)))(h, errors))
    total, squares, scaled = sums(layer.lift(h))
    np.testing.assert_allclose(total, gradients.sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(squares, (gradients**2).sum(1), rtol=1e-4)
    np.testing.assert_allclose(scaled, np.asarray(scale) @ gradients, rtol=1e-4, atol=1e-4)


def test_dense_takes_examples_first_or_last() -> None:
    last, first = Dense(4, 3), Dense(4, 3, example_first=True)
    params, u, errors = normal(last.size), normal(4, 5, seed=1), normal(3, 5, seed=2)
    weights, bias = np.asarray(params[:12]).reshape(3, 4), np.asarray(params[12:])
    np.testing.assert_allclose(last.outputs(params, u), weights @ np.asarray(u) + bias[:, None], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(first.outputs(params, u.T), last.outputs(params, u), rtol=1e-6)
    np.testing.assert_allclose(first.gradient_sum(u.T, errors), last.gradient_sum(u, errors), rtol=1e-6)
    np.testing.assert_allclose(first.squared_norms(u.T, errors), last.squared_norms(u, errors), rtol=1e-6)


def test_group_norm_normalises_within_an_example() -> None:
    layer = GroupNorm(side=4, channels=6, groups=3)
    h = 3.0 + 2.0 * normal(6, 4, 4, 5)
    u = np.asarray(layer.lift(h)).reshape(3, 2 * 16, 5)
    np.testing.assert_allclose(u.mean(axis=1), 0.0, atol=1e-5)
    np.testing.assert_allclose(u.std(axis=1), 1.0, atol=1e-4)
    alone = layer.lift(h[..., 2:3])[..., 0]
    np.testing.assert_allclose(alone, layer.lift(h)[..., 2], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(layer.outputs(layer.init(jax.random.key(0)), layer.lift(h)), layer.lift(h))


def test_average_pool_averages_squares() -> None:
    h = np.asarray(normal(3, 6, 6, 2))
    expected = h.reshape(3, 3, 2, 3, 2, 2).mean(axis=(2, 4))
    np.testing.assert_allclose(average_pool(jnp.asarray(h)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("init_kind", "variance"), [("he", 2 / 300), ("xavier", 2 / 700), ("zeros", 0.0)])
def test_initial_variance(init_kind: str, variance: float) -> None:
    params = np.asarray(Dense(300, 400, init_kind=init_kind).init(jax.random.key(3)))
    np.testing.assert_allclose(params[:120_000].var(), variance, rtol=0.02)
    assert not params[120_000:].any()
