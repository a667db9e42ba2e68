"""LeNet-5 against XLA's convolutions, and the shapes of images it takes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simfl.models import build_model

from .cases import convolved, initial, parts_of, pooled, quick_jit


@quick_jit
def reference(params: jax.Array, images: jax.Array) -> jax.Array:
    """The network on 32 x 32 images [b, 32, 32, c], examples first, with XLA's convolutions and pooling."""
    channels = images.shape[-1]
    shapes = [(6, channels, 5, 5), (6,), (16, 6, 5, 5), (16,), (120, 400), (120,), (84, 120), (84,), (10, 84), (10,)]
    arrays = parts_of(params, shapes)
    h = images.transpose(0, 3, 1, 2)
    for weights, bias in (arrays[0:2], arrays[2:4]):
        h = pooled(jnp.tanh(convolved(h, weights, bias)))
    h = h.reshape(h.shape[0], -1)
    for weights, bias in (arrays[4:6], arrays[6:8]):
        h = jnp.tanh(h @ weights.T + bias)
    return h @ arrays[8].T + arrays[9]


@pytest.mark.slow(but=["shape1-2-61706"])
@pytest.mark.parametrize(
    ("shape", "frame", "size"), [((28, 28), 2, 61_706), ((784,), 2, 61_706), ((32, 32, 3), 0, 62_006)]
)
def test_forward_equals_the_reference(shape: tuple[int, ...], frame: int, size: int) -> None:
    model = build_model("lenet5", input_shape=shape, num_classes=10, activation="tanh")
    assert model.size == size
    params = initial(model)
    x = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
    side = 32 - 2 * frame
    images = np.pad(x.reshape(3, side, side, -1), ((0, 0), (frame, frame), (frame, frame), (0, 0)))
    expected = reference(params, images)
    np.testing.assert_allclose(quick_jit(model.predict)(params, x), expected, rtol=1e-3, atol=1e-5)
