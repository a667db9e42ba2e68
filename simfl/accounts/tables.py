"""Messages' contents as tables: coefficients over the run's noisy gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from simfl.errors import RunError
from simfl.records.writer import cannot_write

CHUNK = 1024
"""Messages that are written together."""
MESSAGES = pa.schema(
    [
        ("sent_s", pa.float64()),
        ("came_s", pa.float64()),
        ("source", pa.int32()),
        ("target", pa.int32()),
        ("gradients", pa.list_(pa.int32())),
        ("coefficients", pa.list_(pa.float64())),
    ]
)


def write_knowledge(
    folder: Path, messages: Iterable[Sequence[Any]], gradients: Mapping[str, NDArray[Any]]
) -> list[Path]:
    """Write `knowledge_messages` and `knowledge_gradients`; return their paths.

    `messages` are tuples (sent_s, came_s, source, target, gradients, coefficients), consumed one by one. A message is
    the sum of coefficients times noisy gradients, which are rows of the other table; `gradients` are its columns, such
    as client and draw. RunError if the disk refuses.
    """
    paths = [folder / "knowledge_messages.parquet", folder / "knowledge_gradients.parquet"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        numbers = np.arange(len(next(iter(gradients.values()))))
        pq.write_table(pa.table({"gradient": numbers, **gradients}), paths[1])
        with pq.ParquetWriter(paths[0], MESSAGES) as writer:
            rows: list[Sequence[Any]] = []
            for message in messages:
                rows.append(message)
                if len(rows) == CHUNK:
                    writer.write_table(_table(rows))
                    rows.clear()
            writer.write_table(_table(rows))
    except OSError as error:
        raise RunError(f"{folder}: {cannot_write('what was in messages', folder, error)}") from error
    return paths


def _table(rows: Sequence[Sequence[Any]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(MESSAGES)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, MESSAGES, strict=True)], MESSAGES)
