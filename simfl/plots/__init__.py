"""Figures and comparisons from tables."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from simfl.plots.style import COLORS, NAMES, color_of, name_of, style, without_a_screen
from simfl.plugins import Plugin

if TYPE_CHECKING:
    from simfl.plots.axes import X_AXES
    from simfl.plots.clients import plot_staleness, plot_time_shares, plot_topology
    from simfl.plots.curves import label_runs, plot, save, save_and_close, thumbnail
    from simfl.plots.groups import plot_groups
    from simfl.plots.privacy import plot_client_epsilon
    from simfl.records.display import Y_AXES, measure_label
    from simfl.records.results import describe_noise

__all__ = [
    "COLORS", "NAMES", "PLUGIN", "X_AXES", "Y_AXES", "color_of", "describe_noise", "label_runs", "measure_label",
    "name_of", "plot", "plot_client_epsilon", "plot_groups", "plot_staleness", "plot_time_shares", "plot_topology",
    "save", "save_and_close", "style", "thumbnail", "without_a_screen",
]  # fmt: skip

PLUGIN = Plugin(
    summary="figures and comparisons of runs",
    commands={
        "plot": "simfl.plots.plot_command:plot",
        "compare": "simfl.plots.compare_command:compare",
    },
    figures={"runs": "simfl.plots.plot_command:draw_runs"},
)

_HOMES = {
    "simfl.plots.axes": ("X_AXES",),
    "simfl.plots.clients": ("plot_staleness", "plot_time_shares", "plot_topology"),
    "simfl.plots.curves": ("label_runs", "plot", "save", "save_and_close", "thumbnail"),
    "simfl.plots.groups": ("plot_groups",),
    "simfl.plots.privacy": ("plot_client_epsilon",),
    "simfl.records.display": ("Y_AXES", "measure_label"),
    "simfl.records.results": ("describe_noise",),
}


def __getattr__(name: str) -> Any:
    """Import on first use: a figure of curves needs no pandas."""
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
