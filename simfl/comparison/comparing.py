"""Comparisons of runs: equal measures, and the cost of a common target.

Over seeds: means with 95% intervals of Student's t. Against a baseline: differences and ratios of runs with equal
seeds, which share common draws (data, speeds, links), so that most of the variance between seeds cancels.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simfl.comparison.intervals import CONFIDENCE, components, half_widths
from simfl.comparison.sweeps import Group, Sweep, labels_of
from simfl.comparison.targets import Target, as_target
from simfl.errors import ScenarioError, nearest, to_path
from simfl.records.costs import COSTS, common_accuracy, cost_of, deciding
from simfl.records.display import show_number, show_points, show_share, show_time
from simfl.records.results import Run
from simfl.records.seeds import Crossed, Seed, pair_of
from simfl.records.tables import SPENT

if TYPE_CHECKING:
    import pandas as pd


FEW = 4
"""Number of seeds below which Student's t says little: figures and speed-ups then show single seeds."""

COARSE = 3
"""Number of evaluations below which the cost of an accuracy is coarse."""

FINAL = ("test_accuracy", "test_loss", "epsilon")
"""Measures that are compared at the end of runs."""


_SPREAD_OF = {
    "test_accuracy": "test accuracy",
    "test_loss": "test loss",
    "accuracy_difference": "accuracy, difference",
    "to_target_time_s": "time to the target",
}


def shared_measures(runs: Sequence[Run]) -> list[str]:
    """Return the additional measures (`Run.measures`) that all runs have."""
    return [name for name in runs[0].measures if all(name in run.measures for run in runs)] if runs else []


def evaluations_until(run: Run, accuracy: float) -> int | None:
    """Return the first evaluation, from 0, that reached a target, or None.

    `accuracy` is a test accuracy, or a `Target` of another metric.
    """
    reached = _target(accuracy).reached(run.evaluations)
    return int(reached.argmax()) if reached.any() else None


def cost_of_accuracy(run: Run, accuracy: float) -> dict[str, float]:
    """Return the cost of reaching a target, by column; NaN if it never was.

    The costs are time_s, updates, epochs, rounds, bytes_sent and epsilon. They are interpolated linearly between the
    first evaluation that reached the target and the one before. An epsilon is the upper bound at the later one.
    `accuracy` is a test accuracy, or a `Target` of another metric.
    """
    target = _target(accuracy)
    return cost_of(run, target.reached(run.evaluations), target.metric, float(target))


def _target(accuracy: float) -> Target:
    return accuracy if isinstance(accuracy, Target) else Target(accuracy)


def folders_of(runs: Run | Sweep | str | Path | Sequence[Run | Sweep | str | Path]) -> list[Path]:
    """Return the folders of one or several runs and sweeps."""
    given = list(runs) if isinstance(runs, Iterable) and not isinstance(runs, str | bytes) else [runs]
    expected = "the folders of runs or of a sweep"
    return [one.folder if isinstance(one, Run | Sweep) else to_path(one, expected) for one in given]


@dataclass(frozen=True)
class Interval:
    """A mean and its 95% interval; the bounds are NaN for fewer than two values."""

    mean: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the interval's width."""
        return (self.high - self.low) / 2

    def show(self, write: Callable[[float, float], str]) -> str:
        """Format mean and half width with one of the functions of `records.display`."""
        return write(self.mean, self.half_width)


def interval_of(values: Sequence[float]) -> Interval:
    """Return a mean with Student's t interval: mean ± t(n-1, 0.975) s / √n.

    A NaN makes the mean NaN: averaging only the seeds that reached a target would favor algorithms that rarely do.
    """
    return interval_over(dict(enumerate(values)))


def interval_over(values: Mapping[Seed, float]) -> Interval:
    """Return a mean over seeds with its interval; see `half_widths` for crossed seeds."""
    numbers = np.array(list(values.values()), dtype=float)
    if not len(numbers) or np.isnan(numbers).any():
        return Interval(math.nan, math.nan, math.nan)
    mean = float(np.mean(numbers))
    if math.isinf(mean):
        return Interval(mean, math.nan, math.nan)
    half = float(half_widths(list(values), numbers))
    return Interval(mean, mean - half, mean + half)


def median_of(values: Sequence[float]) -> Interval:
    """Return the median of independent values with its distribution-free 95% interval.

    Its bounds are the k-th smallest and the k-th largest value, for the largest k with 2 P(B < k) <= 0.05, B binomial
    with n trials of 1/2. With fewer than six values the bounds are NaN. Infinite values are allowed.
    """
    count, ordered = len(values), sorted(values)
    if not count or any(math.isnan(value) for value in values):
        return Interval(math.nan, math.nan, math.nan)
    middle = float(statistics.median(ordered))
    tail, rank = 0.0, 0
    while 2 * (tail := tail + math.comb(count, rank) / 2**count) <= 1 - CONFIDENCE:
        rank += 1
    if not rank:
        return Interval(middle, math.nan, math.nan)
    return Interval(middle, ordered[rank - 1], ordered[count - rank])


def ratio_of(values: Sequence[float] | Mapping[Seed, float]) -> Interval:
    """Return the geometric mean of ratios, with Student's t of their logarithms.

    So the speed-up of A over B is the inverse of that of B over A. The ratios may be given by seed.
    """
    by_seed = values if isinstance(values, Mapping) else dict(enumerate(values))
    logs = interval_over({seed: math.log(value) if value > 0 else math.nan for seed, value in by_seed.items()})
    return Interval(math.exp(logs.mean), math.exp(logs.low), math.exp(logs.high))


def speed_up_of(row: pd.Series[Any]) -> Interval:
    """Return a row's speed-up with its interval, or with its extremes (few seeds)."""
    ends = ("_least", "_most") if row["pairs"] < FEW else ("_low", "_high")
    return Interval(*(float(row[f"speedup{end}"]) for end in ("", *ends)))


def explain(table: pd.DataFrame) -> list[str]:
    """Explain the numbers of a comparison and their limits, one line each."""
    lines = []
    target = target_in(table)
    if math.isnan(target):
        lines.append("no target: there is no test accuracy that runs could be compared at")
    else:
        reached, runs = int(table["reached"].sum()), int((table["runs"] - table["diverged"]).sum())
        by = "that every run reached" if reached == runs else f"that {reached} of {runs} runs reached"
        lines.append(f"target: {target.words}, {by}; read off between two evaluations")
        if table["evaluations"].min() < COARSE:
            lines.append(
                "coarse: the target was reached within the first evaluations of some runs; evaluate more often "
                "(evaluate.every), or name a --target that takes longer"
            )
    if table["runs"].max() > 1:
        lines.append("mean ± half of the 95% interval over seeds (Student's t)")
    lines += _explain_spreads(table)
    if table["epsilon"].notna().any() and not math.isnan(target):
        lines.append("epsilon: final at the end; an upper bound to the target")
    units: dict[str, str] = table.attrs.get("units", {})
    if len({*units.values()}) > 1:
        named = "; ".join(f"{unit} ({label})" for label, unit in units.items())
        lines.append(f"epsilons protect different things, and cannot be compared: {named}")
    if "baseline" in table:
        names = list(table["baseline"].dropna().unique())
        against = names[0] if len(names) == 1 else "the baseline that is like it otherwise"
        spread = "the smallest and the largest pair" if table["pairs"].max() < FEW else "its 95% interval"
        several = f"; a geometric mean over pairs of runs of one seed ({spread})" if table["pairs"].max() > 1 else ""
        lines.append(f"speed-up: how many times less virtual time to the target than {against}{several}")
    return lines


def _explain_spreads(table: pd.DataFrame) -> Iterator[str]:
    """Explain how much of the variance worlds and learning seeds cause."""
    if "worlds" not in table:
        return
    worlds, learnings = int(table["worlds"].max()), int(table["learning_seeds"].max())
    both = worlds > 1 and learnings > 1
    one = "is over both" if both else f"holds for this one {'world' if worlds == 1 else 'seed of learning'} only"
    yield f"seeds: {worlds} of the world x {learnings} of learning; the interval {one}"
    has_accuracy = table["test_accuracy"].notna().any()
    measure = ("test_accuracy", show_share) if has_accuracy else ("test_loss", show_number)
    for name, write in (measure, ("accuracy_difference", show_points), ("to_target_time_s", show_time)):
        if f"{name}_sd_world" not in table:
            continue
        for _, row in table.iterrows():
            spreads = [_show_spread(row, f"{name}_sd_{part}", write) for part in ("world", "learning", "residual")]
            if all(spreads):
                between = "; between worlds {}, between learning seeds {}, residual {}".format(*spreads)
                yield f"{row['label']}: {_SPREAD_OF[name]}: standard deviation (95% interval){between}"


def _show_spread(row: pd.Series[Any], name: str, write: Callable[[float, float], str]) -> str:
    value, low, high = (float(row[f"{name}{end}"]) for end in ("", "_low", "_high"))
    if math.isnan(value):
        return ""
    value_of = [write(number, math.nan).removeprefix("+") for number in (value, low, high)]
    return f"{value_of[0]} ({value_of[1]} to {value_of[2]})"


def target_of(groups: Sequence[Group]) -> Target:
    """Return the best accuracy that all good runs reached; NaN without one."""
    good = [run for group in groups for run in group.good.values()]
    return Target(common_accuracy(good), deciding(good))


def target_in(table: pd.DataFrame) -> Target:
    """Return the target of a comparison; NaN without one."""
    first = table.iloc[0]
    return Target(float(first["target"]), str(first["target_metric"]), bool(first["target_at_most"]))


def compare_groups(
    groups: Sequence[Group], target: float | str | None = None, baseline: str | None = None
) -> pd.DataFrame:
    """Return one row per group of runs that differ only in their seeds.

    `target` is the test accuracy whose cost is compared, or text for `as_target`; None: the best accuracy that all runs
    reached. If all runs have a validation part, both are accuracies there. `baseline` is the label of a group, or the
    label of one setting: each group is then compared with the group that has this setting and agrees otherwise;
    ScenarioError for other labels.

    The columns are label, the settings (x_set for one that is called as the column x), `runs`, `diverged`; for each x
    of test_accuracy, test_loss, epsilon and the additional measures of all runs: x, x_low, x_high; `target` with
    `target_metric` and `target_at_most`; `reached`, the number of runs that reached it; `evaluations`, the least number
    of evaluations until then (costs are coarse if it is small); for each cost x: to_target_x, _low, _high, NaN unless
    all runs reached the target. With a baseline also `baseline`, and over `pairs` of equal seeds `speedup` (ratio of
    virtual times to the target; also _least and _most), `byte_saving` and `accuracy_difference`, each with _low and
    _high. If learning has seeds of its own, also `worlds` and `learning_seeds`, their numbers, and for each x of
    test_accuracy, test_loss, to_target_time_s and accuracy_difference the standard deviations x_sd_world,
    x_sd_learning and x_sd_residual, with _low and _high, if there are runs of all pairs of seeds; see
    `simfl.comparison.intervals`. `attrs["units"]` has what each private group's epsilon protects.
    """
    import pandas as pd

    if not groups:
        raise ValueError("compare_groups: expected at least one group, found none")
    good = [run for group in groups for run in group.good.values()]
    goal = as_target(target, deciding(good)) or target_of(groups)
    goal.check(good)
    costs = {group.label: {seed: cost_of_accuracy(run, goal) for seed, run in group.good.items()} for group in groups}
    references = find_baselines(groups, baseline) if baseline is not None else {}
    further = shared_measures(good)
    measured = {"label", "runs", "diverged", "target", "reached", "evaluations", *FINAL, *further}
    rows = []
    for group in groups:
        reached = sum(not math.isnan(cost["time_s"]) for cost in costs[group.label].values())
        last = {seed: _last(run, further) for seed, run in group.good.items()}
        settings = {f"{axis}_set" if axis in measured else axis: label for axis, label in group.settings.items()}
        row: dict[str, Any] = {"label": group.label, **settings, "runs": len(group.runs)}
        row["diverged"] = len(group.runs) - len(group.good)
        for column in (*FINAL, *further):
            _put(row, column, interval_over({seed: values[column] for seed, values in last.items()}))
        taken = [count for run in group.good.values() if (count := evaluations_until(run, goal)) is not None]
        row |= {"target": float(goal), "target_metric": goal.metric, "target_at_most": goal.at_most}
        row |= {"reached": reached, "evaluations": min(taken, default=math.nan)}
        for column in (name for name in COSTS if name not in SPENT or name in further):
            _put(row, f"to_target_{column}", interval_over(_only(costs[group.label], column)))
        if baseline is not None:
            _put_pairs(row, group, references.get(group.label), costs)
        if any(isinstance(seed, Crossed) for seed in group.runs):
            pairs = list(map(pair_of, group.runs))
            row |= {"worlds": len({pair.world for pair in pairs}), "learning_seeds": len({p.learning for p in pairs})}
            for column in ("test_accuracy", "test_loss"):
                _put_spreads(row, column, _only(last, column))
            _put_spreads(row, "to_target_time_s", _only(costs[group.label], "time_s"))
        rows.append(row)
    table = pd.DataFrame(rows)
    table.attrs["units"] = {
        group.label: unit
        for group in groups
        for run in [*group.good.values()][:1]
        if (unit := (run.manifest.extra.get("assumptions") or {}).get("unit"))
    }
    return table


def label_meant(word: str, groups: Sequence[Group], shown: Iterable[tuple[str, str]] = ()) -> str:
    """Return the label of a group or of one setting that a word of a user means.

    It is the label itself, or else one that differs in case alone, or that is shown as this word.

    Args:
        word: such as "fedbuff", "FedBuff" or "D-PSGD".
        groups: have the labels.
        shown: what tables and figures show in place of labels, each with its label.

    Raises:
        ScenarioError: there is no such label, or there are several.
    """
    valid = labels_of(groups)
    if word in valid:
        return word
    names = [*((label, label) for label in valid), *shown]
    meant = list(dict.fromkeys(label for name, label in names if name.casefold() == word.casefold()))
    if len(meant) == 1:
        return meant[0]
    advice = nearest(word, [name for name, _ in names]) or f"; choose one of {', '.join(map(repr, valid[:8]))}"
    if meant:
        advice = f", which may be {' or '.join(map(repr, meant))}; write one of them"
    raise ScenarioError(f"--baseline: expected the label of a group or of one setting, found {word!r}{advice}")


def find_baselines(groups: Sequence[Group], baseline: str) -> dict[str, Group]:
    """Return the baselines of groups, by label; some groups may have none."""
    baseline = label_meant(baseline, groups)
    whole = next((group for group in groups if group.label == baseline), None)
    if whole is not None:
        return {group.label: whole for group in groups}
    axes = [axis for axis in groups[0].settings if any(group.settings.get(axis) == baseline for group in groups)]
    axis, section = axes[0], axes[0].split(".")[0]

    def others(group: Group) -> dict[str, str]:
        # The options of an algorithm go with its kind.
        return {key: value for key, value in group.settings.items() if key.split(".")[0] != section}

    candidates = [group for group in groups if group.settings.get(axis) == baseline]
    matches = {group.label: next((one for one in candidates if others(one) == others(group)), None) for group in groups}
    return {label: match for label, match in matches.items() if match is not None}


def _last(run: Run, further: Sequence[str] = ()) -> dict[str, float]:
    last = run.evaluations.row(-1)
    return {column: float(last[column]) for column in (*FINAL, *further)} | {"epsilon": run.epsilon_and_delta()[0]}


def _only(values: Mapping[Seed, Mapping[str, float]], column: str) -> dict[Seed, float]:
    return {seed: of_run[column] for seed, of_run in values.items()}


def _put_spreads(row: dict[str, Any], name: str, values: Mapping[Seed, float]) -> None:
    """Add the spreads of a measure, if they are known."""
    for part, spread in (components(values) or {}).items():
        ends = {f"{name}_sd_{part}_low": spread.low, f"{name}_sd_{part}_high": spread.high}
        row |= {f"{name}_sd_{part}": spread.value, **ends}


def _put(row: dict[str, Any], name: str, interval: Interval) -> None:
    row |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _put_pairs(
    row: dict[str, Any], group: Group, reference: Group | None, costs: Mapping[str, Mapping[Seed, dict[str, float]]]
) -> None:
    reference_runs = {} if reference is None else reference.good
    seeds = [seed for seed in group.good if seed in reference_runs]
    row |= {"baseline": None if reference is None else reference.label, "pairs": len(seeds)}
    for name, column in (("speedup", "time_s"), ("byte_saving", "bytes_sent")):
        baseline, own = (costs[label] for label in (row["baseline"], group.label)) if seeds else ({}, {})
        ratios = {seed: _ratio(baseline[seed][column], own[seed][column]) for seed in seeds}
        _put(row, name, ratio_of(ratios))
        if name == "speedup":
            ends = min(ratios.values(), default=math.nan), max(ratios.values(), default=math.nan)
            row |= {"speedup_least": ends[0], "speedup_most": ends[1]}
    accuracies = [{seed: _last(runs[seed])["test_accuracy"] for seed in seeds} for runs in (group.good, reference_runs)]
    differences = {seed: accuracies[0][seed] - accuracies[1][seed] for seed in seeds}
    _put(row, "accuracy_difference", interval_over(differences))
    _put_spreads(row, "accuracy_difference", differences)


def _ratio(above: float, below: float) -> float:
    """Return a ratio; 1 if both are zero, since both reached the target at the start."""
    if below == 0:
        return 1.0 if above == 0 else math.nan
    return above / below
