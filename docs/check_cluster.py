"""Kill a Dask worker, then the scheduler, under a sweep; compare what is left with a sweep that nobody disturbed.

    python docs/check_cluster.py

It starts a scheduler and two workers on this machine, and sweeps over them twice. In the first sweep one worker is
ended by SIGKILL: the sweep has to finish, and no temporary folder may stay. In the second the scheduler is ended by
SIGKILL: the sweep has to exit with 1 and one line, the runs that were done have to stay as they are, and the same
command on this machine has to finish without repeating one. Tables must be those of an undisturbed sweep. Exits with 1
otherwise.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STUDY = """
name: small
base:
  seed: 1
  clients: {count: 8, seconds_per_example: 1 ms}
  algorithm: {kind: adpsgd, batch_size: 8, step_size: 0.5}
  stop: {updates: 4000}
  evaluate: {every: {updates: 500}}
seeds: 6
"""
DASK = [sys.executable, "-m", "distributed.cli.dask_scheduler"], [sys.executable, "-m", "distributed.cli.dask_worker"]
WAIT_S = 300


def environment(scratch: Path) -> dict[str, str]:
    """Return the environment of all processes: their temporary folders are below `scratch`."""
    return {**os.environ, "TMPDIR": str(scratch), "JAX_PLATFORMS": "cpu", "DASK_LOGGING__DISTRIBUTED": "error"}


def wait_for(what: str, is_so: Any) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {WAIT_S} s")
        time.sleep(0.02)


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes], list[subprocess.Popen[bytes]]]]:
    """Start a scheduler and two workers, and end them; yield the address and the processes."""
    import json

    scratch = folder / "tmp"
    scratch.mkdir(exist_ok=True)
    about = folder / "scheduler.json"
    about.unlink(missing_ok=True)
    common: dict[str, Any] = {"env": environment(scratch), "cwd": folder, "stderr": subprocess.DEVNULL}
    scheduler = subprocess.Popen(
        [*DASK[0], "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(about)], **common
    )
    wait_for("the scheduler", about.exists)
    address = json.loads(about.read_text())["address"]
    # Without a nanny, so that the process that is killed is the one that computes.
    worker = [*DASK[1], address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(scratch)]
    workers = [subprocess.Popen(worker, **common) for _ in range(2)]
    try:
        yield address, scheduler, workers
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()


def sweep(folder: Path, out: str, *words: str) -> subprocess.Popen[str]:
    """Begin a sweep."""
    command = [sys.executable, "-m", "simfl", "sweep", "small.yaml", "--out", out, *words]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def done(folder: Path) -> dict[str, tuple[str, int]]:
    """Return digest and time of writing of every run that is done."""
    import simfl

    found = {}
    for path in folder.glob("small/*/manifest.json"):
        manifest = simfl.read(path.parent).manifest
        if manifest.status == "done":
            found[path.parent.name] = manifest.digest, path.stat().st_mtime_ns
    return found


def computing(scratch: Path) -> list[Path]:
    """Return the temporary folders of runs on workers."""
    return [path for path in scratch.glob("simfl-*") if path.is_dir()]


def main() -> int:
    """Sweep three times, and compare."""
    wrong = []

    def expect(is_so: bool, what: str) -> None:
        print(f"{'ok ' if is_so else 'NOT'} {what}", flush=True)
        if not is_so:
            wrong.append(what)

    with tempfile.TemporaryDirectory(prefix="simfl-check-") as name:
        folder = Path(name)
        scratch = folder / "tmp"
        (folder / "small.yaml").write_text(STUDY)
        alone = sweep(folder, "alone", "--jobs", "1", "--quiet")
        alone.communicate(timeout=WAIT_S)
        expected = {run: digest for run, (digest, _) in done(folder / "alone").items()}
        expect(len(expected) == 6, "a sweep without a cluster is done")

        with cluster(folder) as (address, _, workers):
            running = sweep(folder, "worker", "--cluster", address)
            wait_for("a run on a worker", lambda: len(done(folder / "worker")) >= 1 and len(computing(scratch)) == 2)
            workers[0].send_signal(signal.SIGKILL)
            _, said = running.communicate(timeout=WAIT_S)
            found = {run: digest for run, (digest, _) in done(folder / "worker").items()}
            expect((running.returncode, found) == (0, expected), "a worker killed: all runs are done, tables are equal")
            expect(not list(scratch.glob("simfl-*")), "a worker killed: its temporary folder is gone")

        with cluster(folder) as (address, scheduler, _):
            running = sweep(folder, "scheduler", "--cluster", address, "--quiet")
            wait_for("a run that is done", lambda: len(done(folder / "scheduler")) >= 1)
            scheduler.send_signal(signal.SIGKILL)
            begun = time.monotonic()
            _, said = running.communicate(timeout=WAIT_S)
            print(f"    after {time.monotonic() - begun:.1f} s, exit {running.returncode}: {said.strip()}")
            expect(running.returncode == 1 and said.count("\n") == 1, "the scheduler killed: exit 1 and one line")
        before = done(folder / "scheduler")
        expect(0 < len(before) < 6, f"the scheduler killed: {len(before)} of 6 runs were done and stay")
        again = sweep(folder, "scheduler", "--jobs", "1", "--quiet")
        again.communicate(timeout=WAIT_S)
        after = done(folder / "scheduler")
        found = {run: digest for run, (digest, _) in after.items()}
        expect(found == expected, "the same command finishes: tables are equal")
        expect(all(after[run] == before[run] for run in before), "no run was repeated")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
