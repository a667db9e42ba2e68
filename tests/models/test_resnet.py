"""The residual network: sizes, independence of examples, and that blocks begin near the identity's scale."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from simfl.models import build_model

from .cases import KEY, MODELS, initial, quick_jit


@pytest.mark.parametrize(("blocks", "size"), [(1, 77_850), (2, 175_066)])
def test_the_number_of_parameters_is_as_documented(blocks: int, size: int) -> None:
    model = build_model("resnet", input_shape=(32, 32, 3), num_classes=10, blocks=blocks)
    assert model.size == size
    assert jax.eval_shape(model.init, KEY).shape == (size,)
    outputs = jax.eval_shape(
        model.predict, jax.ShapeDtypeStruct((size,), np.float32), jax.ShapeDtypeStruct((5, 32, 32, 3), np.float32)
    )
    assert outputs.shape == (5, 10)


def test_examples_do_not_influence_each_other() -> None:
    model = MODELS["resnet"]
    params = initial(model)
    x = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype(np.float32)
    changed = x.copy()
    changed[1:] *= 5.0
    predict = quick_jit(model.predict)
    np.testing.assert_allclose(predict(params, x)[0], predict(params, changed)[0], rtol=1e-5, atol=1e-6)


def test_a_block_without_residual_is_its_shortcut() -> None:
    """With the last gains and biases of the first block at 0, the block passes its (non-negative) input on."""
    model = MODELS["resnet"]
    sizes = [layer.size for layer in model.layers]
    ends = np.cumsum(sizes)
    params = initial(model).copy()
    x = np.random.default_rng(1).normal(size=(4, 8, 8, 3)).astype(np.float32)
    predict = quick_jit(model.predict)
    # Layers: convolution, normalization | convolution, normalization, convolution, normalization | ...
    params[ends[4] : ends[5]] = 0.0
    expected = predict(params, x)
    params[ends[1] : ends[4]] = 7.0
    np.testing.assert_allclose(predict(params, x), expected, rtol=1e-5)
    params[: ends[0]] += 0.1
    assert not np.allclose(predict(params, x), expected, rtol=1e-3)
