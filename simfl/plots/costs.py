"""The cost of an accuracy as bars, and heat maps over settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simfl.comparison.comparing import FEW, compare_groups, cost_of_accuracy, interval_of, target_in
from simfl.comparison.sweeps import Group
from simfl.errors import ScenarioError
from simfl.plots.axes import scale_of, with_unit
from simfl.plots.groups import looks_of
from simfl.plots.style import ROUNDS, axes_of, percent, style
from simfl.records.costs import COSTS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_costs(
    groups: Sequence[Group],
    columns: Sequence[str] = ("rounds", "bytes_sent"),
    *,
    target: float | str | None = None,
    table: pd.DataFrame | None = None,
) -> Figure:
    """Plot each group's costs until a target, with 95% intervals over seeds.

    Fewer than four seeds are drawn as points, since an interval would say little. `groups` are from `open_groups`, and
    `table` is the result of `compare_groups` for them, if it exists. `columns` are some of time_s, updates, epochs,
    rounds, bytes_sent and epsilon; algorithms without rounds have no bar of rounds. `target` is an accuracy, or text
    such as "test_loss=0.3"; by default the best accuracy that every run reached.
    """
    from matplotlib import pyplot as plt
    from matplotlib.patheffects import withStroke
    from matplotlib.ticker import EngFormatter

    table = compare_groups(groups, target) if table is None else table
    goal = target_in(table)
    looks = looks_of(groups)
    places = np.arange(len(groups))
    seeds = [[cost_of_accuracy(run, goal) for run in group.good.values()] for group in groups]
    with style():
        figure, axes = plt.subplots(
            1, len(columns), figsize=(1.6 + 3.2 * len(columns), 0.9 + 0.34 * len(groups)), layout="constrained",
            sharey=True, squeeze=False,
        )  # fmt: skip
        for ax, column in zip(axes[0], columns, strict=True):
            means = table[f"to_target_{column}"].to_numpy(float)
            without = [column == "rounds" and group.algorithm not in ROUNDS for group in groups]
            means = np.where(without, math.nan, means)
            halves = (table[f"to_target_{column}_high"] - table[f"to_target_{column}_low"]).to_numpy(float) / 2
            largest = float(np.nanmax(means)) if np.isfinite(means).any() else 0.0
            scale = scale_of(column, largest)
            ax.barh(places, means / scale.divisor, color=[look.color for look in looks], height=0.7)
            several = np.array([len(costs) >= FEW for costs in seeds])
            has_interval = several & np.isfinite(halves) & np.isfinite(means)
            for place, costs, mean in zip(places, seeds, means, strict=True):
                if 1 < len(costs) < FEW and math.isfinite(mean):
                    points = [cost[column] / scale.divisor for cost in costs]
                    ax.plot(
                        points, [place] * len(points), "o", color="#222222", markersize=3.5, markerfacecolor="white"
                    )
            bars = ax.errorbar(
                means[has_interval] / scale.divisor, places[has_interval], xerr=halves[has_interval] / scale.divisor,
                fmt="none", ecolor="#222222", elinewidth=1.0, capsize=2.5,
            )  # fmt: skip
            for line in bars.get_children():  # an outline shows them on dark colors
                line.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
            for place, mean, lacks in zip(places, means, without, strict=True):
                if math.isnan(mean):
                    why = " has no rounds" if lacks else " not reached by every run"
                    ax.text(0.0, float(place), why, va="center", fontsize=8, color="#666666")
            ax.set_xlabel(with_unit(COSTS[column], scale))
            furthest = [max((cost[column] for cost in costs), default=math.nan) for costs in seeds]
            ends = np.where(np.isfinite(means), furthest, math.nan)
            reach = np.where(has_interval, means + np.nan_to_num(halves), ends)
            ax.set_xlim(0, 1.06 * min(np.nanmax(reach), 2.0 * largest) / scale.divisor if largest > 0 else 1.0)
            ax.grid(axis="y", visible=False)
            if column in {"rounds", "updates"}:
                ax.xaxis.set_major_formatter(EngFormatter(sep=""))
            ax.locator_params(axis="x", nbins=5)
        axes[0][0].set_yticks(places, [look.label for look in looks])
        axes[0][0].set_ylim(len(groups) - 0.5, -0.5)  # a row without a bar keeps room for its words
        figure.suptitle("no accuracy as a target" if math.isnan(goal) else f"to {goal.words}")
    return figure


def plot_heatmap(
    groups: Sequence[Group], x: str, y: str, *, measure: str = "test_accuracy", ax: Axes | None = None
) -> Axes:
    """Plot a final measure, mean over seeds, over a grid of two settings.

    Groups that differ in a third setting need one heat map for each of its values. A cell without a number has no run
    that ended well. `x` and `y` are the names of two settings; `measure` is a column of the metrics table.
    """
    from matplotlib import pyplot as plt

    for axis in (x, y):
        if any(axis not in group.settings for group in groups):
            valid = ", ".join(groups[0].settings) if groups else "none"
            raise ScenarioError(f"heat map: expected two of the settings that differ ({valid}), found {axis!r}")
    columns = list(dict.fromkeys(group.settings[x] for group in groups))
    rows = list(dict.fromkeys(group.settings[y] for group in groups))
    cells = np.full((len(rows), len(columns)), math.nan)
    for group in groups:
        at = rows.index(group.settings[y]), columns.index(group.settings[x])
        if not math.isnan(cells[at]):
            others = " and ".join(name for name in group.settings if name not in (x, y))
            expected = f"expected one group per cell, found several at {x}={group.settings[x]}, {y}={group.settings[y]}"
            raise ScenarioError(f"heat map: {expected}; choose the groups of one {others}")
        cells[at] = interval_of([float(run.metrics[measure].iloc[-1]) for run in group.good.values()]).mean
    share = measure == "test_accuracy"
    with style():
        ax = axes_of(ax, max(4.4, 2.6 + 0.8 * len(columns)), max(2.6, 1.5 + 0.55 * len(rows)))
        image = ax.imshow(cells, cmap="cividis", aspect="auto")
        middle = np.nanmean([np.nanmin(cells), np.nanmax(cells)]) if np.isfinite(cells).any() else 0.0
        for (row, column), value in np.ndenumerate(cells):
            shown = "–" if math.isnan(value) else f"{100 * value:.1f}" if share else f"{value:.3g}"
            color = "#222222" if math.isnan(value) or value > middle else "white"
            ax.text(column, row, shown, ha="center", va="center", fontsize=9, color=color)
        ax.set_xticks(range(len(columns)), columns, rotation=30 if max(map(len, columns)) > 9 else 0)
        ax.set_yticks(range(len(rows)), rows)
        ax.set(xlabel=x.replace("_", " "), ylabel=y.replace("_", " "))
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        bar: Any = plt.colorbar(image, ax=ax, format=percent() if share else None)
        bar.set_label(measure.replace("_", " ") + (" (numbers in %)" if share else ""))
        bar.outline.set_visible(False)
    return ax
