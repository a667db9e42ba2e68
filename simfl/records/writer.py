"""A writer of Parquet files that survives the death of its process.

Rows of numbers arrive one by one from the event loop, millions of them, so `append` extends one flat list, and columns
are formed from it a chunk at a time. Parquet can be read only when its end is written. So rows are flushed to a stream
beside the table's place first (Arrow's IPC streaming format, NAME.arrows), which can be read up to its last complete
batch at any moment; when the table is complete it is written anew as Parquet, moved to its place, and the stream
removed. A table that is small and quick never needs the stream. Row groups are cut at fixed row numbers and nothing
carries a date, so equal rows give equal files, however they came and whenever they were flushed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from simfl.errors import RunError

ROWS_PER_CHUNK = 65_536
STREAM = ".arrows"
"""How the stream of a table that is not complete yet is named, instead of .parquet."""

Amend = Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]]
"""Returns columns with their final values, given all columns of some rows: what is known only at the end."""

_FAST = pa.ipc.IpcWriteOptions(compression="lz4")


class TableWriter:
    """Stream rows into one Parquet file, in bounded memory.

    As a context manager it closes the table at the end of the block, and aborts where the block raised.

    Args:
        path: where the table will be once it is closed.
        schema: its columns.
        rows_per_chunk: rows of a row group, the most kept in memory.
    """

    def __init__(self, path: Path, schema: pa.Schema, rows_per_chunk: int = ROWS_PER_CHUNK) -> None:
        if rows_per_chunk < 1:
            raise ValueError(f"rows_per_chunk: expected at least 1, found {rows_per_chunk}")
        self.path = Path(path)
        self.schema = schema
        self.rows_per_chunk = rows_per_chunk
        self._flat: list[Any] = []  # the values of the collected rows, one row after the other
        self._flat_limit = rows_per_chunk * len(schema)
        self._columns: list[pa.Table] = []  # whole columns that came in between and are in no stream yet
        self._num_in_columns = self._num_flushed = 0
        self._stream_path = stream_of(self.path)
        self._sink: pa.OSFile | None = None
        self._stream: pa.ipc.RecordBatchStreamWriter | None = None
        self._closed = self._broken = False

    @property
    def num_rows(self) -> int:
        """Rows that have come so far."""
        return self._num_flushed + self._num_in_columns + len(self._flat) // len(self.schema)

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
        """Add many rows, given as one array per column."""
        if set(columns) != set(self.schema.names):
            raise ValueError(f"{self.path.name}: expected the columns {self.schema.names}, found {sorted(columns)}")
        self._gather_rows()
        arrays = [pa.array(columns[field.name]).cast(field.type) for field in self.schema]
        self._take(pa.table(arrays, schema=self.schema))

    def flush(self) -> None:
        """Flush the rows: they can be read even if this process is killed.

        Raises:
            RunError: the disk does not take it. What was flushed before stays, the rest waits for `close`.
        """
        self._gather_rows()
        if self._num_in_columns:
            self._flush_columns()

    def close(self, amend: Amend | None = None) -> None:
        """Complete the table and move it to its place; further calls do nothing.

        Args:
            amend: gives the columns whose values are known only at the end.

        Raises:
            RunError: the disk does not take it. What was flushed stays in the stream.
        """
        if self._closed:
            return
        partial = self.path.with_name(self.path.name + ".partial")
        try:
            self._gather_rows()
            self._end_stream()
            with pq.ParquetWriter(
                partial,
                self.schema,
                compression="zstd",
                use_dictionary=False,  # zstd alone is smaller and five times faster on these columns
            ) as writer:
                for chunk in self._chunks():
                    whole = chunk if amend is None else _amended(chunk, amend)
                    writer.write_table(whole, row_group_size=self.rows_per_chunk)
            with open(partial, "rb") as file:
                os.fsync(file.fileno())
            os.replace(partial, self.path)
            self._stream_path.unlink(missing_ok=True)
        except OSError as error:
            self._closed = True
            remove(partial)
            raise self._refused(error) from error
        except BaseException:
            remove(partial)
            self.abort()
            raise
        self._closed = True
        self._columns = []

    def abort(self) -> None:
        """Discard the new table; a previous one stays. Does nothing after `close`."""
        if self._closed:
            return
        self._closed = True
        self._end_stream()
        remove(self._stream_path)
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

    # -- from rows to columns ------------------------------------------------------------------

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
        """Return one column; reject values that its type cannot hold exactly."""
        if pa.types.is_floating(field.type):
            return pa.array(np.ascontiguousarray(values), field.type)
        kind = np.dtype(field.type.to_pandas_dtype())
        fits = (np.abs(values) < min(2.0**53, float(np.iinfo(kind).max) + 1.0)) & (np.trunc(values) == values)
        if not fits.all():
            raise ValueError(f"{self.path.name}: {field.name}: expected {kind} numbers, found {values[~fits][0]!r}")
        return pa.array(values.astype(kind), field.type)

    def _take(self, table: pa.Table) -> None:
        """Collect columns, and flush them when they are many."""
        gaps = [field.name for field in self.schema if not field.nullable and table[field.name].null_count]
        if gaps:  # Parquet would write something else in silence
            raise ValueError(f"{self.path.name}: a value is missing in {', '.join(gaps)}")
        self._columns.append(table)
        self._num_in_columns += len(table)
        if self._num_in_columns >= self.rows_per_chunk and not self._closed:
            self._flush_columns()

    # -- the stream ----------------------------------------------------------------------------

    def _flush_columns(self) -> None:
        if self._broken:
            return
        size = 0
        try:
            if self._stream is None or self._sink is None:
                self._sink = pa.OSFile(str(self._stream_path), "wb")
                self._stream = pa.ipc.new_stream(self._sink, self.schema, options=_FAST)
            size = self._sink.tell()
            self._stream.write_table(pa.concat_tables(self._columns).combine_chunks())
        except OSError as error:
            # Half a batch would hide all that come after it.
            self._broken = True
            if self._sink is not None:
                self._sink.close()
                os.truncate(self._stream_path, size)
            raise self._refused(error) from error
        self._num_flushed += self._num_in_columns
        self._columns, self._num_in_columns = [], 0

    def _end_stream(self) -> None:
        if self._sink is not None and not self._sink.closed:
            self._sink.close()  # without a mark of its end: a stream ends where its last batch does

    def _chunks(self) -> Iterator[pa.Table]:
        """Yield all rows in chunks of `rows_per_chunk`, for equal row groups."""
        collected: list[pa.Table] = []
        count = flushed = 0
        for table in self._parts():
            collected.append(table)
            count += len(table)
            flushed += len(table)
            if count < self.rows_per_chunk:
                continue
            whole = pa.concat_tables(collected)
            start = 0
            while count - start >= self.rows_per_chunk:
                yield whole.slice(start, self.rows_per_chunk).combine_chunks()
                start += self.rows_per_chunk
            # A slice keeps all of the memory: copy what is left, which is less than a chunk.
            rest = whole.slice(start)
            collected = [pa.Table.from_batches([pa.concat_batches(rest.to_batches())])] if len(rest) else []
            count = len(rest)
        if flushed != self._num_flushed + self._num_in_columns:
            raise OSError(f"{self._stream_path.name} has {flushed} rows and was given {self._num_flushed}")
        if count:
            yield pa.concat_tables(collected).combine_chunks()

    def _parts(self) -> Iterator[pa.Table]:
        if self._num_flushed:
            for batch in read_flushed(self._stream_path):
                yield pa.Table.from_batches([batch], self.schema)
        yield from self._columns

    def _refused(self, error: OSError) -> RunError:
        return RunError(f"{self.path}: {cannot_write('the table', self.path, error)}; what was written before is kept")


def cannot_write(what: str, path: Path, error: OSError) -> str:
    """Return in words why a file was not written."""
    if not path.parent.is_dir():
        return f"cannot write {what}: its folder is gone"
    return f"cannot write {what}: {os.strerror(error.errno) if error.errno else ' '.join(str(error).split())}"


def stream_of(path: Path) -> Path:
    """Return where the rows of a table are before it is complete."""
    return path.with_suffix(STREAM)


def regular(path: Path) -> Path:
    """Return the path of a file to read; reject devices and pipes.

    Raises:
        ValueError: it is one of these.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError("found a device or a pipe, expected a file")
    return path


def read_flushed(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the complete batches of a stream, up to its end or damage."""
    try:
        with pa.OSFile(str(regular(path))) as file, pa.ipc.open_stream(file) as reader:
            for batch in reader:
                batch.validate()
                yield batch
    except (OSError, ValueError, pa.ArrowException):
        return


def _amended(rows: pa.Table, amend: Amend) -> pa.Table:
    for name, values in amend({column: rows[column].to_numpy() for column in rows.column_names}).items():
        field = rows.schema.field(name)
        rows = rows.set_column(rows.schema.get_field_index(name), field, pa.array(values, field.type))
    return rows


def remove(path: Path) -> None:
    """Remove a file, if possible."""
    try:
        path.unlink(missing_ok=True)
    except OSError:  # its folder is gone, or cannot be written to any more
        return
