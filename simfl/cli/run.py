"""`simfl run`: scenarios one after the other, compared in a table and a figure."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from simfl import plugins, signals
from simfl.cli import shared
from simfl.cli.shared import RUN_FAILED, Json, Overrides, Seed, aside, say, write_json
from simfl.cli.validate import load_all
from simfl.errors import RunError, SimflError, missing
from simfl.runs import CHECKPOINT_EVERY

if TYPE_CHECKING:
    from simfl.assembly.setup import Setup
    from simfl.records import Run
    from simfl.scenario import Scenario


def run(
    scenarios: shared.Scenarios,
    overrides: Overrides = None,
    seed: Seed = None,
    out: shared.Results = Path("results"),
    device: shared.Device = None,
    checkpoint_every: shared.CheckpointEvery = CHECKPOINT_EVERY,
    quiet: shared.Quiet = False,
    json: Json = None,
) -> None:
    """Run scenarios one after the other, and compare them in a table and a figure.

    All scenarios and their data files are checked before the first run starts. Ctrl-C keeps the measurements, and
    simfl resume continues. Compiled programs are kept below the results, in .compiled, for the next run.
    """
    from simfl.assembly.data import shared_data
    from simfl.runs.programs import compiled_in, folder_of

    with shared_data(), compiled_in(folder_of(out)):
        runs, failed = _run_all(scenarios, overrides, seed, out, device, checkpoint_every, quiet)
    show_and_exit(runs, failed, out, json)


def show_and_exit(runs: Sequence[Run], failed: bool, out: Path, json: Path | None = None) -> None:
    """Show runs in a table and a figure, or as JSON, and exit with their code."""
    from simfl.runs.intervals import FILE

    write_json(json, [result_of(run) for run in runs])
    if runs:
        figures = figures_of(runs, out)
        if not aside(json):
            from simfl.cli import console

            console.show_runs(runs, console.output())
            for figure in figures:
                print(f"figure: {figure}")
        if (runs[-1].folder / FILE).exists():
            say(f"to continue: simfl resume {runs[-1].folder}")
    if runs and runs[-1].status == "interrupted":
        raise typer.Exit(signals.exit_code())
    idle = [run for run in runs if run.status == "done" and not run.manifest.updates]
    for run in idle:
        say(f"{run.folder}: the run has no update; {run.manifest.reason}")
    if failed or idle or any(run.status == "failed" for run in runs):
        raise typer.Exit(RUN_FAILED)


def _run_all(
    paths: Sequence[Path],
    overrides: Overrides,
    seed: Seed,
    out: Path,
    device: shared.Device,
    checkpoint_every: str,
    quiet: bool,
) -> tuple[list[Run], bool]:
    """Check all scenarios and run them; also return whether one failed.

    A single scenario is assembled once. Of several only the scenarios are kept after the check, and each is assembled
    again for its run: their data sets need not fit into memory together. The data set that was loaded last is shared.
    """
    from simfl.cli.bars import progress_bar
    from simfl.runs import runner
    from simfl.runs.intervals import parse_interval

    parse_interval(checkpoint_every)  # raises before data are loaded
    single = len(paths) == 1

    def kept(setup: Setup) -> tuple[Scenario, Setup | Scenario]:
        if single:  # its run looks at the memory before anything runs
            return setup.scenario, setup
        from simfl.assembly.memory import refuse_too_large
        from simfl.tape.executor import choose_device

        if choose_device(device).platform == "cpu":
            refuse_too_large(setup)
        return setup.scenario, setup.scenario

    ready = load_all(paths, overrides, seed, device, kept)
    warnings.filterwarnings("ignore", "privacy: epsilon is not certified")  # also in the table of results
    runs: list[Run] = []
    failed = False
    for number, (scenario, prepared) in enumerate(ready, start=1):
        label = scenario.name if single else f"{scenario.name} ({number}/{len(ready)})"
        try:
            with progress_bar(label, quiet) as progress:
                runs.append(
                    runner.run(prepared, out=out, device=device, progress=progress, checkpoint_every=checkpoint_every)
                )
        except SimflError as error:
            if single and not isinstance(error, RunError):
                raise
            failed = True
            say(str(error))
        if runs and runs[-1].status == "interrupted":
            break
    return runs, failed


def figures_of(runs: Sequence[Run], out: Path) -> list[Path]:
    """Return the figures that plugins draw of runs; without their library say so."""
    try:
        return [plugins.load("figures", name)(runs, out) for name in plugins.names("figures")]
    except ModuleNotFoundError as error:
        if (line := missing(error)) is None:
            raise
        say(f"no figure: {line}")
        return []


def result_of(run: Run) -> dict[str, Any]:
    """Return a run for `--json`: summary, end, folder and digests."""
    manifest, further = run.manifest, run.manifest.extra
    row = run.outcome()
    if len(run.evaluations):
        last = run.evaluations.row(-1)
        row |= {name: last[name] for name in run.measures}
    about = {"reason": manifest.reason, "privacy": further.get("privacy"), "warnings": further.get("warnings", [])}
    return {**row, **about, "folder": str(run.folder), "digest": manifest.digest, "models": further.get("models", {})}
