"""Evidence for claims: results under every reading, and the verdict.

A paper leaves settings open. A claim is judged under each defensible choice of them, a *reading*, so that no verdict
depends on an unstated choice. A reading uses at least `SEEDS` seeds and their interval. If these do not decide, the
reading is undecided.
"""

from __future__ import annotations

import bisect
import enum
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from simfl.comparison.comparing import Interval, interval_of, median_of
from simfl.comparison.intervals import students_t
from simfl.errors import SimflError
from simfl.records.display import show_fixed

#: Fewer seeds decide nothing.
SEEDS = 5
#: Where more seeds than these would be needed, the claim is said to be beyond them.
MOST_SEEDS = 200
#: How likely the number of seeds that a claim asks for decides it, if mean and spread are as measured.
POWER = 0.9
QUANTILES = (np.arange(200) + 0.5) / 200
Halves = NDArray[np.float64]
"""Halves of intervals at `QUANTILES`, or ends that follow from them."""

#: The share of the deciding readings that must hold for "mostly", and the largest share of "not reproduced".
MOST, FEW = 2 / 3, 1 / 10


class Verdict(enum.StrEnum):
    """The verdict on a claim, by the rule of `verdict_of`."""

    REPRODUCED = "reproduced"
    MOSTLY = "mostly"
    MIXED = "mixed"
    NOT_REPRODUCED = "not reproduced"
    UNDECIDABLE = "not decidable here"
    """The seeds or the budget do not decide, runs are missing, or nothing here can test the claim."""
    NOT_RUN = "not run in this form"
    """The quick form, or the part of the study, has no runs for the claim."""


#: The mark of a reading that no other one is nearer to the paper than.
NEAREST = "nearest to the paper"


class NotMeasuredError(SimflError):
    """Runs that a number needs failed, or are not part of this form of the study."""


@dataclass(frozen=True)
class Part:
    """One part of a claim; `held` is None if the seeds do not decide.

    `seeds` is how many would decide it then with probability `POWER`, NaN if that is unknown.
    """

    held: bool | None
    text: str
    seeds: float = math.nan


@dataclass(frozen=True)
class Reading:
    """A claim under one choice of the settings that the paper leaves open.

    `choices` maps an open setting to its value. All `parts` must hold: a claim "at every noise level" has a part for
    each level. `afterwards` says whether the choice was made after seeing how the result compares with the paper's, and
    `own` whether no other reading is nearer to the paper's setting, as far as its text says.
    """

    choices: Mapping[str, str]
    parts: Sequence[Part]
    afterwards: bool = False
    own: bool = field(default=False, kw_only=True)

    @property
    def held(self) -> bool | None:
        """Whether the claim holds; None if the seeds do not decide."""
        return all_of(part.held for part in self.parts)

    @property
    def label(self) -> str:
        """Its name in tables."""
        words = ", ".join(_choice(key, value) for key, value in self.choices.items()) or "the only one"
        marks = [NEAREST] * (self.own and bool(self.choices))
        marks += ["chosen after the result was seen"] * self.afterwards
        return words + (f" ({'; '.join(marks)})" if marks else "")

    @property
    def evidence(self) -> str:
        """The measurements; failed or undecided parts are named."""
        remarks = {True: "", False: " (does not hold)", None: " (not decided)"}
        mixed = len({part.held for part in self.parts}) > 1
        return "; ".join(part.text + remarks[part.held] * mixed for part in self.parts)


def gathered(readings: Iterable[Reading]) -> tuple[Reading, ...]:
    """Return the readings that have parts; those of equal choices are one.

    A check yields a reading for each part, or for several.
    """
    whole: dict[tuple[tuple[str, str], ...], Reading] = {}
    for one in readings:
        known = whole.setdefault(tuple(one.choices.items()), replace(one, parts=()))
        whole[tuple(one.choices.items())] = replace(known, parts=(*known.parts, *one.parts))
    return tuple(one for one in whole.values() if one.parts)


def all_of(held: Iterable[bool | None]) -> bool | None:
    """Return False if one does not hold, else None if one is undecided, else True."""
    results = list(held)
    if not results:
        raise NotMeasuredError("no run that it could be judged by")
    return False if False in results else None if None in results else True


def exactly(held: bool, text: str) -> Part:
    """Return a result without randomness: counts, certified numbers, formulas."""
    return Part(bool(held), text)


def above(values: Sequence[float], bar: float, text: str, least: float = 0.0) -> Part:
    """Return whether the measured values lie above a bar.

    There is a value per seed; with NaN among them (runs that diverged) nothing holds, unless `typical` replaced it. It
    is held if the whole interval is above `bar`. Leads smaller than `least` do not count: it is not held if the whole
    interval is below `bar + least`. Without `least`, no number of seeds decides where there is no difference. `text`
    has the values in words.
    """
    interval = decisive(values)
    held = _decide(interval, interval.low > bar, interval.high < bar + least)
    return Part(held, text, _enough(values, interval, held, lambda half: [(bar + least - half, bar + half)]))


def below(values: Sequence[float], bar: float, text: str, least: float = 0.0) -> Part:
    """Return whether the measured values lie below a bar; see `above`."""
    return above([-value for value in values], -bar, text, least)


def within(values: Sequence[float], bar: float, text: str) -> Part:
    """Return whether differences are at most `bar` either way."""
    interval = decisive(values)
    inside = -bar <= interval.low and interval.high <= bar
    held = _decide(interval, inside, interval.low > bar or interval.high < -bar)

    def between(half: Halves) -> list[tuple[Halves, Halves]]:
        inner = np.maximum(bar - half, 0.0)
        return [(inner, bar + half), (-bar - half, -inner)]

    return Part(held, text, _enough(values, interval, held, between))


def show_ratio(logs: Sequence[float], digits: int = 2) -> str:
    """Write ratios by the geometric mean with its interval: `2.31 (2.10 to 2.55)`.

    `logs` are their natural logarithms. It is "" where one is not finite.
    """
    if not logs or not all(map(math.isfinite, logs)):
        return ""
    interval = interval_of(logs)
    ends = [f"{math.exp(value):,.{digits}f}" for value in (interval.mean, interval.low, interval.high)]
    return ends[0] if len(set(logs)) == 1 or math.isnan(interval.low) else f"{ends[0]} ({ends[1]} to {ends[2]})"


def log_ratio(one: float, other: float) -> float:
    """Return ln(one / other) of two costs, one of which may be infinite.

    It is NaN if both are: runs of which neither gets there decide nothing.
    """
    return math.log(one) - math.log(other) if min(one, other) < math.inf else math.nan


def decisive(values: Sequence[float]) -> Interval:
    """Return the interval that decides a reading, NaN with too few seeds.

    It is that of the mean, or of the median if a value is infinite: diverged runs are entered as infinite.
    """
    if len(values) < SEEDS:
        return Interval(math.nan, math.nan, math.nan)
    return median_of(values) if any(map(math.isinf, values)) else interval_of(values)


def _enough(
    values: Sequence[float],
    interval: Interval,
    held: bool | None,
    between: Callable[[Halves], Sequence[tuple[Halves, Halves]]],
) -> float:
    """Return how many seeds decide with probability `POWER`.

    It is infinite above `MOST_SEEDS`. `between` returns where a mean does not decide, given half of its interval. With
    mean m and spread s as measured, the mean of n seeds is normal around m with s / √n, and independent of its
    interval's half, t(n-1, 0.975) s / √n √(chi² / (n-1)). The probability is an average over quantiles of chi².
    """
    from scipy.special import chdtri, ndtr

    if held is not None or not math.isfinite(interval.half_width):
        return math.nan
    if not interval.half_width:
        return math.inf
    spread = interval.half_width * math.sqrt(len(values)) / students_t(len(values) - 1)

    def power(count: int) -> float:
        deviation = spread / math.sqrt(count)
        halves = students_t(count - 1) * deviation * np.sqrt(chdtri(count - 1, QUANTILES) / (count - 1))
        chances = [ndtr((high - interval.mean) / deviation) - ndtr((low - interval.mean) / deviation)
                   for low, high in between(halves)]  # fmt: skip
        return 1.0 - float(np.mean(np.sum(np.maximum(chances, 0.0), axis=0)))

    counts = range(SEEDS, MOST_SEEDS + 1)
    place = bisect.bisect_left(counts, POWER, key=power)
    return counts[place] if place < len(counts) else math.inf


def _decide(interval: Interval, held: bool, failed: bool) -> bool | None:
    if math.isnan(interval.low) or math.isnan(interval.high):
        return None
    return True if held else False if failed else None


@dataclass(frozen=True)
class Counts:
    """How many readings say yes, say no, and do not decide."""

    yes: int
    no: int
    undecided: int

    @classmethod
    def of(cls, readings: Iterable[Reading]) -> Counts:
        """Count the readings by their results."""
        results = [reading.held for reading in readings]
        return cls(results.count(True), results.count(False), results.count(None))

    def __str__(self) -> str:
        return f"{self.yes} yes, {self.no} no, {self.undecided} undecided"


def verdict_of(readings: Sequence[Reading], short: str = "") -> Verdict:
    """Return the verdict over all readings, of which there must be at least one.

    *Reproduced*: every reading holds. *Mostly*: at least two thirds of those that decide hold, those nearest to the
    paper among them. *Not reproduced*: at most one in ten of those that decide holds, and none nearest to the paper.
    *Not decidable here*: most readings are undecided, or those nearest to the paper are while the others agree.
    *Mixed*: all else. Where no reading is marked as nearest, the text leaves the setting open, or the study is
    not of one paper, and the shares alone decide.

    `short` says how the runs fall short of the paper's budget: a claim that no reading supports may hold at that
    budget, so it is not decidable here.
    """
    if not readings:
        raise NotMeasuredError("no run that it could be judged by")
    counts, own = Counts.of(readings), [reading.held for reading in readings if reading.own]
    decided = counts.yes + counts.no
    if counts.yes == len(readings):
        return Verdict.REPRODUCED
    if 2 * counts.undecided > len(readings) or (short and not counts.yes):
        return Verdict.UNDECIDABLE
    if counts.yes >= MOST * decided and False not in own:
        return Verdict.MOSTLY if not own or True in own else Verdict.UNDECIDABLE
    if counts.yes <= FEW * decided and True not in own:
        return Verdict.NOT_REPRODUCED if not own or False in own else Verdict.UNDECIDABLE
    return Verdict.MIXED


def seeds_needed(readings: Iterable[Reading]) -> str:
    """Return how many seeds would decide the undecided readings, in words."""
    parts = [part for reading in readings if reading.held is None for part in reading.parts if part.held is None]
    numbers = [part.seeds for part in parts]
    if not numbers or any(map(math.isnan, numbers)):
        return "more seeds"
    most = max(numbers)
    if most > MOST_SEEDS:
        return f"more than {MOST_SEEDS} seeds: the difference is too near to the bar for seeds to decide"
    return f"about {most:.0f} seeds for a power of {100 * POWER:.0f} %"


@dataclass(frozen=True)
class Judged:
    """A claim and its verdict.

    `readings` are empty without runs; `why` is the evidence without readings, or what it would take to decide.
    `headline`, `figure` and `instead` are as in `PaperClaim`; `form` is that of the study, "" for the full one.
    """

    text: str
    verdict: Verdict
    readings: Sequence[Reading] = ()
    why: str = ""
    headline: bool = False
    figure: str = ""
    instead: str = ""
    form: str = field(default="", kw_only=True)

    @property
    def counts(self) -> Counts:
        """How many readings say yes, say no, and do not decide."""
        return Counts.of(self.readings)

    @property
    def words(self) -> str:
        """The verdict in words, with the counts of the readings where there are several."""
        if self.verdict is Verdict.NOT_RUN:
            return str(self.verdict)
        words = str(self.verdict) + f": {self.counts}" * (len(self.readings) > 1)
        if self.instead and self.readings:
            words += f" ({self.instead})"
        return words + f", {self.form}" * bool(self.form and self.readings)

    @property
    def evidence(self) -> str:
        """The measurements: which readings hold, and which choice decides."""
        if not self.readings:
            return self.why
        findings = [self.readings[0].evidence] if len(self.readings) == 1 else list(_by_result(self.readings))
        if self.verdict in (Verdict.MOSTLY, Verdict.MIXED) and len(self.readings) > 2:
            findings.insert(0, f"it holds under {under(self.readings)}")
        needed = f"it would take: {self.why}" if self.why else ""
        pieces = (*findings, decides(self.readings), needed)
        return ". ".join(piece[:1].upper() + piece[1:] for piece in pieces if piece)


def _by_result(readings: Sequence[Reading]) -> Iterator[str]:
    """Yield which readings hold, fail and do not decide, with the measurement of one."""
    for held, word in ((True, "holds"), (False, "does not hold"), (None, "is not decided")):
        some = [reading for reading in readings if reading.held is held]
        if some:
            example = max(some, key=lambda reading: reading.own)
            others = f" and {len(some) - 1} more" * (len(some) > 1)
            yield f"{word} under {example.label}{others}: {example.evidence}"


def under(readings: Sequence[Reading]) -> str:
    """Return the common choices of the readings that hold, or their number."""
    held = [reading for reading in readings if reading.held]
    others = [reading for reading in readings if not reading.held]
    seen = " (chosen after the result was seen)" * all(reading.afterwards for reading in held)
    if rule := _in_common(held, others):
        return rule + seen
    if rule := _in_common(others, held):
        return f"all readings but {rule}{seen}"
    return f"{len(held)} of {len(readings)} readings{seen}"


def _in_common(some: Sequence[Reading], others: Sequence[Reading]) -> str:
    """Return the fewest choices that all of `some` and none of `others` have."""
    keys = list(dict.fromkeys(key for reading in (*some, *others) for key in reading.choices))
    for size in (1, 2, 3):
        for subset in itertools.combinations(keys, size):
            rule = {key: list(dict.fromkeys(reading.choices.get(key, "") for reading in some)) for key in subset}
            if not any(all(reading.choices.get(key, "") in rule[key] for key in subset) for reading in others):
                return " and ".join(_choice(key, " or ".join(values)) for key, values in rule.items())
    return ""


def decides(readings: Sequence[Reading]) -> str:
    """Return a sentence on the choices that alone change the result, or ""."""
    turned: dict[str, list[bool]] = {}
    for one, other in itertools.combinations(readings, 2):
        keys = [key for key in {**one.choices, **other.choices} if one.choices.get(key) != other.choices.get(key)]
        if len(keys) == 1 and one.held is not None and other.held is not None:
            turned.setdefault(keys[0], []).append(one.held != other.held)
    ordered = sorted(turned, key=lambda key: -sum(turned[key]) / len(turned[key]))
    changes = [f"{key} ({sum(turned[key])} of {len(turned[key])})" for key in ordered if any(turned[key])]
    if not changes:
        return ""
    idle = " or ".join(key for key in turned if not any(turned[key]))
    sentence = f"What decides, in pairs of readings that differ in it alone: {', '.join(changes)}"
    return sentence + (f"; not {idle}" if idle else "")


def typical(values: Sequence[float], diverged: float = -math.inf) -> tuple[float, ...]:
    """Return values with diverged runs as the worst, so that medians count them."""
    return tuple(diverged if math.isnan(value) else value for value in values)


def measured(values: Sequence[float]) -> Interval:
    """Return the mean with its 95% interval, NaN for fewer than three values.

    It is the median if some runs diverged (NaN, or minus infinity) or never got there (infinity).
    """
    interval = interval_of(values) if all(map(math.isfinite, values)) else median_of(typical(values))
    return interval if len(values) > 2 else Interval(interval.mean, math.nan, math.nan)


def show(values: Sequence[float], digits: int = 2, sign: bool = False) -> str:
    """Write a mean and half its interval: `88.44 ± 0.21`.

    Two values are written as they are; if runs diverged, or never got there, the median with their count.
    """

    def write(value: float, half: float = math.nan) -> str:
        return show_fixed(value, half, digits, sign) if math.isfinite(value) else lost

    lost = "never" if math.inf in values else "diverged"
    interval, count = measured(values), sum(not math.isfinite(value) for value in values)
    if count:
        return write(interval.mean) + (f" (median; {count} of {len(values)} {lost})" if count < len(values) else "")
    if len(set(values)) == 2 == len(values):
        return " and ".join(map(write, values))
    if math.isnan(interval.mean):
        return "-"
    return write(interval.mean, math.nan if len(set(values)) == 1 else interval.half_width)


def _choice(key: str, value: str) -> str:
    if not key:
        return value
    return f"{key} = {value}" if len(key) <= 3 else f"{key}: {value}"
