"""Logistic regression against NumPy, and where the naive formulas break."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from simfl.models import build_model


def test_losses_and_gradient_by_hand() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(9, 4)).astype(np.float32)
    y = generator.integers(0, 2, 9).astype(np.int32)
    params = generator.normal(size=5).astype(np.float32)
    model = build_model("logistic", input_shape=(4,), num_classes=2)
    z = (x @ params[:4] + params[4]).astype(np.float64)
    np.testing.assert_allclose(model.losses(params, x, y), np.log1p(np.exp(z)) - y * z, rtol=1e-5)
    error = 1 / (1 + np.exp(-z)) - y
    expected = np.concatenate([error @ x, [error.sum()]])
    np.testing.assert_allclose(model.gradient_sum(params, x, y, np.ones(9, np.float32)), expected, rtol=1e-4)
    np.testing.assert_array_equal(model.correct(params, x, y), (z > 0) == y)


def test_extreme_logits_stay_finite_and_small_losses_keep_their_digits() -> None:
    model = build_model("logistic", input_shape=(1,), num_classes=2, intercept=False)
    x = jnp.array([[1e4], [-1e4], [1e4], [20.0]])
    y = jnp.array([1, 1, 0, 1])
    params = jnp.ones(1)
    np.testing.assert_allclose(model.losses(params, x, y), [0.0, 1e4, 1e4, np.exp(-20.0)], rtol=1e-6)
    gradient = model.gradient_sum(params, x, y, jnp.ones(4))
    np.testing.assert_allclose(gradient, 2e4, rtol=1e-6)
