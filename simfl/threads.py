"""What the threads of a process share during runs, and leave as it was."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from threadpoolctl import ThreadpoolController

#: Read by libraries when they are loaded.
VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Given = TypeVar("Given")


#: Processes that share the cores of this one.
_processes = 1


def share_cores(processes: int) -> None:
    """Divide the cores of this process among some processes."""
    global _processes
    _processes = processes


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def idle_cores() -> int:
    """Return the number of cores for a run in this process, at least 1."""
    return max(1, usable_cores() // _processes)


class FirstToLast(Generic[Given]):
    """A context of the process, from the first thread that uses it to the last.

    Threads that each restored what they found would leave the state of another one.
    """

    def __init__(self, context: Callable[[], contextlib.AbstractContextManager[Given]]) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._users = 0
        self._stack = contextlib.ExitStack()
        self._given: Given

    @contextlib.contextmanager
    def used(self) -> Iterator[Given]:
        """Enter the context if no thread is in it, and leave it after the last one."""
        with self._lock:
            if not self._users:
                self._given = self._stack.enter_context(self._context())
            self._users += 1
        try:
            yield self._given
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._stack.close()


class _Mine(threading.local):
    is_limited = False


_mine = _Mine()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread for linear algebra in NumPy and SciPy.

    By default there is a thread for each core of the machine, and the last bits of products and decompositions depend
    on their number. Threads also make small matrices 10 times slower, and wait for each other if other processes use
    the cores.

    Several threads can use it at once: the limit ends with the last of them.
    """
    if _mine.is_limited:  # to look for the libraries takes milliseconds
        yield
        return
    _mine.is_limited = True
    try:
        # In some builds of OpenBLAS each thread has a limit of its own.
        with _held.used() as libraries, libraries.limit(limits=1, user_api="blas"):
            yield
    finally:
        _mine.is_limited = False


@contextlib.contextmanager
def _hold() -> Iterator[ThreadpoolController]:
    """Limit the threads of the process, and give the libraries.

    threadpoolctl lets only one thread change the limit of most builds of OpenBLAS. A thread of its own does it here: a
    user's thread could end before the others.
    """
    is_set, end, libraries = threading.Event(), threading.Event(), ThreadpoolController()

    def hold() -> None:
        with libraries.limit(limits=1, user_api="blas"), _variables():
            is_set.set()
            end.wait()

    holder = threading.Thread(target=hold, name="simfl-one-thread", daemon=True)
    holder.start()
    is_set.wait()
    try:
        yield libraries
    finally:
        end.set()
        holder.join()


@contextlib.contextmanager
def _variables() -> Iterator[None]:
    """Set the variables, for libraries that are loaded from now on."""
    before = {name: os.environ.get(name) for name in VARIABLES}
    os.environ.update(dict.fromkeys(VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


_held = FirstToLast(_hold)
