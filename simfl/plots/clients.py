"""Figures of clients: time, staleness, and the topology."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from simfl.comparison.sweeps import Group
from simfl.errors import ScenarioError
from simfl.plots.groups import Look, looks_of
from simfl.plots.style import SERVER_STEPS, axes_of, percent, style
from simfl.records import Run, read
from simfl.records.display import show_time
from simfl.records.results import clock_of

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes

#: Column of clients -> word, color, hatching, which distinguishes the bars in gray.
ACTIVITIES = {
    "compute_s": ("computes", "#0072B2", ""),
    "communicate_s": ("communicates", "#E69F00", "////"),
    "wait_s": ("waits", "#CC79A7", ".."),
    "offline_s": ("is offline", "#999999", "xx"),
}

_MANY = 40


def plot_time_shares(run: Run | str | Path, ax: Axes | None = None) -> Axes:
    """Plot each client's share of time computing, communicating, waiting, offline.

    The bars are totals over the whole run; for the course of events see `simfl trace`. The rest up to 100 % is none of
    these: a client that has left permanently, for example. More than forty clients are sorted by their computing time,
    and not named.
    """
    opened = run if isinstance(run, Run) else read(run)
    clients = opened.clients
    many = len(clients) > _MANY
    if many:
        clients = clients.sort_values("compute_s", ascending=False)
    whole = float(opened.manifest.time_s) or 1.0
    places = np.arange(len(clients))
    with style():
        ax = axes_of(ax, 6.4, min(7.0, 1.4 + 0.2 * len(clients)))
        left = np.zeros(len(clients))
        for column, (word, color, hatch) in ACTIVITIES.items():
            widths = clients[column].to_numpy(float) / whole
            if column in ("compute_s", "communicate_s", "wait_s") or widths.any():
                ax.barh(
                    places, widths, left=left, height=1.0 if many else 0.8, color=color, label=word, hatch=hatch,
                    edgecolor="white", linewidth=0.0 if many else 0.4,
                )  # fmt: skip
            left += widths
        ax.set_xlim(0, 1)
        ax.xaxis.set_major_formatter(percent(decimals=0))
        ax.set_xlabel(f"share of {show_time(whole)} of {clock_of([opened])}, in total")
        ax.set_ylabel("clients, those that compute most first" if many else "client")
        step = max(1, len(clients) // 20)
        ax.set_yticks([] if many else places[::step], None if many else clients["client"].to_numpy()[::step])
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)
    return ax


def plot_staleness(groups: Sequence[Group], among: Sequence[Group] | None = None, ax: Axes | None = None) -> Axes:
    """Plot the share of updates at each staleness, a line per group.

    Staleness is the number of updates of all clients, or of steps of the server, between reading a model and applying
    a gradient taken at it. Groups of the two kinds have a panel each; `ax` draws one kind only. The share is over all
    runs of a group, on a logarithmic axis with about sixty bins; a triangle at the right end is the share beyond the
    last bin. `among` are all groups of the study, as in `plot_groups`. Returns the axes of the first panel.
    """
    from matplotlib import pyplot as plt

    kinds = {
        unit: [group for group in groups if (group.algorithm in SERVER_STEPS) == of_server]
        for unit, of_server in (("updates of all clients", False), ("steps of the server", True))
    }
    panels = {unit: part for unit, part in kinds.items() if part}
    if ax is not None and len(panels) > 1:
        expected = f"expected groups whose staleness counts one thing, found {' and '.join(panels)}"
        raise ScenarioError(f"plot_staleness: ax: {expected}; leave ax out for a panel of each")
    looks = {group.label: look for group, look in zip(groups, looks_of(groups, among), strict=True)}
    with style():
        columns = max(1, len(panels))
        axes: list[Axes] = [ax] if ax is not None else []
        if ax is None:
            size = (6.4 * columns, 4.0 + 0.2 * len(groups))
            axes = list(plt.subplots(1, columns, figsize=size, layout="constrained", squeeze=False)[1][0])
        for panel, (unit, part) in zip(axes, panels.items(), strict=False):
            _draw_staleness(panel, part, [looks[group.label] for group in part], unit)
    return axes[0]


def _draw_staleness(ax: Axes, groups: Sequence[Group], looks: Sequence[Look], unit: str) -> None:
    from matplotlib.ticker import MaxNLocator

    each = [np.concatenate([run.updates["staleness"].to_numpy() for run in group.runs.values()]) for group in groups]
    # The last thousandth would make the rest of the figure narrow.
    largest = max((int(np.quantile(values, 0.999)) if len(values) else 0 for values in each), default=0)
    width = max(1, math.ceil((largest + 1) / 60))
    edges = np.arange(0, largest + 1 + width, width) - 0.5
    beyond = edges[-1] + 0.03 * (edges[-1] - edges[0])
    overflow = False
    for values, look in zip(each, looks, strict=True):
        if not len(values):
            continue
        heights = np.histogram(values, edges)[0] / len(values)
        label = f"{look.label} ({values.mean():.3g}, at most {values.max():,})"
        ax.stairs(heights, edges, color=look.color, linestyle=look.line, linewidth=1.6, label=label, baseline=None)
        if (share := float((values > edges[-1]).mean())) > 0.0:
            overflow = True
            ax.plot([beyond], [share], marker=">", markersize=6, color=look.color, clip_on=False)
    ax.set_xlabel(f"staleness ({unit})" + (f"; ▸: more than {edges[-1]:.0f}" if overflow else ""))
    ax.set_ylabel("share of updates" if width == 1 else f"share of updates in each bin of {width}")
    ax.set_yscale("log")  # the few very stale updates matter most
    ax.yaxis.set_major_formatter(lambda value, position: f"{100 * value:g}%")
    ax.set_xlim(edges[0], beyond if overflow else edges[-1])
    ax.set_ylim(top=1.5)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), title="mean, largest", title_fontsize=9, alignment="left")


def plot_topology(run: Run | str | Path, color: Literal["speed", "accuracy"] = "speed", ax: Axes | None = None) -> Axes:
    """Plot the graph of clients, colored by speed or by their own accuracy.

    The color "speed" is the seconds of computing per update, relative to the median client; "accuracy" is the final
    test accuracy of the client's own model, which the run must have recorded (`evaluate.clients`).
    """
    import networkx as nx
    from matplotlib import pyplot as plt
    from matplotlib.colors import LogNorm, Normalize

    opened = run if isinstance(run, Run) else read(run)
    edges, graph = opened.edges, nx.empty_graph(len(opened.clients))
    graph.add_edges_from(zip(edges["source"], edges["target"], strict=True))
    has_server = graph.number_of_nodes() > len(opened.clients)
    if color == "speed":
        clients = opened.clients
        seconds = (clients["compute_s"] / clients["updates"].where(clients["updates"] > 0)).to_numpy(float)
        values = seconds / np.nanmedian(seconds)
        label, cmap = "time per update, times the median", "cividis_r"
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        wide = high > 3 * low
        norm: Any = LogNorm(low, high) if wide else Normalize(min(low, 0.9), max(high, 1.1))
    else:
        last = opened.client_metrics.groupby("client")["test_accuracy"].last().sort_index()
        values = last.to_numpy(float)
        label, cmap, norm = "test accuracy of the client's own model", "cividis", None
        if len(values) != graph.number_of_nodes() - has_server:
            expected = f"expected a model of every client, found {len(values)}"
            raise ScenarioError(f"{opened.folder}: {expected}; draw the speed")
    places = layout(graph, has_server)
    count = len(values)
    with style():
        ax = axes_of(ax, 5.6, 4.6)
        size = max(12.0, min(260.0, 6000.0 / max(count, 1)))
        nx.draw_networkx_edges(graph, places, ax=ax, edge_color="#AAAAAA", width=0.8 if count <= 100 else 0.3)
        dots = ax.scatter(
            [places[k][0] for k in range(count)], [places[k][1] for k in range(count)], s=size, c=values, cmap=cmap,
            norm=norm, edgecolors="#333333", linewidths=0.6, zorder=3, plotnonfinite=True,
        )  # fmt: skip
        if has_server:
            ax.annotate("server", places[count], ha="center", va="center", fontsize=7, zorder=4, bbox=box_of_server())
        if count <= 36:
            shades = np.ma.filled(dots.norm(values), 1.0)
            for k in range(count):
                shade = float(shades[k]) if math.isfinite(values[k]) else 1.0
                dark = (shade > 0.5) == (cmap == "cividis_r")
                ink = "white" if dark else "black"
                ax.annotate(str(k), places[k], ha="center", va="center", fontsize=7, zorder=4, color=ink)
        bar: Any = plt.colorbar(dots, ax=ax, shrink=0.8)
        bar.set_label(label)
        bar.outline.set_visible(False)
        if color == "accuracy":
            bar.ax.yaxis.set_major_formatter(percent())
        elif wide:
            from matplotlib.ticker import LogLocator, NullFormatter

            bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            bar.ax.yaxis.set_major_formatter(lambda value, position: f"{value:g}")
            bar.ax.yaxis.set_minor_formatter(NullFormatter())
        ax.set_aspect("equal")
        ax.axis("off")
    return ax


def box_of_server(width: float = 0.6) -> dict[str, Any]:
    """Return the box of the word `server`, with a line of some width."""
    return {"boxstyle": "square,pad=0.4", "facecolor": "white", "edgecolor": "#333333", "linewidth": width}


def layout(graph: nx.Graph[int], has_server: bool) -> dict[int, Any]:
    """Return a place for every node: on a circle for cycles and complete graphs."""
    import networkx as nx

    count = graph.number_of_nodes()
    if has_server:
        places: dict[int, Any] = dict(nx.circular_layout(nx.empty_graph(count - 1)))
        places[count - 1] = np.zeros(2)
        return places
    degrees = {degree for _, degree in graph.degree()}
    if degrees <= {2} or degrees == {count - 1}:
        return dict(nx.circular_layout(graph))
    if count <= 400:
        return dict(nx.kamada_kawai_layout(graph))
    return dict(nx.spring_layout(graph, seed=1, iterations=60))
