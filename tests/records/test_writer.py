import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.errors import RunError
from simfl.records import MESSAGES, SCHEMAS, UPDATES, TableWriter
from simfl.records.writer import read_flushed, replacing, stream_of

SCHEMA = pa.schema([pa.field("time_s", pa.float64(), nullable=False), pa.field("client", pa.int32(), nullable=False)])


def write(path, rows, rows_per_chunk=10):
    with TableWriter(path, SCHEMA, rows_per_chunk) as table:
        table.extend(rows)
    return path


@settings(max_examples=40, deadline=None)
@given(parts=st.lists(st.tuples(st.booleans(), st.integers(0, 35)), max_size=8), rows_per_chunk=st.integers(1, 20))
def test_rows_and_columns_in_any_order_of_calls_give_equal_files(tmp_path_factory, parts, rows_per_chunk):
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


def flushed(path):
    return [row for batch in read_flushed(stream_of(path)) for row in zip(*batch.to_pydict().values(), strict=True)]


def test_a_killed_process_leaves_what_it_flushed_and_the_previous_table(tmp_path):
    path = write(tmp_path / "table.parquet", [(1.0, 1)])
    before = path.read_bytes()
    code = f"""
        import os, signal
        from pathlib import Path
        from tests_schema import SCHEMA
        from simfl.records import TableWriter
        table = TableWriter(Path({str(path)!r}), SCHEMA, 4)
        table.extend([(2.0, 2)] * 9)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    (tmp_path / "tests_schema.py").write_text(
        "import pyarrow as pa\nSCHEMA = pa.schema([('time_s', pa.float64()), ('client', pa.int32())])\n"
    )
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    assert flushed(path) == [(2.0, 2)] * 8
    write(path, [(3.0, 3)] * 12, 4)  # files that the killed process left do no harm
    assert pd.read_parquet(path)["client"].tolist() == [3] * 12
    assert [name for name in os.listdir(tmp_path) if name.startswith("table")] == ["table.parquet"]


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=6), cut=st.integers(0, 400), flip=st.integers(-1, 10**6))
def test_a_stream_can_be_read_up_to_its_last_whole_batch(tmp_path_factory, sizes, cut, flip):
    path = tmp_path_factory.mktemp("table") / "table.parquet"
    table = TableWriter(path, SCHEMA)
    rows, ends, whole = [], [0], [0]
    for size in sizes:
        rows += [(0.5 * row, row) for row in range(len(rows), len(rows) + size)]
        table.extend(rows[ends[-1] :])
        table.flush()
        if size:
            ends.append(len(rows))
            whole.append(stream_of(path).stat().st_size)
        if rows:
            assert flushed(path) == rows, "also while it is being written"
    stream = stream_of(path)
    if rows:
        kept = max(0, stream.stat().st_size - cut)
        os.truncate(stream, kept)
        assert flushed(path) == rows[: max(end for end, size in zip(ends, whole, strict=True) if size <= max(kept, 0))]
        if flip >= 0 and kept:
            content = bytearray(stream.read_bytes())
            content[flip % kept] ^= 0x41
            stream.write_bytes(content)
            assert len(flushed(path)) <= len(rows), "no error, whatever is left"
    table.abort()
    assert not stream.exists()


def test_the_time_of_flushes_does_not_change_the_table(tmp_path):
    rows = [(0.5 * row, row) for row in range(57)]
    expected = write(tmp_path / "plain.parquet", rows).read_bytes()
    for every in (1, 7, 10, 56):
        with TableWriter(tmp_path / "flushed.parquet", SCHEMA, 10) as table:
            for number, row in enumerate(rows, start=1):
                table.append(row)
                if number % every == 0:
                    table.flush()
        assert (tmp_path / "flushed.parquet").read_bytes() == expected
    assert sorted(os.listdir(tmp_path)) == ["flushed.parquet", "plain.parquet"]


def test_final_values_are_written_into_flushed_rows(tmp_path):
    table = TableWriter(tmp_path / "table.parquet", SCHEMA, 10)
    table.extend((0.5 * row, row) for row in range(25))
    table.flush()
    table.close(lambda rows: {"time_s": np.where(rows["client"] > 20, -1.0, rows["time_s"])})
    stored = pd.read_parquet(tmp_path / "table.parquet")
    assert stored["time_s"].tolist() == [0.5 * row if row <= 20 else -1.0 for row in range(25)]


@pytest.fixture
def limit():
    """A function that sets the largest size of this process's files, in bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_loses_nothing_that_was_flushed(tmp_path, limit):
    rng = np.random.default_rng(1)
    rows = [(float(time_s), client) for client, time_s in enumerate(rng.random(20_000))]
    path = tmp_path / "table.parquet"
    table = TableWriter(path, SCHEMA, 1000)
    limit(100_000)
    with pytest.raises(RunError, match=r"table\.parquet: cannot write the table: File too large; what was written"):
        table.extend(rows)
    kept = flushed(path)
    assert len(kept) >= 7000
    assert kept == rows[: len(kept)]
    limit(20_000)
    with pytest.raises(RunError, match="File too large"):
        table.close()
    assert flushed(path) == kept
    assert os.listdir(tmp_path) == ["table.arrows"]


def test_a_deleted_folder_is_one_line(tmp_path):
    (tmp_path / "run").mkdir()
    table = TableWriter(tmp_path / "run" / "table.parquet", SCHEMA)
    table.append((1.0, 1))
    table.flush()
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(RunError, match=r"table\.parquet: cannot write the table: its folder is gone"):
        table.close()


def test_rows_of_the_wrong_shape_or_type_are_refused(tmp_path):
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
    assert table.num_rows == 320_000


def test_a_folder_is_not_replaced_by_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (Path(), tmp_path, Path("/")):
        with pytest.raises(IsADirectoryError), replacing(path):
            pass
    assert not list(tmp_path.iterdir())
