"""Tune a study: the best values for each setting, then the study on fresh seeds.

The runs that tune are a sweep of their own, `<study>-tuning`, so they are kept, continued and played together as others
are. Which runs follow depends on results alone: an interrupted tuning ends with the same tables.

- `by: all` runs all values with all seeds. `by: halving` runs all values with one seed, and the better half, at least
  two, with one more, until the seeds are used up (successive halving; Jamieson and Talwalkar 2016,
  https://arxiv.org/abs/1502.07943; a seed is the unit of budget).
- If the best value of a range is at its border, the range gets more values there, `tune.widen` times at most.
- A value is better if more of its runs have a result (they reach the target, or do not diverge), then by the mean
  result, then by the smaller mean cost; what is equal in all of these is taken in the order of the values.
- Another value is within the noise if the 95 % interval of the paired differences over seeds contains 0 (of ratios: 1,
  if results are costs). It does not correct for the number of values.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simfl.comparison.comparing import Interval, cost_of_accuracy, interval_of, ratio_of
from simfl.comparison.sweeps import Sweep
from simfl.comparison.targets import SMALLER_IS_BETTER, Target, as_target
from simfl.comparison.tuning import FILE
from simfl.errors import ScenarioError
from simfl.records import Run
from simfl.records.display import measure_label
from simfl.records.folder import replace_text
from simfl.records.tables import OWN
from simfl.scenario.units import format_time
from simfl.studies.plan import PlannedRun, Planner, StudyPlan
from simfl.studies.tune import COSTS, WIDER, Tune

Numbers = tuple[int, ...]
"""A candidate: the number of its value for each tuned key path."""


@dataclass(frozen=True)
class Rule:
    """What is best.

    Attributes:
        metric: the column that decides.
        cost: the column of the cost of `target`; None if the value of `metric` decides, `at` a time, "end" or "best".
        smaller: whether a smaller value of `metric` is better.
        words: the rule in a few words.
    """

    metric: str
    smaller: bool
    words: str
    cost: str | None = None
    target: Target | None = None
    at: float | str = "end"

    def results(self, run: Run) -> tuple[float, float]:
        """Return a run's result and cost: smaller is better, infinity is none."""
        if run.status == "diverged":
            return math.inf, math.inf
        if self.target is not None and self.cost is not None:
            costs = cost_of_accuracy(run, self.target)
            further = "time_s" if self.cost == "bytes_sent" else "bytes_sent"
            return _or_never(costs[self.cost]), _or_never(costs[further])
        values, times = self._signed(run), np.asarray(run.evaluations["time_s"])
        within = np.flatnonzero(times <= self.at * (1 + 1e-9)) if isinstance(self.at, float) else np.arange(len(times))
        values = values[within]
        if not len(values) or np.isnan(values).all():
            return math.inf, math.inf
        result = _or_never(float(np.nanmin(values) if self.at == "best" else values[-1]))
        return result, float(times[int(np.argmax(values <= result))])

    def _signed(self, run: Run) -> Any:
        if self.metric not in run.evaluations.names:
            columns = ", ".join(run.evaluations.names)
            raise ScenarioError(f"tune.for: expected a column of metrics, one of {columns}, found {self.metric!r}")
        values = np.asarray(run.evaluations[self.metric], dtype=float)
        return values if self.smaller else -values

    def order(self, runs: Sequence[Run]) -> tuple[float, float, float]:
        """Return a key by which values are sorted, the best first."""
        pairs = [self.results(run) for run in runs]
        reached = [pair for pair in pairs if math.isfinite(pair[0])]
        if reached:
            result, cost = (sum(part) / len(reached) for part in zip(*reached, strict=True))
            return -len(reached), result, cost
        if self.target is None:
            return 0, 0.0, 0.0
        none = math.inf if self.smaller else 0.0
        return 0, sum(none if run.status == "diverged" else float(np.nanmin(self._signed(run))) for run in runs), 0.0

    def shown(self, result: float) -> float:
        """Return a result as its metric has it."""
        return result if self.target is not None or self.smaller else -result

    def against(self, other: Sequence[float], best: Sequence[float]) -> tuple[Interval, bool]:
        """Return the difference to the best value, or the ratio, and whether it is worse."""
        if not all(map(math.isfinite, (*other, *best))):
            apart = all(math.isinf(one) and math.isfinite(two) for one, two in zip(other, best, strict=True))
            return Interval(math.nan, math.nan, math.nan), apart and len(best) > 1
        if self.target is not None and min(*other, *best) > 0:
            ratio = ratio_of([one / two for one, two in zip(other, best, strict=True)])
            return ratio, ratio.low > 1
        difference = interval_of([one - two for one, two in zip(other, best, strict=True)])
        return difference, difference.low > 0


def _or_never(value: float) -> float:
    return math.inf if math.isnan(value) else value


def rule_of(tune: Tune) -> Rule:
    """Return the rule of a section `tune`.

    Raises:
        ScenarioError: it is not a metric or target, or it is one of the test set without `on: test`.
    """
    name, value = next(iter(tune.rule.items()))
    accuracy = f"{tune.on}_accuracy"
    if name in COSTS:
        try:
            target = as_target(value, accuracy)
        except ScenarioError as error:
            raise ScenarioError(f"tune.for.{name}: {str(error).removeprefix('--target: ')}") from None
        assert target is not None
        words = f"least {measure_label(COSTS[name])} to {target.words}"
        rule = Rule(target.metric, target.at_most, words, COSTS[name], target)
    else:
        metric, at = str(tune.rule["metric"]), tune.rule["at"]
        metric = f"{tune.on}_{metric}" if metric in ("accuracy", "loss") else metric
        smaller = metric.removeprefix("validation_") in SMALLER_IS_BETTER or metric in SMALLER_IS_BETTER
        when = f"at {format_time(at)}" if isinstance(at, float) else {"end": "at the end", "best": "at its best"}[at]
        words = f"{'least' if smaller else 'largest'} {measure_label(metric)} {when}"
        rule = Rule(metric, smaller, words, at=at)
    if tune.on == "validation" and (rule.metric.startswith("test_") or rule.metric in OWN):
        raise ScenarioError(
            f"tune.for: expected a metric that is not of the test set, found {rule.metric!r}; choose one of "
            "validation, or write on: test"
        )
    return rule


def beyond(border: int, end: int) -> range:
    """Return the numbers beyond a border of a range: its first (`end` 0) or last (1)."""
    step = 2 * end - 1
    return range(border + step, border + step * (WIDER + 1), step)


def tuning_plan(plan: StudyPlan) -> list[str]:
    """Return what tuning decides, and how many runs it takes, one line each."""
    planner = plan.tuning
    if planner is None or (tune := planner.study.tune) is None:
        return []
    seeds, count = planner.tuning_seeds, 0
    for keys in planner.tuned:
        left = math.prod(tune.values[key].count for key in keys) if keys else 0
        for _ in seeds:
            count += left
            left = left if tune.by == "all" else min(left, max(2, -(-left // 2)))
    halving = ", the better half of the values with each further one" if tune.by == "halving" else ""
    lines = [
        f"tune: {rule_of(tune).words} decides on {', '.join(tune.also)}, for each of {len(planner.settings)} settings",
        f"tune: {count} runs with seeds {', '.join(map(str, seeds))}{halving}",
    ]
    if tune.widen and any(values.factor is not None for values in tune.values.values()):
        lines.append(
            f"tune: a range whose best value is at its border gets {WIDER} more values, at most {tune.widen} times"
        )
    return [*lines, f"then: {planner.num_chosen} runs of {planner.study.name} with the best values and other seeds"]


class Search:
    """What is known of one setting, and which runs it needs next.

    `runs` are its runs by candidate and seed, once they are finished.
    """

    def __init__(self, planner: Planner, tune: Tune, rule: Rule, setting: int) -> None:
        self.planner, self.tune, self.rule, self.setting = planner, tune, rule, setting
        self.label = ", ".join(choice.word for choice in planner.settings[setting].values()) or planner.study.name
        self.keys = planner.tuned[setting]
        self._ends = [[0, tune.values[key].count - 1] for key in self.keys]
        self._widened = 0
        self.planned: dict[tuple[Numbers, int], PlannedRun] = {}
        self.runs: dict[tuple[Numbers, int], Run] = {}
        self.best: Numbers = ()
        self.ranked: list[Numbers] = []

    def values(self, numbers: Numbers) -> dict[str, Any]:
        """Return the values of a candidate by key path."""
        return {key: self.tune.values[key].at(number) for key, number in zip(self.keys, numbers, strict=True)}

    def missing(self) -> bool:
        """Plan the runs that are needed next; return whether there are any."""
        while self.keys:
            candidates = list(itertools.product(*(range(first, last + 1) for first, last in self._ends)))
            if self._plan(candidates):
                return True
            if not self._widen():
                break
        return False

    def _plan(self, candidates: list[Numbers]) -> bool:
        """Plan runs of candidates; rank those that have runs of all seeds."""
        seeds = self.planner.tuning_seeds
        for count in range(1 if self.tune.by == "halving" else len(seeds), len(seeds) + 1):
            needed = [pair for pair in itertools.product(candidates, seeds[:count]) if pair not in self.runs]
            for numbers, seed in needed:
                self.planned[numbers, seed] = self.planner.tried(self.setting, self.values(numbers), seed)
            if needed:
                return True
            order = {numbers: self.rule.order(self._of(numbers, count)) for numbers in candidates}
            self.ranked = sorted(candidates, key=lambda numbers: order[numbers])
            candidates = self.ranked[: max(2, -(-len(self.ranked) // 2))]
        self.best = self.ranked[0]
        return False

    def _of(self, numbers: Numbers, count: int) -> list[Run]:
        return [self.runs[numbers, seed] for seed in self.planner.tuning_seeds[:count]]

    def _borders_of(self, numbers: Numbers) -> list[tuple[int, int]]:
        """Return the borders of ranges at which a candidate is, by key path and end."""
        ranges = [at for at, key in enumerate(self.keys) if self.tune.values[key].factor is not None]
        return [(at, end) for at in ranges for end in (0, 1) if self._ends[at][end] == numbers[at]]

    def _widen(self) -> bool:
        """Add values where the best one is at a border; return whether there are some."""
        if self._widened == self.tune.widen:
            return False
        before = [list(ends) for ends in self._ends]
        for at, end in self._borders_of(self.best):
            for number in beyond(self._ends[at][end], end):
                try:
                    self.planner.tried(self.setting, self.values((*self.best[:at], number, *self.best[at + 1 :])), 0)
                except ScenarioError:
                    break  # the scenario has no such value
                self._ends[at][end] = number
        self._widened += 1
        return before != self._ends

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table: all candidates, the best first."""
        seeds = self.planner.tuning_seeds
        full = [numbers for numbers in self.ranked if all((numbers, seed) in self.runs for seed in seeds)]
        counts = Counter(numbers for numbers, _ in self.runs)
        others = sorted((numbers for numbers in counts if numbers not in full), key=lambda numbers: -counts[numbers])
        best = [self.rule.results(run)[0] for run in self._of(self.best, len(seeds))] if self.keys else []
        rows = []
        for numbers in [*full, *others]:
            of_seeds = [self.runs[numbers, seed] for seed in seeds if (numbers, seed) in self.runs]
            results, costs = zip(*map(self.rule.results, of_seeds), strict=True)
            reached = [self.rule.shown(result) for result in results if math.isfinite(result)]
            mean = interval_of(reached)
            difference, worse = Interval(math.nan, math.nan, math.nan), True
            if numbers in full:
                difference, worse = self.rule.against(results, best)
            verdict = "worse" if numbers in full and worse else "within noise" if numbers in full else "dropped"
            rows.append(
                {
                    "setting": self.label,
                    "rule": self.rule.words,
                    **{key: self.values(numbers).get(key, "") for key in self.tune.also},
                    "seeds": len(of_seeds),
                    "reached": len(reached),
                    "result": mean.mean,
                    "result_low": mean.low,
                    "result_high": mean.high,
                    "cost": interval_of([cost for cost in costs if math.isfinite(cost)]).mean,
                    "against_chosen": difference.mean,
                    "against_chosen_low": difference.low,
                    "against_chosen_high": difference.high,
                    "verdict": "chosen" if numbers == self.best else verdict,
                    "border": bool(self._borders_of(numbers)),
                }
            )
        return rows


def tuned(plan: StudyPlan, run: Callable[[StudyPlan], Sweep]) -> Sweep:
    """Tune a study and run it with the best values.

    Args:
        plan: has a `tuning`.
        run: runs what is missing of a plan.

    Returns:
        The sweep of the study, with a table `tuning.csv` beside its own; that of the tuning, if runs of it are missing
        or have failed.
    """
    planner = plan.tuning
    assert planner is not None
    tune = planner.study.tune
    assert tune is not None
    rule = rule_of(tune)
    searches = [Search(planner, tune, rule, setting) for setting in range(len(planner.settings))]
    while sum(search.missing() for search in searches):
        order = {seed: place for place, seed in enumerate(planner.tuning_seeds)}
        wanted = sorted(
            ((order[seed], search.setting, numbers, planned) for search in searches
             for (numbers, seed), planned in search.planned.items()), key=lambda item: item[:3],
        )  # fmt: skip
        state = run(planner.tuning([planned for *_, planned in wanted]))
        folders = {each.key: each for each in state.runs}
        if not all(each.finished for each in state.runs):
            return state
        for search in searches:
            for pair, planned in search.planned.items():
                search.runs.setdefault(pair, state.open(folders[planned.key]))
    swept = run(planner.chosen([search.values(search.best) for search in searches]))
    _write([row for search in searches for row in search.rows()], swept)
    return swept


def _write(rows: Sequence[Mapping[str, Any]], swept: Sweep) -> None:
    """Write the table of a tuning into the folder of a study."""
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    replace_text(swept.folder / FILE, text.getvalue())
