"""What made the tables of a study: command, version, commit and machine."""

from __future__ import annotations

import math
import os
import platform
import subprocess
from pathlib import Path

from simfl.records.sweeps import Sweep
from simfl.version import __version__

ABOUT_FIELDS = ("command", "simfl", "commit", "processor", "cores", "runs", "minutes")
_SOURCE = Path(__file__).parents[2]


def about_of(command: str, swept: Sweep) -> dict[str, str]:
    """Return what made a study's tables, by `ABOUT_FIELDS`.

    `minutes` are those of all runs one after the other. `commit` is "" where simfl does not lie in a clone; with
    "changed" the clone had changes that are not committed.
    """
    minutes = math.fsum(run.wall_s for run in swept.finished) / 60
    finished = f"{len(swept.finished)} of {len(swept.runs)}"
    values = (command, __version__, commit(), processor(), str(os.cpu_count() or ""), finished, f"{minutes:.0f}")
    return dict(zip(ABOUT_FIELDS, values, strict=True))


def commit(folder: Path = _SOURCE) -> str:
    """Return the commit of a clone; "" without one, "changed" if files differ."""
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


def processor(info: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name, as far as the system tells it."""
    try:
        lines = info.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine()
