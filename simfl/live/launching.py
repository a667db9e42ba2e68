"""Starts the processes of live runs by mpirun, or joins existing ones."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simfl import signals
from simfl.errors import RunError, ScenarioError
from simfl.live.signs import ALIVE, BEGUN, DONE, STOP

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
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")


class NothingToKeepError(RunError):
    """Ctrl-C came before a run had begun."""


def check_mpi() -> str:
    """Return the path of mpirun.

    Raises:
        ScenarioError: what is missing, and how to install it.
    """
    beside = Path(sys.executable).parent / "mpirun"
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if importlib.util.find_spec("mpi4py") is None or mpirun is None:
        missing = "mpirun" if importlib.util.find_spec("mpi4py") else "mpi4py"
        raise ScenarioError(f"live: found no {missing}; install it: pip install 'simfl[mpi]'")
    return mpirun


def started_already() -> int:
    """Return the number of MPI processes started with this one; 0 for none."""
    return _number(STARTED[:2]) or 0


def speaks() -> bool:
    """Whether this process reports: the first of those of mpirun or srun."""
    return not _number(RANKS)


def _number(names: Sequence[str]) -> int | None:
    return next((int(value) for name in names if (value := os.environ.get(name, "")).isdigit()), None)


def take_part(job: dict[str, Any]) -> list[Any] | None:
    """Do a job as one of the processes of mpirun or srun; all of them call this.

    Process 0 returns what came of it, the others None.
    """
    os.environ.update({name: value for name, value in ONE_THREAD.items() if name not in os.environ})
    from simfl.live.rank import take_part as do

    return do([job])


def launch(jobs: Sequence[dict[str, Any]], processes: int) -> list[Any]:
    """Do jobs in MPI processes, and return the results.

    Ctrl-C ends the run that is under way, which is written, and all processes; a second one ends them at once. If this
    process is killed, nothing holds its end of a FIFO open any longer: the ranks then end (`end_with_parent`).

    Raises:
        ScenarioError: MPI is missing.
        NothingToKeepError: Ctrl-C came before a run had begun.
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
        os.mkfifo(path.with_suffix(ALIVE))
        alive = os.open(path.with_suffix(ALIVE), os.O_RDWR)
        child = subprocess.Popen(
            [mpirun, *as_root, *options, "-n", str(processes), *program],
            env={**os.environ, **ONE_THREAD, "TMPDIR": name},  # mpirun's files are deleted with the folder
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        asked = 0

        def ask(number: int) -> None:
            nonlocal asked
            if asked or not path.with_suffix(BEGUN).exists():
                child.send_signal(signal.SIGTERM)
            asked = number
            path.with_suffix(STOP).touch()

        try:
            with signals.handled(ask):
                _, errors = child.communicate()
        finally:
            if child.poll() is None:
                child.kill()
            os.close(alive)
        done = path.with_suffix(DONE)
        if asked and not done.exists():
            raise NothingToKeepError(f"live: {signals.describe(asked)} before anything could be written")
        if child.returncode or not done.exists():
            raise RunError(f"live: {why_ended(errors, child.returncode, jobs)}")
        results: list[Any] = json.loads(done.read_text(encoding="utf-8"))
        return results


def why_ended(errors: str, code: int, jobs: Sequence[dict[str, Any]]) -> str:
    """Return in one line why the processes ended before their jobs were done.

    Args:
        errors: what mpirun wrote to stderr.
        code: its exit code, negative if a signal ended it.
        jobs: theirs.
    """
    if code < 0:
        return f"mpirun was ended by {_name_of_signal(-code)}"
    killed = re.search(r"process rank (\d+)\b.*?exited\s+on\s+signal\s+(\d+)", errors, re.DOTALL)
    if killed is not None:
        rank, number = int(killed[1]), int(killed[2])
        clients = {int(job["processes"]) - 1 for job in jobs if job.get("kind") == "run"}
        # In a run, rank k is client k; the last rank counts the updates, and is the server if there is one.
        role = "" if len(clients) != 1 else f" (client {rank})" if rank < min(clients) else " (the coordinator)"
        return f"rank {rank}{role} was ended by {_name_of_signal(number)}; mpirun ended the others"
    lines = errors.splitlines()
    own = [line.removeprefix("simfl live: ") for line in lines if line.startswith("simfl live: ")]
    readable = [line.strip() for line in lines if any(map(str.isalnum, line))]  # mpirun draws rules around its text
    return f"the processes ended: {own[0] if own else readable[-1] if readable else f'mpirun exited with code {code}'}"


def _name_of_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
