"""Privacy of users who are online at night: accuracy and time at equal epsilon.

No paper has this study. 200 users train at night, in three parts of the world, on devices of unlike speeds. A trusted
server adds noise to sums of their updates. It makes rounds (DP-FedAvg) or fills buffers (FedBuff), with noise that is
independent or correlated over releases (DP-FTRL), and lets a user into every b-th sum at most.

The clipping norm of each method is chosen on the first seeds, and all results are those of the next ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from simfl.papers.drawing import Figure, labeled, log_axis, panels, with_bars
from simfl.plots.style import PALETTE
from simfl.records import Run
from simfl.reproduction.evidence import SEEDS, Part, Reading, above, below, log_ratio, show, show_ratio
from simfl.reproduction.papers import Cell, Experiment, Number, Paper, PaperClaim, Runs, Section, mean

NORMS = Section("Clipping norms, on the first seeds", ("epsilon {:g}", "C {:g}"))
EQUAL = Section("Equal epsilon, users online at night", ("epsilon {:g}",))
GATE = Section("What the gate costs: FedBuff, z = 1", ("b = {:g}",))
DRAWS = Section("What a draw of users is worth, z = 1")

ROUNDS, BUFFERS = "FedAvg", "FedBuff"
BASES = {ROUNDS: "user_privacy/rounds.yaml", BUFFERS: "user_privacy/buffers.yaml"}
SEPARATION, MOST, RELEASES = 5, 10, 100
"""A user is in every fifth of 100 sums at most, and in 10 sums altogether."""
NOISES = {
    "independent": "null",
    "tree": "{correlated: tree}",
    "banded": f"{{correlated: square_root, bands: {SEPARATION}}}",
}
"""Noise over releases -> `privacy.noise` of the server."""
EPSILONS = (2.0, 4.0, 8.0, 16.0)
CLIPS = (0.1, 0.2, 0.4, 0.8)
SEPARATIONS = (1, 2, 3, 5, 8)
TUNING, JUDGED = 3, 30
"""Number of first seeds that choose the clipping norm, and of those that are judged, which take 200 s a claim."""
TARGET = 80.0
"""Accuracy in percent, for times."""
LEAD = 1.0
"""Points of accuracy below which a lead counts as none."""

ONLINE, NIGHTS = "always online", "online at night"
EARLY = {"wait": "wait", "send_away": "are sent away"}


def experiments(quick: bool) -> Sequence[Experiment]:
    """Return the choice of clipping norms, gates, and draws; quickly, with one norm."""
    seeds = 2 if quick else SEEDS
    if quick:
        made = [_equal(EQUAL, cell, 2, 1) for cell in itertools.product(BASES, NOISES, (4.0,), (0.4,))]
    else:
        made = [_equal(NORMS, cell, TUNING, 1) for cell in itertools.product(BASES, NOISES, EPSILONS, CLIPS)]
    for rule, separation in itertools.product(("wait", "send_away"), (1, 3) if quick else SEPARATIONS):
        gate = f"privacy.participation={{min_separation: {separation}, early: {rule}}}"
        made.append(Experiment(GATE, (rule, separation), BASES[BUFFERS], (gate,), seeds))
    for world, server in itertools.product((ONLINE, NIGHTS), BASES):
        drawn = ("availability=[]",) * (world == ONLINE)
        drawn += ("privacy.participation=null",)
        drawn += ("privacy.cohorts=poisson", "algorithm.deadline=null") * (server == ROUNDS)
        made.append(Experiment(DRAWS, (world, server), BASES[server], drawn, seeds))
    return made


def later(runs: Runs, quick: bool) -> Sequence[Experiment]:
    """Return the runs of fresh seeds with the norm that the first ones chose."""
    methods = [method for method in itertools.product(BASES, NOISES, EPSILONS)
               if len(runs.cells(NORMS, *method)) == len(CLIPS)]  # fmt: skip
    return [_equal(EQUAL, (*method, chosen(runs, *method)), JUDGED, TUNING + 1) for method in methods]


def _equal(section: Section, cell: Cell, seeds: int, first: int) -> Experiment:
    server, noise, epsilon, clip = cell
    changes = (
        f"privacy.noise={NOISES[noise]}", f"privacy.epsilon={epsilon}", f"privacy.clipping_norm={clip}",
        "privacy.noise_multiplier=null", f"stop.updates={MOST * 200}",
    )  # fmt: skip
    return Experiment(section, cell if section == NORMS else cell[:3], BASES[server], changes, seeds, first)


def reached(run: Run) -> float:
    """Return the mean of the last three accuracies in percent."""
    return 100 * float(run.metrics["test_accuracy"].iloc[-3:].mean())


def hours_to_target(run: Run) -> float:
    """Return the virtual time to the target accuracy in hours, infinite if never."""
    there = run.metrics["test_accuracy"] >= TARGET / 100
    return float(run.metrics["time_s"][there].iloc[0]) / 3600 if there.any() else math.inf


def hours(run: Run) -> float:
    """Return the virtual time of the last release in hours."""
    return float(run.cohorts["time_s"].max()) / 3600


def busiest(run: Run) -> float:
    """Return the largest number of sums that a user was in."""
    return float(run.cohorts.groupby("client")["release"].nunique().max())


def early(run: Run) -> float:
    """Return the number of updates that came too early and were thrown away."""
    return float(run.clients["early"].sum())


def noise_of(run: Run) -> float:
    """Return the noise multiplier of a run."""
    return float(run.manifest.extra["noise"]["noise_multiplier"][0])


def chosen(runs: Runs, *method: Any) -> float:
    """Return the most accurate clipping norm of (server, noise, epsilon)."""
    best = max(runs.cells(NORMS, *method), key=lambda cell: mean(runs.each(NORMS, cell, reached)))
    return float(best[-1])


def equal_epsilon(runs: Runs) -> Iterator[Number]:
    """Yield accuracy, times and noise at equal epsilon."""
    for cell in runs.cells(EQUAL):
        server, noise, epsilon = cell
        row, run = f"epsilon {epsilon:g}: {server}, {noise}", runs.first(EQUAL, cell)
        yield Number(EQUAL.title, row, "accuracy, %", runs.each(EQUAL, cell, reached))
        yield Number(EQUAL.title, row, f"hours to {TARGET:g} %", runs.each(EQUAL, cell, hours_to_target), digits=1)
        yield Number(EQUAL.title, row, "hours to the last sum", runs.each(EQUAL, cell, hours), digits=1)
        yield Number(EQUAL.title, row, "C", (run.scenario["privacy"]["clipping_norm"],), digits=1)
        yield Number(EQUAL.title, row, "z", (noise_of(run),))
        yield Number(EQUAL.title, row, "largest epsilon", runs.epsilon(EQUAL, cell))


def gates(runs: Runs) -> Iterator[Number]:
    """Yield what an enforced separation costs."""
    for rule, separation in runs.cells(GATE):
        row, of = f"b = {separation}, {rule.replace('_', ' ')}", (rule, separation)
        yield Number(GATE.title, row, "hours to the last sum", runs.each(GATE, of, hours), digits=1)
        yield Number(GATE.title, row, "updates thrown away", runs.each(GATE, of, early), digits=0)
        yield Number(GATE.title, row, "sums of the busiest user", runs.each(GATE, of, busiest), digits=1)
        yield Number(GATE.title, row, "epsilon", runs.epsilon(GATE, of))
        yield Number(GATE.title, row, "accuracy, %", runs.each(GATE, of, reached))


def draws(runs: Runs) -> Iterator[Number]:
    """Yield epsilon with and without amplification."""
    for cell in runs.cells(DRAWS):
        row = DRAWS.label(*cell)
        yield Number(DRAWS.title, row, "epsilon", runs.epsilon(DRAWS, cell))
        yield Number(DRAWS.title, row, "sums of the busiest user", runs.each(DRAWS, cell, busiest), digits=1)
        yield Number(DRAWS.title, row, "hours to the last sum", runs.each(DRAWS, cell, hours), digits=1)
        yield Number(DRAWS.title, row, "accuracy, %", runs.each(DRAWS, cell, reached))


def leads(runs: Runs, one: Cell, other: Cell, choices: tuple[str, str]) -> Reading:
    """Return a reading by the lead of a method over another, in points."""
    text = "{lead} points ahead ({one} %)"
    return _reading(one, choices, *runs.leads(EQUAL, one, other, text, 0.0, LEAD, measure=reached, digits=2))


def _reading(cell: Cell, choices: tuple[str, str], *parts: Part) -> Reading:
    named = dict(zip(("server", "noise", "epsilon"), (*cell[:2], f"{cell[2]:g}"), strict=True))
    return Reading({key: named[key] for key in choices}, parts)


def correlated_is_better(noise: str, runs: Runs) -> Iterator[Reading]:
    """Judge whether noise over releases beats independent noise."""
    for cell in runs.cells(EQUAL):
        if cell[1] == noise:
            yield leads(runs, cell, (cell[0], "independent", cell[2]), ("server", "epsilon"))


def buffers_are_sooner(runs: Runs) -> Iterator[Reading]:
    """Judge whether buffers reach the target in half of the time of rounds."""
    for cell in runs.cells(EQUAL, BUFFERS):
        if runs.has(EQUAL, other := (ROUNDS, *cell[1:])):
            ours, rounds = (runs.each(EQUAL, own, hours_to_target) for own in (cell, other))
            values = [log_ratio(a, b) for a, b in zip(ours, rounds, strict=True)]
            ratio = show_ratio(values)
            text = f"{show(ours, 1)} against {show(rounds, 1)} hours to {TARGET:g} %{f', {ratio} times' * bool(ratio)}"
            yield _reading(cell, ("noise", "epsilon"), below(values, math.log(0.5), text))


def rounds_are_as_accurate(runs: Runs) -> Iterator[Reading]:
    """Judge whether rounds end more accurate than buffers."""
    for cell in runs.cells(EQUAL, ROUNDS):
        yield leads(runs, cell, (BUFFERS, *cell[1:]), ("noise", "epsilon"))


def more_than_twice(ratios: Sequence[float], what: str) -> Part:
    """Return whether ratios lie above 2, by their logarithms."""
    logs = [math.log(ratio) for ratio in ratios]
    return above(logs, math.log(2.0), f"{show_ratio(logs)} times {what}")


def separation_costs_time(runs: Runs) -> Iterator[Reading]:
    """Judge whether users apart take more than twice the time."""
    for rule, separation in runs.cells(GATE):
        if separation > 1:
            values = runs.pairs(GATE, (rule, separation), (rule, 1), lambda one, other: hours(one) / hours(other))
            choices = {"b": f"{separation:g}", "early": rule.replace("_", " ")}
            yield Reading(choices, [more_than_twice(values, "the hours of b = 1")])


def nights_void_draws(runs: Runs) -> Iterator[Reading]:
    """Judge whether epsilon is twice that of secret draws."""
    for cell in runs.cells(DRAWS):
        if cell != (ONLINE, ROUNDS):
            values = runs.pairs(DRAWS, cell, (ONLINE, ROUNDS), lambda one, other: _epsilon(one) / _epsilon(other))
            choices = {"users": cell[0], "server": cell[1]}
            yield Reading(choices, [more_than_twice(values, "the epsilon of secret draws")])


def _epsilon(run: Run) -> float:
    return run.epsilon_and_delta()[0]


def draw_equal(runs: Runs) -> Figure:
    """Draw accuracies at equal epsilon over virtual time and over epsilon."""
    runs.require(EQUAL)
    epsilons = list(dict.fromkeys(epsilon for _, _, epsilon in runs.cells(EQUAL)))
    figure, axes = panels(1, 2, (8, 3.4), sharey=True)
    left, right = axes[0]
    for number, (server, noise) in enumerate(itertools.product(BASES, NOISES)):
        line, mark = "-" if server == BUFFERS else "--", "os^"[number % 3]
        look = {"label": f"{server}, {noise}", "color": PALETTE[number % 3], "ls": line, "marker": mark}
        accuracies = {cell[-1]: runs.each(EQUAL, cell, reached) for cell in runs.cells(EQUAL, server, noise)}
        if accuracies:
            with_bars(left, list(accuracies), list(accuracies.values()), **look)
        of = runs.of(EQUAL, (server, noise, epsilons[len(epsilons) // 2])).values()
        grid = np.geomspace(0.05, 60.0, 100)
        curves = [np.interp(grid, run.metrics["time_s"] / 3600, 100 * run.metrics["test_accuracy"]) for run in of]
        ends = max(float(run.metrics["time_s"].iloc[-1]) for run in of) / 3600
        marks = {"markevery": (number, 20), "ms": 3.5}
        right.plot(grid[grid <= ends], np.mean(curves, axis=0)[grid <= ends], lw=1.5, **look, **marks)
    log_axis(left, epsilons)
    log_axis(right, (0.1, 1.0, 10.0, 100.0))
    labeled(figure, axes, "epsilon of the busiest user", columns=3)
    right.set_xlabel(f"virtual time, hours (epsilon {epsilons[len(epsilons) // 2]:g})")
    return figure


def draw_gate(runs: Runs) -> Figure:
    """Draw hours and accuracy over the separation."""
    runs.require(GATE)
    figure, axes = panels(1, 3, (8, 2.8))
    measures = {"hours to the last sum": hours, "epsilon of the busiest user": _epsilon, "accuracy, %": reached}
    for axis, (name, measure) in zip(axes[0], measures.items(), strict=True):
        for rule in dict.fromkeys(rule for rule, _ in runs.cells(GATE)):
            cells = runs.cells(GATE, rule)
            values = [runs.each(GATE, cell, measure) for cell in cells]
            line, mark = ("-", "o") if rule == "wait" else ("--", "s")
            look = {"color": PALETTE[rule != "wait"], "ls": line, "marker": mark}
            with_bars(axis, [cell[1] for cell in cells], values, label=f"early users {EARLY[rule]}", **look)
        axis.set_ylabel(name)
        if measure is hours:
            axis.set_yscale("log")
        axis.set_xticks(sorted({separation for _, separation in runs.cells(GATE)}))
    return labeled(figure, axes, "b, separation in sums", next(iter(measures)), columns=2)


PAPER = Paper(
    name="user_privacy",
    title="Privacy of users at night: rounds, buffers, and correlated noise",
    page="users.md",
    minutes=(1, 2),
    experiments=experiments,
    later=later,
    numbers=(equal_epsilon, gates, draws),
    claims=(
        PaperClaim("At equal epsilon, tree noise is more accurate than independent noise.",
                   partial(correlated_is_better, "tree")),
        PaperClaim("At equal epsilon, banded noise is more accurate than independent noise.",
                   partial(correlated_is_better, "banded"), True, "equal"),
        PaperClaim("At equal epsilon, buffers reach 80 % in half of the time of rounds.", buffers_are_sooner, True,
                   "equal"),
        PaperClaim("At equal epsilon, rounds end more accurate than buffers.", rounds_are_as_accurate),
        PaperClaim("Users b sums apart take more than twice the time.", separation_costs_time, figure="gate"),
        PaperClaim("Where users come when they can, epsilon is more than twice that of secret draws.",
                   nights_void_draws),
    ),
    figures={
        "equal": (f"accuracy at equal epsilon, after {RELEASES} sums, and over virtual time", draw_equal),
        "gate": ("what an enforced separation costs", draw_gate),
    },
)  # fmt: skip
