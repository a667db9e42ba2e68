"""`simfl resume`: continue a killed or interrupted run from its last checkpoint."""

from __future__ import annotations

import warnings

from simfl.cli.run import show_and_exit
from simfl.cli.shared import CheckpointEvery, OneRun, Quiet
from simfl.runs import CHECKPOINT_EVERY


def resume(folder: OneRun, checkpoint_every: CheckpointEvery = CHECKPOINT_EVERY, quiet: Quiet = False) -> None:
    """Continue a killed or interrupted run from its last checkpoint.

    Its tables become those of an uninterrupted run. Its world is replayed up to the checkpoint, without arithmetic.
    This needs the same data and own modules as simfl run, and imports the modules.
    """
    from simfl.cli.bars import progress_bar
    from simfl.runs import runner
    from simfl.runs.programs import compiled_in, folder_of, results_of

    warnings.filterwarnings("ignore", "privacy: epsilon is not certified")  # also in the table of results
    kept = compiled_in(folder_of(results_of(folder)))
    with kept, progress_bar(folder.absolute().parent.name, quiet) as progress:
        run = runner.resume(folder, progress=progress, checkpoint_every=checkpoint_every)
    show_and_exit([run], False, folder.parent)
