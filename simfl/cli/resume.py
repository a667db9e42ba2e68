"""`simfl resume`: a run that was killed or interrupted, from its last checkpoint."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from simfl.cli.run import show_and_exit
from simfl.cli.shared import CheckpointEvery, Quiet
from simfl.runs import CHECKPOINT_EVERY


def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.", show_default=False)],
    checkpoint_every: CheckpointEvery = CHECKPOINT_EVERY,
    quiet: Quiet = False,
) -> None:
    """Go on with a run that was killed or interrupted, from its last checkpoint.

    Its tables become those of a run that was never interrupted. Its world is played again up to the checkpoint, without
    arithmetic. It needs the data and the modules of your own that simfl run needed, and imports the latter.
    """
    from simfl.cli.bars import progress_bar
    from simfl.runs import runner
    from simfl.runs.programs import compiled_in, folder_of

    warnings.filterwarnings("ignore", "privacy: epsilon is not certified")  # the table of results says so
    kept = compiled_in(folder_of(folder.absolute().parent.parent))
    with kept, progress_bar(folder.absolute().parent.name, quiet) as progress:
        run = runner.resume(folder, progress=progress, checkpoint_every=checkpoint_every)
    show_and_exit([run], False, folder.parent)
