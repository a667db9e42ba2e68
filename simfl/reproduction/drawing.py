"""What the figures of several studies share: panels, means with error bars, axes of powers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simfl.records.comparison import interval_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def panels(rows: int, columns: int, size: tuple[float, float], **shared: Any) -> tuple[Figure, Any]:
    """Return a figure of some inches, and its panels as an array of objects [rows, columns]."""
    from matplotlib import pyplot as plt

    return plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained", **shared)


def with_bars(axis: Axes, places: Sequence[float], values: Sequence[Sequence[float]], **look: Any) -> None:
    """Draw the means over seeds with bars of their 95% intervals, and no bar where there is one seed alone."""
    found = [interval_of(own) for own in values]
    halves = [0.0 if math.isnan(own.low) else own.half_width for own in found]
    axis.errorbar(places, [own.mean for own in found], halves, marker="o", ms=3.5, capsize=2, lw=1.5, **look)


def log_axis(axis: Axes, ticks: Sequence[float], form: str = "{:g}") -> None:
    """Make the x axis logarithmic, with ticks at some places alone."""
    axis.set_xscale("log")
    axis.set_xticks(ticks, [form.format(tick) for tick in ticks])
    axis.minorticks_off()


def labelled(
    figure: Figure, axes: Any, x: str, y: str = "test accuracy, %", *, columns: int = 0, **legend: Any
) -> Figure:
    """Name the axes of the panels at the bottom and at the left, and put one legend for all above them.

    Args:
        figure, axes: from `panels`.
        x, y: what the axes are.
        columns: of the legend; 0 for none.
        **legend: what else it is told.
    """
    for axis in axes[-1]:
        axis.set_xlabel(x)
    for axis in axes[:, 0]:
        axis.set_ylabel(y)
    if columns:
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=columns, **legend)
    return figure
