import hashlib
import os
import resource
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.records import MESSAGES, SCHEMAS, UPDATES, TableWriter
from simfl.records.tables import digest_table

SCHEMA = pa.schema([pa.field("time_s", pa.float64(), nullable=False), pa.field("client", pa.int32(), nullable=False)])


def write(path, rows, rows_per_chunk=10):
    with TableWriter(path, SCHEMA, rows_per_chunk) as table:
        table.extend(rows)
    return path


@settings(max_examples=40, deadline=None)
@given(
    parts=st.lists(st.tuples(st.booleans(), st.integers(0, 35)), max_size=8),
    rows_per_chunk=st.integers(1, 20),
)
def test_rows_and_columns_in_any_mixture_give_the_same_file(tmp_path_factory, parts, rows_per_chunk):
    folder = tmp_path_factory.mktemp("table")
    count = sum(size for _, size in parts)
    rows = [(0.5 * row, row) for row in range(count)]
    expected = write(folder / "rows.parquet", rows, rows_per_chunk)
    start = 0
    with TableWriter(folder / "mixed.parquet", SCHEMA, rows_per_chunk) as table:
        for as_columns, size in parts:
            piece = np.arange(start, start + size)
            if as_columns:
                table.extend_columns({"time_s": 0.5 * piece, "client": piece})
            else:
                table.extend(rows[start : start + size])
            start += size
    assert (folder / "mixed.parquet").read_bytes() == expected.read_bytes()
    frame = pd.read_parquet(expected)
    assert frame["client"].tolist() == list(range(count))
    assert frame["time_s"].tolist() == [0.5 * row for row in range(count)]
    file = pq.ParquetFile(expected)
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    assert sizes[:-1] == [rows_per_chunk] * (len(sizes) - 1)


@pytest.mark.parametrize("name", SCHEMAS)
def test_an_empty_table_keeps_its_columns(tmp_path, name):
    path = tmp_path / "table.parquet"
    TableWriter(path, SCHEMAS[name]).close()
    assert pd.read_parquet(path).columns.tolist() == SCHEMAS[name].names


def test_types_survive_into_pandas(tmp_path):
    path = tmp_path / "updates.parquet"
    with TableWriter(path, UPDATES) as table:
        table.append((0.25, 3, -1, 7, np.int64(2), 32, np.float32(0.5), 0.0))
    frame = pd.read_parquet(path)
    assert frame.dtypes.astype(str).to_dict() == {
        "time_s": "float64", "client": "int32", "peer": "int32", "round": "int64", "staleness": "int64",
        "sample_size": "int32", "step_size": "float64", "noise_std": "float64",
    }  # fmt: skip
    assert frame.iloc[0].to_dict() == {
        "time_s": 0.25, "client": 3, "peer": -1, "round": 7, "staleness": 2,
        "sample_size": 32, "step_size": 0.5, "noise_std": 0.0,
    }  # fmt: skip


def test_an_open_or_aborted_table_leaves_the_previous_one(tmp_path):
    path = write(tmp_path / "table.parquet", [(1.0, 1)])
    before = path.read_bytes()
    table = TableWriter(path, SCHEMA, 2)
    table.extend([(2.0, 2)] * 5)
    assert path.read_bytes() == before
    table.abort()
    assert path.read_bytes() == before
    with pytest.raises(KeyError), TableWriter(path, SCHEMA) as table:
        table.append({"no": "row"}[0])
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["table.parquet"]


def test_a_killed_process_leaves_the_previous_table(tmp_path):
    path = write(tmp_path / "table.parquet", [(1.0, 1)])
    before = path.read_bytes()
    code = f"""
        import os, signal
        from pathlib import Path
        from tests_schema import SCHEMA
        from simfl.records import TableWriter
        table = TableWriter(Path({str(path)!r}), SCHEMA, 2)
        table.extend([(2.0, 2)] * 9)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    (tmp_path / "tests_schema.py").write_text(
        "import pyarrow as pa\nSCHEMA = pa.schema([('time_s', pa.float64()), ('client', pa.int32())])\n"
    )
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    write(path, [(3.0, 3)])  # what the killed one left beside it is in nobody's way
    assert pd.read_parquet(path)["client"].tolist() == [3]
    assert not list(tmp_path.glob("*.partial"))


def test_rows_of_the_wrong_shape_or_type_are_not_written_in_silence(tmp_path):
    path = tmp_path / "table.parquet"
    for bad in [(1.0, 1, 1), (1.0,), (1.0, 0.5), (1.0, None)]:
        with pytest.raises((ValueError, TypeError)):
            write(path, [(0.0, 0), bad])
        assert os.listdir(tmp_path) == []
    with (
        pytest.raises(
            ValueError, match=r"table\.parquet: expected the columns \['time_s', 'client'\], found \['client'\]"
        ),
        TableWriter(path, SCHEMA) as table,
    ):
        table.extend_columns({"client": np.arange(3)})
    with pytest.raises(ValueError, match="rows_per_chunk: expected at least 1, found 0"):
        TableWriter(path, SCHEMA, 0)


def test_memory_does_not_grow_with_the_rows(tmp_path):
    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with TableWriter(tmp_path / "messages.parquet", MESSAGES, 4096) as table:
        table.extend((0.001 * row, 0.001 * row + 1, row % 64, row % 63, 1000, 0) for row in range(20_000))
        before = peak()
        table.extend((0.001 * row, 0.001 * row + 1, row % 64, row % 63, 1000, 0) for row in range(300_000))
        assert peak() - before < 24_000  # KiB; the rows themselves would be some 80,000
    assert table.num_rows_written == 320_000


def test_the_digest_sees_values_and_not_how_they_were_packed(tmp_path):
    rows = [(0.1 * row, row) for row in range(100)]
    small = write(tmp_path / "small.parquet", rows, 7)
    large = write(tmp_path / "large.parquet", rows, 1000)
    assert small.read_bytes() != large.read_bytes()
    assert digest_table(small) == digest_table(large)
    rows[50] = (np.nextafter(rows[50][0], 1), 50)
    assert digest_table(write(tmp_path / "other.parquet", rows)) != digest_table(small)
    assert digest_table(small, skip=["time_s"]) == digest_table(tmp_path / "other.parquet", skip=["time_s"])


def test_the_digest_knows_one_nan_and_skips_the_wall_clock(tmp_path):
    schema = pa.schema([("loss", pa.float64()), ("wall_s", pa.float64())])
    odd = np.frombuffer(np.uint64(0xFFF8000000000001).tobytes(), np.float64)[0]
    digests = []
    for loss, wall_s in [(np.nan, 1.0), (odd, 2.0)]:
        with TableWriter(tmp_path / "t.parquet", schema) as table:
            table.extend_columns({"loss": np.array([loss]), "wall_s": np.array([wall_s])})
        digests.append(digest_table(tmp_path / "t.parquet"))
    assert digests[0] == digests[1]
    assert len(digests[0]) == len(hashlib.sha256().hexdigest())
