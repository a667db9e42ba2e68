"""Settings of runs that need no JAX: steps per call, and the interpreter.

Algorithms and `simfl validate` use them without importing the executor.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

from simfl.threads import FirstToLast

#: Steps per call of the window program; a longer window takes several calls. A call draws the batches of
#: all its steps, also for a short window: a few microseconds a step.
STEPS = 64
#: Largest number of bytes of noise, and of examples, that are drawn before the steps of a call.
MOST_DRAWN_BYTES = 2**26
#: Examples of fewer bytes than this are in the cache, where they are read as fast as copies of them.
CACHE_BYTES = 2**22

#: Python's default is 5 ms, as long as a window takes.
SWITCH_INTERVAL_S = 1e-4
#: The garbage collector runs after so many objects, or so many for each client: it visits all that were made since,
#: which takes longer than the updates that made them if they do not fit into a cache.
OBJECTS, OBJECTS_OF_CLIENT = 100_000, 32


@contextlib.contextmanager
def tuned_interpreter(clients: int = 0) -> Iterator[None]:
    """Set the thread switching interval and the garbage collector for a run.

    The executor's thread gets the interpreter soon after its kernel ends. The garbage collector skips objects that
    existed before the run: the hot path does not need it, because references are counted. If other code has already
    frozen objects, they stay frozen: a part of them cannot be unfrozen. Of runs in several threads, the last one
    restores what was set before the first.
    """
    with _tuned.used():
        most, *older = gc.get_threshold()
        gc.set_threshold(max(most, OBJECTS_OF_CLIENT * clients), *older)
        yield


@contextlib.contextmanager
def _tune() -> Iterator[None]:
    interval, threshold, frozen = sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count()
    if not frozen:
        gc.freeze()
    gc.set_threshold(OBJECTS, 50, 1_000)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)
        if not frozen:
            gc.unfreeze()


_tuned = FirstToLast(_tune)
