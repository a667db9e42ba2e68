"""Progress bars of runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich import progress as bars
from rich.console import Console
from rich.table import Column

from simfl.records.progress import Recent, describe

if TYPE_CHECKING:
    from simfl.records import Progress

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

    with bar_on(console) as bar:
        task = bar.add_task(label, total=1.0, state="compiling")
        yield show


def room_of(console: Console, label: str) -> int:
    """Return the characters left beside a label and a visible bar."""
    return console.width - min(len(label), console.width // 3) - _LEAST_BAR - 2


def bar_on(console: Console) -> bars.Progress:
    """Return a bar over the width of the terminal, with a label and a state."""
    label = Column(no_wrap=True, overflow="ellipsis", max_width=console.width // 3)
    return bars.Progress(
        bars.TextColumn("{task.description}", style="bold", table_column=label),
        bars.BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=_LEAST_BAR)),
        bars.TextColumn("{task.fields[state]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
        console=console,
        transient=True,
        expand=True,
    )
