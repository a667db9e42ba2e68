"""Perceptron: forward pass by hand; `test_softmax.py` has its clipping for drawn shapes."""

import numpy as np
import pytest

from simfl.models import build_model

from .cases import quick_jit


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
