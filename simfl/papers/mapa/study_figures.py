"""Figures of MAPA's study."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import partial
from typing import Any

from simfl.papers.drawing import Figure, labeled, log_axis, panels, with_bars
from simfl.papers.mapa import study_runs as plan
from simfl.papers.mapa.study_claims import accuracy_after, all_converge, clipped_tasks, fewest_updates, ran, tried
from simfl.papers.mapa.study_runs import ACCURACY, BOUNDS, CONVERGENCE, COUNTED, FOUR, NORMS, SIGMAS, TESTBED, cell_of
from simfl.plots.style import PALETTE, color_of
from simfl.reproduction.evidence import NotMeasuredError
from simfl.reproduction.papers import Cell, Runs, Section, mean

_STYLES: dict[str, tuple[Any, str]] = {
    "": ("-", "o"),
    plan.MEASURED: ("--", "s"),
    FOUR: ("-.", "^"),
    plan.UNCLIPPED: (":", "D"),
    "ASGD": ((0, (6, 2)), "v"),
    "CSGD": ((0, (1, 1)), "x"),
}
"""Lines and marks of MAPA, of AUDP by its G, and of the algorithms without noise."""


def _look(algorithm: str, bound: str = "") -> dict[str, Any]:
    """Return how a curve of an algorithm is drawn."""
    line, mark = _STYLES[algorithm if algorithm in ("ASGD", "CSGD") else bound]
    label = ", ".join(cell_of(algorithm, bound))
    return {"ls": line, "marker": mark, "color": color_of(plan.KINDS[algorithm]), "label": label}


def _one_legend(figure: Figure, axes: Iterable[Any], columns: int, title: str = "") -> None:
    """Put one legend with the curves of all panels above them."""
    curves = {label: curve for axis in axes for curve, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(curves.values(), curves.keys(), loc="outside upper center", ncols=columns, title=title or None)


def draw_accuracy(runs: Runs) -> Figure:
    """Draw Figure 6 at the code's σ: a row of panels per data set, a column per model."""
    tasks = [task for task in ran(runs, SIGMAS[0]) if task.choice == plan.CHOICES[task.model][0]]
    if not tasks:
        raise NotMeasuredError(f"{ACCURACY}: no finished run")
    sets, names = list(dict.fromkeys(task.data for task in tasks)), list(dict.fromkeys(task.name for task in tasks))
    figure, axes = panels(len(sets), len(names), (3.0 * len(names) + 0.8, 2.5 * len(sets) + 1), sharex=True)
    drawn = {(task.data, task.name): task for task in tasks}
    for (row, data), (column, name) in itertools.product(enumerate(sets), enumerate(names)):
        axis, task = axes[row][column], drawn.get((data, name))
        if task is None:
            axis.set_axis_off()
            continue
        for algorithm, bound in (("MAPA", ""), *zip(itertools.repeat("AUDP"), BOUNDS)):
            accuracies = runs.accuracies(ACCURACY, *cell_of(task, algorithm, SIGMAS[0], bound))
            if accuracies:
                with_bars(axis, list(accuracies), list(accuracies.values()), **_look(algorithm, bound))
        for algorithm in ("ASGD", "CSGD"):
            cell = cell_of(task, algorithm, SIGMAS[0])
            if runs.has(ACCURACY, cell):
                look = {**_look(algorithm), "marker": ""}
                axis.axhline(mean(runs.accuracy(ACCURACY, cell)), lw=1.5, **look)
        axis.set(title=str(task), xticks=plan.EPSILONS, xlim=(0.05, 0.55))
        axis.set_xlabel("ε of an iteration")
    for row in range(len(sets)):
        axes[row][0].set_ylabel("test accuracy, %")
    _one_legend(figure, axes.flat, 3)
    return figure


def draw_norms(runs: Runs) -> Figure:
    """Draw norms of clipped gradients over updates."""
    tasks = [task for task, _ in clipped_tasks(runs)]
    algorithms = list(dict.fromkeys(cell[1] for cell in runs.cells(NORMS)))
    size = (10 / 3 * len(algorithms), 2.6 * len(tasks) + 0.4)
    figure, axes = panels(len(tasks), len(algorithms), size, sharex=True, sharey="row")
    for row, task in enumerate(tasks):
        for axis, algorithm in zip(axes[row], algorithms, strict=True):
            cells = runs.cells(NORMS, str(task), algorithm)
            for cell, line, color in zip(cells, ("-", "--", "-."), PALETTE, strict=False):
                metrics = runs.first(NORMS, cell).metrics
                label = f"C {'=' if algorithm == 'AUDP' else 'from'} {cell[2]:g}" if cell[2:] else ""
                axis.plot(metrics["updates"], metrics["gradient_norm"], ls=line, color=color, label=label)
            axis.set(yscale="log", title=f"{algorithm}, {task.name}", xticks=(0, 5_000, 10_000, 15_000))
            axis.xaxis.set_major_formatter("{x:,.0f}")
            if len(cells) > 1:
                axis.legend()
    return labeled(figure, axes, "updates", "norm of the clipped gradient")


def draw_convergence(runs: Runs) -> Figure:
    """Draw Figure 7: updates until convergence over servers, lower bounds marked."""
    runs.require(CONVERGENCE)
    shown = {classes: losses[0] for classes, losses in plan.LOSSES.items()}
    figure, axes = panels(1, len(shown), (4.2 * len(shown), 4.0))
    bounded: list[float] = []
    for axis, (classes, loss) in zip(axes[0], shown.items(), strict=True):
        tasks = [task for task in COUNTED if task.choice == classes]
        for task, (algorithm, bound) in itertools.product(tasks, _CURVES):
            cells = {count: cell_of(task, count, algorithm, bound) for count in COUNTED[task]}
            places = {count: cell for count, cell in cells.items() if runs.has(CONVERGENCE, cell)}
            heights = [fewest_updates(runs, cell, loss) for cell in places.values()]
            if places:
                axis.plot(list(places), heights, ms=5, lw=1.5, **_look(algorithm, bound))
            for (count, cell), height in zip(places.items(), heights, strict=True):
                if not all_converge(runs, cell, loss):
                    bounded.append(5.0 * height)
                    axis.annotate("", (count, bounded[-1]), (count, height), arrowprops={"arrowstyle": "->", "lw": 1.5})
        for task in tasks:
            if runs.has(CONVERGENCE, cell_of(task, 1, "CSGD")):
                ends = {"USPS": plan.COUNTS, "MNIST": (400, 1000)}[task.data]
                height = fewest_updates(runs, cell_of(task, 1, "CSGD"), loss)
                axis.plot(ends, [height] * 2, lw=1.5, **{**_look("CSGD"), "marker": ""})
        ticks = sorted({count for task in tasks for count in COUNTED[task]})
        title = f"LR, {classes}, until the loss is below {loss:g}"
        axis.set(yscale="log", title=title + "\n(K = 1,000 on MNIST, else USPS)" * (len(tasks) > 1))
        log_axis(axis, ticks, "{:,}")
        axis.set_ylim(top=max([axis.get_ylim()[1], *(2.0 * height for height in bounded)]))
    for axis in axes[0]:
        axis.set_xlabel("edge servers K")
    axes[0][0].set_ylabel("updates")
    _one_legend(figure, axes[0], 3, "an arrow: at least" if bounded else "")
    return figure


_CURVES = (("MAPA", ""), *zip(itertools.repeat("AUDP"), BOUNDS), ("ASGD", ""))
"""The asynchronous curves of Figures 7 and 8."""


def _over_updates(axis: Any, runs: Runs, section: Section, cell: Cell, **look: Any) -> None:
    """Draw the accuracy over updates, with the intervals of the seeds."""
    updates = [int(count) for count in runs.first(section, cell).metrics["updates"]]
    measured = [runs.each(section, cell, partial(accuracy_after, updates=count)) for count in updates]
    with_bars(axis, updates, measured, **look)


def draw_testbed(runs: Runs) -> Figure:
    """Draw Figure 8: accuracy over updates, a panel per number of servers."""
    runs.require(TESTBED)
    figure, axes = panels(2, 2, (7.6, 6.2), sharex=True, sharey=True)
    for axis, count in zip(axes.flat, plan.SERVERS, strict=True):
        for algorithm, bound in _CURVES:
            cell = cell_of(algorithm, count, bound)
            if runs.has(TESTBED, cell):
                _over_updates(axis, runs, TESTBED, cell, **_look(algorithm, bound))
        _over_updates(axis, runs, TESTBED, ("CSGD",), **_look("CSGD"))
        axis.set(title=f"K = {count}", ylim=(0, 100))
        axis.xaxis.set_major_formatter("{x:,.0f}")
    labeled(figure, axes, "updates")
    _one_legend(figure, axes.flat, 3)
    return figure


def draw_parameters(runs: Runs) -> Figure:
    """Draw Figure 9: MAPA's accuracy over updates, a panel per parameter."""
    runs.require(plan.PARAMETERS)
    figure, axes = panels(2, 3, (9.6, 5.6), sharex=True, sharey=True)
    looks = list(zip(PALETTE, ("-", "--", "-."), ("o", "s", "^"), strict=False))
    for axis, letter, name in zip(axes.flat, "abcdef", ("ε", "b", "σ", "L", "δ", "θ"), strict=True):
        for (value, cell), (color, line, mark) in zip(tried(name).items(), looks, strict=False):
            label = f"{name} = {value:g}" + " (default)" * (cell == ("default",))
            _over_updates(axis, runs, plan.PARAMETERS, cell, color=color, ls=line, marker=mark, label=label)
        axis.set(title=f"({letter}) {name}", ylim=(0, 100))
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.legend(loc="center right")  # between the curves that learn and those that do not
    return labeled(figure, axes, "updates")
