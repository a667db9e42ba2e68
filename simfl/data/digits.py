"""The 8x8 handwritten digits of scikit-learn: the default set, without files.

1,797 examples of 10 classes; https://archive.ics.uci.edu/dataset/80 (its test part).
"""

from __future__ import annotations

import functools
import gzip
import importlib.util
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simfl.data.base import Dataset, Loader, split
from simfl.streams import Streams


def load_digits(root: Path | None, streams: Streams, *, test_fraction: float = 0.2) -> Dataset:
    """Load the digits, gray values 0..16 scaled to [0, 1], with a stratified split."""
    x, y = _digits()
    train, test = split(y, test_fraction, streams.generator("split"), stratify=True)
    return Dataset("digits", x[train], y[train], x[test], y[test], num_classes=10, image_shape=(8, 8))


@functools.cache
def _digits() -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return examples, f32 [1797, 64], and labels; cached, since parsing is slow."""
    spec = importlib.util.find_spec("sklearn")  # without importing it, which takes two seconds
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("digits come with scikit-learn", name="sklearn")
    with gzip.open(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", "rt") as lines:
        values = np.loadtxt(lines, delimiter=",", dtype=np.int32)
    return (values[:, :-1] / 16.0).astype(np.float32), values[:, -1].copy()


LOADER = Loader(
    "digits", "handwritten digits, 8x8, 1,797 of 10 classes; comes with scikit-learn, needs no file", load_digits
)
