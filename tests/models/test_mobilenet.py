"""MobileNet: its size, and that it computes the published network."""

import numpy as np
import pytest
from numpy.typing import NDArray

from simfl.models import build_model

from .cases import MODELS, batch_of, checked_size, params_of, quick_jit

Floats = NDArray[np.float64]


def test_the_number_of_parameters_is_as_documented() -> None:
    """Those of the usual network for CIFAR-10, and the 12.27 MB (of 2^20 bytes) of the paper's Table 2."""
    model = build_model("mobilenet", input_shape=(32, 32, 3), num_classes=10)
    convolutions = 3 * 32 * 9
    for inputs, outputs in [(32, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 512), *[(512, 512)] * 5,
                            (512, 1024), (1024, 1024)]:  # fmt: skip
        convolutions += inputs * 9 + 2 * inputs + inputs * outputs + 2 * outputs
    assert model.size == convolutions + 2 * 32 + 1024 * 10 + 10 == 3_217_226
    assert 4 * model.size / 2**20 == pytest.approx(12.27, abs=0.005)
    assert len(model.layers) == 2 * 27 + 1  # 28 layers with weights in the paper, and 27 normalizations
    checked_size(model, 3_217_226)


def convolved(h: Floats, weights: Floats, stride: int) -> Floats:
    """Convolve [channels, side, side] with [out, in, k, k] place by place; zeros pad the sides."""
    size = weights.shape[-1]
    edge = size // 2
    padded = np.pad(h, ((0, 0), (edge, edge), (edge, edge)))
    places = range(0, h.shape[1], stride)
    rows = [[np.tensordot(weights, padded[:, i : i + size, j : j + size], 3) for j in places] for i in places]
    return np.moveaxis(np.array(rows), 2, 0)


def normalized(h: Floats, gain: Floats, bias: Floats) -> Floats:
    """Normalize groups of 8 channels of [channels, side, side], then apply the rectifier."""
    grouped = h.reshape(len(h) // 8, -1)
    grouped = (grouped - grouped.mean(1, keepdims=True)) / np.sqrt(grouped.var(1, keepdims=True) + 1e-5)
    return np.maximum(grouped.reshape(h.shape) * gain[:, None, None] + bias[:, None, None], 0.0)


def plain_logits(params: Floats, image: Floats) -> Floats:
    """The network of `cases.py` in float64: depthwise convolutions are full ones with a diagonal of weights."""
    params = params.astype(np.float64)

    def take(*shape: int) -> Floats:
        nonlocal params
        part, params = np.split(params, [int(np.prod(shape))])
        return part.reshape(shape)

    h = normalized(convolved(image.transpose(2, 0, 1), take(8, 3, 3, 3), 1), take(8), take(8))
    for inputs, filters, stride in [(8, 16, 1), (16, 8, 2)]:
        depthwise = np.zeros((inputs, inputs, 3, 3))
        depthwise[range(inputs), range(inputs)] = take(inputs, 3, 3)
        h = normalized(convolved(h, depthwise, stride), take(inputs), take(inputs))
        h = normalized(convolved(h, take(filters, inputs, 1, 1), 1), take(filters), take(filters))
    return take(10, 8) @ h.mean(axis=(1, 2)) + take(10)


def test_logits_are_those_of_a_plain_form_in_float64() -> None:
    model = MODELS["mobilenet"]
    params, (x, _) = params_of(model), batch_of(model, 2)
    expected = [plain_logits(params, image) for image in x]
    np.testing.assert_allclose(quick_jit(model.predict)(params, x), expected, rtol=1e-4, atol=1e-4)
