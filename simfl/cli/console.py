"""What the command line shows: progress while runs are under way, tables when they are done."""

from __future__ import annotations

import contextlib
import math
import textwrap
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from simfl.plots.style import name_of, scale_bytes, scale_time

if TYPE_CHECKING:
    from simfl.records import Progress, Run

NOTHING = "–"
SIDE_BY_SIDE = 4  # up to so many runs stand in columns, if each has some room; more stand in rows
_LEAST_ROOM = 16
_BEFORE_COMPILED = 2  # the first reports come before everything is compiled, and would spoil the speed
_RECENT_S = 3.0  # over which speed is measured

# What a table of one row per run leaves out, one after the other, until it fits. Folders begin with the scenario's
# name, and a status that is not done is said in a line of its own.
_LEFT_OUT = (
    "scenario", "updates/s of wall time", "epochs", "wall time", "status", "sent", "updates", "noise", "virtual time"
)  # fmt: skip

_STATUS_STYLES = {"done": "green", "diverged": "yellow", "interrupted": "yellow", "failed": "red"}


def output() -> Console:
    """Return a console for results; where no terminal sets the width, tables are as wide as they need to be."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=240)


def show_time(seconds: float | None) -> str:
    """Write a duration with four digits and the unit that reads best."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    scale = scale_time(abs(seconds)) if seconds else scale_time(1.0)
    return f"{seconds / scale.divisor:.4g} {scale.unit}"


def show_bytes(count: float) -> str:
    """Write a number of bytes with an SI unit."""
    if not math.isfinite(count):
        return NOTHING
    scale = scale_bytes(count)
    return f"{count / scale.divisor:.4g} {scale.unit}"


def show_share(value: float | None) -> str:
    """Write an accuracy in per cent."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:.2%}"


def show_count(value: float) -> str:
    """Write a whole number with its thousands apart."""
    return f"{value:,.0f}" if math.isfinite(value) else NOTHING


def show_number(value: float) -> str:
    """Write a real number with four digits."""
    return NOTHING if math.isnan(value) else f"{value:.4g}"


@contextlib.contextmanager
def progress_bar(label: str, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Show a run's progress on the terminal while the block runs.

    Yields:
        What the run reports to; None where nobody would see it: with `quiet`, and where stderr is no terminal.
    """
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    from rich import progress as bars

    bar = bars.Progress(
        bars.TextColumn("{task.description}", style="bold", table_column=Column(no_wrap=True, overflow="ellipsis")),
        bars.BarColumn(bar_width=None),
        bars.TextColumn("{task.fields[state]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
        console=console,
        transient=True,
        expand=True,
    )
    recent: deque[Progress] = deque()
    told = widest = 0

    def show(report: Progress) -> None:
        nonlocal told, widest
        told += 1
        if told > _BEFORE_COMPILED:
            recent.append(report)
        while len(recent) > 2 and report.wall_s - recent[1].wall_s >= _RECENT_S:
            recent.popleft()
        state = describe(report, recent[0] if recent else None)
        widest = max(widest, len(state))  # the bar keeps its length, mostly
        bar.update(task, completed=report.fraction, state=state.ljust(widest))

    with bar:
        task = bar.add_task(label, total=1.0, state="compiling")
        yield show


@contextlib.contextmanager
def download_bar() -> Iterator[Callable[[str, int, int | None], None] | None]:
    """Show the progress of downloads while the block runs; yields None where stderr is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    from rich import progress as bars

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.DownloadColumn(),
        bars.TransferSpeedColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=console) as bar:
        tasks: dict[str, bars.TaskID] = {}

        def report(name: str, received: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=received, total=total)

        yield report


def describe(report: Progress, earlier: Progress | None = None) -> str:
    """Return the line beside the bar: virtual time, updates, accuracy; speed and time left since an earlier report."""
    parts = [f"t = {show_time(report.time_s)}", f"{report.updates:,} updates"]
    if report.accuracy is not None:
        parts.append(f"acc. {report.accuracy:.1%}")
    if earlier is not None and (pace := report.pace(earlier)) is not None:
        updates_per_s, remaining_s = pace
        parts.append(f"{updates_per_s:,.0f}/s")
        if remaining_s is not None:
            parts.append(f"ETA {_show_clock(remaining_s)}")
    return "  ".join(parts)


def _show_clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def show_runs(runs: Sequence[Run], console: Console) -> None:
    """Print the summary of finished runs: side by side if they are few, one per row if they are many."""
    from simfl.plots import describe_noise
    from simfl.records import compare

    frame = compare(runs)
    common = float(frame["common_accuracy"].iloc[0])
    private = [run.privacy is not None for run in runs]
    cells: dict[str, list[str]] = {
        "scenario": [run.name for run in runs],
        "algorithm": [name_of(run.algorithm, noisy) for run, noisy in zip(runs, private, strict=True)],
        "noise": [describe_noise(run) or NOTHING for run in runs],
        "status": [run.status for run in runs],
        "virtual time": [show_time(value) for value in frame["time_s"]],
        "updates": [show_count(value) for value in frame["updates"]],
        "epochs": [show_number(value) for value in frame["epochs"]],
        "test accuracy": [show_share(value) for value in frame["test_accuracy"]],
        "test loss": [show_number(value) for value in frame["test_loss"]],
        f"time to {show_share(common)}": [show_time(value) for value in frame["time_to_common_s"]],
        "sent": [show_bytes(value) for value in frame["bytes_sent"]],
        "epsilon": [_show_epsilon(run) for run in runs],
        "wall time": [show_time(value) for value in frame["wall_s"]],
        "updates/s of wall time": [show_count(value) for value in frame["updates_per_s"]],
        "folder": [str(run.folder) for run in runs],
    }
    # Without an accuracy the loss says how good the model is; with one it only takes room.
    del cells["test loss" if (frame["test_accuracy"].notna()).any() else "test accuracy"]
    if math.isnan(common) or len(runs) == 1:
        del cells[f"time to {show_share(common)}"]
    if not any(private):
        del cells["noise"], cells["epsilon"]
    room = (console.width - max(map(len, cells))) // len(runs)
    few = len(runs) <= SIDE_BY_SIDE and room >= _LEAST_ROOM + 3
    console.print(_columns(cells) if few else _rows(cells, console.width))
    for line in _explain_privacy(runs):
        console.print(Text(line))
    for run in runs:
        if run.status != "done":
            console.print(Text(f"{run.name}: {run.status}: {run.manifest.reason}", _STATUS_STYLES.get(run.status, "")))


def _columns(cells: Mapping[str, list[str]]) -> Table:
    """One column per run, one row per measure."""
    table = Table(show_header=False, show_edge=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    for _ in next(iter(cells.values())):
        table.add_column(overflow="fold")
    for measure, values in cells.items():
        table.add_row(measure, *(_styled(measure, value) for value in values))
    return table


def _rows(cells: Mapping[str, list[str]], width: int) -> Table:
    """One row per run; headings are broken and what tells least is left out until the rows fit into the width."""
    shown, broken = dict(cells), False
    least_telling = iter(_LEFT_OUT)
    while sum(_needs(name, values, broken) for name, values in shown.items()) + 3 * (len(shown) - 1) > width:
        if not broken:
            broken = True
        elif (measure := next(least_telling, None)) is not None:
            shown.pop(measure, None)
        else:
            break
    table = Table(show_edge=False, pad_edge=False)
    for measure, values in shown.items():
        is_text = measure in {"scenario", "algorithm", "noise", "status", "folder"}
        heading = "\n".join(textwrap.wrap(measure, _needs(measure, values, broken)))
        table.add_column(heading, justify="left" if is_text else "right", overflow="fold")
    for row in zip(*shown.values(), strict=True):
        table.add_row(*(_styled(measure, value) for measure, value in zip(shown, row, strict=True)))
    return table


def _needs(measure: str, values: Sequence[str], broken: bool) -> int:
    """Return the width of a column whose values stay whole; its heading may be broken between words."""
    return max(map(cell_len, [*(measure.split() if broken else [measure]), *values]))


def _styled(measure: str, value: str) -> Text:
    return Text(value, _STATUS_STYLES.get(value, "") if measure == "status" else "")


def _show_epsilon(run: Run) -> str:
    if run.privacy is None:
        return NOTHING
    epsilon, delta = run.epsilon_and_delta()
    return "not certified" if math.isnan(epsilon) else f"{epsilon:.4g} at delta {delta:g}"


def _explain_privacy(runs: Sequence[Run]) -> list[str]:
    """An epsilon is never shown without what it protects from whom; the ledger's own words, once each."""
    statements = [str(run.manifest.extra.get("privacy", "")) for run in runs if run.privacy is not None]
    return [f"privacy: {statement}" for statement in dict.fromkeys(statements) if statement]


def show_listing(title: str, entries: Mapping[str, str], console: Console) -> None:
    """Print names with one line about each."""
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, summary in entries.items():
        table.add_row(Text(f"  {name}"), Text(summary))
    console.print(table)


def show_bench(results: Iterable[Mapping[str, Any]], console: Console) -> None:
    """Print the benchmark: what was measured, and how near it is to what the device could do."""
    table = Table(show_edge=False, pad_edge=False)
    for heading in (
        "case",
        "workers",
        "device",
        "updates/s",
        "of the kernel limit",
        "x per call",
        "world events/s",
        "peak",
    ):
        table.add_column(heading, justify="left" if heading in {"case", "device"} else "right")
    for result in results:
        table.add_row(
            str(result["case"]),
            show_count(result["workers"]),
            str(result["device"]),
            show_count(result["updates_per_s"]),
            _show_ratio(result["kernel_limit_ratio"]),
            _show_ratio(result["per_call_ratio"]),
            NOTHING if result["world_events_per_s"] is None else show_count(result["world_events_per_s"]),
            show_bytes(result["peak_rss_bytes"]),
        )
    console.print(table)


def _show_ratio(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"
