"""`simfl run`: scenarios one after the other, compared in a table and a figure."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from simfl import signals
from simfl.cli.shared import RUN_FAILED, Device, Overrides, Quiet, Results, Scenarios, Seed, say
from simfl.cli.validate import load_all
from simfl.errors import RunError, SimflError

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
    """Run scenarios one after the other, and compare them in a table and a figure.

    All of them are checked, data files included, before the first one starts. Ctrl-C keeps what was measured.
    """
    from simfl.simulation.data import shared_data

    with shared_data():
        runs, failed = _run_all(scenarios, overrides, seed, out, device, quiet)
    from simfl.cli import console

    if runs:
        console.show_runs(runs, console.output())
        _draw_comparison(runs, out)
    if runs and runs[-1].status == "interrupted":
        raise typer.Exit(signals.exit_code())
    if failed or any(run.status == "failed" for run in runs):
        raise typer.Exit(RUN_FAILED)


def _run_all(
    paths: Sequence[Path], overrides: Overrides, seed: Seed, out: Path, device: Device, quiet: bool
) -> tuple[list[Run], bool]:
    """Check all scenarios and run them; also return whether one failed.

    A single one is assembled once and run as it is. Of several only the scenarios are kept when all are checked, and
    each is assembled anew when its turn comes: their data sets need not fit side by side. The one that was loaded last
    is shared, so that scenarios with the same data load it once.
    """
    from simfl.cli.bars import progress_bar
    from simfl.simulation import runner

    single = len(paths) == 1
    ready = load_all(
        paths, overrides, seed, device, lambda setup: (setup.scenario, setup if single else setup.scenario)
    )
    warnings.filterwarnings("ignore", "privacy: epsilon is not certified")  # the table of results says so
    runs: list[Run] = []
    failed = False
    for number, (scenario, prepared) in enumerate(ready, start=1):
        label = scenario.name if single else f"{scenario.name} ({number}/{len(ready)})"
        try:
            with progress_bar(label, quiet) as progress:
                runs.append(runner.run(prepared, out=out, device=device, progress=progress))
        except SimflError as error:
            if single and not isinstance(error, RunError):
                raise
            failed = True
            say(str(error))
        if runs and runs[-1].status == "interrupted":
            break
    return runs, failed


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
