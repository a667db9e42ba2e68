"""Measure the memory of a long run and of a large one.

    python docs/check_scale.py        # about two minutes

While a run of 1,000,000 updates goes on, its memory must not grow by more than a twentieth after the first fifth; at
its end it writes its tables, which takes more. A run of 100,000 clients must need at most 2 GiB. Each runs in a process
of its own; resident memory is read ten times a second. Exits with 1 otherwise.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import psutil

COMMON: dict[str, Any] = {
    "data": {"set": "digits"},
    "algorithm": {"kind": "adpsgd", "batch_size": 2, "step_size": 0.05},
}
LONG = {
    **COMMON,
    "name": "long",
    "clients": {"count": 16, "seconds_per_example": "1 ms"},
    "stop": {"updates": 1_000_000},
    "evaluate": {"every": {"updates": 100_000}},
}
LARGE = {
    **COMMON,
    "name": "large",
    "algorithm": {"kind": "adpsgd", "batch_size": 1, "step_size": 0.05},
    "data": {"set": "quadratic", "samples": 400_000, "dimension": 8},
    "model": "quadratic",
    "clients": {"count": 100_000, "seconds_per_example": "1 ms"},
    "stop": {"updates": 200_000},
    "evaluate": {"every": {"updates": 100_000}},
}
MIB = 2**20


def run(scenario: dict[str, Any]) -> None:
    """Run a scenario in this process, and print the resident memory over its course, in MiB."""
    import simfl

    shares: list[tuple[float, float]] = []
    memory, progress = psutil.Process(), [0.0]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            shares.append((progress[0], memory.memory_info().rss / MIB))

    thread = threading.Thread(target=watch)
    thread.start()
    with tempfile.TemporaryDirectory(prefix="simfl-check-") as folder:
        begun = time.perf_counter()
        made = simfl.run(
            scenario, out=folder, progress=lambda report: progress.__setitem__(0, report.fraction), device="cpu"
        )
        seconds, updates = time.perf_counter() - begun, made.manifest.updates
    ended.set()
    thread.join()
    print(json.dumps({"shares": shares, "updates": updates, "seconds": seconds}))


def measure(scenario: dict[str, Any]) -> dict[str, Any]:
    """Run a scenario in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(scenario)], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Measure both."""
    long = measure(LONG)
    early = max((rss for share, rss in long["shares"] if share <= 0.2), default=0.0)
    late = max(rss for share, rss in long["shares"] if 0.2 < share < 0.99)
    peak = max(rss for _, rss in long["shares"])
    flat = late <= 1.05 * early
    found = f"{early:.0f} MiB in the first fifth, then {late:.0f} MiB, {peak:.0f} MiB when tables are written"
    print(f"{'ok ' if flat else 'NOT'} {long['updates']:,} updates in {long['seconds']:.0f} s: {found}", flush=True)
    large = measure(LARGE)
    peak = max(rss for _, rss in large["shares"])
    small = peak <= 2048
    found = f"{large['updates']:,} updates in {large['seconds']:.0f} s: at most {peak:.0f} MiB"
    print(f"{'ok ' if small else 'NOT'} 100,000 clients, {found}")
    return not (flat and small)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(json.loads(sys.argv[1]))
    else:
        sys.exit(main())
