"""The rows of CSV files, each with its line, compared with the header.

All CSV files are read by these rules: data, devices, speeds, traces, regions, matrices, contacts, availability. A byte
order mark and blank lines are skipped. A row has as many values as the header has names; pandas alone would fill up a
short row, and would take the first columns as an index where the header is short.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from simfl.errors import DataError


def rows_of(text: str, where: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the values of each row, the header first.

    Args:
        text: the content of the file.
        where: the beginning of messages, which ends with the file.

    Raises:
        DataError: a row has another number of values than the header, or quotes are not closed.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header, line = (0, 0), 1
    try:
        for values in reader:
            if len(values) > 1 or "".join(values).strip():
                header = header if header[0] else (line, len(values))
                if len(values) != header[1]:
                    raise DataError(
                        f"{where}:{line}: expected {header[1]} values, found {len(values)}; the header in line "
                        f"{header[0]} has {header[1]} names: name each column there, or correct the row"
                    )
                yield line, values
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{where}:{line}: expected values separated by commas, found {error}; correct it") from None
