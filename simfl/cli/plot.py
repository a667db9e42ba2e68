"""`simfl plot`: figures of runs that were made before."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simfl.cli.shared import say
from simfl.errors import ScenarioError


def plot(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN|SWEEP", help="Folders of runs, or of sweeps.", show_default=False)
    ],
    x: Annotated[
        str, typer.Option("--x", metavar="time|updates|epochs|rounds|bytes|epsilon", help="What to draw against.")
    ] = "time",
    y: Annotated[str, typer.Option("--y", help="A column of the metrics table.")] = "test_accuracy",
    save: Annotated[
        Path | None, typer.Option("--save", help="The figure: .png, .pdf or .svg; by default <y>-by-<x>.png here.")
    ] = None,
    clients: Annotated[
        bool, typer.Option("--clients", help="With --y epsilon and one run: what each client spent over time.")
    ] = False,
) -> None:
    """Plot existing runs, one curve each; of a sweep, one for each group."""
    from simfl import plots
    from simfl.records.sweeps import open_runs

    plots.without_a_screen()
    if clients:
        if y != "epsilon" or x != "time" or len(runs) != 1:
            raise ScenarioError(
                "--clients: expected one run with --y epsilon against time; draw one run after the other"
            )
        print(plots.save(plots.plot_client_epsilon(runs[0]), save or Path("client-epsilon-by-time.png")))
        return
    print(plots.save(plots.plot(open_runs(runs, say), x=x, y=y), save or Path(f"{y}-by-{x}.png")))
