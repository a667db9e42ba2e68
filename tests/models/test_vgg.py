"""VGG: sizes, and pooling of even and odd sides."""

import numpy as np
import pytest

from simfl.models import build_model
from simfl.models.vgg import largest_of_four

from .cases import checked_size


@pytest.mark.parametrize(("depth", "convolutions", "size"), [(11, 8, 9_228_362), (19, 16, 20_035_018)])
def test_the_number_of_parameters_is_as_documented(depth: int, convolutions: int, size: int) -> None:
    """Those of the usual networks for CIFAR-10, less the biases of their convolutions."""
    model = build_model("vgg", input_shape=(32, 32, 3), num_classes=10, depth=depth)
    assert (len(model.layers) - 1) // 2 == convolutions
    checked_size(model, size)


@pytest.mark.parametrize("side", [1, 4, 5])
def test_pooling_takes_the_largest_of_up_to_four_places(side: int) -> None:
    h = np.random.default_rng(side).random((2, side, side, 3), dtype=np.float32)
    half = -(-side // 2)
    expected = [[h[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max(axis=(1, 2)) for j in range(half)] for i in range(half)]
    np.testing.assert_array_equal(largest_of_four(h), np.moveaxis(np.array(expected), 2, 0))
