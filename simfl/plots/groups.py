"""Curves over seeds: the mean of a group with its 95% band.

Runs are evaluated at different times, so they are interpolated onto a common grid: linearly between evaluations, or as
steps that hold the last value. The grid ends where the first of a group's runs ends: a mean over fewer seeds would jump
where one of them ends.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from simfl.comparison.comparing import FEW
from simfl.comparison.intervals import half_widths
from simfl.comparison.sweeps import Group
from simfl.plots.axes import arrange, axis_label, check_y, scale_of, x_axis
from simfl.plots.style import axes_of, color_of, line_of, marker_of, name_of, shade, style
from simfl.records.costs import ACCURACY
from simfl.records.display import measure_label
from simfl.records.results import clock_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Interpolation = Literal["linear", "step"]

#: Places of the common grid.
POINTS = 200
#: Smaller consensus distances, as a share of the largest, are rounding: averaged models are then equal.
ROUNDING = 1e-5

_LOWEST_SHADE = 0.5


@dataclass(frozen=True)
class Band:
    """A mean curve with its interval, on a grid x.

    Arrays are float [n]; low and high are NaN for a single run. `each` holds the curves of the runs, float [count, n].
    """

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    count: int
    each: NDArray[np.float64]


@dataclass(frozen=True)
class Look:
    """The look of a group: the shaded color of its algorithm, line style and marker."""

    color: str
    line: Any
    marker: str | None
    label: str


def average(group: Group, x: str, y: str, interpolation: Interpolation = "linear") -> Band | None:
    """Return a group's mean with Student's 95% intervals on a grid.

    Runs that diverged or failed are left out; None if no run has both columns. With the interpolation "step", the value
    of the last evaluation holds until the next one.
    """
    curves, seeds = [], []
    for seed, run in group.good.items():
        frame = run.metrics
        if y == "consensus_distance":  # zero, and rounding about it, has no place on a logarithmic axis
            frame = frame[frame[y] > ROUNDING * frame[y].max()]
        frame = frame[[x, y]].dropna().drop_duplicates(x, keep="last").sort_values(x)
        if len(frame):
            curves.append((frame[x].to_numpy(float), frame[y].to_numpy(float)))
            seeds.append(seed)
    if not curves:
        return None
    first, last = max(places[0] for places, _ in curves), min(places[-1] for places, _ in curves)
    start = curves[0][0]
    shared = all(len(places) == len(start) and np.allclose(places, start, rtol=1e-9) for places, _ in curves)
    grid = start if shared else np.linspace(first, max(first, last), POINTS)
    values = np.array([_at(grid, places, heights, interpolation) for places, heights in curves])
    mean = values.mean(axis=0)
    half = half_widths(seeds, values)
    return Band(grid, mean, mean - half, mean + half, len(curves), values)


def _at(
    grid: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64], interpolation: Interpolation
) -> NDArray[np.float64]:
    if interpolation == "linear":
        return np.interp(grid, x, y)
    steps: NDArray[np.float64] = y[np.clip(np.searchsorted(x, grid, side="right") - 1, 0, len(y) - 1)]
    return steps


def looks_of(groups: Sequence[Group], among: Sequence[Group] | None = None) -> list[Look]:
    """Return each group's look: line styles differ, colors by algorithm.

    `among` are all groups of the study, so that a group looks the same in every figure; by default only `groups`.
    """
    if among is not None:
        by_label = {group.label: look for group, look in zip(among, looks_of(among), strict=True)}
        return [by_label[group.label] for group in groups]
    colors = [color_of(group.algorithm) for group in groups]
    totals, seen = Counter(colors), Counter[str]()
    looks = []
    for position, (group, color) in enumerate(zip(groups, colors, strict=True)):
        like, total = seen[color], totals[color]
        seen[color] += 1
        strength = 1.0 - (1.0 - _LOWEST_SHADE) * like / max(1, total - 1) if total > 1 else 1.0
        looks.append(Look(shade(color, strength), line_of(position), marker_of(position), label_of(group)))
    return looks


def label_of(group: Group) -> str:
    """Return a group's label with the algorithm as papers write it."""
    lost = len(group.runs) - len(group.good)
    return _named(group, group.label) + (f" ({lost} of {len(group.runs)} diverged)" if lost else "")


def shown_labels(groups: Iterable[Group]) -> list[tuple[str, str]]:
    """Return what tables and figures show in place of labels, with the labels.

    The labels are those of groups and of their settings.
    """
    return [(_named(group, label), label) for group in groups for label in (*group.settings.values(), group.label)]


def _named(group: Group, label: str) -> str:
    """Return a label with the name of the algorithm in place of its kind."""
    kind = group.algorithm
    name = name_of(kind, group.private, group.title)
    return ", ".join(name if word == kind else word for word in label.split(", "))


def plot_groups(
    groups: Sequence[Group],
    x: str = "time",
    y: str = "test_accuracy",
    *,
    interpolation: Interpolation = "linear",
    target: float | None = None,
    among: Sequence[Group] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot each group's mean with its 95% band; below four seeds, thin lines.

    `groups` are from `open_groups`. `among` are all groups of the study, so that a group has the same color and line in
    every figure. `x` is time, updates, epochs, rounds, bytes or epsilon. `y` is a column of the metrics table, and
    consensus distances have a logarithmic axis. `target` is an accuracy to mark, or a `Target` of another metric.
    `interpolation` is "linear", or "step", which holds the last value. Returns the axes, for `save`.
    """
    column, x_label = x_axis(x)
    for name in (column, y):
        check_y(name, (run for group in groups for run in group.good.values()))
    among = groups if among is None else among
    if y == "consensus_distance":  # of a single model it is zero, which has no place on a logarithmic axis
        largest = {group.label: _largest(group, y) for group in groups}
        least = ROUNDING * max(largest.values(), default=0.0)
        groups = [group for group in groups if largest[group.label] > least] or groups
    bands = [average(group, column, y, interpolation) for group in groups]
    drawn = [band for band in bands if band is not None]
    x_scale = scale_of(column, max((float(band.x[-1]) for band in drawn), default=0.0))
    y_scale = scale_of(y, max((float(np.nanmax(band.mean)) for band in drawn), default=0.0))
    runs = [run for group in groups for run in group.runs.values()]
    x_label = clock_of(runs) if column == "time_s" else x_label
    with style():
        ax = axes_of(ax, 6.4, 4.2)
        for band, look in zip(bands, looks_of(groups, among), strict=True):
            if band is None:
                ax.plot([], [], color=look.color, linestyle=look.line, label=f"{look.label}: nothing to draw")
                continue
            places = band.x / x_scale.divisor
            if 1 < band.count < FEW:  # an interval would say little
                for heights in band.each:
                    ax.plot(places, heights / y_scale.divisor, color=look.color, linewidth=0.6, alpha=0.7)
            elif band.count > 1:
                ax.fill_between(
                    places, band.low / y_scale.divisor, band.high / y_scale.divisor, color=look.color, alpha=0.18, lw=0
                )
            ax.plot(
                places, band.mean / y_scale.divisor, color=look.color, linestyle=look.line, label=look.label,
                drawstyle="steps-post" if interpolation == "step" else "default", marker=look.marker, markevery=0.1,
            )  # fmt: skip
        ax.set(xlabel=axis_label(column, x_label, x_scale, runs), ylabel=axis_label(y, measure_label(y), y_scale, runs))
        if target is not None and y == getattr(target, "metric", ACCURACY) and math.isfinite(target):
            ax.axhline(target, color="#555555", linewidth=0.9, linestyle=(0, (2, 2)), zorder=1.5)
        _finish(ax, y, drawn)
    return ax


def _largest(group: Group, y: str) -> float:
    return max((float(run.metrics[y].max()) for run in group.good.values()), default=0.0)


def _finish(ax: Axes, y: str, bands: Sequence[Band]) -> None:
    curves = [
        band.each.min(axis=0) if band.count < FEW else np.where(np.isnan(band.low), band.mean, band.low)
        for band in bands
    ]
    arrange(ax, y, curves)
    if y == "consensus_distance" and bands:
        positive = [float(band.mean[band.mean > 0].min()) for band in bands if (band.mean > 0).any()]
        if positive:
            ax.set_yscale("log")
            ax.yaxis.set_major_formatter(lambda value, position: f"{value:g}")
            ax.yaxis.set_minor_formatter(lambda value, position: f"{value:g}" if f"{value:e}"[0] in "25" else "")
            ax.set_ylim(bottom=min(positive) / 1.5)
