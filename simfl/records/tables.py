"""The tables of a run: columns, digests, and reading parts of a table.

Times end in `_s` and are virtual seconds, except `wall_s`, host seconds. NaN means undefined, such as the accuracy of a
regression or the epsilon of a run without noise.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from simfl.errors import DataError, printable
from simfl.records.writer import ROWS_PER_CHUNK, read_flushed, regular, stream_of, values_of


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

The final epsilon, in the last row, is as tight as is affordable, as in `clients`. Earlier ones are upper bounds: the
smaller of the fast Renyi accountant's and the final one.
"""

GRADIENTS = _schema(gradient_norm=_REAL, clipped_share=_REAL, clipping_norm=_REAL)
"""Additional columns of `metrics` for `evaluate.gradients`, measured on the first N training examples.

gradient_norm is the L2 norm of their mean gradient, clipped as in the run, without noise and penalty; clipped_share is
the share of their gradients longer than clipping_norm, the current one. Without clipping, clipped_share is 0 and
clipping_norm NaN. If the run clips whole updates, clipping_norm is that of updates and clipped_share is NaN.
"""

ADAPTED = _schema(clipping_norm=_REAL)
"""An additional column of `metrics` for an adaptive norm: that of the next sum."""

VALIDATION = ("validation_loss", "validation_accuracy")
"""Additional columns of `metrics` with `data.validation`; each metric of the model has one with this prefix, too."""

OWN = (
    "own_accuracy", "own_accuracy_weighted", "own_accuracy_worst", "own_accuracy_seen", "own_accuracy_unseen",
    "own_loss", "own_loss_worst",
)  # fmt: skip
"""Additional columns of `metrics` with `evaluate.clients: own`, see `simfl.tape.problem.OwnTests.summary`."""

SPENT = ("energy_j", "money", "carbon_g")
"""Additional columns of `metrics` with `costs`: joules, currency, grams of CO2 equivalent so far."""

TAKEN = (
    *METRICS.names, *GRADIENTS.names, *VALIDATION, *OWN, *SPENT,
    "label", "runs", "diverged", "target", "reached", "evaluations", "baseline",
)  # fmt: skip
"""Names that a user's metric cannot have, because tables or comparisons use them."""


def further_metrics(gradients: bool, names: Iterable[str], adapted: bool = False) -> pa.Schema:
    """Return the additional columns of `metrics`: `GRADIENTS` or `ADAPTED`, others."""
    measured = GRADIENTS if gradients else ADAPTED if adapted else ()
    return pa.schema([*measured, *_schema(**dict.fromkeys(names, _REAL))])


CLIENT_METRICS = _schema(time_s=_SECONDS, updates=_COUNT, client=_CLIENT, test_accuracy=_REAL, test_loss=_REAL)
"""One row per client and evaluation of each client's own model (`evaluate.clients`).

With `evaluate.clients: own`, each model is tested on the client's own test examples; NaN for a client without any.
"""

DISTANCE = _schema(consensus_distance=_REAL)
"""An additional column of `client_metrics`: the L2 distance of the client's model from the average model.

If the average model is that of the clients, the root mean square of this column is `consensus_distance` of `metrics`.
"""

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
"""One row per update in order of application; peer is -1 without one, noise_std is that of the noise on the sum.

With an adaptive clipping norm, noise_std is NaN: it is a multiple of clipping_norm of `metrics`.
"""

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
"""One row per client: examples, updates, use of time, bytes sent, and privacy spent.

dropped counts updates that a server rejected as too stale. exhausted_s is the time when the privacy budget did not
allow another release; NaN if that never happened.
"""

USER = _schema(user=_CLIENT)
"""The additional column of `clients` and `cohorts` with `clients.users`: the user that owns the client."""

OF_CLIENTS = pa.schema([*_schema(device=pa.string(), attacker=pa.bool_(), early=_COUNT), *USER])
"""Additional columns of `clients` that some scenarios have.

device is the name of the client's device from a file (`clients.devices`). attacker says whether the client is one of
the `attackers`. early counts updates that came too early for the next sum (`privacy.participation`): they were thrown
away, and are also counted in dropped. user is that of `USER`.
"""


def further_of_clients(names: Iterable[str]) -> pa.Schema:
    """Return the additional columns of `clients` with these names, in their order."""
    return pa.schema([OF_CLIENTS.field(name) for name in names])


AGGREGATION = _schema(time_s=_SECONDS, receiver=_CLIENT, sender=_CLIENT, messages=_COUNT, accepted=_REAL)
"""One row per evaluation, receiver and sender that it heard since the last one (`aggregation`).

messages counts what the rule took from the sender. accepted is how much of it counted, the mean over these messages: 1
all, 0 nothing; what is between depends on the rule (docs/robust.md). NaN if the rule does not say. A server has the
number after the last client's; -1 stands for all learners of SYNC, which get the same result.
"""

MESSAGES = _schema(sent_s=_SECONDS, delivered_s=_SECONDS, source=_CLIENT, target=_CLIENT, bytes=_COUNT, resends=_CLIENT)
"""One row per message in order of delivery (`record.messages`)."""

RELEASES = _schema(client=_CLIENT, batch_size=_COUNT, sampling_rate=_REAL, level=_REAL, count=_COUNT)
"""One row per client and kind of noisy release: the input of the ledger's composition.

batch_size is nominal; level is the noise multiplier, or the epsilon of one release of a pure mechanism.
"""

COHORTS = _schema(release=_COUNT, time_s=_SECONDS, client=_CLIENT, updates=_COUNT)
"""One row per release of a server's sum of updates and user in it, with `privacy.unit: user`.

release counts sums from 0; one that nobody was in has no row. A secure sum that was aborted is a release if the server
may learn it all the same. updates is the number of the client's updates in the sum.
If users own several clients (`clients.users`), there is a row for each client, and a column user.
"""

SECURE_SUMS = _schema(
    sum=_COUNT,
    began_s=_SECONDS,
    time_s=_SECONDS,
    keys=_COUNT,
    shares=_COUNT,
    masked=_COUNT,
    unmasking=_COUNT,
    members=_COUNT,
    bytes=_COUNT,
)
"""One row per secure sum of updates (`algorithm.secure_sum`), in order of time, with aborted ones.

keys to unmasking are the clients that answered in each round of messages; members are those in the sum, 0 if it was
aborted. bytes counts the payloads to the clients that a round asked and from those that answered in time. With masks
that are exchanged beforehand, keys and masked are the updates in the buffer, and shares the clients with pieces of all.
"""

USES = _schema(client=_CLIENT, copies=_COUNT, count=_COUNT)
"""For releases from shuffled data: an example of the client is `copies` times in each of `count` releases.

This is the maximum, by the released batches; rows of a client add up, and so do its tasks.
"""

CLIENT_EPSILON = _schema(time_s=_SECONDS, client=_CLIENT, releases=_COUNT, epsilon=_REAL)
"""One row per client and evaluation with a certified epsilon: what was spent so far.

Final ones are as tight as is affordable, as in `clients`; earlier ones are upper bounds by the Renyi accountant.
"""

ACTIVITIES = ("compute", "lost", "wait", "communicate", "offline")
"""A client's activities by their number in `timeline`; lost is computation that a crash discarded."""

TIMELINE = _schema(client=_CLIENT, start_s=_SECONDS, end_s=_SECONDS, activity=_CLIENT)
"""One row per interval of a client's time (`record.timeline`), roughly in order of time.

activity is an index into ACTIVITIES. Intervals of one client do not overlap.
"""

EDGES = _schema(source=_CLIENT, target=_CLIENT)
"""One row per pair of communicating clients; a server has the number after the last client's.

For a changing graph: all links of a sequence or a contact plan, or the first graph if graphs are redrawn.
"""

MOST_EDGES = 100_000
"""Larger graphs are not written: they are not drawn, and the scenario defines them."""

SCHEMAS: dict[str, pa.Schema] = {
    "metrics": METRICS,
    "updates": UPDATES,
    "clients": CLIENTS,
    "messages": MESSAGES,
    "client_metrics": CLIENT_METRICS,
    "releases": RELEASES,
    "uses": USES,
    "cohorts": COHORTS,
    "secure_sums": SECURE_SUMS,
    "client_epsilon": CLIENT_EPSILON,
    "timeline": TIMELINE,
    "aggregation": AGGREGATION,
}
"""Tables with measurements; the run's digest covers them."""

UNDIGESTED: dict[str, pa.Schema] = {"edges": EDGES}
"""Tables that follow from the scenario alone, kept so that figures need only tables."""

WALL_CLOCK_COLUMNS = ("wall_s",)
"""Columns that differ between two runs of the same scenario."""


def read_table(path: Path, schema: pa.Schema, digest: str = "") -> pa.Table:
    """Read a whole table, or the flushed rows of an incomplete one.

    `schema` has the required columns, `digest` is that of the rows, if known. DataError if the table cannot be read, or
    if its content is wrong.
    """
    if not path.exists():
        return _whole(path, schema, list(read_flushed(stream_of(path))))
    with _opened(path) as file:
        rows = file.read()
    _check_columns(path, rows.schema, schema)
    rows = _whole(path, schema, rows.to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)])
    if digest and digest_batches(rows.schema, rows.to_batches(ROWS_PER_CHUNK)) != digest:
        raise _damaged(path)
    return rows


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(regular(path)) as file:
            yield file
    except DataError:
        raise
    except Exception as error:  # pyarrow raises a dozen kinds, and its reference names none of them
        reason = printable(" ".join(str(error).split()) or type(error).__name__)
        raise DataError(f"{path}: cannot read the table: {reason}") from error


class Columns:
    """A table that is read one column at a time; a long one need not fit into memory.

    Tables of up to `ROWS_PER_CHUNK` rows and incomplete ones are read at once. See `read_table`.
    """

    def __init__(self, path: Path, schema: pa.Schema, digest: str = "") -> None:
        self._path = path
        self._whole: pa.Table | None = None
        self._rows = 0
        if path.exists():
            with _opened(path) as file:
                self._rows, self._schema = file.metadata.num_rows, file.schema_arrow
        if self._rows <= ROWS_PER_CHUNK:
            self._whole = read_table(path, schema, digest)
            self._rows, self._schema = len(self._whole), self._whole.schema
            return
        _check_columns(path, self._schema, schema)
        if digest:
            with _opened(path):
                if digest_table(path) != digest:
                    raise _damaged(path)

    def __len__(self) -> int:
        return self._rows

    @property
    def names(self) -> list[str]:
        """Names of the columns in order."""
        return list(self._schema.names)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if self._whole is not None:
            return values_of(self._whole[name])
        values = np.empty(self._rows, self._schema.field(name).type.to_pandas_dtype())
        begin = 0
        with _opened(self._path) as file:
            for group in range(file.num_row_groups):
                part = file.read_row_group(group, columns=[name], use_threads=False)
                if part[name].null_count:
                    raise DataError(f"{self._path}: the table lacks values in the columns {name}; run it again")
                values[begin : begin + len(part)] = part[name]
                begin += len(part)
        return values

    def row(self, index: int) -> dict[str, Any]:
        """Return one row by its number, -1 for the last; IndexError without it."""
        at = range(self._rows)[index]
        if self._whole is not None:
            rows = self._whole.slice(at, 1)
        else:
            with _opened(self._path) as file:
                ends = np.cumsum([file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)])
                group = int(np.searchsorted(ends, at, side="right"))
                rows = file.read_row_group(group).slice(at - ends[group] + file.metadata.row_group(group).num_rows, 1)
        values: dict[str, Any] = rows.to_pylist()[0]
        return values

    def thinned(self) -> dict[str, NDArray[Any]]:
        """Return all columns, thinned to about `ROWS_PER_CHUNK` rows and the last."""
        if self._whole is not None:
            return {name: self[name] for name in self.names}
        step = -(-self._rows // ROWS_PER_CHUNK)
        kept = np.unique(np.append(np.arange(0, self._rows, step), self._rows - 1))
        parts, begin = [], 0
        with _opened(self._path) as file:
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, use_threads=False)
                parts.append(rows.take(kept[(kept >= begin) & (kept < begin + len(rows))] - begin))
                begin += len(rows)
        return {name: values_of(column) for name, column in zip(self.names, pa.concat_tables(parts), strict=True)}


def _damaged(path: Path) -> DataError:
    return DataError(f"{path}: the table is damaged: it is not what the run wrote; run it again")


def read_between(
    path: Path, schema: pa.Schema, first: str, last: str, begin: float, end: float
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows whose interval [first, last] touches [begin, end].

    Row groups without such rows are skipped by their statistics. Of an incomplete table, the flushed rows are read. See
    `read_table` for errors.
    """
    start, stop = schema.names.index(first), schema.names.index(last)
    batches = read_flushed(stream_of(path)) if not path.exists() else _between(path, schema, first, last, begin, end)
    for batch in batches:
        part = _whole(path, schema, [batch]).select(schema.names)
        for row in zip(*(column.to_pylist() for column in part.columns), strict=True):
            if row[start] <= end and row[stop] >= begin:
                yield row


def _between(
    path: Path, schema: pa.Schema, first: str, last: str, begin: float, end: float
) -> Iterator[pa.RecordBatch]:
    with _opened(path) as file:
        _check_columns(path, file.schema_arrow, schema)
        names = file.schema_arrow.names
        for group in range(file.num_row_groups):
            row_group = file.metadata.row_group(group)
            earliest = row_group.column(names.index(first)).statistics
            latest = row_group.column(names.index(last)).statistics
            if earliest is None or latest is None or (earliest.min <= end and latest.max >= begin):
                yield from file.read_row_group(group).to_batches(max_chunksize=8192)


def _check_columns(path: Path, actual: pa.Schema, schema: pa.Schema) -> None:
    missing = [column for column in schema.names if actual.names.count(column) != 1]
    if missing:
        raise DataError(f"{path}: the table lacks the columns {', '.join(missing)}; run it again")
    for field in actual:
        source = schema if field.name in schema.names else OF_CLIENTS
        expected = source.field(field.name).type if field.name in source.names else pa.float64()
        if field.type != expected:
            raise DataError(
                f"{path}: {printable(field.name)}: expected a column of {expected}, found {field.type}; run it again"
            )


def _whole(path: Path, schema: pa.Schema, batches: list[pa.RecordBatch]) -> pa.Table:
    rows = pa.Table.from_batches(batches, batches[0].schema if batches else schema)
    _check_columns(path, rows.schema, schema)
    gaps = [name for name in rows.column_names if rows[name].null_count]
    if gaps:
        raise DataError(f"{path}: the table lacks values in the columns {', '.join(gaps)}; run it again")
    return rows


def digest_table(path: Path, skip: Iterable[str] = WALL_CLOCK_COLUMNS) -> str:
    """Return the SHA-256 of a table's column names, types and values, in hexadecimal.

    It does not depend on the encoding, so it is comparable across versions of Parquet. Columns in `skip` are left out,
    by default those with the host's time.
    """
    with pq.ParquetFile(regular(path)) as file:
        names = [name for name in file.schema_arrow.names if name not in set(skip)]
        batches = file.iter_batches(ROWS_PER_CHUNK, columns=names, use_threads=False)
        return digest_batches(file.schema_arrow, batches, skip)


def digest_batches(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], skip: Iterable[str] = WALL_CLOCK_COLUMNS
) -> str:
    """Return the digest of a table from its batches; see `digest_table`."""
    skipped = set(skip)
    hashes = {
        field.name: hashlib.sha256(f"{field.name}:{field.type};".encode())
        for field in schema
        if field.name not in skipped
    }
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name in skipped:
                continue
            values = values_of(column)
            if values.dtype == object:
                hashes[name].update("".join(f"{len(text)}:{text};" for text in values).encode())
                continue
            if np.issubdtype(values.dtype, np.floating):
                values = np.where(np.isnan(values), np.nan, values)  # one bit pattern for all NaN
            hashes[name].update(np.ascontiguousarray(values).data)
    return hashlib.sha256("".join(hasher.hexdigest() for hasher in hashes.values()).encode()).hexdigest()
