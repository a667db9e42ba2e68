"""What every data set becomes: arrays of training and test examples, and how labels and splits are made.

Nothing here reads a file. The formats are beside this module, one a file; all of them end in a `Dataset`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simfl.errors import DataError, ScenarioError

FloatArray = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32] | npt.NDArray[np.float32]

MEMORY_LIMIT_BYTES = 16 * 2**30
"""Largest dense array that a loader builds; a file that asks for more is refused before memory runs out."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test examples, read-only.

    Args:
        name: what the tables and figures call it.
        train_x: training features, f32 [n, *input_shape].
        train_y: class labels int32 [n] in 0..num_classes-1, or targets f32 [n] of a regression.
        test_x: test features, f32 [m, *input_shape].
        test_y: as `train_y`, [m].
        num_classes: number of labels; 0 for a regression and for the points of a quadratic.
        image_shape: height, width (and channels) where the examples are images, also when they are stored flat.
        optimum: the minimiser of the training loss, f32 [d] in the order of the model's flat parameters, where known.
        optimal_loss: the training loss there, l2 part included.
        curvature: the diagonal of H, f32 [d], of a quadratic problem.
    """

    name: str
    train_x: FloatArray
    train_y: Labels
    test_x: FloatArray
    test_y: Labels
    num_classes: int
    image_shape: tuple[int, ...] | None = None
    optimum: FloatArray | None = None
    optimal_loss: float | None = None
    curvature: FloatArray | None = None

    def __post_init__(self) -> None:
        """Check that the parts fit together and make the arrays read-only."""
        for part, x, y in (("train", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            if len(x) != len(y):
                raise ValueError(f"{self.name}: {part}: expected one label per example, found {len(x)} and {len(y)}")
        if self.train_x.shape[1:] != self.test_x.shape[1:]:
            raise ValueError(f"{self.name}: examples are {self.train_x.shape[1:]}, tests {self.test_x.shape[1:]}")
        for array in (self.train_x, self.train_y, self.test_x, self.test_y, self.optimum, self.curvature):
            if array is not None:
                array.setflags(write=False)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return self.train_x.shape[1:]


@dataclass(frozen=True)
class Loader:
    """A kind of data set.

    Args:
        kind: the word that names it in a scenario.
        summary: one line for a listing.
        load: (root, streams, **options) -> the set; root is the folder of data sets, or None.
        signature: names the options, by default `load` itself. What a set has to know of the model that is trained it
            takes as options of these names: `l2`, `intercept`, and `regression`, whether it fits targets.
        transforms: whether classes may be left out, and features reduced and normalized.
    """

    kind: str
    summary: str
    load: Callable[..., Dataset]
    signature: Callable[..., Any] | None = None
    transforms: bool = True

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options."""
        names = inspect.signature(self.signature or self.load).parameters
        return tuple(name for name in names if name not in ("root", "streams"))


def check_features(where: str | Path, x: npt.NDArray[Any]) -> None:
    """Refuse an empty set, or examples that hold NaN or infinity, naming the first bad one."""
    if x.size == 0:
        raise DataError(f"{where}: found no examples with features (shape {x.shape}); expected at least one")
    good = np.isfinite(x)
    if not good.all():
        row = int(np.argmin(good.reshape(len(x), -1).all(axis=1)))
        raise DataError(f"{where}: example {row}: features must be finite, found NaN or infinity; remove the example")


def class_labels(where: str | Path, *parts: npt.NDArray[Any]) -> tuple[list[npt.NDArray[np.int32]], int]:
    """Map the labels of a file to 0..c-1, in sorted order of all labels found in the parts together.

    {-1, 1}, {1, 2} and 1..10 are the usual spellings; the smallest becomes 0.

    Args:
        where: the file, for the message.
        parts: labels as read, one array per part (training, test).

    Returns:
        The parts as int32, and the number of classes c >= 2.
    """
    together = np.concatenate([np.asarray(part).ravel() for part in parts])
    bad = ~np.isfinite(together) | (together != np.round(together))
    if bad.any():
        found = together[int(np.argmax(bad))]
        raise DataError(
            f"{where}: labels must be whole numbers (classes), found {found:g}; targets of a regression need a "
            f"regression model such as `model.kind: linear`"
        )
    values = np.unique(together)
    if len(values) < 2:
        raise DataError(f"{where}: expected at least two classes, found the single label {values[0]:g}")
    if len(values) > max(2, len(together) // 2):
        raise DataError(f"{where}: found {len(values)} labels in {len(together)} examples; these are not classes")
    return [np.searchsorted(values, part).astype(np.int32) for part in parts], len(values)


def split(
    labels: Labels, test_fraction: float, generator: np.random.Generator, *, stratify: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Draw which examples become the test part.

    Args:
        labels: [n], the classes when stratifying.
        test_fraction: share of the examples to set aside, between 0 and 1.
        generator: draws the split.
        stratify: keep the share of each class; dropped where a class is too rare to be in both parts.

    Returns:
        Sorted indices of the training and of the test examples.
    """
    from sklearn.model_selection import train_test_split

    n = len(labels)
    if not 0.0 < test_fraction < 1.0:
        raise ScenarioError(f"data.test_fraction: expected a number between 0 and 1, found {test_fraction:g}")
    n_test = round(n * test_fraction)
    if not 0 < n_test < n:
        raise ScenarioError(
            f"data.test_fraction: {test_fraction:g} of {n} examples leaves {n - n_test} for training and {n_test} for "
            f"testing; both need at least one"
        )
    if stratify:
        counts = np.bincount(labels)
        rare = counts[counts > 0].min() < 2 or min(n_test, n - n_test) < np.count_nonzero(counts)
        stratify = not rare
    train, test = train_test_split(
        np.arange(n),
        test_size=n_test,
        random_state=int(generator.integers(2**31)),
        stratify=labels if stratify else None,
    )
    return np.sort(train), np.sort(test)
