"""Logs of clients' computations: CSV with client, start, end and examples."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from simfl.errors import DataError
from simfl.live.fitting import Pace, fit_pace

COLUMNS = ("client", "start", "end", "examples")


def fit_log(path: Path) -> tuple[Pace, list[str]]:
    """Fit a log; return the pace, and the clients' names in order.

    Names that are numbers come first, by value. Times are in seconds; only end - start counts.

    Raises:
        DataError: the file is not such a log; one line says where.
    """
    clients, seconds, examples = zip(*_rows(path), strict=True)
    names = sorted(set(clients), key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name))
    numbers = {name: index for index, name in enumerate(names)}
    return fit_pace(examples, seconds, [numbers[name] for name in clients]), names


def _rows(path: Path) -> list[tuple[str, float, float]]:
    """Return client, seconds and examples of each line."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            if not set(COLUMNS) <= set(reader.fieldnames or ()):
                columns = ", ".join(reader.fieldnames or ()) or "an empty file"
                raise DataError(f"--log: {path}: expected the columns {', '.join(COLUMNS)}, found {columns}")
            rows = [_row(path, reader.line_num, line) for line in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DataError(f"--log: {path}: expected a CSV file: {reason}") from None
    if not rows:
        raise DataError(f"--log: {path}: expected at least one line below the header, found none")
    return rows


def _row(path: Path, line: int, values: dict[str, str]) -> tuple[str, float, float]:
    try:
        start, end, examples = (float(values[name]) for name in COLUMNS[1:])
    except (TypeError, ValueError):
        raise DataError(f"--log: {path}:{line}: expected numbers for start, end and examples") from None
    seconds = end - start
    if not (math.isfinite(seconds) and seconds > 0.0 and examples > 0.0 and math.isfinite(examples)):
        raise DataError(
            f"--log: {path}:{line}: expected start < end and examples > 0, found {start:g}, {end:g} and {examples:g}"
        )
    return (values["client"] or "").strip(), seconds, examples
