"""Run a study: check everything first, and keep existing runs.

A run's key is the digest of its resolved scenario and simfl's version. A run that was killed, interrupted or failed
runs again, from its last checkpoint if it has one. A run that is done, or diverged, runs again only if its other
inputs (own code, data, files of the world, initial model) have changed.

This module is not called `sweep`, because `simfl.studies.sweep` is the function.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simfl import signals
from simfl.comparison.sweeps import Sweep, SweepRun, run_key
from simfl.errors import DataError, RunError, ScenarioError, to_path
from simfl.records import Manifest, RunFolder
from simfl.records.folder import digest_of_file, flags
from simfl.records.locks import HeldError, held
from simfl.records.models import digest_parts, read_models
from simfl.records.results import FINISHED
from simfl.records.watching import bar
from simfl.records.writer import STREAM
from simfl.runs import CHECKPOINT_EVERY, programs
from simfl.scenario import Scenario
from simfl.scenario.fields import world_files
from simfl.scenario.own_code import digests_of, has_objects, is_known, look_beside, modules_of
from simfl.studies.engines import Engine, choose_engine
from simfl.studies.plan import PlannedRun, StudyPlan, load_study
from simfl.studies.tasks import RunOutcome, RunTask
from simfl.studies.worlds import world_key
from simfl.threads import one_thread
from simfl.version import __version__

#: The file that a sweep locks in its folder while it runs.
LOCK = "sweep.lock"


@dataclass(frozen=True)
class Report:
    """Progress of a sweep.

    `finished` counts complete runs, those of earlier attempts included, `total` the planned ones. `remaining_s` is an
    estimate of host seconds, None before the first finished run. `run` has just ended with `outcome`; both are None at
    the beginning. `checked` is the number of scenarios checked so far, None after the check.
    """

    finished: int
    total: int
    remaining_s: float | None
    run: SweepRun | None = None
    outcome: RunOutcome | None = None
    checked: int | None = None


def sweep(
    study: StudyPlan | Mapping[str, Any] | str | Path,
    *,
    out: str | Path = "results",
    jobs: int | None = None,
    cluster: str | None = None,
    device: str | None = None,
    overrides: Iterable[str] = (),
    seeds: int | Sequence[int] | None = None,
    keep_compiled: bool = True,
    checkpoint_every: str | float | None = CHECKPOINT_EVERY,
    write_table: bool = True,
    surveyed: Callable[[Sweep], None] | None = None,
    progress: bool | Callable[[Report], None] | None = None,
) -> Sweep:
    """Run the missing runs of a study and return the sweep.

    Args:
        study: the path of a study, a mapping of its content (its base may be a `Scenario`), or what `load_study`
            returned.
        out: the folder of all results; the sweep is `<out>/<study>/`.
        jobs: runs at a time; by default the study's number, else one per core. With one, everything happens in this
            process.
        cluster: the address of a dask scheduler, instead of local processes.
        device: "cpu" or "gpu"; JAX's default otherwise.
        overrides: changes to every run, `key.path=value`; not with what `load_study` returned.
        seeds: instead of the study's; likewise.
        keep_compiled: let processes share compiled programs through a folder.
        checkpoint_every: host time between the checkpoints of a run, from which the same sweep continues later:
            "5 min", seconds, or "never". Ignored on a cluster.
        write_table: write summary.csv at the end; without it, `Sweep.write_table` can do so later.
        surveyed: called once with the existing sweep, before anything is checked or run.
        progress: True shows a bar in a notebook or on a terminal, None only in a notebook, False not at all. A function
            is called when a run has ended, and while scenarios are checked.

    Returns:
        The sweep, with the status of every run: Ctrl-C leaves some of them missing.

    Raises:
        ScenarioError, DataError: bad input, before anything runs; one line per problem.
        RunError: the disk or the cluster failed; finished runs are kept.
    """
    if jobs is not None and jobs < 1:
        raise ScenarioError(f"--jobs: expected at least 1, found {jobs}; leave it out for as many as there are cores")
    plan = study if isinstance(study, StudyPlan) else load_study(study, overrides, seeds)
    if plan.tuning is not None:
        from simfl.studies.tuning import tuned

        run = functools.partial(
            sweep,
            out=out,
            jobs=jobs,
            cluster=cluster,
            device=device,
            keep_compiled=keep_compiled,
            checkpoint_every=checkpoint_every,
            write_table=write_table,
            surveyed=surveyed,
            progress=progress,
        )
        return tuned(plan, run)
    root = to_path(out, "out: a folder")
    visible, tell = (False, progress) if callable(progress) else (progress, None)
    with _alone_in(root / plan.study.name), bar(plan.study.name, visible) as shown:
        from simfl.runs.intervals import parse_interval

        every_s = parse_interval(checkpoint_every)
        state = survey(plan, root)
        _tidy(state.folder)
        if surveyed is not None:
            surveyed(state)
        missing = [run for run, existing in zip(plan.runs, state.runs, strict=True) if not existing.finished]
        report = tell or _into(shown)
        total = len(state.runs)
        check(plan, missing, device, lambda count: report(Report(len(state.finished), total, None, checked=count)))
        count = jobs or plan.study.jobs or os.cpu_count() or 1
        engine = choose_engine(min(count, max(1, len(missing))), cluster)
        compiled = str((root / programs.FOLDER).absolute()) if keep_compiled else None
        beside = tuple(dict.fromkeys(str(path.parent.absolute()) for path in plan.beside))
        tasks = [
            RunTask(
                run.scenario.resolved(),
                str(root.absolute()),
                run.folder,
                device,
                beside,
                compiled,
                every_s,
                world_key(run.scenario),
            )
            for run in missing
        ]
        try:
            state.write()
            with signals.handled(engine.stop):
                state = _run(engine, tasks, state, report, write_table)
        except OSError as error:
            raise RunError(f"{state.folder}: cannot write the sweep's files: {error.strerror or error}") from error
        finally:
            _tidy(state.folder)
    return state


def _into(shown: Callable[[float, str], None] | None) -> Callable[[Report], None]:
    """Return a function that passes reports to a bar, if there is one."""

    def show(report: Report) -> None:
        if shown is not None:
            last = f"checking {report.checked}" if report.checked else "" if report.run is None else report.run.label
            shown(report.finished / max(report.total, 1), f"{report.finished}/{report.total}  {last}".rstrip())

    return show


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Lock a sweep's folder; a new folder is removed if it stays empty."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.callback(_remove_empty, made)
            stack.enter_context(held(folder / LOCK))
        except HeldError as error:
            action = "wait until it is done, or choose another --out"
            raise ScenarioError(f"{folder}: {error} is sweeping into this folder; {action}") from None
        except OSError as error:
            line = f"{folder}: cannot make a folder for results: {error.strerror}; choose --out"
            raise ScenarioError(line) from error
        yield


def _remove_empty(folders: Iterable[Path]) -> None:
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _tidy(folder: Path) -> None:
    """Remove files of killed processes; the caller must hold the folder's lock."""
    from simfl.runs.intervals import FILE

    for lock in folder.glob("*/run.lock"):
        with contextlib.suppress(HeldError, OSError), held(lock):
            pass  # releasing the lock removes it
    for path in folder.glob("*/manifest.json"):
        with contextlib.suppress(DataError, OSError):
            if RunFolder(path.parent).read_manifest().status in FINISHED:
                for pattern in (f"*{STREAM}", "*.partial", FILE):
                    for left in path.parent.glob(pattern):
                        left.unlink()


def survey(plan: StudyPlan, root: Path) -> Sweep:
    """Return the sweep of a plan, with its existing runs.

    A run exists if its files match its manifest, and if code, data, files of the world and the initial model have the
    manifest's digests. A digest that cannot be computed does not match. Comparing may call the user's own function for
    data; its errors are raised.
    """
    from simfl.assembly.data import shared_data

    study, folder = plan.study, root / plan.study.name
    look_beside(plan.beside)
    existing = _runs_in(folder, {run.key for run in plan.runs})
    is_same, runs = _Comparison(), []
    with shared_data(), one_thread():
        for run in plan.runs:
            named = run.folder, run.label, run.settings, run.changes, run.seed, run.key
            planned = SweepRun(*named, learning_seed=run.learning_seed)
            for name, was in existing.get(run.key, ()):
                if is_same(run.scenario, was):
                    planned = replace(planned, folder=name, status=was.status, reason=was.reason, wall_s=was.wall_s)
                    break
            runs.append(planned)
    axes = {name: list(labels) for name, labels in plan.axes.items()}
    resolved = study.model_dump(by_alias=True, mode="json")
    return Sweep(folder, study.name, study.description, __version__, resolved, axes, tuple(runs), study.baseline)


def _runs_in(folder: Path, keys: Collection[str]) -> dict[str, list[tuple[str, Manifest]]]:
    by_key: dict[str, list[tuple[str, Manifest]]] = {}
    for path in sorted(folder.glob("*/manifest.json"), reverse=True):
        with contextlib.suppress(DataError):  # a damaged run counts as missing
            folder_of_run = RunFolder(path.parent)
            manifest = folder_of_run.read_manifest()
            key = run_key(str(manifest.extra.get("scenario_digest")), str(manifest.versions.get("simfl")))
            if key in keys and manifest.status in FINISHED and folder_of_run.is_whole(manifest):
                by_key.setdefault(key, []).append((path.parent.name, manifest))
    return by_key


class _Comparison:
    """Compares the inputs of finished runs with the present ones; caches files."""

    def __init__(self) -> None:
        self._digest_of = functools.cache(digest_of_file)
        self._code_of = functools.cache(digests_of)

    def __call__(self, scenario: Scenario, manifest: Manifest) -> bool:
        """Return whether all inputs are the same; False if unknown."""
        from simfl.assembly.data import is_same_data

        code = self._code_of(tuple(modules_of(resolved := scenario.resolved())))
        files = {path: self._digest_of(Path(path)) for path in world_files(scenario)}
        return (
            is_known(code)
            and code == manifest.extra.get("own_code", {})
            and flags() == manifest.extra.get("xla_flags", "")
            and not has_objects(resolved)
            and all(files.values())
            and files == manifest.extra.get("world_files", {})
            and _same_start(scenario, manifest.extra.get("init"))
            and is_same_data(scenario, manifest.extra.get("data"), self._digest_of)
        )


def _same_start(scenario: Scenario, was: object) -> bool:
    from simfl.assembly.data import start_file

    if scenario.init is None:
        return True
    with contextlib.suppress(DataError):
        return isinstance(was, dict) and digest_parts(read_models(start_file(scenario.init))) == was.get("digest")
    return False


def check(plan: StudyPlan, runs: Sequence[PlannedRun], device: str | None, tell: Callable[[int], None]) -> None:
    """Check scenarios and their data files, one seed of each label."""
    from simfl.assembly.assemble import prepare  # without JAX: processes of their own compute
    from simfl.assembly.data import shared_data

    problems: dict[str, list[str]] = {}
    labels: set[str] = set()
    with shared_data(), one_thread():
        for run in runs:
            if run.label in labels:
                continue
            labels.add(run.label)
            tell(len(labels))
            try:
                prepare(run.scenario, device)
            except (ScenarioError, DataError) as error:
                for line in str(error).splitlines():
                    problems.setdefault(line, []).append(run.label)
    if problems:
        written = []
        for line, where in problems.items():
            more = f" and {len(where) - 1} more" if len(where) > 1 else ""
            written.append(line if line.startswith("--") else f"{plan.source}: ({where[0]}{more}) {line}")
        raise ScenarioError("\n".join(written))


def _run(
    engine: Engine, tasks: Sequence[RunTask], state: Sweep, tell: Callable[[Report], None], write_table: bool
) -> Sweep:
    runs = {run.folder: run for run in state.runs}
    remaining = {task.run_id for task in tasks}

    def report(run: SweepRun | None = None, outcome: RunOutcome | None = None) -> None:
        left = [run for run in runs.values() if run.folder in remaining]
        finished = sum(run.finished for run in runs.values())
        tell(Report(finished, len(runs), estimate(list(runs.values()), left, engine.jobs), run, outcome))

    report()
    written = time.monotonic()
    try:
        for task, outcome in engine.run(tasks):
            remaining.discard(task.run_id)
            ended = replace(runs[task.run_id], status=outcome.status, reason=outcome.reason)
            run = runs[task.run_id] = replace(ended, wall_s=round(outcome.wall_s, 3))
            # Finished runs have their own manifests: this file only shows the progress to other processes.
            if time.monotonic() - written > 1.0:
                state.with_runs(runs.values()).write()
                written = time.monotonic()
            report(run, outcome)
    finally:
        state = state.with_runs(runs.values())
        state.write()
        if write_table:
            state.write_table()
    return state


def estimate(runs: Sequence[SweepRun], left: Sequence[SweepRun], jobs: int) -> float | None:
    """Return the host seconds that the remaining runs will take.

    The estimate is the mean of finished runs that differ only in the seed, else of all; None before any has finished.
    """
    times_of: dict[str, list[float]] = {}
    for run in runs:
        if run.finished and run.wall_s > 0:
            times_of.setdefault(run.label, []).append(run.wall_s)
    if not times_of:
        return None
    means = {label: sum(times) / len(times) for label, times in times_of.items()}
    usual = sum(means.values()) / len(means)
    return math.fsum(means.get(run.label, usual) for run in left) / jobs
