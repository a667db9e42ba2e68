"""The figures of the study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from simfl.papers.asynchrony.algorithms import BY_NAME, GOSSIP, QUICK, ROUNDS, SERVER
from simfl.papers.asynchrony.tuning import FINAL, TARGET, WORLDS, costs, ranks
from simfl.papers.drawing import Axes, Figure, labeled, log_axis, panels
from simfl.plots import plot_groups
from simfl.plots.style import PALETTE
from simfl.reproduction.evidence import measured
from simfl.reproduction.papers import Runs

LOOKS = {ROUNDS: ("s", PALETTE[1]), SERVER: ("o", PALETTE[0]), GOSSIP: ("^", PALETTE[2])}
"""Family -> marker and color."""
TITLES = {
    "equal": "equal clients",
    "straggler": "one is ten times slower",
    "tails": "heavy-tailed times",
    "regions": "five regions",
}
TICKS = (0.2, 0.5, 1, 2, 5, 10, 20, 50)
_BEYOND = 1.8


def draw_times(runs: Runs) -> Figure:
    """Draw the time to the target of every algorithm, a panel for each world."""
    by_world = {world: ranked for world in WORLDS if (ranked := ranks(runs, world))}
    names = sorted({name for ranked in by_world.values() for name in ranked})
    names.sort(key=lambda name: -sum(ranked.get(name, 0.0) for ranked in by_world.values()))
    figure, axes = panels(1, len(by_world), (2.2 + 2.0 * len(by_world), 1.4 + 0.2 * len(names)), sharey=True)
    for axis, (world, ranked) in zip(axes[0], by_world.items(), strict=True):
        values = {name: costs(runs, world, name) for name in names if name in ranked}
        _dots(axis, values, names)
        axis.set_title(TITLES[world])
        axis.set_ylim(-0.8, len(names) - 0.2)
    axes[0][0].set_yticks(range(len(names)), names, fontsize=8)
    return labeled(figure, axes, f"time to {TARGET:.0%}, s", "", columns=len(LOOKS) + 1)


def _dots(axis: Axes, values: dict[str, tuple[float, ...]], names: Sequence[str]) -> None:
    """Draw times with intervals in the looks of families; infinite ones as arrows."""
    times = {name: measured(own) for name, own in values.items()}
    means = [own.mean for own in times.values() if math.isfinite(own.mean)]
    least, latest = min(means, default=1.0), max(means, default=1.0)
    for family, (marker, color) in LOOKS.items():
        own = {name: time for name, time in times.items() if BY_NAME[name].family == family}
        reached = {name: time for name, time in own.items() if math.isfinite(time.mean)}
        ends = [(time.mean - time.low, time.high - time.mean) for time in reached.values()]
        sides = [[0.0 if math.isnan(pair[side]) else min(pair[side], latest) for pair in ends] for side in (0, 1)]
        places = [names.index(name) for name in reached]
        look: dict[str, Any] = {"color": color, "ms": 5, "capsize": 2, "lw": 1.2, "label": family}
        axis.errorbar([time.mean for time in reached.values()], places, xerr=sides, fmt=marker, **look)
    never = [names.index(name) for name, time in times.items() if not math.isfinite(time.mean)]
    axis.plot([_BEYOND * latest] * len(never), never, ">", color="#444444", mfc="none", ms=6, label="not reached")
    axis.set_xlim(least / 2, _BEYOND * latest * 1.4)
    log_axis(axis, [tick for tick in TICKS if least / 2 <= tick <= latest])
    axis.tick_params(axis="x", labelsize=8)


def draw_curves(runs: Runs) -> Figure:
    """Draw accuracy over time of some algorithms, a panel for each world."""
    worlds = [world for world in WORLDS if any(runs.has(FINAL, (world, name)) for name in QUICK)]
    figure, axes = panels(-(-len(worlds) // 2), min(2, len(worlds)), (8.6, 0.4 + 2.8 * -(-len(worlds) // 2)))
    for axis, world in zip(axes.flat, worlds, strict=False):
        own = [runs.group(FINAL, (world, name), name) for name in QUICK if runs.has(FINAL, (world, name))]
        plot_groups(own, target=TARGET, ax=axis)
        axis.set_title(TITLES[world])
        axis.set_ylim(0.4, 1.0)
        axis.get_legend().remove()
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=6)
    return figure
