"""Reads the CSV files of a scenario: devices, traces and times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simfl import shipped
from simfl.data.csv_rows import rows_of
from simfl.data.files import is_endless
from simfl.errors import DataError, nearest
from simfl.scenario.problems import InvalidValueError, show
from simfl.scenario.units import parse_time


def read_text(path: Path, where: str, expected: str) -> str:
    """Return the text of a file; `where` and `expected` are parts of messages.

    Raises:
        DataError: the file is missing, or is not text.
    """
    if is_endless(path):
        raise DataError(f"{where}: expected {expected}, found a device or a pipe: {path}")
    try:
        return shipped.path_of(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{where}: found no file {path}, expected {expected}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise DataError(f"{where}: cannot read {path}: {reason}; expected {expected}") from error


class CsvFile:
    """A CSV file with a header line, column by column.

    Args:
        path: of the file.
        where: the key that names the file, for messages.
        required: columns that the file must have.
        optional: columns that the file may have.
        open_to_others: accept further columns, which are not read; else they are rejected.

    Raises:
        DataError: the file cannot be read, or has wrong columns.
    """

    def __init__(
        self,
        path: Path,
        where: str,
        required: Sequence[str],
        optional: Sequence[str] = (),
        open_to_others: bool = False,
    ) -> None:
        self.path, self.where = path, where
        columns = (*required, *optional)
        listed = ", ".join(required) + (f" (and perhaps {', '.join(optional)})" if optional else "")
        expected = f"a CSV file with the column{'s' * (len(columns) > 1)} {listed}"
        text = read_text(path, where, expected)
        rows = [(number, cells) for number, cells in rows_of(text, f"{where}: {path}") if any(cells)]
        names = [name.strip() for name in rows[0][1]] if rows else []
        for name in required:
            if name not in names:
                found = ", ".join(names) or "an empty file"
                raise DataError(
                    f"{where}: {path}: expected {expected}, found {found}; add {name}{nearest(name, names)}"
                )
        for name in names:
            if (name not in columns and not open_to_others) or names.count(name) > 1:
                why = "twice" if names.count(name) > 1 else f"too{nearest(name, columns)}"
                raise DataError(f"{where}: {path}: expected {expected}, found {show(name)} {why}")
        if len(rows) == 1:
            raise DataError(f"{where}: {path}: expected at least one line below the header, found none")
        self.names = names
        #: The line of each row in the file.
        self.lines = [number for number, _ in rows[1:]]
        self._columns = {name: [cells[at].strip() for _, cells in rows[1:]] for at, name in enumerate(names)}

    def __len__(self) -> int:
        return len(self.lines)

    def refused(self, row: int, column: str, expected: str, advice: str = "") -> DataError:
        """Return the error about a value."""
        found, end = show(self._columns[column][row]), f"; {advice}" if advice else ""
        at = f"{self.where}: {self.path}:{self.lines[row]}: {column}"
        return DataError(f"{at}: expected {expected}, found {found}{end}")

    def words(self, column: str, otherwise: str = "") -> list[str]:
        """Return a column's words, or `otherwise` in each row without the column."""
        return self._columns.get(column, [otherwise] * len(self))

    def numbers(
        self,
        column: str,
        parse: Callable[[object], float] | None = None,
        *,
        above: float | None = None,
        at_least: float | None = None,
        empty: float | None = None,
    ) -> NDArray[np.float64]:
        """Return a column of numbers.

        Args:
            column: its name.
            parse: reads values with units.
            above, at_least: bounds.
            empty: the number for an empty value or a missing column; None: they are rejected.
        """
        if column not in self._columns:
            assert empty is not None, "an optional column has a default"
            return np.full(len(self), empty)
        values = np.empty(len(self))
        for row, word in enumerate(self._columns[column]):
            if not word and empty is not None:
                values[row] = empty
                continue
            try:
                number = _number(word)
                values[row] = number if parse is None else parse(word if math.isnan(number) else number)
            except InvalidValueError as error:
                raise self.refused(row, column, error.problems[0].expected, error.problems[0].advice) from None
            bounded = (above is None or values[row] > above) and (at_least is None or values[row] >= at_least)
            if not (bounded and (parse is not None or math.isfinite(values[row]))):
                bound = f"> {above:g}" if above is not None else f">= {at_least:g}"
                raise self.refused(row, column, f"a number {bound}")
        return values

    def seconds(self, column: str, *, above: float | None = None, empty: float | None = None) -> NDArray[np.float64]:
        """Return a column of times: plain numbers are seconds."""
        at_least = 0.0 if above is None else None
        return self.numbers(column, parse_time, above=above, at_least=at_least, empty=empty)


def _number(word: str) -> float:
    """Return a number, an int if it is whole; NaN for other words."""
    try:
        number = float(word)
    except ValueError:
        return math.nan
    return int(number) if math.isfinite(number) and number.is_integer() else number
