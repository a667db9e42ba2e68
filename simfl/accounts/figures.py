"""Figures of claims, and of observers' knowledge: pairs, distances, graph, time.

Those of knowledge are drawn from the table of pairs of `simfl.accounts.network`, for its `delta`. Certified epsilons
are drawn beside those "as published", which take gradients as fixed and may be too small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simfl.comparison.claims import RELATIONS, VIEWS, Check
from simfl.plots.clients import box_of_server, layout
from simfl.plots.style import PALETTE, axes_of, style
from simfl.records.display import scale_time, show_count, show_range

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Column of pairs -> title of its panel.
KINDS = {"epsilon": "certified", "published": "as published, not certified"}
#: Small epsilons are light, large ones are dark; infinite ones have their own color.
_CMAP, _INFINITE, _OWN = "cividis_r", PALETTE[1], "#E4E4E4"
_LINES = {"epsilon": (PALETTE[0], "-"), "published": (PALETTE[3], "--")}
_QUANTILES = (0.1, 0.9)
#: Number of distances with their own color.
_MOST_LINES = 6
#: The most numbers in the cells of a panel, and the most names in nodes.
_MOST_CELLS, _MOST_NAMES = 12, 36
#: The most groups of clients with bars of claims, and the hatches of bars.
_MOST_GROUPS, _HATCHES = 5, ("", "///", "...", "\\\\\\", "xxx")


def plot_claims(check: Check, ax: Axes | None = None) -> Axes:
    """Plot claimed and certified epsilon as bars, on a log axis if far apart."""
    findings = check.findings[:_MOST_GROUPS]
    names = {(view, own): f"{VIEWS[view]}, {RELATIONS[own]}" for view in VIEWS for own in RELATIONS}
    series: dict[str, list[float]] = {}
    if any(finding.claimed is not None for finding in findings):
        series["claimed"] = [f.claimed.epsilon if f.claimed is not None else math.nan for f in findings]
    for key in findings[0].certified:
        series[names[key]] = [finding.certified[key] for finding in findings]
    colors = dict(zip(names.values(), (PALETTE[0], PALETTE[2], "#bbbbbb", "#888888"), strict=True))
    colors["claimed"] = PALETTE[1]
    with style():
        ax = axes_of(ax)
        height = 0.8 / len(series)
        for position, (name, values) in enumerate(series.items()):
            places = [row + (position - (len(series) - 1) / 2) * height for row in range(len(findings))]
            hatch = _HATCHES[position]
            ax.barh(places, values, 0.9 * height, color=colors[name], label=name, hatch=hatch, edgecolor="white")
            for place, value in zip(places, values, strict=True):
                shown = f" {value:.3g}" if math.isfinite(value) else " none"
                ax.text(value if math.isfinite(value) else 0.0, place, shown, va="center", fontsize=8)
        positive = [value for values in series.values() for value in values if math.isfinite(value) and value > 0]
        if positive and max(positive) > 50 * min(positive):
            ax.set_xscale("log")
            ax.set_xlim(min(positive) / 3, max(positive) * 4)
        elif positive:
            ax.set_xlim(0, 1.15 * max(positive))
        names_of_groups = [f"{f.who}\n{show_range(*f.releases, show_count)} releases" for f in findings]
        ax.set_yticks(range(len(findings)), names_of_groups)
        ax.invert_yaxis()
        ax.set_xlabel(f"ε at δ = {check.delta:g}")
        ax.grid(axis="y", visible=False)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False)
    return ax


def plot_pairs(pairs: pd.DataFrame, delta: float) -> Figure:
    """Plot the final epsilon of every pair as heat maps, certified and published."""
    from matplotlib import pyplot as plt
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    last = _last(pairs)
    observers, clients = list(dict.fromkeys(last["observer"])), sorted(last["client"].unique())
    height = max(2.6, min(5.6, 1.3 + 0.28 * len(observers)))
    with style():
        figure, axes = plt.subplots(1, 2, figsize=(9.6, height), sharey=True, layout="constrained")
        norm = _norm(last)
        for ax, (column, title) in zip(axes, KINDS.items(), strict=True):
            table = last.pivot(index="observer", columns="client", values=column)
            values = table.reindex(index=observers, columns=clients).to_numpy(float)
            image = ax.imshow(np.ma.masked_invalid(values), cmap=_colors(), norm=norm, aspect="auto")
            ax.imshow(np.where(np.isinf(values), 1.0, math.nan), cmap=ListedColormap([_INFINITE]), aspect="auto")
            ax.grid(visible=False)
            ax.set_title(title)
            ax.set_xlabel("client")
            _thin(ax.set_xticks, clients)
            if max(values.shape) <= _MOST_CELLS:
                for (row, place), value in np.ndenumerate(values):
                    if not math.isnan(value):
                        ink = _ink(norm, value)
                        ax.text(place, row, _short(value), ha="center", va="center", fontsize=8, color=ink)
        _thin(axes[0].set_yticks, observers)
        axes[0].set_ylabel("observer")
        bar: Any = figure.colorbar(image, ax=axes, shrink=0.9, pad=0.015)
        bar.set_label(_epsilon(delta))
        bar.outline.set_visible(False)
        has_own = last.groupby("observer")["client"].nunique().max() < len(clients)
        handles = [Patch(color=_OWN, label="its own data")] if has_own else []
        handles += [Patch(color=_INFINITE, label="seen without noise (ε = ∞)")] if _infinite(last) else []
        if handles:
            figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def plot_by_distance(pairs: pd.DataFrame, delta: float, ax: Axes | None = None) -> Axes:
    """Plot the final epsilon against distance: median and band over pairs."""
    last = _last(pairs)
    far = np.isinf(last["distance"])
    places = last["distance"].where(~far, last["distance"][~far].max() + 1.0 if not far.all() else 0.0)
    finite = last[[*KINDS, "local"]].replace([math.inf, 0.0], math.nan)
    with style():
        ax = axes_of(ax)
        for column, title in KINDS.items():
            color, line = _LINES[column]
            groups = finite[column].groupby(places)
            middle, low, high = groups.median(), *(groups.quantile(share) for share in _QUANTILES)
            marker = "o" if column == "epsilon" else "s"
            ax.plot(middle.index, middle, line, color=color, marker=marker, ms=4.5, label=title, zorder=3)
            ax.fill_between(middle.index, low, high, color=color, alpha=0.2, linewidth=0)
        local = float(finite["local"].median())
        ax.axhline(local, color="#555555", linestyle=":", lw=1.4, label="observer of all that the client sends")
        values = finite.to_numpy(float)
        if np.nanmin(values, initial=math.inf) * 30 < np.nanmax(values, initial=0.0):
            ax.set_yscale("log")
            ax.yaxis.set_major_formatter(lambda value, position: f"{value:g}")
        else:
            ax.set_ylim(bottom=0)
        ticks = sorted(set(places))
        names = ["no path" if far[places == tick].all() else f"{tick:.0f}" for tick in ticks]
        _thin(ax.set_xticks, names, ticks)
        if len(ticks) == 1:
            ax.set_xlim(ticks[0] - 0.5, ticks[0] + 0.5)
        ax.set(xlabel="distance between client and observer (hops)", ylabel=_epsilon(delta))
        ax.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False,
            title="median over pairs; bands hold the middle 80 %", title_fontsize=9,
        )  # fmt: skip
    return ax


def plot_knowledge(pairs: pd.DataFrame, edges: pd.DataFrame, delta: float, observer: str | None = None) -> Figure:
    """Plot the graph twice, colored by one observer's knowledge.

    By default the observer is the first in the table of pairs.
    """
    import networkx as nx
    from matplotlib import pyplot as plt

    last = _last(pairs)
    observer = last["observer"].iloc[0] if observer is None else observer
    of_observer = last[last["observer"] == observer].set_index("client")
    nodes = {*map(str, last["client"]), *edges["source"], *edges["target"]}
    clients = sorted(int(node) for node in nodes if node.isdecimal())
    servers = sorted(node for node in nodes if not node.isdecimal())
    numbers = {name: number for number, name in enumerate([*map(str, clients), *servers])}
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(numbers.values())
    graph.add_edges_from((numbers[one], numbers[other]) for one, other in zip(edges.source, edges.target, strict=True))
    places, count = layout(graph, len(servers) == 1), len(numbers)
    size = max(12.0, min(260.0, 6000.0 / count))
    lines = max(0.15, min(1.0, 3.0 * count / max(1, graph.number_of_edges())))
    watching = [numbers[node] for node in observer.split("+") if node in numbers]
    with style():
        figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.4), layout="constrained")
        norm = _norm(of_observer)
        for ax, (column, title) in zip(axes, KINDS.items(), strict=True):
            nx.draw_networkx_edges(graph, places, ax=ax, edge_color="#999999", width=0.8, alpha=lines)
            values = of_observer[column]
            finite = [number for number, client in enumerate(clients) if math.isfinite(values.get(client, math.nan))]
            shades = [values[clients[number]] for number in finite]
            dots = _dots(ax, places, finite, s=size, c=shades, cmap=_colors(), norm=norm)
            bare = [number for number, client in enumerate(clients) if values.get(client) == math.inf]
            _dots(ax, places, bare, s=size, c=_INFINITE, label="seen without noise (ε = ∞)")
            named = {numbers[name] for name in servers}
            for name in servers:
                box = box_of_server(1.6 if numbers[name] in watching else 0.6)
                ax.annotate(name, places[numbers[name]], ha="center", va="center", fontsize=7, zorder=5, bbox=box)
            seeing = [number for number in watching if number not in named]
            rest = [number for number in numbers.values() if number not in {*finite, *bare, *watching, *named}]
            _dots(ax, places, rest, s=1.4 * size, c="white", marker="s")
            _dots(ax, places, seeing, s=2.2 * size, c="white", marker="*" if count > _MOST_NAMES else "h", lw=1.6)
            if count <= _MOST_NAMES:
                for name, number in numbers.items():
                    if number in named:
                        continue
                    value = values.get(clients[number], math.nan) if number < len(clients) else math.nan
                    ink = _ink(norm, value) if math.isfinite(value) else "black"
                    ax.annotate(name, places[number], ha="center", va="center", fontsize=7, zorder=5, color=ink)
            ax.set_title(title)
            ax.set_aspect("equal")
            ax.margins(0.08)
            ax.axis("off")
        bar: Any = figure.colorbar(dots, ax=axes, shrink=0.8, pad=0.015)
        client = "clients" if len(watching) > 1 else "client"
        name = {"links": "the observer of all links", "server": "the server"}.get(observer, f"{client} {observer}")
        bar.set_label(f"{_epsilon(delta)}\nfor {name}")
        bar.outline.set_visible(False)
        if _infinite(of_observer):
            figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", frameon=False)
    return figure


def plot_over_time(pairs: pd.DataFrame, delta: float) -> Figure:
    """Plot epsilon over virtual time, which needs several times: medians by distance."""
    import matplotlib
    from matplotlib import pyplot as plt

    finite = sorted(distance for distance in pairs["distance"].unique() if math.isfinite(distance))
    distances = [
        finite[at] for at in np.linspace(0, len(finite) - 1, min(len(finite), _MOST_LINES)).round().astype(int)
    ]
    scale = scale_time(float(pairs["time_s"].max()))
    shades = matplotlib.colormaps["cividis"](np.linspace(0.0, 0.85, max(2, len(distances))))
    with style():
        figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.8), sharey=True, layout="constrained")
        for ax, (column, title) in zip(axes, KINDS.items(), strict=True):
            for number, (distance, shade) in enumerate(zip(distances, shades, strict=False)):
                groups = pairs[pairs["distance"] == distance].groupby("time_s")[column]
                middle, low, high = groups.median(), *(groups.quantile(share) for share in _QUANTILES)
                times = np.append(0.0, middle.index.to_numpy() / scale.divisor)  # at first no node knows anything
                marker = "osD^vP"[number]
                ax.plot(times, np.append(0.0, middle), color=shade, marker=marker, ms=4, label=f"{distance:.0f}")
                ax.fill_between(times, np.append(0.0, low), np.append(0.0, high), color=shade, alpha=0.15, linewidth=0)
            ax.set_title(title)
            ax.set_xlabel(f"virtual time ({scale.unit})")
            ax.set_xlim(left=0)
        axes[0].set_ylim(bottom=0)
        axes[0].set_ylabel(_epsilon(delta))
        title = "hops between client and observer; medians over pairs, bands hold the middle 80 %"
        figure.legend(
            *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=_MOST_LINES, frameon=False,
            title=title, title_fontsize=9,
        )  # fmt: skip
    return figure


def _last(pairs: pd.DataFrame) -> pd.DataFrame:
    last: pd.DataFrame = pairs[pairs["time_s"] == pairs["time_s"].max()]
    return last


def _infinite(pairs: pd.DataFrame) -> bool:
    return bool(np.isinf(pairs[list(KINDS)].to_numpy(float)).any())


def _epsilon(delta: float) -> str:
    return f"ε at δ = {delta:g}".replace("e-0", "e-")


def _short(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _norm(pairs: pd.DataFrame) -> Any:
    from matplotlib.colors import Normalize

    values = pairs[list(KINDS)].to_numpy(float)
    return Normalize(0.0, float(values[np.isfinite(values)].max(initial=0.0)) or 1.0)


def _ink(norm: Any, value: float) -> str:
    return "white" if math.isfinite(value) and norm(value) > 0.5 else "black"


def _colors() -> Any:
    import matplotlib

    return matplotlib.colormaps[_CMAP].with_extremes(bad=_OWN)


def _dots(ax: Axes, places: dict[int, Any], nodes: Sequence[int], lw: float = 0.6, **look: Any) -> Any:
    x, y = ([places[node][axis] for node in nodes] for axis in (0, 1))
    return ax.scatter(x, y, edgecolors="#333333", linewidths=lw, zorder=4, **look)


def _thin(ticks: Any, names: Sequence[Any], places: Sequence[float] | None = None) -> None:
    """Set as many ticks as fit; the default places are 0, 1, ..."""
    step = max(1, math.ceil(len(names) / 20))
    ticks(list(range(len(names)) if places is None else places)[::step], [str(name) for name in names[::step]])
