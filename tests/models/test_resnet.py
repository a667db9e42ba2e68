"""The residual network: sizes, independence of examples, and that blocks begin near the identity's scale."""

from typing import Any

import numpy as np
import pytest

from simfl.models import build_model

from .cases import MODELS, checked_size, initial, quick_jit

RESNET18 = {"blocks": 2, "channels": (64, 128, 256, 512), "normalized_projections": True}


@pytest.mark.parametrize(
    ("options", "size"), [({}, 77_850), ({"blocks": 2}, 175_066), (RESNET18, 11_173_962)], ids=["8", "14", "ResNet-18"]
)
def test_the_number_of_parameters_is_as_documented(options: dict[str, Any], size: int) -> None:
    """ResNet-18 has as many as the usual one for CIFAR-10 with batch normalization."""
    model = build_model("resnet", input_shape=(32, 32, 3), num_classes=10, **options)
    checked_size(model, size)


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
