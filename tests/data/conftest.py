"""Small files in each format, written by the tests, and the folder of real ones."""

import os
from pathlib import Path

import numpy as np
import pytest

from simfl.streams import Streams

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@pytest.fixture
def real_root() -> Path:
    """The folder that SIMFL_DATA names."""
    folder = os.environ.get("SIMFL_DATA")
    if not folder:
        pytest.skip("SIMFL_DATA names no folder of data sets")
    return Path(folder)


@pytest.fixture
def streams() -> Streams:
    return Streams(7)


def idx_bytes(array: np.ndarray) -> bytes:
    """An unsigned-byte IDX file, written by the book and not with the reader's own table."""
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.astype(np.uint8).tobytes()


def small_mnist() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        NAMES[0]: generator.integers(0, 256, (30, 28, 28), dtype=np.uint8),
        NAMES[1]: (np.arange(30) % 10).astype(np.uint8),
        NAMES[2]: generator.integers(0, 256, (10, 28, 28), dtype=np.uint8),
        NAMES[3]: np.arange(10, dtype=np.uint8),
    }
