"""The work of a worker process: one run; errors are reported, not raised."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simfl import signals
from simfl.errors import DataError, SimflError
from simfl.records.locks import HeldError, held

if TYPE_CHECKING:
    from ctypes import c_int

    from simfl.records import Progress, Run

_stop: c_int | None = None  # shared with the parent: the signal that asks for an end, 0 for none yet
_alone = threading.Lock()
_TEMPORARY = "simfl-run-"
_serving = contextlib.ExitStack()  # contexts that stay open for the life of the process


@dataclass(frozen=True)
class RunTask:
    """One run, as it is sent to a worker.

    `scenario` is resolved, as plain values. `root` is the folder of all results; `run_id` is the name of the run's
    folder below that of the study. Users' own modules are looked up in the folders `beside`. `compiled` is the folder
    of compiled programs, and `checkpoint_s` the host time between checkpoints; None: neither.
    """

    scenario: dict[str, Any]
    root: str
    run_id: str
    device: str | None = None
    beside: tuple[str, ...] = ()
    compiled: str | None = None
    checkpoint_s: float | None = None

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return Path(self.root) / str(self.scenario["name"]) / self.run_id


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended; `status` is that of its manifest, or failed without one.

    `accuracy` is the test accuracy at the end, NaN without one; `files` are the contents of the files in the run's
    folder, if it was computed on another machine.
    """

    status: str
    reason: str = ""
    wall_s: float = 0.0
    accuracy: float = float("nan")
    files: dict[str, bytes] = field(default_factory=dict)


def start_worker(stop: c_int) -> None:
    """Prepare a process of the local engine.

    Ctrl-C at the terminal, and SIGTERM to a whole job, would kill a process that waits for work. So workers ignore
    both, and the parent sets `stop`. A worker exits when its parent is gone: another sweep may then write to the same
    folder.
    """
    from simfl.build.data import shared_data

    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    threading.Thread(target=_leave_with_parent, name="simfl-parent", daemon=True).start()
    _serving.enter_context(shared_data())


def _leave_with_parent() -> None:
    from multiprocessing import connection, parent_process

    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def run_task(task: RunTask) -> RunOutcome:
    """Run a task in this process; errors are outcomes."""
    from simfl.runs.programs import compiled_in
    from simfl.scenario.own_code import look_beside

    if _stop is not None and _stop.value:
        return RunOutcome("missing", "not begun")
    look_beside(Path(folder) / "scenario.yaml" for folder in task.beside)
    try:
        with compiled_in(task.compiled, stays=_stop is not None):
            run = _run(task)
        manifest, metrics = run.manifest, run.metrics
        accuracy = float(metrics["test_accuracy"].iloc[-1]) if len(metrics) else float("nan")
        return RunOutcome(manifest.status, manifest.reason, manifest.wall_s, accuracy)
    except SimflError as error:
        return RunOutcome("failed", str(error).splitlines()[0])
    except Exception as error:  # an error in simfl or in the user's own code costs one run, not the study
        return RunOutcome("failed", f"{type(error).__name__}: {' '.join(str(error).split())}")


def _run(task: RunTask) -> Run:
    """Resume an earlier attempt if its checkpoint is of this run, else run anew."""
    from simfl.runs import runner
    from simfl.runs.checkpoint import FILE, ReplayError
    from simfl.scenario import from_mapping

    options: Any = {"device": task.device, "progress": _Interruption(), "checkpoint_every": task.checkpoint_s}
    if (task.folder / FILE).exists():
        with contextlib.suppress(DataError, ReplayError):
            return runner.resume(task.folder, scenario=from_mapping(task.scenario), **options)
    shutil.rmtree(task.folder, ignore_errors=True)  # tables of an earlier attempt must not mix with this run's
    return runner.run(from_mapping(task.scenario), out=task.root, run_id=task.run_id, **options)


def run_elsewhere(task: RunTask) -> RunOutcome:
    """Run a task on a machine without a shared disk; files travel with the outcome.

    A process runs one task at a time, whatever the number of its threads: a run tunes the interpreter for itself.
    """
    with _alone, _own_folder() as folder:
        # The folder of programs is on another machine, and this folder, with any checkpoint, is removed.
        moved = replace(task, root=folder, compiled=None, checkpoint_s=None)
        outcome = run_task(moved)
        files = {path.name: path.read_bytes() for path in sorted(moved.folder.glob("*"))}
        return replace(outcome, files=files)


@contextlib.contextmanager
def _own_folder() -> Iterator[str]:
    """Make a temporary folder for one run; remove those of killed workers.

    Its lock, a file beside it, is held before the folder exists and until it is gone.
    """
    root = Path(tempfile.gettempdir())
    for left in root.glob(f"{_TEMPORARY}*.lock"):
        with contextlib.suppress(HeldError, OSError), held(left):
            shutil.rmtree(left.with_suffix(""), ignore_errors=True)
    name = root / f"{_TEMPORARY}{uuid.uuid4().hex}"
    with held(name.with_suffix(".lock")):
        name.mkdir(mode=0o700)
        try:
            yield str(name)
        finally:
            shutil.rmtree(name, ignore_errors=True)


class _Interruption:
    """Passes the parent's stop on to the current run."""

    def __init__(self) -> None:
        self._passed = False

    def __call__(self, progress: Progress) -> None:
        if _stop is not None and _stop.value and not self._passed:
            self._passed = True
            signals.pass_on(_stop.value)
