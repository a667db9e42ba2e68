"""Locks on folders: one process writes, and others can tell if it is alive.

A file in the folder names the writing process, which keeps it locked (flock). The system releases the lock when the
process ends in any way, so a lock is never stale. The file also reserves disk space that is released before the last
files are written, so that a full disk loses no small table. On systems without such locks (Windows, some network disks)
nothing is locked, and the state is unknown.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_BUSY = {errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN}
_TRIES = 5  # a process that only checks holds a lock for a moment


class HeldError(Exception):
    """Another process writes into the folder; the text names it."""


@contextlib.contextmanager
def held(path: Path, room_bytes: int = 0) -> Iterator[Callable[[], None]]:
    """Hold a lock file within a block, and remove it afterwards.

    The file reserves `room_bytes` of the disk; the block gets the function that releases this space. HeldError if
    another process holds it, OSError if the file cannot be written.
    """
    file = _acquire(path)
    try:
        os.ftruncate(file, 0)
        about = f"process {os.getpid()} on {socket.gethostname()}\n".encode()
        os.write(file, about + bytes(room_bytes))
        yield lambda: _shorten(file, len(about))
    finally:
        with contextlib.suppress(OSError):  # the folder may be gone
            path.unlink(missing_ok=True)
        os.close(file)
        if os.name == "nt":  # Windows removes no open file
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def is_held(path: Path) -> bool | None:
    """Return whether a living process holds a lock file; None if that is unknown."""
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # opening a pipe would wait for a writer
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        return None if fcntl is None else not _lock(file, fcntl.LOCK_SH)
    except OSError:
        return None
    finally:
        os.close(file)


def _acquire(path: Path) -> int:
    for attempt in range(_TRIES):
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if _ours(file, path):
                return file
            with open(path, encoding="utf-8", errors="replace") as other:
                about = other.readline(200).strip() or "another process"
        except FileNotFoundError:
            about = "another process"
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        if attempt < _TRIES - 1:
            time.sleep(0.02)
    raise HeldError(about)


def _ours(file: int, path: Path) -> bool:
    """Lock an open file; check that its last holder has not removed it."""
    try:
        if fcntl is not None and not _lock(file, fcntl.LOCK_EX):
            return False
    except OSError:  # the disk does not support locks
        return True
    return os.path.samestat(os.fstat(file), os.stat(path))


def _lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    return True


def _shorten(file: int, size: int) -> None:
    with contextlib.suppress(OSError):
        os.ftruncate(file, size)
