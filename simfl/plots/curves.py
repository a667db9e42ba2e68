"""Curves of a measure over time, updates, epochs or bytes, one line per run."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simfl.comparison.comparing import folders_of
from simfl.comparison.sweeps import Sweep, is_sweep, open_groups
from simfl.errors import ScenarioError
from simfl.plots.axes import arrange, axis_label, check_y, scale_of, x_axis
from simfl.plots.groups import plot_groups
from simfl.plots.style import axes_of, color_of, line_of, marker_of, name_of, style
from simfl.records import Run, read
from simfl.records.display import measure_label
from simfl.records.results import clock_of, describe_noise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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

    An algorithm has the same color in every figure; the curves of a figure have different line styles.

    Args:
        runs: one or several runs, or their folders; with a sweep among them, `plot_groups` draws means of groups.
        x: time, updates, epochs, rounds, bytes or epsilon; with `costs` also energy, money or carbon.
        y: a column of the metrics table.
        ax: where to draw; new axes by default.
        labels: one name per run; by default the algorithm, and the differences of runs of the same algorithm.

    Returns:
        The axes, to change further or to give to `save`.
    """
    given = list(runs) if isinstance(runs, Iterable) and not isinstance(runs, str | bytes) else [runs]
    folders = folders_of(given)
    if labels is None and any(is_sweep(folder) for folder in folders):
        return plot_groups(open_groups(folders)[0], x, y, ax=ax)
    opened = [one if isinstance(one, Run) else read(folder) for one, folder in zip(given, folders, strict=True)]
    if not opened:
        raise ScenarioError("plot: expected at least one run, found none")
    column, x_label = x_axis(x)
    check_y(column, opened)
    check_y(y, opened)
    if labels is not None and len(labels) != len(opened):
        raise ScenarioError(f"plot: labels: expected {len(opened)}, one per run, found {len(labels)}")
    tables = [{name: run.evaluations[name] for name in (column, y)} for run in opened]
    x_label = clock_of(opened) if column == "time_s" else x_label
    x_scale = scale_of(column, max((_largest(table[column]) for table in tables), default=0.0))
    y_scale = scale_of(y, max((_largest(table[y]) for table in tables), default=0.0))
    with style():
        ax = axes_of(ax)
        named = zip(opened, tables, labels or label_runs(opened), strict=True)
        for position, (run, table, label) in enumerate(named):
            count = len(table[y])
            ax.plot(
                table[column] / x_scale.divisor,
                table[y] / y_scale.divisor,
                color=color_of(run.algorithm),
                linestyle=line_of(position),
                marker="o" if count == 1 else marker_of(position),
                markevery=0.1 if count > 1 else None,
                label=label + (" (not certified)" if y == "epsilon" and np.isnan(table[y]).all() else ""),
            )
        ax.set_xlabel(axis_label(column, x_label, x_scale, opened))
        ax.set_ylabel(axis_label(y, measure_label(y), y_scale, opened))
        arrange(ax, y, [table[y] for table in tables])
    return ax


def thumbnail(run: Run | str | Path) -> bytes:
    """Return a small figure of a run as PNG: accuracy or loss over virtual time."""
    from matplotlib.figure import Figure

    run = run if isinstance(run, Run) else read(run)
    with style():
        figure = Figure(figsize=(4.0, 2.4), layout="constrained")
        plot(run, y="test_accuracy" if run.has_accuracy else "test_loss", ax=figure.subplots())
        written = io.BytesIO()
        figure.savefig(written, format="png", dpi=100)
    return written.getvalue()


def label_runs(runs: Sequence[Run]) -> list[str]:
    """Name runs by algorithm, with further words only as needed."""
    parts = [
        (
            name_of(run.algorithm, run.privacy is not None, run.title), describe_noise(run),
            "live" if run.is_live else "simulated", run.name, f"seed {run.seeds}", f"run {run.folder.name}",
        )
        for run in runs
    ]  # fmt: skip
    labels = [", ".join(part for part in words[:2] if part) for words in parts]
    for position in range(2, len(parts[0]) if parts else 0):
        counts = Counter(labels)
        groups: dict[str, set[str]] = {label: set() for label in labels}
        for label, words in zip(labels, parts, strict=True):
            groups[label].add(words[position])
        labels = [
            f"{label}, {words[position]}" if counts[label] > 1 and len(groups[label]) > 1 else label
            for label, words in zip(labels, parts, strict=True)
        ]
    return labels


def save(figure: Axes | Figure, path: str | Path) -> Path:
    """Write a figure as PNG (200 dpi), PDF or SVG, with reproducible bytes."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in FORMATS:
        expected = f"expected a name that ends in one of {', '.join(FORMATS)}, found {kind or 'no ending'}"
        raise ScenarioError(f"{path}: {expected}")
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
    """Write a figure to several places and close it, which matplotlib would keep."""
    from matplotlib import pyplot as plt

    written = [save(figure, path) for path in paths]
    whole: Any = getattr(figure, "figure", figure)
    plt.close(whole)
    return written


def _largest(values: NDArray[Any]) -> float:
    largest = float(np.fmax.reduce(values.astype(float), initial=-math.inf))
    return largest if math.isfinite(largest) else 0.0
