"""Figures of the study of asynchronous FL."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from simfl.papers.async_fl import study_runs as plan
from simfl.papers.async_fl.study_claims import best_cell, cells_of
from simfl.papers.async_fl.study_runs import EVEN, FIRST, GROWING, LENET5, LINEAR, LISTING, MEAN, STEPS, SUM, WITH
from simfl.papers.drawing import Axes, Figure, labeled, log_axis, panels, with_bars
from simfl.plots.groups import average
from simfl.plots.style import LINE_STYLES, PALETTE
from simfl.reproduction.evidence import NotMeasuredError
from simfl.reproduction.papers import Cell, Runs, Section, mean

if TYPE_CHECKING:
    from simfl.comparison.sweeps import Group


def draw_curves(
    axis: Axes,
    groups: Iterable[Group | None],
    column: str,
    from_first: bool = False,
    *,
    measure: str = "test_accuracy",
    scale: float = 1.0,
) -> None:
    """Draw the mean of a measure of groups over a column, with bands or as runs.

    Accuracies are drawn in percent. `from_first` begins at the first evaluation after the start, for a logarithmic
    axis. `scale` multiplies the column: with the number of examples, epochs become gradients.
    """
    factor, most = (100.0, 100.0) if measure == "test_accuracy" else (1.0, math.inf)
    for position, group in enumerate(groups):
        if group is None or (band := average(group, column, measure)) is None:
            continue  # the others keep their colors
        color = PALETTE[position]
        tables = [run.metrics[run.metrics[column] > 0] for run in group.good.values()]
        shown = band.x >= (max(float(table[column].min()) for table in tables) if from_first else 0)
        x = scale * band.x[shown]
        if band.count >= 4:
            low, high = ((factor * values[shown]).clip(0, most) for values in (band.low, band.high))
            axis.fill_between(x, low, high, color=color, alpha=0.15, lw=0)
        elif band.count > 1:
            for table in tables:
                axis.plot(scale * table[column], factor * table[measure], color=color, lw=0.6, alpha=0.6)
        axis.plot(x, factor * band.mean[shown], color=color, ls=LINE_STYLES[position], label=group.label)


def draw_rounds(runs: Runs) -> Figure:
    """Draw accuracy over rounds, a panel for every problem and aggregation."""
    rules = {plan.STRONGLY: plan.STEEP, plan.PLAIN: plan.ROOT}
    kinds = {kind: kind if "i" in kind else f"constant {kind}" for kind in plan.COMPARED}
    problems = [task for task in rules if runs.has(GROWING, (task, rules[task], *LISTING, LINEAR))]
    figure, axes = panels(2, len(problems), (4.2 * len(problems) + 0.6, 6.2), sharex=True, sharey="col")
    for (row, way), (column, problem) in itertools.product(enumerate((SUM, MEAN)), enumerate(problems)):
        axis, start = axes[row][column], (problem, rules[problem])
        cells = {name: (*start, way, EVEN, WITH, kind) for kind, name in kinds.items()}
        draw_curves(axis, _drawn(runs, GROWING, cells), "rounds", from_first=True)
        axis.set(xscale="log", title=GROWING.label(problem, way), xlim=(4, 480))
        log_axis(axis, (5, 10, 20, 28, 51, 100, 400))
        ends = [mean(runs.accuracy(GROWING, cell)) for cell in runs.cells(GROWING, *start) if cell[3:5] == LISTING[1:]]
        if not any(math.isnan(end) for end in ends):  # show where the curves end, not where they begin
            axis.set_ylim(min(ends) - 4, max(ends) + 2)
    return labeled(figure, axes, "rounds", columns=5, title="sample sizes $s_i$ of all clients")


def _drawn(runs: Runs, section: Section, cells: Mapping[str, Cell]) -> list[Group | None]:
    """Return the groups of cells, named for a legend; None for one that was not run."""
    return [runs.group(section, cell, name) if runs.has(section, cell) else None for name, cell in cells.items()]


def _draw_steps(runs: Runs, problems: Sequence[str], cases: Mapping[str, str], title: str) -> Figure:
    """Draw accuracy over gradients, a row of panels for every problem."""
    figure, axes = panels(len(problems), 2, (9.0, 2.6 * len(problems) + 1.2), sharex=True, sharey=True)
    for (row, problem), (column, way) in itertools.product(enumerate(problems), enumerate((SUM, MEAN))):
        start = (problem, way, EVEN, WITH)
        cells: dict[str, Cell] = {name: (*start, case) for name, case in cases.items()}
        if best := cells_of(runs, start, plan.PER_ROUND.values()):
            cells["falling from the best first step"] = best_cell(runs, STEPS, best)
        draw_curves(axes[row][column], _drawn(runs, STEPS, cells), "epochs", scale=plan.EXAMPLES[problem])
        axes[row][column].set_title(STEPS.label(problem, way))
    return labeled(figure, axes, "gradients of all clients", columns=2, title=title)


def draw_steps(runs: Runs) -> Figure:
    """Draw Figures 1a and 6: falling steps, growing sizes; constant ones of both."""
    cells = [(problem, *LISTING, plan.DIMINISHING_2) for problem in (plan.PHISHING, plan.PHISHING_PLAIN)]
    problems = [cell[0] for cell in cells if runs.has(STEPS, cell)]
    falling = {
        "diminishing₁, from 0.1 by gradients": plan.DIMINISHING_1,
        "diminishing₂, from 0.1 by rounds": plan.DIMINISHING_2,
    }
    constant = {f"constant step {eta:g}": f"{eta:g}, constant" for eta in (0.0025, 0.01, 0.1)}
    few, many = (runs.rounds(STEPS, (plan.PHISHING, *LISTING, case)) for case in (plan.DIMINISHING_2, "0.01, constant"))
    title = f"{few} rounds with growing sizes, {many} with constant ones (the paper: 9 and 20)"
    return _draw_steps(runs, problems, {**falling, **constant}, title)


def draw_tuned(runs: Runs) -> Figure:
    """Draw Figure 9: constant and falling steps, both with growing sizes."""
    constant = {f"constant step {eta:g}": f"{eta:g}, growing" for eta in (0.0025, 0.005, 0.01, 0.1)}
    if not runs.has(STEPS, (plan.PHISHING, *LISTING, "0.01, growing")):
        raise NotMeasuredError("no finished run")  # the quick form has none
    return _draw_steps(
        runs, (plan.PHISHING,), {"falling from 0.1 (the paper)": plan.DIMINISHING_2, **constant}, "growing sizes"
    )


def draw_network(runs: Runs) -> Figure:
    """Draw Figure 8: LeNet-5 with falling steps, growing sizes; constant ones."""
    ways = [way for way in (SUM, MEAN) if runs.has(GROWING, (LENET5, plan.PAPERS_STEP, way, EVEN, WITH, LINEAR))]
    figure, axes = panels(1, len(ways), (4.2 * len(ways) + 0.6, 4.6))
    for axis, way in zip(axes.flat, ways, strict=True):
        some = [cell for cell in runs.cells(GROWING, LENET5) if cell[2] == way]
        best = {kind: [cell for cell in some if cell[-1] == kind] for kind in (FIRST, plan.FIXED, plan.LARGE_FIXED[1])}
        cells = {
            "growing, steps falling from 0.1 (the paper)": (LENET5, plan.PAPERS_STEP, way, EVEN, WITH, LINEAR),
            "growing, steps falling from 0.01": (LENET5, plan.SMALL_STEP, way, EVEN, WITH, LINEAR),
            **{
                f"constant {kind}, the best {'constant' if kind == plan.FIXED else 'falling'} steps": best_cell(
                    runs, GROWING, own
                )
                for kind, own in best.items()
                if own
            },
        }
        draw_curves(axis, _drawn(runs, GROWING, cells), "epochs", scale=plan.EXAMPLES[LENET5])
        axis.set(title=GROWING.label(LENET5, way), xticks=range(0, 20_001, 5_000))
        axis.set_ylim((0, 100) if way == SUM else (80, 100))
    return labeled(figure, axes, "gradients of all clients", columns=2)


def draw_biased(runs: Runs) -> Figure:
    """Draw Figures 2, 10 and 11: accuracy with biased and unbiased data."""
    cases = [("strongly convex", plan.TWO), ("plain convex", plan.TWO), (plan.NETWORK, plan.TEN)]
    cases = [case for case in cases if runs.has(plan.BIASED, (*case, SUM, "biased"))]
    figure, axes = panels(2, len(cases), (3.5 * len(cases) + 0.6, 5.8), sharex="col", sharey="col")
    for (row, way), (column, case) in itertools.product(enumerate((SUM, MEAN)), enumerate(cases)):
        cells = {name: (*case, way, name) for name in plan.BIASED_DATA}
        draw_curves(axes[row][column], _drawn(runs, plan.BIASED, cells), "epochs", scale=plan.EXAMPLES[case[1]])
        axes[row][column].set_title(f"{case[0]}, {way}")
    for axis, case in zip(axes[0], cases, strict=True):
        axis.set_ylim((0, 100) if case[0] == plan.NETWORK else (99, 100.1))
    return labeled(figure, axes, "gradients of all clients", columns=2)


def draw_sizes(runs: Runs) -> Figure:
    """Draw accuracy over constant sizes beside the paper's."""
    settings = {
        LISTING: "-",
        (SUM, plan.UNEVEN, plan.WITHOUT): "-.",
        (SUM, plan.UNEVEN, WITH): "--",
        plan.PLAIN_MEAN: ":",
    }
    problems = [problem for problem in plan.PROBLEMS if runs.cells(plan.CONSTANT, problem, *LISTING)]
    figure, axes = panels(1, len(problems), (3.5 * len(problems) + 0.6, 3.6))
    for axis, problem in zip(axes.flat, problems, strict=True):
        axis.plot(plan.SIZES, list(plan.TABLE3[problem].values()), color="#555555", ls=":", marker="x", label="paper")
        for (setting, line), color in zip(settings.items(), PALETTE, strict=False):
            if row := runs.accuracies(plan.CONSTANT, problem, *setting):
                with_bars(axis, list(row), list(row.values()), color=color, ls=line, label=", ".join(setting))
        axis.set_title(problem)
        log_axis(axis, plan.SIZES)
    return labeled(figure, axes, "sample size of a client", columns=3)


def draw_privacy(runs: Runs) -> Figure:
    """Draw accuracy and loss over epochs at equal noise.

    Accuracies of w8a hardly differ from the share of its larger class, which is a line; its losses differ.
    """
    labels = {
        plan.GROWN: "growing: 16 + 1.322 i",
        plan.AS_MANY: plan.AS_MANY,
        "16, step 0.01": "constant 16, step 0.01",
        "16, step 0.001": "constant 16, step 0.001",
        plan.NO_PRIVACY: plan.NO_PRIVACY,
    }
    problems = [problem for problem in plan.PRIVATE_FILES if runs.has(plan.PRIVATE, (problem, *LISTING, plan.GROWN))]
    figure, axes = panels(2, len(problems), (3.5 * len(problems) + 0.6, 6.2), sharex="col")
    for column, problem in enumerate(problems):
        instead = {plan.GROWN: plan.FROM_SMALL} if problem == LENET5 else {}  # it learns nothing from the paper's 0.15
        cells = {name: (problem, *LISTING, instead.get(role, role)) for role, name in labels.items()}
        for axis, measure in zip(axes[:, column], ("test_accuracy", "test_loss"), strict=True):
            draw_curves(axis, _drawn(runs, plan.PRIVATE, cells), "epochs", measure=measure)
        axes[0][column].set(title=problem, ylim=(0, 70) if problem == LENET5 else (96, 98.5))
        losses = (1, 2, 5, 10) if problem == LENET5 else (0.05, 0.1, 0.2, 0.4, 0.8)
        axes[1][column].set(yscale="log", ylim=(losses[0], losses[-1]))
        axes[1][column].set_yticks(losses, [f"{loss:g}" for loss in losses])
        axes[1][column].minorticks_off()
        if problem != LENET5:
            axes[0][column].axhline(plan.LARGER_CLASS, color="#555555", lw=0.8, label="answering no throughout")
    labeled(figure, axes, "epochs", columns=2)
    axes[1][0].set_ylabel("test loss")
    return figure
