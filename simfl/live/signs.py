"""Files by which the launching process and its ranks signal start and end."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

#: Files beside that of the jobs: a run has begun, it is to end, all have ended; a FIFO that `launch` holds open.
BEGUN, STOP, DONE, ALIVE = ".begun", ".stop", ".done", ".alive"


def end_with_parent(path: Path) -> None:
    """End this process when its launcher has ended; delete its temporary folder.

    Args:
        path: the file of the jobs; the FIFO beside it has no writer once that process is gone.
    """
    with contextlib.suppress(OSError):
        alive = os.open(path.with_suffix(ALIVE), os.O_RDONLY | os.O_NONBLOCK)  # or it would wait for a writer
        os.set_blocking(alive, True)
        os.read(alive, 1)
    shutil.rmtree(path.parent, ignore_errors=True)
    os._exit(1)
