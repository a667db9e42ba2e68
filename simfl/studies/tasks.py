"""The work of a worker process: some runs; errors are reported, not raised."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simfl import signals
from simfl.errors import DataError, SimflError
from simfl.records.locks import HeldError, held
from simfl.threads import one_thread, share_cores

if TYPE_CHECKING:
    from ctypes import c_int

    from simfl.records import Progress, Run

_stop: c_int | None = None  # shared with the parent: the signal that asks for an end, 0 for none yet
_alone = threading.Lock()
_TEMPORARY = "simfl-run-"
#: What every run imports.
IMPORTS = ("simfl.assembly.assemble", "simfl.runs.runner", "simfl.studies.together", "jax.experimental.multihost_utils")
#: The most tasks that are played together.
MOST_TOGETHER = 16
_serving = contextlib.ExitStack()  # contexts that stay open for the life of the process


@dataclass(frozen=True)
class RunTask:
    """One run, as it is sent to a worker.

    `scenario` is resolved, as plain values. `root` is the folder of all results; `run_id` is the name of the run's
    folder below that of the study. Users' own modules are looked up in the folders `beside`. `compiled` is the folder
    of compiled programs, and `checkpoint_s` the host time between checkpoints; None: neither. Tasks with the same
    `world` may be played together.
    """

    scenario: dict[str, Any]
    root: str
    run_id: str
    device: str | None = None
    beside: tuple[str, ...] = ()
    compiled: str | None = None
    checkpoint_s: float | None = None
    world: str | None = None

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


def start_worker(stop: c_int, processes: int = 1) -> None:
    """Prepare one of some processes of the local engine, which watches `stop`."""
    global _stop
    from simfl.assembly.data import shared_data
    from simfl.tape.tuning import tuned_interpreter

    _stop = stop
    share_cores(processes)
    atexit.register(_serving.close)  # while the modules that the contexts use are still there
    _serving.enter_context(shared_data())
    _serving.enter_context(one_thread())
    _serving.enter_context(tuned_interpreter())  # once: it counts frozen objects, for 10 to 30 ms


def units_of(tasks: Sequence[RunTask], jobs: int) -> list[tuple[RunTask, ...]]:
    """Return the units of work: tasks that may be played together.

    There are at least `jobs` units if there are as many tasks.
    """
    most = min(MOST_TOGETHER, -(-len(tasks) // jobs))
    same: dict[object, list[RunTask]] = {}
    for task in tasks:
        same.setdefault((task.world, task.device, task.checkpoint_s) if task.world else id(task), []).append(task)
    return [tuple(each[at : at + most]) for each in same.values() for at in range(0, len(each), most)]


def run_unit(unit: Sequence[RunTask]) -> list[RunOutcome]:
    """Run tasks in this process, together if possible; errors are outcomes."""
    outcomes: dict[int, RunOutcome] = {}
    if len(unit) > 1 and not (_stop is not None and _stop.value):
        # What went wrong goes wrong again alone, where it is reported.
        with contextlib.suppress(Exception), _prepared(unit[0]):
            _together(unit, outcomes)
    return [outcomes.get(number) or run_task(task) for number, task in enumerate(unit)]


def _together(unit: Sequence[RunTask], outcomes: dict[int, RunOutcome]) -> None:
    """Play tasks together; add the outcomes, without those to run alone."""
    from simfl.assembly.assemble import assemble
    from simfl.assembly.data import shared_data
    from simfl.assembly.memory import refuse_too_large
    from simfl.records import RunFolder
    from simfl.runs.checkpoint import fingerprint, read
    from simfl.runs.intervals import FILE
    from simfl.scenario import from_mapping
    from simfl.studies.together import Group, groups_of
    from simfl.tape.executor import choose_device

    device = choose_device(unit[0].device)
    with shared_data():
        setups = [assemble(from_mapping(task.scenario)) for task in unit]
    since = {number: read(task.folder / FILE) for number, task in enumerate(unit) if (task.folder / FILE).exists()}
    for numbers in groups_of(setups, [since[k].position if k in since else None for k in range(len(unit))]):
        if len(numbers) == 1:
            continue
        if device.platform == "cpu":
            refuse_too_large(setups[numbers[0]], len(numbers))  # alone, each needs less
        folders = []
        for number in numbers:
            if number not in since:
                shutil.rmtree(unit[number].folder, ignore_errors=True)
            folders.append(RunFolder.create(Path(unit[number].root), setups[number].scenario.name, unit[number].run_id))
        begun = [since[number] for number in numbers] if numbers[0] in since else None
        group = Group([setups[k] for k in numbers], device, _Interruption(), unit[0].checkpoint_s, begun)
        try:
            for number, checkpoint in zip(numbers, begun or (), strict=False):
                checkpoint.check(fingerprint(setups[number], device, group.session.division))
            results = group.run(folders)
        finally:
            group.release()
        for number, result in zip(numbers, results, strict=True):
            if result is not None:
                outcomes[number] = _failed(result) if isinstance(result, Exception) else _outcome(result)


def run_task(task: RunTask) -> RunOutcome:
    """Run a task in this process; errors are outcomes."""
    if _stop is not None and _stop.value:
        return RunOutcome("missing", "not begun")
    try:
        with _prepared(task):
            return _outcome(_run(task))
    except Exception as error:  # an error in simfl or in the user's own code costs one run, not the study
        return _failed(error)


@contextlib.contextmanager
def _prepared(task: RunTask) -> Iterator[None]:
    """Find the user's modules and the compiled programs."""
    from simfl.runs.programs import compiled_in
    from simfl.scenario.own_code import look_beside

    look_beside(Path(folder) / "scenario.yaml" for folder in task.beside)
    with compiled_in(task.compiled, stays=_stop is not None):
        yield


def _outcome(run: Run) -> RunOutcome:
    manifest, rows = run.manifest, run.evaluations
    accuracy = float(rows.row(-1)["test_accuracy"]) if len(rows) else float("nan")
    return RunOutcome(manifest.status, manifest.reason, manifest.wall_s, accuracy)


def _failed(error: Exception) -> RunOutcome:
    if isinstance(error, SimflError):
        return RunOutcome("failed", str(error).splitlines()[0])
    return RunOutcome("failed", f"{type(error).__name__}: {' '.join(str(error).split())}")


def _run(task: RunTask) -> Run:
    """Resume an earlier attempt if its checkpoint is of this run, else run anew."""
    from simfl.runs import runner
    from simfl.runs.intervals import FILE
    from simfl.scenario import from_mapping
    from simfl.tape.journal import ReplayError

    options: Any = {"device": task.device, "progress": _Interruption(), "checkpoint_every": task.checkpoint_s}
    if (task.folder / FILE).exists():
        with contextlib.suppress(DataError, ReplayError):
            return runner.resume(task.folder, scenario=from_mapping(task.scenario), **options)
    shutil.rmtree(task.folder, ignore_errors=True)  # tables of an earlier attempt must not mix with this run's
    return runner.run(from_mapping(task.scenario), out=task.root, run_id=task.run_id, **options)


def run_elsewhere(unit: Sequence[RunTask]) -> list[RunOutcome]:
    """Run tasks on a machine without a shared disk; files travel back.

    A process runs one unit at a time, whatever the number of its threads: a run tunes the interpreter for itself.
    """
    share_cores(os.cpu_count() or 1)  # a machine may have a worker for each core
    with _alone, _own_folder() as folder:
        # The folder of programs is on another machine, and this folder, with any checkpoint, is removed.
        moved = [replace(task, root=folder, compiled=None, checkpoint_s=None) for task in unit]
        return [
            replace(outcome, files={path.name: path.read_bytes() for path in sorted(task.folder.glob("*"))})
            for task, outcome in zip(moved, run_unit(moved), strict=True)
        ]


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
