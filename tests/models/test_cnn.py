"""The small convolutional network against XLA's convolutions, and the shapes of images it takes."""

import math

import jax
import numpy as np
import pytest

from simfl.models import build_model

from .cases import convolved, initial, parts_of, pooled, quick_jit


def reference(params: jax.Array, images: jax.Array) -> jax.Array:
    """The network on images [b, side, side, c], examples first, with XLA's convolutions and pooling."""
    channels, last = images.shape[-1], ((images.shape[1] - 4) // 2 - 4) // 2
    shapes = [(10, channels, 5, 5), (10,), (10, 10, 5, 5), (10,), (10, 10 * last * last), (10,)]
    arrays = parts_of(params, shapes)
    h = images.transpose(0, 3, 1, 2)
    for weights, bias in (arrays[0:2], arrays[2:4]):
        h = jax.nn.relu(pooled(convolved(h, weights, bias)))
    return h.reshape(h.shape[0], -1) @ arrays[4].T + arrays[5]


@pytest.mark.parametrize(("shape", "side", "size"), [
    ((28, 28), 28, 260 + 2510 + 1610), ((256,), 16, 260 + 2510 + 110), ((8, 8), 16, 260 + 2510 + 110),
    ((18, 18, 3), 20, 760 + 2510 + 410),
], ids=["mnist", "usps", "digits", "colors"])  # fmt: skip
def test_forward_equals_the_reference(shape: tuple[int, ...], side: int, size: int) -> None:
    model = build_model("cnn", input_shape=shape, num_classes=10)
    assert (model.size, model.side) == (size, side)
    params = initial(model)
    x = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
    own = math.isqrt(math.prod(shape)) if len(shape) < 3 else shape[0]
    before = (side - own) // 2
    frame = (before, side - own - before)
    images = np.pad(x.reshape(3, own, own, -1), ((0, 0), frame, frame, (0, 0)))
    expected = quick_jit(reference)(params, images)
    np.testing.assert_allclose(quick_jit(model.predict)(params, x), expected, rtol=1e-3, atol=1e-5)


def test_the_first_convolution_comes_first() -> None:
    """Noise on it alone is noise on the first parameters."""
    model = build_model("cnn", input_shape=(28, 28), num_classes=10)
    assert model.layers[0].size == 260
