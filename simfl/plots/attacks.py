"""Figures of attacks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from simfl.plots.style import PALETTE, line_of, style
from simfl.records.attacks import FALSE_POSITIVE_RATES, SCORES, Inference, Inversion, Membership
from simfl.records.claims import RELATIONS

if TYPE_CHECKING:
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
    rows = [row for row, one in enumerate(membership.inferences) if one.score == score]
    entries = [membership.inferences[row] for row in rows]
    with style():
        figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11.5, 3.8), layout="constrained")
        _draw_roc(left, membership, rows)
        distances = [one.distance for one in entries]
        _draw_points(middle, distances, [one.auc for one in entries], 0, "area under the curve")
        low, high = _means(entries, "auc_low"), _means(entries, "auc_high")
        middle.fill_between(
            list(low), list(low.values()), list(high.values()), color=PALETTE[0], alpha=0.15, linewidth=0
        )
        middle.axhline(0.5, color="#555555", linestyle=":", label="by chance")
        middle.set_ylabel(
            f"area under the curve\n(band: {100 * membership.confidence:g} % of one pair, mean of its ends)"
        )
        _draw_points(right, distances, [one.lower_bound for one in entries], 1, "lower bound, measured")
        accounts = [one.account for one in entries]
        if any(math.isfinite(account) for account in accounts):
            _draw_points(right, distances, accounts, 2, "certified")
            right.set_yscale("symlog", linthresh=0.1)
        published = [one.published for one in entries]
        if any(math.isfinite(epsilon) for epsilon in published):
            _draw_points(right, distances, published, 3, "as published, not certified")
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


def _draw_roc(ax: Axes, membership: Membership, rows: Sequence[int]) -> None:
    near = sorted({membership.inferences[row].distance for row in rows})
    for position, distance in enumerate(near[:_MOST_CURVES]):
        some = [row for row in rows if membership.inferences[row].distance == distance]
        ax.plot(
            FALSE_POSITIVE_RATES,
            np.maximum(membership.rates[some].mean(axis=0), 1e-9),
            color=PALETTE[position % len(PALETTE)],
            linestyle=line_of(position),
            label=f"distance {distance:g}",
        )
    ax.plot((_LEAST_RATE, 1), (_LEAST_RATE, 1), color="#555555", linestyle=":", label="by chance")
    ax.set(xscale="log", yscale="log", xlim=(_LEAST_RATE, 1), ylim=(_LEAST_RATE, 1))
    ax.set(xlabel="false positive rate", ylabel="true positive rate")
    ax.legend(loc="lower right")


def _draw_points(ax: Axes, distances: Sequence[float], values: Sequence[float], number: int, label: str) -> None:
    points = [(at, value) for at, value in zip(distances, values, strict=True) if math.isfinite(at + value)]
    if not points:
        return
    color, marker = PALETTE[number], "os^D"[number]
    ax.scatter([at for at, _ in points], [value for _, value in points], color=color, alpha=0.25, s=12, linewidths=0)
    places = sorted({at for at, _ in points})
    means = [float(np.mean([value for at, value in points if at == place])) for place in places]
    ax.plot(places, means, color=color, linestyle=line_of(number), marker=marker, label=label)


def _means(entries: Sequence[Inference], name: str) -> dict[float, float]:
    places = sorted({one.distance for one in entries if math.isfinite(one.distance)})
    return {place: float(np.mean([getattr(one, name) for one in entries if one.distance == place])) for place in places}
