"""Reports with privacy claims compared with accounts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from simfl.accounts.check import check_run
from simfl.records import Run, folders_of
from simfl.records.sweeps import Sweep
from simfl.reports import write_report


def report(
    runs: Run | Sweep | str | Path | Sequence[Run | Sweep | str | Path],
    out: str | Path = "report.html",
    *,
    target: float | str | None = None,
    baseline: str | None = None,
    tell: Callable[[str], None] = warnings.warn,
) -> Path:
    """Write a self-contained report about runs or a sweep; return its path.

    Args:
        runs: a run, a sweep, or several of them, or their folders.
        out: the HTML file.
        target: the test accuracy at which times are compared, or another metric as in "test_loss=0.3"; by default the
            accuracy of the study, or the best that every run reached.
        baseline: label of what the others are held against; by default that of the study.
        tell: told in a line of every run that is left out, or is not whole.

    Raises:
        DataError: a folder that is neither a run nor a sweep, or has no finished run.
        ScenarioError: no such baseline, or a place that cannot be written to.
    """
    return write_report(folders_of(runs), out, target=target, baseline=baseline, check=check_run, tell=tell)
