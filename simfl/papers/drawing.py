"""What the figures of several studies share: panels, means with error bars, axes of powers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simfl.studies.evidence import NotMeasuredError, measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def panels(rows: int, columns: int, size: tuple[float, float], **shared: Any) -> tuple[Figure, Any]:
    """Return a figure of some inches, and its panels as an array of objects [rows, columns].

    Raises:
        NotMeasuredError: there is nothing to draw.
    """
    from matplotlib import pyplot as plt

    if not rows * columns:
        raise NotMeasuredError("no finished run")
    return plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained", **shared)


def with_bars(axis: Axes, places: Sequence[float], values: Sequence[Sequence[float]], **look: Any) -> None:
    """Draw what was measured over seeds with bars of the 95% intervals, and no bar where there are too few seeds."""
    found = [measured(own) for own in values]
    bounded = [math.isfinite(own.low) and math.isfinite(own.high) for own in found]
    bars = [
        [own.mean - own.low if has else 0.0 for own, has in zip(found, bounded, strict=True)],
        [own.high - own.mean if has else 0.0 for own, has in zip(found, bounded, strict=True)],
    ]
    axis.errorbar(places, [own.mean for own in found], bars, marker="o", ms=3.5, capsize=2, lw=1.5, **look)


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
