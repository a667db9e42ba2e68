"""The data set: arrays of training and test examples, labels and splits.

Nothing here reads a file. The formats are beside this module, one a file; all of them end in a `Dataset`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from simfl.errors import DataError, ScenarioError
from simfl.streams import Streams

FloatArray = npt.NDArray[np.float32]
Stored = npt.NDArray[Any]
"""Features as they are kept: float32, or integers of at most 32 bits, which mean what a `Scaling` says."""
Labels = npt.NDArray[np.int32] | npt.NDArray[np.float32]
Step = Callable[[FloatArray], FloatArray]
"""What is done to the features of each part of a set alike, [n, ...] to [n, ...]."""

MEMORY_LIMIT_BYTES = 16 * 2**30
"""Largest dense array that a loader builds; a file that asks for more is refused before memory runs out."""


class Scaling(NamedTuple):
    """The scaling of stored integers: (u / divisor - mean) / deviation in float32.

    It divides, since u * (1/255) is not u / 255: half of the 256 values differ in the last bit. The arithmetic is the
    same for NumPy arrays on the host and for JAX's on the device, but that these need a `divide` of their own.

    Args:
        divisor: f32[], such as 255 of the pixels of an image.
        mean: f32 of a shape that examples can be broadcast with, such as [channels].
        deviation: as `mean`.
    """

    divisor: Any = None
    mean: Any = None
    deviation: Any = None

    def __call__(self, stored: Any, divide: Callable[[Any, Any], Any] = np.divide) -> Any:
        """Return the models' inputs, f32 of the same shape; floats stay as they are."""
        if stored.dtype.kind == "f":
            return stored
        x = stored.astype(np.float32)
        x = x if self.divisor is None else divide(x, self.divisor)
        x = x if self.mean is None else x - self.mean
        return x if self.deviation is None else divide(x, self.deviation)

    @property
    def arrays(self) -> list[npt.NDArray[Any]]:
        """The divisor, mean and deviation."""
        return [np.atleast_1d(part) for part in self if part is not None]


AS_IS = Scaling()
"""Integers are numbers like others."""


def scaling_by(where: str | Path, x: Stored, scale: float | None) -> Scaling:
    """Return the scaling by a factor such as 1/255, which divides by 255; None for 1."""
    if scale is not None and x.dtype.kind == "f":
        raise DataError(
            f"{where}: expected integers, which data.scale gives a meaning, found floats; leave scale out, or keep the "
            "features as uint8"
        )
    return AS_IS if scale is None else Scaling(np.float32(1.0 / scale))


class Reader(Protocol):
    """Makes features of columns or texts; see `simfl.data.table` and `.tokens`."""

    def reads(self, x: Any) -> bool:
        """Whether it makes features of such examples."""

    def examples(self, where: str | Path, x: Any, /) -> npt.NDArray[Any]:
        """Return the features of examples, [n, ...]; `where` is how messages call them."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test examples, read-only.

    Args:
        name: what the tables and figures call it.
        train_x: training features, f32 or integers [n, *input_shape].
        train_y: class labels int32 [n] in 0..num_classes-1, or targets f32 [n] of a regression.
        test_x: test features, [m, *input_shape], of the same type.
        test_y: as `train_y`, [m].
        num_classes: number of labels; 0 for a regression and for the points of a quadratic.
        image_shape: height, width (and channels) where the examples are images, also when they are stored flat.
        optimum: the minimiser of the training loss, f32 [d] in the order of the model's flat parameters, where known.
        optimal_loss: the training loss there, l2 part included.
        curvature: the diagonal of H, f32 [d], of a quadratic problem.
        labels: what the classes are called where the set comes from, by their numbers; None: as they are numbered.
        groups: whose example each training example is, [n] of any values, where a column of the file was to say so.
        reader: how features are made of the columns of a table, or of texts, where they were.
        files: what it was read from, where these are a user's own.
        tokens: whether features are tokens, 0..num_classes-1, which models of sequences take.
        loaded_shape: shape of an example before the steps; None where there were none.
        steps: what was done to the features since they were loaded, in this order.
        scaling: what integers among the features mean.
    """

    name: str
    train_x: Stored
    train_y: Labels
    test_x: Stored
    test_y: Labels
    num_classes: int
    image_shape: tuple[int, ...] | None = None
    optimum: FloatArray | None = None
    optimal_loss: float | None = None
    curvature: FloatArray | None = None
    labels: tuple[float | str, ...] | None = None
    groups: npt.NDArray[Any] | None = None
    reader: Reader | None = None
    files: tuple[Path, ...] = ()
    tokens: bool = False
    loaded_shape: tuple[int, ...] | None = None
    steps: tuple[Step, ...] = ()
    scaling: Scaling = AS_IS

    def __post_init__(self) -> None:
        """Check that the parts fit together and make the arrays read-only."""
        for part, x, y in (("train", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            if len(x) != len(y):
                raise ValueError(f"{self.name}: {part}: expected one label per example, found {len(x)} and {len(y)}")
        if self.groups is not None and len(self.groups) != len(self.train_x):
            raise ValueError(f"{self.name}: found {len(self.train_x)} examples and {len(self.groups)} groups")
        if self.train_x.shape[1:] != self.test_x.shape[1:]:
            raise ValueError(f"{self.name}: examples are {self.train_x.shape[1:]}, tests {self.test_x.shape[1:]}")
        if self.train_x.dtype != self.test_x.dtype:
            raise ValueError(f"{self.name}: examples are {self.train_x.dtype}, tests {self.test_x.dtype}")
        for array in (self.train_x, self.train_y, self.test_x, self.test_y, self.optimum, self.curvature):
            if array is not None:
                array.setflags(write=False)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return self.train_x.shape[1:]

    @property
    def class_labels(self) -> tuple[float | str, ...]:
        """The names of the classes, by number; empty for a regression."""
        return tuple(range(self.num_classes)) if self.labels is None else self.labels

    def floats(self) -> Dataset:
        """Return the set with features as models are given them, f32."""
        return replace(self, train_x=self.scaling(self.train_x), test_x=self.scaling(self.test_x))

    def through(self, step: Step, **changes: Any) -> Dataset:
        """Return the set after a step, of floats, and after changes of further fields."""
        return replace(
            self,
            train_x=step(self.scaling(self.train_x)),
            test_x=step(self.scaling(self.test_x)),
            loaded_shape=self.loaded_shape or self.input_shape,
            steps=(*self.steps, step),
            **changes,
        )

    def training_part(self, chosen: npt.NDArray[Any]) -> Dataset:
        """Return the set with some training examples, given as a mask or positions."""
        groups = None if self.groups is None else self.groups[chosen]
        return replace(self, train_x=self.train_x[chosen], train_y=self.train_y[chosen], groups=groups)

    def prepared(self, x: npt.ArrayLike, where: str = "x") -> FloatArray:
        """Return other examples after the same steps, as the model is given them.

        Args:
            x: [n, ...], integers as the file of this set has them, such as bytes of pixels, or floats as models are
                given them, such as pixels from 0 to 1. An example may also be flat. Of a table also a frame with its
                columns, of texts also texts.
            where: how messages call them.

        Raises:
            DataError: they are of another shape, or not finite.
        """
        shape = self.loaded_shape or self.input_shape
        if self.reader is not None and self.reader.reads(x):
            x = self.reader.examples(where, x)
        try:
            features = np.asarray(x)
            features = features if features.dtype.kind in "iu" else features.astype(np.float32)
        except (TypeError, ValueError) as error:
            raise DataError(f"{where}: expected examples as numbers, found something else ({error})") from None
        if features.ndim < 1 or features.size != len(features) * math.prod(shape):
            raise DataError(
                f"{where}: expected examples of shape {shape}, as in {self.name}, found {features.shape[1:]}"
            )
        check_features(where, features)
        features = features.reshape(len(features), *shape)
        if self.tokens:
            return self._as_tokens(where, features)
        features = self.scaling(features)
        for step in self.steps:
            features = step(features)
        return features

    def _as_tokens(self, where: str, x: npt.NDArray[Any]) -> Stored:
        """Return tokens in the type that the set has; others than it has are refused."""
        if (x != np.round(x)).any() or x.min() < 0 or x.max() >= self.num_classes:
            raise DataError(f"{where}: expected tokens, whole numbers from 0 to {self.num_classes - 1}, found others")
        return x.astype(self.train_x.dtype)


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
    """Reject an empty set, and examples with NaN or infinity."""
    if x.size == 0:
        raise DataError(f"{where}: found no examples with features (shape {x.shape}); expected at least one")
    if x.dtype.kind != "f":
        return
    good = np.isfinite(x)
    if not good.all():
        row = int(np.argmin(good.reshape(len(x), -1).all(axis=1)))
        raise DataError(f"{where}: example {row}: features must be finite, found NaN or infinity; remove the example")


def class_labels(
    where: str | Path, *parts: npt.NDArray[Any]
) -> tuple[list[npt.NDArray[np.int32]], tuple[float | str, ...]]:
    """Map the labels of a file's parts to 0..c-1, in sorted order.

    {-1, 1}, {1, 2} and 1..10 are the usual spellings; the smallest becomes 0. Labels may also be words.

    Args:
        where: the file, for the message.
        parts: labels as read, one array per part (training, test).

    Returns:
        The parts as int32, and the c >= 2 labels as they were found, in their order.
    """
    together = np.concatenate([np.asarray(part).ravel() for part in parts])
    words = together.dtype.kind in "OUS"
    bad = np.zeros(0, bool) if words else ~np.isfinite(together) | (together != np.round(together))
    if bad.any():
        label = together[int(np.argmax(bad))]
        raise DataError(
            f"{where}: labels must be whole numbers (classes), found {label:g}; targets of a regression need a "
            f"regression model such as `model.kind: linear`"
        )
    values = np.unique(together)
    if len(values) < 2:
        raise DataError(f"{where}: expected at least two classes, found the single label {show_label(values[0])}")
    if len(values) > max(2, len(together) // 2):
        raise DataError(f"{where}: found {len(values)} labels in {len(together)} examples; these are not classes")
    return [np.searchsorted(values, part).astype(np.int32) for part in parts], tuple(values.tolist())


def show_label(label: float | str) -> str:
    """Return a label as a message shows it."""
    return repr(str(label)) if isinstance(label, str) else f"{label:g}"


def narrowed(x: npt.NDArray[Any]) -> Stored:
    """Return features as stored: float32, or integers of at most 32 bits, unchanged.

    Wider integers that hold numbers of 32 bits become int32, others float32, as all else does: see `Stored`.
    """
    if x.dtype.kind == "b":
        return x.astype(np.uint8)
    if x.dtype.kind in "iu":
        if x.dtype.itemsize < 4 or x.dtype == np.int32:
            return x.astype(x.dtype.newbyteorder("="), copy=False)
        limits = np.iinfo(np.int32)
        if x.size and limits.min <= x.min() and x.max() <= limits.max:
            return x.astype(np.int32)
    with np.errstate(over="ignore"):  # beyond float32 becomes infinite, which `check_features` refuses
        return x.astype(np.float32)


def assembled(
    name: str,
    where: str | Path,
    x: Stored,
    y: npt.NDArray[Any],
    test: tuple[Stored, npt.NDArray[Any]] | None,
    streams: Streams,
    *,
    regression: bool | None,
    test_fraction: float,
    groups: npt.NDArray[Any] | None = None,
    **fields: Any,
) -> Dataset:
    """Return a set of features and of labels as they were found.

    Args:
        name: of the set.
        where: what the labels are, for messages.
        x: [n, ...], checked.
        y: labels [n], numbers or words.
        test: the test part, likewise; None: a share of the examples is set aside.
        streams: draws it ("split").
        regression: whether labels are targets rather than classes; None: floats are, and whatever has several axes, and
            whole numbers from 0 on are classes as they stand.
        test_fraction: that share.
        groups: whose example each one is, [n].
        fields: further ones of `Dataset`.
    """
    labels_of = [y] if test is None else [y, test[1]]
    stay = regression is None and all(part.dtype.kind in "biu" and part.size and part.min() >= 0 for part in labels_of)
    if regression is None:
        regression = any(part.dtype.kind == "f" or part.ndim > 1 for part in labels_of)
    parts: list[Labels]
    names: tuple[float | str, ...] = ()
    if regression:
        parts = [targets(where, part) for part in labels_of]
    elif stay:
        parts = [part.astype(np.int32) for part in labels_of]
        names = tuple(range(1 + max(int(part.max()) for part in labels_of)))
    else:
        classes, names = class_labels(where, *labels_of)
        parts = list(classes)
    fields = {"num_classes": len(names), "labels": names or None, **fields}
    if test is not None:
        if x.dtype != test[0].dtype:
            kind = np.float32 if "f" in (x.dtype.kind, test[0].dtype.kind) else np.int32
            x, test = x.astype(kind), (test[0].astype(kind), test[1])
        return Dataset(name, x, parts[0], test[0], parts[1], groups=groups, **fields)
    chosen, rest = split(parts[0], test_fraction, streams.generator("split"), stratify=not regression)
    groups = None if groups is None else groups[chosen]
    return Dataset(name, x[chosen], parts[0][chosen], x[rest], parts[0][rest], groups=groups, **fields)


def targets(where: str | Path, y: npt.NDArray[Any]) -> Labels:
    """Return regression targets, checked: f32, or int32 for whole sequences."""
    if y.dtype.kind not in "biuf":
        raise DataError(f"{where}: expected numbers, the targets of a regression, found words")
    check_features(where, y)
    return y.astype(np.int32) if y.ndim > 1 and y.dtype.kind in "iu" else y.astype(np.float32)


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
    random = np.random.RandomState(int(generator.integers(2**31)))
    if not stratify:
        order = random.permutation(n)
        return np.sort(order[n_test:]), np.sort(order[:n_test])
    classes = [np.flatnonzero(labels == label) for label in np.flatnonzero(counts)]
    sizes = np.array([len(members) for members in classes])
    in_train = _in_proportion(sizes, n - n_test, random)
    in_test = _in_proportion(sizes - in_train, n_test, random)
    orders = [members[random.permutation(len(members))] for members in classes]
    train = [order[:begin] for order, begin in zip(orders, in_train, strict=True)]
    test = [order[begin : begin + more] for order, begin, more in zip(orders, in_train, in_test, strict=True)]
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))


def _in_proportion(sizes: npt.NDArray[np.int64], draws: int, random: np.random.RandomState) -> npt.NDArray[np.int64]:
    """Return the draws of each class, in proportion to sizes; ties are random.

    With the permutations above this is scikit-learn's `train_test_split`, number by number, without the two seconds
    that importing it takes.
    """
    exact = sizes / sizes.sum() * draws
    draws_of: npt.NDArray[np.int64] = np.floor(exact).astype(np.int64)
    rest = exact - draws_of
    missing = int(draws - draws_of.sum())
    for value in np.unique(rest)[::-1]:
        if missing == 0:
            break
        tied = np.flatnonzero(rest == value)
        chosen = random.choice(tied, size=min(len(tied), missing), replace=False)
        draws_of[chosen] += 1
        missing -= len(chosen)
    return draws_of
