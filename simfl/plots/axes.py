"""Axes of figures of runs: columns, units, labels, limits and ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simfl.comparison.claims import RELATIONS
from simfl.errors import DataError, ScenarioError, nearest
from simfl.plots.style import ROUNDS, percent
from simfl.records import Run
from simfl.records.display import SI_UNITS, Y_AXES, Scale, measure_label, scale_bytes, scale_si, scale_time
from simfl.records.tables import SPENT
from simfl.scenario.control import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Word -> (column of metrics, label).
X_AXES = {
    "time": ("time_s", "virtual time"),
    "updates": ("updates", "updates"),
    "epochs": ("epochs", "epochs"),
    "rounds": ("rounds", "rounds"),
    "bytes": ("bytes_sent", "data sent by all clients"),
    "epsilon": ("epsilon", "largest ε over clients"),
    "energy": ("energy_j", "energy"),
    "money": ("money", "money"),
    "carbon": ("carbon_g", "CO2 equivalent"),
}

#: Label of an axis of epsilons: only the last row of a run has a final epsilon.
BOUND = "largest ε over clients, before the end an upper bound"


def x_axis(x: str) -> tuple[str, str]:
    """Return the column and the label of a horizontal axis."""
    if x not in X_AXES:
        raise ScenarioError(f"plot: x: expected one of {', '.join(X_AXES)}, found {x!r}{nearest(x, X_AXES)}")
    return X_AXES[x]


def check_y(y: str, runs: Iterable[Run]) -> None:
    """Reject a column that a run does not have; name the common columns."""
    opened = list(runs)
    columns = [run.evaluations.names for run in opened]
    shared = [name for name in (columns[0] if opened else ()) if all(name in names for names in columns)]
    if opened and y not in Y_AXES and not any(y in run.measures for run in opened):
        raise ScenarioError(f"plot: y: expected one of {', '.join(shared)}, found {y!r}{nearest(y, shared)}")
    for run, names in zip(opened, columns, strict=True):
        if y not in names:
            how = f"set evaluate.metrics: [{y}]" if y in METRICS else "set evaluate.gradients: 1000"
            how = "add a section costs" if y in SPENT else how if y in Y_AXES else "its model has no such metric"
            choice = f"{how}, or choose one of {', '.join(shared)}"
            raise DataError(f"{run.folder}: this run measured no {measure_label(y)}; {choice}")


def describe_epsilon(runs: Sequence[Run]) -> str:
    """Return epsilon's label with its delta and neighbors."""
    terms = {
        f"δ = {delta:g}, {RELATIONS.get(str(privacy.get('neighbors')), RELATIONS['replace_one'])}"
        for run in runs
        if (privacy := run.privacy) is not None and not math.isnan(delta := run.epsilon_and_delta()[1])
    }
    # Short lines, which also fit beside small figures.
    return BOUND.replace(", ", ",\n", 1) + (f"\n({terms.pop()})" if len(terms) == 1 else "")


def scale_of(column: str, largest: float) -> Scale:
    """Choose the unit in which a column of tables reads best."""
    if column in {"time_s", "wall_s"}:
        return scale_time(largest)
    if column in SI_UNITS:
        return scale_si(column, largest)
    return scale_bytes(largest) if column == "bytes_sent" else Scale(1.0, "")


def axis_label(column: str, label: str, scale: Scale, runs: Sequence[Run]) -> str:
    """Return the label of an axis for a column of metrics."""
    if column == "epsilon":
        return describe_epsilon(runs)
    if column == "rounds" and any(run.algorithm not in ROUNDS for run in runs):
        return f"{label} (without rounds: updates per client)"
    return with_unit(label, scale)


def with_unit(label: str, scale: Scale) -> str:
    """Return a label with its unit."""
    return f"{label} ({scale.unit})" if scale.unit else label


def _floor_of_accuracy(curves: Sequence[NDArray[Any]]) -> float:
    """Return the lower end of an accuracy axis: 0, or higher if most lies above."""
    usual = min((float(np.quantile(curve, 0.05)) for curve in curves if len(curve)), default=0.0)
    return math.floor((usual - 0.1) * 10) / 10 if usual >= 0.5 else 0.0


def arrange(ax: Axes, y: str, curves: Sequence[NDArray[Any]]) -> None:
    """Set limits, ticks and the legend; a NaN of a curve is not drawn."""
    from matplotlib.ticker import EngFormatter

    curves = [curve[~np.isnan(curve)] for curve in curves]
    ax.margins(x=0.01)
    ax.set_xlim(left=0)
    if y == "test_accuracy":
        ax.set_ylim(_floor_of_accuracy(curves), 1.005)
        ax.yaxis.set_major_formatter(percent(decimals=0))
    for axis, is_count in (
        (ax.xaxis, ax.get_xlabel().split(" (")[0] in {"updates", "rounds"}),
        (ax.yaxis, y in {"updates", "messages"}),
    ):
        if is_count:
            axis.set_major_formatter(EngFormatter(sep=""))
    if not any(map(len, curves)):
        name = "ε" if y == "epsilon" else measure_label(y)
        ax.text(0.5, 0.5, f"no {name} in these runs", transform=ax.transAxes, ha="center", color="#666666")
        ax.set(xticks=[], yticks=[])
    if len(ax.get_legend_handles_labels()[0]) <= 6:
        ax.legend(loc="lower right" if y == "test_accuracy" else "best")
        return
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)  # too many to lie over the curves
    if len(ax.figure.axes) == 1:
        ax.figure.set_size_inches(8.6, 4.4)  # type: ignore[union-attr]
