"""Start several sweeps on one folder, and kill a process of one; see that no run is repeated and nothing is left.

    python docs/check_sweeps.py        # some minutes

While a sweep runs, a second one is started again and again: each has to be refused with exit code 2 and one line, or,
as soon as the first has ended, to find everything done. Then a worker process of a sweep is ended by SIGKILL, and in
another sweep the parent is: the same command has to finish, without repeating a run that was done, and leave no lock,
no stream and no checkpoint. At last a sweep writes to a disk of 800 KiB, which fills up, and goes on when the disk has
grown; that needs the right to mount, and is left out without it. Tables must be those of an undisturbed sweep. Exits
with 1 otherwise.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

STUDY = """
name: small
base:
  seed: 1
  clients: {count: 8, seconds_per_example: 1 ms}
  algorithm: {kind: adpsgd, batch_size: 8, step_size: 0.5}
  stop: {updates: 6000}
  evaluate: {every: {updates: 500}}
seeds: 6
"""
WAIT_S = 300
MOST = 20
"""Sweeps that are started while another one runs."""


def sweep(folder: Path, out: str, jobs: int) -> subprocess.Popen[str]:
    """Begin a sweep."""
    words = ["sweep", "small.yaml", "--out", out, "--jobs", str(jobs), "--quiet", "--checkpoint-every", "0.1"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "simfl", *words]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)


def done(folder: Path) -> dict[str, tuple[str, int]]:
    """Return digest and time of writing of every run that is done."""
    import simfl

    found = {}
    for path in folder.glob("small/*/manifest.json"):
        with contextlib.suppress(simfl.DataError):  # what a full disk did not take
            manifest = simfl.read(path.parent).manifest
            if manifest.status == "done":
                found[path.parent.name] = manifest.digest, path.stat().st_mtime_ns
    return found


def left_behind(folder: Path) -> list[str]:
    """Return what no folder of a sweep that is over should have."""
    patterns = ("*.lock", "*/*.lock", "*/*.arrows", "*/*.partial", "*/checkpoint.npz")
    return [str(path.relative_to(folder)) for pattern in patterns for path in (folder / "small").glob(pattern)]


def wait_for(what: str, is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {WAIT_S} s")
        time.sleep(0.02)


def mount(folder: Path, options: str) -> bool:
    """Mount a file system in memory, or change the one that is mounted; return whether that was allowed."""
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def main() -> int:
    """Sweep, disturb, and compare."""
    wrong = []

    def expect(is_so: bool, what: str) -> None:
        print(f"{'ok ' if is_so else 'NOT'} {what}", flush=True)
        if not is_so:
            wrong.append(what)

    with tempfile.TemporaryDirectory(prefix="simfl-check-") as name:
        folder = Path(name)
        (folder / "small.yaml").write_text(STUDY)

        def digests(out: str) -> dict[str, str]:
            return {run: digest for run, (digest, _) in done(folder / out).items()}

        sweep(folder, "alone", 1).communicate(timeout=WAIT_S)
        expected = digests("alone")
        expect(len(expected) == 6, "a sweep that nobody disturbs is done")

        first = sweep(folder, "two", 1)
        wait_for("a lock", (folder / "two" / "small" / "sweep.lock").exists)
        refused, took, codes = 0, [], [2]
        while codes[-1] == 2 and len(codes) <= MOST:
            begun = time.monotonic()
            second = sweep(folder, "two", 1)
            _, said = second.communicate(timeout=WAIT_S)
            codes.append(second.returncode)
            if second.returncode == 2 and said.count("\n") == 1 and "is sweeping into this folder" in said:
                refused += 1
                took.append(time.monotonic() - begun)
        first.communicate(timeout=WAIT_S)
        print(f"    {refused} sweeps were refused, on average after {sum(took) / max(1, len(took)):.1f} s", flush=True)
        expect(refused > 0 and refused == codes.count(2) - 1, "a second sweep is refused with exit code 2 and one line")
        before = done(folder / "two")
        sweep(folder, "two", 1).communicate(timeout=WAIT_S)
        expect(done(folder / "two") == before, "a sweep after it repeats no run")
        expect(digests("two") == expected, "its tables are equal")

        for victim in ("worker", "parent"):
            running = sweep(folder, victim, 2)
            results = folder / victim
            wait_for("a run that is done", lambda results=results: bool(done(results)))  # type: ignore[misc]
            before = done(results)
            process = psutil.Process(running.pid)
            children = process.children(recursive=True)
            workers = [child for child in children if child.ppid() != process.pid]  # those of the nursery
            (workers[0] if victim == "worker" else process).send_signal(signal.SIGKILL)
            running.communicate(timeout=WAIT_S)
            psutil.wait_procs(children, timeout=WAIT_S)
            print(f"    after a killed {victim}: {len(done(results))} runs done, {left_behind(results)}")
            if victim == "worker":
                locks = [path for path in left_behind(results) if path.endswith(".lock")]
                expect(running.returncode == 1 and not locks, "a worker killed: exit code 1, and no lock is left")
            again = sweep(folder, victim, 2)
            again.communicate(timeout=WAIT_S)
            expect(again.returncode == 0 and digests(victim) == expected, f"a {victim} killed: tables are equal")
            after = done(results)
            expect(all(after[run] == before[run] for run in before), f"a {victim} killed: no run was repeated")
            expect(left_behind(results) == [], f"a {victim} killed: nothing is left behind")

        full = folder / "full"
        full.mkdir()
        if mount(full, "size=800k"):
            try:
                running = sweep(folder, "full", 1)
                _, said = running.communicate(timeout=WAIT_S)
                before = done(full)
                print(f"    on a disk of 800 KiB: exit code {running.returncode}, {len(before)} runs done")
                expect(running.returncode == 1 and "Traceback" not in said, "a disk that is full: exit code 1")
                mount(full, "remount,size=64m")
                again = sweep(folder, "full", 1)
                again.communicate(timeout=WAIT_S)
                expect(again.returncode == 0 and digests("full") == expected, "a disk that has grown: tables are equal")
                after = done(full)
                expect(all(after[run] == before[run] for run in before), "a disk that has grown: no run was repeated")
            finally:
                subprocess.run(["umount", str(full)], check=True)
        else:
            print("    left out: a disk that is full needs the right to mount one")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
