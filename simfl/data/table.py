"""Tables: CSV and Parquet files, and frames, with a target column.

Columns of numbers become float32. A column of words becomes a 0/1 feature for each of its values in the training file,
sorted (one-hot); a value found only in other files is 0 in all of them. Labels may be words, which become classes in
sorted order. Another column, which is not a feature then, may name the owner of each training example: `data.owner`, or
`data.partition: {kind: by_column, column: hospital}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simfl.data.base import MEMORY_LIMIT_BYTES, Dataset, FloatArray, Loader, assembled, check_features
from simfl.data.files import candidates, first_file, is_endless
from simfl.errors import DataError, nearest
from simfl.streams import Streams

if TYPE_CHECKING:
    import pandas as pd

MOST_WORDS = 1000
"""Most distinct words of a column: more are likely names rather than categories."""
TARGETS = ("label", "target")
"""Names of the column of labels if the scenario gives none."""


@dataclass(frozen=True)
class Columns:
    """The features of a table: for each column in order its words, None for numbers."""

    words: Mapping[str, tuple[str, ...] | None]

    @classmethod
    def of(cls, where: str | Path, table: pd.DataFrame) -> Columns:
        """Return a table's columns without labels; `where` names it in messages."""
        columns: dict[str, tuple[str, ...] | None] = {}
        for name, column in ((str(label), column) for label, column in table.items()):
            words = None if _numeric(column) else tuple(sorted(set(_words(where, name, column))))
            if words is not None and len(words) > MOST_WORDS:
                raise DataError(
                    f"{where}: {name}: expected at most {MOST_WORDS} different words, found {len(words)}; these are no "
                    "categories: add it to data.drop"
                )
            columns[name] = words
        return cls(columns)

    @property
    def features(self) -> list[str]:
        """Names of the features, in order."""
        return [
            feature
            for name, words in self.words.items()
            for feature in ([name] if words is None else [f"{name}={word}" for word in words])
        ]

    def reads(self, x: Any) -> bool:
        """Return whether examples are a table."""
        return hasattr(x, "columns")

    def examples(self, where: str | Path, table: pd.DataFrame) -> FloatArray:
        """Return the features, f32 [n, p], of a table with at least these columns."""
        if 4 * len(table) * len(self.features) > MEMORY_LIMIT_BYTES:
            raise DataError(
                f"{where}: expected features of at most {MEMORY_LIMIT_BYTES >> 30} GiB, found more; drop some"
            )
        parts: list[FloatArray] = []
        for name, words in self.words.items():
            if name not in table.columns:
                raise DataError(
                    f"{where}: expected the features {', '.join(self.words)}, found no {name}"
                    f"{nearest(name, map(str, table.columns))}"
                )
            column = table[name]
            if words is not None:
                numbers = {word: number for number, word in enumerate(words)}
                held = np.array([numbers.get(word, -1) for word in _words(where, name, column)])
                part = np.zeros((len(held), len(words)), np.float32)
                part[held >= 0, held[held >= 0]] = 1.0
                parts.append(part)
            elif not _numeric(column):
                raise DataError(f"{where}: {name}: expected numbers, found words; encode it, or add it to data.drop")
            else:
                with np.errstate(over="ignore"):  # beyond float32 becomes infinite, which is refused next
                    parts.append(column.to_numpy(dtype=np.float32, na_value=np.nan)[:, None])
        x = np.concatenate(parts, axis=1) if parts else np.zeros((len(table), 0), np.float32)
        check_features(where, x)
        return np.ascontiguousarray(x)


def load_table(
    root: Path | None,
    streams: Streams,
    *,
    path: str | Path,
    test_path: str | Path | None = None,
    target: str = "target",
    drop: tuple[str, ...] = (),
    test_fraction: float = 0.2,
    regression: bool = False,
    group: str | None = None,
) -> Dataset:
    """Load a CSV or Parquet file with columns of numbers and words.

    `target` is the column of labels; columns in `drop` are ignored. See `Loader` for the other options.
    """
    file, table = read(path, root, "data.path")
    test = None if test_path is None else read(test_path, root, "data.test_path")
    shared: dict[str, Any] = {"test_fraction": test_fraction, "regression": regression, "group": group}
    return from_frame(file.stem, file, table, test, streams, target=target, drop=drop, **shared)


def from_frame(
    name: str,
    where: str | Path,
    table: pd.DataFrame,
    test: tuple[str | Path, pd.DataFrame] | None,
    streams: Streams,
    *,
    target: str | None,
    drop: tuple[str, ...] = (),
    test_fraction: float = 0.2,
    regression: bool | None = False,
    group: str | None = None,
) -> Dataset:
    """Return the data set of a table.

    `where` names the table in messages; `test` is such a name and the test part. A `target` of None means the one
    column that `TARGETS` names. See `load_table` and `Loader` for the other options.
    """
    if target is None:
        labels = [name for name in TARGETS if name in table.columns]
        if len(labels) != 1:
            shown = ", ".join(map(str, list(table.columns)[:8]))
            raise DataError(f"{where}: expected data.target, the column of labels, found none; it has {shown}")
        target = labels[0]
    groups = None if group is None else _column(where, table, group, "data.owner or data.partition.column").to_numpy()
    apart = drop if group is None else (*drop, group)
    for dropped in drop:
        _column(where, table, dropped, "data.drop")
    y = _labels(where, table, target)
    features = table.drop(columns=[target, *apart], errors="ignore")
    columns = Columns.of(where, features)
    x = columns.examples(where, features)
    part = None
    if test is not None:
        other, frame = test
        test_y = _labels(other, frame, target)
        names = [str(column) for column in frame.columns if column not in (target, *apart)]
        if names != list(columns.words):
            raise DataError(
                f"{other}: expected the features {', '.join(columns.words)} in this order, found {', '.join(names)}"
            )
        part = columns.examples(other, frame), test_y
    return assembled(
        name,
        f"{where}: {target}",
        x,
        y,
        part,
        streams,
        regression=regression,
        test_fraction=test_fraction,
        groups=groups,
        reader=columns,
        files=tuple(path for path in (where, *(() if test is None else test[:1])) if isinstance(path, Path)),
    )


def read_examples(
    path: str | Path,
    root: Path | None,
    label: str = "label",
    drop: tuple[str, ...] = (),
    columns: Columns | None = None,
) -> tuple[Path, FloatArray, npt.NDArray[Any]]:
    """Return a file, its features and its raw labels (column `label`).

    Columns in `drop` need not exist. The features are `columns`, those of the set that these examples must match, or
    None for all other columns.
    """
    file, table = read(path, root, "data")
    y = _labels(file, table, label)
    if columns is None:
        features = table.drop(columns=[label, *drop], errors="ignore")
        columns = Columns({str(name): None for name in features})
    return file, columns.examples(file, table), y


def read(path: str | Path, root: Path | None, key: str) -> tuple[Path, pd.DataFrame]:
    """Read a CSV or Parquet file as a table; `key` names the path in messages."""
    import pandas as pd

    places = candidates(path, root, "table", "csv")
    endings = (".csv", ".parquet")
    file = first_file([*places, *(place.with_name(place.name + end) for place in places for end in endings)])
    if file is None:
        raise DataError(f"{key}: {places[0]}: no such file; put a CSV file with a line of names there")
    parquet = file.suffix == ".parquet"
    try:
        if file.stat().st_size > MEMORY_LIMIT_BYTES:
            raise ValueError(f"larger than {MEMORY_LIMIT_BYTES >> 30} GiB")
        table = pd.read_parquet(file) if parquet else pd.read_csv(file, compression=None, encoding="utf-8-sig")
    except (OSError, ValueError, MemoryError, OverflowError) as error:  # ParserError and ArrowInvalid are ValueErrors
        reason = " ".join(str(error).split()) or type(error).__name__
        expected = "a Parquet file" if parquet else "a CSV file in UTF-8"
        raise DataError(f"{file}: not {expected}, or damaged ({reason}); write it again") from None
    if table.empty:
        raise DataError(f"{file}: found no examples; expected a line of names and a line for each example")
    return file, table


def positive_column(path: Path, column: str, where: str) -> npt.NDArray[np.float64]:
    """Read a column of numbers > 0 from the CSV file that `<where>.path` names."""
    import pandas as pd

    if is_endless(path):
        raise DataError(f"{where}.path: expected a CSV file, found a device or a pipe: {path}")
    try:
        table = pd.read_csv(path)
    except FileNotFoundError:
        raise DataError(f"{where}.path: found no file {path}, expected a CSV file with a header line") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{where}.path: cannot read {path} as CSV: {str(error).splitlines()[0]}") from error
    if column not in table.columns:
        listed = ", ".join(map(str, table.columns))
        raise DataError(f"{where}.column: found no column {column!r} in {path}, expected one of {listed}")
    values = pd.to_numeric(table[column], errors="coerce").to_numpy(dtype=np.float64)
    if not len(values) or not np.isfinite(values).all() or (values <= 0).any():
        raise DataError(f"{where}.column: {path}, column {column!r}: expected numbers > 0 in every row")
    return values


def _column(where: str | Path, table: pd.DataFrame, name: str, key: str) -> pd.Series[Any]:
    if name not in table.columns:
        names = [str(column) for column in table.columns]
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise DataError(f"{where}: expected a column {name!r}, which {key} names, found {shown}{nearest(name, names)}")
    column = table[name]
    if column.isna().any():
        row = int(column.isna().to_numpy().argmax())
        raise DataError(f"{where}: {name}: example {row}: found no value; fill it in or remove the example")
    return column


def _labels(where: str | Path, table: pd.DataFrame, target: str) -> npt.NDArray[Any]:
    y = _column(where, table, target, "data.target")
    return y.to_numpy() if y.dtype.kind in "biuf" else y.astype(str).to_numpy(dtype=str)


def _numeric(column: pd.Series[Any]) -> bool:
    return bool(column.dtype.kind in "biuf")


def _words(where: str | Path, name: str, column: pd.Series[Any]) -> list[str]:
    if column.dtype.kind not in "OUT":
        raise DataError(f"{where}: {name}: expected numbers or words, found {column.dtype}; convert it, or drop it")
    values = column.astype(object).to_list()
    for row, value in enumerate(values):
        if not isinstance(value, str):
            shown = "no value" if value is None or value != value else f"{type(value).__name__} {value!r:.40}"
            raise DataError(f"{where}: {name}: example {row}: expected a word, found {shown}; correct or remove it")
    return values


LOADER = Loader("table", "any CSV or Parquet file with a target column; words become one-hot features", load_table)
