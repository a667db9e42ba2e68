"""`simfl play`: a run, or two side by side, as a page that plays them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from simfl.cli.shared import say

_Runs = Annotated[list[Path], Argument(metavar="RUN [RUN]", help="The folder of a run; two play side by side.")]


def play(
    runs: _Runs,
    out: Annotated[Path, Option("--out", "-o", help="The page.")] = Path("play.html"),
) -> None:
    """Write one self-contained HTML page that plays a run, or two side by side.

    The page shows what the run recorded: what clients do and messages in flight need record: {play: true} in the
    scenario.
    """
    from simfl.records import read
    from simfl.records.results import UNFINISHED
    from simfl.reports.player import play as write

    opened = [read(run) for run in runs]
    for run in opened:
        if run.status in UNFINISHED:
            say(f"{run.folder}: {run.status}: the page ends with the last rows that were written")
    print(write(opened, out))
