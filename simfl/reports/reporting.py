"""Reports with privacy claims compared with accounts."""

from __future__ import annotations

import pkgutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from simfl import plugins
from simfl.comparison.comparing import folders_of
from simfl.comparison.sweeps import Sweep
from simfl.records import Run
from simfl.reports.page import write_report


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
        baseline: label of the runs to compare with; by default that of the study.
        tell: called with a line for every run that is left out or incomplete.

    Raises:
        DataError: a folder is neither a run nor a sweep, or has no finished run.
        ScenarioError: the baseline is unknown, or the file cannot be written.
    """
    # By name: this room does without accounts where they are not installed.
    check = pkgutil.resolve_name("simfl.accounts.check:check_run") if "accounts" in plugins.plugins() else None
    return write_report(folders_of(runs), out, target=target, baseline=baseline, check=check, tell=tell)
