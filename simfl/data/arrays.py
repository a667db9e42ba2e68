"""Data sets from Python objects.

- Arrays: `(x, y, x_test, y_test)`, optionally with the owners of the training examples as a fifth and of the test
  examples as a sixth, or `(x, y)`, of which a share is set aside; or a mapping, a dataclass or a named tuple with these
  names.
- A table: a pandas frame (or Polars, or Arrow: anything with `to_pandas`), or one for training and one for testing.
- A Hugging Face `Dataset`, or a `DatasetDict` with `train` and optionally `test`: columns of numbers and words are a
  table, columns of images or lists are arrays.

x is [n, ...]: floats, or integers, which are stored as such (`scale` maps them to floats, such as 1/255 for pixels). y
is [n], class labels (numbers or words) or float targets; for a user's own model also [n, ...], as its losses take it.
None of these libraries is imported here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from simfl.data.base import Dataset, assembled, check_features, narrowed, scaling_by
from simfl.data.table import TARGETS, from_frame
from simfl.data.tokens import sequences
from simfl.errors import DataError, nearest
from simfl.streams import Streams

NAMES = ("x", "y", "x_test", "y_test", "owner", "owner_test")
TESTS = ("test", "validation")
"""Names of the test part, best first."""
_EXPECTED = (
    "arrays (x, y, x_test, y_test) with perhaps owner, a mapping with these names, a frame or a Hugging Face set"
)


def from_object(
    given: Any,
    where: str,
    name: str,
    streams: Streams,
    *,
    regression: bool | None,
    test_fraction: float = 0.2,
    scale: float | None = None,
    target: str | None = None,
    owner: str | None = None,
    tokens: bool = False,
) -> Dataset:
    """Return the data set that an object describes, see the module.

    `where` names the object in messages. Without a test part, `streams` draw `test_fraction` of the examples.
    `regression` says whether labels are targets (None: floats are), `scale` is the factor of integer features (None:
    1), `target` and `owner` are columns of a table; with `tokens`, y is the next token rather than a class label.
    DataError if it is none of these, or if its parts do not fit together.
    """
    parts = _parts(given, where)
    if parts is None:
        train, test = _split(given, where)
        if _columns(train) is None:
            raise DataError(f"{where}: expected {_EXPECTED}, found {_show(given)}")
        if not _has_arrays(train):
            if scale is not None:
                raise DataError(
                    f"{where}: data.scale is of arrays of integers, found a table; leave it out, or use normalize"
                )
            frame, test = (table.to_pandas() if hasattr(table, "to_pandas") else table for table in (train, test))
            named = None if test is None else (f"{where}: test", test)
            shared: dict[str, Any] = {"test_fraction": test_fraction, "regression": regression, "group": owner}
            return from_frame(name, where, frame, named, streams, target=target, **shared)
        parts = _arrays_of(train, where, target, owner)
        if test is not None:
            test_parts = _arrays_of(test, where, target, owner if owner in (_columns(test) or ()) else None)
            parts |= {f"{key}_test": value for key, value in test_parts.items()}
    elif target is not None or owner is not None:
        raise DataError(f"{where}: data.target and data.owner name columns of a table, found arrays; leave them out")
    return _from_arrays(parts, where, name, streams, regression, test_fraction, scale, tokens)


def _parts(given: Any, where: str) -> dict[str, Any] | None:
    """Return the arrays by `NAMES`; None if the object is not a collection of arrays."""
    parts: dict[str, Any]
    if isinstance(given, Mapping) and not _tables(given):
        parts = {str(key): value for key, value in given.items()}
        parts |= {short: parts.pop(long) for short, long in (("x", "x_train"), ("y", "y_train")) if long in parts}
    elif dataclasses.is_dataclass(given) and not isinstance(given, type):
        parts = {field.name: getattr(given, field.name) for field in dataclasses.fields(given)}
    elif isinstance(given, tuple) and hasattr(given, "_fields"):
        parts = dict(zip(given._fields, given, strict=True))
    elif isinstance(given, tuple | list) and not any(_columns(part) is not None for part in given):
        if len(given) not in (2, 4, 5, 6):
            raise DataError(
                f"{where}: expected (x, y), (x, y, x_test, y_test) or these with owner, found {len(given)} values"
            )
        parts = dict(zip(NAMES, given, strict=False))
    else:
        return None
    for key in parts:
        if key not in NAMES:
            raise DataError(f"{where}: expected {', '.join(NAMES)}, found {key!r}{nearest(key, NAMES)}")
    parts = {key: value for key, value in parts.items() if value is not None}
    for key in ("x", "y", *(("x_test", "y_test") if "x_test" in parts or "y_test" in parts else ())):
        if key not in parts:
            raise DataError(f"{where}: expected {key}, found {', '.join(parts) or 'nothing'}; add it")
    return parts


def _from_arrays(
    parts: Mapping[str, Any],
    where: str,
    name: str,
    streams: Streams,
    regression: bool | None,
    test_fraction: float,
    scale: float | None,
    tokens: bool,
) -> Dataset:
    x, y = _examples(parts, where, "x", "y")
    test = _examples(parts, where, "x_test", "y_test") if "x_test" in parts else None
    if test is not None:
        for key, one, other in (("x", x, test[0]), ("y", y, test[1])):
            if one.shape[1:] != other.shape[1:]:
                raise DataError(
                    f"{where}: {key}_test: expected shape {other.shape[:1] + one.shape[1:]}, as {key} has, found "
                    f"{other.shape}"
                )
    if regression is not None and y.ndim > 1:
        raise DataError(f"{where}: y: expected one label per example, [n], found shape {y.shape}")
    owners = {}
    for key, field, part in (("owner", "groups", x), ("owner_test", "test_groups", () if test is None else test[0])):
        if key not in parts:
            continue
        owners[field] = groups = _array(parts[key], where, key)
        if groups.shape != (len(part),):
            raise DataError(
                f"{where}: {key}: expected one for each of {len(part)} examples, found shape {groups.shape}"
            )
        if groups.dtype.kind not in "biuUS":
            raise DataError(f"{where}: {key}: expected numbers or words, found {groups.dtype}; name each owner")
    if tokens:
        together = [x, y] if test is None else [x, y, *test]
        if any(part.dtype.kind not in "iu" or part.min() < 0 for part in together):
            raise DataError(f"{where}: expected x and y that are tokens, whole numbers from 0 on, found others")
        count = 1 + max(int(part.max()) for part in together)
        train = (x, y.astype(np.int32))
        rest = None if test is None else (test[0].astype(x.dtype), test[1].astype(np.int32))
        return sequences(name, train, rest, streams, num_classes=count, test_fraction=test_fraction, **owners)
    return assembled(
        name,
        f"{where}: y",
        x,
        y,
        test,
        streams,
        regression=regression,
        test_fraction=test_fraction,
        **owners,
        image_shape=x.shape[1:] if x.ndim in (3, 4) else None,
        scaling=scaling_by(f"{where}: x", x, scale),
    )


def _examples(parts: Mapping[str, Any], where: str, x_key: str, y_key: str) -> tuple[Any, npt.NDArray[Any]]:
    x, y = (_array(parts[key], where, key) for key in (x_key, y_key))
    if x.ndim < 2 or x.dtype.kind not in "biuf":
        shown = f"shape {x.shape}" if x.dtype.kind in "biuf" else f"{x.dtype}"
        raise DataError(f"{where}: {x_key}: expected numbers [n, ...], an example a row, found {shown}")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim < 1 or y.dtype.kind not in "biufUS":
        raise DataError(f"{where}: {y_key}: expected labels [n], numbers or words, found {_show(parts[y_key])}")
    if len(x) != len(y):
        raise DataError(f"{where}: found {len(x)} examples in {x_key} and {len(y)} labels in {y_key}")
    x = narrowed(x)
    check_features(f"{where}: {x_key}", x)
    return x, y


def _array(value: Any, where: str, key: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value)
    except Exception as error:  # whatever the library of the value raises
        reason = " ".join(str(error).split())[:120]
        raise DataError(f"{where}: {key}: expected an array, found {_show(value)} ({reason})") from None
    if array.dtype == object:
        if not array.size or not all(isinstance(one, str) for one in array.ravel()):
            raise DataError(
                f"{where}: {key}: expected an array of numbers, found one of Python objects (examples of different "
                "shapes, or values that are missing); bring them to one shape"
            )
        array = array.astype(str)
    if array.dtype.kind == "U" and isinstance(value, list | tuple):  # NumPy makes the word 'nan' of NaN among words
        for row, one in enumerate(value):
            if isinstance(one, int | float | np.number):
                raise DataError(f"{where}: {key}: example {row}: expected a word, as in other examples, found {one!r}")
    return array


def _columns(given: Any) -> list[str] | None:
    """Return a frame's, table's or Hugging Face set's column names; None for others."""
    for name in ("column_names", "columns"):
        columns = getattr(given, name, None)
        if columns is not None and not isinstance(columns, Mapping) and not callable(columns):
            return [str(column) for column in columns]
    return None


def _tables(given: Any) -> bool:
    return isinstance(given, Mapping) and any(_columns(value) is not None for value in given.values())


def _split(given: Any, where: str) -> tuple[Any, Any]:
    if isinstance(given, tuple | list):
        if len(given) != 2:
            raise DataError(f"{where}: expected a table, or one for training and one for tests, found {len(given)}")
        return given[0], given[1]
    if not _tables(given):
        return given, None
    if "train" not in given:
        raise DataError(f"{where}: expected a part 'train', found {', '.join(map(str, given))}")
    return given["train"], next((given[name] for name in TESTS if name in given), None)


def _has_arrays(table: Any) -> bool:
    if hasattr(table, "has_arrays"):  # columns of files, which answer for themselves
        return bool(table.has_arrays)
    features = getattr(table, "features", None)
    kinds = {type(feature).__name__ for feature in features.values()} if isinstance(features, Mapping) else set()
    return not kinds <= {"Value", "ClassLabel"}


def _arrays_of(table: Any, where: str, target: str | None, owner: str | None) -> dict[str, Any]:
    columns = _columns(table) or []
    labels = [name for name in ((target,) if target is not None else TARGETS) if name in columns]
    if len(labels) != 1:
        raise DataError(f"{where}: expected data.target, the column of labels, found none; it has {', '.join(columns)}")
    if owner is not None and owner not in columns:
        raise DataError(f"{where}: expected a column {owner!r}, which data.owner names, found {', '.join(columns)}")
    features = [name for name in columns if name not in (labels[0], owner)]
    if len(features) != 1:
        advice = "name it in data.features" if hasattr(table, "array") else "remove the others (remove_columns)"
        raise DataError(
            f"{where}: expected one column of images or lists beside {labels[0]}, found "
            f"{', '.join(features) or 'none'}; {advice}"
        )
    named = {"x": features[0], "y": labels[0], **({} if owner is None else {"owner": owner})}
    if hasattr(table, "array"):
        return {key: table.array(column) for key, column in named.items()}
    arrays = table.with_format("numpy")
    return {key: arrays[:][column] for key, column in named.items()}


def _show(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__}" + ("" if shape is None else f" of shape {tuple(shape)}")
