"""The figures of the study."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from simfl.papers.asynchrony.algorithms import BY_NAME, GOSSIP, ROUNDS, SERVER
from simfl.papers.asynchrony.tuning import FINAL, TARGET, WORLDS, costs, ranks
from simfl.papers.drawing import labeled, panels, with_bars
from simfl.plots import plot_groups
from simfl.plots.style import NAMES, PALETTE
from simfl.studies.evidence import NotMeasuredError, measured
from simfl.studies.papers import Runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOKS = {ROUNDS: ("s", PALETTE[1]), SERVER: ("o", PALETTE[0]), GOSSIP: ("^", PALETTE[2])}
"""Family -> marker and color."""
TITLES = {
    "equal": "equal clients",
    "straggler": "one is ten times slower",
    "tails": "heavy-tailed times",
    "regions": "five regions",
}
CURVES = tuple(NAMES[kind] for kind in ("sync_sgd", "fedavg", "decentralized_sgd", "async_sgd", "fedbuff", "adpsgd"))
"""The algorithms whose accuracy is drawn over time."""


def draw_times(runs: Runs) -> Figure:
    """Draw the time to the target of every algorithm, a panel for each world."""
    worlds = [world for world in WORLDS if runs.cells(FINAL, world)]
    if not worlds:
        raise NotMeasuredError("no finished run")
    by_world = {world: ranks(runs, world) for world in worlds}
    names = sorted({name for ranked in by_world.values() for name in ranked},
                   key=lambda name: -sum(ranked.get(name, 0.0) for ranked in by_world.values()))  # fmt: skip
    size = (2.4 + 2.2 * len(worlds), 1.3 + 0.21 * len(names))
    figure, axes = panels(1, len(worlds), size, sharey=True)
    for axis, world in zip(axes[0], worlds, strict=True):
        values = {name: costs(runs, world, name) for name in names if name in by_world[world]}
        times = {name: measured(own).mean for name, own in values.items()}
        latest = max((time for time in times.values() if math.isfinite(time)), default=1.0)
        for family, (marker, color) in LOOKS.items():
            for label, own in ((family, [name for name in times if BY_NAME[name].family == family]),):
                reached = [name for name in own if math.isfinite(times[name])]
                places = [names.index(name) for name in reached]
                _bars(axis, places, [values[name] for name in reached], marker, color, label)
                never = [names.index(name) for name in own if math.isinf(times[name])]
                axis.plot([1.7 * latest] * len(never), never, ">", color=color, mfc="none", ms=6)
        axis.set_xscale("log")
        axis.set_title(TITLES[world])
        axis.set_ylim(-0.7, len(names) - 0.3)
    axes[0][0].set_yticks(range(len(names)), names, fontsize=8)
    for axis in axes[0]:
        axis.set_xlabel("virtual time, s")
    return labeled(figure, axes, "virtual time, s", "", columns=len(LOOKS))


def _bars(axis, places, values, marker, color, label) -> None:
    intervals = [measured(own) for own in values]
    means = [own.mean for own in intervals]
    sides = [
        [own.mean - own.low if math.isfinite(own.low) else 0.0 for own in intervals],
        [own.high - own.mean if math.isfinite(own.high) else 0.0 for own in intervals],
    ]
    axis.errorbar(means, places, xerr=sides, fmt=marker, color=color, ms=5, capsize=2, lw=1.2, label=label)


def draw_curves(runs: Runs) -> Figure:
    """Draw accuracy over time of some algorithms, a panel for each world."""
    worlds = [world for world in WORLDS if runs.cells(FINAL, world)]
    figure, axes = panels(-(-len(worlds) // 2), 2, (9.0, 3.2 * -(-len(worlds) // 2)))
    for axis, world in zip(axes.flat, worlds, strict=False):
        own = [runs.group(FINAL, (world, name), name) for name in CURVES if runs.has(FINAL, (world, name))]
        plot_groups(own, target=TARGET, ax=axis)
        axis.set_title(TITLES[world])
        axis.set_ylim(0.4, 1.0)
    return figure
