"""A crash-safe writer that streams rows into a Parquet file.

Millions of rows arrive one by one from the event loop, so `append` extends a flat list, and columns are formed from it
a chunk at a time. Parquet is readable only once its end is written. So rows are first flushed to a stream next to the
table (Arrow's IPC streaming format, NAME.arrows), which is readable up to its last complete batch at any moment. A
complete table is rewritten as Parquet and moved to its place, and the stream is removed. Small, quick tables never need
the stream. Row groups are cut at fixed row numbers and nothing carries a date, so equal rows give equal files, however
they arrived and were flushed.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from simfl.each import array_of
from simfl.errors import RunError

ROWS_PER_CHUNK = 65_536
STREAM = ".arrows"
"""Suffix of an incomplete table's stream, in place of .parquet."""

Amend = Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]]
"""Map all columns of some rows to the columns whose values are known only at the end."""

_FAST = pa.ipc.IpcWriteOptions(compression="lz4")


def column_of(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Return NumPy's values as a column of a type.

    `pa.array` and `cast` would do it, but they import pandas and all functions of Arrow, for 0.2 s. They are used where
    a value does not fit, and raise.
    """
    if values.dtype.kind in "iuf" and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        with np.errstate(invalid="ignore"):
            fitting = np.ascontiguousarray(values, np.dtype(kind.to_pandas_dtype()))
        if fitting.dtype == values.dtype or np.array_equal(fitting, values):
            return pa.Array.from_buffers(kind, len(fitting), [None, pa.py_buffer(fitting)])
    return pa.array(values).cast(kind)


def values_of(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Return a column's values; pyarrow's `to_numpy` imports pandas, too."""
    if column.null_count or not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return np.asarray(column)
    single = isinstance(column, pa.ChunkedArray) and column.num_chunks == 1
    whole = column.chunk(0) if single else column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return np.from_dlpack(whole)


class TableWriter(contextlib.AbstractContextManager["TableWriter"]):
    """Stream rows into one Parquet file, with bounded memory (`rows_per_chunk`).

    As a context manager it closes the table at the end of the block, and aborts if the block raised.
    """

    def __init__(self, path: Path, schema: pa.Schema, rows_per_chunk: int = ROWS_PER_CHUNK) -> None:
        if rows_per_chunk < 1:
            raise ValueError(f"rows_per_chunk: expected at least 1, found {rows_per_chunk}")
        self.path = Path(path)
        self.schema = schema
        self.rows_per_chunk = rows_per_chunk
        self._flat: list[Any] = []  # values of the collected rows, row by row
        self._flat_limit = rows_per_chunk * len(schema)
        self._columns: list[pa.Table] = []  # columns that are not in the stream yet
        self._num_in_columns = self._num_flushed = 0
        self._stream_path = stream_of(self.path)
        self._sink: pa.OSFile | None = None
        self._stream: pa.ipc.RecordBatchStreamWriter | None = None
        self._closed = self._broken = False
        self._shared: SharedRows | None = None

    @property
    def num_rows(self) -> int:
        """Rows added so far."""
        if self._shared is not None:
            self._shared.gather()
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
        """Add many rows at once, as one array per column, all of the same length."""
        if set(columns) != set(self.schema.names):
            raise ValueError(f"{self.path.name}: expected the columns {self.schema.names}, found {sorted(columns)}")
        self._gather_rows()
        arrays = [column_of(columns[field.name], field.type) for field in self.schema]
        self._take(pa.table(arrays, schema=self.schema))

    def flush(self) -> None:
        """Write all rows so far to the stream; they survive the process.

        RunError if the disk refuses: what was flushed before stays, the rest waits for `close`.
        """
        self._gather_rows()
        if self._num_in_columns:
            self._flush_columns()

    def close(self, amend: Amend | None = None) -> None:
        """Complete the table and move it to its place; further calls do nothing.

        `amend` gives the columns whose values are known only at the end. RunError if the disk refuses: what was flushed
        stays in the stream.
        """
        if self._closed:
            return
        # zstd alone is smaller and five times faster than with dictionaries on these columns
        options: dict[str, Any] = {"compression": "zstd", "use_dictionary": False}
        try:
            self._gather_rows()
            self._end_stream()
            with replacing(self.path) as partial, pq.ParquetWriter(partial, self.schema, **options) as writer:
                for chunk in self._chunks():
                    whole = chunk if amend is None else _amended(chunk, amend)
                    writer.write_table(whole, row_group_size=self.rows_per_chunk)
            self._stream_path.unlink(missing_ok=True)
        except OSError as error:
            self._closed = True
            raise self._refused(error) from error
        except BaseException:
            self.abort()
            raise
        self._closed = True
        self._columns = []

    def abort(self) -> None:
        """Discard what was written; after `close`, do nothing."""
        if self._closed:
            return
        self._closed = True
        self._end_stream()
        remove(self._stream_path)
        self._flat, self._columns = [], []

    def leave(self) -> None:
        """Take no more of the rows that several tables share."""
        if self._shared is not None:
            self._shared.leave(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    # -- from rows to columns ------------------------------------------------------------------

    def _gather_rows(self) -> None:
        if self._shared is not None:
            self._shared.gather()
        if not self._flat:
            return
        flat, self._flat = self._flat, []
        width = self._width_of(flat)
        # One pass over all values is four times faster than a column at a time. Integers up to
        # 2^53 go through float64 unchanged; larger ones, and fractions, are refused below.
        self._take(self._table(np.fromiter(flat, dtype=np.float64, count=len(flat)).reshape(-1, width)))

    def _width_of(self, flat: list[Any]) -> int:
        width = len(self.schema)
        if len(flat) % width:
            raise ValueError(f"{self.path.name}: expected rows of {width} values, found {len(flat)} in all")
        return width

    def _table(self, values: np.ndarray) -> pa.Table:
        return pa.table([self._column(field, values[:, j]) for j, field in enumerate(self.schema)], schema=self.schema)

    def _column(self, field: pa.Field, values: np.ndarray) -> pa.Array:
        if pa.types.is_floating(field.type):
            return column_of(values, field.type)
        kind = np.dtype(field.type.to_pandas_dtype())
        fits = (np.abs(values) < min(2.0**53, float(np.iinfo(kind).max) + 1.0)) & (np.trunc(values) == values)
        if not fits.all():
            raise ValueError(f"{self.path.name}: {field.name}: expected {kind} numbers, found {values[~fits][0]!r}")
        return column_of(values.astype(kind), field.type)

    def _take(self, table: pa.Table) -> None:
        gaps = [field.name for field in self.schema if not field.nullable and table[field.name].null_count]
        if gaps:  # Parquet would silently write another value
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
            # Half a batch would hide all later ones.
            self._broken = True
            if self._sink is not None:
                self._sink.close()
                os.truncate(self._stream_path, size)
            raise self._refused(error) from error
        self._num_flushed += self._num_in_columns
        self._columns, self._num_in_columns = [], 0

    def _end_stream(self) -> None:
        if self._sink is not None and not self._sink.closed:
            self._sink.close()  # without an end mark: a stream ends with its last batch

    def _chunks(self) -> Iterator[pa.Table]:
        """Yield all rows in chunks of `rows_per_chunk`, however the rows arrived."""
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
            # A slice keeps the whole memory: copy the rest, which is less than a chunk.
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


class SharedRows:
    """Rows of the tables of a group of runs, equal but for some numbers.

    `tables` have one schema; table i gets the rows of setting i.
    """

    def __init__(self, tables: Sequence[TableWriter]) -> None:
        self._tables: list[TableWriter | None] = list(tables)
        self._first = tables[0]
        self._flat: list[Any] = []
        self._flat_limit = self._first.rows_per_chunk * len(self._first.schema)
        for table in tables:
            table._shared = self

    def append(self, row: Sequence[Any]) -> None:
        """Add one row, with its values in the order of the schema; some may be an `Each`."""
        flat = self._flat
        flat.extend(row)
        if len(flat) >= self._flat_limit:
            self.gather()

    def gather(self) -> None:
        """Give the rows so far to the tables."""
        if not self._flat:
            return
        flat, self._flat = self._flat, []
        width = self._first._width_of(flat)
        values, varied = array_of(flat, np.float64)
        common = self._first._table(values.reshape(-1, width))
        for setting, table in enumerate(self._tables):
            if table is None:
                continue
            own = common
            if varied is not None:
                numbers = varied.into(values, setting).reshape(-1, width)
                for column in np.unique(varied.places % width).tolist():
                    field = own.schema.field(column)
                    own = own.set_column(column, field, self._first._column(field, numbers[:, column]))
            table._take(own)

    def leave(self, table: TableWriter) -> None:
        """Let a table take no further rows."""
        self.gather()
        self._tables[self._tables.index(table)] = None
        table._shared = None


def cannot_write(what: str, path: Path, error: OSError) -> str:
    """Return the reason why a file was not written, in words."""
    if not path.parent.is_dir():
        return f"cannot write {what}: its folder is gone"
    return f"cannot write {what}: {os.strerror(error.errno) if error.errno else ' '.join(str(error).split())}"


def stream_of(path: Path) -> Path:
    """Return the path of a table's stream."""
    return path.with_suffix(STREAM)


def regular(path: Path) -> Path:
    """Return a path to read; ValueError for devices and pipes (may never end)."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError("found a device or a pipe, expected a file")
    return path


def read_flushed(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the complete batches of a stream, up to its end or the first damage."""
    try:
        with pa.OSFile(str(regular(path))) as file, pa.ipc.open_stream(file) as reader:
            for batch in reader:
                batch.validate()
                yield batch
    except (OSError, ValueError, pa.ArrowException):
        return


def _amended(rows: pa.Table, amend: Amend) -> pa.Table:
    for name, values in amend({column: values_of(rows[column]) for column in rows.column_names}).items():
        field = rows.schema.field(name)
        rows = rows.set_column(rows.schema.get_field_index(name), field, column_of(values, field.type))
    return rows


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give the path of a partial file, which replaces `path` at the end of the block.

    So the file is always either the old or the new one. If the block raises, the partial file is removed.
    """
    if path.is_dir():  # "." has no name to which an ending could be added
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        remove(partial)
        raise


def remove(path: Path) -> None:
    """Remove a file, if it exists and can be removed."""
    with contextlib.suppress(OSError):  # its folder is gone, or is not writable any more
        path.unlink(missing_ok=True)
