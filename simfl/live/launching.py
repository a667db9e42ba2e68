"""Starting the processes of live runs: by mpirun, or in those that mpirun or srun has started already."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simfl import signals
from simfl.errors import RunError, ScenarioError

#: One thread in every process: there are more processes than cores.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PJRT_NPROC": "1",
    "JAX_PLATFORMS": "cpu",
}
#: How processes that mpirun or srun started know of each other.
STARTED = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK")
#: How long processes have to end by themselves when they are asked to.
PATIENCE_S = 15.0


def check_mpi() -> str:
    """Return the path of mpirun.

    Raises:
        ScenarioError: what is missing, and how to install it.
    """
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if importlib.util.find_spec("mpi4py") is None or found is None:
        missing = "mpirun" if importlib.util.find_spec("mpi4py") else "mpi4py"
        raise ScenarioError(f"live: found no {missing}; install it: pip install 'simfl[mpi]'")
    return found


def started_already() -> int:
    """Return how many MPI processes mpirun or srun has started, of which this is one; 0: it is none."""
    for name in STARTED[:2]:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def take_part(job: dict[str, Any]) -> list[Any] | None:
    """Do a job as one of the processes that mpirun or srun has started: each of them calls this.

    Process 0 returns what came of it, the others None.
    """
    os.environ.update({name: value for name, value in ONE_THREAD.items() if name not in os.environ})
    from simfl.live.rank import take_part as do

    return do([job])


def launch(jobs: Sequence[dict[str, Any]], processes: int) -> list[Any]:
    """Do jobs in so many MPI processes, and return what came of each.

    Ctrl-C ends the run that is under way, which is written; a second one ends the processes.

    Raises:
        ScenarioError: MPI is missing.
        RunError: a process failed.
    """
    mpirun = check_mpi()
    with tempfile.TemporaryDirectory(prefix="simfl-live-") as name:
        path = Path(name) / "jobs.json"
        path.write_text(json.dumps(list(jobs)), encoding="utf-8")
        as_root = ["--allow-run-as-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        options = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
        program = [sys.executable, "-m", "simfl.live.rank", str(path)]
        # In a session of its own: Ctrl-C comes to this process alone, which says what it means.
        child = subprocess.Popen(
            [mpirun, *as_root, *options, "-n", str(processes), *program],
            env={**os.environ, **ONE_THREAD},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        asked: list[float] = []

        def ask(number: int) -> None:
            if asked:
                child.send_signal(signal.SIGTERM)
            asked.append(time.monotonic())
            path.with_suffix(".stop").touch()

        try:
            with signals.handled(ask):
                while True:
                    try:
                        _, errors = child.communicate(timeout=0.5)
                        break
                    except subprocess.TimeoutExpired:
                        if asked and time.monotonic() - asked[0] > PATIENCE_S:
                            child.send_signal(signal.SIGTERM)
        finally:
            if child.poll() is None:
                child.kill()
        done = path.with_suffix(".done")
        if asked and not done.exists():
            raise RunError("live: interrupted before anything could be written")
        if child.returncode or not done.exists():
            lines = [line for line in errors.splitlines() if line.startswith("simfl live: ")]
            said = lines[0].removeprefix("simfl live: ") if lines else (errors.strip().splitlines() or ["no word"])[-1]
            raise RunError(f"live: the processes ended: {said}")
        found: list[Any] = json.loads(done.read_text(encoding="utf-8"))
        return found
