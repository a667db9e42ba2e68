"""Measure the memory of a process that runs many scenarios, one after the other.

    python docs/check_memory.py               # 100 runs of five algorithms and three models, some minutes
    python docs/check_memory.py --runs 30
    python docs/check_memory.py --keep        # without giving free memory back between runs

Prints the resident memory of the process after every ten runs, what of it are objects and compiled programs, and how
long it took to give memory back.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import jax

import simfl
from simfl.runs import memory, runner

ALGORITHMS = ("adpsgd", "sync_sgd", "fedavg", "async_fl", "sgp")
MODELS = ("softmax", "mlp", "cnn")
#: Runs after which memory is looked at.
EVERY = 10


def scenario(number: int) -> dict[str, object]:
    """Return the scenario of a run: algorithm, model, clients and batches differ from run to run."""
    model = MODELS[number % len(MODELS)]
    return {
        "name": "memory",
        "seed": number,
        "algorithm": {"kind": ALGORITHMS[number % len(ALGORITHMS)], "batch_size": (8, 16)[number // 2 % 2]},
        "model": model,
        "clients": (4, 8, 16, 24)[number // 3 % 4],
        "stop": {"updates": 100 if model == "cnn" else 2000},
        "evaluate": {"every": {"epochs": 5}},
    }


def resident_mib() -> float:
    """Return the memory of this process that is in use, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--keep", action="store_true", help="give no memory back between runs")
    given = parser.parse_args()
    took_s: list[float] = []

    def trim() -> None:
        if not given.keep:
            memory._next_s = 0.0
            memory.give_back()

    def timed() -> None:
        began = time.perf_counter()
        trim()
        took_s.append(time.perf_counter() - began)

    runner.give_back = timed
    print(
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {' '.join(platform.libc_ver())}, "
        f"Python {platform.python_version()}"
    )
    with tempfile.TemporaryDirectory() as out:
        for number in range(given.runs):
            simfl.run(scenario(number), out=out, progress=False, checkpoint_every="never")
            if (number + 1) % EVERY == 0:
                print(f"after {number + 1:4} runs: {resident_mib():6.0f} MiB", flush=True)
    gc.collect()
    trim()
    print(f"without what the garbage collector had not found yet: {resident_mib():6.0f} MiB")
    jax.clear_caches()
    gc.collect()
    trim()
    print(f"without compiled programs:                            {resident_mib():6.0f} MiB")
    print(f"giving back took {1000 * sum(took_s) / len(took_s):.1f} ms a run, {1000 * max(took_s):.1f} ms at most")
    return 0


if __name__ == "__main__":
    sys.exit(main())
