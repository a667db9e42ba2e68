"""Give memory that a run has freed back to the system."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from time import monotonic

#: Returning memory takes tens of milliseconds, and at most 1/REST of a process's time.
REST = 20.0
_next_s = 0.0


def give_back() -> None:
    """Return free memory to the system, at most once in a while.

    glibc's malloc keeps freed pieces, hundreds of megabytes after a hundred runs. Other allocators are left alone.
    """
    global _next_s
    trim, began = _trim(), monotonic()
    if trim is not None and began >= _next_s:
        trim(0)
        ended = monotonic()
        _next_s = ended + REST * (ended - began)


@functools.cache
def _trim() -> Callable[[int], int] | None:
    try:
        malloc_trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library; Windows has no CDLL(None)
        return None
    return malloc_trim
