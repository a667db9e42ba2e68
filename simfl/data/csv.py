"""CSV files: a line of names, then an example a line; one column is the label, all others are features.

Values are taken as they are, only converted to float32. Labels may be words, which become classes in their sorted
order. A further column may say whose each training example is, which is then no feature
(`data.partition: {kind: by_column, column: hospital}`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simfl.data.base import (
    MEMORY_LIMIT_BYTES,
    Dataset,
    FloatArray,
    Labels,
    Loader,
    check_features,
    class_labels,
    split,
)
from simfl.data.files import candidates, first_file
from simfl.errors import DataError, ScenarioError, nearest
from simfl.streams import Streams

if TYPE_CHECKING:
    import pandas as pd


def load_csv(
    root: Path | None,
    streams: Streams,
    *,
    path: str | Path | None = None,
    test_path: str | Path | None = None,
    label: str = "label",
    drop: tuple[str, ...] = (),
    test_fraction: float = 0.2,
    regression: bool = False,
    group: str | None = None,
) -> Dataset:
    """Load a CSV file.

    Args:
        root: the folder of data sets.
        streams: draws the split where there is no test file.
        path: the file, or a bare name in `root/csv`.
        test_path: a file of the same columns with the test part.
        label: the column of labels, or of targets of a regression.
        drop: columns that are neither.
        test_fraction: share to set aside where there is no test file.
        regression: keep the labels as float targets instead of mapping them to classes.
        group: the column that says whose each training example is.
    """
    if path is None:
        raise ScenarioError("data.path: expected the name of a CSV file, found none")
    file, table = _read(path, root, "data.path")
    groups = None if group is None else _column(file, table, group, "data.partition.column").to_numpy()
    drop = drop if group is None else (*drop, group)
    x, y, names = _examples(file, table, label, drop)
    ys: list[Labels]
    labels: tuple[float | str, ...] = ()
    parts = [y]
    if test_path is not None:
        test_file, test_table = _read(test_path, root, "data.test_path")
        test_x, test_y, _ = _examples(test_file, test_table, label, drop, names)
        parts.append(test_y)
    if regression:
        ys = [_targets(file, label, part) for part in parts]
    else:
        classes, labels = class_labels(f"{file}: {label}", *parts)
        ys = list(classes)
    if test_path is not None:
        data = Dataset(file.stem, x, ys[0], test_x, ys[1], len(labels))
    else:
        chosen, rest = split(ys[0], test_fraction, streams.generator("split"), stratify=not regression)
        groups = None if groups is None else groups[chosen]
        data = Dataset(file.stem, x[chosen], ys[0][chosen], x[rest], ys[0][rest], len(labels))
    return replace(data, labels=labels or None, groups=groups)


def read_examples(
    path: str | Path, root: Path | None, label: str = "label", drop: tuple[str, ...] = ()
) -> tuple[Path, FloatArray, npt.NDArray[Any]]:
    """Return the file, the features and the labels as they stand there; columns to drop need not be there."""
    file, table = _read(path, root, "data")
    x, y, _ = _examples(file, table, label, tuple(name for name in drop if name in table.columns))
    return file, x, y


def _read(path: str | Path, root: Path | None, key: str) -> tuple[Path, pd.DataFrame]:
    """Read a file as a table."""
    import pandas as pd

    places = candidates(path, root, "csv")
    file = first_file(places) or first_file([place.with_name(place.name + ".csv") for place in places])
    if file is None:
        raise DataError(f"{key}: {places[0]}: no such file; put a CSV file with a line of names there")
    try:
        if file.stat().st_size > MEMORY_LIMIT_BYTES:
            raise ValueError(f"larger than {MEMORY_LIMIT_BYTES >> 30} GiB")
        table = pd.read_csv(file, compression=None, encoding="utf-8-sig")
    except (OSError, ValueError, MemoryError, OverflowError) as error:  # ParserError is a ValueError
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{file}: not a CSV file in UTF-8, or damaged ({reason}); write it again") from None
    if table.empty:
        raise DataError(f"{file}: found no examples; expected a line of names and a line for each example")
    return file, table


def _column(file: Path, table: pd.DataFrame, name: str, key: str) -> pd.Series[Any]:
    """Return a column without gaps."""
    if name not in table.columns:
        names = [str(column) for column in table.columns]
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise DataError(f"{file}: expected a column {name!r}, which {key} names, found {shown}{nearest(name, names)}")
    column = table[name]
    if column.isna().any():
        row = int(column.isna().to_numpy().argmax())
        raise DataError(f"{file}: {name}: example {row}: found no value; fill it in or remove the example")
    return column


def _examples(
    file: Path, table: pd.DataFrame, label: str, drop: tuple[str, ...], names: list[str] | None = None
) -> tuple[FloatArray, npt.NDArray[Any], list[str]]:
    """Return features f32 [n, p], labels [n], and the names of the features, which have to be `names` if given."""
    y = _column(file, table, label, "data.label").to_numpy()
    for name in drop:
        if names is None:
            _column(file, table, name, "data.drop")
    features = table.drop(columns=[label, *drop], errors="ignore")
    found = [str(column) for column in features.columns]
    if names is not None and found != names:
        raise DataError(f"{file}: expected the features {', '.join(names)} in this order, found {', '.join(found)}")
    for name, kind in zip(found, features.dtypes, strict=True):
        if kind.kind not in "biuf":
            raise DataError(
                f"{file}: {name}: expected a column of numbers, found words; encode it, or add it to data.drop"
            )
    with np.errstate(over="ignore"):  # beyond float32 becomes infinite, which is refused next
        x = features.to_numpy(dtype=np.float32)
    check_features(file, x)
    return np.ascontiguousarray(x), y.astype(str) if y.dtype.kind not in "biuf" else y, found


def _targets(file: Path, label: str, y: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    if y.dtype.kind not in "biuf":
        raise DataError(f"{file}: {label}: expected numbers, the targets of a regression, found words")
    check_features(f"{file}: {label}", y)
    return y.astype(np.float32)


LOADER = Loader("csv", "any CSV file with a line of names, named by path; one column is the label", load_csv)
