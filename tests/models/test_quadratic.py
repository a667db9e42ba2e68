"""The quadratic's optimum is the mean of its points."""

import numpy as np

from simfl.models import build_model

from .cases import all_gradients, outputs


def test_the_mean_of_the_points_is_the_optimum() -> None:
    generator = np.random.default_rng(0)
    points = generator.normal(size=(50, 3)).astype(np.float32)
    y, weight = np.zeros(50, dtype=np.float32), np.ones(50, dtype=np.float32)
    curvature = np.array([0.1, 1.0, 10.0], dtype=np.float32)
    model = build_model("quadratic", input_shape=(3,), num_classes=0, curvature=curvature)
    optimum = points.mean(axis=0)
    np.testing.assert_allclose(all_gradients(model, optimum, points, y, weight, np.float32(1.0))[0], 0.0, atol=1e-4)
    # f(w) - f(w*) = 1/2 (w - w*)^T H (w - w*), exactly.
    w = generator.normal(size=3).astype(np.float32)
    gap = outputs(model, w, points, y, weight)[3] - outputs(model, optimum, points, y, weight)[3]
    np.testing.assert_allclose(gap, 0.5 * np.sum(curvature * (w - optimum) ** 2), rtol=1e-4)


def test_one_number_stands_for_all_curvatures() -> None:
    model = build_model("quadratic", input_shape=(2,), num_classes=0, curvature=3.0)
    assert model == build_model("quadratic", input_shape=(2,), num_classes=0, curvature=(3.0, 3.0))
    ones, origin = np.ones(2, dtype=np.float32), np.zeros((1, 2), dtype=np.float32)
    predictions, losses, _, _ = outputs(model, ones, origin, np.zeros(1, dtype=np.float32), ones[:1])
    np.testing.assert_allclose(losses, [3.0])
    np.testing.assert_allclose(predictions, [[1.0, 1.0]])
