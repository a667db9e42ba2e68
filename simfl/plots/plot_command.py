"""`simfl plot`: figures of existing runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from simfl.cli.shared import say
from simfl.comparison.terminal import RunsOrSweeps
from simfl.errors import ScenarioError

if TYPE_CHECKING:
    from simfl.records import Run


def plot(
    runs: RunsOrSweeps,
    x: Annotated[
        str,
        Option(
            metavar="time|updates|epochs|rounds|bytes|epsilon", help="The horizontal axis; or energy, money, carbon."
        ),
    ] = "time",
    y: Annotated[str, Option(help="The vertical axis: a column of the metrics table.")] = "test_accuracy",
    save: Annotated[Path | None, Option(help="The figure: .png, .pdf or .svg; by default <y>-by-<x>.png here.")] = None,
    clients: Annotated[
        bool, Option("--clients", help="With --y epsilon and one run: each client's epsilon over time.")
    ] = False,
) -> None:
    """Plot existing runs, one curve each; of a sweep, one for each group."""
    from simfl import plots
    from simfl.comparison.sweeps import is_sweep, open_groups, open_runs

    plots.without_a_screen()
    if clients:
        if y != "epsilon" or x != "time" or len(runs) != 1:
            expected = "expected one run with --y epsilon against time"
            raise ScenarioError(f"--clients: {expected}; draw one run after the other")
        print(plots.save(plots.plot_client_epsilon(runs[0]), save or Path("client-epsilon-by-time.png")))
        return
    if any(map(is_sweep, runs)):
        ax = plots.plot_groups(open_groups(runs, say)[0], x, y)
    else:
        ax = plots.plot(open_runs(runs, say), x=x, y=y)
    print(plots.save(ax, save or Path(f"{y}-by-{x}.png")))


def draw_runs(runs: Sequence[Run], out: Path) -> Path:
    """Plot accuracy (or loss) against virtual time and return the path."""
    from simfl import plots

    plots.without_a_screen()
    y = "test_loss" if not any(run.has_accuracy for run in runs) else "test_accuracy"
    if len(runs) == 1:
        path = runs[0].folder / f"{y}.png"
    else:
        names = [f"{run.folder.parent.name}-{run.folder.name}" for run in runs]
        shown = names[:3] + ([f"{len(names) - 3}-more"] if len(names) > 3 else [])
        path = out / "figures" / f"{'-'.join(shown)}.png"
    return plots.save(plots.plot(runs, x="time", y=y), path)
