"""`simfl report`: runs or a sweep as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from simfl.cli.shared import say
from simfl.comparison.terminal import Baseline, RunsOrSweeps, Target


def report(
    paths: RunsOrSweeps,
    out: Annotated[Path, Option("--out", "-o", help="The page.")] = Path("report.html"),
    baseline: Baseline = None,
    target: Target = None,
) -> None:
    """Write runs or a sweep as one self-contained HTML page.

    The page can be mailed, printed, and read without a network.
    """
    from simfl.reports.reporting import report as write

    print(write(paths, out, target=target, baseline=baseline, tell=say))
