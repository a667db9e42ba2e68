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

    Numbers are ordered as such. Times are in seconds; only end - start counts.

    Raises:
        DataError: the file is not such a log; one line says where.
    """
    rows = _rows(path)
    names = sorted(
        {name for name, _, _ in rows}, key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name)
    )
    number = {name: index for index, name in enumerate(names)}
    pace = fit_pace([b for _, _, b in rows], [seconds for _, seconds, _ in rows], [number[name] for name, _, _ in rows])
    return pace, names


def _rows(path: Path) -> list[tuple[str, float, float]]:
    """Return client, seconds and examples of each line."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                found = ", ".join(reader.fieldnames or ()) or "an empty file"
                raise DataError(f"--log: {path}: expected the columns {', '.join(COLUMNS)}, found {found}")
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
