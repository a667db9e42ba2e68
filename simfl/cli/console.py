"""Tables on the terminal: listings, runs side by side, groups of runs compared."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from simfl.plots.style import name_of
from simfl.records.display import (
    NOTHING,
    show_bytes,
    show_count,
    show_factor,
    show_number,
    show_points,
    show_share,
    show_time,
)

if TYPE_CHECKING:
    import pandas as pd

    from simfl.records import Run

SIDE_BY_SIDE = 4  # up to so many runs stand in columns, if each has some room; more stand in rows
_LEAST_ROOM = 16
_STATUS_STYLES = {"done": "green", "diverged": "yellow", "interrupted": "yellow", "failed": "red"}


def output() -> Console:
    """Return a console for results; where no terminal sets the width, tables are as wide as they need to be."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=240)


def show_listing(title: str, entries: Mapping[str, str], console: Console) -> None:
    """Print names with one line about each."""
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, summary in entries.items():
        table.add_row(Text(f"  {name}"), Text(summary))
    console.print(table)


def table_of(
    cells: Mapping[str, list[str]], width: int, *, text: Collection[str] = (), least_telling: Sequence[str] = ()
) -> Table:
    """Return a table with headings; they are broken, and what tells least is left out, until it fits into the width.

    Args:
        cells: heading -> a cell for every row.
        width: characters that there are.
        text: columns that lean left; numbers lean right.
        least_telling: how the headings begin that can be left out, one after the other.
    """
    shown, broken = dict(cells), False
    left_out = iter(least_telling)
    while sum(_needs(name, values, broken) for name, values in shown.items()) + 3 * (len(shown) - 1) > width:
        if not broken:
            broken = True
        elif (word := next(left_out, None)) is not None:
            shown = {name: values for name, values in shown.items() if not name.startswith(word)}
        else:
            break
    table = Table(show_edge=False, pad_edge=False)
    for name, values in shown.items():
        heading = "\n".join(textwrap.wrap(name, _needs(name, values, broken)))
        table.add_column(heading, justify="left" if name in text else "right", overflow="fold")
    for row in zip(*shown.values(), strict=True):
        table.add_row(*map(_styled, shown, row))
    return table


def _needs(heading: str, values: Sequence[str], broken: bool) -> int:
    """Return the width of a column whose values stay whole; its heading may be broken between words."""
    return max(map(cell_len, [*(heading.split() if broken else [heading]), *values]))


def _styled(heading: str, value: str) -> Text:
    return Text(value, _STATUS_STYLES.get(value, "") if heading == "status" else "")


# -- runs --------------------------------------------------------------------------------------

_TEXT_OF_RUNS = {"scenario", "algorithm", "noise", "status", "folder"}

# Folders begin with the scenario's name, and a status that is not done is said in a line of its own.
_LEAST_OF_RUNS = (
    "scenario", "updates/s of wall time", "epochs", "wall time", "status", "sent", "updates", "noise", "virtual time"
)  # fmt: skip


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
        "epsilon": [_epsilon(run) for run in runs],
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
    if len(runs) <= SIDE_BY_SIDE and room >= _LEAST_ROOM + 3:
        console.print(_side_by_side(cells))
    else:
        console.print(table_of(cells, console.width, text=_TEXT_OF_RUNS, least_telling=_LEAST_OF_RUNS))
    # An epsilon is never shown without what it protects from whom: the ledger's own words, once each.
    statements = [str(run.manifest.extra.get("privacy", "")) for run in runs if run.privacy is not None]
    for statement in filter(None, dict.fromkeys(statements)):
        console.print(Text(f"privacy: {statement}"))
    for run in runs:
        if run.status != "done":
            console.print(Text(f"{run.name}: {run.status}: {run.manifest.reason}", _STATUS_STYLES.get(run.status, "")))


def _side_by_side(cells: Mapping[str, list[str]]) -> Table:
    """One column per run, one row per measure."""
    table = Table(show_header=False, show_edge=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    for _ in next(iter(cells.values())):
        table.add_column(overflow="fold")
    for measure, values in cells.items():
        table.add_row(measure, *(_styled(measure, value) for value in values))
    return table


def _epsilon(run: Run) -> str:
    if run.privacy is None:
        return NOTHING
    epsilon, delta = run.epsilon_and_delta()
    return "not certified" if math.isnan(epsilon) else f"{show_number(epsilon)} at delta {delta:g}"


# -- groups of runs ----------------------------------------------------------------------------

_COSTS: dict[str, tuple[str, Callable[[float, float], str]]] = {
    "time_s": ("time", show_time),
    "updates": ("updates", show_count),
    "epochs": ("epochs", show_number),
    "bytes_sent": ("sent", show_bytes),
    "epsilon": ("epsilon", show_number),
}
_LEAST_OF_GROUPS = ("epochs to", "updates to", "runs", "epsilon to", "sent to", "epsilon at", "time to")


def show_comparison(table: pd.DataFrame) -> None:
    """Print a comparison of groups: mean ± half of the 95% interval over seeds."""
    console = output()
    target = float(table["target"].iloc[0])
    rows = [row for _, row in table.iterrows()]
    has_accuracy = table["test_accuracy"].notna().any()
    cells: dict[str, list[str]] = {
        "": list(table["label"]),
        "runs": [str(row["runs"]) + (f" ({row['diverged']} diverged)" if row["diverged"] else "") for row in rows],
    }
    if has_accuracy:
        cells["test accuracy"] = _column(table, "test_accuracy", show_share)
    else:
        cells["test loss"] = _column(table, "test_loss", show_number)
    for column, (name, show) in _COSTS.items() if not math.isnan(target) else ():
        if table[f"to_target_{column}"].notna().any():
            cells[f"{name} to {show_share(target)}"] = [
                cell if row["reached"] == row["runs"] - row["diverged"] else f"reached by {row['reached']}"
                for cell, row in zip(_column(table, f"to_target_{column}", show), rows, strict=True)
            ]
    if table["epsilon"].notna().any():
        cells["epsilon at the end"] = _column(table, "epsilon", show_number)
    if "baseline" in table:
        cells["speed-up"] = [show_factor(*(row[f"speedup{end}"] for end in ("", "_low", "_high"))) for row in rows]
        if has_accuracy:
            cells["accuracy, difference"] = _column(table, "accuracy_difference", show_points)
    console.print(table_of(cells, console.width, text={""}, least_telling=_LEAST_OF_GROUPS))
    for line in _explain(table):
        console.print(Text(line, "dim"))


def _column(table: pd.DataFrame, name: str, show: Callable[[float, float], str]) -> list[str]:
    halves: Any = (table[f"{name}_high"] - table[f"{name}_low"]) / 2
    return list(map(show, table[name], halves))


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
