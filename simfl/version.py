"""The version of simfl and its commit, which manifests of runs and pages contain."""

from __future__ import annotations

import functools
from pathlib import Path

__version__ = "1.0.0"


@functools.cache
def commit(folder: Path = Path(__file__).parents[1]) -> str:
    """Return the commit of a clone; "" without one.

    It ends with "changed" if files of the package or its scenarios differ from the commit.
    """
    import subprocess

    if not (folder / ".git").exists():
        return ""

    def answer(*arguments: str) -> str:
        git = ("git", "-C", str(folder), *arguments)
        return subprocess.run(git, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        changed = answer("status", "--porcelain", "--untracked-files=no", "--", "simfl", "scenarios")
        return answer("rev-parse", "--short=10", "HEAD") + ", changed" * bool(changed)
    except (OSError, subprocess.SubprocessError):
        return ""
