"""Figures of privacy: spent epsilon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simfl.comparison.claims import RELATIONS
from simfl.plots.style import PALETTE, axes_of, line_of, style
from simfl.records import Run, read
from simfl.records.display import scale_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Number of clients with their own color; more are drawn in one color.
_FEW = 8


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
