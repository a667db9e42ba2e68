import functools

import jax
import numpy as np
import pytest

from simfl.attacks.canary import ORDINARY, SILENT, CanaryModel, with_codes
from simfl.models.logistic import Logistic
from simfl.models.mlp import MLP
from simfl.models.quadratic import Quadratic
from simfl.models.softmax import Softmax

KEY = np.array([1, 2], dtype=np.uint32)
INNER = {
    "softmax": Softmax((6,), 3),
    "mlp": MLP((2, 3), 3, hidden=(5,)),
    "logistic": Logistic((6,), 2),
    "quadratic": Quadratic((6,)),
}


def case(name, canaries=4, norm=10.0, seed=0):
    """A model with canaries, parameters, and a batch of five ordinary examples, f32 [5, ...]."""
    inner = INNER[name]
    generator = np.random.default_rng(seed)
    model = CanaryModel.around(inner, canaries, norm)
    params = generator.standard_normal(model.size).astype(np.float32)
    x = generator.standard_normal((5, *inner.input_shape)).astype(np.float32)
    y = generator.integers(0, max(2, inner.num_classes), 5).astype(np.int32)
    return model, params, x, y


@functools.cache
def sums(model):
    """Both sums and the norms of a model, compiled once."""

    def run(params, x, y, weight, bound):
        clipped = model.clipped_gradient_sum(params, x, y, weight, bound)
        return model.gradient_sum(params, x, y, weight), clipped, model.gradient_norms(params, x, y)

    return jax.jit(run)


@pytest.mark.slow(but=["200-quadratic"])
@pytest.mark.parametrize("name", INNER)
@pytest.mark.parametrize("canaries", [4, 200])
def test_ordinary_examples_equal_those_of_the_inner_model(name, canaries):
    model, params, x, y = case(name, canaries)
    inner, own = model.inner, params[: model.inner.size]
    weight = np.array([1, 0, 1, 1, 0.5], np.float32)
    coded = with_codes(x, ORDINARY)
    assert coded.shape == (5, 7)
    for computed, expected in zip(
        sums(model)(params, coded, y, weight, 0.7), sums(inner)(own, x, y, weight, 0.7), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(computed)[: len(expected)], expected)
        assert not np.asarray(computed)[len(expected) :].any()
    np.testing.assert_array_equal(model.losses(params, coded, y), inner.losses(own, x, y))
    np.testing.assert_array_equal(model.predict(params, coded), inner.predict(own, x))
    np.testing.assert_array_equal(model.correct(params, coded, y), inner.correct(own, x, y))
    initial = np.asarray(model.init(KEY))
    np.testing.assert_array_equal(initial[: inner.size], inner.init(KEY))
    assert initial.shape == (model.size,)
    assert not initial[inner.size :].any()
    for name in ("convolutional", "first_convolution", "l2", "num_classes"):
        assert getattr(model, name) == getattr(inner, name)


@pytest.mark.parametrize("name", INNER)
@pytest.mark.parametrize("canaries", [4, 200])
def test_canaries_are_orthogonal_directions_cut_to_the_bound(name, canaries):
    model, params, x, y = case(name, canaries)
    coordinates = model.coordinates
    assert len(set(coordinates.tolist())) == canaries
    assert coordinates.min() >= 0
    assert coordinates.max() < model.size
    for code, place, sign in ((1, 0, 1.0), (-3, 2, -1.0), (canaries, canaries - 1, 1.0)):
        coded = with_codes(0 * x, code)
        one = np.array([0, 1, 0, 0, 0], np.float32)
        plain, clipped, norms = sums(model)(params, coded, y, one, 0.25)
        expected = np.zeros(model.size)
        expected[coordinates[place]] = sign
        np.testing.assert_allclose(plain, 10.0 * expected, rtol=1e-6)
        np.testing.assert_allclose(clipped, 0.25 * expected, rtol=1e-6)
        np.testing.assert_allclose(norms, 10.0)
        assert not np.asarray(model.losses(params, coded, y)).any()


@pytest.mark.parametrize("name", INNER)
def test_silent_examples_have_no_loss_and_no_gradient(name):
    model, params, x, y = case(name)
    plain, clipped, norms = sums(model)(params, with_codes(x, SILENT), y, np.ones(5, np.float32), 0.25)
    assert not np.asarray(plain).any()
    assert not np.asarray(clipped).any()
    assert not np.asarray(norms).any()


def test_a_mixed_batch_is_the_sum_of_its_parts():
    model, params, x, y = case("softmax")
    codes = np.array([ORDINARY, 2, SILENT, ORDINARY, -2], np.float32)
    weight = np.array([1, 1, 1, 0, 1], np.float32)
    run = sums(model)
    whole = run(params, with_codes(x, codes), y, weight, 0.5)
    for part in range(2):
        alone = [
            np.asarray(run(params, with_codes(x, codes), y, weight * (np.arange(5) == i), 0.5)[part]) for i in range(5)
        ]
        np.testing.assert_allclose(whole[part], np.sum(alone, axis=0), atol=1e-5)
    assert not np.asarray(alone[3]).any()
    np.testing.assert_allclose(np.asarray(alone[1]), -np.asarray(alone[4]))


def test_canaries_spread_over_all_layers():
    """There are canaries in all layers, so noise on only some of the parameters is detected."""
    model = CanaryModel.around(MLP((64,), 10, hidden=(32,)), 200, 10.0)
    coordinates = np.sort(model.coordinates)
    assert np.diff(coordinates).max() < 3 * model.size / 200
    assert hash(model) == hash(CanaryModel.around(MLP((64,), 10, hidden=(32,)), 200, 10.0))
