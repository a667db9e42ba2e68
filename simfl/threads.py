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
    """
    if _mine.is_limited:  # to look for the libraries takes milliseconds
        yield
        return
    _mine.is_limited = True
    try:
        with threadpool_limits(limits=1, user_api="blas"), _variables():
            yield
    finally:
        _mine.is_limited = False


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
