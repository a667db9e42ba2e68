"""The content of a report in plain values."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from simfl.comparison.claims import Check
from simfl.comparison.comparing import (
    COARSE,
    FEW,
    Interval,
    compare_groups,
    cost_of_accuracy,
    explain,
    interval_over,
    label_meant,
    shared_measures,
    speed_up_of,
    target_of,
)
from simfl.comparison.differences import ABSENT, describe_differences
from simfl.comparison.intervals import half_widths
from simfl.comparison.sweeps import Group, Sweep, is_sweep, open_groups, read_sweep
from simfl.comparison.targets import Target, as_target
from simfl.comparison.tuning import tuning_lines
from simfl.errors import SimflError
from simfl.plots.axes import BOUND, X_AXES
from simfl.plots.groups import shown_labels
from simfl.plots.style import LINE_STYLES, color_of, name_of
from simfl.records import Run
from simfl.records.costs import deciding
from simfl.records.display import measure_label, show_ending, show_range, show_share, show_time
from simfl.records.results import clock_of, describe_noise
from simfl.records.seeds import Seed, pair_of
from simfl.scenario.syntax import write

#: Points of a curve: enough to look smooth, and few enough for a page that is mailed.
POINTS = 90
#: Columns of metrics that can be drawn, the first that exists by default.
MEASURES = ("test_accuracy", "test_loss", "train_loss", "consensus_distance", "epsilon")
TIMES = ("compute", "communicate", "wait", "offline")
_EQUALS = "\u00a0=\u00a0"  # a line may not break in "z = 2"
#: Dashes as SVG writes them, in the order of LINE_STYLES.
DASHES = ("", "7 4", "7 3 2 3", "2 3", "7 2 2 2 2 2", "14 4")


@dataclass(frozen=True)
class Part:
    """One group of runs that differ in their seeds, and its look.

    `dash` is the line style, as SVG writes dashes. `curves` maps an x axis and a measure to rows [x, mean, low, high].
    `measures` are the numbers of the table, means with their 95 % intervals over seeds; `times` are the shares of the
    clients' time by activity.
    """

    group: Group
    label: str
    color: str
    dash: str
    curves: dict[str, dict[str, list[list[float]]]]
    measures: dict[str, Interval]
    times: dict[str, float]

    @property
    def run(self) -> Run:
        """The run of the first seed."""
        return next(iter(self.group.good.values()), next(iter(self.group.runs.values())))

    @property
    def name(self) -> str:
        """The name of the algorithm."""
        return name_of(self.group.algorithm, self.group.private, self.group.title)

    @property
    def file(self) -> str:
        """The file name of the first seed's scenario."""
        return "-".join(describe_run(self.run).split("/")) + ".yaml"


@dataclass(frozen=True)
class Privacy:
    """The privacy of one group: the ledger's statement, and the noise in words.

    `check` compares claim and account of one run; None if that is not possible, for the reason in `problem`. `spent`
    are the smallest and the largest epsilon of a client, NaN without certified ones. `assumptions` are those of the
    account, by name.
    """

    label: str
    statement: str
    noise: str
    check: Check | None
    problem: str
    spent: tuple[float, float]
    assumptions: Mapping[str, str]


@dataclass(frozen=True)
class Content:
    """The content of a report.

    `title` and `question` are the name and the description of the study or scenario. `target` is NaN without one.
    `baseline` is the label of the group to compare with, "" without one. `differing` maps a key path to the value of
    each part. `findings` are sentences, and `explained` has a line for each number of the comparison. `privacy` has an
    entry for each group with noise, `failed` the reason for each run that is not among the parts. `commands` repeat the
    runs. `study` is that of a sweep, as YAML, else "". `runs` are all runs with the label of their group.
    """

    title: str
    question: str
    parts: list[Part]
    target: Target
    baseline: str
    differing: dict[str, list[str]]
    findings: list[str]
    explained: list[str]
    privacy: list[Privacy]
    failed: list[tuple[str, str]]
    commands: list[str]
    study: str
    runs: list[tuple[str, Run]] = field(default_factory=list)


def gather(
    paths: Sequence[str | Path],
    *,
    target: float | str | None = None,
    baseline: str | None = None,
    check: Callable[[Run], Check] | None = None,
    tell: Callable[[str], None] = warnings.warn,
) -> Content:
    """Return the content of a report about runs and sweeps; see `write_report`."""
    groups, usual = open_groups(paths, tell)
    labels = _labels(groups)
    if baseline is not None:  # a label of the page, or one of simfl compare
        on_page = zip(labels, [group.label for group in groups], strict=True)
        baseline = label_meant(baseline, groups, [*on_page, *shown_labels(groups)])
    baseline = baseline or usual
    sweep = read_sweep(paths[0]) if len(paths) == 1 and is_sweep(Path(paths[0])) else None
    runs = [(group.label, run) for group in groups for run in group.runs.values()]
    if target is None and sweep is not None:
        target = sweep.study["compare"]["target"]
    good = [run for group in groups for run in group.good.values()]
    goal = as_target(target, deciding(good)) or target_of(groups)
    goal.check(run for _, run in runs)
    labels = labels if sweep is None else [group.label for group in groups]
    parts = _parts(groups, goal, labels)
    explained = _compare(parts, goal, baseline)
    if sweep is not None:
        explained += [line.strip().removesuffix(":") for line in tuning_lines(sweep.folder)]
    names = list(dict.fromkeys(run.name for _, run in runs))
    if sweep is not None:
        title, question = sweep.name, sweep.description
    else:
        title = names[0] if len(names) == 1 else ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
        question = str(runs[0][1].scenario.get("description") or "") if len(names) == 1 else ""
    return Content(
        title=title,
        question=question,
        parts=parts,
        target=goal,
        baseline=next((part.label for part in parts if part.group.label == baseline), baseline or ""),
        differing=_differing(parts),
        findings=_findings(parts, goal, baseline),
        explained=explained,
        privacy=[_privacy(part, check) for part in parts if part.group.private],
        failed=_failed(sweep, runs),
        commands=_commands(sweep, parts),
        study=write(sweep.study) if sweep is not None else "",
        runs=runs,
    )


def _differing(parts: Sequence[Part]) -> dict[str, list[str]]:
    """Return the key paths that differ between parts, with each value.

    A part without privacy lacks all keys of that section, and an algorithm all options of others. These differences
    follow from the algorithm and the noise, so they are left out.
    """
    settings = describe_differences([part.run.settings for part in parts])
    by_key = {key: [values[key] for values in settings] for key in settings[0]}
    return {key: values for key, values in by_key.items() if len(set(values) - {ABSENT}) > 1} or by_key


def _labels(groups: Sequence[Group]) -> list[str]:
    """Name groups by algorithm and noise, and by further differences if needed."""
    runs = [next(iter(group.runs.values())) for group in groups]
    short = [
        ", ".join(part for part in (name_of(run.algorithm, group.private, run.title), describe_noise(run)) if part)
        for group, run in zip(groups, runs, strict=True)
    ]
    counts = Counter(short)
    labels = [name if counts[name] == 1 else group.label for name, group in zip(short, groups, strict=True)]
    return labels if len(set(labels)) == len(labels) else [group.label for group in groups]


def _parts(groups: Sequence[Group], target: Target, labels: Sequence[str]) -> list[Part]:
    parts = []
    for position, (group, label) in enumerate(zip(groups, labels, strict=True)):
        runs = list(group.good.values())
        look = color_of(group.algorithm), DASHES[position % len(LINE_STYLES)]
        name = label.replace(" = ", _EQUALS)
        parts.append(Part(group, name, *look, curves_of(runs), _measures(group.good, target), _times(runs)))
    return parts


def _compare(parts: Sequence[Part], target: Target, baseline: str | None) -> list[str]:
    """Add speed-ups over the baseline to the measures; return explanations."""
    table = compare_groups([part.group for part in parts], target, baseline)
    if baseline is not None:
        table["baseline"] = table["baseline"].map({part.group.label: part.label for part in parts})
        for part, (_, row) in zip(parts, table.iterrows(), strict=True):
            part.measures["speedup"] = speed_up_of(row)
    return explain(table) if len(parts) > 1 else []


def _measures(runs: Mapping[Seed, Run], target: Target) -> dict[str, Interval]:
    last = {seed: run.evaluations.row(-1) for seed, run in runs.items() if len(run.evaluations)}
    measures = {
        "accuracy": {seed: float(row["test_accuracy"]) for seed, row in last.items()},
        "loss": {seed: float(row["test_loss"]) for seed, row in last.items()},
        "time_s": {seed: run.manifest.time_s for seed, run in runs.items()},
        "updates": {seed: float(run.manifest.updates) for seed, run in runs.items()},
        "bytes": {seed: float(row["bytes_sent"]) for seed, row in last.items()},
        "epsilon": {seed: run.epsilon_and_delta()[0] for seed, run in runs.items()},
        "to_target_s": {seed: cost_of_accuracy(run, target)["time_s"] for seed, run in runs.items()},
    }
    return {name: interval_over(values) for name, values in measures.items()}


def _times(runs: Sequence[Run]) -> dict[str, float]:
    whole = sum(run.manifest.time_s * len(run.clients) for run in runs)
    if not whole > 0:
        return {}
    return {name: sum(float(run.clients[f"{name}_s"].sum()) for run in runs) / whole for name in TIMES}


def curves_of(runs: Sequence[Run]) -> dict[str, dict[str, list[list[float]]]]:
    """Return every measure against every axis, mean with its 95% interval.

    With fewer than four seeds, the smallest and the largest value replace the interval. Of a run with more evaluations
    than `ROWS_PER_CHUNK`, every k-th counts, and the last.
    """
    evaluations = [run.evaluations.thinned() for run in runs]
    columns: dict[str, dict[str, list[list[float]]]] = {}
    for axis, (column, _) in X_AXES.items():
        for measure in (*MEASURES, *shared_measures(runs)):
            if measure == column or not all(column in run.evaluations.names for run in runs):
                continue
            curves = []
            for values in evaluations:
                x, y = values[column].astype(float), values[measure].astype(float)
                finite = np.isfinite(x) & np.isfinite(y)
                if finite.any():
                    curves.append((x[finite], y[finite]))
            if curves and len(curves) == len(runs):
                columns.setdefault(axis, {})[measure] = _band([run.seeds for run in runs], curves)
    return columns


def _band(seeds: Sequence[Seed], curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[list[float]]:
    if len(curves) == 1:
        x, y = curves[0]
        kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), 2 * POINTS)).round().astype(int))
        return [[_short(x[i]), _short(y[i])] for i in kept]
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    grid = np.linspace(first, max(first, last), POINTS)
    values = np.stack([np.interp(grid, x, y) for x, y in curves])
    mean, low, high = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
    if len(curves) >= FEW:
        half = half_widths(seeds, values)
        low, high = mean - half, mean + half
    rows = [[_short(value) for value in row] for row in zip(grid, mean, low, high, strict=True)]
    return [row for row in rows if all(map(math.isfinite, row))]  # sums of very large numbers are infinite


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _findings(parts: Sequence[Part], target: Target, baseline: str | None) -> list[str]:
    """Return the findings: the best, the fastest, and the privacy spent."""
    findings = []
    if len(parts) < 2:
        accuracy, time_s = parts[0].measures["accuracy"], parts[0].measures["time_s"].mean
        if not math.isnan(accuracy.mean):
            reached_in = f"{accuracy.show(show_share)} in {show_time(time_s)} of virtual time"
            findings.append(f"{_quoted(parts[0])} reached a test accuracy of {reached_in}.")
    else:
        measured = [part for part in parts if not math.isnan(part.measures["accuracy"].mean)]
        if measured:
            best = max(measured, key=lambda part: part.measures["accuracy"].mean)
            worst = min(measured, key=lambda part: part.measures["accuracy"].mean)
            findings.append(
                f"Best at the end: {_quoted(best)} with {best.measures['accuracy'].show(show_share)} test "
                f"accuracy; lowest: {_quoted(worst)} with {worst.measures['accuracy'].show(show_share)}."
            )
        reached = [part for part in parts if not math.isnan(part.measures["to_target_s"].mean)]
        if len(reached) > 1:
            fast = min(reached, key=lambda part: part.measures["to_target_s"].mean)
            others = [part for part in reached if part is not fast]
            # The cost of noise is another question than the faster algorithm.
            others = [part for part in others if describe_noise(part.run) == describe_noise(fast.run)] or others
            named = [part for part in reached if part is not fast and part.group.label == baseline]
            other = named[0] if named else max(others, key=lambda part: part.measures["to_target_s"].mean)
            times = [part.measures["to_target_s"].mean for part in (fast, other)]
            runs = [run for part in parts for run in part.group.good.values()]
            by_all = all(target.reached(run.evaluations).any() for run in runs)
            goal = target.short[:1].upper() + target.short[1:] + (", which every run reached," if by_all else "")
            findings.append(
                f"{goal} took {show_time(times[0])} of virtual time with {_quoted(fast)}, and {show_time(times[1])} "
                f"with {_quoted(other)}{_times_faster(fast, other, target)}."
            )
    spent = [part for part in parts if part.group.private]
    certified = [part for part in spent if not math.isnan(part.measures["epsilon"].mean)]
    if certified:
        epsilons = [part.measures["epsilon"].mean for part in certified]
        largest = show_range(min(epsilons), max(epsilons))
        findings.append(f"The largest epsilon of a client is {largest}; see Privacy for its terms.")
    if len(certified) < len(spent):
        labels = ", ".join(_quoted(part) for part in spent if part not in certified)
        findings.append(f"Noise without a certified epsilon: {labels}.")
    return findings


def _quoted(part: Part) -> str:
    is_phrase = " " in part.label and not part.label.startswith(part.name)
    return f"“{part.label}”" if is_phrase else part.label


def _times_faster(fast: Part, other: Part, target: Target) -> str:
    table = compare_groups([fast.group, other.group], target, other.group.label)
    factor = speed_up_of(table.iloc[0])
    if not math.isfinite(factor.mean) or factor.mean <= 1.0:
        return ""
    coarse = ", read off coarsely: within the first evaluations" if table["evaluations"].min() < COARSE else ""
    if math.isnan(factor.low) or factor.low == factor.high:
        return f": {factor.mean:.3g} times faster{coarse}"
    interval = f"{factor.low:.3g} to {factor.high:.3g}, over pairs of equal seeds"
    return f": {factor.mean:.3g} times faster ({interval}{coarse})"


def describe_run(run: Run) -> str:
    """Return a run's name as `<scenario>/<folder>`, without its path."""
    return f"{run.folder.absolute().parent.name}/{run.folder.absolute().name}"


def _privacy(part: Part, check: Callable[[Run], Check] | None) -> Privacy:
    run = part.run
    epsilons = run.clients["epsilon"].dropna()
    spent = (float(epsilons.min()), float(epsilons.max())) if len(epsilons) else (math.nan, math.nan)
    statement = str(run.manifest.extra.get("privacy", ""))
    checked, problem = None, "it was not requested"
    if check is not None:
        try:
            checked = check(run)
        except (SimflError, ValueError) as error:
            problem = str(error).splitlines()[0]
    words = statement or (checked.statement if checked else "")
    assumed = run.manifest.extra.get("assumptions") or (checked.assumptions if checked else {})
    return Privacy(part.label, words, describe_noise(run), checked, problem, spent, assumed)


def _failed(sweep: Sweep | None, runs: Sequence[tuple[str, Run]]) -> list[tuple[str, str]]:
    ended = [(describe_run(run), run.status, run.manifest.reason) for _, run in runs if run.status != "done"]
    if sweep is not None:
        finished = {run.folder for run in sweep.finished}
        ended += [(run.folder, run.status, run.reason) for run in sweep.runs if run.folder not in finished]
    return [(name, show_ending(status, reason)) for name, status, reason in ended]


def _commands(sweep: Sweep | None, parts: Sequence[Part]) -> list[str]:
    if sweep is not None:
        return [f"simfl sweep {sweep.name}.yaml", f"simfl report results/{sweep.name} -o report.html"]
    lines = []
    for part in parts:
        others = [_again(seed) for seed in sorted(part.group.runs, key=pair_of) if seed != part.run.seeds]
        lines.append("; ".join(f"simfl run {part.file}{seed}" for seed in ("", *others)))
    return [*lines, "simfl report RUN... -o report.html"]


def _again(seed: Seed) -> str:
    return f" --seed {seed}" if isinstance(seed, int) else f" --seed {seed.world} --set learning_seed={seed.learning}"


def axis_labels(parts: Sequence[Part]) -> dict[str, dict[str, str]]:
    """Return the names of axes and measures, for the page's menus."""
    runs = [run for part in parts for run in part.group.runs.values()]
    drawn = [measure for part in parts for curves in part.curves.values() for measure in curves]
    return {
        "x": {axis: label for axis, (_, label) in X_AXES.items()} | {"time": clock_of(runs), "epsilon": BOUND},
        "y": {measure: measure_label(measure) for measure in dict.fromkeys([*MEASURES, *drawn])} | {"epsilon": BOUND},
    }
