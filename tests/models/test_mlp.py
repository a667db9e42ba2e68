"""Perceptron: forward pass by hand, closed-form clipping for drawn shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.models import build_model

from .cases import all_gradients, plain_clipped_sum, plain_gradients, quick_jit


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    # Few shapes, many values: each new shape is compiled.
    shape=st.sampled_from([(1, (1,), 2, 1), (4, (3, 6, 2), 5, 6)]),
    activation=st.sampled_from(["relu", "tanh"]),
    spread=st.sampled_from([0.1, 1.0, 5.0]),
    clipping_norm=st.floats(1e-2, 1e2),
    seed=st.integers(0, 2**32 - 1),
)
def test_clipping_equals_its_closed_form(
    shape: tuple[int, tuple[int, ...], int, int], activation: str, spread: float, clipping_norm: float, seed: int
) -> None:
    features, hidden, classes, batch = shape
    model = build_model("mlp", input_shape=(features,), num_classes=classes, hidden=hidden, activation=activation)
    generator = np.random.default_rng(seed)
    params = (spread * generator.normal(size=model.size)).astype(np.float32)
    x = generator.normal(size=(batch, features)).astype(np.float32)
    y = generator.integers(0, classes, batch).astype(np.int32)
    weight = generator.integers(0, 2, batch).astype(np.float32)
    expected = plain_clipped_sum(plain_gradients(model, params, x, y), weight, clipping_norm)
    _, actual, _ = all_gradients(model, params, x, y, weight, np.float32(clipping_norm))
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-4 * max(1.0, np.abs(expected).max()))
    assert np.linalg.norm(actual) <= clipping_norm * weight.sum() * (1 + 1e-5)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_forward_equals_that_by_hand(activation: str) -> None:
    model = build_model("mlp", input_shape=(3,), num_classes=2, hidden=(4, 5), activation=activation)
    assert model.size == 4 * 3 + 4 + 5 * 4 + 5 + 2 * 5 + 2
    params = np.random.default_rng(0).normal(size=model.size).astype(np.float32)
    x = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)
    w1, b1, w2, b2, w3, b3 = np.split(params, np.cumsum([12, 4, 20, 5, 10]))
    activate = np.tanh if activation == "tanh" else lambda z: np.maximum(z, 0)
    h = activate(x @ w1.reshape(4, 3).T + b1)
    h = activate(h @ w2.reshape(5, 4).T + b2)
    np.testing.assert_allclose(quick_jit(model.predict)(params, x), h @ w3.reshape(2, 5).T + b3, rtol=1e-4, atol=1e-5)
