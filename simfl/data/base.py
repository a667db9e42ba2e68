"""The arrays of a data set, its labels and its split into training and test part."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from simfl.data.known import Indices, Known, Minimum, SomeOf
from simfl.errors import DataError, ScenarioError
from simfl.streams import Streams

FloatArray = npt.NDArray[np.float32]
Stored = npt.NDArray[Any]
"""Features as stored: float32, or integers of at most 32 bits, which a `Scaling` maps to float32."""
Labels = npt.NDArray[np.int32] | npt.NDArray[np.float32]
Aside = float | Literal["own"] | None
"""What loading sets aside for validation: a share of the training part, the set's own part, or nothing."""
Step = Callable[[FloatArray], FloatArray]
"""A change of features, [n, ...] to [n, ...], applied alike to both parts of a set."""

MEMORY_LIMIT_BYTES = 16 * 2**30
"""Largest dense array that a loader builds; a file that needs more is refused before memory runs out."""


class Scaling(NamedTuple):
    """Map stored integers u to (u / divisor - mean) / deviation in float32.

    A part that is None is skipped.

    It divides, since u * (1/255) is not u / 255: half of the 256 values differ in the last bit. `divisor` is f32[];
    `mean` and `deviation` are f32 of a shape that broadcasts with examples, such as [channels]. NumPy on the host and
    JAX on the device compute the same bits, but JAX needs a `divide` of its own.
    """

    divisor: Any = None
    mean: Any = None
    deviation: Any = None

    def __call__(self, stored: Any, divide: Callable[[Any, Any], Any] = np.divide) -> Any:
        """Return the input of models, f32 of the same shape; floats are unchanged."""
        if stored.dtype.kind == "f":
            return stored
        x = stored.astype(np.float32)
        x = x if self.divisor is None else divide(x, self.divisor)
        x = x if self.mean is None else x - self.mean
        return x if self.deviation is None else divide(x, self.deviation)

    @property
    def arrays(self) -> list[npt.NDArray[Any]]:
        """The parts that are set, each with at least one axis."""
        return [np.atleast_1d(part) for part in self if part is not None]


AS_IS = Scaling()
"""Integers are converted to float32 and nothing else."""


def scaling_by(where: str | Path, x: Stored, scale: float | None) -> Scaling:
    """Return the scaling by a factor such as 1/255 (divides by 255); None: none."""
    if scale is not None and x.dtype.kind == "f":
        raise DataError(
            f"{where}: expected integers, which data.scale gives a meaning, found floats; leave scale out, or keep the "
            "features as uint8"
        )
    return AS_IS if scale is None else Scaling(np.float32(1.0 / scale))


class Reader(Protocol):
    """Make features from tables (`simfl.data.table`) or texts (`simfl.data.tokens`)."""

    def reads(self, x: Any) -> bool:
        """Return whether it can read such examples."""

    def examples(self, where: str | Path, x: Any, /) -> npt.NDArray[Any]:
        """Return the features of examples, [n, ...]; `where` names them in messages."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test examples, read-only.

    Args:
        name: label in tables and figures.
        train_x: f32 or integers [n, *input_shape]; `test_x` is [m, *input_shape] of the same type.
        train_y: class labels int32 [n] in 0..num_classes-1, or regression targets f32 [n]; `test_y` likewise, [m].
        num_classes: 0 for a regression and for the points of a quadratic.
        image_shape: height, width (and channels) of images, also when they are stored flat.
        optimum: minimizer w* of the training loss f, f64 [d], as flat parameters of the model, if known; `optimal_loss`
            is f(w*) with l2, `curvature` the diagonal of H, f32 [d], of a quadratic problem.
        suboptimality: returns f(w) - f(w*) in float64 for parameters w, f64 [d], if the optimum is known.
        known: gradients and curvatures of such a problem, of all training examples.
        minimum_of: returns the minimum of the mean loss of some training examples of such a problem.
        labels: original names of the classes in order; None: their numbers.
        groups: owner of each training example, [n] of any values, if known; `test_groups` of each test example, [m].
        validation: x and y of the examples that decide in place of the test set; None without them.
        own_validation: how many of the last test examples are still to become `validation`, the set's own.
        reader: makes features from tables or texts, if the set was read from one.
        files: the user's own files that it was read from.
        tokens: whether features are tokens, 0..num_classes-1, for models of sequences.
        loaded_shape: shape of an example before `steps`, the changes of the features; None without steps.
        scaling: meaning of stored integers.
    """

    name: str
    train_x: Stored
    train_y: Labels
    test_x: Stored
    test_y: Labels
    num_classes: int
    image_shape: tuple[int, ...] | None = None
    optimum: npt.NDArray[np.float64] | None = None
    optimal_loss: float | None = None
    suboptimality: Callable[[npt.NDArray[np.float64]], float] | None = None
    known: Known | None = None
    minimum_of: Callable[[Indices], Minimum] | None = None
    curvature: FloatArray | None = None
    labels: tuple[float | str, ...] | None = None
    groups: npt.NDArray[Any] | None = None
    test_groups: npt.NDArray[Any] | None = None
    validation: tuple[Stored, Labels] | None = None
    own_validation: int = 0
    reader: Reader | None = None
    files: tuple[Path, ...] = ()
    tokens: bool = False
    loaded_shape: tuple[int, ...] | None = None
    steps: tuple[Step, ...] = ()
    scaling: Scaling = AS_IS

    def __post_init__(self) -> None:
        for part, x, y in (("train", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            if len(x) != len(y):
                raise ValueError(f"{self.name}: {part}: expected one label per example, found {len(x)} and {len(y)}")
        for owners, x in ((self.groups, self.train_x), (self.test_groups, self.test_x)):
            if owners is not None and len(owners) != len(x):
                raise ValueError(f"{self.name}: found {len(x)} examples and {len(owners)} groups")
        if self.train_x.shape[1:] != self.test_x.shape[1:]:
            raise ValueError(f"{self.name}: examples are {self.train_x.shape[1:]}, tests {self.test_x.shape[1:]}")
        if self.train_x.dtype != self.test_x.dtype:
            raise ValueError(f"{self.name}: examples are {self.train_x.dtype}, tests {self.test_x.dtype}")
        for array in (*self.arrays, self.optimum, self.curvature):
            if array is not None:
                array.setflags(write=False)

    @property
    def arrays(self) -> tuple[Stored, ...]:
        """Features and labels of training, test and, if there is one, validation."""
        return self.train_x, self.train_y, self.test_x, self.test_y, *(self.validation or ())

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return self.train_x.shape[1:]

    @property
    def class_labels(self) -> tuple[float | str, ...]:
        """Names of the classes in the order of their numbers; empty for a regression."""
        return tuple(range(self.num_classes)) if self.labels is None else self.labels

    def floats(self) -> Dataset:
        """Return the set with features as models get them, f32."""
        return self.mapped(lambda x: self.scaling(x))

    def mapped(self, change: Callable[[Any], Any], **changes: Any) -> Dataset:
        """Return the set with a change of the features of all parts."""
        validation = None if self.validation is None else (change(self.validation[0]), self.validation[1])
        x, test_x = change(self.train_x), change(self.test_x)
        return replace(self, train_x=x, test_x=test_x, validation=validation, **changes)

    def through(self, step: Step, **changes: Any) -> Dataset:
        """Return the set after a step on its float features, with further fields changed."""
        shape = self.loaded_shape or self.input_shape
        return self.mapped(lambda x: step(self.scaling(x)), loaded_shape=shape, steps=(*self.steps, step), **changes)

    def training_part(self, examples: npt.NDArray[Any]) -> Dataset:
        """Return the set with some of its training examples, by mask or indices."""
        groups = None if self.groups is None else self.groups[examples]
        return replace(self, train_x=self.train_x[examples], train_y=self.train_y[examples], groups=groups)

    def set_aside(self, share: float, streams: Streams) -> Dataset:
        """Return the set with some training examples as its validation part.

        `streams` draw them ("validation"), of every owner the same share up to one example, and never its last one. Of
        sequences they are the last ones, because neighboring windows of a text overlap.
        """
        n = len(self.train_x)
        owners = np.zeros(n, np.int64)
        if self.groups is not None:
            owners = np.unique(self.groups, return_inverse=True)[1].reshape(-1)
        return self.without(drawn_of(share, owners, self.keys(streams)))

    def keys(self, streams: Streams) -> npt.NDArray[Any]:
        """Return a number for each training example [n]; the least are set aside."""
        n = len(self.train_x)
        return np.arange(n)[::-1] if self.tokens else streams.generator("validation").random(n)

    def without(self, drawn: npt.NDArray[np.bool_]) -> Dataset:
        """Return the set with some training examples, a mask [n], as validation part."""
        kept = np.flatnonzero(~drawn)
        part = replace(self.training_part(kept), validation=(self.train_x[drawn], self.train_y[drawn]))
        if self.minimum_of is None or self.known is None:
            return part
        of_all = self.minimum_of
        part = replace(part, known=SomeOf(self.known, kept), minimum_of=lambda examples: of_all(kept[examples]))
        return part.measured_on(np.arange(len(kept)))

    def with_own_validation(self) -> Dataset:
        """Return the set with its own validation part, which ends its test part."""
        at = len(self.test_x) - self.own_validation
        if not 0 < at < len(self.test_x):
            raise ScenarioError(
                "data.validation: own: expected a test and a validation part, as archives (x_validation, y_validation) "
                f"and sets of Hugging Face (validation_split) may have, found {at:,} and {self.own_validation:,} "
                f"examples in {self.name}; use a share, such as 0.1"
            )
        owners = None if self.test_groups is None else self.test_groups[:at]
        part = replace(self, test_x=self.test_x[:at], test_y=self.test_y[:at], test_groups=owners, own_validation=0)
        return replace(part, validation=(self.test_x[at:], self.test_y[at:]))

    def measured_on(self, examples: npt.NDArray[np.integer]) -> Dataset:
        """Return the set with the optimum of some training examples, if known."""
        if self.minimum_of is None:
            return self
        least = self.minimum_of(examples)
        return replace(self, optimum=least.optimum, optimal_loss=least.loss, suboptimality=least.suboptimality)

    def prepared(self, x: npt.ArrayLike, where: str = "x") -> FloatArray:
        """Return other examples as the model gets them, after the steps of this set.

        `x` [n, ...] are integers as in the file of this set, such as bytes of pixels, or floats as models get them,
        such as pixels from 0 to 1; an example may be flat. A set from a table also takes a frame with its columns, a
        set from texts also texts. `where` names the examples in messages. DataError for wrong shapes or non-finite x.
        """
        shape = self.loaded_shape or self.input_shape
        if self.reader is not None and self.reader.reads(x):
            x = self.reader.examples(where, x)
        try:
            examples = np.asarray(x)
            examples = examples if examples.dtype.kind in "iu" else examples.astype(np.float32)
        except (TypeError, ValueError) as error:
            raise DataError(f"{where}: expected examples as numbers, found something else ({error})") from None
        actual = examples.shape[1:]
        if examples.ndim < 1 or examples.size != len(examples) * math.prod(shape):
            raise DataError(f"{where}: expected examples of shape {shape}, as in {self.name}, found {actual}")
        check_features(where, examples)
        examples = examples.reshape(len(examples), *shape)
        if self.tokens:
            last = self.num_classes - 1
            if (examples != np.round(examples)).any() or examples.min() < 0 or examples.max() > last:
                raise DataError(f"{where}: expected tokens, whole numbers from 0 to {last}, found others")
            return examples.astype(self.train_x.dtype)
        examples = self.scaling(examples)
        for step in self.steps:
            examples = step(examples)
        return examples


@dataclass(frozen=True)
class Loader:
    """A kind of data set: its name in a scenario, a summary for listings, a loader.

    `load` is (root, streams, **options) -> the set; root is the folder of data sets or None, streams draw the split
    without a test part. Loaders of files share the options `path` and `test_path` (a file, or a bare name in the kind's
    folder of root), `test_fraction` (the share to set aside), `regression` (whether labels are targets) and `group`
    (column or key of the owner of each training example). `signature`, by default `load`, names the options; `l2`,
    `intercept` and `regression` are set from the model. `transforms` says whether `simfl.data.transforms` applies.
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


def drawn_of(share: float, owners: npt.NDArray[np.int64], keys: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which examples are set aside, bool [n]: those with the least keys.

    Every owner, a number from 0 on, gives the same share up to one example, and never its last one. ScenarioError if
    that is no example.
    """
    n, sizes = len(owners), np.bincount(owners)
    ends = np.cumsum(sizes)
    counts = np.minimum(np.diff(np.floor(share * np.concatenate([[0], ends]) + 0.5)), sizes - 1).astype(np.int64)
    if not counts.sum():
        of = f" of {len(sizes)} owners" if len(sizes) > 1 else ""
        raise ScenarioError(
            f"data.validation: expected a share of at least one example, found {share:g} of {n} training "
            f"examples{of}; raise it"
        )
    drawn = np.zeros(n, bool)
    drawn[np.lexsort((keys, owners))] = np.arange(n) - np.repeat(ends - sizes, sizes) < np.repeat(counts, sizes)
    return drawn


def check_features(where: str | Path, x: npt.NDArray[Any]) -> None:
    """Refuse an empty set, and name the first example with NaN or infinity."""
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
    """Map the labels of a file to int32 0..c-1, in sorted order over all parts.

    {-1, 1}, {1, 2} and 1..10 are the usual spellings; the smallest becomes 0. Labels may also be words. The c >= 2
    original labels are returned too.
    """
    together = np.concatenate([np.asarray(part).ravel() for part in parts])
    words = together.dtype.kind in "OUS"
    bad = np.zeros(0, bool) if words else ~np.isfinite(together) | (together != np.round(together))
    if bad.any():
        raise DataError(
            f"{where}: labels must be whole numbers (classes), found {together[int(np.argmax(bad))]:g}; targets of a "
            "regression need a regression model such as `model.kind: linear`"
        )
    values = np.unique(together)
    if len(values) < 2:
        raise DataError(f"{where}: expected at least two classes, found the single label {show_label(values[0])}")
    if len(values) > max(2, len(together) // 2):
        raise DataError(f"{where}: found {len(values)} labels in {len(together)} examples; these are not classes")
    return [np.searchsorted(values, part).astype(np.int32) for part in parts], tuple(values.tolist())


def show_label(label: float | str) -> str:
    """Return a label as messages show it."""
    return repr(str(label)) if isinstance(label, str) else f"{label:g}"


def narrowed(x: npt.NDArray[Any]) -> Stored:
    """Return features as stored, without loss where 32 bits suffice.

    Small integers keep their type, wider ones that fit become int32, everything else float32.
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
    test_groups: npt.NDArray[Any] | None = None,
    **fields: Any,
) -> Dataset:
    """Return a set of checked features x [n, ...] and raw labels y [n].

    `where` names the labels in messages. Without a test part, `streams` draw ("split") `test_fraction` of the examples.
    `regression` says whether labels are targets rather than classes; None decides by their type: floats and labels of
    several axes are targets, whole numbers >= 0 are classes with these numbers. `groups` [n] are the examples' owners,
    `test_groups` those of a given test part, `fields` further ones of `Dataset`.
    """
    raw = [y] if test is None else [y, test[1]]
    stay = regression is None and all(part.dtype.kind in "biu" and part.size and part.min() >= 0 for part in raw)
    if regression is None:
        regression = any(part.dtype.kind == "f" or part.ndim > 1 for part in raw)
    parts: list[Labels]
    names: tuple[float | str, ...] = ()
    if regression:
        parts = [targets(where, part) for part in raw]
    elif stay:
        parts = [part.astype(np.int32) for part in raw]
        names = tuple(range(1 + max(int(part.max()) for part in raw)))
    else:
        classes, names = class_labels(where, *raw)
        parts = list(classes)
    fields = {"num_classes": len(names), "labels": names or None, **fields}
    if test is not None:
        if x.dtype != test[0].dtype:
            kind = np.float32 if "f" in (x.dtype.kind, test[0].dtype.kind) else np.int32
            x, test = x.astype(kind), (test[0].astype(kind), test[1])
        return Dataset(name, x, parts[0], test[0], parts[1], groups=groups, test_groups=test_groups, **fields)
    train, rest = split(parts[0], test_fraction, streams.generator("split"), stratify=not regression)
    fields |= {} if groups is None else {"groups": groups[train], "test_groups": groups[rest]}
    return Dataset(name, x[train], parts[0][train], x[rest], parts[0][rest], **fields)


def targets(where: str | Path, y: npt.NDArray[Any]) -> Labels:
    """Return checked regression targets: int32 if whole with several axes, else f32."""
    if y.dtype.kind not in "biuf":
        raise DataError(f"{where}: expected numbers, the targets of a regression, found words")
    check_features(where, y)
    return y.astype(np.int32) if y.ndim > 1 and y.dtype.kind in "iu" else y.astype(np.float32)


def split(
    labels: Labels, test_fraction: float, generator: np.random.Generator, *, stratify: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Draw which examples become the test part; return sorted indices of both parts.

    `test_fraction` is between 0 and 1. `stratify` keeps the share of each class of `labels` [n]; it has no effect if a
    class is too rare to be in both parts.
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
    """Return the number of draws from each class, in proportion to its size.

    With the permutations above this equals scikit-learn's `train_test_split` bit for bit, without its slow import.
    """
    exact = sizes / sizes.sum() * draws
    counts: npt.NDArray[np.int64] = np.floor(exact).astype(np.int64)
    rest = exact - counts
    missing = int(draws - counts.sum())
    for value in np.unique(rest)[::-1]:
        if missing == 0:
            break
        tied = np.flatnonzero(rest == value)
        drawn = random.choice(tied, size=min(len(tied), missing), replace=False)
        counts[drawn] += 1
        missing -= len(drawn)
    return counts
