"""Readable comparisons: means with intervals, for notebooks and LaTeX."""

from __future__ import annotations

import functools
import html
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from simfl.comparison.comparing import FINAL, compare_groups, explain, folders_of, speed_up_of, target_in
from simfl.comparison.sweeps import Sweep, is_sweep, open_groups, read_sweep
from simfl.errors import ScenarioError
from simfl.records import display
from simfl.records.results import Run
from simfl.records.tables import SPENT

_COSTS: dict[str, tuple[str, Callable[[float, float], str]]] = {
    "time_s": ("time", display.show_time),
    "updates": ("updates", display.show_count),
    "epochs": ("epochs", display.show_number),
    "bytes_sent": ("sent", display.show_bytes),
    "epsilon": ("epsilon", display.show_number),
    **{name: (name.partition("_")[0], functools.partial(display.show_measure, name)) for name in SPENT},
}

_LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "µ": r"\textmu{}",
    "²": r"$^2$",
    "∞": r"$\infty$",
}


class Comparison(pd.DataFrame):
    """The table of `compare_groups`; a notebook shows its means with intervals."""

    def readable(self) -> pd.DataFrame:
        """Return measures as rows and groups as columns: means with half intervals."""
        (_, groups), *measures = cells_of(self).items()
        return pd.DataFrame(dict(measures), index=groups).T

    def latex(self) -> str:
        """Return the readable table as a LaTeX tabular with the rules of booktabs."""
        return to_latex(self)

    def _repr_html_(self) -> str:
        notes = "<br>".join(html.escape(line) for line in explain(self))
        return f"{self.readable().to_html()}<p>{notes}</p>"


def to_latex(table: pd.DataFrame) -> str:
    """Return a LaTeX tabular with a row for each group; it needs booktabs."""
    cells = cells_of(table)
    rows = [_row(cells), r"\midrule", *(_row(values) for values in zip(*cells.values(), strict=True))]
    notes = [f"% {line}" for line in explain(table)]
    begin = rf"\begin{{tabular}}{{l{'r' * (len(cells) - 1)}}}"
    return "\n".join([*notes, begin, r"\toprule", *rows, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _row(values: Iterable[str]) -> str:
    return " & ".join("".join(_LATEX.get(letter, letter) for letter in value) for value in values) + r" \\"


def cells_of(table: pd.DataFrame) -> dict[str, list[str]]:
    """Return columns for readers, most important first, after the groups' names."""
    target = target_in(table)
    rows = [row for _, row in table.iterrows()]
    cells: dict[str, list[str]] = {"": list(table["label"])}
    has_accuracy = table["test_accuracy"].notna().any()
    if has_accuracy:
        cells["test accuracy"] = _column(table, "test_accuracy", display.show_share)
    else:
        cells["test loss"] = _column(table, "test_loss", display.show_number)
    for column in table.columns[: list(table.columns).index("target")]:
        if f"{column}_low" in table and column not in FINAL:
            cells[display.measure_label(column)] = _column(
                table, column, functools.partial(display.show_measure, column)
            )
    costs = {}
    for column, (name, show) in _COSTS.items() if not math.isnan(target) else ():
        if column in SPENT and f"to_target_{column}" not in table:
            continue
        if column == "time_s" or table[f"to_target_{column}"].notna().any():  # time also tells that no run reached it
            costs[f"{name} to {target.short}"] = [
                cell
                if row["reached"] == row["runs"] - row["diverged"]
                else (f"reached by {row['reached']}" if row["reached"] else "not reached")
                for cell, row in zip(_column(table, f"to_target_{column}", show), rows, strict=True)
            ]
    for name in list(costs)[:1]:
        cells[name] = costs.pop(name)
    if "baseline" in table:
        factors = map(speed_up_of, rows)
        cells["speed-up"] = [display.show_factor(factor.mean, factor.low, factor.high) for factor in factors]
        if has_accuracy:
            cells["accuracy, difference"] = _column(table, "accuracy_difference", display.show_points)
    if table["epsilon"].notna().any():
        cells["epsilon at the end"] = _column(table, "epsilon", display.show_number)
    cells |= {name: costs[name] for name in sorted(costs, key=lambda name: not name.startswith("sent"))}
    cells["runs"] = [str(row["runs"]) + (f" ({row['diverged']} diverged)" if row["diverged"] else "") for row in rows]
    return cells


def _column(table: pd.DataFrame, name: str, show: Callable[[float, float], str]) -> list[str]:
    halves: Any = (table[f"{name}_high"] - table[f"{name}_low"]) / 2
    return list(map(show, table[name], halves))


def compare(
    runs: Run | Sweep | str | Path | Sequence[Run | Sweep | str | Path],
    *,
    target: float | str | None = None,
    baseline: str | None = None,
) -> Comparison:
    """Return one row per group of runs that differ only in seeds.

    `runs` are a sweep, or runs, or their folders. `target` is the test accuracy whose cost is compared, or another
    metric as in "test_loss=0.3"; None: the accuracy of the study, or the best that all runs reached. `baseline` is the
    label of a group, or of one setting; None: that of the study. The columns are those of `compare_groups`. A notebook
    shows means with intervals: `readable()` returns that as a frame, and `latex()` as LaTeX.
    """
    folders = folders_of(runs)
    if not folders:
        raise ScenarioError("compare: expected at least one run, found none")
    groups, usual = open_groups(folders)
    if target is None and len(folders) == 1 and is_sweep(folders[0]):
        target = read_sweep(folders[0]).study["compare"]["target"]
    return Comparison(compare_groups(groups, target, usual if baseline is None else baseline))
