"""Curves of one measure against virtual time, updates, epochs or bytes, one line per run."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simfl.errors import DataError, ScenarioError, nearest
from simfl.plots.style import ROUNDS, color_of, line_of, marker_of, name_of, percent, style
from simfl.records import Run, folders_of, read
from simfl.records.claims import RELATIONS
from simfl.records.display import Y_AXES, Scale, measure_label, scale_bytes, scale_time, show_number, show_range
from simfl.records.results import clock_of
from simfl.records.sweeps import Sweep, is_sweep, open_groups
from simfl.scenario.control import METRICS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

X_AXES = {
    "time": ("time_s", "virtual time"),
    "updates": ("updates", "updates"),
    "epochs": ("epochs", "epochs"),
    "rounds": ("rounds", "rounds"),
    "bytes": ("bytes_sent", "data sent by all clients"),
    "epsilon": ("epsilon", "largest ε over clients"),
}
"""Word -> (column of metrics, label)."""

BOUND = "largest ε over clients, before the end an upper bound"
"""Label of an axis of epsilons: they are bounds in the course of a run, and final in its last row."""

FORMATS = (".png", ".pdf", ".svg")
PNG_DPI = 200


def plot(
    runs: Run | Sweep | str | Path | Sequence[Run | Sweep | str | Path],
    x: str = "time",
    y: str = "test_accuracy",
    ax: Axes | None = None,
    labels: Sequence[str] | None = None,
) -> Axes:
    """Draw one curve per run.

    An algorithm has the same colour in every figure; the curves of a figure differ in the style of the line.

    Args:
        runs: one or several runs, or their folders; with a sweep among them, the means of groups of runs are drawn, as
            `plot_groups` does.
        x: one of `X_AXES`.
        y: a column of the metrics table.
        ax: where to draw; new axes by default.
        labels: one name per run; by default the algorithm, and what tells runs of the same algorithm apart.

    Returns:
        The axes, to be changed further or given to `save`.
    """
    given = list(runs) if isinstance(runs, Iterable) and not isinstance(runs, str | bytes) else [runs]
    folders = folders_of(given)
    if labels is None and any(is_sweep(folder) for folder in folders):
        from simfl.plots.groups import plot_groups  # which is made of what is here

        return plot_groups(open_groups(folders)[0], x, y, ax=ax)
    opened = [one if isinstance(one, Run) else read(folder) for one, folder in zip(given, folders, strict=True)]
    if not opened:
        raise ScenarioError("plot: expected at least one run, found none")
    if x not in X_AXES:
        raise ScenarioError(f"plot: x: expected one of {', '.join(X_AXES)}, found {x!r}{nearest(x, X_AXES)}")
    check_y(y, opened)
    if labels is not None and len(labels) != len(opened):
        raise ScenarioError(f"plot: labels: expected {len(opened)}, one per run, found {len(labels)}")
    column, x_label = X_AXES[x]
    frames = [run.metrics for run in opened]
    x_label = clock_of(opened) if column == "time_s" else x_label
    x_scale = scale_of(column, max((_largest(frame[column]) for frame in frames), default=0.0))
    y_scale = scale_of(y, max((_largest(frame[y]) for frame in frames), default=0.0))
    with style():
        if ax is None:
            from matplotlib import pyplot as plt

            _, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
        named = zip(opened, frames, labels or label_runs(opened), strict=True)
        for position, (run, frame, label) in enumerate(named):
            ax.plot(
                frame[column] / x_scale.divisor,
                frame[y] / y_scale.divisor,
                color=color_of(run.algorithm),
                linestyle=line_of(position),
                marker="o" if len(frame) == 1 else marker_of(position),
                markevery=0.1 if len(frame) > 1 else None,
                label=label + (" (not certified)" if y == "epsilon" and frame[y].isna().all() else ""),
            )
        ax.set_xlabel(axis_label(column, x_label, x_scale, opened))
        ax.set_ylabel(axis_label(y, measure_label(y), y_scale, opened))
        arrange(ax, y, [frame[y].dropna() for frame in frames])
    return ax


def thumbnail(run: Run | str | Path) -> bytes:
    """Return a small figure of a run as PNG: its test accuracy, or its loss where there is none, over virtual time."""
    from matplotlib.figure import Figure

    run = run if isinstance(run, Run) else read(run)
    with style():
        figure = Figure(figsize=(4.0, 2.4), layout="constrained")
        undefined = bool(run.metrics["test_accuracy"].isna().all())
        plot(run, y="test_loss" if undefined else "test_accuracy", ax=figure.subplots())
        written = io.BytesIO()
        figure.savefig(written, format="png", dpi=100)
    return written.getvalue()


def check_y(y: str, runs: Iterable[Run]) -> None:
    """Reject a column of metrics that a run does not have, and name the columns that all of the runs have."""
    opened = list(runs)
    shared = (
        [name for name in opened[0].metrics.columns if all(name in run.metrics for run in opened)] if opened else []
    )
    if opened and y not in Y_AXES and not any(y in run.measures for run in opened):
        raise ScenarioError(f"plot: y: expected one of {', '.join(shared)}, found {y!r}{nearest(y, shared)}")
    for run in opened:
        if y not in run.metrics.columns:
            how = f"set evaluate.metrics: [{y}]" if y in METRICS else "set evaluate.gradients: 1000"
            how = how if y in Y_AXES else "its model has no such metric"
            raise DataError(
                f"{run.folder}: this run measured no {measure_label(y)}; {how}, or choose one of {', '.join(shared)}"
            )


def label_runs(runs: Sequence[Run]) -> list[str]:
    """Name runs by their algorithm, and by no more of noise, kind, scenario, seed and folder than tells them apart."""
    parts = [
        (
            name_of(run.algorithm, run.privacy is not None),
            describe_noise(run),
            "live" if run.is_live else "simulated",
            run.name,
            f"seed {run.manifest.seed}",
            f"run {run.folder.name}",
        )
        for run in runs
    ]
    labels = [", ".join(part for part in own[:2] if part) for own in parts]
    for position in range(2, len(parts[0]) if parts else 0):
        counts = Counter(labels)
        groups: dict[str, set[str]] = {label: set() for label in labels}
        for label, own in zip(labels, parts, strict=True):
            groups[label].add(own[position])
        labels = [
            f"{label}, {own[position]}" if counts[label] > 1 and len(groups[label]) > 1 else label
            for label, own in zip(labels, parts, strict=True)
        ]
    return labels


def save(figure: Axes | Figure, path: str | Path) -> Path:
    """Write a figure as PNG (200 dpi), PDF or SVG, whichever the name says; equal figures give equal files.

    Returns:
        The path.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in FORMATS:
        raise ScenarioError(
            f"{path}: expected a name that ends in one of {', '.join(FORMATS)}, found {kind or 'no ending'}"
        )
    whole: Any = getattr(figure, "figure", figure)
    undated: dict[str, Any] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {}}[kind]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with style():
            whole.savefig(path, dpi=PNG_DPI, metadata=undated)
    except OSError as error:
        raise ScenarioError(f"{path}: cannot write the figure: {error.strerror}") from error
    return path


def save_and_close(figure: Axes | Figure, *paths: str | Path) -> list[Path]:
    """Write a figure to several places and let go of it, which matplotlib would keep."""
    from matplotlib import pyplot as plt

    written = [save(figure, path) for path in paths]
    whole: Any = getattr(figure, "figure", figure)
    plt.close(whole)
    return written


def describe_noise(run: Run) -> str:
    """Return a run's noise in the papers' letters, nothing for a run without."""
    privacy = run.privacy
    if privacy is None:
        return ""
    noise = run.noise
    if "noise_std" in noise:
        return f"noise {show_range(*noise['noise_std'])}, unclipped"
    letters = {"noise_multiplier": ("z", ""), "epsilon_per_release": ("ε", " per release")}
    parts = [f"{letters[name][0]} = {show_range(*ends)}{letters[name][1]}" for name, ends in noise.items()]
    if privacy.get("clipping_norm") is not None:
        parts.append(f"C = {show_number(privacy['clipping_norm'])}")
    return ", ".join(parts)


def describe_epsilon(runs: Sequence[Run]) -> str:
    """An epsilon says nothing without its delta and what neighbors are."""
    terms = {
        f"δ = {delta:g}, {RELATIONS.get(str(privacy.get('neighbors')), RELATIONS['replace_one'])}"
        for run in runs
        if (privacy := run.privacy) is not None and not math.isnan(delta := run.epsilon_and_delta()[1])
    }
    # Three short lines: they stand beside small figures, too.
    return BOUND.replace(", ", ",\n", 1) + (f"\n({terms.pop()})" if len(terms) == 1 else "")


def scale_of(column: str, largest: float) -> Scale:
    """Choose the unit in which a column of tables reads best."""
    if column in {"time_s", "wall_s"}:
        return scale_time(largest)
    return scale_bytes(largest) if column == "bytes_sent" else Scale(1.0, "")


def _largest(values: Any) -> float:
    largest = float(values.max()) if len(values) else 0.0
    return largest if math.isfinite(largest) else 0.0


def axis_label(column: str, label: str, scale: Scale, runs: Sequence[Run]) -> str:
    """Return the label of an axis of a column of metrics of runs."""
    if column == "epsilon":
        return describe_epsilon(runs)
    if column == "rounds" and any(run.algorithm not in ROUNDS for run in runs):
        return f"{label} (without rounds: updates per client)"
    return with_unit(label, scale)


def with_unit(label: str, scale: Scale) -> str:
    """Return the label of an axis."""
    return f"{label} ({scale.unit})" if scale.unit else label


def _floor_of_accuracy(curves: Sequence[pd.Series[float]]) -> float:
    """Where an axis of accuracies begins: at 0, or higher if all but a short first rise takes place above."""
    usual = min((float(curve.quantile(0.05)) for curve in curves if len(curve)), default=0.0)
    return math.floor((usual - 0.1) * 10) / 10 if usual >= 0.5 else 0.0


def arrange(ax: Axes, y: str, curves: Sequence[pd.Series[float]]) -> None:
    """Set limits, ticks and the legend."""
    from matplotlib.ticker import EngFormatter

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
    if all(curve.empty for curve in curves):
        what = "ε" if y == "epsilon" else measure_label(y)
        ax.text(0.5, 0.5, f"no {what} in these runs", transform=ax.transAxes, ha="center", color="#666666")
        ax.set(xticks=[], yticks=[])
    ax.legend(loc="lower right" if y == "test_accuracy" else "best")
