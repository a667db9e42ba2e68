"""Least squares against the normal equations."""

import numpy as np

from simfl.models import build_model

from .cases import all_gradients, outputs


def test_gradient_vanishes_at_the_least_squares_solution() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(40, 3)).astype(np.float32)
    y = generator.normal(size=40).astype(np.float32)
    l2 = 0.3
    model = build_model("linear", input_shape=(3,), num_classes=0, l2=l2)
    design = np.column_stack([x, np.ones(40)]).astype(np.float64)
    optimum = np.linalg.solve(design.T @ design / 40 + l2 * np.eye(4), design.T @ y / 40).astype(np.float32)
    weight = np.ones(40, dtype=np.float32)
    gradient = all_gradients(model, optimum, x, y, weight, np.float32(1.0))[0] / 40 + l2 * optimum
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)
    predictions, losses, _, _ = outputs(model, optimum, x, y, weight)
    np.testing.assert_allclose(predictions, design @ optimum, atol=1e-5)
    np.testing.assert_allclose(losses, 0.5 * (design @ optimum - y) ** 2, atol=1e-5)
