"""IDX, the format of MNIST: a magic number, the sizes big-endian, then the values.

Fashion-MNIST (Xiao, Rasul and Vollgraf 2017, https://arxiv.org/abs/1708.07747) and EMNIST (Cohen, Afshar, Tapson and
van Schaik 2017, https://arxiv.org/abs/1702.05373) have it too.

LeCun, Cortes, Burges, The MNIST database; the format is described at http://yann.lecun.com/exdb/mnist/.
"""

from __future__ import annotations

import gzip
import io
import math
import string
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simfl.data.base import MEMORY_LIMIT_BYTES, Dataset, Loader, Scaling
from simfl.data.files import BROKEN_STREAM, first_file, folder_of, read_content
from simfl.errors import DataError
from simfl.streams import Streams

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
"""Third byte of the magic number -> NumPy type."""

MNIST_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

EMNIST = {
    "balanced": string.digits + string.ascii_uppercase + "abdefghnqrt",
    "bymerge": string.digits + string.ascii_uppercase + "abdefghnqrt",
    "byclass": string.digits + string.ascii_uppercase + string.ascii_lowercase,
    "letters": string.ascii_lowercase,
    "digits": string.digits,
    "mnist": string.digits,
}
"""The splits of EMNIST, each with its classes in order."""

_REPLACE = "fetch it again with `simfl data fetch mnist`"


def read_idx(path: Path, replace: str = _REPLACE) -> npt.NDArray[Any]:
    """Read one IDX file, plain, .gz or .bz2."""
    return parse_idx(path, read_content(path, replace), replace)


def parse_idx(path: Path, content: bytes, replace: str = _REPLACE) -> npt.NDArray[Any]:
    """Return the array of an IDX file's content; `path` names it in messages."""
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in TYPES or content[3] == 0:
        raise DataError(f"{path}: not an IDX file (it begins with {content[:4].hex(' ') or 'nothing'}); {replace}")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise DataError(f"{path}: the IDX header is cut off after {len(content)} of {start} bytes; {replace}")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", count=content[3], offset=4))
    kind = np.dtype(TYPES[content[2]])
    expected = start + math.prod(shape) * kind.itemsize
    if len(content) != expected:
        state = "cut off" if len(content) < expected else "too long"
        raise DataError(
            f"{path}: {state}: the header promises shape {shape}, {expected} bytes in all, found {len(content)}; "
            f"{replace}"
        )
    return np.frombuffer(content, kind, offset=start).reshape(shape)


def load_mnist(root: Path | None, streams: Streams, *, path: str | Path | None = None) -> Dataset:
    """Load MNIST, or a set in the same four files.

    The files are in `root/mnist`, or in the folder `path`. Examples are bytes [n, 784] that mean 0 to 1, stored flat
    with `image_shape` (28, 28).
    """
    return _loaded("mnist", MNIST_FILES, string.digits, path, root)


def load_fashion_mnist(root: Path | None, streams: Streams, *, path: str | Path | None = None) -> Dataset:
    """Load Fashion-MNIST, in the files of MNIST, from `root/fashion_mnist` or `path`."""
    return _loaded("fashion_mnist", MNIST_FILES, string.digits, path, root)


def load_emnist(
    root: Path | None, streams: Streams, *, path: str | Path | None = None, split: str = "balanced"
) -> Dataset:
    """Load a split of EMNIST from its gzip.zip, or the files in it.

    They are in `root/emnist`, or in the folder `path`. Images are stored transposed there, and are turned.
    """
    parts = [f"emnist-{split}-{part}" for part in ("train", "test")]
    names = [f"{part}-{kind}" for part in parts for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    return _loaded("emnist", names, EMNIST[split], path, root, first=int(split == "letters"))


def _loaded(
    kind: str, names: Sequence[str], classes: str, path: str | Path | None, root: Path | None, first: int = 0
) -> Dataset:
    """Return the set in four files: training images and labels, and those for tests.

    `first` is the number of the first class in the files.
    """
    replace, folder = f"fetch it again with `simfl data fetch {kind}`", folder_of(kind, path, root)
    last, arrays, files = first + len(classes) - 1, [], []
    for name in names:
        file, array = _read_member(folder, kind, name, replace)
        holds_images = "images" in name
        if array.dtype != np.uint8 or array.ndim != (3 if holds_images else 1) or array.size == 0:
            expected = "images, uint8 [n, height, width]" if holds_images else "labels, uint8 [n]"
            raise DataError(f"{file}: expected {expected}, found {array.dtype} {list(array.shape)}; {replace}")
        if not holds_images and not first <= array.min() <= array.max() <= last:
            worst = array.max() if array.max() > last else array.min()
            raise DataError(f"{file}: expected labels {first} to {last}, found {worst}; {replace}")
        arrays.append(array)
        files.append(file)
    train_x, train_y, test_x, test_y = arrays
    for images, labels, name in ((train_x, train_y, names[0]), (test_x, test_y, names[2])):
        if len(images) != len(labels):
            part = name.partition("-images")[0]
            raise DataError(f"{folder}: {part}: found {len(images)} images and {len(labels)} labels; {replace}")
    if train_x.shape[1:] != test_x.shape[1:]:
        raise DataError(f"{folder}: images are {train_x.shape[1:]} for training, {test_x.shape[1:]} for testing")
    if kind == "emnist":
        train_x, test_x = train_x.transpose(0, 2, 1), test_x.transpose(0, 2, 1)
    return Dataset(
        kind,
        train_x.reshape(len(train_x), -1),
        train_y.astype(np.int32) - first,
        test_x.reshape(len(test_x), -1),
        test_y.astype(np.int32) - first,
        num_classes=len(classes),
        image_shape=train_x.shape[1:],
        labels=None if classes == string.digits else tuple(classes),
        scaling=Scaling(np.float32(255)),
        files=() if path is None else tuple(dict.fromkeys(files)),
    )


def _read_member(folder: Path, kind: str, name: str, replace: str) -> tuple[Path, npt.NDArray[Any]]:
    """Return a file and its array; EMNIST's may be in the archive gzip.zip."""
    file, archive = first_file([folder / name]), folder / "gzip.zip"
    if file is not None:
        return file, read_idx(file, replace)
    if kind != "emnist" or not archive.is_file():
        held = "gzip.zip" if kind == "emnist" else f"the four {'MNIST' if kind == 'mnist' else kind} files"
        raise DataError(
            f"{folder / name}: no such file, nor with .gz; put {held} into {folder}, or run `simfl data fetch {kind}`"
        )
    try:
        with zipfile.ZipFile(archive) as members, members.open(f"gzip/{name}.gz") as packed:
            content = gzip.GzipFile(fileobj=io.BytesIO(packed.read())).read(MEMORY_LIMIT_BYTES)
    except (KeyError, zipfile.BadZipFile, *BROKEN_STREAM) as error:
        raise DataError(f"{archive}: {name}: cannot be read ({error}); {replace}") from None
    return archive, parse_idx(archive, content, replace)


LOADERS = (
    Loader("mnist", "handwritten digits, 28x28, 60,000 + 10,000 of 10 classes; four IDX files in mnist/", load_mnist),
    Loader(
        "fashion_mnist",
        "clothes, 28x28, 60,000 + 10,000 of 10 classes; four IDX files in fashion_mnist/",
        load_fashion_mnist,
    ),
    Loader(
        "emnist", "handwritten characters, 28x28, of 10 to 62 classes; gzip.zip or its files in emnist/", load_emnist
    ),
)
