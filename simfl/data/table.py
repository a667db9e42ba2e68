"""Tables in CSV and Parquet files and frames: one target column, features.

Columns of numbers are taken as they are, only converted to float32. A column of words becomes a feature of 0 or 1 for
each of its values in the training file, sorted (one-hot); a value that only other files have is 0 in all of them.
Labels may be words, which become classes in their sorted order.

A further column may say whose each training example is, which is then no feature: `data.owner`, or
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
from simfl.errors import DataError, ScenarioError, nearest
from simfl.streams import Streams

if TYPE_CHECKING:
    import pandas as pd

MOST_WORDS = 1000
"""Different words of a column beyond which they are more likely names than categories."""
TARGETS = ("label", "target")
"""The default name of the column of labels."""


@dataclass(frozen=True)
class Columns:
    """The features of a table, and how its columns become them.

    Attributes:
        words: by name of each column that is one, in their order: the words that it may hold; None for numbers.
    """

    words: Mapping[str, tuple[str, ...] | None]

    @classmethod
    def of(cls, where: str | Path, table: pd.DataFrame) -> Columns:
        """Return the feature columns of a table; `where` is the file, for messages."""
        words: dict[str, tuple[str, ...] | None] = {}
        for name, column in table.items():
            if _numeric(column):
                words[str(name)] = None
            else:
                words[str(name)] = tuple(sorted(set(_words(where, str(name), column))))
                if len(words[str(name)] or ()) > MOST_WORDS:
                    raise DataError(
                        f"{where}: {name}: expected at most {MOST_WORDS} different words, found "
                        f"{len(words[str(name)] or ())}; these are not categories: add it to data.drop"
                    )
        return cls(words)

    @property
    def features(self) -> list[str]:
        """The names of the features, in order."""
        named = (
            [name] if words is None else [f"{name}={word}" for word in words] for name, words in self.words.items()
        )
        return [feature for some in named for feature in some]

    def reads(self, x: Any) -> bool:
        """Whether examples are a table."""
        return hasattr(x, "columns")

    def examples(self, where: str | Path, table: pd.DataFrame) -> FloatArray:
        """Return the features of a table with these columns, f32 [n, p]."""
        if 4 * len(table) * len(self.features) > MEMORY_LIMIT_BYTES:
            raise DataError(
                f"{where}: expected at most {MEMORY_LIMIT_BYTES >> 30} GiB of features, found more; drop some"
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
                raise DataError(
                    f"{where}: {name}: expected a column of numbers, found words; encode it, or add it to data.drop"
                )
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
    path: str | Path | None = None,
    test_path: str | Path | None = None,
    target: str = "target",
    drop: tuple[str, ...] = (),
    test_fraction: float = 0.2,
    regression: bool = False,
    group: str | None = None,
) -> Dataset:
    """Load a CSV or Parquet file with columns of numbers and words.

    Args:
        root: the folder of data sets.
        streams: draws the split where there is no test file.
        path: the file, or a bare name in `root/table`.
        test_path: a file of the same columns with the test part.
        target: the column of labels, or of targets of a regression.
        drop: columns that are neither.
        test_fraction: share to set aside where there is no test file.
        regression: keep the labels as float targets instead of mapping them to classes.
        group: the column that says whose each training example is.
    """
    if path is None:
        raise ScenarioError("data.path: expected the name of a CSV or Parquet file, found none")
    file, table = read(path, root, "data.path")
    test = None if test_path is None else read(test_path, root, "data.test_path")
    return from_frame(
        file.stem,
        file,
        table,
        test,
        streams,
        target=target,
        drop=drop,
        test_fraction=test_fraction,
        regression=regression,
        group=group,
    )


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
    """Return the data set that a table is.

    Args:
        name: of the set.
        where: its file, for messages.
        table: the training part, or all.
        test: the test part with its file; None: a share of the examples is set aside.
        streams: draws which.
        target: the column of labels; None: the one of `TARGETS` that is there.
        drop, test_fraction, regression, group: see `load_table`.
    """
    if target is None:
        there = [one for one in TARGETS if one in table.columns]
        if len(there) != 1:
            shown = ", ".join(map(str, list(table.columns)[:8]))
            raise DataError(f"{where}: expected data.target, the column of labels, found none; it has {shown}")
        target = there[0]
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
    """Return the file, the features and the labels.

    Args:
        path: of the file.
        root: the folder of data sets.
        label: the column of labels.
        drop: columns that are not features; they may be missing.
        columns: the features of the set that these examples are to be like; None: all other columns.
    """
    file, table = read(path, root, "data")
    y = _labels(file, table, label)
    if columns is None:
        features = table.drop(columns=[label, *drop], errors="ignore")
        columns = Columns({str(name): None for name in features})
    return file, columns.examples(file, table), y


def read(path: str | Path, root: Path | None, key: str) -> tuple[Path, pd.DataFrame]:
    """Read a CSV or Parquet file as a table.

    Args:
        path: as in the scenario.
        root: the folder of data sets.
        key: what names it, for messages.
    """
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
    """Read a column of positive numbers from the CSV file `<where>.path`."""
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
    """Return a column without gaps."""
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
    """Return the labels, numbers or words, [n]."""
    y = _column(where, table, target, "data.target")
    return y.to_numpy() if y.dtype.kind in "biuf" else y.astype(str).to_numpy(dtype=str)


def _numeric(column: pd.Series[Any]) -> bool:
    """Whether a column holds numbers; truth values are."""
    return bool(column.dtype.kind in "biuf")


def _words(where: str | Path, name: str, column: pd.Series[Any]) -> list[str]:
    """Return the words of a column."""
    if column.dtype.kind not in "OUT":
        raise DataError(f"{where}: {name}: expected numbers or words, found {column.dtype}; convert it, or drop it")
    values = column.astype(object).to_list()
    for row, value in enumerate(values):
        if not isinstance(value, str):
            found = "no value" if value is None or value != value else f"{type(value).__name__} {value!r:.40}"
            raise DataError(f"{where}: {name}: example {row}: expected a word, found {found}; correct or remove it")
    return values


LOADER = Loader("table", "any CSV or Parquet file with a target column; words become one-hot features", load_table)
