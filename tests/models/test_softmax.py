"""Softmax regression, and the perceptron: closed-form clipping for drawn shapes; and where the naive formulas break."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.models import AbstractModel, build_model

from .cases import all_gradients, initial, outputs, plain_clipped_sum, plain_gradients, quick_jit


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    # Few shapes, many values: each new shape is compiled.
    built=st.sampled_from(
        [
            *((build_model("softmax", input_shape=(p,), num_classes=c, intercept=own), b)
              for p, c, b in ((1, 2, 1), (12, 3, 5), (7, 6, 4), (3, 5, 8)) for own in (True, False)),
            *((build_model("mlp", input_shape=(p,), num_classes=c, hidden=hidden, activation=kind), b)
              for p, hidden, c, b in ((1, (1,), 2, 1), (4, (3, 6, 2), 5, 6)) for kind in ("relu", "tanh")),
        ]
    ),
    spread=st.sampled_from([0.0, 0.1, 1.0, 5.0, 30.0]),
    clipping_norm=st.floats(1e-3, 1e3),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_clipping_equals_its_closed_form(
    built: tuple[AbstractModel, int], spread: float, clipping_norm: float, seed: int
) -> None:
    model, batch = built
    if model.kind == "mlp":  # its gradients are products of many parameters
        spread, clipping_norm = min(spread, 5.0), min(max(clipping_norm, 1e-2), 1e2)
    generator = np.random.default_rng(seed)
    params = (spread * generator.normal(size=model.size)).astype(np.float32)
    x = generator.normal(size=(batch, *model.input_shape)).astype(np.float32)
    y = generator.integers(0, model.num_classes, batch).astype(np.int32)
    weight = generator.integers(0, 2, batch).astype(np.float32)
    expected = plain_clipped_sum(plain_gradients(model, params, x, y), weight, clipping_norm)
    _, actual, _ = all_gradients(model, params, x, y, weight, np.float32(clipping_norm))
    exact = 1e-5 if model.kind == "softmax" else 1e-4
    np.testing.assert_allclose(actual, expected, rtol=10 * exact, atol=exact * max(1.0, np.abs(expected).max()))
    assert np.linalg.norm(actual) <= clipping_norm * weight.sum() * (1 + 1e-5)


def test_layout_is_rows_of_classes_then_biases() -> None:
    model = build_model("softmax", input_shape=(3,), num_classes=2)
    params = np.array([1, 2, 3, 4, 5, 6, 0.5, -0.5], dtype=np.float32)
    x = np.array([[1, 10, 100]], dtype=np.float32)
    np.testing.assert_allclose(quick_jit(model.predict)(params, x), [[321.5, 653.5]])


def test_extreme_logits_stay_finite() -> None:
    model = build_model("softmax", input_shape=(1,), num_classes=2, intercept=False)
    params, x, y = np.float32([1, -1]), np.float32([[1e4], [1e4]]), np.array([0, 1])
    weight = np.ones(2, dtype=np.float32)
    _, losses, correct, _ = outputs(model, params, x, y, weight)
    np.testing.assert_allclose(losses, [0.0, 2e4])
    np.testing.assert_array_equal(correct, [1.0, 0.0])
    plain, clipped, _ = all_gradients(model, params, x, y, weight, np.float32(1.0))
    np.testing.assert_allclose(plain, [1e4, -1e4])
    np.testing.assert_allclose(clipped, [np.sqrt(0.5), -np.sqrt(0.5)], rtol=1e-6)


def test_loss_of_zeros_is_the_logarithm_of_the_classes() -> None:
    model = build_model("softmax", input_shape=(4, 4), num_classes=10)
    x, y = np.ones((3, 4, 4), dtype=np.float32), np.array([0, 5, 9])
    losses = quick_jit(model.losses)(initial(model), x, y)
    np.testing.assert_allclose(losses, np.log(10), rtol=1e-6)
