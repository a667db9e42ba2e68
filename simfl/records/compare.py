"""Several runs side by side: the same measures, and the time each needed for what all of them reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from simfl.records.results import Run

if TYPE_CHECKING:
    import pandas as pd


def common_accuracy(runs: Sequence[Run]) -> float:
    """Return the best test accuracy that every one of the runs reached, NaN where one has none."""
    best = [run.metrics["test_accuracy"].max() for run in runs]
    return math.nan if not best or any(math.isnan(value) for value in best) else float(min(best))


def time_to_accuracy(run: Run, accuracy: float) -> float:
    """Return the virtual seconds until an evaluation first showed at least this test accuracy, NaN if none did."""
    reached = run.metrics["test_accuracy"] >= accuracy
    return float(run.metrics["time_s"][reached].iloc[0]) if reached.any() else math.nan


def compare(runs: Sequence[Run]) -> pd.DataFrame:
    """Return the summaries of several runs, with the columns `common_accuracy` and `time_to_common_s` added.

    With several runs, the common accuracy is the best that all reached: the fair point to compare their times at.
    """
    import pandas as pd

    if not runs:
        raise ValueError("compare: expected at least one run, got none")
    table = pd.concat([run.summary() for run in runs], ignore_index=True)
    target = common_accuracy(runs)
    table["common_accuracy"] = target
    table["time_to_common_s"] = [math.nan if math.isnan(target) else time_to_accuracy(run, target) for run in runs]
    return table
