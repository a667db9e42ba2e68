"""Numbers and claims of MAPA's study."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

import numpy as np

from simfl.comparison.comparing import median_of
from simfl.errors import DataError
from simfl.papers.mapa import study_runs as plan
from simfl.papers.mapa.printed import LaplaceL2RadiusOnly
from simfl.papers.mapa.study_runs import ACCURACY, BETWEEN, CLOSE, NONE, NORMS, PRIVATE, UNCLIPPED, Task, cell_of
from simfl.papers.mapa.theory import printed_epsilon
from simfl.privacy.mechanisms import LaplaceL2
from simfl.records import Run
from simfl.reproduction.evidence import (
    SEEDS,
    NotMeasuredError,
    Part,
    Reading,
    above,
    below,
    exactly,
    show,
    show_ratio,
    within,
)
from simfl.reproduction.papers import Cell, Number, Runs, Section, mean

ASYNCHRONOUS = {"MAPA": "", "AUDP": plan.MEASURED, "ASGD": ""}
"""The algorithms that Figure 7 compares over the number of servers, each with its G."""


def updates_until(run: Run, loss: float) -> float:
    """Return the updates until five successive losses average below the bar; or inf.

    A mean of five counts at its middle evaluation; between two such means, the updates are interpolated linearly. The
    result therefore does not depend on how often losses are measured.
    """
    metrics = run.metrics
    average = metrics["train_loss"].rolling(5, center=True).mean().to_numpy()
    updates, below_bar = metrics["updates"].to_numpy(), average < loss
    if not below_bar.any():
        return math.inf
    first = int(below_bar.argmax())
    before, after = average[first - 1], average[first]
    if math.isnan(before):  # there is no mean before the first
        return float(updates[first])
    return float(updates[first - 1] + (before - loss) / (before - after) * (updates[first] - updates[first - 1]))


def updates_at_least(run: Run, loss: float) -> float:
    """Return the updates until the loss is below the bar; or a lower bound.

    The bound for a run that ends earlier is its number of updates. For ASGD it is the number at the run's mean rate of
    descent: ASGD's steps are so short and free of noise that it follows the gradient flow of a convex function, whose
    value falls ever more slowly.
    """
    updates, metrics = updates_until(run, loss), run.metrics
    if math.isfinite(updates):
        return updates
    losses, last = metrics["train_loss"], float(metrics["updates"].iloc[-1])
    fallen = float(losses.iloc[0] - losses.iloc[-1])
    if run.algorithm == plan.KINDS["ASGD"] and fallen > 0.0:
        return max(last, last * (float(losses.iloc[0]) - loss) / fallen)
    return last


def accuracy_after(run: Run, updates: int) -> float:
    """Return the test accuracy after a number of updates, in percent."""
    return 100 * _at(run, updates, "test_accuracy")


def _at(run: Run, updates: int, column: str) -> float:
    metrics = run.metrics
    return float(metrics[column][metrics["updates"] == updates].iloc[0])


def epsilon_numbers(runs: Runs) -> Iterator[Number]:
    """Yield Figure 6."""
    part = f"{ACCURACY}: noise of the published code, which is private for no ε"
    for cell in runs.cells(ACCURACY):
        row, column = (cell, "no noise") if cell[1] in ("ASGD", "CSGD") else (cell[:-1], f"ε = {cell[-1]:g}")
        accuracies = runs.accuracy(ACCURACY, cell)
        yield Number(part, ACCURACY.label(*row), column, accuracies, digits=1, unit="test accuracy, %")


def lead_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the leads at the smallest epsilon for which the text has numbers."""
    part = f"{ACCURACY}: MAPA's lead over AUDP at ε = 0.1, in percent of AUDP's accuracy"
    for panel, (percent, _) in LEADS.items():
        for task, bound in _panel(runs, panel):
            lead = _leads(runs, task, bound)["of AUDP's accuracy"]
            yield Number(part, f"({panel}) {task}, G: {bound}", "lead, %", lead, percent, digits=1)


def norm_numbers(runs: Runs) -> Iterator[Number]:
    """Yield Figure 5."""
    part = f"{NORMS}: norm of the mean of 1,000 clipped gradients, K = 100, ε = 0.1, σ = 30"
    for cell in runs.cells(NORMS):
        row = NORMS.label(*cell)
        for updates in (0, 500, 2_500, 15_000):
            norms = runs.each(NORMS, cell, partial(_at, updates=updates, column="gradient_norm"))
            yield Number(part, row, f"after {updates:,} updates", norms, digits=3)
        if cell[1] != "ASGD":
            last = runs.each(NORMS, cell, lambda run: float(run.metrics["clipping_norm"].iloc[-1]))
            yield Number(part, row, "last C", last, digits=3)
        yield Number(part, row, "test accuracy, %", runs.accuracy(NORMS, cell), digits=1)


def convergence_numbers(runs: Runs) -> Iterator[Number]:
    """Yield Figure 7."""
    for classes, losses in plan.LOSSES.items():
        cells = [cell for cell in runs.cells(plan.CONVERGENCE) if cell[0].startswith(f"LR, {classes} ")]
        for loss, cell in itertools.product(losses, cells):
            until = f"until the training loss is below {loss:g} (inf: not within the run)"
            part = f"{plan.CONVERGENCE}: updates {until}, ε = 0.1"
            task, count, algorithm, *bound = cell
            column = "one machine" if algorithm == "CSGD" else f"K = {count:,}"
            updates = runs.each(plan.CONVERGENCE, cell, partial(updates_until, loss=loss))
            yield Number(part, ", ".join([task, algorithm, *bound]), column, updates, digits=0)


def saving_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the orders of magnitude that MAPA saves, where both algorithms converge."""
    part = f"{plan.CONVERGENCE}: orders of magnitude between the updates of another algorithm and of MAPA"
    for classes, losses in plan.LOSSES.items():
        for (count, task), loss in itertools.product(_counted(classes), losses):
            few = cell_of(task, count, "MAPA")
            for many in [cell for cell in runs.cells(plan.CONVERGENCE, str(task), count) if cell != few]:
                paper = 2.0 if (many[2], count) in (("AUDP", 10), ("ASGD", 100), ("ASGD", 1000)) else None
                if all(all_converge(runs, cell, loss) for cell in (few, many)):
                    row = f"{', '.join([str(task), *many[2:]])}, loss {loss:g}"
                    orders = runs.pairs(plan.CONVERGENCE, many, few, partial(_orders, loss=loss))
                    yield Number(part, row, f"K = {count:,}", orders, paper)


def network_numbers(runs: Runs) -> Iterator[Number]:
    """Yield Figures 8 and 9."""
    settings = {
        plan.TESTBED: "delays of a simulated world, CNN on MNIST, ε = 0.1, σ = 30",
        plan.PARAMETERS: "MAPA, CNN on MNIST, K = 5 (default: ε = 0.1, b = 12, L = 10, σ = 30, δ = 1e-3, θ = 0.5)",
    }
    for section, setting in settings.items():
        for cell, updates in itertools.product(runs.cells(section), BETWEEN):
            row, column = section.label(*cell), f"after {updates:,} updates"
            accuracies = runs.each(section, cell, partial(accuracy_after, updates=updates))
            yield Number(f"{section}: {setting}", row, column, accuracies, digits=1, unit="test accuracy, %")


def joining_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the accuracies where servers join, and where they do not."""
    part = "Section 3.1: two of five servers join, LR, even or odd on USPS"
    for cell in runs.cells(plan.JOINING):
        row, accuracies = plan.JOINING.label(*cell), runs.accuracy(plan.JOINING, cell)
        yield Number(part, row, "at the end", accuracies, digits=1, unit="test accuracy, %")


def private_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the accuracy that remains with private noise."""
    part = "Noise of the right law (laplace_l2): LR on USPS"
    for cell in runs.cells(PRIVATE):
        row = PRIVATE.label(*cell)
        yield Number(part, row, "test accuracy, %", runs.accuracy(PRIVATE, cell), digits=1)
        yield Number(part, row, "certified ε of the whole run, δ = 1e-5", runs.epsilon(PRIVATE, cell), digits=3)


def ran(runs: Runs, sigma: int, *models: str) -> list[Task]:
    """Return the tasks of Figure 6 that were run with a σ."""
    tasks = [task for task in plan.TASKS if not models or task.model in models]
    return [task for task in tasks if runs.cells(ACCURACY, str(task), "MAPA", sigma)]


def combined(runs: Runs, *models: str) -> Iterator[tuple[dict[str, str], bool, Task, int]]:
    """Yield what a claim "in all sub-figures" is judged by.

    These are the choices of a reading, whether they are nearest to the paper, each task of all models and data sets
    with these choices, and σ. The choices are the classes of LR and the hinge of the SVM. σ is a choice where LR alone
    is judged, since the other models were run with the first one, that of the published code. The text has a two-way
    LR, and does not tell two groups of digits or two hinges apart.
    """
    for sigma in plan.SIGMAS if models == ("LR",) else plan.SIGMAS[:1]:
        tasks = ran(runs, sigma, *models)
        open_models = [model for model in plan.OPEN if any(task.model == model for task in tasks)]
        of_models = [
            [choice for choice in plan.CHOICES[m] if any(t.choice == choice for t in tasks)] for m in open_models
        ]
        for choices in itertools.product(*of_models) if tasks else ():
            named = {plan.OPEN[model]: choice for model, choice in zip(open_models, choices, strict=True)}
            own = sigma == plan.SIGMAS[0] and (
                "LR" not in open_models or choices[open_models.index("LR")] in plan.TWO_WAY
            )
            of_sigma = {"σ": f"{sigma}"} if models == ("LR",) else {}
            yield from ((named | of_sigma, own, task, sigma) for task in tasks if task.choice in ("", *choices))


def _pair(task: Task, sigma: int, bound: str, epsilon: float, mapa: str = "MAPA") -> tuple[Cell, Cell]:
    """Return the cells of MAPA and AUDP."""
    return cell_of(task, mapa, sigma, epsilon), cell_of(task, "AUDP", sigma, bound, epsilon)


def forms(models: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the forms of MAPA with a reading's choices; the listing's has LR alone."""
    if tuple(models) != ("LR",):
        return {"MAPA": {}}
    return {"MAPA": {"MAPA clips": "each example"}, plan.PRINTED: {"MAPA clips": "the mean, as printed"}}


def beats_audp(runs: Runs, *models: str, epsilons: Sequence[float] = (0.1,)) -> Iterator[Reading]:
    """Judge whether MAPA is more accurate than AUDP at some epsilons.

    Nearest to the paper are AUDP without clipping, as in the text and the code, and MAPA as printed where it was run.
    """
    kinds = forms(models)
    for (form, clips), (choices, own, task, sigma), bound, epsilon in itertools.product(
        kinds.items(), combined(runs, *models), plan.BOUNDS, epsilons
    ):
        mapa, audp = _pair(task, sigma, bound, epsilon, form)
        clip = runs.first(ACCURACY, audp).scenario["privacy"]["clipping_norm"] if runs.has(ACCURACY, audp) else 0.0
        how = "unclipped" if bound == UNCLIPPED else f"clipped to {clip:.1f}"
        text = f"{task}: {{lead}} points ahead at ε = {epsilon:g}: {{one}} % against AUDP's {{other}} %, {how}"
        nearest = own and bound == UNCLIPPED and form == [*kinds][-1]
        lead = runs.leads(ACCURACY, mapa, audp, text, 0.0, NONE)
        yield Reading({**choices, **clips, "G": bound}, lead, own=nearest)


beats_audp_everywhere = partial(beats_audp, epsilons=plan.EPSILONS[::2])
"""Judge the same for all models, data sets and ε."""

LEADS = {
    "c": (20.0, [Task("CNN", "", "USPS"), *(Task("SVM", hinge, "USPS") for hinge in plan.CHOICES["SVM"])]),
    "f": (100.0, [plan.NETWORK]),
}
"""The largest leads that the text prints, by panel of Figure 6, and what the panel may show.

The text does not say what (c) shows: of six panels in the order of the text it is the network on USPS if rows are data
sets, or the SVM on USPS if columns are. The last one is the network on MNIST either way.
"""


def _panel(runs: Runs, panel: str) -> Iterator[tuple[Task, str]]:
    """Yield what a panel may show, with AUDP's G."""
    for task, bound in itertools.product(LEADS[panel][1], plan.BOUNDS):
        if runs.has(ACCURACY, *_pair(task, plan.SIGMAS[0], bound, 0.1)):
            yield task, bound


def _leads(runs: Runs, task: Task, bound: str) -> dict[str, tuple[float, ...]]:
    """Return MAPA's lead at ε = 0.1 in percent of AUDP's accuracy, and in points."""
    mapa, audp = _pair(task, plan.SIGMAS[0], bound, 0.1)
    points = runs.ahead(ACCURACY, mapa, audp)
    accuracies = runs.accuracy(ACCURACY, audp)
    share = tuple(100 * lead / other for lead, other in zip(points, accuracies, strict=True))
    return {"of AUDP's accuracy": share, "in points": points}


def leads_by(runs: Runs, panel: str) -> Iterator[Reading]:
    """Judge whether MAPA's lead is about as large as the text says of a panel."""
    percent, _ = LEADS[panel]
    bar = 0.75 * percent
    for task, bound in _panel(runs, panel):
        for meaning, lead in _leads(runs, task, bound).items():
            if percent < 100 or meaning != "in points":  # no accuracy can grow by 100 points
                text = f"{show(lead, 1, True)} % {meaning} at ε = 0.1 (bar: {bar:g} %, three quarters of {percent:g} %)"
                choices = {"panel": str(task), "G": bound, "%": meaning}
                yield Reading(choices, [above(lead, bar, text)], own=bound == UNCLIPPED)


def leads_most_at_small_epsilon(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA's lead over AUDP is larger at ε = 0.1 than at 0.5."""
    for (choices, own, task, sigma), bound in itertools.product(combined(runs), plan.BOUNDS):
        pairs, parts = [_pair(task, sigma, bound, epsilon) for epsilon in (0.1, 0.5)], []
        if runs.has(ACCURACY, *pairs[0], *pairs[1]):
            small, large = (runs.ahead(ACCURACY, *pair) for pair in pairs)
            more = [one - other for one, other in zip(small, large, strict=True)]
            text = f"{task}: {show(small, 1, True)} points ahead at ε = 0.1, {show(large, 1, True)} at 0.5"
            parts = [above(more, 0.0, text, NONE)]
        yield Reading({**choices, "G": bound}, parts, own=own and bound == UNCLIPPED)


def mapa_grows(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA's accuracy grows with epsilon."""
    for choices, own, task, sigma in combined(runs):
        accuracies = runs.accuracies(ACCURACY, str(task), "MAPA", sigma)
        cells = [cell_of(task, "MAPA", sigma, epsilon) for epsilon in accuracies]
        curve = ", ".join(f"{show(values, 1)} at ε = {epsilon:g}" for epsilon, values in accuracies.items())
        parts = runs.leads(ACCURACY, cells[-1], cells[0], f"{task}: {curve} %", 0.0, NONE) if len(cells) > 1 else []
        for less, more in itertools.pairwise(cells if len(cells) > 2 else []):
            text = f"{task}: {{lead}} from ε = {less[-1]:g} to {more[-1]:g} (bar: no fall of a point)"
            parts += runs.leads(ACCURACY, more, less, text, -1.0)
        yield Reading(choices, parts, own=own)


def audp_grows(runs: Runs) -> Iterator[Reading]:
    """Judge whether AUDP's accuracy grows with epsilon."""
    for (choices, own, task, sigma), bound in itertools.product(combined(runs), plan.BOUNDS):
        small, large = (_pair(task, sigma, bound, epsilon)[1] for epsilon in (0.1, 0.5))
        lead = runs.leads(ACCURACY, large, small, f"{task}: {{other}} % at ε = 0.1, {{one}} % at 0.5", 0.0, NONE)
        yield Reading({**choices, "G": bound}, lead, own=own and bound == UNCLIPPED)


def near_asgd(runs: Runs, *models: str, lead: float = -CLOSE, least: float = 0.0) -> Iterator[Reading]:
    """Judge whether MAPA's lead over ASGD exceeds a bar, at the largest epsilon.

    A negative bar allows MAPA to be behind by as many points; a lead over it of less than `least` is none.
    """
    bar, kinds = f" (bar: {-lead:g} points behind)" if lead else "", forms(models)
    for (form, clip), (choices, own, task, sigma) in itertools.product(kinds.items(), combined(runs, *models)):
        mapa, asgd = cell_of(task, form, sigma, 0.5), cell_of(task, "ASGD", sigma)
        ahead = runs.leads(ACCURACY, mapa, asgd, f"{task}: {{one}} % at ε = 0.5, ASGD {{other}} %{bar}", lead, least)
        yield Reading({**choices, **clip}, ahead, own=own and form == [*kinds][-1])


def beyond_asgd(runs: Runs) -> Iterator[Reading]:
    """Judge whether logistic regression by MAPA is even more accurate than by ASGD."""
    return near_asgd(runs, "LR", lead=0.0, least=NONE)


def clipped_tasks(runs: Runs) -> Iterator[tuple[Task, dict[str, str]]]:
    """Yield the tasks of Figure 5 that were run, with the choice of a reading."""
    runs.require(NORMS)
    for task in (plan.PARITY, plan.TEN_WAY[0]):
        if runs.cells(NORMS, str(task)):
            yield task, {"classes": task.choice}


def _ends(runs: Runs, task: Task, algorithm: str) -> str:
    """Write an algorithm's accuracy at the end from every clipping norm."""
    accuracies = runs.accuracies(NORMS, str(task), algorithm)
    return ", ".join(f"{show(values, 1)} % from C = {clip:g}" for clip, values in accuracies.items())


def insensitive(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA's final accuracy is independent of its first clipping norm."""
    for task, choices in clipped_tasks(runs):
        parts: list[Part] = []
        for one, other in itertools.combinations(runs.cells(NORMS, str(task), "MAPA"), 2):
            ends = _ends(runs, task, "MAPA") + ": " if not parts else ""
            text = f"{ends}C = {one[2]:g} minus C = {other[2]:g}: {{lead}} points (bar: {CLOSE:g} either way)"
            parts += runs.leads(NORMS, one, other, text, CLOSE, judge=within)
        yield Reading(choices, parts, own=task.two_way)


def as_good_as_audp(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA ends about as accurate as AUDP with its best clipping norm."""
    for task, choices in clipped_tasks(runs):
        clips = runs.cells(NORMS, str(task), "AUDP") or [cell_of(task, "AUDP", 3)]
        best = max(clips, key=lambda cell: mean(runs.accuracy(NORMS, cell)))
        parts: list[Part] = []
        for cell in runs.cells(NORMS, str(task), "MAPA"):
            ends = f"AUDP with C = {best[2]:g} {{other}} %, " if not parts else ""
            text = f"{ends}MAPA {{one}} % from C = {cell[2]:g} (bar: {CLOSE:g} points)"
            parts += runs.leads(NORMS, cell, best, text, -CLOSE)
        yield Reading(choices, parts, own=task.two_way)


def bad_bound(runs: Runs, bad: float, least: float) -> Iterator[Reading]:
    """Judge whether AUDP loses more than `least` points with a bad clipping norm."""
    for task, choices in clipped_tasks(runs):
        lost = runs.ahead(NORMS, cell_of(task, "AUDP", 3), cell_of(task, "AUDP", bad))
        text = f"{_ends(runs, task, 'AUDP')}: C = 3 is {show(lost, 1, True)} points ahead (bar: {least:g})"
        yield Reading(choices, [above(lost, least, text, 0.0 if least else NONE)], own=task.two_way)


def _counted(classes: str) -> list[tuple[int, Task]]:
    """Return the numbers of servers of LR with some classes, and their tasks."""
    return [(count, task) for task, counts in plan.COUNTED.items() if task.choice == classes for count in counts]


def _losses(runs: Runs, longest: int) -> Iterator[tuple[Task, float, dict[str, str]]]:
    """Yield the tasks on USPS with at most some losses, and the choices of a reading."""
    runs.require(plan.CONVERGENCE)
    for classes, losses in plan.LOSSES.items():
        for loss in losses[:longest]:
            yield Task("LR", classes, "USPS"), loss, {"classes": classes, "loss": f"{loss:g}"}


def fewest_updates(runs: Runs, cell: Cell, loss: float) -> float:
    """Return the median of the updates that a cell needs at least."""
    return median_of(runs.each(plan.CONVERGENCE, cell, partial(updates_at_least, loss=loss))).mean


def _count(runs: Runs, cell: Cell, loss: float) -> str:
    """Write the number of updates that a cell needs."""
    prefix = "" if all_converge(runs, cell, loss) else "at least "
    return f"{prefix}{fewest_updates(runs, cell, loss):,.0f}"


def all_converge(runs: Runs, cell: Cell, loss: float) -> bool:
    """Return whether every run of a cell reaches the loss."""
    return all(map(math.isfinite, runs.each(plan.CONVERGENCE, cell, partial(updates_until, loss=loss))))


def _orders(one: Run, other: Run, loss: float) -> float:
    return math.log10(updates_at_least(one, loss) / updates_at_least(other, loss))


def times_as_many(runs: Runs, many: Cell, few: Cell, loss: float, times: float, text: str, bar: str = "") -> Part:
    """Return whether one cell needs more than `times` as many updates as another.

    A run that ends before it converges gives a lower bound on the updates that it needs. A lower bound on `many` can
    show that the claim holds, not that it fails; one on `few` can show that it fails, not that it holds.
    """
    orders = runs.pairs(plan.CONVERGENCE, many, few, partial(_orders, loss=loss))
    ratio = show_ratio([order * math.log(10.0) for order in orders])
    evidence = above(
        orders, math.log10(times), f"{text}{f': {ratio} times as many' * bool(ratio)}{bar}", math.log10(plan.AHEAD)
    )
    bounded = {False: many, True: few}
    open_ = evidence.held is not None and not all_converge(runs, bounded[evidence.held], loss)
    return Part(None, evidence.text, evidence.seeds) if open_ else evidence


def more_servers(runs: Runs) -> Iterator[Reading]:
    """Judge whether all asynchronous algorithms need more updates with more servers."""
    for (task, loss, choices), (name, bound) in itertools.product(_losses(runs, 2), ASYNCHRONOUS.items()):
        fewer, more = (cell_of(task, count, name, bound) for count in plan.COUNTS)
        needed = " and ".join(_count(runs, cell, loss) for cell in (fewer, more))
        text = f"{name}: {needed} updates at K = {plan.COUNTS[0]} and {plan.COUNTS[1]}"
        yield Reading(choices, [times_as_many(runs, more, fewer, loss, 1.0, text)], own=task.two_way)


def fewest_on_one_machine(runs: Runs) -> Iterator[Reading]:
    """Judge whether CSGD needs the fewest updates, against 10 servers."""
    for (task, loss, choices), (name, bound) in itertools.product(_losses(runs, 3), ASYNCHRONOUS.items()):
        csgd, other = cell_of(task, 1, "CSGD"), cell_of(task, 10, name, bound)
        text = f"CSGD {_count(runs, csgd, loss)} updates, {name} {_count(runs, other, loss)}"
        yield Reading(choices, [times_as_many(runs, other, csgd, loss, 1.0, text)], own=task.two_way)


def saves_against_audp(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA needs at most a tenth of AUDP's updates, at K = 10 and 100."""
    for (task, loss, choices), bound, count in itertools.product(_losses(runs, 3), plan.BOUNDS, plan.COUNTS):
        few, many = cell_of(task, count, "MAPA"), cell_of(task, count, "AUDP", bound)
        counts = f"MAPA {_count(runs, few, loss)} updates, AUDP {_count(runs, many, loss)}"
        part = times_as_many(runs, many, few, loss, 10.0, f"K = {count}: {counts}", " (bar: ten times as many)")
        yield Reading({**choices, "G": bound}, [part], own=task.two_way and bound == UNCLIPPED)


def saves_against_asgd(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA needs two orders fewer updates than ASGD."""
    for usps, loss, choices in _losses(runs, 2):
        for count, task in _counted(usps.choice)[1:]:
            few, many = cell_of(task, count, "MAPA"), cell_of(task, count, "ASGD")
            counts = f"MAPA {_count(runs, few, loss)} updates, ASGD {_count(runs, many, loss)}"
            text, bar = f"K = {count:,} on {task.data}: {counts}", " (bar: 32 times as many, 1.5 orders)"
            yield Reading(choices, [times_as_many(runs, many, few, loss, 10**1.5, text, bar)], own=usps.two_way)


def _gain(runs: Runs, section: Section, one: Cell, other: Cell, updates: int) -> tuple[float, ...]:
    """Return the first cell's lead after a number of updates, in points."""
    return runs.pairs(section, one, other, lambda a, b: accuracy_after(a, updates) - accuracy_after(b, updates))


def _after(runs: Runs, section: Section, cell: Cell, updates: int) -> str:
    return show(runs.each(section, cell, partial(accuracy_after, updates=updates)), 1)


def _ahead(runs: Runs, one: Cell, other: Cell, updates: int, bar: float = 0.0, setting: str = "") -> Part:
    """Return whether one cell of the testbed leads another after some updates."""
    first, second = (_after(runs, plan.TESTBED, cell, updates) for cell in (one, other))
    text = f"{setting}{first} % against {other[0]}'s {second} %" + (f" (bar: {-bar:g} points)" if bar else "")
    return above(_gain(runs, plan.TESTBED, one, other, updates), bar, text, 0.0 if bar else NONE)


def on_the_testbed(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA is more accurate than AUDP with every number of servers."""
    runs.require(plan.TESTBED)
    for bound, updates in itertools.product((plan.FOUR, UNCLIPPED), BETWEEN):
        for count in plan.SERVERS:
            audp = cell_of("AUDP", count, bound)
            part = _ahead(runs, ("MAPA", count), audp, updates, setting=f"K = {count}: ")
            yield Reading({"G": bound, "after": f"{updates:,} updates"}, [part], own=bound == UNCLIPPED)


def join(runs: Runs) -> Iterator[Reading]:
    """Judge whether servers can join: they take part, and nothing is lost."""
    gap = runs.ahead(plan.JOINING, (plan.LATER,), (plan.FROM_START,))
    shares = runs.each(
        plan.JOINING, (plan.LATER,), lambda run: 100 * float(run.clients["updates"][3:].sum() / run.manifest.updates)
    )
    took = exactly(min(shares) > 0.0, f"the two make {show(shares, 1)} % of all updates")
    text = f"{show(gap, sign=True)} points against all from the start (bar: {CLOSE:g} points either way)"
    yield Reading({}, [took, within(gap, CLOSE, text)], own=True)


def beyond_asgd_on_the_testbed(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA is more accurate than ASGD with the most servers."""
    count = plan.SERVERS[-1]
    for updates in BETWEEN:
        part = _ahead(runs, ("MAPA", count), ("ASGD", count), updates, setting=f"K = {count}: ")
        yield Reading({"after": f"{updates:,} updates"}, [part])


def near_csgd(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA and AUDP come close to CSGD."""
    runs.require(plan.TESTBED)
    for bound, count, name in itertools.product((plan.FOUR, UNCLIPPED), plan.SERVERS, ("MAPA", "AUDP")):
        cell = cell_of(name, count, bound if name == "AUDP" else "")
        part = _ahead(runs, cell, ("CSGD",), BETWEEN[-1], -CLOSE, setting=f"{name}, K = {count}: ")
        yield Reading({"G": bound}, [part], own=bound == UNCLIPPED)


def tried(name: str) -> dict[float, Cell]:
    """Return the cells of a parameter's values, in ascending order of the values."""
    cells: dict[float, Cell] = {
        **{value: (name, value) for value in plan.TRIED[name][1]},
        plan.DEFAULTS[name]: ("default",),
    }
    return {value: cells[value] for value in sorted(cells)}


def _curve(runs: Runs, name: str, updates: int) -> str:
    ends = (
        f"{_after(runs, plan.PARAMETERS, cell, updates)} % at {name} = {value:g}" for value, cell in tried(name).items()
    )
    return f"after {updates:,} updates {', '.join(ends)}"


def no_matter(runs: Runs, name: str) -> Iterator[Reading]:
    """Judge whether a parameter leaves the final accuracy unchanged."""
    parts: list[Part] = []
    for value in plan.TRIED[name][1]:
        gain = _gain(runs, plan.PARAMETERS, (name, value), ("default",), BETWEEN[-1])
        curve = "" if parts else f"{_curve(runs, name, BETWEEN[-1])}: "
        text = (
            f"{curve}{value:g} for {plan.DEFAULTS[name]:g} makes {show(gain, 1, True)} points (bar: {CLOSE:g} points)"
        )
        parts.append(within(gain, CLOSE, text))
    yield Reading({}, parts, own=True)


def matters(runs: Runs) -> Iterator[Reading]:
    """Judge whether accuracy depends on epsilon."""
    (value,) = plan.TRIED["ε"][1]
    gain = _gain(runs, plan.PARAMETERS, ("default",), ("ε", value), BETWEEN[-1])
    text = f"{_curve(runs, 'ε', BETWEEN[-1])} (bar: {CLOSE:g} points)"
    yield Reading({}, [above(gain, CLOSE, text)], own=True)


def rises(runs: Runs, name: str, updates: int, falling: bool = False) -> Iterator[Reading]:
    """Judge whether accuracy grows, or falls, along a parameter's values."""
    judge = below if falling else above
    parts: list[Part] = []
    for less, more in itertools.pairwise(tried(name).values()):
        gain = _gain(runs, plan.PARAMETERS, more, less, updates)
        curve = "" if parts else f"{_curve(runs, name, updates)}: "
        parts.append(judge(gain, 0.0, f"{curve}{show(gain, 1, True)} points from one value to the next", NONE))
    yield Reading({}, parts, own=True)


def private(runs: Runs) -> Iterator[Reading]:
    """Judge whether an iteration is ε-private."""
    runs.require(ACCURACY)
    drawn = runs.epsilon(ACCURACY, cell_of(plan.PARITY, "MAPA", plan.SIGMAS[0], 0.1))
    text = "its length is drawn as in one dimension, and no ε is certified"
    yield Reading({"noise": "as the code draws it"}, [exactly(not any(map(math.isnan, drawn)), text)])
    if runs.has(PRIVATE):
        certified = runs.epsilon(PRIVATE, ("MAPA", 0.1))
        text = f"the whole run is certified with ε = {show(certified)}, δ = 1e-5, at ε = 0.1 of an iteration"
        part = exactly(not any(map(math.isnan, certified)), text)
        yield Reading({"noise": "of the printed density"}, [part])
    cost = printed_epsilon(0.1, plan.BATCH)
    text = f"two clipped means differ by b ΔS: an iteration costs {cost:g} at ε = 0.1, b = {plan.BATCH} times as much"
    choices = {"noise": "of the printed density, on a clipped mean as printed"}
    yield Reading(choices, [exactly(cost <= 0.1, text)], own=True)


def useful_and_private(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA comes close to ASGD with noise that is certified."""
    runs.require(PRIVATE)
    for cell in runs.cells(PRIVATE):
        if cell[0] != "AUDP":
            best = mean(runs.accuracy(ACCURACY, cell_of(plan.TEN_WAY[0], "ASGD", plan.SIGMAS[0])))
            accuracies = runs.accuracy(PRIVATE, cell)
            text = f"{show(accuracies, 1)} %, ASGD without noise {best:.1f} % (bar: 10 points behind)"
            choices = {"ε": f"{cell[1]:g}", "stages": "one dimension" if cell[0] != "MAPA" else "all dimensions"}
            own = cell[1] in plan.EPSILONS and cell[0] != "MAPA"  # the text counts with one dimension
            yield Reading(choices, [above(accuracies, best - 10.0, text)], own=own)


INVERTED = 100
"""Number of images that are inferred."""
LEVELS = (0.01, 0.1, 1.0)
LAWS: dict[str, type[LaplaceL2] | type[LaplaceL2RadiusOnly]] = {
    "as the code draws it": LaplaceL2RadiusOnly,
    "of the printed density": LaplaceL2,
}
"""The noise of Figure 4."""


@lru_cache(maxsize=1)
def correlations() -> dict[tuple[str, float], tuple[tuple[float, ...], ...]]:
    """Return correlations of inferred images with the originals.

    For each law of noise and epsilon, and for each of `SEEDS` seeds, there is one for each of the first `INVERTED`
    images of MNIST: LR at its first model, one image's gradient clipped to 1, the attack of `input_from`.

    Raises:
        NotMeasuredError: there is no MNIST.
    """
    import jax

    from simfl.assembly.data import load_data
    from simfl.attacks.inversion import input_from
    from simfl.models import build_model
    from simfl.privacy.noise import SAMPLERS
    from simfl.scenario import from_mapping
    from simfl.streams import Streams

    try:
        data = load_data(from_mapping({"algorithm": "adpsgd", "data": {"set": "mnist"}}), Streams(1)).floats()
    except DataError as error:
        raise NotMeasuredError(f"Figure 4: {error}") from error
    model = build_model("softmax", input_shape=data.input_shape, num_classes=data.num_classes)
    one = np.ones(1, np.float32)
    gradient = jax.jit(lambda x, y: model.clipped_gradient_sum(np.zeros(model.size, np.float32), x, y, one, 1.0))
    images = np.asarray(data.train_x[:INVERTED])
    gradients = [np.asarray(gradient(x[None], y[None])) for x, y in zip(images, data.train_y[:INVERTED], strict=True)]
    inferred = {}
    for law, kind in LAWS.items():
        sampler = jax.jit(SAMPLERS[kind.sampler], static_argnums=3)
        draws = [
            [
                np.asarray(sampler(Streams(seed).key("noise"), np.int32(0), np.int32(draw), model.size))
                for draw in range(INVERTED)
            ]
            for seed in range(1, SEEDS + 1)
        ]
        for epsilon in LEVELS:
            scale = kind(clipping_norm=1.0, neighbors="replace_one", epsilon_per_release=epsilon).scale(model.size)
            inferred[law, epsilon] = tuple(
                tuple(
                    float(np.corrcoef(input_from(model, g + scale * noise).ravel(), image.ravel())[0, 1])
                    for g, noise, image in zip(gradients, of_seed, images, strict=True)
                )
                for of_seed in draws
            )
    return inferred


def _inferred(law: str, epsilon: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean correlation, and that of the best tenth, of every seed."""
    of_seeds = correlations()[law, epsilon]
    best = [sorted(values)[-(len(values) // 10) :] for values in of_seeds]
    return tuple(float(np.mean(values)) for values in of_seeds), tuple(float(np.mean(values)) for values in best)


def inversion_numbers(_: Runs) -> Iterator[Number]:
    """Yield Figure 4."""
    part = f"Figure 4: correlation of inferred images with the originals, LR at its first model, {INVERTED} of MNIST"
    for law, epsilon in itertools.product(LAWS, LEVELS):
        for column, values in zip(("mean", "best tenth"), _inferred(law, epsilon), strict=True):
            yield Number(part, f"noise {law}, ε = {epsilon:g}", column, values, digits=3)


def blurs(_: Runs) -> Iterator[Reading]:
    """Judge whether images are blurred at small ε, and some are seen at large ε."""
    few, many = LEVELS[0], LEVELS[-1]
    for law in LAWS:
        mean_, best = _inferred(law, few)[0], _inferred(law, many)[1]
        parts = [
            below(mean_, 0.1, f"correlation {show(mean_)} with the originals at ε = {few:g} (bar: 0.1)"),
            above(best, 0.5, f"{show(best)} of the best tenth at ε = {many:g} (bar: 0.5)"),
        ]
        yield Reading({"noise": law}, parts)
