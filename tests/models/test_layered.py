"""Large batches are processed in parts, with the same result."""

import re
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simfl.models import build_model
from simfl.models.base import sum_in_parts
from simfl.models.lenet5 import LeNet5
from simfl.models.mlp import MLP

from .cases import all_gradients, batch_of, outputs, params_of, quick_jit


@dataclass(frozen=True)
class InParts(MLP):
    """A perceptron that takes three examples at a time, or two in a gradient on a CPU."""

    max_batch: ClassVar[int] = 3
    cpu_batch: ClassVar[int] = 2


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 8])
def test_parts_give_the_result_of_the_whole(size: int) -> None:
    whole, parts = (model(input_shape=(5,), num_classes=3, hidden=(4,)) for model in (MLP, InParts))
    params = params_of(whole)
    x, y = batch_of(whole, size)
    weight = np.linspace(0.1, 1, size, dtype=np.float32)
    for function in (
        lambda model: outputs(model, params, x, y, weight),
        lambda model: all_gradients(model, params, x, y, weight, np.float32(0.7)),
    ):
        for actual, expected in zip(function(parts), function(whole), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


def test_parts_under_vmap_give_the_result_of_the_whole() -> None:
    model = InParts(input_shape=(5,), num_classes=3, hidden=(4,))
    params = np.stack([params_of(model, seed) for seed in range(2)])
    x, y = (np.stack(arrays) for arrays in zip(batch_of(model, 8, 0), batch_of(model, 8, 1), strict=True))
    weight = np.ones((2, 8), dtype=np.float32)
    together = quick_jit(jax.vmap(model.gradient_sum))(params, x, y, weight)
    for k in range(2):
        alone = all_gradients(model, params[k], x[k], y[k], weight[k], np.float32(0.7))[0]
        np.testing.assert_allclose(together[k], alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("weights", "parts"), [([], 0), ([1, 1], 1), ([1] * 4, 2), ([0, 0, 1, 0, 2], 3), ([1] * 7, 4)])
@pytest.mark.parametrize("vectorized", [False, True])
def test_parts_after_the_last_weight_are_not_computed(weights: list[int], parts: int, vectorized: bool) -> None:
    """Of seven examples, two at a time; the second sum counts the parts."""

    def part(x: jax.Array, y: jax.Array, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.sum(x * weight) + jnp.sum(y * weight), jnp.int32(1)

    x, y = jnp.arange(7.0), jnp.arange(7.0) ** 2
    weight = jnp.array(weights + [0] * (7 - len(weights)), jnp.float32)
    total = sum_in_parts(part, 2)
    if vectorized:
        totals, count = jax.vmap(total, (None, None, 0))(x, y, jnp.stack([weight, jnp.ones(7), jnp.zeros(7)]))
        assert totals.tolist() == [float(weight @ (x + y)), 112.0, 0.0]
        assert count.tolist() == [parts, 4, 0]
    else:
        assert (float(total(x, y, weight)[0]), int(total(x, y, weight)[1])) == (float(weight @ (x + y)), parts)


def test_one_example_has_its_activations_computed_once() -> None:
    """XLA made a loop of the product of errors and activations, and pooled 400 activations again for 120 errors each:
    a gradient of one image took three times as long.
    """
    model = build_model("lenet5", input_shape=(784,), num_classes=10)
    gradient = jax.jit(lambda w, x, y: model.gradient_sum(w, x, y, jnp.ones(1)))
    arguments = jnp.zeros(model.size), jnp.zeros((1, 784)), jnp.zeros(1, jnp.int32)
    program = gradient.lower(*arguments).compile().as_text()
    shaped = [line for line in program.splitlines() if re.search(r"= f32\[120,400\]", line)]
    assert any(" dot(" in line for line in shaped)
    assert not any(" multiply(" in line for line in shaped)


def test_parts_are_named_after_layers() -> None:
    mlp = build_model("mlp", input_shape=(6,), num_classes=3, hidden=(4,))
    assert mlp.layout == (
        ("layer1.weights", (4, 6)),
        ("layer1.bias", (4,)),
        ("layer2.weights", (3, 4)),
        ("layer2.bias", (3,)),
    )
    softmax = build_model("softmax", input_shape=(2, 3), num_classes=4)
    assert softmax.layout == (("weights", (4, 6)), ("bias", (4,)))
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    parts = {"weights": np.eye(4, 6, dtype=np.float32), "bias": np.full(4, 0.5, np.float32)}
    np.testing.assert_array_equal(softmax.predict(softmax.joined(parts), x), [[0.5, 1.5, 2.5, 3.5]])


@pytest.mark.slow
def test_one_program_draws_the_bits_that_layers_draw_one_by_one() -> None:
    model = build_model("mlp", input_shape=(5,), num_classes=3, hidden=(4,))
    key = np.array([3, 7], dtype=np.uint32)
    keys = jax.random.split(jax.random.wrap_key_data(jnp.asarray(key), impl="threefry2x32"), len(model.layers))
    parts = [np.asarray(layer.init(own)) for layer, own in zip(model.layers, keys, strict=True)]
    assert np.asarray(model.init(key)).tobytes() == np.concatenate(parts).tobytes()


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((28, 28), (28, 1)), ((784,), (28, 1)), ((32, 32, 3), (32, 3)), ((8, 8, 1), (8, 1)), ((256,), (16, 1))],
)
def test_images_are_recognized(shape: tuple[int, ...], expected: tuple[int, int]) -> None:
    assert LeNet5(shape, num_classes=2).image == expected


@pytest.mark.parametrize("shape", [(10,), (3072,), (28, 27), (32, 31, 3), (8, 8, 3, 1)])
def test_shapes_that_are_not_images_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected square images .* found \("):
        LeNet5(shape, num_classes=2)
