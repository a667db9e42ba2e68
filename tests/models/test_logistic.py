"""Logistic regression against NumPy, and where the naive formulas break."""

import numpy as np

from simfl.models import build_model

from .cases import all_gradients, outputs


def test_losses_and_gradient_equal_those_by_hand() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(9, 4)).astype(np.float32)
    y = generator.integers(0, 2, 9).astype(np.int32)
    params = generator.normal(size=5).astype(np.float32)
    model = build_model("logistic", input_shape=(4,), num_classes=2)
    z = (x @ params[:4] + params[4]).astype(np.float64)
    weight = np.ones(9, dtype=np.float32)
    _, losses, correct, _ = outputs(model, params, x, y, weight)
    np.testing.assert_allclose(losses, np.log1p(np.exp(z)) - y * z, rtol=1e-5)
    np.testing.assert_array_equal(correct, (z > 0) == y)
    error = 1 / (1 + np.exp(-z)) - y
    expected = np.concatenate([error @ x, [error.sum()]])
    plain, _, norms = all_gradients(model, params, x, y, weight, np.float32(1.0))
    np.testing.assert_allclose(plain, expected, rtol=1e-4)
    np.testing.assert_allclose(norms, np.abs(error) * np.sqrt((x**2).sum(axis=1) + 1), rtol=1e-4)


def test_extreme_logits_stay_finite_and_small_losses_keep_their_digits() -> None:
    model = build_model("logistic", input_shape=(1,), num_classes=2, intercept=False)
    params, x, y = np.float32([1]), np.float32([[1e4], [-1e4], [1e4], [20]]), np.array([1, 1, 0, 1])
    weight = np.ones(4, dtype=np.float32)
    losses = outputs(model, params, x, y, weight)[1]
    np.testing.assert_allclose(losses, [0.0, 1e4, 1e4, np.exp(-20.0)], rtol=1e-6)
    plain, clipped, _ = all_gradients(model, params, x, y, weight, np.float32(1.0))
    np.testing.assert_allclose(plain, 2e4, rtol=1e-6)
    np.testing.assert_allclose(clipped, 2.0, rtol=1e-6)
