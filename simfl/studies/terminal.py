"""What commands that sweep share: an option, progress, and how they exit."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from simfl import signals
from simfl.cli.shared import RUN_FAILED, say

if TYPE_CHECKING:
    from simfl.comparison.sweeps import SweepRun
    from simfl.studies.running import Report

Jobs = Annotated[int | None, Option("--jobs", "-j", help="Runs at a time; by default one per core.")]


@contextlib.contextmanager
def sweep_progress(name: str, quiet: bool) -> Iterator[Callable[[Report], None] | None]:
    """Show a sweep's progress: a bar on a terminal, else a line per run."""
    from rich.console import Console

    from simfl.cli.bars import bar_on, room_of
    from simfl.records.display import show_about

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None if quiet else _say_run
        return

    def show(report: Report) -> None:
        if report.checked is not None:
            bar.update(task, state=f"checking {report.checked}")
            return
        left = f"  about {show_about(report.remaining_s)} left" if report.remaining_s else ""
        last = "" if report.run is None else f"  {report.run.label}"
        state = f"{report.finished}/{report.total}{last}{left}"
        if len(state) > room_of(console, name):
            state = f"{report.finished}/{report.total}{left}"
        bar.update(task, completed=report.finished, total=report.total, state=state)

    with bar_on(console) as bar:
        task = bar.add_task(name, total=1.0, state="")
        yield show


def _say_run(report: Report) -> None:
    from simfl.records.display import show_about, show_share, show_time

    run, outcome = report.run, report.outcome
    if run is None or outcome is None:
        return
    accuracy = f" {show_share(outcome.accuracy)}" if math.isfinite(outcome.accuracy) else ""
    left = f", about {show_about(report.remaining_s)} left" if report.remaining_s else ""
    line = f"{report.finished}/{report.total} {run.label}, seed {run.seeds}: {run.status}{accuracy}"
    say(f"{line} in {show_time(run.wall_s)}{left}")


def exit_after(runs: Iterable[SweepRun]) -> None:
    """Report failed and missing runs of a study, and exit with their code."""
    planned = list(runs)
    failed = [run for run in planned if run.status == "failed"]
    missing = sum(not run.finished for run in planned) - len(failed)
    for run in failed:
        say(f"{run.label}, seed {run.seeds}: failed: {run.reason}")
    if failed:
        say(f"{len(failed)} of {len(planned)} runs failed; the same command tries them again")
        raise typer.Exit(RUN_FAILED)
    if missing:
        say(f"{missing} of {len(planned)} runs are missing; the same command continues with them")
        raise typer.Exit(signals.exit_code())
