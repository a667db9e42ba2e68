"""Worker processes on this machine, which work through calls.

Imports take longer than a short run. So on Linux one process, the nursery, imports what every worker needs, and is then
forked into the workers. Each engine has a nursery of its own, which is spawned: environment variables, `sys.path`, the
working directory and the user's modules reach the workers as they are when the engine starts. The nursery must not have
threads or devices of JAX, which a forked process would lack; if it has, and on other systems, workers are spawned.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import multiprocessing
import os
import signal
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, cast

#: Signals that workers ignore.
IGNORED = (signal.SIGINT, signal.SIGTERM)


class Workers:
    """Starts workers, and waits until they have exited.

    A worker is the connection to its process, which receives what its current call returns. `EOFError` in place of that
    means that the process has exited.

    Args:
        begin: called in every worker before its first call.
        arguments: those of `begin`; objects that processes share are among them.
        imports: modules that the nursery imports.
    """

    def __init__(self, begin: Callable[..., None], arguments: Sequence[Any] = (), imports: Sequence[str] = ()) -> None:
        self._begin, self._arguments, self._imports = begin, tuple(arguments), tuple(imports)
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[Connection] = []
        self._processes: list[SpawnProcess] = []
        # This process alone has one end open, which closes however the process ends: then its workers exit.
        self._alive, self._own = self._context.Pipe(duplex=False)

    def start(self, count: int) -> list[Connection]:
        """Start workers; on Linux, several come from one nursery."""
        workers, ends = map(list, zip(*(self._context.Pipe() for _ in range(count)), strict=True))
        self._workers += workers
        for those in [ends] if sys.platform == "linux" else [[end] for end in ends]:
            arguments = those, self._alive, self._begin, self._arguments, self._imports
            process = self._context.Process(target=_serve, args=arguments)
            with _nothing_to_import(), _signals_kept():
                process.start()
            self._processes.append(process)
        for end in ends:
            end.close()
        return workers

    def send(self, worker: Connection, function: Callable[..., Any], *arguments: Any) -> None:
        """Let a worker call a function of a module; one call at a time."""
        with contextlib.suppress(OSError):  # the process has exited, which `recv` says
            worker.send((function, arguments))

    def ready(self, workers: Iterable[Connection]) -> list[Connection]:
        """Wait until some of the workers have something to receive; return these."""
        return cast(list[Connection], wait(list(workers)))

    def dismiss(self, worker: Connection) -> None:
        """Let a worker that has no call exit."""
        with contextlib.suppress(OSError):
            worker.send(None)
        worker.close()

    def end(self) -> None:
        """End all workers after their current call, and wait until they have exited."""
        for worker in [worker for worker in self._workers if not worker.closed]:
            with contextlib.suppress(EOFError, OSError):
                worker.send(None)
                while True:
                    worker.recv()
            worker.close()
        for process in self._processes:
            process.join()


@contextlib.contextmanager
def _nothing_to_import() -> Iterator[None]:
    """Keep processes that are started in this block from importing the user's script.

    A spawned process imports the script that started it. Without `if __name__ == "__main__"` the script would sweep
    again. A run does not need the script: users' own classes are imported by name.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep signals from a process started in this block until it ignores them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # when it starts, it takes the signals off the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(
    ends: Sequence[Connection],
    alive: Connection,
    begin: Callable[..., None],
    arguments: Sequence[Any],
    imports: Sequence[str],
) -> None:
    """Be the worker of one end, or the nursery of several.

    Ctrl-C at the terminal, and SIGTERM to a whole job, would kill a process that waits for work. So workers ignore
    both, and calls learn of an end in other ways. They inherit this from the nursery.
    """
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    if len(ends) == 1:
        _work(ends[0], (), alive, begin, arguments)
        return
    gc.disable()
    for name in imports:
        with contextlib.suppress(Exception):  # a run that needs it reports the error
            importlib.import_module(name)
    gc.freeze()
    gc.enable()
    context: Any = multiprocessing.get_context("fork" if _may_fork() else "spawn")
    forked = context.get_start_method() == "fork"
    left = list(ends)
    while left:
        end = left.pop()
        given = end, tuple(left) if forked else (), alive, begin, arguments
        with warnings.catch_warnings():
            # Python counts threads of libraries of linear algebra, which end and start them around a fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            context.Process(target=_work, args=given).start()
        end.close()
    alive.close()


def _may_fork() -> bool:
    """Return whether a fork of this process can do what this process can."""
    from simfl.models import lazy

    return sys.platform == "linux" and threading.active_count() == 1 and not lazy.has_devices()


def _work(
    end: Connection,
    others: Sequence[Connection],
    alive: Connection,
    begin: Callable[..., None],
    arguments: Sequence[Any],
) -> None:
    """Answer calls until there are no more."""
    for other in others:  # of workers that are forked later; a pipe ends when nobody has it open
        other.close()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()  # for code of users: forked processes would draw the same
    threading.Thread(target=_leave_with_parent, args=(alive,), name="simfl-parent", daemon=True).start()
    begin(*arguments)
    with contextlib.suppress(EOFError, OSError):
        while (call := end.recv()) is not None:
            function, given = call
            end.send(function(*given))


def _leave_with_parent(alive: Connection) -> None:
    """Exit when the parent is gone: another sweep may then write to the same folder."""
    wait([alive])
    os._exit(1)
