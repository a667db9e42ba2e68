"""Figures from tables."""

from simfl.plots.attacks import plot_inversion, plot_membership
from simfl.plots.axes import X_AXES
from simfl.plots.clients import plot_staleness, plot_time_shares, plot_topology
from simfl.plots.curves import describe_noise, label_runs, plot, save, save_and_close, thumbnail
from simfl.plots.groups import plot_groups
from simfl.plots.network import plot_by_distance, plot_knowledge, plot_over_time, plot_pairs
from simfl.plots.privacy import plot_claims, plot_client_epsilon
from simfl.plots.style import COLORS, NAMES, color_of, name_of, style, without_a_screen
from simfl.records.display import Y_AXES, measure_label

__all__ = [
    "COLORS", "NAMES", "X_AXES", "Y_AXES", "color_of", "describe_noise", "label_runs", "measure_label", "name_of",
    "plot", "plot_by_distance", "plot_claims", "plot_client_epsilon", "plot_groups", "plot_inversion",
    "plot_knowledge", "plot_membership", "plot_over_time", "plot_pairs", "plot_staleness", "plot_time_shares",
    "plot_topology", "save", "save_and_close", "style", "thumbnail", "without_a_screen",
]  # fmt: skip
