import numpy as np
import pytest
from sklearn.datasets import load_digits

from simfl.data import load_dataset
from simfl.data.digits import _digits
from simfl.errors import ScenarioError
from simfl.streams import Streams


def test_digits_need_no_file(streams: Streams) -> None:
    data = load_dataset("digits", root=None, streams=streams)
    assert data.train_x.shape == (1438, 64)
    assert data.test_x.shape == (359, 64)
    assert data.image_shape == (8, 8)
    assert data.num_classes == 10
    assert (data.train_x.dtype, data.train_y.dtype) == (np.float32, np.int32)
    assert data.train_x.min() == 0.0
    assert data.train_x.max() == 1.0
    shares = np.bincount(data.test_y) / 359 - np.bincount(data.train_y) / 1438
    assert np.abs(shares).max() < 0.005


def test_digits_equal_those_of_scikit_learn() -> None:
    x, y = _digits()
    expected_x, expected_y = load_digits(return_X_y=True)
    np.testing.assert_array_equal(x, (expected_x / 16.0).astype(np.float32))
    np.testing.assert_array_equal(y, expected_y)


def test_the_seed_decides_the_split(streams: Streams) -> None:
    first, again, other = (load_dataset("digits", root=None, streams=s) for s in (streams, Streams(7), Streams(8)))
    np.testing.assert_array_equal(first.train_x, again.train_x)
    assert not np.array_equal(first.train_y, other.train_y)


def test_options_of_other_sets_are_refused(streams: Streams) -> None:
    with pytest.raises(ScenarioError, match=r"^data\.path: has no meaning for set digits, only for mnist"):
        load_dataset("digits", root=None, streams=streams, path="x")
    with pytest.raises(ScenarioError, match=r"^data\.pca: has no meaning for set quadratic"):
        load_dataset("quadratic", root=None, streams=streams, pca=3)
    with pytest.raises(ScenarioError, match=r"^data\.set: expected one of .*, found 'digit'; did you mean 'digits'\?"):
        load_dataset("digit", root=None, streams=streams)
