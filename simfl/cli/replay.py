"""`simfl replay`: execute the tape of a finished run anew, with other arithmetic."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from simfl import signals
from simfl.cli.run import show_and_exit
from simfl.cli.shared import Device, Json, OneRun, Overrides, Quiet

Out = Annotated[Path | None, Option("--out", help="Folder of all results; by default that of the run.")]


def replay(
    folder: OneRun,
    overrides: Overrides = None,
    out: Out = None,
    device: Device = None,
    quiet: Quiet = False,
    json: Json = None,
) -> None:
    """Execute the tape of a finished run anew, with other arithmetic.

    The result is the run that simfl run makes of the changed scenario; its world is not simulated again. The run needs
    its tape (record: {tape: true}). A change that may reach the world is rejected.
    """
    from simfl.cli.bars import progress_bar
    from simfl.runs import replay as replaying
    from simfl.runs.programs import compiled_in, folder_of, results_of

    warnings.filterwarnings("ignore", "privacy: epsilon is not certified")  # also in the table of results
    root = results_of(folder) if out is None else out
    with compiled_in(folder_of(root)), progress_bar(folder.absolute().parent.name, quiet) as progress:
        run = replaying.replay(folder, overrides or (), out=root, device=device, progress=progress)
    if run.status == "interrupted":
        raise typer.Exit(signals.exit_code())
    show_and_exit([run], False, root, json)
