"""The support vector machine against its definition, example by example."""

import numpy as np
import pytest

from simfl.models import build_model

from .cases import all_gradients, batch_of, outputs, params_of


def plain(kind: str, z: np.ndarray, label: int) -> tuple[float, np.ndarray]:
    """Loss and gradient by the logits of one example."""
    gradient = np.zeros_like(z)
    if kind == "one_vs_rest":
        loss = 0.0
        for k, value in enumerate(z):
            sign = 1.0 if k == label else -1.0
            if sign * value < 1.0:
                loss += 1.0 - sign * value
                gradient[k] -= sign
        return loss, gradient
    others = [k for k in range(len(z)) if k != label]
    worst = max(others, key=lambda k: z[k])
    loss = max(0.0, 1.0 + z[worst] - z[label])
    if loss > 0.0:
        gradient[worst], gradient[label] = 1.0, -1.0
    return loss, gradient


@pytest.mark.parametrize("kind", ["crammer_singer", "one_vs_rest"])
def test_losses_and_gradients_are_those_of_the_definition(kind: str) -> None:
    model = build_model("svm", input_shape=(5,), num_classes=4, loss_kind=kind)
    params = params_of(model)
    x, y = batch_of(model, 40)
    weight = np.ones(40, dtype=np.float32)
    z, losses, correct, _ = outputs(model, params, x, y, weight)
    weights, bias = params[:20].reshape(4, 5), params[20:]
    np.testing.assert_allclose(z, x @ weights.T + bias, rtol=1e-5, atol=1e-5)
    expected = [plain(kind, z[i], y[i]) for i in range(40)]
    np.testing.assert_allclose(losses, [loss for loss, _ in expected], rtol=1e-5, atol=1e-6)
    assert 0 < sum(loss == 0.0 for loss, _ in expected) < 40 or kind == "one_vs_rest"
    total = sum(np.concatenate((np.outer(e, x[i]).ravel(), e)) for i, (_, e) in enumerate(expected))
    np.testing.assert_allclose(all_gradients(model, params, x, y, weight, np.float32(1.0))[0], total, atol=2e-5)
    np.testing.assert_array_equal(correct, z.argmax(axis=1) == y)


def test_at_zero_every_example_is_within_the_margin() -> None:
    model = build_model("svm", input_shape=(5,), num_classes=4)
    x, y = batch_of(model, 6)
    _, losses, _, _ = outputs(model, np.zeros(24, np.float32), x, y, np.ones(6, np.float32))
    np.testing.assert_array_equal(losses, 1.0)
