"""Targets of comparisons: a test accuracy, or a value of another metric."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from simfl.errors import ScenarioError, nearest
from simfl.records.costs import ACCURACY, VALIDATION
from simfl.records.display import measure_label, show_number, show_share

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from simfl.records.results import Run
    from simfl.records.tables import Columns

SMALLER_IS_BETTER = ("train_loss", "test_loss", "validation_loss", "consensus_distance", "gradient_norm", "mae", "rmse")
"""Metrics for which `METRIC=VALUE` means at most the value."""


class Target(float):
    """A value of a metric whose cost is compared.

    `metric` is a column of the metrics table; `at_most` says whether it has to fall to the value rather than rise.
    """

    metric: str
    at_most: bool

    def __new__(cls, value: float, metric: str = ACCURACY, at_most: bool = False) -> Self:
        """Make a target; see the class."""
        made = super().__new__(cls, value)
        made.metric, made.at_most = metric, at_most
        return made

    def reached(self, evaluations: Columns) -> NDArray[np.bool_]:
        """Return for each evaluation whether it reaches the target, bool [n]."""
        values = evaluations[self.metric]
        reached: NDArray[np.bool_] = values <= float(self) if self.at_most else values >= float(self)
        return reached

    def check(self, runs: Iterable[Run]) -> None:
        """Reject a metric that a run does not have, and name its metrics."""
        for run in runs:
            names = list(run.evaluations.names)
            if self.metric not in names:
                raise ScenarioError(
                    f"--target: {run.folder}: expected one of {', '.join(names)}, found {self.metric!r}"
                    f"{nearest(self.metric, names)}"
                )

    @property
    def short(self) -> str:
        """The target in a heading: `91.64%`, or `test loss ≤ 0.3`."""
        if self.metric == ACCURACY:
            return show_share(float(self))
        if self.metric == VALIDATION:
            return f"{show_share(float(self))} (validation)"
        return f"{measure_label(self.metric)} {'≤' if self.at_most else '≥'} {show_number(float(self))}"

    @property
    def words(self) -> str:
        """The target in a sentence, such as `a test accuracy of 91.64%`."""
        if self.metric in (ACCURACY, VALIDATION):
            return f"a {measure_label(self.metric)} of {show_share(float(self))}"
        return f"a {measure_label(self.metric)} of at {'most' if self.at_most else 'least'} {show_number(float(self))}"


def as_target(target: float | str | None, accuracy: str = ACCURACY) -> Target | None:
    """Return a target from `0.9`, "0.9", "test_loss=0.3" or "bits<=1.5".

    A number alone is one of the column `accuracy`.
    """
    if target is None or isinstance(target, Target):
        return target
    metric, sign, value = accuracy, "", str(target)
    if isinstance(target, str) and (parts := re.fullmatch(r"\s*(\w+)\s*(<=|>=|=)\s*(\S+)\s*", target)):
        metric, sign, value = parts.groups()
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if number != number or (metric == accuracy and not 0 < number <= 1):
        raise ScenarioError(
            f"--target: expected a test accuracy in (0, 1], such as 0.9 for 90%, or METRIC=VALUE, such as "
            f"test_loss=0.3, found {target if isinstance(target, str) else f'{target:g}'}"
        )
    return Target(number, metric, sign == "<=" or (sign == "=" and metric in SMALLER_IS_BETTER))
