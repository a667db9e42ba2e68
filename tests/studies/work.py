"""Tasks for tests about processes, which import nothing heavy."""

import os

from simfl.studies.tasks import RunOutcome


def begin(stop):
    """Prepare a process."""


def unit(tasks):
    """Return the number of the process for each task, or end that process if the name of a task says so."""
    if any(task.run_id == "dies" for task in tasks):
        os._exit(9)
    return [RunOutcome("done", str(os.getpid())) for _ in tasks]
