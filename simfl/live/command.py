"""`simfl live`: a scenario with real processes, real models and real messages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simfl.cli.shared import BAD_INPUT, Json, Overrides, Quiet, Results, Seed, aside, say
from simfl.errors import ScenarioError, SimflError


def live(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario file (YAML).", show_default=False)],
    processes: Annotated[
        int | None,
        typer.Option("-n", min=1, help="Clients, each a process; by default those of the scenario."),
    ] = None,
    compute: Annotated[
        str,
        typer.Option(
            "--compute", metavar="slept|real", help="Computing takes what the scenario draws, or what it takes here."
        ),
    ] = "slept",
    overrides: Overrides = None,
    seed: Seed = None,
    out: Results = Path("results"),
    quiet: Quiet = False,
    json: Json = None,
) -> None:
    """Run a scenario with a process for each client, which compute real gradients and exchange real models by MPI.

    It writes the tables that simfl run does, so that simfl compare and simfl plot show both beside each other. A
    process more counts updates, and is the server where there is one. On a cluster: mpirun or srun with one process
    more than clients, and this command.
    """
    from simfl import signals
    from simfl.cli.run import show_and_exit
    from simfl.live import launching
    from simfl.records import read

    try:
        folder = _run(scenario, processes, compute, overrides, seed, out, quiet or aside(json))
    except launching.NothingToKeepError as error:
        say(str(error))
        raise typer.Exit(signals.exit_code()) from None
    except SimflError:
        if not launching.speaks():
            raise typer.Exit(BAD_INPUT) from None
        raise
    if folder is not None:
        show_and_exit([read(folder)], False, out, json)


def _run(
    scenario: Path,
    processes: int | None,
    compute: str,
    overrides: list[str] | None,
    seed: int | None,
    out: Path,
    quiet: bool,
) -> str | None:
    """Return the folder that was written, if it is for this process to say so."""
    from simfl.live import launching, support
    from simfl.runs.runner import prepare
    from simfl.scenario import load

    if compute not in ("slept", "real"):
        raise ScenarioError(f"--compute: expected slept or real, found {compute!r}")
    launching.check_mpi()
    changes = [*(overrides or []), *([] if seed is None else [f"seed={seed}"])]
    changes += [] if processes is None else [f"clients.count={processes}"]
    chosen = load(scenario, changes)
    needed, there = chosen.clients.count + 1, launching.started_already()
    if there and there < needed:
        raise ScenarioError(
            f"{scenario}: expected {needed} processes, one for each of clients.count and one that counts, found {there}"
        )
    job = {"kind": "run", "scenario": chosen.to_yaml(), "compute": compute, "out": str(out), "processes": needed}
    setup = prepare(chosen, "cpu")
    support.check(setup)
    if not quiet and launching.speaks():
        for line in support.left_out(setup):
            say(line)
    found = launching.take_part(job) if there else launching.launch([job], needed)
    return None if found is None else str(found[0])
