"""Files by which the launching process and its ranks signal start and end."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

#: Suffixes of files beside the file of jobs: a run has begun, it is to end, all jobs are done. The last one is a FIFO
#: that `launch` holds open.
BEGUN, STOP, DONE, ALIVE = ".begun", ".stop", ".done", ".alive"


def end_with_parent(path: Path) -> None:
    """End this process when its launcher has ended; delete its temporary folder.

    `path` is the file of jobs. The FIFO beside it has no writer once the launcher has ended.
    """
    with contextlib.suppress(OSError):
        alive = os.open(path.with_suffix(ALIVE), os.O_RDONLY | os.O_NONBLOCK)  # would else wait for a writer
        os.set_blocking(alive, True)
        os.read(alive, 1)
    shutil.rmtree(path.parent, ignore_errors=True)
    os._exit(1)
