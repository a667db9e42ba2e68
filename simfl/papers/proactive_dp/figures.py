"""Plots utility graphs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from simfl.papers.proactive_dp.theorems import epsilon_of
from simfl.papers.proactive_dp.utility import FrontierPoint, UtilityGraph, frontier
from simfl.plots.style import percent, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = "osD^vPX*"
_LAST_COLOR = 0.88  # of the color map, whose end is too pale on white


def plot_utility(
    graph: UtilityGraph,
    target_loss: float = 0.1,
    *,
    delta: float | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Plot acc(w* + n) / acc(w*) against sigma, with the allowed relative loss.

    Bands hold nine in ten draws of the noise. Large markers on the line are the frontier. The legend gives its numbers,
    and the accuracy of w*, which the curves do not show. Colors are those of viridis, in the order of C: safe for
    color-blind readers, and ordered in grayscale. With `delta`, a second axis above has the epsilon that the main
    equation claims for each sigma.
    """
    from matplotlib import colormaps
    from matplotlib import pyplot as plt

    wanted = 1.0 - target_loss
    points = {point.clipping_norm: point for point in frontier(graph, target_loss)}
    norms, sigmas = graph.clipping_norms, graph.noise_multipliers
    labels = _labels(graph, points)
    with style():
        if ax is None:
            _, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
        ax.axhline(wanted, color="#222222", linewidth=1.0, linestyle=(0, (4, 3)), zorder=2.5)
        for index, norm in enumerate(norms):
            color = colormaps["viridis"](_LAST_COLOR * (index / max(1, len(norms) - 1)))
            marker = MARKERS[index % len(MARKERS)]
            ax.fill_between(sigmas, graph.lows[index], graph.highs[index], color=color, alpha=0.16, linewidth=0)
            ax.plot(sigmas, graph.ratios[index], color=color, marker=marker, markersize=4.5, label=labels[index])
            point = points.get(norm)
            if point is not None and point.bound == "interpolated":
                edge: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 1.4}
                ax.plot(point.noise_multiplier, wanted, marker, color=color, markersize=9, zorder=4, **edge)
        _arrange(ax, graph, target_loss)
        ax.yaxis.set_major_formatter(percent(decimals=0))
        if delta is not None:
            _second_axis(ax, delta)
        if title:
            ax.set_title(title)
    return ax


def _labels(graph: UtilityGraph, points: Mapping[float, FrontierPoint]) -> list[str]:
    """Return the legend's lines: C, acc(w*), and the sigma of the frontier."""
    columns = [
        [f"{norm:g}" for norm in graph.clipping_norms],
        [f"{accuracy:.1%}" for accuracy in graph.accuracies],
        [points[norm].show(digits=3) if norm in points else "no plan" for norm in graph.clipping_norms],
    ]
    return ["  ".join(row) for row in zip(*map(_padded, columns), strict=True)]


def _padded(column: list[str]) -> list[str]:
    """Pad texts to one width with spaces as wide as a digit or a point."""
    digits = max(len(text) - text.count(".") for text in column)
    points = max(text.count(".") for text in column)
    return [
        text + "\u2007" * (digits - len(text) + text.count(".")) + "\u2008" * (points - text.count("."))
        for text in column
    ]


def _arrange(ax: Axes, graph: UtilityGraph, target_loss: float) -> None:
    """Set scales, limits, labels and the legend."""
    from matplotlib.ticker import FixedLocator, NullLocator

    sigmas = graph.noise_multipliers
    ax.set_xscale("log")
    margin = (sigmas[-1] / sigmas[0]) ** 0.03
    ax.set_xlim(sigmas[0] / margin, sigmas[-1] * margin)
    ax.set_ylim(0.0, 1.03)
    ax.xaxis.set_major_locator(FixedLocator(_spread(sigmas)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(lambda value, position: f"{value:g}")
    ax.set_xlabel("noise multiplier σ")
    ax.set_ylabel("accuracy with noise / without")
    look: dict[str, Any] = {"ha": "right", "va": "bottom", "fontsize": 9, "color": "#222222"}
    place = sigmas[-1] * margin, 1.0 - target_loss
    ax.annotate(f"loss {target_loss:.0%}", place, xytext=(-3, 3), textcoords="offset points", **look)
    title = f"clipping norm, accuracy\nat σ = 0, σ at {target_loss:.0%} loss"
    ax.legend(loc="lower left", title=title, title_fontsize=9, alignment="left")


def _spread(sigmas: tuple[float, ...]) -> list[float]:
    """Return the values with enough room for a label on a logarithmic axis."""
    labeled: list[float] = []
    for sigma in sigmas:
        if not labeled or math.log(sigma / labeled[-1]) >= 0.06 * max(math.log(sigmas[-1] / sigmas[0]), 1e-9):
            labeled.append(sigma)
    return labeled


def _second_axis(ax: Axes, delta: float) -> None:
    """Add an axis above with the epsilon that the paper claims for each labeled sigma."""
    from matplotlib.ticker import NullLocator

    labeled = [float(tick) for tick in ax.get_xticks() if tick**2 > 2.0]
    above: Any = ax.secondary_xaxis("top")
    above.set_xscale("log")
    above.xaxis.set_minor_locator(NullLocator())
    above.set_xticks(labeled, [f"{epsilon_of(sigma, delta):.2g}" for sigma in labeled])
    above.set_xlabel(f"claimed ε (δ = {delta:.2g})".replace("e-0", "e-"))
