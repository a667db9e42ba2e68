"""Tables on the terminal: listings, runs side by side."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from simfl.cli.screen import escaped
from simfl.cli.screen import output as output
from simfl.looks import name_of
from simfl.records.display import NOTHING, show_bytes, show_count, show_ending, show_number, show_share, show_time

if TYPE_CHECKING:
    from simfl.records import Run

SIDE_BY_SIDE = 4  # up to this number, runs are columns if there is room; more runs are rows
_LEAST_ROOM = 16
_NARROW, _LEAST_NARROW = 14, 12  # names of measures that are folded, and what each run needs beside them
_STATUS_STYLES = {"done": "green", "diverged": "yellow", "interrupted": "yellow", "failed": "red"}


def tables_of(cells: Mapping[str, list[str]], width: int, *, text: Collection[str] = ()) -> list[Table]:
    """Return a table with headings, in parts if it is too wide.

    `cells` maps a heading to a cell for every row; the most important columns come first. Every part begins with the
    first column, which names the rows; nothing is left out. `width` is in characters. `text` are left-aligned columns.
    """
    (head, names), *others = cells.items()
    fits = sum(_needs(*column, broken=False) + 3 for column in cells.items()) - 3 <= width
    least = max((_needs(*column, broken=True) for column in others), default=0) + 3
    first = _needs(head, names, broken=not fits)
    first = min(first, max(width * 2 // 5, width - least))  # names may be folded if numbers need the room
    parts: list[dict[str, list[str]]] = [{}]
    room = width - first
    for heading, values in others:
        needed = _needs(heading, values, broken=not fits) + 3
        if needed > room and parts[-1]:
            parts.append({})
            room = width - first
        parts[-1][heading] = values
        room -= needed
    return [_table({head: names, **part}, first, text, broken=not fits) for part in parts]


def show_parts(parts: Sequence[Table], console: Console) -> None:
    """Print the parts of a table, with an empty line between them."""
    for number, part in enumerate(parts):
        if number:
            console.print()
        console.print(part)


def _table(cells: Mapping[str, list[str]], first: int, text: Collection[str], broken: bool) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for position, (name, values) in enumerate(cells.items()):
        table.add_column(
            "\n".join(textwrap.wrap(name, _needs(name, values, broken))),
            justify="left" if name in text else "right",
            overflow="fold",
            max_width=None if position else first,
        )
    for row in zip(*cells.values(), strict=True):
        table.add_row(*map(_styled, cells, row))
    return table


def _needs(heading: str, values: Sequence[str], broken: bool) -> int:
    return max(map(cell_len, [*(heading.split() if broken else [heading]), *values]))


def _styled(heading: str, value: str) -> Text:
    return escaped(value, _STATUS_STYLES.get(value, "") if heading == "status" else "")


_TEXT_OF_RUNS = {"algorithm", "noise", "status", "folder"}

#: The first columns if every run is a row. The folder begins with the name of the scenario.
_IN_ROWS = (
    "folder", "algorithm", "noise", "test accuracy", "test loss", "time to", "epsilon", "virtual",
    "wall time of the run", "updates",
)  # fmt: skip


def show_runs(runs: Sequence[Run], console: Console) -> None:
    """Print the summary of runs: side by side if few, one per row if many."""
    from simfl.records.costs import outcomes
    from simfl.records.results import clock_of, describe_noise

    rows = outcomes(runs)
    frame = {name: [row[name] for row in rows] for name in rows[0]}
    common = rows[0]["common_accuracy"]
    private = [run.privacy is not None for run in runs]
    cells: dict[str, list[str]] = {
        "scenario": [run.name for run in runs],
        "algorithm": [name_of(run.algorithm, noisy, run.title) for run, noisy in zip(runs, private, strict=True)],
        "noise": [describe_noise(run) or NOTHING for run in runs],
        "status": [run.status for run in runs],
        clock_of(runs) + (" of the run" if any(run.is_live for run in runs) else ""): list(
            map(show_time, frame["time_s"])
        ),
        "updates": list(map(show_count, frame["updates"])),
        "epochs": list(map(show_number, frame["epochs"])),
        "test accuracy": list(map(show_share, frame["test_accuracy"])),
        "test loss": list(map(show_number, frame["test_loss"])),
        f"time to {show_share(common)}": list(map(show_time, frame["time_to_common_s"])),
        "sent": list(map(show_bytes, frame["bytes_sent"])),
        "epsilon": [_epsilon(run) for run in runs],
        "wall time": list(map(show_time, frame["wall_s"])),
        "updates/s of wall time": list(map(show_count, frame["updates_per_s"])),
        "folder": [str(run.folder) for run in runs],
    }
    # Show the loss only for runs without an accuracy.
    del cells["test loss" if not all(map(math.isnan, frame["test_accuracy"])) else "test accuracy"]
    if math.isnan(common) or len(runs) == 1:
        del cells[f"time to {show_share(common)}"]
    if not any(private):
        del cells["noise"], cells["epsilon"]
    room = (console.width - max(map(len, cells))) // len(runs)
    wide = room >= _LEAST_ROOM + 3
    if len(runs) <= SIDE_BY_SIDE and (wide or (console.width - _NARROW) // len(runs) - 3 >= _LEAST_NARROW):
        # A folder in two lines could not be copied.
        below = [] if wide and max(map(len, cells["folder"])) <= room - 3 else cells.pop("folder")
        console.print(_side_by_side(cells, None if wide else _NARROW))
        for folder in below:
            console.print(escaped(f"folder: {folder}"), soft_wrap=True)
    else:
        del cells["scenario"]
        if set(cells["status"]) == {"done"}:  # other states have a line below
            del cells["status"]
        order = sorted(
            cells, key=lambda name: next((i for i, begin in enumerate(_IN_ROWS) if name.startswith(begin)), 99)
        )
        show_parts(tables_of({name: cells[name] for name in order}, console.width, text=_TEXT_OF_RUNS), console)
    # An epsilon is never shown without its guarantee: the ledger's statement, once each.
    statements = [str(run.manifest.extra.get("privacy", "")) for run in runs if run.privacy is not None]
    for statement in filter(None, dict.fromkeys(statements)):
        console.print(escaped(f"privacy: {statement}"))
    assumed = [run for run in runs if run.manifest.extra.get("assumptions")]
    if assumed:
        which = str(assumed[0].folder) if len(assumed) == 1 else "FOLDER"
        console.print(escaped(f"what epsilon assumes: simfl privacy check {which}"), soft_wrap=True)
    for run in runs:
        if run.status != "done":
            ending = f"{run.name}: {show_ending(run.status, run.manifest.reason)}"
            console.print(escaped(ending, _STATUS_STYLES.get(run.status, "")))


def _side_by_side(cells: Mapping[str, list[str]], narrow: int | None = None) -> Table:
    table = Table(show_header=False, show_edge=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=narrow is None, max_width=narrow)
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
