"""`simfl run`: scenarios one after the other, compared in a table and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from simfl.cli.shared import INTERRUPTED, RUN_FAILED, Device, Overrides, Quiet, Results, Scenarios, Seed, say
from simfl.cli.validate import load_all
from simfl.errors import RunError

if TYPE_CHECKING:
    from simfl.records import Run


def run(
    scenarios: Scenarios,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Results = Path("results"),
    device: Device = None,
    quiet: Quiet = False,
) -> None:
    """Run scenarios one after the other, compare them in a table and a figure.

    All of them are checked, data files included, before the first one starts. Ctrl-C keeps what was measured.
    """
    loaded = load_all(scenarios, overrides, seed, device)
    from simfl.cli import console
    from simfl.cli.bars import progress_bar
    from simfl.simulation import runner

    runs: list[Run] = []
    failed = False
    for number, scenario in enumerate(loaded, start=1):
        label = scenario.name if len(loaded) == 1 else f"{scenario.name} ({number}/{len(loaded)})"
        try:
            with progress_bar(label, quiet) as progress:
                runs.append(runner.run(scenario, out=out, device=device, progress=progress))
        except RunError as error:
            failed = True
            say(str(error))
        if runs and runs[-1].status == "interrupted":
            break
    if runs:
        console.show_runs(runs, console.output())
        _draw_comparison(runs, out)
    if runs and runs[-1].status == "interrupted":
        raise typer.Exit(INTERRUPTED)
    if failed or any(run.status == "failed" for run in runs):
        raise typer.Exit(RUN_FAILED)


def _draw_comparison(runs: Sequence[Run], out: Path) -> None:
    """Draw accuracy (or loss, where there is none) against virtual time and print the figure's path."""
    from simfl import plots

    plots.without_a_screen()
    y = "test_loss" if all(run.metrics["test_accuracy"].isna().all() for run in runs) else "test_accuracy"
    if len(runs) == 1:
        path = runs[0].folder / f"{y}.png"
    else:
        names = [f"{run.folder.parent.name}-{run.folder.name}" for run in runs]
        shown = names[:3] + ([f"{len(names) - 3}-more"] if len(names) > 3 else [])
        path = out / "figures" / f"{'-'.join(shown)}.png"
    print(f"figure: {plots.save(plots.plot(runs, x='time', y=y), path)}")
