"""Integers are stored on the device as they are, and converted there to the same bits as on the host."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simfl.data.base import AS_IS, Scaling
from simfl.models import build_model
from simfl.tape import kernels
from simfl.tape.evaluation import Evaluator
from simfl.tape.inputs import Integers, inputs_of

PER_COLOR = Scaling(np.float32(255), np.array([0.49, 0.48, 0.45], np.float32), np.array([0.25, 0.24, 0.26], np.float32))


@pytest.fixture
def pixels():
    """Return images with every byte in every color: uint8 [4, 16, 16, 3]."""
    return np.random.default_rng(0).permuted(np.arange(4 * 16 * 16 * 3) % 256).astype(np.uint8).reshape(4, 16, 16, 3)


@pytest.mark.parametrize("scaling", [AS_IS, Scaling(np.float32(255)), PER_COLOR])
def test_the_device_converts_as_the_host_does_and_as_ieee_says(scaling, pixels):
    model = build_model("softmax", input_shape=(16, 16, 3), num_classes=10)
    # In a loop, as in windows and evaluations.
    taken = jax.jit(lambda x: jax.lax.map(lambda i: x[i], jnp.arange(4)[::-1]))(inputs_of(pixels, scaling, model))
    expected = pixels[::-1].astype(np.float32)
    if scaling.divisor is not None:
        expected /= np.float32(255)
    if scaling.mean is not None:
        expected = (expected - scaling.mean) / scaling.deviation
    np.testing.assert_array_equal(taken, expected)
    np.testing.assert_array_equal(scaling(pixels[::-1]), expected)


def test_floats_are_passed_unchanged_and_tokens_stay_integers(pixels):
    model = build_model("softmax", input_shape=(16, 16, 3), num_classes=10)
    floats = pixels.astype(np.float32)
    assert inputs_of(floats, Scaling(np.float32(255)), model) is floats
    tokens = Integers(jnp.asarray(pixels), Scaling(np.float32(255)), tokens=True)
    assert tokens[1].dtype == jnp.int32
    np.testing.assert_array_equal(tokens[1], pixels[1])


def test_bytes_are_evaluated_like_floats_in_a_quarter_of_the_memory(pixels):
    model = build_model("softmax", input_shape=(16, 16, 3), num_classes=3)
    device, y = jax.devices("cpu")[0], np.array([0, 1, 2, 1], np.int32)
    params = np.random.default_rng(1).normal(size=model.size).astype(np.float32)
    stored, plain = Evaluator(model, device, PER_COLOR), Evaluator(model, device)
    assert stored.examples(pixels, y)[0].stored.nbytes * 4 == plain.examples(PER_COLOR(pixels), y)[0].nbytes
    for x, evaluator in ((pixels, stored), (PER_COLOR(pixels), plain)):
        evaluated = evaluator.measure(params, evaluator.examples(x, y)), *evaluator.answers(params, x, y)
        if x is pixels:
            expected = evaluated
    assert evaluated[0] == expected[0]
    for one, other in zip(evaluated[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_batch_is_converted_after_it_is_gathered():
    data = {
        "x": Integers(jnp.array([[51], [102], [204]], jnp.uint8), Scaling(jnp.float32(255)), tokens=False),
        "y": jnp.array([0, 1, 2]),
        "table": jnp.array([2, 0, 1]),
        "offsets": jnp.array([0, 1]),
    }
    operation, zero = SimpleNamespace(tasks=1, augment=None), jnp.int32(0)
    x, y = kernels.examples_of(operation, data, jnp.int32(1), zero, zero, jnp.array([1, 0]))
    np.testing.assert_array_equal(x, np.float32([[102], [51]]) / np.float32(255))
    assert y.tolist() == [1, 0]
