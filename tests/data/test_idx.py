import bz2
import gzip
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from simfl.data import load_dataset
from simfl.data.idx import EMNIST, read_idx
from simfl.errors import DataError
from simfl.streams import Streams

from .conftest import NAMES, idx_bytes, small_mnist


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "mnist").mkdir()
    for name, array in small_mnist().items():
        (tmp_path / "mnist" / f"{name}.gz").write_bytes(gzip.compress(idx_bytes(array)))
    return tmp_path


@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress)])
def test_compressed_files_are_read(tmp_path: Path, suffix: str, pack) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    path = tmp_path / f"file{suffix}"
    path.write_bytes(pack(idx_bytes(array)))
    np.testing.assert_array_equal(read_idx(path), array)


def test_other_number_types_are_big_endian(tmp_path: Path) -> None:
    path = tmp_path / "floats"
    path.write_bytes(bytes([0, 0, 0x0D, 1, 0, 0, 0, 2]) + np.array([1.5, -2.0], ">f4").tobytes())
    np.testing.assert_array_equal(read_idx(path), [1.5, -2.0])


def test_mnist_is_flat_and_stays_bytes_that_mean_zero_to_one(root: Path, streams: Streams) -> None:
    data = load_dataset("mnist", root=root, streams=streams)
    raw = small_mnist()
    assert data.train_x.dtype == data.test_x.dtype == np.uint8
    assert data.train_x.shape == (30, 784)
    assert data.image_shape == (28, 28)
    floats = np.divide(raw[NAMES[0]].reshape(30, -1), np.float32(255), dtype=np.float32)
    np.testing.assert_array_equal(data.floats().train_x, floats)
    np.testing.assert_array_equal(data.prepared(raw[NAMES[0]]), floats)
    np.testing.assert_array_equal(data.prepared(floats.tolist()), floats)
    np.testing.assert_array_equal(data.test_y, raw[NAMES[3]])
    elsewhere = load_dataset("mnist", root=None, streams=streams, path=root / "mnist")
    np.testing.assert_array_equal(elsewhere.train_x, data.train_x)


def test_without_a_folder_of_sets_the_message_says_what_to_do(streams: Streams) -> None:
    with pytest.raises(DataError, match=r"set SIMFL_DATA to it and run `simfl data fetch mnist`$"):
        load_dataset("mnist", root=None, streams=streams)


def test_a_missing_file_says_how_to_fetch_it(root: Path, streams: Streams) -> None:
    (root / "mnist" / f"{NAMES[3]}.gz").unlink()
    with pytest.raises(DataError) as caught:
        load_dataset("mnist", root=root, streams=streams)
    folder = root / "mnist"
    assert str(caught.value) == (
        f"{folder / NAMES[3]}: no such file, nor with .gz; put the four MNIST files into {folder}, "
        f"or run `simfl data fetch mnist`"
    )


def damage(root: Path, name: str, content: bytes, *, pack: bool = True) -> None:
    (root / "mnist" / f"{name}.gz").write_bytes(gzip.compress(content) if pack else content)


@pytest.mark.parametrize(
    ("name", "content", "pack", "message"),
    [
        (NAMES[0], b"\x1f\x8b", False, "the .gz file is cut off"),
        (NAMES[0], b"plain text", False, "not a .gz file, or damaged"),
        (NAMES[0], gzip.compress(idx_bytes(np.zeros((30, 28, 28))), mtime=0)[:-20], False, "the .gz file is cut off"),
        (NAMES[0], b"", True, r"not an IDX file \(it begins with nothing\)"),
        (NAMES[0], b"<html>", True, r"not an IDX file \(it begins with 3c 68 74 6d\)"),
        (NAMES[0], idx_bytes(np.zeros((30, 28, 28)))[:10], True, "header is cut off after 10 of 16 bytes"),
        (NAMES[0], idx_bytes(np.zeros((30, 28, 28)))[:-1], True, "cut off: the header promises .* found 23535"),
        (NAMES[0], idx_bytes(np.zeros((30, 28, 28))) + b"x", True, "too long: the header promises"),
        (NAMES[0], bytes([0, 0, 8, 3]) + b"\xff" * 12, True, "cut off: the header promises"),
        (NAMES[0], idx_bytes(np.zeros(30)), True, r"expected images, uint8 \[n, height, width\], found uint8 \[30\]"),
        (NAMES[0], idx_bytes(np.zeros((29, 28, 28))), True, "train: found 29 images and 30 labels"),
        (NAMES[1], idx_bytes(np.zeros((30, 2))), True, r"expected labels, uint8 \[n\]"),
        (NAMES[1], idx_bytes(np.full(30, 11)), True, "expected labels 0 to 9, found 11"),
        (NAMES[2], idx_bytes(np.zeros((10, 14, 14))), True, r"images are \(28, 28\) for training, \(14, 14\)"),
    ],
    # Short names: the content itself would make them kilobytes long.
    ids=lambda value: f"{len(value)}-bytes" if isinstance(value, bytes) else None,
)
def test_bad_files_are_refused(
    root: Path, streams: Streams, name: str, content: bytes, pack: bool, message: str
) -> None:
    damage(root, name, content, pack=pack)
    with pytest.raises(DataError, match=message) as caught:
        load_dataset("mnist", root=root, streams=streams)
    assert "\n" not in str(caught.value)
    assert str(root / "mnist") in str(caught.value)


def test_the_real_mnist_is_read(real_root: Path, streams: Streams) -> None:
    start = time.process_time()
    data = load_dataset("mnist", root=real_root, streams=streams)
    assert time.process_time() - start < 8.0
    assert (data.train_x.shape, data.test_x.shape) == ((60000, 784), (10000, 784))
    assert data.floats().train_x.mean() == pytest.approx(0.1307, abs=1e-4)  # as published with countless models
    assert data.train_y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]


def test_fashion_mnist_is_in_a_folder_of_its_own(root: Path, streams: Streams) -> None:
    (root / "mnist").rename(root / "fashion_mnist")
    data = load_dataset("fashion_mnist", root=root, streams=streams)
    np.testing.assert_array_equal(data.train_x, small_mnist()[NAMES[0]].reshape(30, -1))
    assert (data.name, data.num_classes, data.image_shape) == ("fashion_mnist", 10, (28, 28))
    with pytest.raises(DataError, match=r"put the four fashion_mnist files into .*`simfl data fetch fashion_mnist`$"):
        load_dataset("fashion_mnist", root=root / "empty", streams=streams)


def test_emnist_is_turned_and_its_letters_begin_at_one(tmp_path: Path, streams: Streams) -> None:
    arrays = dict(zip(NAMES, small_mnist().values(), strict=True))
    (tmp_path / "emnist").mkdir()
    with zipfile.ZipFile(tmp_path / "emnist" / "gzip.zip", "w") as archive:
        for name, array in arrays.items():
            part, kind = name.split("-", 1)
            content = idx_bytes(array if "images" in kind else array + 1)
            archive.writestr(f"gzip/emnist-letters-{part.replace('t10k', 'test')}-{kind}.gz", gzip.compress(content))
    data = load_dataset("emnist", root=tmp_path, streams=streams, split="letters")
    np.testing.assert_array_equal(data.train_x.reshape(-1, 28, 28), arrays[NAMES[0]].transpose(0, 2, 1))
    np.testing.assert_array_equal(data.test_y, arrays[NAMES[3]])
    assert (data.num_classes, "".join(map(str, data.class_labels[:3]))) == (26, "abc")
    assert [len(classes) for classes in EMNIST.values()] == [47, 47, 62, 26, 10, 10]
    with pytest.raises(DataError, match=r"gzip\.zip: emnist-digits-train-images.* cannot be read .*fetch emnist`$"):
        load_dataset("emnist", root=tmp_path, streams=streams, split="digits")
    with pytest.raises(DataError, match=r"put gzip\.zip into .*, or run `simfl data fetch emnist`$"):
        load_dataset("emnist", root=tmp_path / "empty", streams=streams)
