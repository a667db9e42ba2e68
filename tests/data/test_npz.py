import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from simfl.data import load_dataset
from simfl.data.base import Dataset
from simfl.errors import DataError
from simfl.streams import Streams

X = np.arange(24, dtype=np.float64).reshape(6, 4)
Y = np.array([1, 2, 1, 2, 1, 2])


def load(
    folder: Path,
    test_path: Path | None = None,
    regression: bool = False,
    group: str | None = None,
    **arrays: np.ndarray,
) -> Dataset:
    np.savez(folder / "file.npz", **arrays)
    return load_dataset(
        "npz",
        root=None,
        streams=Streams(0),
        path=folder / "file.npz",
        test_path=test_path,
        test_fraction=0.5,
        regression=regression,
        group=group,
    )


def test_both_parts_of_an_archive_are_read(tmp_path: Path) -> None:
    data = load(tmp_path, x_train=X, y_train=Y, x_test=X[:2], y_test=Y[:2, None])
    np.testing.assert_array_equal(data.train_x, X)
    np.testing.assert_array_equal(data.train_y, Y - 1)
    np.testing.assert_array_equal(data.test_y, [0, 1])
    assert (data.name, data.num_classes, data.image_shape) == ("file", 2, None)


def test_one_part_is_split(tmp_path: Path) -> None:
    data = load(tmp_path, x=X, y=Y, unrelated=np.array(["text"]))
    assert (len(data.train_y), len(data.test_y)) == (3, 3)
    np.testing.assert_array_equal(np.sort(np.concatenate([data.train_x, data.test_x]), axis=0), X)


def test_a_second_archive_is_the_test_part(tmp_path: Path) -> None:
    np.savez(tmp_path / "test.npz", x=X[:1], y=Y[:1])
    assert len(load(tmp_path, x=X, y=Y, test_path=tmp_path / "test.npz").test_y) == 1


def test_gray_images_are_flattened_and_color_images_kept(tmp_path: Path) -> None:
    gray = load(tmp_path, x=np.zeros((6, 3, 5), np.uint8), y=Y)
    assert (gray.input_shape, gray.image_shape) == ((15,), (3, 5))
    color = load(tmp_path, x=np.zeros((6, 3, 5, 2), np.uint8), y=Y)
    assert (color.input_shape, color.image_shape) == ((3, 5, 2), (3, 5, 2))


def test_a_regression_keeps_its_targets(tmp_path: Path) -> None:
    data = load(tmp_path, x=X, y=Y / 4, regression=True)
    assert (data.num_classes, data.train_y.dtype) == (0, np.float32)
    with pytest.raises(DataError, match="features must be finite"):
        load(tmp_path, x=X, y=Y * np.array([np.inf, 1, 1, 1, 1, 1]), regression=True)


def test_a_bare_name_is_searched_in_the_folder_npz(tmp_path: Path, streams: Streams) -> None:
    (tmp_path / "npz").mkdir()
    np.savez(tmp_path / "npz" / "mine.npz", x=X, y=Y)
    for path in ("mine", "mine.npz", "npz/mine.npz"):
        assert load_dataset("npz", root=tmp_path, streams=streams, path=path, test_fraction=0.5).name == "mine"


@pytest.mark.parametrize(("arrays", "message"), [
    ({"x_train": X}, "missing key y_train; found x_train"),
    ({"y_train": Y}, "missing key x_train; found y_train"),
    ({"x_train": X, "y_train": Y, "x_test": X}, "missing key y_test; found x_train, y_train, x_test"),
    ({"images": X, "labels": Y}, "expected the keys x_train and y_train, or x and y; found images, labels"),
    ({}, "expected the keys .* found none"),
    ({"x": X, "y": Y[:5]}, "found 6 examples in x and 5 labels in y"),
    ({"x": X[:, 0], "y": Y}, r"x: expected shape \[n, features\] or images"),
    ({"x": X, "y": np.eye(6)}, r"y: expected one label per example, \[n\], found shape \(6, 6\)"),
    ({"x": X, "y": Y / 3}, "labels must be whole numbers"),
    ({"x": X * np.nan, "y": Y}, "x: example 0: features must be finite"),
    ({"x": X * 1e300, "y": Y}, "x: example 0: features must be finite"),
    ({"x": X.astype("c16"), "y": Y}, "x: expected numbers, found complex128"),
    ({"x": X.astype("U3"), "y": Y}, "x: expected numbers, found <U3"),
    ({"x": X[:0], "y": Y[:0]}, r"no examples with features \(shape \(0, 4\)\)"),
    ({"x_train": X, "y_train": Y, "x_test": X[:, :2], "y_test": Y}, r"test examples have shape \(2,\)"),
    ({"x": X.astype(object), "y": Y}, "not an .npz archive of numbers, or damaged"),
])  # fmt: skip
def test_bad_contents_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(tmp_path, **arrays)
    assert str(caught.value).startswith(str(tmp_path / "file.npz"))
    assert "\n" not in str(caught.value)


def good_archive() -> bytes:
    packed = io.BytesIO()
    np.savez_compressed(packed, x=X, y=Y)
    return packed.getvalue()


def npy_header(shape: str) -> bytes:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


def with_member(content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("x.npy", content)
        archive.writestr("y.npy", content)
    return packed.getvalue()


@pytest.mark.parametrize("content", [
    b"",
    b"text",
    good_archive()[:-30],
    good_archive()[:200].ljust(len(good_archive()), b"\0"),
    with_member(npy_header("(1000000000000000,)") + b"1234"),
    with_member(npy_header("(3,)") + b"1234"),
    with_member(npy_header("open(0)")),
    with_member(b"\x93NUMPY\x01\x00\x10\x00garbage"),
    with_member(b""),
])  # fmt: skip
def test_damaged_archives_are_refused(tmp_path: Path, streams: Streams, content: bytes) -> None:
    path = tmp_path / "file.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"file\.npz") as caught:
        load_dataset("npz", root=None, streams=streams, path=path)
    assert "\n" not in str(caught.value)


def test_a_single_array_and_missing_files_are_refused(tmp_path: Path, streams: Streams) -> None:
    with (tmp_path / "single.npz").open("wb") as file:
        np.save(file, X)
    with pytest.raises(DataError, match=r"expected an \.npz archive, found a single array"):
        load_dataset("npz", root=None, streams=streams, path=tmp_path / "single.npz")
    with pytest.raises(DataError, match=r"^data\.path: .*none.npz: no such file; put an .npz archive"):
        load_dataset("npz", root=tmp_path, streams=streams, path="none.npz")


def test_an_array_names_the_owner_of_each_example(tmp_path: Path) -> None:
    users = np.array([7, 7, 3, 3, 9, 9])
    data = load(tmp_path, x=X, y=Y, user=users, group="user")
    assert data.groups.tolist() == [users[np.flatnonzero((x == X).all(axis=1))[0]] for x in data.train_x]
    assert load(tmp_path, x_train=X, y_train=Y, x_test=X, y_test=Y, user=users, group="user").groups is not None
    for arrays, message in (({}, "missing key user, data.partition.column"), ({"user": users[:4]}, "each of 6")):
        with pytest.raises(DataError, match=message):
            load(tmp_path, x=X, y=Y, **arrays, group="user")


@pytest.mark.parametrize(("owners", "message"), [
    ([1, 2, np.nan, 1, 2, np.nan], "user: example 2: expected an owner, found nan; name it"),
    (np.array(["NaT"] * 6, "M8[s]"), r"user: expected numbers or words, found datetime64\[s\]; name each owner"),
])  # fmt: skip
def test_owners_without_a_name_are_refused(tmp_path: Path, owners: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(tmp_path, x=X, y=Y, user=np.asarray(owners), group="user")
