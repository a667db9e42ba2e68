"""IDX, the format of MNIST: a magic number, the sizes big-endian, then the values.

LeCun, Cortes, Burges, The MNIST database; the format is described at http://yann.lecun.com/exdb/mnist/.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simfl.data.base import Dataset, Loader, Scaling
from simfl.data.files import first_file, folder_of, read_content
from simfl.errors import DataError
from simfl.streams import Streams

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
"""Third byte of the magic number -> NumPy type."""

MNIST_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

_REPLACE = "fetch it again with `simfl data fetch mnist`"


def read_idx(path: Path) -> npt.NDArray[Any]:
    """Read one IDX file, plain, .gz or .bz2."""
    content = read_content(path, _REPLACE)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in TYPES or content[3] == 0:
        raise DataError(f"{path}: not an IDX file (it begins with {content[:4].hex(' ') or 'nothing'}); {_REPLACE}")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise DataError(f"{path}: the IDX header is cut off after {len(content)} of {start} bytes; {_REPLACE}")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", count=content[3], offset=4))
    kind = np.dtype(TYPES[content[2]])
    expected = start + math.prod(shape) * kind.itemsize
    if len(content) != expected:
        state = "cut off" if len(content) < expected else "too long"
        raise DataError(
            f"{path}: {state}: the header promises shape {shape}, {expected} bytes in all, found {len(content)}; "
            f"{_REPLACE}"
        )
    return np.frombuffer(content, kind, offset=start).reshape(shape)


def load_mnist(root: Path | None, streams: Streams, *, path: str | Path | None = None) -> Dataset:
    """Load MNIST, or a set in the same four files such as Fashion-MNIST.

    The files are in `root/mnist`, or in the folder `path`. Examples are bytes [n, 784] that mean 0 to 1, stored flat
    with `image_shape` (28, 28).
    """
    folder = folder_of("mnist", path, root)
    arrays, files = [], []
    for name in MNIST_FILES:
        file = first_file([folder / name])
        if file is None:
            raise DataError(
                f"{folder / name}: no such file, nor with .gz; put the four MNIST files into {folder}, "
                f"or run `simfl data fetch mnist`"
            )
        array = read_idx(file)
        holds_images = "images" in name
        if array.dtype != np.uint8 or array.ndim != (3 if holds_images else 1) or array.size == 0:
            expected = "images, uint8 [n, height, width]" if holds_images else "labels, uint8 [n]"
            raise DataError(f"{file}: expected {expected}, found {array.dtype} {list(array.shape)}; {_REPLACE}")
        if not holds_images and array.max() > 9:
            raise DataError(f"{file}: expected labels 0 to 9, found {array.max()}; {_REPLACE}")
        arrays.append(array)
        files.append(file)
    train_x, train_y, test_x, test_y = arrays
    for images, labels, part in ((train_x, train_y, "train"), (test_x, test_y, "t10k")):
        if len(images) != len(labels):
            raise DataError(f"{folder}: {part}: found {len(images)} images and {len(labels)} labels; {_REPLACE}")
    if train_x.shape[1:] != test_x.shape[1:]:
        raise DataError(f"{folder}: images are {train_x.shape[1:]} for training, {test_x.shape[1:]} for testing")
    return Dataset(
        "mnist",
        train_x.reshape(len(train_x), -1),
        train_y.astype(np.int32),
        test_x.reshape(len(test_x), -1),
        test_y.astype(np.int32),
        num_classes=10,
        image_shape=train_x.shape[1:],
        scaling=Scaling(np.float32(255)),
        files=() if path is None else tuple(files),
    )


LOADER = Loader(
    "mnist", "handwritten digits, 28x28, 60,000 + 10,000 of 10 classes; four IDX files in mnist/", load_mnist
)
