"""What the study of a paper consists of: settings to run, numbers to hold against the paper's, claims to judge.

A paper's module says what to run and how to read it. Nothing that it reports is typed in but the paper's own numbers:
values, intervals and verdicts are computed from the tables of runs.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simfl.errors import SimflError
from simfl.records import Run
from simfl.records.comparison import Interval, interval_of
from simfl.records.sweeps import Group

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Verdict(enum.StrEnum):
    """What became of a claim."""

    REPRODUCED = "reproduced"
    PARTLY = "partly reproduced"
    NOT_REPRODUCED = "not reproduced"
    NOT_MEASURED = "not measured"
    NOT_TESTABLE = "not testable here"


class NotMeasuredError(SimflError):
    """Runs that a number needs failed, or are not part of this form of the study."""


@dataclass(frozen=True)
class Setting:
    """Runs that differ in their seeds alone.

    Args:
        part: of the study, such as a table of the paper.
        name: tells it from the others of its part.
        base: a scenario, below the folder of scenarios.
        overrides: changes to it, `key.path=value`.
        seeds: how many, from 1 onwards.
    """

    part: str
    name: str
    base: str
    overrides: tuple[str, ...] = ()
    seeds: int = 1


@dataclass(frozen=True)
class Number:
    """A number of the paper, or one like it, beside what was measured.

    Args:
        part: the table that shows it.
        row, column: its place there.
        values: one per seed; a number that no draw has a part in has one value.
        paper: what the paper prints, None where it prints nothing.
        digits: after the point.
        unit: "%" and the like, for the heading.
    """

    part: str
    row: str
    column: str
    values: tuple[float, ...]
    paper: float | None = None
    digits: int = 2
    unit: str = ""

    @property
    def interval(self) -> Interval:
        """Mean and 95% interval over seeds."""
        return interval_of(self.values)

    @property
    def difference(self) -> float:
        """Ours minus the paper's, NaN where the paper has none."""
        return math.nan if self.paper is None else self.interval.mean - self.paper


@dataclass(frozen=True)
class Claim:
    """What the paper says.

    Args:
        text: the claim, as a sentence.
        check: looks at the runs and returns the verdict, and the measured values that it rests on.
        headline: whether people choose the paper's method for it.
        figure: the name of the figure that shows it, "" for none.
    """

    text: str
    check: Callable[[Runs], tuple[Verdict, str]]
    headline: bool = False
    figure: str = ""


@dataclass(frozen=True)
class Judged:
    """A claim, and what came of it."""

    text: str
    verdict: Verdict
    evidence: str
    headline: bool = False
    figure: str = ""


class Runs:
    """The runs of a study, by part and name of their setting."""

    def __init__(self, groups: dict[tuple[str, str], dict[int, Run]]) -> None:
        self._groups = groups

    def has(self, part: str, name: str | None = None) -> bool:
        """Whether runs of a setting, or of any setting of a part, are there."""
        return any(key[0] == part and name in (None, key[1]) for key in self._groups)

    def names(self, part: str) -> list[str]:
        """Return the settings of a part, in their order."""
        return [name for own, name in self._groups if own == part]

    def require(self, *parts: str) -> None:
        """Make sure that each of some parts has runs.

        Raises:
            NotMeasuredError: one has none.
        """
        for part in parts:
            if not self.has(part):
                raise NotMeasuredError(f"{part}: no finished run")

    def of(self, part: str, name: str) -> dict[int, Run]:
        """Return the runs of a setting by seed, diverged ones included.

        Raises:
            NotMeasuredError: there are none.
        """
        try:
            return self._groups[part, name]
        except KeyError:
            raise NotMeasuredError(f"{part}, {name}: no finished run") from None

    def first(self, part: str, name: str) -> Run:
        """Return the run of the first seed."""
        return next(iter(self.of(part, name).values()))

    def each(self, part: str, name: str, measure: Callable[[Run], float]) -> tuple[float, ...]:
        """Return a measure of every run of a setting; NaN for one that diverged."""
        return tuple(
            math.nan if run.status == "diverged" else float(measure(run)) for run in self.of(part, name).values()
        )

    def accuracy(self, part: str, name: str, scale: float = 100.0) -> tuple[float, ...]:
        """Return the test accuracy at the end of every run, in percent by default."""
        return self.each(part, name, lambda run: scale * float(run.metrics["test_accuracy"].iloc[-1]))

    def pairs(
        self, first: tuple[str, str], second: tuple[str, str], measure: Callable[[Run, Run], float]
    ) -> tuple[float, ...]:
        """Return a measure of two settings' runs of equal seeds, which share data, speeds and links."""
        one, other = self.of(*first), self.of(*second)
        seeds = [seed for seed in one if seed in other]
        if not seeds:
            raise NotMeasuredError(f"{first} and {second}: no seed that both have")
        return tuple(measure(one[seed], other[seed]) for seed in seeds)

    def group(self, part: str, name: str, label: str | None = None) -> Group:
        """Return the runs of a setting as a group of a figure."""
        return Group(label or name, {"setting": name}, self.of(part, name))


@dataclass(frozen=True)
class Paper:
    """A paper and its study.

    Args:
        name: on the command line.
        title: of the paper, with its authors.
        page: of the documentation that discusses it.
        data: data sets that the study reads.
        minutes: what the quick and the full form took on two cores.
        settings: what to run; the argument is whether in quick form.
        numbers: for every table, what to hold against the paper.
        claims: what to judge.
        figures: by name, what they show and what draws them.
        untested: claims and numbers that nothing here can test, and why.
        remarks: what differs from the paper, a sentence each.
    """

    name: str
    title: str
    page: str
    data: tuple[str, ...]
    minutes: tuple[int, int]
    settings: Callable[[bool], Sequence[Setting]]
    numbers: tuple[Callable[[Runs], Iterable[Number]], ...]
    claims: tuple[Claim, ...]
    figures: dict[str, tuple[str, Callable[[Runs], Figure]]] = field(default_factory=dict)
    untested: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()


def judge(*held: bool) -> Verdict:
    """Return the verdict on a claim of one or several parts: each of them held or did not.

    Raises:
        NotMeasuredError: there is no part.
    """
    if not held:
        raise NotMeasuredError("no run that it could be judged by")
    if all(held):
        return Verdict.REPRODUCED
    return Verdict.PARTLY if any(held) else Verdict.NOT_REPRODUCED


def mean(values: Sequence[float]) -> float:
    """Return the mean, NaN where a value is."""
    return interval_of(values).mean


def show(values: Sequence[float], digits: int = 2, sign: bool = False) -> str:
    """Write a mean with half of its 95% interval: `88.44 ± 0.21`."""
    found = interval_of(values)
    if math.isnan(found.mean):
        return "diverged" if any(math.isnan(value) for value in values) else "-"
    half = "" if math.isnan(found.low) or len(set(values)) == 1 else f" ± {found.half_width:.{digits}f}"
    return f"{found.mean:{'+' if sign else ''}.{digits}f}{half}"
