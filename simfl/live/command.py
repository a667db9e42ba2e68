"""`simfl live`: a scenario with real processes, real models and real messages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simfl.cli.shared import (
    BAD_INPUT,
    RUN_FAILED,
    Json,
    OneScenario,
    Overrides,
    Quiet,
    Results,
    Seed,
    aside,
    say,
    write_json,
)
from simfl.errors import ScenarioError, SimflError

if TYPE_CHECKING:
    from simfl.assembly.setup import Setup
    from simfl.records import Run


def live(
    scenario: OneScenario,
    processes: Annotated[
        int | None,
        typer.Option("-n", min=1, help="Number of clients, one process each; by default that of the scenario."),
    ] = None,
    compute: Annotated[
        str,
        typer.Option(
            "--compute",
            metavar="slept|real",
            help="slept: a mini-batch takes the time that the scenario draws; real: its time on this machine.",
        ),
    ] = "slept",
    overrides: Overrides = None,
    seed: Seed = None,
    out: Results = Path("results"),
    quiet: Quiet = False,
    json: Json = None,
) -> None:
    """Run a scenario as real processes, and compare with a simulation.

    Each client is a process. The processes compute real gradients and exchange real models by MPI. One more process
    counts updates, and is the server if there is one. Afterwards the same scenario is simulated with the same number
    of clients, and a table shows both with the relative error of each quantity.

    Both runs are written in the format of simfl run. On a cluster, start this command by mpirun or srun with one
    process more than clients.
    """
    from simfl import signals
    from simfl.cli.run import show_and_exit
    from simfl.live import launching
    from simfl.records import read

    try:
        setup, written_clients = _prepare(scenario, processes, compute, overrides, seed)
        needed = setup.scenario.clients.count + 1
        text = setup.scenario.to_yaml()
        job = {"kind": "run", "scenario": text, "compute": compute, "out": str(out), "processes": needed}
        results = launching.take_part(job) if launching.started_already() else launching.launch([job], needed)
    except launching.NothingToKeepError as error:
        say(str(error))
        raise typer.Exit(signals.exit_code()) from None
    except SimflError:
        if not launching.speaks():
            raise typer.Exit(BAD_INPUT) from None
        raise
    if results is None:
        return  # another process reports
    measured = read(results[0])
    try:
        predicted = None if measured.status == "interrupted" else _predict(setup, out, quiet or aside(json))
    except SimflError:
        say(f"measured: {measured.folder}")
        raise
    if predicted is None or predicted.status == "interrupted":
        say("the run was interrupted: it is not compared with a prediction")
        show_and_exit([measured], False, out, json)
        raise typer.Exit(signals.exit_code())
    _show(predicted, measured, setup, written_clients, out, json)


def _prepare(
    scenario: Path, processes: int | None, compute: str, overrides: list[str] | None, seed: int | None
) -> tuple[Setup, int]:
    """Return the setup of both runs, and the number of clients in the scenario's file."""
    from simfl.live import launching, support
    from simfl.runs.runner import prepare
    from simfl.scenario import load

    if compute not in ("slept", "real"):
        raise ScenarioError(f"--compute: expected slept or real, found {compute!r}")
    launching.check_mpi()
    changes = [*(overrides or []), *([] if seed is None else [f"seed={seed}"])]
    written = load(scenario, changes)
    resized = written if processes is None else load(scenario, [*changes, f"clients.count={processes}"])
    needed, available = resized.clients.count + 1, launching.started_already()
    if available and available < needed:
        raise ScenarioError(
            f"{scenario}: expected {needed} processes, one for each of clients.count and one that counts updates, "
            f"found {available}"
        )
    setup = prepare(resized, "cpu")
    support.check(setup)
    return setup, written.clients.count


def _predict(setup: Setup, out: Path, silent: bool) -> Run:
    """Simulate the scenario."""
    from simfl.cli.bars import progress_bar
    from simfl.runs import runner
    from simfl.runs.programs import compiled_in, folder_of

    with compiled_in(folder_of(out)), progress_bar(f"{setup.scenario.name}, prediction", silent) as progress:
        return runner.run(setup, out=out, device="cpu", progress=progress)


def _show(predicted: Run, measured: Run, setup: Setup, written_clients: int, out: Path, json: Path | None) -> None:
    """Show both runs, or write JSON; exit with 1 if one of them failed."""
    from simfl.cli.run import figures_of, result_of
    from simfl.cli.screen import output
    from simfl.live.prediction import notes, quantities, show_prediction

    pairs, lines = quantities(predicted, measured), notes(measured, setup.scenario, written_clients)
    rows = [{**vars(pair), "error": pair.error} for pair in pairs]
    runs = {"predicted": result_of(predicted), "measured": result_of(measured)}
    write_json(json, {**runs, "quantities": rows, "notes": lines})
    figures = figures_of([predicted, measured], out)
    if not aside(json):
        show_prediction(pairs, lines, output())
        named = ("predicted", predicted.folder), ("measured", measured.folder), *(("figure", path) for path in figures)
        for name, value in named:
            print(f"{name}: {value}")
    for run in (predicted, measured):
        if run.status != "done" or not run.manifest.updates:
            say(f"{run.folder}: {run.status}, {run.manifest.updates} updates; {run.manifest.reason}")
    if any(run.status == "failed" or not run.manifest.updates for run in (predicted, measured)):
        raise typer.Exit(RUN_FAILED)
