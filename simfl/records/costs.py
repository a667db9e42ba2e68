"""The cost of an accuracy, and the summaries of several runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simfl.records.results import Run

if TYPE_CHECKING:
    import pandas as pd

COSTS = {
    "time_s": "virtual time",
    "updates": "updates",
    "epochs": "epochs",
    "rounds": "rounds",
    "bytes_sent": "data sent by all clients",
    "epsilon": "largest ε over clients",
    "energy_j": "energy",
    "money": "money",
    "carbon_g": "CO2 equivalent",
}
"""Columns of metrics that are costs of an accuracy -> description; the last three are in runs with `costs`."""


ACCURACY = "test_accuracy"
VALIDATION = "validation_accuracy"
"""The column that takes the place of `ACCURACY` where it chooses, in runs that have it."""


def deciding(runs: Iterable[Run]) -> str:
    """Return the accuracy that decides: that of validation if all runs have it."""
    tables = [run.evaluations.names for run in runs]
    return VALIDATION if tables and all(VALIDATION in names for names in tables) else ACCURACY


def common_accuracy(runs: Sequence[Run]) -> float:
    """Return the best deciding accuracy that all runs reached, NaN if one has none."""
    best = [float(np.fmax.reduce(run.evaluations[deciding(runs)], initial=math.nan)) for run in runs]
    return math.nan if not best or any(map(math.isnan, best)) else min(best)


def time_to_accuracy(run: Run, accuracy: float, column: str = ACCURACY) -> float:
    """Return the virtual seconds until an accuracy was reached; see `cost_of`."""
    return cost_of(run, run.evaluations[column] >= accuracy, column, accuracy)["time_s"]


def cost_of(run: Run, reached: NDArray[np.bool_], name: str, value: float) -> dict[str, float]:
    """Return the cost of reaching a value of a metric, by column; NaN if it never was.

    `reached` says of each evaluation whether it has the value of the metric `name`. Costs are interpolated linearly
    between the first such evaluation and the one before. An epsilon is the upper bound at the later one.
    """
    columns = [column for column in COSTS if column in run.evaluations.names]
    if not reached.any():
        return dict.fromkeys(columns, math.nan)
    first = int(reached.argmax())
    after, before = run.evaluations.row(first), run.evaluations.row(max(first - 1, 0))
    change = float(after[name] - before[name])
    # After a NaN, the later evaluation counts.
    share = (value - float(before[name])) / change if abs(change) > 0 else 1.0
    between = {column: float(before[column] + share * (after[column] - before[column])) for column in columns}
    return {column: float(after[column]) if column == "epsilon" else between[column] for column in columns}


def summaries(runs: Sequence[Run]) -> pd.DataFrame:
    """Return several runs' summaries, `common_accuracy` and `time_to_common_s`.

    The common accuracy is the best that all runs reached: the fair point for comparing times.
    """
    import pandas as pd

    return pd.DataFrame(outcomes(runs))


def outcomes(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the rows of `summaries`."""
    if not runs:
        raise ValueError("summaries: expected at least one run, found none")
    target, column = common_accuracy(runs), deciding(runs)
    times_s = [math.nan if math.isnan(target) else time_to_accuracy(run, target, column) for run in runs]
    return [
        {**run.outcome(), "common_accuracy": target, "time_to_common_s": time_s}
        for run, time_s in zip(runs, times_s, strict=True)
    ]
