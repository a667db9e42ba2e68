"""The tables of a run: their columns, and a writer that streams rows into Parquet.

Rows of numbers arrive one by one from the event loop, millions of them, so `append` extends one flat list, and columns
are formed from it a chunk at a time. A table is written beside its place and moved there when it is complete: a killed
run leaves the complete table or the previous one. Row groups are cut at fixed row numbers and nothing carries a date,
so equal rows give equal files.

Times end in `_s` and are virtual seconds, but for `wall_s`, which is host seconds. NaN means undefined: the accuracy of
a regression, the epsilon of a run without noise.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


_SECONDS = _REAL = pa.float64()
_CLIENT = pa.int32()
_COUNT = pa.int64()

METRICS = _schema(
    time_s=_SECONDS,
    updates=_COUNT,
    epochs=_REAL,
    rounds=_COUNT,
    train_loss=_REAL,
    test_loss=_REAL,
    test_accuracy=_REAL,
    consensus_distance=_REAL,
    bytes_sent=_COUNT,
    messages=_COUNT,
    epsilon=_REAL,
    wall_s=_REAL,
)
"""One row per evaluation of the average model; epsilon is the largest over clients.

That of the end, in the last row, is as tight as is affordable, as in `clients`; those before it are upper bounds, by
the Renyi accountant, which is fast, and by the final one.
"""

GRADIENTS = _schema(gradient_norm=_REAL, clipped_share=_REAL, clipping_norm=_REAL)
"""Further columns of `metrics`, where gradients are measured (`evaluate.gradients`): on the first N training examples.

gradient_norm is the L2 norm of the mean of their gradients, clipped as the run clips them, without noise and without
the penalty; clipped_share is the share of those gradients that are longer than clipping_norm, the one in force then.
Without clipping, clipped_share is 0 and clipping_norm NaN. Where a run clips whole updates, clipping_norm is that of
updates, and examples are not clipped: clipped_share is NaN.
"""

CLIENT_METRICS = _schema(time_s=_SECONDS, updates=_COUNT, client=_CLIENT, test_accuracy=_REAL, test_loss=_REAL)
"""One row per client and evaluation, where each client's own model is evaluated (`evaluate.clients`)."""

UPDATES = _schema(
    time_s=_SECONDS,
    client=_CLIENT,
    peer=_CLIENT,
    round=_COUNT,
    staleness=_COUNT,
    sample_size=_CLIENT,
    step_size=_REAL,
    noise_std=_REAL,
)
"""One row per update in the order of application; peer is -1 where it had none, noise_std is that on the sum."""

CLIENTS = _schema(
    client=_CLIENT,
    samples=_COUNT,
    updates=_COUNT,
    dropped=_COUNT,
    compute_s=_SECONDS,
    wait_s=_SECONDS,
    communicate_s=_SECONDS,
    offline_s=_SECONDS,
    bytes=_COUNT,
    epsilon=_REAL,
    delta=_REAL,
    exhausted_s=_SECONDS,
)
"""One row per client: its examples, its updates, where its time went, what it sent, and what that cost in privacy.

dropped counts updates that a server refused because they were too stale. exhausted_s says when the privacy budget did
not allow another release; NaN if that never happened.
"""

MESSAGES = _schema(sent_s=_SECONDS, delivered_s=_SECONDS, source=_CLIENT, target=_CLIENT, bytes=_COUNT, resends=_CLIENT)
"""One row per message in the order of delivery, where they are recorded (`record.messages`)."""

RELEASES = _schema(client=_CLIENT, batch_size=_COUNT, sampling_rate=_REAL, level=_REAL, count=_COUNT)
"""One row per client and kind of release, where there is noise: what the ledger composes.

batch_size is the nominal one; level is the noise multiplier, or the epsilon of one release of a pure mechanism.
"""

USES = _schema(client=_CLIENT, copies=_COUNT, count=_COUNT)
"""Where releases are pieces of shuffled data: an example of the client is `copies` times in each of `count` releases.

That is the most that can be, by which batches were released; rows of a client add up, and so do its tasks.
"""

CLIENT_EPSILON = _schema(time_s=_SECONDS, client=_CLIENT, releases=_COUNT, epsilon=_REAL)
"""One row per client and evaluation, where the ledger certifies something: what was spent up to then.

Those of the end are as tight as is affordable, as in `clients`; those before are upper bounds by the Renyi accountant.
"""

ACTIVITIES = ("compute", "lost", "wait", "communicate", "offline")
"""What a client does, by the number that stands for it in `timeline`; lost is computing that a crash threw away."""

TIMELINE = _schema(client=_CLIENT, start_s=_SECONDS, end_s=_SECONDS, activity=_CLIENT)
"""One row per interval of a client's time, where they are recorded (`record.timeline`).

activity is a position in ACTIVITIES. Intervals of one client do not overlap; rows come about in the order of time.
"""

EDGES = _schema(source=_CLIENT, target=_CLIENT)
"""One row per pair that talks with each other; a server has the number behind the last client's."""

MOST_EDGES = 100_000
"""Larger graphs are not written: nobody draws them, and the scenario says what they are."""

SCHEMAS: dict[str, pa.Schema] = {
    "metrics": METRICS,
    "updates": UPDATES,
    "clients": CLIENTS,
    "messages": MESSAGES,
    "client_metrics": CLIENT_METRICS,
    "releases": RELEASES,
    "uses": USES,
    "client_epsilon": CLIENT_EPSILON,
    "timeline": TIMELINE,
}
"""What a run measures; its digest is over these."""

UNDIGESTED: dict[str, pa.Schema] = {"edges": EDGES}
"""What follows from the scenario alone, kept so that figures need no more than tables."""

WALL_CLOCK_COLUMNS = ("wall_s",)
"""Columns that differ between two runs of the same scenario."""

ROWS_PER_CHUNK = 65_536


class TableWriter:
    """Stream rows into one Parquet file, in bounded memory.

    As a context manager it closes the table at the end of the block, and aborts where the block raised.

    Args:
        path: where the table will be once it is closed.
        schema: its columns.
        rows_per_chunk: rows kept in memory before they are written as one row group.
    """

    def __init__(self, path: Path, schema: pa.Schema, rows_per_chunk: int = ROWS_PER_CHUNK) -> None:
        if rows_per_chunk < 1:
            raise ValueError(f"rows_per_chunk: expected at least 1, found {rows_per_chunk}")
        self.path = Path(path)
        self.schema = schema
        self.rows_per_chunk = rows_per_chunk
        self.num_rows_written = 0
        self._flat: list[Any] = []  # the values of the collected rows, one row after the other
        self._flat_limit = rows_per_chunk * len(schema)
        self._columns: list[pa.Table] = []  # whole columns that came in between, not yet a full chunk
        self._num_in_columns = 0
        self._partial = self.path.with_name(self.path.name + ".partial")
        self._writer: pq.ParquetWriter | None = pq.ParquetWriter(
            self._partial,
            schema,
            compression="zstd",
            use_dictionary=False,  # zstd alone is smaller and five times faster on these columns
        )

    def append(self, row: Sequence[Any]) -> None:
        """Add one row, with its values in the order of the schema."""
        flat = self._flat
        flat.extend(row)
        if len(flat) >= self._flat_limit:
            self._gather_rows()

    def extend(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add several rows."""
        for row in rows:
            self.append(row)

    def extend_columns(self, columns: Mapping[str, np.ndarray]) -> None:
        """Add many rows at once, given as one array per column, all of the same length."""
        if set(columns) != set(self.schema.names):
            raise ValueError(f"{self.path.name}: expected the columns {self.schema.names}, found {sorted(columns)}")
        self._gather_rows()
        arrays = [pa.array(columns[field.name]).cast(field.type) for field in self.schema]
        self._take(pa.table(arrays, schema=self.schema))

    def close(self) -> None:
        """Write what is left and move the table to its place; further calls do nothing."""
        if self._writer is None:
            return
        try:
            self._gather_rows()
            if self._num_in_columns:
                self._write(pa.concat_tables(self._columns))
        except BaseException:
            self.abort()
            raise
        self._writer.close()
        self._writer = None
        with open(self._partial, "rb") as file:
            os.fsync(file.fileno())
        os.replace(self._partial, self.path)
        self._flat, self._columns = [], []

    def abort(self) -> None:
        """Throw away what was written; a previous table at the same place stays. Does nothing after `close`."""
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        self._partial.unlink(missing_ok=True)
        self._flat, self._columns = [], []

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _gather_rows(self) -> None:
        """Turn the collected rows into columns."""
        if not self._flat:
            return
        flat, self._flat = self._flat, []
        width = len(self.schema)
        if len(flat) % width:
            raise ValueError(f"{self.path.name}: expected rows of {width} values, found {len(flat)} in all")
        # One pass over all values is four times faster than a column at a time. Whole numbers up to
        # 2^53 go through float64 unchanged; larger ones, and fractions, are refused below.
        values = np.fromiter(flat, dtype=np.float64, count=len(flat)).reshape(-1, width)
        self._take(
            pa.table([self._column(field, values[:, j]) for j, field in enumerate(self.schema)], schema=self.schema)
        )

    def _column(self, field: pa.Field, values: np.ndarray) -> pa.Array:
        """Return one column, refusing what its type cannot hold exactly."""
        if pa.types.is_floating(field.type):
            return pa.array(np.ascontiguousarray(values), field.type)
        kind = np.dtype(field.type.to_pandas_dtype())
        fits = (np.abs(values) < min(2.0**53, float(np.iinfo(kind).max) + 1.0)) & (np.trunc(values) == values)
        if not fits.all():
            raise ValueError(f"{self.path.name}: {field.name}: expected {kind} numbers, found {values[~fits][0]!r}")
        return pa.array(values.astype(kind), field.type)

    def _take(self, table: pa.Table) -> None:
        """Collect columns, and write full chunks, so that row groups do not depend on how the rows came."""
        gaps = [field.name for field in self.schema if not field.nullable and table[field.name].null_count]
        if gaps:  # Parquet would write something else in silence
            raise ValueError(f"{self.path.name}: a value is missing in {', '.join(gaps)}")
        self._columns.append(table)
        self._num_in_columns += len(table)
        if self._num_in_columns < self.rows_per_chunk:
            return
        collected = pa.concat_tables(self._columns)
        start = 0
        while len(collected) - start >= self.rows_per_chunk:
            self._write(collected.slice(start, self.rows_per_chunk))
            start += self.rows_per_chunk
        rest = collected.slice(start)
        # A slice keeps all of the memory: copy what is left, which is less than a chunk.
        left = [pa.concat_batches(rest.to_batches())] if len(rest) else []
        self._columns = [pa.Table.from_batches(left, self.schema)]
        self._num_in_columns = len(rest)

    def _write(self, table: pa.Table) -> None:
        assert self._writer is not None, f"{self.path.name} is closed"
        self._writer.write_table(table.combine_chunks(), row_group_size=self.rows_per_chunk)
        self.num_rows_written += len(table)


def read_between(path: Path, first: str, last: str, begin: float, end: float) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table whose interval [first, last] touches [begin, end], without reading all of it.

    Row groups that hold no such row are left out, as their statistics tell.
    """
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        start, stop = names.index(first), names.index(last)
        for group in range(file.num_row_groups):
            about = file.metadata.row_group(group)
            earliest, latest = about.column(start).statistics, about.column(stop).statistics
            if earliest is not None and (earliest.min > end or latest.max < begin):
                continue
            for batch in file.read_row_group(group).to_batches(max_chunksize=8192):
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    if row[start] <= end and row[stop] >= begin:
                        yield row


def digest_table(path: Path, skip: Iterable[str] = WALL_CLOCK_COLUMNS) -> str:
    """Return the SHA-256 of a table's column names, types and values, in hexadecimal.

    It depends on the values alone and not on how they were packed, so it may be compared across versions of Parquet.

    Args:
        path: a Parquet file of numbers.
        skip: columns left out, by default those that tell the host's time.
    """
    file = pq.ParquetFile(path)
    skipped = set(skip)
    hashes = {
        field.name: hashlib.sha256(f"{field.name}:{field.type};".encode())
        for field in file.schema_arrow
        if field.name not in skipped
    }
    for batch in file.iter_batches(batch_size=ROWS_PER_CHUNK, columns=list(hashes)):
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            values = column.to_numpy(zero_copy_only=False)
            if np.issubdtype(values.dtype, np.floating):
                values = np.where(np.isnan(values), np.nan, values)  # one pattern of bits for all NaN
            hashes[name].update(np.ascontiguousarray(values).data)
    return hashlib.sha256("".join(hasher.hexdigest() for hasher in hashes.values()).encode()).hexdigest()
