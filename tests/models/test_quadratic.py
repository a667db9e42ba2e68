"""The quadratic's optimum is the mean of its points."""

from __future__ import annotations

import numpy as np

from simfl.models import build_model


def test_the_mean_of_the_points_is_the_optimum() -> None:
    generator = np.random.default_rng(0)
    points = generator.normal(size=(50, 3)).astype(np.float32)
    y, weight = np.zeros(50, dtype=np.float32), np.ones(50, dtype=np.float32)
    curvature = np.array([0.1, 1.0, 10.0], dtype=np.float32)
    model = build_model("quadratic", input_shape=(3,), num_classes=0, curvature=curvature)
    optimum = points.mean(axis=0)
    np.testing.assert_allclose(model.gradient_sum(optimum, points, y, weight), 0.0, atol=1e-4)
    # f(w) - f(w*) = 1/2 (w - w*)^T H (w - w*), exactly.
    w = generator.normal(size=3).astype(np.float32)
    gap = model.loss(w, points, y, weight) - model.loss(optimum, points, y, weight)
    np.testing.assert_allclose(gap, 0.5 * np.sum(curvature * (w - optimum) ** 2), rtol=1e-4)


def test_one_number_stands_for_all_curvatures() -> None:
    model = build_model("quadratic", input_shape=(2,), num_classes=0, curvature=3.0)
    assert model == build_model("quadratic", input_shape=(2,), num_classes=0, curvature=(3.0, 3.0))
    np.testing.assert_allclose(model.losses(np.ones(2), np.zeros((1, 2)), np.zeros(1)), [3.0])
    np.testing.assert_allclose(model.predict(np.ones(2), np.zeros((2, 2))), np.ones((2, 2)))
