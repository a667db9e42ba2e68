"""Tasks for tests about processes, which import nothing heavy."""

import os

from simfl.studies.tasks import RunOutcome


def begin(stop):
    """Prepare a process."""


def task(task):
    """Return the number of the process, or end that process if the name of the task says so."""
    if task.run_id == "dies":
        os._exit(9)
    return RunOutcome("done", str(os.getpid()))
