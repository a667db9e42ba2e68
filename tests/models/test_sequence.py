"""LSTM and transformer against plain loops in float64, and what one place of a sequence may know."""

from typing import Any

import numpy as np
import pytest

from simfl.models import AbstractModel, build_model

from .cases import MODELS, batch_of, initial, outputs, params_of, quick_jit

WEIGHT = np.ones(6, np.float32)


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def lstm(model: Any, parts: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Logits at every place of one sequence, unit by unit as the equations say."""
    u = np.eye(model.num_classes)[x]
    for layer in range(1, model.layers + 1):
        w, r, b = (parts[f"layer{layer}.{name}"] for name in ("input", "recurrent", "bias"))
        h, c, states = np.zeros(model.width), np.zeros(model.width), []
        for u_t in u:
            i, f, g, o = np.split(w @ u_t + r @ h + b, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            states.append(h)
        u = np.array(states)
    return u @ parts["output.weights"].T + parts["output.bias"]


def transformer(model: Any, parts: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Logits at every place of one sequence, head by head and place by place."""

    def norm(name: str, h: np.ndarray) -> np.ndarray:
        centered = h - h.mean(axis=1, keepdims=True)
        deviation = np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-5)
        return parts[f"{name}.gain"] * centered / deviation + parts[f"{name}.bias"]

    def gelu(z: np.ndarray) -> np.ndarray:
        return 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))

    h, each = parts["tokens"][x] + parts["places"], model.width // model.heads
    for layer in range(1, model.layers + 1):
        own = f"layer{layer}"
        q, k, v = np.split(norm(f"{own}.norm1", h) @ parts[f"{own}.attention.weights"].T, 3, axis=1)
        taken = np.zeros_like(h)
        for head in range(model.heads):
            part = slice(head * each, (head + 1) * each)
            for t in range(len(x)):
                weight = np.exp(k[: t + 1, part] @ q[t, part] / np.sqrt(each))
                taken[t, part] = weight / weight.sum() @ v[: t + 1, part]
        h = h + taken @ parts[f"{own}.attention.output"].T
        up = gelu(norm(f"{own}.norm2", h) @ parts[f"{own}.up.weights"].T + parts[f"{own}.up.bias"])
        h = h + up @ parts[f"{own}.down.weights"].T + parts[f"{own}.down.bias"]
    return norm("norm", h) @ parts["output.weights"].T + parts["output.bias"]


@pytest.mark.parametrize(("name", "plain"), [("lstm", lstm), ("transformer", transformer)])
def test_losses_and_predictions_are_those_of_a_plain_loop(name: str, plain: Any) -> None:
    model: Any = MODELS[name]
    params = params_of(model)
    x, y = batch_of(model, 6)
    parts = {key: part.astype(np.float64) for key, part in model.parts(params).items()}
    logits = np.array([plain(model, parts, x_i) for x_i in x])
    following = np.concatenate([x[:, 1:], y[:, None]], axis=1)
    chances = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    loss = -np.log(np.take_along_axis(chances, following[:, :, None], axis=2)[:, :, 0])
    right = (logits.argmax(axis=2) == following).astype(float)
    whole = model.positions == "all"
    predictions, losses, correct, _ = outputs(model, params, x, y, WEIGHT)
    np.testing.assert_allclose(predictions, logits[:, -1], rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(losses, loss.mean(axis=1) if whole else loss[:, -1], rtol=1e-4)
    np.testing.assert_allclose(correct, right.mean(axis=1) if whole else right[:, -1], rtol=1e-6)


def test_the_prediction_at_a_place_ignores_later_tokens() -> None:
    model: Any = MODELS["transformer"]
    params, (x, _) = params_of(model), batch_of(model, 6)
    later = np.where(np.arange(4) == 3, (x + 1) % model.num_classes, x)
    logits = quick_jit(model.logits)
    before, after = logits(params, x), logits(params, later)
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert (before[:, 3] != after[:, 3]).any(axis=1).all()


def test_parts_have_their_stated_initial_values() -> None:
    lstm_model = build_model("lstm", input_shape=(9,), num_classes=6, width=100)
    parts = lstm_model.parts(initial(lstm_model))
    assert parts["layer1.bias"].tolist() == [0.0] * 100 + [1.0] * 100 + [0.0] * 200
    assert parts["layer1.recurrent"].std() == pytest.approx(np.sqrt(2 / 500), rel=0.02)
    small: AbstractModel = build_model("transformer", input_shape=(9,), num_classes=6)
    parts = small.parts(initial(small))
    assert not parts["layer1.attention.output"].any()
    assert not parts["layer1.down.weights"].any()
    assert (parts["norm.gain"] == 1).all()
    assert parts["tokens"].std() == pytest.approx(0.02, rel=0.2)
