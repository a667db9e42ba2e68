"""All figures of a comparison at once, into one folder."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simfl.comparison.comparing import target_in
from simfl.comparison.sweeps import Group
from simfl.errors import DataError, ScenarioError
from simfl.plots.clients import plot_staleness, plot_time_shares, plot_topology
from simfl.plots.costs import plot_costs, plot_heatmap
from simfl.plots.curves import save_and_close
from simfl.plots.groups import plot_groups
from simfl.plots.style import ROUNDS
from simfl.records.tables import SPENT

if TYPE_CHECKING:
    import pandas as pd


def draw_study(
    groups: Sequence[Group],
    table: pd.DataFrame,
    out: Path,
    *,
    axes: Sequence[str] = ("time",),
    y: str = "test_accuracy",
    endings: Sequence[str] = ("png",),
) -> list[Path]:
    """Draw all figures that the runs allow, and return the paths.

    Curves of `y` (with an accuracy, also of the training loss) against each of `axes`, epochs and bytes; against
    epsilon if it is certified; the consensus distance; time, rounds (updates, if an algorithm has no rounds) and bytes
    to the target; a heat map for two settings of several values each; staleness; and for the first run of each group
    the clients' time and the graph.

    `groups` are from `open_groups`, and `table` is the result of `compare_groups` for them. `axes` are words of
    `X_AXES`, `y` is a column of the metrics table, and `endings` are some of png, pdf and svg.
    """
    written: list[Path] = []
    target = target_in(table)

    def keep(figure: Any, name: str) -> None:
        written.extend(save_and_close(figure, *(out / f"{name}.{ending}" for ending in endings)))

    runs = [run for group in groups for run in group.good.values()]
    certified = any(run.metrics["epsilon"].notna().any() for run in runs)
    private = [group for group in groups if any(run.metrics["epsilon"].max() > 0 for run in group.good.values())]
    for x in dict.fromkeys([*axes, "epochs", "bytes", *(["epsilon"] if certified else [])]):
        drawn = private if x == "epsilon" else groups
        if not drawn:
            continue
        keep(plot_groups(drawn, x, y, target=target, among=groups), f"{y}-by-{x}")
        if y == "test_accuracy":
            keep(plot_groups(drawn, x, "train_loss", among=groups), f"train_loss-by-{x}")
    if any((run.metrics["consensus_distance"] > 0).any() for run in runs):
        keep(plot_groups(groups, axes[0], "consensus_distance"), f"consensus_distance-by-{axes[0]}")
    steps = "rounds" if all(group.algorithm in ROUNDS for group in groups) else "updates"
    names = [name for name in ("time_s", steps, "bytes_sent", *SPENT) if f"to_target_{name}" in table]
    costs = [name for name in names if table[f"to_target_{name}"].max() > 0]
    if costs:
        keep(plot_costs(groups, costs, table=table), "costs")
    for name, part, x, y_setting in _maps(groups):
        keep(plot_heatmap(part, x, y_setting), name)
    if recorded := [
        group for group in groups if all((run.folder / "updates.parquet").exists() for run in group.runs.values())
    ]:
        keep(plot_staleness(recorded, groups), "staleness")
    for group in groups:
        run = next(iter(group.runs.values()))
        label = _file_name(group.label)[:60]
        keep(plot_time_shares(run), f"clients-{label}")
        if len(run.clients) == 1:
            continue  # no neighbors
        # The graph may be too large for the run; clients may share a model, or their own models have no accuracy.
        with contextlib.suppress(DataError, ScenarioError):
            keep(plot_topology(run), f"topology-{label}")
            keep(plot_topology(run, "accuracy"), f"topology-accuracy-{label}")
    return written


def _maps(groups: Sequence[Group]) -> list[tuple[str, list[Group], str, str]]:
    """Return name, groups and two settings of every useful heat map.

    The settings are the two with most values; there is a map for each combination of the others.
    """
    settings = groups[0].settings
    if any(group.settings.keys() != settings.keys() for group in groups):
        return []
    values = {name: list(dict.fromkeys(group.settings[name] for group in groups)) for name in settings}
    names = sorted((name for name in values if len(values[name]) > 1), key=lambda name: -len(values[name]))
    if len(names) < 2 or len(groups) < 4 or any("." in name for name in names):
        return []
    x, y = names[:2]
    parts: dict[tuple[str, ...], list[Group]] = {}
    for group in groups:
        parts.setdefault(tuple(group.settings[name] for name in names[2:]), []).append(group)
    return [(_file_name("-".join(["heatmap", *others]))[:80], part, x, y) for others, part in parts.items()]


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.+=-]+", "-", text).strip("-.")
