"""Tables: CSV and Parquet files, and frames, with a target column.

Columns of numbers become float32. A column of words becomes a 0/1 feature for each of its values in the training file,
sorted (one-hot); a value found only in other files is 0 in all of them. Labels may be words, which become classes in
sorted order. Another column, which is not a feature then, may name the owner of each training example: `data.owner`, or
`data.partition: {kind: by_column, column: hospital}`.

A column has either numbers or words. One with both is refused, since one wrong value would make words of all numbers,
unless `data.categories` says that its values are words. Values that are missing are refused: empty ones, and the words
that pandas takes for no value, such as NA, or those of `data.missing`.
"""

from __future__ import annotations

import io
import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simfl.data.base import MEMORY_LIMIT_BYTES, Dataset, FloatArray, Loader, assembled, check_features
from simfl.data.csv_rows import rows_of
from simfl.data.files import candidates, first_file, plain_name, read_content
from simfl.errors import DataError, nearest
from simfl.streams import Streams

if TYPE_CHECKING:
    import pandas as pd

MOST_WORDS = 1000
"""Most distinct words of a column: more are likely names rather than categories."""
TARGETS = ("label", "target")
"""Names of the column of labels if the scenario gives none."""
_INDEX = re.compile(r"\s*|Unnamed: \d+|__index_level_\d+__")
"""Names of columns without a name, as an index has that was saved with a table."""
_NUMBER_OR_DATE = re.compile(r"[-+]?\d+([.,' ]\d+)* ?%?|\d{4}-\d\d-\d\d\b.*", re.DOTALL)
"""Words that are likely numbers in another notation, such as 1,5 or 12%, or dates."""


@dataclass(frozen=True)
class Columns:
    """The features of a table: for each column in order its words, None for numbers."""

    words: Mapping[str, tuple[str, ...] | None]
    categories: tuple[str, ...] = ()
    """The columns whose whole numbers are words, too."""

    @classmethod
    def of(cls, where: str | Path, table: pd.DataFrame, categories: tuple[str, ...] = ()) -> Columns:
        """Return a table's columns without labels; `where` names it in messages."""
        columns: dict[str, tuple[str, ...] | None] = {}
        for name, column in table.items():
            assert isinstance(name, str)
            if _INDEX.fullmatch(name):
                raise DataError(
                    f"{where}: expected a name for each feature, found {name!r}, as a saved index has it; add "
                    f"{name!r} to data.drop, or rename the column"
                )
            words = None
            if name in categories or not _numeric(column):
                values = _words(where, name, column, categories)
                words = tuple(sorted(set(values)))
            if words is not None and len(words) > MOST_WORDS:
                advice = "add it to data.drop" if isinstance(where, Path) else "leave the column out"
                raise DataError(
                    f"{where}: {name}: expected at most {MOST_WORDS} different words, found {len(words)}; these are no "
                    f"categories: {advice}"
                )
            columns[name] = words
        return cls(columns, categories)

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
        table = _named(where, table)
        if 4 * len(table) * len(self.features) > MEMORY_LIMIT_BYTES:
            raise DataError(
                f"{where}: expected features of at most {MEMORY_LIMIT_BYTES >> 30} GiB, found more; drop some"
            )
        parts: list[FloatArray] = []
        for name, words in self.words.items():
            if name not in table.columns:
                raise DataError(
                    f"{where}: expected the features {', '.join(self.words)}, found no {name}"
                    f"{nearest(name, table.columns)}"
                )
            column = table[name]
            if words is not None:
                numbers = {word: number for number, word in enumerate(words)}
                values = _words(where, name, column, self.categories, known=words)
                held = np.array([numbers.get(word, -1) for word in values])
                part = np.zeros((len(held), len(words)), np.float32)
                part[held >= 0, held[held >= 0]] = 1.0
            elif not _numeric(column):
                _words(where, name, column, self.categories)  # names a wrong value among numbers
                raise DataError(f"{where}: {name}: expected numbers, found words; encode it, or add it to data.drop")
            else:
                with np.errstate(over="ignore"):  # beyond float32 becomes infinite, which is refused next
                    part = column.to_numpy(dtype=np.float32, na_value=np.nan)[:, None]
                finite = np.isfinite(part[:, 0])
                if not finite.all():
                    raise _refused(where, column, int(np.argmin(finite)), "a finite number")
            parts.append(part)
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
    categories: tuple[str, ...] = (),
    missing: tuple[str, ...] | None = None,
    test_fraction: float = 0.2,
    regression: bool = False,
    group: str | None = None,
) -> Dataset:
    """Load a CSV or Parquet file with columns of numbers and words.

    `target` is the column of labels; columns in `drop` are ignored, and the values of those in `categories` are words.
    `missing` are the words that mean no value beside nothing; None: those of pandas. See `Loader` for the other
    options.
    """
    file, table = read(path, root, "data.path", categories, missing)
    test = None if test_path is None else read(test_path, root, "data.test_path", categories, missing)
    shared: dict[str, Any] = {"test_fraction": test_fraction, "regression": regression, "group": group}
    name = Path(plain_name(file)).stem
    return from_frame(name, file, table, test, streams, target=target, drop=drop, categories=categories, **shared)


def from_frame(
    name: str,
    where: str | Path,
    table: pd.DataFrame,
    test: tuple[str | Path, pd.DataFrame] | None,
    streams: Streams,
    *,
    target: str | None,
    drop: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    test_fraction: float = 0.2,
    regression: bool | None = False,
    group: str | None = None,
) -> Dataset:
    """Return the data set of a table.

    `where` names the table in messages; `test` is such a name and the test part. A `target` of None means the one
    column that `TARGETS` names. See `load_table` and `Loader` for the other options.
    """
    table = _named(where, table)
    if target is None:
        labels = [name for name in TARGETS if name in table.columns]
        if len(labels) != 1:
            shown = ", ".join(list(table.columns)[:8])
            raise DataError(f"{where}: expected data.target, the column of labels, found none; it has {shown}")
        target = labels[0]
    groups = None if group is None else _owners(where, table, group)
    apart = drop if group is None else (*drop, group)
    for key, named in (("data.drop", drop), ("data.categories", categories)):
        for column in named:
            _column(where, table, column, key)
    y = _labels(where, table, target, categories)
    features = table.drop(columns=[target, *apart], errors="ignore")
    columns = Columns.of(where, features, categories)
    x = columns.examples(where, features)
    part = test_groups = None
    if test is not None:
        other, frame = test
        frame = _named(other, frame)
        test_y = _labels(other, frame, target, categories)
        if (y.dtype.kind == "U") != (test_y.dtype.kind == "U"):
            kinds = ("words", "numbers") if y.dtype.kind == "U" else ("numbers", "words")
            raise DataError(f"{other}: {target}: expected {kinds[0]}, as in {where}, found {kinds[1]}; change one")
        names = [column for column in frame.columns if column not in (target, *apart)]
        if names != list(columns.words):
            raise DataError(
                f"{other}: expected the features {', '.join(columns.words)} in this order, found {', '.join(names)}"
            )
        part = columns.examples(other, frame), test_y
        test_groups = _owners(other, frame, group) if group is not None and group in frame.columns else None
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
        test_groups=test_groups,
        reader=columns,
        files=tuple(path for path in (where, *(() if test is None else test[:1])) if isinstance(path, Path)),
    )


def read_examples(
    path: str | Path,
    root: Path | None,
    label: str = "label",
    drop: tuple[str, ...] = (),
    columns: Columns | None = None,
    categories: tuple[str, ...] = (),
    missing: tuple[str, ...] | None = None,
) -> tuple[Path, FloatArray, npt.NDArray[Any]]:
    """Return a file, its features and its raw labels (column `label`).

    Columns in `drop` need not exist. The features are `columns`, those of the set that these examples must match, or
    None for all other columns. `categories` and `missing` are as in `load_table`.
    """
    file, table = read(path, root, "data", categories, missing)
    y = _labels(file, table, label, categories)
    if columns is None:
        features = table.drop(columns=[label, *drop], errors="ignore")
        columns = Columns({str(name): None for name in features})
    return file, columns.examples(file, table), y


def read(
    path: str | Path,
    root: Path | None,
    key: str,
    categories: Sequence[str] = (),
    missing: Collection[str] | None = None,
) -> tuple[Path, pd.DataFrame]:
    """Read a CSV or Parquet file as a table; `key` names the path in messages.

    In a CSV file, the values of the columns in `categories` are words even if they look like numbers. `missing` is as
    in `load_table`.
    """
    places = candidates(path, root, "table", "csv")
    endings = (".csv", ".parquet")
    file = first_file([*places, *(place.with_name(place.name + end) for place in places for end in endings)])
    if file is None:
        raise DataError(f"{key}: {places[0]}: no such file; put a CSV file with a line of names there")
    table = _read_parquet(file, missing) if file.suffix == ".parquet" else _read_csv(file, categories, missing)
    if table.empty:
        raise DataError(f"{file}: found no examples; expected a line of names and a line for each example")
    return file, table


def _read_parquet(file: Path, missing: Collection[str] | None) -> pd.DataFrame:
    import pandas as pd

    try:
        if file.stat().st_size > MEMORY_LIMIT_BYTES:
            raise ValueError(f"larger than {MEMORY_LIMIT_BYTES >> 30} GiB")
        table = pd.read_parquet(file)
    except (OSError, ValueError, MemoryError, OverflowError) as error:  # ArrowInvalid is a ValueError
        raise _damaged(file, "a Parquet file", error) from None
    return table.mask(table.isin(list(missing))) if missing else table


def _read_csv(file: Path, categories: Sequence[str], missing: Collection[str] | None) -> pd.DataFrame:
    import pandas as pd

    text = _text_of(file)
    head = list(itertools.islice(rows_of(text, file), 2))
    _distinct(file, head[0][1] if head else [])
    try:
        table = pd.read_csv(
            io.StringIO(text),
            index_col=False,  # else a first row longer than the header makes an index of the first columns
            dtype={name: str for name in categories if name in head[0][1]} if head else None,
            keep_default_na=missing is None,
            na_values=["", *(missing or ())],
            low_memory=False,  # else a column may have numbers and words, by parts of the file
        )
    except (ValueError, MemoryError, OverflowError) as error:  # ParserError is a ValueError
        _check_rows(text, file)
        raise _damaged(file, "a CSV file", error) from None
    if len(table) and table.iloc[:, -1].isna().any():  # as in a row that is shorter than the header
        _check_rows(text, file)
    return table


def _text_of(file: Path) -> str:
    try:
        return read_content(file, "write it again").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _damaged(file, "a CSV file in UTF-8", error) from None


def _check_rows(text: str, file: Path) -> None:
    for _ in rows_of(text, file):
        pass


def _damaged(file: Path, expected: str, error: Exception) -> DataError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return DataError(f"{file}: not {expected}, or damaged ({reason}); write it again")


def _distinct(where: str | Path, names: Collection[str]) -> None:
    """Refuse two columns with one name; columns without a name get one later."""
    twice = [name for name, count in Counter(names).items() if count > 1 and name]
    if twice:
        raise DataError(f"{where}: expected a name of its own for each column, found {twice[0]!r} twice; rename one")


def _named(where: str | Path, table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose columns have different words as names."""
    names = [str(name) for name in table.columns]
    _distinct(where, names)
    return table.set_axis(names, axis=1)


def _column(where: str | Path, table: pd.DataFrame, name: str, key: str) -> pd.Series[Any]:
    if name not in table.columns:
        names = [str(column) for column in table.columns]
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise DataError(f"{where}: expected a column {name!r}, which {key} names, found {shown}{nearest(name, names)}")
    return table[name]


def _complete(where: str | Path, column: pd.Series[Any], expected: str) -> pd.Series[Any]:
    """Return a column without missing values, or refuse it."""
    missing = column.isna().to_numpy()
    if missing.any():
        raise _refused(where, column, int(missing.argmax()), expected)
    return column


def _labels(where: str | Path, table: pd.DataFrame, target: str, categories: tuple[str, ...] = ()) -> npt.NDArray[Any]:
    column = _complete(where, _column(where, table, target, "data.target"), "a label")
    if _numeric(column) and target not in categories:
        return column.to_numpy()
    labels = column.astype(str)
    if target not in categories and column.dtype.name != "category":
        _check_words(where, column, labels.to_list())
    return labels.to_numpy(dtype=str)


def _owners(where: str | Path, table: pd.DataFrame, owner: str) -> npt.NDArray[Any]:
    column = _column(where, table, owner, "data.owner or data.partition.column")
    owners: npt.NDArray[Any] = _complete(where, column, "an owner").to_numpy()
    return owners.astype(str) if owners.dtype == object and len({*map(type, owners)}) > 1 else owners


def _numeric(column: pd.Series[Any]) -> bool:
    return bool(column.dtype.kind in "biuf")


def _words(
    where: str | Path,
    name: str,
    column: pd.Series[Any],
    categories: tuple[str, ...],
    known: Collection[str] = (),
) -> list[str]:
    """Return a column's values, all words; `known` are those of the training file."""
    whole = (str, int) if name in categories else (str,)
    if column.dtype.kind not in ("biuOUT" if name in categories else "OUT"):
        expected = "words, as in the training file" if known else "numbers or words"
        raise DataError(f"{where}: {name}: expected {expected}, found {column.dtype}; convert it, or drop it")
    values = _complete(where, column, "a word").astype(object).to_list()
    for row, value in enumerate(values):
        if not isinstance(value, whole):
            raise _refused(where, column, row, "a word")
    if not known and name not in categories and column.dtype.name != "category":
        _check_words(where, column, values)
    return list(map(str, values))


def _check_words(where: str | Path, column: pd.Series[Any], values: list[str]) -> None:
    """Refuse numbers among words, words among numbers, numbers with commas, and dates."""
    counts = Counter(values)
    numbers = {word for word in counts if _is_number(word)}
    of_words = (
        f"if its values are words, add {column.name} to data.categories"
        if isinstance(where, Path)
        else "if its values are words, make it a column of categories: astype('category')"
    )
    if numbers and len(numbers) < len(counts):
        usual = 2 * sum(counts[word] for word in numbers) >= len(values)
        row = next(row for row, value in enumerate(values) if (value in numbers) != usual)
        expected = f"a {'number' if usual else 'word'}, as in other rows"
        raise _refused(where, column, row, expected, f"correct it, or remove the row; {of_words}")
    if not numbers and all(map(_NUMBER_OR_DATE.fullmatch, counts)):
        expected = "numbers such as 1.5, or words"
        raise _refused(where, column, 0, expected, f"write numbers, or drop the column; {of_words}")


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word)) and "_" not in word
    except ValueError:
        return False


def _refused(where: str | Path, column: pd.Series[Any], row: int, expected: str, advice: str = "") -> DataError:
    """Return the error about a value, with its line if it is in a CSV file."""
    name, value = str(column.name), column.iloc[row]
    missing = bool(column.isna().iloc[row])
    at, shown = f"{where}: {name}: example {row}", "no value" if missing else " ".join(f"{value!r}".split())[:40]
    if isinstance(where, Path) and where.suffix != ".parquet":
        rows = rows_of(_text_of(where), where)
        names = [cell or f"Unnamed: {number}" for number, cell in enumerate(next(rows)[1])]
        line, values = next(itertools.islice(rows, row, None))
        word = values[names.index(name)]
        at = f"{where}:{line}: {name}"
        shown = f"{word!r:.40}" if word else shown
        if missing and word:
            shown += ", which means no value"
            if not _numeric(column):
                advice = "fill it in, or remove the row; data.missing: [] says that such words are values"
    advice = advice or f"{'fill it in' if missing else 'correct it'}, or remove the row"
    return DataError(f"{at}: expected {expected}, found {shown}; {advice}")


LOADER = Loader("table", "any CSV or Parquet file with a target column; words become one-hot features", load_table)
