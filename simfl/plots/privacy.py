"""Figures of privacy: spent epsilon, and claims compared with accounts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from simfl.plots.style import PALETTE, axes_of, line_of, style
from simfl.records import Run, read
from simfl.records.claims import RELATIONS, VIEWS, Check
from simfl.records.display import scale_time, show_count, show_range

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Number of clients with their own color; more are drawn in one color.
_FEW = 8
_GROUPS = 5
HATCHES = ("", "///", "...", "\\\\\\", "xxx")


def plot_client_epsilon(run: Run | str | Path, ax: Axes | None = None) -> Axes:
    """Plot each client's spent epsilon over virtual time, one line per client.

    The run needs certified noise. The last point is the final epsilon, which includes all earlier ones.
    """
    opened = run if isinstance(run, Run) else read(run)
    table = opened.client_epsilon
    privacy = opened.privacy or {}
    scale = scale_time(float(table["time_s"].max()) if len(table) else 1.0)
    with style():
        ax = axes_of(ax)
        last = table.groupby("client")["epsilon"].last()
        clients = list(last.index)
        few = len(clients) <= _FEW
        for position, client in enumerate(clients):
            rows = table[table["client"] == client]
            ax.plot(
                rows["time_s"] / scale.divisor,
                rows["epsilon"].clip(upper=last[client]),
                color=PALETTE[position % len(PALETTE)] if few else PALETTE[0],
                alpha=1.0 if few else max(0.15, 8 / len(clients)),
                linestyle=line_of(position) if few else "-",
                linewidth=1.4 if few else 0.9,
                label=f"client {client}" if few else (f"each of {len(clients)} clients" if position == 0 else None),
            )
        budgets = privacy.get("epsilon")
        if budgets is not None:
            levels = sorted(set(budgets if isinstance(budgets, list) else [budgets]))
            for position, level in enumerate(levels[:4]):
                ax.axhline(level, color="#555555", linestyle=":", label="budget" if position == 0 else None)
        ax.set_xlim(left=0)
        ax.set_ylim(bottom=0)
        ax.set_xlabel(f"virtual time ({scale.unit})")
        relation = RELATIONS.get(str(privacy.get("neighbors")), RELATIONS["replace_one"])
        deltas = opened.clients["delta"].to_numpy()  # unknown for a killed run
        terms = ", ".join([*(f"δ = {delta:g}" for delta in deltas[:1]), relation])
        ax.set_ylabel(f"ε spent, before the end an upper bound\n({terms})")
        ax.legend(loc="best")
    return ax


def plot_claims(check: Check, ax: Axes | None = None) -> Axes:
    """Plot claimed and certified epsilon as bars, on a log axis if far apart."""
    findings = check.findings[:_GROUPS]
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
            hatch = HATCHES[position]
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
