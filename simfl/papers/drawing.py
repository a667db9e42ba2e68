"""Figures of studies: panels, means with error bars, logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simfl.reproduction.evidence import NotMeasuredError, measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # studies name them in annotations, which nothing evaluates
    Axes = Figure = Any


def panels(rows: int, columns: int, size: tuple[float, float], **shared: Any) -> tuple[Figure, Any]:
    """Return a figure and its panels, an array of objects [rows, columns].

    Raises:
        NotMeasuredError: there are no panels to draw.
    """
    from matplotlib import pyplot as plt

    if not rows * columns:
        raise NotMeasuredError("no finished run")
    return plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained", **shared)


def with_bars(axis: Axes, places: Sequence[float], values: Sequence[Sequence[float]], **look: Any) -> None:
    """Draw means over seeds with bars of the 95% intervals; too few seeds have no bar."""
    intervals = [measured(own) for own in values]
    ends = [(own.mean - own.low, own.high - own.mean) for own in intervals]
    bars = [pair if all(map(math.isfinite, pair)) else (0.0, 0.0) for pair in ends]
    sides = [[pair[side] for pair in bars] for side in (0, 1)]
    look = {"marker": "o", "ms": 3.5, "capsize": 2, "lw": 1.5, **look}
    axis.errorbar(places, [own.mean for own in intervals], sides, **look)


def log_axis(axis: Axes, ticks: Sequence[float], form: str = "{:g}") -> None:
    """Make the x axis logarithmic, with ticks only at the given places."""
    axis.set_xscale("log")
    axis.set_xticks(ticks, [form.format(tick) for tick in ticks])
    axis.minorticks_off()


def labeled(
    figure: Figure, axes: Any, x: str, y: str = "test accuracy, %", *, columns: int = 0, **legend: Any
) -> Figure:
    """Label the outer axes, and put one legend above all panels.

    `figure` and `axes` come from `panels`. With 0 columns there is no legend; `legend` goes to `Figure.legend`.
    """
    for axis in axes[-1]:
        axis.set_xlabel(x)
    for axis in axes[:, 0]:
        axis.set_ylabel(y)
    if columns:
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=columns, **legend)
    return figure
