"""Threads of linear algebra, which runs must not depend on."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from threadpoolctl import threadpool_limits

#: Read by libraries when they are loaded.
VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


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
        with _of_process.held(), _limited():
            yield
    finally:
        _mine.is_limited = False


class _OfProcess:
    """The limit of the process, from the first thread that uses it to the last.

    threadpoolctl lets only one thread change the limit of most builds of OpenBLAS. A thread of its own does it here: a
    user's thread could end before the others.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._last_is_done = threading.Event()
        self._holder: threading.Thread | None = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            if not self._users:
                is_set, self._last_is_done = threading.Event(), threading.Event()
                self._holder = threading.Thread(target=_hold, args=(is_set, self._last_is_done), daemon=True)
                self._holder.start()
                is_set.wait()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users and self._holder is not None:
                    self._last_is_done.set()
                    self._holder.join()


_of_process = _OfProcess()


def _hold(is_set: threading.Event, end: threading.Event) -> None:
    with _limited(), _variables():
        is_set.set()
        end.wait()


def _limited() -> contextlib.AbstractContextManager[None]:
    limits: contextlib.AbstractContextManager[None] = threadpool_limits(limits=1, user_api="blas")
    return limits


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
