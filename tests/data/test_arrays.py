"""Data of one's own: arrays, frames and Hugging Face sets, as a function or a notebook hands them over."""

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from simfl.data import Dataset
from simfl.data.arrays import from_object
from simfl.errors import DataError
from simfl.streams import Streams

X = np.arange(24, dtype=np.uint8).reshape(6, 2, 2)
Y = np.array(["cat", "dog", "cat", "dog", "cat", "cat"])
OWNER = ["ann", "bob", "bob", "ann", "cem", "cem"]


def load(given: Any, **options: Any) -> Dataset:
    options = {"regression": False, **options}
    return from_object(given, "data", "mine", Streams(0), **options)


@dataclass
class Parts:
    x: Any
    y: Any
    x_test: Any
    y_test: Any
    owner: Any = None


Named = namedtuple("Named", "x y x_test y_test owner")


class HuggingFace:
    """What is used of a `datasets.Dataset`: features, column_names, with_format, to_pandas."""

    def __init__(self, columns: dict[str, Any], kinds: dict[str, str]) -> None:
        self.columns_of, self.column_names = columns, list(columns)
        self.features = {name: type(kind, (), {})() for name, kind in kinds.items()}

    def with_format(self, kind: str) -> Any:
        assert kind == "numpy"
        return type("Formatted", (), {"__getitem__": lambda _, at: self.columns_of})()

    def to_pandas(self) -> pd.DataFrame:
        return pd.DataFrame(self.columns_of)


@pytest.mark.parametrize("given", [
    (X, Y, X[:2], Y[:2], OWNER),
    [X.tolist(), Y.tolist(), X[:2].tolist(), Y[:2].tolist(), OWNER],
    {"x": X, "y": Y[:, None], "x_test": X[:2], "y_test": Y[:2], "owner": OWNER},
    {"x_train": X, "y_train": Y, "x_test": X[:2], "y_test": Y[:2], "owner": OWNER},
    Parts(X, Y, X[:2], Y[:2], OWNER),
    Named(X, Y, X[:2], Y[:2], np.array(OWNER)),
])  # fmt: skip
def test_collections_of_arrays_become_a_set(given: Any) -> None:
    data = load(given, scale=1 / 255)
    np.testing.assert_array_equal(data.train_x, X)
    np.testing.assert_array_equal(data.floats().train_x, X.astype(np.float32) / np.float32(255))
    assert (data.train_y.tolist(), data.test_y.tolist()) == ([0, 1, 0, 1, 0, 0], [0, 1])
    assert (data.class_labels, data.image_shape, data.name) == (("cat", "dog"), (2, 2), "mine")
    assert data.groups.tolist() == OWNER


@pytest.mark.parametrize(("given", "kept"), [
    (np.arange(6) < 3, np.uint8), (np.arange(6, dtype=np.int8), np.int8), (np.arange(6, dtype=">i2"), np.int16),
    (np.arange(6), np.int32), (np.arange(6) * 2**40, np.float32), (np.arange(6, dtype=np.uint32), np.int32),
    (np.arange(6) / 4, np.float32),
])  # fmt: skip
def test_numbers_keep_their_values_in_at_most_32_bits(given: Any, kept: Any) -> None:
    data = load((given[:, None], Y, given[:, None], Y))
    assert data.train_x.dtype == kept
    np.testing.assert_array_equal(data.floats().train_x[:, 0], given.astype(np.float32))


def test_a_test_share_is_set_aside_and_test_arrays_may_have_another_type() -> None:
    data = load((X, Y), test_fraction=1 / 3)
    assert (len(data.train_y), len(data.test_y), data.train_x.dtype) == (4, 2, np.uint8)
    mixed = load((X, Y, X[:2].astype(float), Y[:2]))
    assert mixed.train_x.dtype == mixed.test_x.dtype == np.float32


def test_own_models_get_labels_unchanged() -> None:
    x = X.reshape(6, 4)
    whole = load((x, [3, 0, 3, 5, 3, 0], x, [0] * 6), regression=None)
    assert (whole.train_y.tolist(), whole.num_classes) == ([3, 0, 3, 5, 3, 0], 6)
    real = load((x, np.linspace(0, 1, 6), x, np.zeros(6)), regression=None)
    assert (real.train_y.dtype, real.num_classes) == (np.float32, 0)
    several = load((x, np.eye(6), x, np.eye(6)), regression=None)
    assert (several.train_y.shape, several.train_y.dtype, several.num_classes) == ((6, 6), np.float32, 0)
    with pytest.raises(DataError, match=r"^data: y: expected one label per example, \[n\], found shape \(6, 6\)"):
        load((x, np.eye(6), x, np.eye(6)))


def test_tokens_are_not_renumbered() -> None:
    data = load((X.reshape(6, 4), [30, 2, 4, 30, 2, 4], X[:1].reshape(1, 4), [0]), tokens=True)
    assert (data.tokens, data.num_classes, data.train_y.tolist()) == (True, 31, [30, 2, 4, 30, 2, 4])
    with pytest.raises(DataError, match="expected x and y that are tokens, whole numbers from 0 on"):
        load((X.reshape(6, 4) / 2, [1] * 6), tokens=True)


FRAME = pd.DataFrame({"age": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "sex": list("fmfmfm"), "label": Y, "site": OWNER})


def test_frames_of_other_libraries_are_read() -> None:
    columns = {name: FRAME[name].tolist() for name in FRAME}
    features = HuggingFace(columns, dict.fromkeys(columns, "Value"))
    for given in (FRAME, (FRAME, FRAME), {"train": FRAME, "test": FRAME[:2]}, features, {"train": features}):
        data = load(given, owner="site", test_fraction=1 / 3)
        assert data.train_x.shape[1] == 3  # age, sex=f, sex=m
        assert data.class_labels == ("cat", "dog")
        assert data.groups is not None
        owners = dict(zip(FRAME["age"], FRAME["site"], strict=True))
        assert data.groups.tolist() == [owners[x[0]] for x in data.train_x]
    by_age = load(FRAME.drop(columns="label"), target="age", owner="site", regression=True, test_fraction=1 / 3)
    assert (by_age.num_classes, by_age.train_x.shape) == (0, (4, 2))


def test_images_of_hugging_face_become_arrays() -> None:
    columns, kinds = {"image": X, "label": np.arange(6) % 2, "site": OWNER}, {"image": "Image", "label": "ClassLabel"}
    one = HuggingFace(columns, kinds | {"site": "Value"})
    data = load({"train": one, "validation": HuggingFace({"image": X[:1], "label": [1]}, kinds)}, owner="site")
    assert (data.train_x.dtype, data.train_x.shape, data.test_y.tolist()) == (np.uint8, (6, 2, 2), [1])
    assert data.groups.tolist() == OWNER
    both = load({"train": one, "test": one}, owner="site", scale=1 / 255)
    np.testing.assert_array_equal(both.test_x, X)
    with pytest.raises(DataError, match="expected one column of images or lists beside label, found image, site"):
        load(one)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ((X, Y, OWNER), {}, r"expected \(x, y\), \(x, y, x_test, y_test\) or these with owner, found 3 values"),
        ({"x": X, "labels": Y}, {}, "expected x, y, x_test, y_test, owner, owner_test, found 'labels'"),
        ({"x": X}, {}, "expected y, found x; add it"),
        ((X, Y, X, None), {}, "expected y_test, found x, y, x_test"),
        ((X[:5], Y), {}, "found 5 examples in x and 6 labels in y"),
        ((X, Y, X[:, :1], Y), {}, r"x_test: expected shape \(6, 2, 2\), as x has, found \(6, 1, 2\)"),
        ((X, Y, X, Y, OWNER[:5]), {}, r"owner: expected one for each of 6 examples, found shape \(5,\)"),
        ((X, Y, X, Y, [None, *OWNER[1:]]), {}, "owner: expected an array of numbers, found one of Python objects"),
        ((X, Y, X, Y, [0.5] + [float("nan")] * 5), {}, "owner: expected numbers or words, found float64"),
        ((X, Y, X, Y, ["a", float("nan")] * 3), {}, "owner: example 1: expected a word, as in other .*, found nan"),
        ((X, ["a", 1] * 3), {}, "y: example 1: expected a word, as in other examples, found 1"),
        ((np.array([[1.0], [np.nan]] * 3), Y), {}, "x: example 1: features must be finite"),
        (([[1], [2, 3]], Y[:2]), {}, r"x: expected an array, found list"),
        ((np.array([[1, None]] * 6), Y), {}, "x: expected an array of numbers, found one of Python objects"),
        ((np.array([["a"]] * 6), Y), {}, r"x: expected numbers \[n, ...\], an example a row, found <U1"),
        ((X[0, 0], Y[:2]), {}, r"x: expected numbers \[n, ...\], an example a row, found shape \(2,\)"),
        ((X, Y, X, Y), {"target": "label"}, "data.target and data.owner name columns of a table, found arrays"),
        ((X / 255, Y), {"scale": 1 / 255}, "x: expected integers, which data.scale gives a meaning, found floats"),
        ((X, np.linspace(0, 1, 6)), {}, "y: labels must be whole numbers"),
        (FRAME, {"scale": 0.5}, "data.scale is of arrays of integers, found a table"),
        (FRAME.drop(columns="label"), {}, "expected data.target, the column of labels, found none; it has age, sex"),
        ({"test": FRAME}, {}, "expected a part 'train', found test"),
        (7, {}, r"expected arrays \(x, y, x_test, y_test\) .* found int"),
        (None, {}, "found NoneType"),
    ],
)  # fmt: skip
def test_objects_that_are_not_data_are_refused(given: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        load(given, **options)
    assert str(refused.value).startswith("data: ")
    assert "\n" not in str(refused.value)
