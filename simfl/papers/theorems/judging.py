"""Measured curves beside the bounds of theorems.

A theorem bounds an expectation. Each seed draws a problem and a run; a curve is divided by the bound with the constants
of its own problem.

- The bound *holds* if the mean over seeds of a run's largest quotient is below 1 with its whole interval. That is more
  than the theorem says, which bounds the mean at each step.
- It is *vacuous* if it is not below the value of the starting model, even at the last step.
- A curve falls *as fast as stated* if its slope exceeds the stated rate, or that of the bound, by at most `SLOPE`.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfl.errors import ConditionError
from simfl.papers.drawing import Figure, panels
from simfl.records import Run
from simfl.reproduction.evidence import Part, Reading, below, show, show_ratio
from simfl.reproduction.papers import Cell, Number, PaperClaim, Runs, Section

Floats = NDArray[np.float64]
#: A log-log curve may be flatter than its bound by this much.
SLOPE = 0.1
#: Slopes are those over the last tenfold of the curve's steps.
DECADE = 10.0
#: The form of a bound that the paper prints.
PRINTED = "as printed"
#: Colors and dashes of the bounds; they differ in gray, too.
BOUNDS = (("#d55e00", "--"), ("#000000", ":"))


class Curve(NamedTuple):
    """What a theorem bounds, at some steps, and its value at the starting model."""

    steps: Floats
    measured: Floats
    bound: Floats
    start: float


Measure = Callable[[Run], Curve]
Judge = Callable[["Statement", Sequence[Curve]], Part]


@dataclass(frozen=True)
class Statement:
    """A theorem with the runs that it is measured by.

    Attributes:
        section: its title is the theorem's name.
        forms: how the bound is read -> a run's curve; a measure raises `ConditionError` if a precondition fails.
        quantity: what is bounded, in words or signs.
        rate: the exponent that the paper states, None: that of the bound itself.
        swept: whether a curve goes over cells, whose last element is its place, and has the last point of each.
        of: the section that has the runs; None: `section`. The first element of a cell names the problem.
        axis: what the steps are.
    """

    section: Section
    forms: Mapping[str, Measure]
    quantity: str
    rate: float | None = None
    swept: bool = False
    of: Section | None = None
    axis: str = "t"

    def problems(self, runs: Runs) -> list[str]:
        """Return the problems that have runs."""
        return list(dict.fromkeys(cell[0] for cell in runs.cells(self.of or self.section)))

    def curves(self, runs: Runs, problem: str, form: str) -> list[Curve]:
        """Return the curves of a problem, by seed."""
        place, measure = self.of or self.section, self.forms[form]
        cells: list[Cell] = runs.cells(place, problem)
        if not self.swept:
            return [measure(run) for cell in cells for run in runs.of(place, cell).values()]
        groups = [runs.of(place, cell) for cell in cells]
        swept = []
        for seed in sorted(set.intersection(*map(set, groups)), key=str):
            parts = [measure(group[seed]) for group in groups]
            measured, bound = (np.array([getattr(own, name)[-1] for own in parts]) for name in ("measured", "bound"))
            swept.append(Curve(np.array([float(cell[-1]) for cell in cells]), measured, bound, parts[0].start))
        return swept

    def _each(self, runs: Runs) -> Iterator[tuple[str, str, list[Curve] | ConditionError]]:
        for problem in self.problems(runs):
            for form in self.forms:
                try:
                    yield problem, form, self.curves(runs, problem, form)
                except ConditionError as error:
                    yield problem, form, error

    def readings(self, runs: Runs, judge: Judge, named: bool = False) -> Iterator[Reading]:
        """Judge each problem and form; `named` readings have the theorem's name."""
        for problem, form, curves in self._each(runs):
            choices = {"problem": problem} | ({"bound": form} if len(self.forms) > 1 else {})
            choices |= {"theorem": self.section.title.rpartition(", ")[2]} if named else {}
            refused = isinstance(curves, ConditionError)
            part = Part(None, f"not applicable: {curves}") if refused else judge(self, curves)  # type: ignore[arg-type]
            yield Reading(choices, [part], own=len(self.forms) > 1 and form == PRINTED)

    def numbers(self, runs: Runs) -> Iterator[Number]:
        """Yield first and last values, the last bound, how loose it is, and slopes."""
        for problem, form, curves in self._each(runs):
            if isinstance(curves, ConditionError):
                continue
            columns = {
                "starting model": [curve.start for curve in curves],
                "last value": [curve.measured[-1] for curve in curves],
                "its bound": [curve.bound[-1] for curve in curves],
                "largest value / bound": [float((curve.measured / curve.bound).max()) for curve in curves],
                "slope": [slope_of(curve.steps, curve.measured) for curve in curves],
                "slope of the bound": [slope_of(curve.steps, curve.bound) for curve in curves],
            }
            for column, values in columns.items():
                digits = 3 if column.startswith("slope") else 5
                row = f"{problem}, {form}" if len(self.forms) > 1 else problem
                yield Number(self.section.title, row, column, tuple(map(float, values)), None, digits)


def holds(_: Statement, curves: Sequence[Curve]) -> Part:
    """Return whether measured curves stay below the bound, and how loose it is."""
    ratios = [float((curve.measured / curve.bound).max()) for curve in curves]
    logs = [math.log(curve.bound[-1] / curve.measured[-1]) for curve in curves]
    times = show_ratio(logs, max(0, 2 - math.floor(min(logs) / math.log(10.0))))
    words = f"at most {np.mean(ratios):.2g} of the bound; at the end, the bound is {times} times it"
    return below(ratios, 1.0, words + "; vacuous" * (not informs(_, curves).held))


def informs(_: Statement, curves: Sequence[Curve]) -> Part:
    """Return whether the bound gets below the value of the starting model."""
    shares = [curve.bound[-1] / curve.start for curve in curves]
    return below(shares, 1.0, f"the bound ends at {np.mean(shares):.3g} of the value of the starting model")


def falls(statement: Statement, curves: Sequence[Curve]) -> Part:
    """Return whether the curves fall at least as fast as stated."""
    slopes = [slope_of(curve.steps, curve.measured) for curve in curves]
    bounds = [slope_of(curve.steps, curve.bound) for curve in curves]
    rates = bounds if statement.rate is None else [statement.rate] * len(curves)
    behind = [slope - rate for slope, rate in zip(slopes, rates, strict=True)]
    stated = f", stated {statement.rate:g}" if statement.rate is not None else ""
    return below(behind, SLOPE, f"slope {show(slopes, sign=True)}{stated}, of the bound {show(bounds, sign=True)}")


def slope_of(steps: Floats, values: Floats) -> float:
    """Return the least-squares slope of ln(value) over ln(step).

    It is that of the last tenfold of steps.
    """
    chosen = (steps >= steps[-1] / DECADE) & (steps > 0)
    x, y = np.log(steps[chosen]), np.log(values[chosen])
    return float(np.polyfit(x, y, 1)[0]) if len(x) > 1 else math.nan


def averages(steps: Floats, values: Floats) -> Floats:
    """Return the mean of a curve up to each step but the first, by trapezoids.

    Of a convex curve it is at least the mean over all steps.
    """
    areas = np.cumsum(np.diff(steps) * (values[1:] + values[:-1]) / 2.0)
    means: Floats = areas / (steps[1:] - steps[0])
    return means


def claims_of(figure: str, *statements: Statement) -> Iterator[PaperClaim]:
    """Yield a claim for each theorem: its bound holds."""
    for own in statements:
        title = own.section.title
        yield PaperClaim(f"{title}: the bound holds.", _check(holds, own), title == "A(DP)²SGD, Theorem 1", figure)


def worth_of(
    paper: str, figure: str, statements: Sequence[Statement], rates: Sequence[Statement]
) -> Iterator[PaperClaim]:
    """Yield a claim that bounds say something, and one about rates."""
    said = f"{paper}: bounds get below the value of the starting model."
    yield PaperClaim(said, _check(informs, *statements, named=True), figure=figure)
    said = f"{paper}: what is bounded falls as fast as stated."
    yield PaperClaim(said, _check(falls, *rates, named=True), figure=figure)


def _check(judge: Judge, *statements: Statement, named: bool = False) -> Callable[[Runs], Iterator[Reading]]:
    return lambda runs: (reading for own in statements for reading in own.readings(runs, judge, named))


def drawing_of(*statements: Statement) -> Callable[[Runs], Figure]:
    """Return what draws curves and bounds, a panel for each theorem and problem."""

    def draw(runs: Runs) -> Figure:
        shown = [(own, problem) for own in statements for problem in own.problems(runs)]
        columns = min(len(shown), 3)
        rows = -(-len(shown) // columns) if shown else 0
        figure, axes = panels(rows, columns, (3.2 * columns, 2.7 * rows + 0.4) if columns > 1 else (4.8, 4.2))
        for axis, (own, problem) in zip(axes.flat, shown, strict=False):
            drawn: list[Floats] = []
            for form, (color, dashes) in zip(own.forms, BOUNDS, strict=False):
                try:
                    curves = own.curves(runs, problem, form)
                except ConditionError:
                    continue
                steps, measured, bound, _ = (np.mean(part, axis=0) for part in zip(*curves, strict=True))
                marker, other = "o" if len(steps) == 1 else "", bool(drawn) and not np.array_equal(drawn[0], measured)
                for curve in curves:
                    axis.plot(curve.steps, curve.measured, color="#0072b2", lw=0.4, alpha=0.4, marker=marker, ms=2)
                look = {"lw": 1.8, "marker": marker}
                if other or not drawn:
                    text, line = (f"measured, {form}", "-.") if other else ("measured", "-")
                    axis.plot(steps, measured, color="#0072b2", ls=line, label=text, **look)
                axis.plot(steps, bound, color=color, ls=dashes, label=f"bound, {form}", **look)
                drawn.append(measured)
                start = float(np.mean([curve.start for curve in curves]))
                axis.axhline(start, color="0.6", lw=0.8, label="starting model")
                ends = sorted({min(curve.steps[0] for curve in curves), max(curve.steps[-1] for curve in curves)})
                axis.set(xscale="log", yscale="log", xlabel=own.axis)
                axis.set_xticks(ends, [f"{end:,.0f}" for end in ends])
            axis.tick_params(which="minor", labelbottom=False, labelleft=False)
            title = f"{own.section.title.rpartition(', ')[2]}, {problem}"
            axis.set_title(textwrap.fill(title, 40), fontsize=8)
            axis.set_ylabel(own.quantity, fontsize=8)
        for axis in list(axes.flat)[len(shown) :]:
            axis.set_visible(False)
        pairs = [pair for axis in axes.flat for pair in zip(*axis.get_legend_handles_labels(), strict=True)]
        first = {name: line for line, name in reversed(pairs)}
        lines, names = [*first.values()][::-1], [*first][::-1]
        figure.legend(lines, names, loc="outside upper center", ncols=len(names) if columns > 1 else 1)
        return figure

    return draw
