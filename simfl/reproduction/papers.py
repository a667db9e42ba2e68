"""The parts of a paper's study: experiments, numbers and claims.

A paper's module defines runs and how to read them. Only the paper's own numbers are typed in: values, intervals and
verdicts are computed from the tables of runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from simfl.comparison.comparing import Interval, interval_of
from simfl.comparison.sweeps import Group
from simfl.records import Run
from simfl.reproduction.evidence import NotMeasuredError, Part, Reading, above, measured, show

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Found = TypeVar("Found")
#: Identifies an experiment within its section: names and numbers.
Cell = tuple[Any, ...]


@dataclass(frozen=True)
class Section:
    """A part of a study, such as a table of the paper.

    `numbers` are the formats of a cell's numbers, in order; `between` joins the elements of a label.
    """

    title: str
    numbers: tuple[str, ...] = ()
    between: str = ", "

    def __str__(self) -> str:
        return self.title

    def label(self, *cell: Any) -> str:
        """Write a cell: its names as they are, its numbers as formatted."""
        numbers = iter(self.numbers)
        return self.between.join(part if isinstance(part, str) else next(numbers).format(part) for part in cell)


@dataclass(frozen=True)
class Experiment:
    """Runs that differ only in their seeds, which are `seeds` numbers from `first` on.

    `cell` is its place in the section, `base` a scenario below the folder of scenarios, and `overrides` are changes to
    it, `key.path=value`.
    """

    section: Section
    cell: Cell
    base: str
    overrides: tuple[str, ...] = ()
    seeds: int = 1
    first: int = 1

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.section.label(*self.cell)


@dataclass(frozen=True)
class Number:
    """A number of the paper with the measured one.

    The table `part` shows it at `row` and `column`, with `digits` after the point; `unit` ("%" and the like) is for the
    heading. `values` has one per seed, or a single value without randomness; it is infinite for a run that never got
    there, which the table writes as `never`. `paper` is the paper's number, None without one.
    """

    part: str
    row: str
    column: str
    values: tuple[float, ...]
    paper: float | None = None
    digits: int = 2
    unit: str = ""
    never: str = "never"

    @property
    def interval(self) -> Interval:
        """The measured mean with its 95% interval over seeds."""
        return measured(self.values)

    @property
    def difference(self) -> float:
        """Ours minus the paper's, NaN if the paper has none."""
        return math.nan if self.paper is None else self.interval.mean - self.paper


@dataclass(frozen=True)
class PaperClaim:
    """A claim of the paper, as a sentence.

    `check` yields a reading for every choice of open settings that has runs, or one for each part (see `gathered`).
    `headline` says whether people choose the paper's method for this claim. `figure` is the name of the figure that
    shows it, "" for none. `instead` is the replacement of the paper's model or data, such as "softmax regression
    instead of nine networks". `short` says how the runs fall short of the paper's budget, "" if they do not.
    """

    text: str
    check: Callable[[Runs], Iterable[Reading]]
    headline: bool = False
    figure: str = ""
    instead: str = ""
    short: str = ""


class Accuracies(dict[Any, tuple[float, ...]]):
    """Accuracies of cells; a missing cell raises an error."""

    def __missing__(self, last: Any) -> tuple[float, ...]:
        raise NotMeasuredError(f"{last}: no finished run")


class Runs:
    """The finished runs of a study, by experiment and seed."""

    def __init__(self, groups: Mapping[Experiment, dict[int, Run]]) -> None:
        self._groups = {(experiment.section, experiment.cell): runs for experiment, runs in groups.items()}
        self._found: dict[tuple[Any, ...], Any] = {}

    def once(self, function: Callable[..., Found], *place: Any) -> Found:
        """Return what a function says of these runs and a place.

        It is called once for each place.
        """
        key = (function, *place)
        if key not in self._found:
            self._found[key] = function(self, *place)
        found: Found = self._found[key]
        return found

    def has(self, section: Section, *cells: Cell) -> bool:
        """Whether runs of these cells, or of any of the section, exist."""
        return all((section, cell) in self._groups for cell in cells) if cells else bool(self.cells(section))

    def cells(self, section: Section, *start: Any) -> list[Cell]:
        """Return the cells of a section that begin with some elements, in their order."""
        return [cell for other, cell in self._groups if other == section and cell[: len(start)] == start]

    def require(self, *sections: Section) -> None:
        """Raise a `NotMeasuredError` if a section has no runs."""
        for section in sections:
            if not self.has(section):
                raise NotMeasuredError(f"{section}: no finished run")

    def of(self, section: Section, cell: Cell) -> dict[int, Run]:
        """Return the runs of a cell by seed, diverged ones included."""
        try:
            return self._groups[section, cell]
        except KeyError:
            raise NotMeasuredError(f"{section}, {section.label(*cell)}: no finished run") from None

    def first(self, section: Section, cell: Cell) -> Run:
        """Return the run of the first seed."""
        return next(iter(self.of(section, cell).values()))

    def each(self, section: Section, cell: Cell, measure: Callable[[Run], float]) -> tuple[float, ...]:
        """Return a measure of every run of a cell; NaN for one that diverged."""
        runs = self.of(section, cell).values()
        return tuple(math.nan if run.status == "diverged" else float(measure(run)) for run in runs)

    def accuracy(self, section: Section, cell: Cell) -> tuple[float, ...]:
        """Return the test accuracy at the end of every run, in percent."""
        return self.each(section, cell, accuracy)

    def accuracies(self, section: Section, *start: Any) -> Accuracies:
        """Return the accuracies of all cells one element longer than `start`."""
        cells = [cell for cell in self.cells(section, *start) if len(cell) == len(start) + 1]
        return Accuracies({cell[-1]: self.accuracy(section, cell) for cell in cells})

    def ahead(self, section: Section, one: Cell, other: Cell) -> tuple[float, ...]:
        """Return the first cell's lead in accuracy, in points, by seed."""
        return self.pairs(section, one, other, lambda first, second: accuracy(first) - accuracy(second))

    def leads(
        self,
        section: Section,
        one: Cell,
        other: Cell,
        text: str,
        bar: float = 0.0,
        least: float = 0.0,
        *,
        judge: Callable[..., Part] = above,
        measure: Callable[[Run], float] | None = None,
        digits: int = 1,
    ) -> list[Part]:
        """Return whether one cell is ahead of another by more than a bar.

        There is no part where one of them was not run. `measure` is by default the accuracy in percent. `text` may name
        {lead}, and the measures {one} and {other}.
        """
        if not self.has(section, one, other):
            return []
        of = measure or accuracy
        lead = self.pairs(section, one, other, lambda first, second: of(first) - of(second))
        ends = [show(self.each(section, cell, of), digits) for cell in (one, other)]
        said = text.format(lead=show(lead, digits, True), one=ends[0], other=ends[1])
        return [judge(lead, bar, said, *[least] * (least > 0))]

    def epsilon(self, section: Section, cell: Cell) -> tuple[float, ...]:
        """Return the certified epsilon of every run."""
        return self.each(section, cell, lambda run: run.epsilon_and_delta()[0])

    def rounds(self, section: Section, cell: Cell) -> int:
        """Return how many rounds the run of the first seed completed."""
        return int(self.first(section, cell).metrics["rounds"].iloc[-1])

    def pairs(
        self, section: Section, one: Cell, other: Cell, measure: Callable[[Run, Run], float]
    ) -> tuple[float, ...]:
        """Return a measure of two cells' runs with equal seeds, as pairs."""
        first, second = self.of(section, one), self.of(section, other)
        seeds = [seed for seed in first if seed in second]
        if not seeds:
            raise NotMeasuredError(f"{section}, {section.label(*one)} and {section.label(*other)}: no seed in common")
        return tuple(measure(first[seed], second[seed]) for seed in seeds)

    def group(self, section: Section, cell: Cell, label: str) -> Group:
        """Return the runs of a cell as a group of a figure."""
        return Group(label, {"cell": label}, dict(self.of(section, cell).items()))


@dataclass(frozen=True)
class Paper:
    """A paper and its study.

    `name` is that of its module; on the command line it has dashes. `experiments` returns the runs of the quick form
    (True) or of the full one, and `later` those that follow from finished runs, such as runs at the best of several
    step sizes; it is asked again until it adds none. `minutes` are those that the two forms took on two cores. `page`
    is the page of the documentation about it. `data` are the data sets that the study reads, and `scenarios` is the
    folder of its base scenarios; None: `scenarios/` of simfl's repository. `numbers` has, for every table, the numbers
    to compare with the paper's, and `figures`, by name, the caption and the function that draws. `shown` are the titles
    of tables that come before all others. `untested` are claims and numbers that cannot be tested here, with reasons,
    and `deviations` are differences from the paper, a sentence each. `scale` measures how long the paper's own scale
    takes on this device, and says so in lines. `part` are the options of a part of the study, and `missing` the data
    sets without which experiments were left out (`with_the_data`).
    """

    name: str
    title: str
    experiments: Callable[[bool], Sequence[Experiment]]
    claims: tuple[PaperClaim, ...]
    page: str = ""
    data: tuple[str, ...] = ()
    minutes: tuple[int, int] = (1, 1)
    numbers: tuple[Callable[[Runs], Iterable[Number]], ...] = ()
    scenarios: Path | None = None
    figures: dict[str, tuple[str, Callable[[Runs], Figure]]] = field(default_factory=dict)
    untested: tuple[tuple[str, str], ...] = ()
    deviations: tuple[str, ...] = ()
    later: Callable[[Runs, bool], Sequence[Experiment]] | None = None
    shown: tuple[str, ...] = ()
    scale: Callable[[], Iterable[str]] | None = None
    part: str = ""
    missing: tuple[str, ...] = ()

    def form(self, quick: bool) -> str:
        """Return what is run of the study, "" for all."""
        return "part" if self.part else "quick form" if quick else ""


def accuracy(run: Run) -> float:
    """Return the final test accuracy in percent, NaN for diverged runs."""
    return math.nan if run.status == "diverged" else 100 * float(run.metrics["test_accuracy"].iloc[-1])


def mean(values: Sequence[float]) -> float:
    """Return the mean, NaN where a value is."""
    return interval_of(values).mean
