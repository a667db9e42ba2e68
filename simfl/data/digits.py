"""The 8x8 handwritten digits that come with scikit-learn: the default set, which needs no file.

1,797 examples of 10 classes; https://archive.ics.uci.edu/dataset/80 (its test part).
"""

from __future__ import annotations

import numpy as np

from simfl.data.base import Dataset, split


def load_digits(test_fraction: float, generator: np.random.Generator) -> Dataset:
    """Load the digits, grey values 0..16 scaled to [0, 1], split with each class's share kept.

    Args:
        test_fraction: share of the examples to set aside for testing.
        generator: draws the split.
    """
    from sklearn.datasets import load_digits as embedded

    x, y = embedded(return_X_y=True)
    x = (x / 16.0).astype(np.float32)
    y = y.astype(np.int32)
    train, test = split(y, test_fraction, generator, stratify=True)
    return Dataset("digits", x[train], y[train], x[test], y[test], num_classes=10, image_shape=(8, 8))
