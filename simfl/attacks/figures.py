"""Figures of attacks."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from simfl.attacks.results import SCORES, Inversion, Membership
from simfl.comparison.claims import RELATIONS
from simfl.plots.style import PALETTE, line_of, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The most distances with a curve, and the most examples side by side.
_MOST_CURVES, _MOST_EXAMPLES = 6, 12
#: The left end of the ROC curve's axes: a few hundred examples show no lower rates.
_LEAST_RATE = 3e-3


def plot_membership(membership: Membership, score: str | None = None) -> Figure:
    """Plot membership inference: ROC curves, area and epsilon against distance.

    Points are pairs of observer and client; lines are their means. `score` is a name in `SCORES`; by default the one
    with the largest areas.
    """
    from matplotlib import pyplot as plt

    score = score or membership.best
    frame = membership.frame[membership.frame["score"] == score]
    ends = frame[np.isfinite(frame["distance"])].groupby("distance")[["auc_low", "auc_high"]].mean()
    with style():
        figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11.5, 3.8), layout="constrained")
        _draw_roc(left, membership.roc[membership.roc["score"] == score])
        _draw_points(middle, frame, "auc", 0, "area under the curve")
        middle.fill_between(ends.index, ends["auc_low"], ends["auc_high"], color=PALETTE[0], alpha=0.15, linewidth=0)
        middle.axhline(0.5, color="#555555", linestyle=":", label="by chance")
        middle.set_ylabel(
            f"area under the curve\n(band: {100 * membership.confidence:g} % of one pair, mean of its ends)"
        )
        _draw_points(right, frame, "lower_bound", 1, "lower bound, measured")
        _draw_points(right, frame, "account", 2, "certified")
        _draw_points(right, frame, "published", 3, "as published, not certified")
        if np.isfinite(frame["account"]).any():
            right.set_yscale("symlog", linthresh=0.1)
        right.set_ylim(bottom=0)
        right.set_ylabel(f"ε at δ = {membership.delta:g}, {RELATIONS[membership.neighbors]}")
        for ax in (middle, right):
            ax.set_xlabel("distance from the client on the graph")
            ax.xaxis.get_major_locator().set_params(integer=True)
            ax.legend(loc="best")
        figure.suptitle(f"{membership.subject}: {SCORES[score]}", fontsize=11)
    return figure


def plot_inversion(attack: Inversion) -> Figure:
    """Plot examples above their reconstructions, with correlations.

    Examples that are not images are drawn as rows of squares. There must be at least one mini-batch.
    """
    from matplotlib import pyplot as plt

    entries = [
        (batch, original, guess, correlation)
        for batch in attack.batches
        for original, guess, correlation in zip(batch.originals, batch.found, batch.correlations, strict=True)
    ][:_MOST_EXAMPLES]
    if not entries:
        raise ValueError("plot_inversion: expected a mini-batch or more, found none")
    low = min(float(original.min()) for _, original, _, _ in entries)
    high = max(float(original.max()) for _, original, _, _ in entries)
    shape = tuple(attack.image_shape or (1, entries[0][1].size))
    with style():
        size = (max(4.0, 1.0 * len(entries) + 1.2), 3.0)
        figure, axes = plt.subplots(2, len(entries), figsize=size, layout="constrained", squeeze=False)
        for column, (batch, original, guess, correlation) in enumerate(entries):
            for ax, values in zip(axes[:, column], (original, guess), strict=True):
                pixels = np.clip((values.reshape(shape) - low) / ((high - low) or 1.0), 0.0, 1.0)
                ax.imshow(pixels, cmap="gray_r", vmin=0.0, vmax=1.0, aspect="equal" if attack.image_shape else "auto")
                ax.set(xticks=[], yticks=[])
                ax.grid(visible=False)
            axes[0, column].set_title(f"batch {batch.draw}", fontsize=8)
            axes[1, column].set_xlabel(f"{correlation:.2f}", fontsize=8)
        axes[0, 0].set_ylabel("original")
        axes[1, 0].set_ylabel("reconstructed")
        observer = f"client {attack.observer}" if attack.observer.isdecimal() else attack.observer
        figure.suptitle(f"{attack.subject}: {observer} on client {attack.client}, with correlations", fontsize=10)
    return figure


def _draw_roc(ax: Axes, roc: pd.DataFrame) -> None:
    for position, (distance, curve) in enumerate(itertools.islice(roc.groupby("distance"), _MOST_CURVES)):
        ax.plot(
            curve["false_positive_rate"],
            np.maximum(curve["true_positive_rate"], 1e-9),
            color=PALETTE[position % len(PALETTE)],
            linestyle=line_of(position),
            label=f"distance {distance:g}",
        )
    ax.plot((_LEAST_RATE, 1), (_LEAST_RATE, 1), color="#555555", linestyle=":", label="by chance")
    ax.set(xscale="log", yscale="log", xlim=(_LEAST_RATE, 1), ylim=(_LEAST_RATE, 1))
    ax.set(xlabel="false positive rate", ylabel="true positive rate")
    ax.legend(loc="lower right")


def _draw_points(ax: Axes, frame: pd.DataFrame, column: str, number: int, label: str) -> None:
    points = frame[np.isfinite(frame["distance"] + frame[column])]
    if points.empty:
        return
    color, means = PALETTE[number], points.groupby("distance")[column].mean()
    ax.scatter(points["distance"], points[column], color=color, alpha=0.25, s=12, linewidths=0)
    ax.plot(means.index, means, color=color, linestyle=line_of(number), marker="os^D"[number], label=label)
