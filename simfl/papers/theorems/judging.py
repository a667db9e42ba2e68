"""Measured curves beside bounds: whether and how loosely a bound holds.

A theorem bounds an expectation. Each seed draws a problem and a run; a curve is divided by the bound with the constants
of its own problem. The bound holds if the mean over seeds of a run's largest quotient is below 1 with its whole
interval. That is more than the theorem says, which bounds the mean at each step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfl.errors import ConditionError
from simfl.papers.drawing import labeled, panels
from simfl.records import Run
from simfl.studies.evidence import SEEDS, Part, Reading, below, show, show_ratio
from simfl.studies.papers import Cell, Number, Runs, Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
#: A log-log curve may be flatter than its bound by this much.
SLOPE = 0.1
#: Slopes are those over the last tenfold of the curve's steps.
DECADE = 10.0
#: Seeds of an experiment of the full form.
MANY = 10


def seeds_of(quick: bool) -> int:
    """Return the seeds of an experiment: the fewest that decide, or more."""
    return SEEDS if quick else MANY


class Curve(NamedTuple):
    """What a theorem bounds, at some steps."""

    steps: Floats
    measured: Floats
    bound: Floats


@dataclass(frozen=True)
class Statement:
    """A theorem with the runs that it is measured by.

    Attributes:
        section: its title is the theorem's name. A cell is the name of a problem, and more.
        measure: returns a run's curve, or raises `ConditionError` if a precondition fails.
        quantity: what is bounded, in words or signs.
        choices: what a reading calls the elements of a cell.
        of: the section that has the runs; None: `section`.
    """

    section: Section
    measure: Callable[[Run], Curve]
    quantity: str
    choices: tuple[str, ...] = ("problem",)
    of: Section | None = None

    def cells(self, runs: Runs) -> list[Cell]:
        """Return the cells that have runs."""
        return runs.cells(self.of or self.section)

    def curves(self, runs: Runs, cell: Cell) -> list[Curve]:
        """Return the curves of a cell's runs, by seed."""
        return [self.measure(run) for run in runs.of(self.of or self.section, cell).values()]

    def holds(self, runs: Runs) -> Iterator[Reading]:
        """Judge whether the measured curves stay below the bound."""
        return self._readings(runs, _below)

    def falls(self, runs: Runs) -> Iterator[Reading]:
        """Judge whether the curves fall at least as fast as the bound."""
        return self._readings(runs, _falls)

    def _readings(self, runs: Runs, judge: Callable[[Sequence[Curve]], Part]) -> Iterator[Reading]:
        for cell in self.cells(runs):
            choices: Mapping[str, str] = dict(zip(self.choices, map(str, cell), strict=True))
            try:
                part = judge(self.curves(runs, cell))
            except ConditionError as error:
                part = Part(None, f"not applicable here: {error}")
            yield Reading(choices, [part])

    def numbers(self, runs: Runs) -> Iterator[Number]:
        """Yield the last value, its bound, how loose this is, and the slopes."""
        for cell in self.cells(runs):
            try:
                curves = self.curves(runs, cell)
            except ConditionError:
                continue
            columns = {
                "last value": [curve.measured[-1] for curve in curves],
                "its bound": [curve.bound[-1] for curve in curves],
                "ln(bound / value)": [math.log(curve.bound[-1] / curve.measured[-1]) for curve in curves],
                "slope": [slope_of(curve.steps, curve.measured) for curve in curves],
                "slope of the bound": [slope_of(curve.steps, curve.bound) for curve in curves],
            }
            for column, values in columns.items():
                digits = 4 if column == "last value" else 2
                row = self.section.label(*cell)
                yield Number(self.section.title, row, column, tuple(map(float, values)), None, digits)


def _below(curves: Sequence[Curve]) -> Part:
    ratios = [float((curve.measured / curve.bound).max()) for curve in curves]
    logs = [math.log(curve.bound[-1] / curve.measured[-1]) for curve in curves]
    times = show_ratio(logs, 0 if min(logs) > math.log(100.0) else 1)
    return below(ratios, 1.0, f"at most {np.mean(ratios):.2g} of the bound; at the end, the bound is {times} times it")


def _falls(curves: Sequence[Curve]) -> Part:
    slopes = [slope_of(curve.steps, curve.measured) for curve in curves]
    bounds = [slope_of(curve.steps, curve.bound) for curve in curves]
    behind = [slope - bound for slope, bound in zip(slopes, bounds, strict=True)]
    return below(behind, SLOPE, f"slope {show(slopes, sign=True)}, of the bound {show(bounds, sign=True)}")


def slope_of(steps: Floats, values: Floats) -> float:
    """Return the least-squares slope of ln(value) over ln(step).

    It is that of the last tenfold of steps.
    """
    chosen = (steps >= steps[-1] / DECADE) & (steps > 0)
    x, y = np.log(steps[chosen]), np.log(values[chosen])
    return float(np.polyfit(x, y, 1)[0]) if len(x) > 1 else math.nan


def drawing_of(*statements: Statement) -> Callable[[Runs], Figure]:
    """Return a function that draws curves and bounds, a panel for each cell."""

    def draw(runs: Runs) -> Figure:
        shown: list[tuple[str, list[Curve]]] = []
        for own in statements:
            for cell in own.cells(runs):
                try:
                    title = f"{own.section.title}: {own.section.label(*cell)}\n{own.quantity}"
                    shown.append((title, own.curves(runs, cell)))
                except ConditionError:
                    continue
        rows = -(-len(shown) // 2)
        figure, axes = panels(rows, min(len(shown), 2), (8, 3 * rows))
        for axis, (title, curves) in zip(axes.flat, shown, strict=False):
            for number, curve in enumerate(curves):
                for values, color, name in ((curve.measured, "C0", "measured"), (curve.bound, "C3", "bound")):
                    axis.plot(curve.steps, values, color=color, lw=0.8, label="" if number else name)
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_title(title, fontsize=8)
        _hide(axes, len(shown))
        return labeled(figure, axes, "steps", "", columns=2)

    return draw


def _hide(axes: Any, shown: int) -> None:
    for axis in list(axes.flat)[shown:]:
        axis.set_visible(False)
