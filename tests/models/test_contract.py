"""Properties that every model must have."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from simfl.models import MODELS as REGISTRY
from simfl.models import AbstractModel
from simfl.models.base import mean_loss

from .cases import (
    DENSE,
    KEY,
    MODELS,
    all_clipped,
    all_gradients,
    batch_of,
    initial,
    outputs,
    params_of,
    plain_clipped_sum,
    plain_gradients,
    quick_jit,
)

WEIGHT = np.array([1, 1, 0, 1, 0.5, 1], dtype=np.float32)
every_model = pytest.mark.parametrize("name", MODELS, scope="module")  # a worker compiles a model once
some_models = pytest.mark.slow(but=["softmax without", "mlp tanh", "linear without"])
Case = tuple[AbstractModel, np.ndarray, np.ndarray, np.ndarray]


@pytest.fixture
def case(name: str) -> Case:
    """A model, parameters away from zero, and a batch."""
    model = MODELS[name]
    return model, params_of(model), *batch_of(model, len(WEIGHT))


def close(actual: np.ndarray, expected: np.ndarray, tolerance: float = 2e-5) -> None:
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def test_every_registered_model_is_covered() -> None:
    assert {model.kind for model in MODELS.values()} == set(REGISTRY)
    assert len({model.summary for model in REGISTRY.values()}) == len(REGISTRY)


@some_models
@every_model
def test_sums_and_norms_equal_automatic_differentiation(case: Case) -> None:
    model, params, x, y = case
    gradients = plain_gradients(model, params, x, y)
    norms = np.linalg.norm(gradients.astype(np.float64), axis=1)
    # The smallest bound clips every example, the median some, the largest none.
    moving = norms[norms > 1e-12]  # beyond the margin, a hinge has no gradient
    assert len(moving) >= 3
    for clipping_norm in (0.01 * moving.min(), np.median(moving), 2 * moving.max()):
        plain, clipped, computed_norms = all_gradients(model, params, x, y, WEIGHT, np.float32(clipping_norm))
        close(computed_norms, norms)
        close(plain, WEIGHT @ gradients)
        close(clipped / clipping_norm, plain_clipped_sum(gradients, WEIGHT, clipping_norm) / clipping_norm)
        assert np.linalg.norm(clipped) <= clipping_norm * WEIGHT.sum() * (1 + 1e-5)
    close(all_gradients(model, params, x, y, WEIGHT, np.float32(np.inf))[1], plain, 1e-6)


@some_models
@every_model
def test_gradient_is_that_of_the_loss(case: Case) -> None:
    model, params, x, y = case
    full = all_gradients(model, params, x, y, WEIGHT, np.float32(1.0))[0] / WEIGHT.sum() + np.float32(model.l2) * params
    if not model.convolutional:
        close(full, quick_jit(jax.grad(partial(mean_loss, model)))(params, x, y, WEIGHT))
    # A finite difference along the gradient, which knows nothing of automatic differentiation.
    step = np.float32(3e-3) * full / np.linalg.norm(full)
    difference = outputs(model, params + step, x, y, WEIGHT)[3] - outputs(model, params - step, x, y, WEIGHT)[3]
    np.testing.assert_allclose(difference, 2 * float(full @ step), rtol=2e-2)


@some_models
@every_model
def test_loss_is_the_weighted_mean_plus_the_penalty(case: Case) -> None:
    model, params, x, y = case
    _, losses, _, loss = outputs(model, params, x, y, WEIGHT)
    penalty = 0.5 * model.l2 * np.sum(params.astype(np.float64) ** 2)
    np.testing.assert_allclose(loss, WEIGHT @ losses / WEIGHT.sum() + penalty, rtol=1e-5)


@some_models
@every_model
def test_padding_contributes_exactly_zero(case: Case) -> None:
    model, params, x, y = case
    garbage = x.copy()
    garbage[2] = 3e4 * x[2] - 1e5
    expected = all_gradients(model, params, x, y, WEIGHT, np.float32(0.3))
    actual = all_gradients(model, params, garbage, y, WEIGHT, np.float32(0.3))
    np.testing.assert_array_equal(actual[0], expected[0])
    np.testing.assert_array_equal(actual[1], expected[1])
    assert outputs(model, params, x, y, WEIGHT)[3] == outputs(model, params, garbage, y, WEIGHT)[3]
    nothing = all_gradients(model, params, garbage, y, np.zeros_like(WEIGHT), np.float32(0.3))
    assert not np.any(nothing[0])
    assert not np.any(nothing[1])


@some_models
@pytest.mark.parametrize("name", DENSE)
def test_vmap_over_clients_equals_one_at_a_time(name: str) -> None:
    model = MODELS[name]
    params = np.stack([params_of(model, seed) for seed in range(3)])
    batches = [batch_of(model, len(WEIGHT), seed) for seed in range(3)]
    x, y = (np.stack(arrays) for arrays in zip(*batches, strict=True))
    weight = np.stack([np.roll(WEIGHT, k) for k in range(3)])
    together = quick_jit(jax.vmap(model.clipped_gradient_sum, in_axes=(0, 0, 0, 0, None)))(params, x, y, weight, 0.5)
    for k in range(3):
        alone = all_gradients(model, params[k], x[k], y[k], weight[k], np.float32(0.5))[1]
        close(together[k], alone)


@some_models
@every_model
def test_init_depends_on_the_key_alone(name: str) -> None:
    model = MODELS[name]
    params, other = initial(model), initial(model, seed=1)
    assert params.shape == (model.size,)
    assert params.dtype == np.float32
    assert np.array_equal(params, quick_jit(model.init)(KEY))
    convex = model.kind in ("linear", "quadratic", "logistic", "one_vs_all", "softmax", "svm")
    assert convex == np.array_equal(params, other)
    assert convex == (not np.any(params))


@some_models
@every_model
def test_predictions_have_the_promised_shape(case: Case) -> None:
    model, params, x, y = case
    predictions, losses, correct, _ = outputs(model, params, x, y, WEIGHT)
    shapes = {"linear": (6,), "logistic": (6,), "quadratic": (6, 4)}
    assert predictions.shape == shapes.get(model.kind, (6, model.num_classes))
    assert losses.shape == correct.shape == (6,)
    if model.num_classes:
        labels = predictions.argmax(axis=1) if predictions.ndim == 2 else predictions > 0
        if getattr(model, "positions", "last") == "last":
            np.testing.assert_array_equal(correct, labels == y)
        else:  # the share of the places
            np.testing.assert_allclose(correct * model.input_shape[0] % 1, 0, atol=1e-6)
    else:
        assert np.isnan(correct).all()


def test_models_are_values() -> None:
    for model in MODELS.values():
        copy = dataclasses.replace(model)
        assert copy is not model
        assert copy == model
        assert hash(copy) == hash(model)
    assert len(set(MODELS.values())) == len(MODELS)


@some_models
@every_model
def test_a_gradient_that_is_not_finite_contributes_exactly_zero_and_is_counted(case: Case) -> None:
    """A norm that overflows float32 though the gradient is finite, and gradients of infinities and NaN."""
    model, params, x, y = case
    if not model.tokens:
        x[1], x[4] = 1e20 * x[1], 3e38 * np.sign(x[4])
        x[2] = 3e38  # padding, which does not count
    norms = all_gradients(model, params, x, y, WEIGHT, np.float32(0.3))[2]
    unbounded = ~np.isfinite(norms) & (WEIGHT != 0)
    assert unbounded[[1, 4]].all() or model.convolutional or model.tokens, (
        "tanh and normalizing saturate: no gradient there"
    )
    expected, _ = all_clipped(model, params, x, y, np.where(unbounded, np.float32(0), WEIGHT), np.float32(0.3))
    total, count = all_clipped(model, params, x, y, WEIGHT, np.float32(0.3))
    np.testing.assert_array_equal(total, expected)
    assert np.linalg.norm(total) <= 0.3 * WEIGHT.sum() * (1 + 1e-5)
    assert count == unbounded.sum()
    # Parameters that have overflowed: infinities and NaN in all layers, or a saturated gradient that is finite.
    for broken in (np.full_like(params, np.nan), np.float32(3e38) * np.sign(params)):
        total, count = all_clipped(model, broken, x, y, WEIGHT, np.float32(0.3))
        assert np.linalg.norm(total) <= 0.3 * WEIGHT.sum() * (1 + 1e-5), "0 times infinity would be NaN"
        assert total.any() or count == np.count_nonzero(WEIGHT) or model.kind == "svm", "a hinge has no gradient at NaN"


@every_model
def test_the_parts_of_a_model_are_its_vector(name: str) -> None:
    model = MODELS[name]
    params = np.arange(2 * model.size, dtype=np.float32).reshape(2, -1)
    parts = model.parts(params)
    assert {key: part.shape for key, part in parts.items()} == {key: (2, *shape) for key, shape in model.layout}
    np.testing.assert_array_equal(model.joined({key: part[1] for key, part in parts.items()}), params[1], strict=True)
    with pytest.raises(ValueError, match=f"of model {model.kind}, found none"):
        model.joined({})
