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
from simfl.threads import VARIABLES

#: One thread in every process: there are more processes than cores.
ONE_THREAD = {**dict.fromkeys((*VARIABLES, "OMP_NUM_THREADS", "PJRT_NPROC"), "1"), "JAX_PLATFORMS": "cpu"}
#: Variables by which mpirun or srun tells a process how many there are, and which one it is.
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")


class NothingToKeepError(RunError):
    """A signal came before the run had begun: there is nothing to write."""


def check_mpi() -> str:
    """Return the path of mpirun.

    Raises:
        ScenarioError: mpi4py or mpirun is missing; the message says how to install it. Or the system has no FIFOs.
    """
    if not hasattr(os, "mkfifo"):
        raise ScenarioError("live: expected Linux or macOS, found a system without FIFOs; in WSL it works as on Linux")
    beside = Path(sys.executable).parent / "mpirun"
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if importlib.util.find_spec("mpi4py") is None or mpirun is None:
        missing = "mpirun" if importlib.util.find_spec("mpi4py") else "mpi4py"
        raise ScenarioError(f"live: found no {missing}; install it: pip install 'simfl[mpi]'")
    return mpirun


def started_already() -> int:
    """Return the number of MPI processes started with this one; 0 for none."""
    return _number(SIZES)


def speaks() -> bool:
    """Return whether this process reports: only the first one of mpirun or srun does."""
    return not _number(RANKS)


def _number(names: Sequence[str]) -> int:
    return next((int(value) for name in names if (value := os.environ.get(name, "")).isdecimal()), 0)


def take_part(job: dict[str, Any]) -> list[Any] | None:
    """Run a job in the processes of mpirun or srun; each of them calls this.

    Process 0 returns the results, the others None.
    """
    os.environ.update({name: value for name, value in ONE_THREAD.items() if name not in os.environ})
    from simfl.live.rank import take_part as take_part_by_mpi

    return take_part_by_mpi([job])


def launch(jobs: Sequence[dict[str, Any]], processes: int) -> list[Any]:
    """Run jobs in new MPI processes, and return the results.

    Ctrl-C ends the current run, whose tables are written, and then all processes; a second Ctrl-C ends them at once. If
    this process is killed, its end of a FIFO closes, and the ranks end (`end_with_parent`).

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
        os.mkfifo(path.with_suffix(ALIVE))
        alive = os.open(path.with_suffix(ALIVE), os.O_RDWR)
        child = subprocess.Popen(
            [mpirun, *as_root, *options, "-n", str(processes), *program],
            env={**os.environ, **ONE_THREAD, "TMPDIR": name},  # mpirun's files are deleted with the folder
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that Ctrl-C reaches this process only, which decides how to end
        )
        received = 0

        def stop(number: int) -> None:
            nonlocal received
            if received or not path.with_suffix(BEGUN).exists():
                child.send_signal(signal.SIGTERM)
            received = number
            path.with_suffix(STOP).touch()

        try:
            with signals.handled(stop):
                _, errors = child.communicate()
        finally:
            if child.poll() is None:
                child.kill()
            os.close(alive)
        done = path.with_suffix(DONE)
        if received and not done.exists():
            raise NothingToKeepError(f"live: {signals.describe(received)} before anything could be written")
        if child.returncode or not done.exists():
            raise RunError(f"live: {why_ended(errors, child.returncode, jobs)}")
        results: list[Any] = json.loads(done.read_text(encoding="utf-8"))
        return results


def why_ended(errors: str, code: int, jobs: Sequence[dict[str, Any]]) -> str:
    """Return in one line why the processes ended before their jobs were done.

    `errors` is mpirun's stderr, and `code` its exit code, negative if a signal ended it.
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
    ours = [line.removeprefix("simfl live: ") for line in lines if line.startswith("simfl live: ")]
    readable = [line.strip() for line in lines if any(map(str.isalnum, line))]  # mpirun draws lines around its text
    return f"the processes ended: {[*ours[:1], *readable[-1:], f'mpirun exited with code {code}'][0]}"


def _name_of_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
