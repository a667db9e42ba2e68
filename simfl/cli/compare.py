"""What `simfl sweep` and `simfl compare` show: the plan, how far it is, and the comparison."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from simfl.cli.console import NOTHING, output, show_bytes, show_share, show_time
from simfl.plots.style import scale_bytes, scale_time

if TYPE_CHECKING:
    import pandas as pd

    from simfl.records.sweeps import Sweep
    from simfl.scenario.study import Plan
    from simfl.studies import Report


def show_plan(plan: Plan, state: Sweep) -> None:
    """Say how many runs there are, of what, how many are there already, and what the rest may take."""
    from simfl.studies.running import estimate

    sizes = {**{name: len(labels) for name, labels in plan.axes.items()}, "seed": len({run.seed for run in plan.runs})}
    parts = " x ".join(f"{name} ({size})" for name, size in sizes.items())
    total, there = len(state.runs), len(state.finished)
    lines = [f"{plan.study.name}: {total} run{'s' * (total > 1)}: {parts}"]
    if there:
        lines.append(f"{there} finished before, {total - there} to go")
    left = [run for run in state.runs if not run.finished]
    remaining = estimate(state.runs, left, 1)
    if left:
        lines.append(
            "time: not known before the first run has finished"
            if remaining is None
            else f"time: about {_about(remaining)} on one core, by the runs that are there"
        )
    print("\n".join(lines), flush=True)


@contextlib.contextmanager
def sweep_progress(name: str, quiet: bool) -> Iterator[Callable[[Report], None] | None]:
    """Show how far a sweep is: a bar on a terminal, a line per run elsewhere; nothing with `quiet`."""
    console = Console(stderr=True)
    if quiet:
        yield None
    elif not console.is_terminal:
        yield _write_line
    else:
        from rich import progress as bars

        bar = bars.Progress(
            bars.TextColumn("{task.description}", style="bold"),
            bars.BarColumn(bar_width=None),
            bars.TextColumn("{task.fields[state]}"),
            console=console,
            transient=True,
            expand=True,
        )

        def show(report: Report) -> None:
            if report.checked is not None:
                bar.update(task, state=f"checking {report.checked}")
                return
            left = f"  about {_about(report.remaining_s)} left" if report.remaining_s else ""
            last = "" if report.run is None else f"  {report.run.label}"
            state = f"{report.finished}/{report.total}{last}{left}"
            bar.update(task, completed=report.finished, total=report.total, state=state)

        with bar:
            task = bar.add_task(name, total=1.0, state="")
            yield show


def _about(seconds: float) -> str:
    """An estimate has two digits."""
    return show_time(float(f"{seconds:.2g}"))


def _write_line(report: Report) -> None:
    run, outcome = report.run, report.outcome
    if run is None or outcome is None:
        return
    ending = f" {show_share(outcome.accuracy)}" if math.isfinite(outcome.accuracy) else ""
    left = f", about {_about(report.remaining_s)} left" if report.remaining_s else ""
    line = f"{report.finished}/{report.total} {run.label}, seed {run.seed}: {run.status}{ending}"
    sys.stderr.write(f"{line} in {show_time(run.wall_s)}{left}\n")
    sys.stderr.flush()


def show_comparison(table: pd.DataFrame) -> None:
    """Print a comparison of groups: mean ± half of the 95% interval over seeds."""
    console = output()
    target = float(table["target"].iloc[0])
    shown: dict[str, list[str]] = {"": list(table["label"]), "runs": [_show_runs(row) for _, row in table.iterrows()]}
    has_accuracy = table["test_accuracy"].notna().any()
    shown["test accuracy" if has_accuracy else "test loss"] = (
        _column(table, "test_accuracy", _show_share) if has_accuracy else _column(table, "test_loss", _show_number)
    )
    if not math.isnan(target):
        formats = {
            "time_s": ("time", _show_time),
            "updates": ("updates", _show_count),
            "epochs": ("epochs", _show_number),
            "bytes_sent": ("sent", _show_bytes),
            "epsilon": ("epsilon", _show_number),
        }
        for column, (name, show) in formats.items():
            if table[f"to_target_{column}"].notna().any():
                cells = _column(table, f"to_target_{column}", show)
                shown[f"{name} to {show_share(target)}"] = [
                    cell if row["reached"] == row["runs"] - row["diverged"] else f"reached by {row['reached']}"
                    for cell, (_, row) in zip(cells, table.iterrows(), strict=True)
                ]
    if table["epsilon"].notna().any():
        shown["epsilon at the end"] = _column(table, "epsilon", _show_number)
    if "baseline" in table:
        shown["speed-up"] = [_show_factor(row, "speedup") for _, row in table.iterrows()]
        if has_accuracy:
            shown["accuracy, difference"] = _column(table, "accuracy_difference", _show_points)
    _narrow(shown, console.width)
    grid = Table(show_edge=False, pad_edge=False)
    for heading in shown:
        grid.add_column(heading, justify="left" if not heading else "right", overflow="fold")
    for row in zip(*shown.values(), strict=True):
        grid.add_row(*(Text(cell) for cell in row))
    console.print(grid)
    for line in _explain(table):
        console.print(Text(line, "dim"))


def _narrow(shown: dict[str, list[str]], width: int) -> None:
    """Leave out what tells least until the table fits into the width."""
    for word in ("epochs to", "updates to", "runs", "epsilon to", "sent to", "epsilon at", "time to"):
        if sum(max(map(cell_len, [*name.split(), *cells])) + 3 for name, cells in shown.items()) <= width:
            return
        for name in [name for name in shown if name.startswith(word)]:
            del shown[name]


def _explain(table: pd.DataFrame) -> Iterator[str]:
    if table["runs"].max() > 1:
        yield "mean ± half of the 95% interval over seeds (Student's t)"
    if "baseline" in table:
        names = list(table["baseline"].dropna().unique())
        against = names[0] if len(names) == 1 else "the baseline that is like it otherwise"
        yield (
            f"speed-up: how many times less virtual time to the target than {against}; it and the difference are over "
            "pairs of runs of one seed, the speed-up is a geometric mean"
        )


def _show_runs(row: pd.Series[Any]) -> str:
    return str(row["runs"]) + (f" ({row['diverged']} diverged)" if row["diverged"] else "")


def _column(table: pd.DataFrame, name: str, show: Callable[[float, float], str]) -> list[str]:
    halves = (table[f"{name}_high"] - table[f"{name}_low"]) / 2
    return [NOTHING if math.isnan(mean) else show(mean, half) for mean, half in zip(table[name], halves, strict=True)]


def _with_half(mean: str, half: str) -> str:
    return f"{mean} ± {half}" if half else mean


def _show_share(mean: float, half: float) -> str:
    return _with_half(f"{100 * mean:.2f}", "" if math.isnan(half) else f"{100 * half:.2f}") + " %"


def _show_points(mean: float, half: float) -> str:
    return _with_half(f"{100 * mean:+.2f}", "" if math.isnan(half) else f"{100 * half:.2f}") + " points"


def show_half(half: float, mean: float) -> str:
    """Write half of an interval with two digits and no power of ten; what is rounding beside the mean is 0."""
    return "0" if half <= 1e-9 * abs(mean) else f"{float(f'{half:.2g}'):,.10g}"


def _show_number(mean: float, half: float) -> str:
    return _with_half(f"{mean:.4g}", "" if math.isnan(half) else show_half(half, mean))


def _show_count(mean: float, half: float) -> str:
    return _with_half(f"{mean:,.0f}", "" if math.isnan(half) else f"{half:,.0f}")


def _show_factor(row: pd.Series[Any], name: str) -> str:
    """A ratio with the bounds of its interval, which is not symmetric."""
    mean, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if math.isnan(mean):
        return NOTHING
    return f"{mean:.3g} x" + ("" if math.isnan(low) or low == high else f" ({low:.2g} to {high:.2g})")


def _show_time(mean: float, half: float) -> str:
    if math.isnan(half):
        return show_time(mean)
    scale = scale_time(abs(mean) or 1.0)
    half_width = show_half(half / scale.divisor, mean / scale.divisor)
    return f"{mean / scale.divisor:.4g} ± {half_width} {scale.unit}"


def _show_bytes(mean: float, half: float) -> str:
    if math.isnan(half):
        return show_bytes(mean)
    scale = scale_bytes(mean)
    half_width = show_half(half / scale.divisor, mean / scale.divisor)
    return f"{mean / scale.divisor:.4g} ± {half_width} {scale.unit}"
