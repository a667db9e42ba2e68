"""Report a run whose table of metrics has millions of rows, and measure what that takes.

    python docs/check_report.py                  # 5,000,000 rows: 200 MB on the disk, a minute
    python docs/check_report.py --rows 100000

It makes a short run, writes a long table of metrics into its folder in chunks, and reports it in a process of its own.
It prints CPU time and peak memory of `simfl report`, beside those of the report of the run as it was. Exits with 1 if
the report takes more memory than twice the table's columns of numbers, or fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

CHUNK = 500_000
SCENARIO = {
    "clients": {"count": 4, "seconds_per_example": "1 ms"},
    "algorithm": {"kind": "adpsgd", "batch_size": 8},
    "stop": {"updates": 40},
    "evaluate": {"every": {"updates": 20}},
}


def apart(work: Callable[..., None], *arguments: object) -> None:
    """Do something in another process: what this one has in memory counts as a part of its children's peaks."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{work.__name__} failed")


def make_run(root: str) -> None:
    """Make a short run, `<root>/long/001`."""
    import simfl

    simfl.run({**SCENARIO, "name": "long"}, out=root)


def write_metrics(folder: Path, rows: int) -> None:
    """Replace the table of metrics by one of so many evaluations, and enter its digest in the manifest."""
    import numpy as np

    from simfl.records import RunFolder
    from simfl.records.folder import combine_digests

    run = RunFolder(folder)
    generator = np.random.default_rng(0)
    with run.table("metrics") as table:
        for begin in range(0, rows, CHUNK):
            at = np.arange(begin, min(begin + CHUNK, rows), dtype=np.float64)
            noise = generator.normal(scale=0.01, size=len(at))
            falling = 2.3 * np.exp(-at / rows * 5)
            columns = {
                "time_s": at * 1e-3,
                "updates": at * 10,
                "epochs": at * 1e-2,
                "rounds": at // 4,
                "train_loss": falling + np.abs(noise),
                "test_loss": falling + 0.1 + np.abs(noise),
                "test_accuracy": np.clip(1 - falling / 2.5 + noise, 0, 1),
                "consensus_distance": 1 / (1 + at),
                "bytes_sent": at * 1000,
                "messages": at * 2,
                "epsilon": np.full(len(at), np.nan),
                "wall_s": at * 1e-4,
            }
            types = {field.name: field.type.to_pandas_dtype() for field in table.schema}
            table.extend_columns({name: values.astype(types[name]) for name, values in columns.items()})
    manifest = run.read_manifest()
    tables = run.digests()
    run.write_manifest(dataclasses.replace(manifest, tables=tables, digest=combine_digests(tables)))


def report(folder: Path) -> tuple[int, float, float]:
    """Report a run in a process of its own; return its exit code, CPU seconds and peak memory in MiB."""
    command = [sys.executable, "-m", "simfl", "report", str(folder), "-o", str(folder / "report.html")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> int:
    """Take the arguments, write, report and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000, help="of the table of metrics (default: 5,000,000)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="simfl-report-") as root:
        folder = Path(root) / "long" / "001"
        apart(make_run, root)
        short = report(folder)
        print(f"as it was: exit {short[0]}, {short[1]:.1f} s of CPU time, {short[2]:,.0f} MiB", flush=True)
        apart(write_metrics, folder, asked.rows)
        size = (folder / "metrics.parquet").stat().st_size / 2**20
        code, cpu_s, peak = report(folder)
        print(f"{asked.rows:,} rows, {size:,.0f} MiB: exit {code}, {cpu_s:.1f} s of CPU time, {peak:,.0f} MiB")
        return int(code != 0 or peak - short[2] > 2 * asked.rows * 8 * 12 / 2**20)


if __name__ == "__main__":
    sys.exit(main())
