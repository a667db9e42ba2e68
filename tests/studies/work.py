"""What processes do in tests about processes: nothing that has to be imported for long."""

import os

from simfl.studies.tasks import RunOutcome


def begin(stop):
    """Prepare a process."""


def task(task):
    """Say in which process it was done, or end that process where the task is called so."""
    if task.run_id == "dies":
        os._exit(9)
    return RunOutcome("done", str(os.getpid()))
