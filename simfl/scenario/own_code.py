"""Where a user's own algorithms are looked for: beside the scenario, and in the current folder."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path


def look_beside(paths: Iterable[Path]) -> None:
    """Let `kind: my_module:MyAlgorithm` find modules beside these files, and in the current folder.

    They come last on Python's path, so that no file hides an installed module.
    """
    for folder in dict.fromkeys(["", *(str(path.parent.absolute()) for path in paths)]):
        if folder not in sys.path:
            sys.path.append(folder)
