import hashlib
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from simfl.errors import DataError
from simfl.records import TableWriter
from simfl.records.tables import Columns, digest_table, read_table
from tests.records.test_writer import write


def test_the_digest_depends_on_values_not_on_encoding(tmp_path):
    rows = [(0.1 * row, row) for row in range(100)]
    small = write(tmp_path / "small.parquet", rows, 7)
    large = write(tmp_path / "large.parquet", rows, 1000)
    assert small.read_bytes() != large.read_bytes()
    assert digest_table(small) == digest_table(large)
    rows[50] = (np.nextafter(rows[50][0], 1), 50)
    assert digest_table(write(tmp_path / "other.parquet", rows)) != digest_table(small)
    assert digest_table(small, skip=["time_s"]) == digest_table(tmp_path / "other.parquet", skip=["time_s"])


def test_the_digest_treats_all_nan_alike_and_skips_host_times(tmp_path):
    schema = pa.schema([("loss", pa.float64()), ("wall_s", pa.float64())])
    odd = np.frombuffer(np.uint64(0xFFF8000000000001).tobytes(), np.float64)[0]
    digests = []
    for loss, wall_s in [(np.nan, 1.0), (odd, 2.0)]:
        with TableWriter(tmp_path / "t.parquet", schema) as table:
            table.extend_columns({"loss": np.array([loss]), "wall_s": np.array([wall_s])})
        digests.append(digest_table(tmp_path / "t.parquet"))
    assert digests[0] == digests[1]
    assert len(digests[0]) == len(hashlib.sha256().hexdigest())


def test_an_empty_table_keeps_its_further_columns(tmp_path):
    """A run whose users were in no release has a table of cohorts without rows, and a column of users."""
    required = pa.schema([("time_s", pa.float64())])
    with TableWriter(tmp_path / "t.parquet", required.append(pa.field("user", pa.int32()))):
        pass
    rows = read_table(tmp_path / "t.parquet", required, digest_table(tmp_path / "t.parquet"))
    assert (rows.column_names, rows.num_rows) == (["time_s", "user"], 0)


@pytest.fixture
def long(tmp_path, monkeypatch):
    """The path of a table of more rows than are read at once: 100 rows in groups of 7."""
    monkeypatch.setattr("simfl.records.tables.ROWS_PER_CHUNK", 20)
    return write(tmp_path / "long.parquet", [(0.1 * row, row) for row in range(100)], 7)


def test_a_long_table_read_in_parts_equals_the_whole(long):
    schema = pq.read_schema(long)
    columns, whole = Columns(long, schema, digest_table(long)), pq.read_table(long)
    assert (len(columns), columns.names) == (100, schema.names)
    for name in schema.names:
        np.testing.assert_array_equal(columns[name], whole[name])
        assert columns[name].dtype == whole[name].to_numpy().dtype
    rows = whole.to_pylist()
    assert [columns.row(index) for index in (0, 6, 7, 98, 99, -1)] == [rows[i] for i in (0, 6, 7, 98, 99, -1)]
    with pytest.raises(IndexError):
        columns.row(100)
    thinned = columns.thinned()
    np.testing.assert_array_equal(thinned[schema.names[1]], [*range(0, 100, 5), 99])
    np.testing.assert_array_equal(thinned[schema.names[0]], columns[schema.names[0]][[*range(0, 100, 5), 99]])


def test_a_long_table_that_is_not_what_the_run_wrote_is_refused(long):
    schema = pq.read_schema(long)
    with pytest.raises(DataError, match="the table is damaged: it is not what the run wrote"):
        Columns(long, schema, "another")
    with pytest.raises(DataError, match="the table lacks the columns other"):
        Columns(long, pa.schema([*schema, ("other", pa.float64())]))
    gaps = [pa.array([None if row == 50 else row for row in range(100)], field.type) for field in schema]
    kind = pa.schema([pa.field(field.name, field.type) for field in schema])
    pq.write_table(pa.table(gaps, kind), long)
    with pytest.raises(DataError, match=f"lacks values in the columns {schema.names[0]}"):
        Columns(long, kind)[schema.names[0]]
    long.write_bytes(long.read_bytes()[:-20])
    with pytest.raises(DataError, match="cannot read the table"):
        Columns(long, schema)


def test_a_pipe_in_place_of_a_table_is_one_line(tmp_path):
    schema = pa.schema([("loss", pa.float64())])
    for name in ("t.parquet", "u.arrows"):
        os.mkfifo(tmp_path / name)
    for reader in (read_table, Columns):
        with pytest.raises(DataError, match=r"t\.parquet: cannot read the table: found a device or a pipe"):
            reader(tmp_path / "t.parquet", schema)
        assert len(reader(tmp_path / "u.parquet", schema)) == 0
