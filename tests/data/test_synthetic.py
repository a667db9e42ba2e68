"""The optima against independent oracles: closed forms, finite differences and SciPy's minimizer."""

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize

from simfl.data import load_dataset
from simfl.data.base import Dataset
from simfl.errors import ScenarioError
from simfl.streams import Streams

LAMBDAS = [0.0, 0.05]


def make(kind: str, **options) -> Dataset:
    settings = {"samples": 200, "dimension": 4, "condition_number": 20.0, **options}
    return load_dataset(kind, root=None, streams=Streams(3), **settings)


def logistic_loss(w: np.ndarray, x: np.ndarray, y: np.ndarray, l2: float) -> float:
    logits = x.astype(np.float64) @ w[: x.shape[1]] + (w[-1] if len(w) > x.shape[1] else 0.0)
    return float(np.mean(np.log1p(np.exp(logits)) - y * logits) + 0.5 * l2 * w @ w)


def squared_loss(w: np.ndarray, x: np.ndarray, y: np.ndarray, l2: float) -> float:
    residual = x.astype(np.float64) @ w[: x.shape[1]] + (w[-1] if len(w) > x.shape[1] else 0.0) - y
    return float(0.5 * np.mean(residual**2) + 0.5 * l2 * w @ w)


def test_quadratic_is_centered_on_its_mean() -> None:
    data = make("quadratic", noise=0.5)
    assert data.num_classes == 0
    assert data.train_x.shape == (200, 4)
    assert data.test_x.shape == (40, 4)
    np.testing.assert_allclose(data.optimum, data.train_x.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(data.curvature, [1.0, 20 ** (-1 / 3), 20 ** (-2 / 3), 0.05], rtol=1e-6)
    expected = 0.5 * (data.train_x.astype(np.float64).var(axis=0) @ data.curvature)
    assert data.optimal_loss == pytest.approx(expected, rel=1e-6)
    assert data.train_x.std(axis=0) == pytest.approx(0.5, rel=0.2)


def test_quadratic_with_l2_has_no_gradient_at_its_optimum() -> None:
    data = make("quadratic", curvature=[4.0, 1.0, 0.25], l2=0.1)
    assert data.input_shape == (3,)
    gradient = data.curvature * (data.optimum - data.train_x.astype(np.float64).mean(axis=0)) + 0.1 * data.optimum
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)


@pytest.mark.parametrize("l2", LAMBDAS)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("kind", "loss"), [("linear", squared_loss), ("logistic", logistic_loss)])
def test_no_other_point_beats_the_optimum(kind: str, loss, intercept: bool, l2: float) -> None:
    data = make(kind, l2=l2, intercept=intercept)
    assert data.optimum.shape == (4 + intercept,)
    minimum = minimize(loss, np.zeros(len(data.optimum)), (data.train_x, data.train_y, l2), tol=1e-12)
    assert data.optimal_loss == pytest.approx(minimum.fun, abs=1e-9)
    assert data.optimal_loss <= minimum.fun + 1e-12
    np.testing.assert_allclose(data.optimum, minimum.x, atol=1e-4)
    assert loss(data.optimum.astype(np.float64), data.train_x, data.train_y, l2) == pytest.approx(
        data.optimal_loss, abs=1e-9
    )


def test_logistic_gradient_vanishes_to_1e8() -> None:
    from simfl.data.known import design_of
    from simfl.data.synthetic import Synthetic, _logistic_optimum

    data = make("logistic")
    design = design_of(data.train_x, True)
    best, _ = _logistic_optimum(design, data.train_y, Synthetic().l2)

    def gradient(w: np.ndarray, *_: object) -> np.ndarray:
        return design.T @ (1 / (1 + np.exp(-design @ w)) - data.train_y) / len(design)

    assert check_grad(logistic_loss, gradient, np.ones(5), data.train_x, data.train_y, 0.0) < 1e-6
    assert np.linalg.norm(gradient(best)) <= 1e-8


def test_the_test_part_does_not_change_the_training_part() -> None:
    first, second = make("linear", test_fraction=0.1), make("linear", test_fraction=0.9)
    np.testing.assert_array_equal(first.train_x, second.train_x)
    assert (len(first.test_y), len(second.test_y)) == (20, 180)
    assert not np.array_equal(first.train_x[:20], first.test_x)


def test_labels_are_noisy_but_can_be_learned() -> None:
    data = make("logistic", samples=4000)
    margins = data.train_x @ data.optimum[:4] + data.optimum[4]
    assert 0.7 < np.mean((margins > 0) == data.train_y) < 0.9
    assert set(data.train_y.tolist()) == {0, 1}
    assert (data.num_classes, data.train_y.dtype) == (2, np.int32)


@pytest.mark.parametrize(("kind", "options", "message"), [
    ("quadratic", {"samples": 10**9, "dimension": 100}, r"^data\.samples: .* need more than 16 GiB"),
    ("quadratic", {"condition_number": 1e31}, r"^data\.condition_number: expected 1 to 1e30, found 1e\+31"),
    ("quadratic", {"curvature": [1.0, 0.0]}, r"^data\.curvature: expected a list of numbers > 0"),
    ("quadratic", {"curvature": []}, r"^data\.curvature"),
    ("logistic", {"samples": 20, "dimension": 30}, "can be separated, so it has no finite optimum; .*model.l2 > 0"),
    ("logistic", {"samples": 1}, "all 1 labels of this logistic problem are equal"),
])  # fmt: skip
def test_bad_problems_are_refused(kind: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        make(kind, **options)
