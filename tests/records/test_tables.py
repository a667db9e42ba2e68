import hashlib

import numpy as np
import pyarrow as pa

from simfl.records import TableWriter
from simfl.records.tables import digest_table
from tests.records.test_writer import write


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
