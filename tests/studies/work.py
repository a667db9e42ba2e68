"""Tasks for tests about processes, which import nothing heavy."""

import importlib
import os
import random
import sys

import numpy

from simfl.studies.tasks import RunOutcome


def begin(stop, processes=1):
    """Prepare a process."""


def unit(tasks):
    """Return the number of the process for each task, or end that process if the name of a task says so."""
    if any(task.run_id == "dies" for task in tasks):
        os._exit(9)
    return [RunOutcome("done", str(os.getpid())) for _ in tasks]


def begin_with(*arguments):
    """Prepare a process, which keeps these arguments."""
    begun.append(arguments)


begun = []


def seen(*variables):
    """Return what a process sees: its parent, working directory and search path, and environment variables."""
    return os.getppid(), os.getcwd(), sys.path, [os.environ.get(name) for name in variables], begun


def called(module, name):
    """Return what a function of a module of a user's returns."""
    return getattr(importlib.import_module(module), name)()


def random_numbers():
    """Return what an unseeded user's code would draw."""
    return random.random(), numpy.random.random()


def computed():
    """Compute with JAX; return the type of a number that nobody cast, which an environment variable decides."""
    import jax.numpy as jnp

    return str((jnp.arange(3.0) + 1.0).dtype)
