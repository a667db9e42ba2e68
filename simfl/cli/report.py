"""`simfl report`: runs or a sweep as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simfl.cli.shared import Target, say


def report(
    paths: Annotated[
        list[Path], typer.Argument(metavar="SWEEP|RUN", help="Folders of a sweep or of runs.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("report.html"),
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="LABEL", help="Hold all others against these runs.")
    ] = None,
    target: Target = None,
) -> None:
    """Write runs or a sweep as one self-contained HTML page.

    The page holds everything in itself: it can be mailed, printed, and read without a network.
    """
    from simfl.studies.reporting import report as write

    print(write(paths, out, target=target, baseline=baseline, tell=say))
