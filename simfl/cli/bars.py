"""Progress bars of runs and sweeps."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich import progress as bars
from rich.console import Console
from rich.table import Column

from simfl.cli.shared import say
from simfl.records.display import show_about, show_share, show_time
from simfl.records.progress import Recent, describe

if TYPE_CHECKING:
    from simfl.records import Progress
    from simfl.studies import Report

_LEAST_BAR = 8  # characters


@contextlib.contextmanager
def progress_bar(label: str, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Show a run's progress on the terminal while the block runs.

    Yields the callback of progress reports; None with `quiet`, or if stderr is not a terminal.
    """
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    recent, widest = Recent(), 0

    def show(report: Progress) -> None:
        nonlocal widest
        state = describe(report, recent.since(report), room_of(console, label))
        widest = max(widest, len(state))  # so that the bar mostly keeps its length
        bar.update(task, completed=report.fraction, state=state.ljust(widest))

    with _bar(console) as bar:
        task = bar.add_task(label, total=1.0, state="compiling")
        yield show


@contextlib.contextmanager
def sweep_progress(name: str, quiet: bool) -> Iterator[Callable[[Report], None] | None]:
    """Show a sweep's progress: a bar on a terminal, else a line per run."""
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

    with _bar(console) as bar:
        task = bar.add_task(name, total=1.0, state="")
        yield show


def room_of(console: Console, label: str) -> int:
    """Return the characters left beside a label and a visible bar."""
    return console.width - min(len(label), console.width // 3) - _LEAST_BAR - 2


def _bar(console: Console) -> bars.Progress:
    label = Column(no_wrap=True, overflow="ellipsis", max_width=console.width // 3)
    return bars.Progress(
        bars.TextColumn("{task.description}", style="bold", table_column=label),
        bars.BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=_LEAST_BAR)),
        bars.TextColumn("{task.fields[state]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
        console=console,
        transient=True,
        expand=True,
    )


def _say_run(report: Report) -> None:
    run, outcome = report.run, report.outcome
    if run is None or outcome is None:
        return
    accuracy = f" {show_share(outcome.accuracy)}" if math.isfinite(outcome.accuracy) else ""
    left = f", about {show_about(report.remaining_s)} left" if report.remaining_s else ""
    line = f"{report.finished}/{report.total} {run.label}, seed {run.seeds}: {run.status}{accuracy}"
    say(f"{line} in {show_time(run.wall_s)}{left}")
