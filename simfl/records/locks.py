"""Locks on folders: one writing process at a time, and whether it lives.

A file in the folder says who writes, and is locked (flock) for as long as it does: the system lets go of the lock when
the process ends, however it ends, so that a lock is never stale. It also keeps some room on the disk, which is given
back before the last files are written: a full disk then loses no small table. Where there are no such locks (Windows,
some network disks) other processes are not kept out.
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
_TRIES = 5  # a reader holds a lock for a moment


class HeldError(Exception):
    """Another process writes into the folder; its text says which."""


@contextlib.contextmanager
def held(path: Path, room_bytes: int = 0) -> Iterator[Callable[[], None]]:
    """Hold a lock file within a block, and remove it afterwards.

    Args:
        path: of the file.
        room_bytes: so much of the disk is kept.

    Yields:
        What gives that room back.

    Raises:
        HeldError: another process holds it.
        OSError: the file cannot be written.
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


def is_held(path: Path) -> bool | None:
    """Return whether a living process holds a lock file; None if unknown."""
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
    """Lock an open file, and check that the folder still has it."""
    try:
        if fcntl is not None and not _lock(file, fcntl.LOCK_EX):
            return False
    except OSError:  # the disk knows no locks: other processes are not kept out
        return True
    return os.path.samestat(os.fstat(file), os.stat(path))


def _lock(file: int, kind: int) -> bool:
    """Try to lock; return False where another process holds a lock."""
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
