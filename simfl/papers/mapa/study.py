"""MAPA against AUDP, ASGD and CSGD: accuracy, convergence, parameters."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simfl.papers.drawing import labeled, log_axis, panels, with_bars
from simfl.plots.style import PALETTE, color_of
from simfl.records import Run
from simfl.records.comparison import median_of
from simfl.studies.evidence import SEEDS, NotMeasuredError, Part, Reading, above, below, exactly, show, within
from simfl.studies.papers import Cell, Experiment, Number, Paper, PaperClaim, Runs, Section, mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETS = {"USPS": "{{set: libsvm, path: usps{}}}", "MNIST": "{{set: mnist{}}}"}
LARGEST = {"USPS": 15.655, "MNIST": 17.209}
"""Largest norm of a training example with the constant 1 beside it: gradients of a linear model are multiples of it."""
STEEPEST = {"ten-way": math.sqrt(2), "0 or 1": 1.0, "3 or 5": 1.0, "worst class": math.sqrt(2),
            "each class": math.sqrt(10)}  # fmt: skip
"""Largest gradient of the losses with respect to the logits, of any model."""
AT_START = {"USPS": 26.73}
"""Largest gradient of an example at the convolutional network's initial models of the five seeds."""


@dataclass(frozen=True)
class Task:
    """A model and the data that it learns.

    Args:
        model: LR, SVM or CNN.
        choice: what the paper leaves open of it: the two classes of LR, the hinge of SVM.
        data: USPS or MNIST.
    """

    model: str
    choice: str
    data: str

    def __str__(self) -> str:
        return f"{', '.join(filter(None, (self.model, self.choice)))} on {self.data}"

    @property
    def changes(self) -> tuple[str, ...]:
        """The overrides that make a scenario its."""
        two = self.choice in ("0 or 1", "3 or 5")
        classes = f", classes: [{self.choice.replace(' or', ',')}]" if two else ""
        kind = {"LR": "logistic" if two else "softmax", "SVM": "svm", "CNN": "cnn"}[self.model]
        hinge = ", loss_kind: one_vs_rest" if self.choice == "each class" else ""
        return f"data={SETS[self.data].format(classes)}", f"model={{kind: {kind}, l2: 1e-4{hinge}}}"

    @property
    def choices(self) -> dict[str, str]:
        """The words of a reading."""
        names = {"LR": "classes", "SVM": "hinge of"}
        return {"data": self.data, **({names[self.model]: self.choice} if self.choice else {})}

    @property
    def bound(self) -> float:
        """The largest norm of a gradient: AUDP's G, "determined by actual model"."""
        return STEEPEST[self.choice] * LARGEST[self.data] if self.choice else AT_START[self.data]


UPDATES = {"LR": 15_000, "SVM": 10_000, "CNN": 25_000}
CHOICES = {"LR": ("ten-way", "0 or 1", "3 or 5"), "SVM": ("worst class", "each class"), "CNN": ("",)}
TASKS = [Task(model, choice, data) for model in CHOICES for choice in CHOICES[model] for data in SETS]
TEN_WAY = [Task("LR", "ten-way", data) for data in SETS]
NETWORK = Task("CNN", "", "MNIST")
KINDS = {"MAPA": "mapa", "AUDP": "audp", "ASGD": "async_sgd", "CSGD": "centralized_sgd"}
SIGMAS, EPSILONS = (5, 14, 30), (0.1, 0.3, 0.5)
"""σ of all algorithms: the code's, that of USPS at the first model, and the default of Figure 9."""
MEASURED, FOUR, UNCLIPPED = "measured", "4", "4, unclipped"
BOUNDS = (MEASURED, FOUR, UNCLIPPED)
"""AUDP's G: what the data have, that of the published code, and the latter's noise without clipping."""
NO_CLIP = 1000.0
"""A clipping norm that no gradient here comes near."""

ACCURACY = Section("Figure 6", ("σ = {:g}", "ε = {:g}"))
NORMS = Section("Figure 5", ("σ = {:g}", "C from {:g}"))
CONVERGENCE = Section("Figure 7", ("K = {}", "σ = {:g}"))
TESTBED = Section("Figure 8", ("K = {}",))
PARAMETERS = Section("Figure 9", ("{:g}",), " = ")
PRIVATE = Section("noise of the right law", ("ε = {:g}",))

CLIPS = {"AUDP": (15, 3, 0.2), "MAPA": (200, 100, 10)}
LOSSES = (1.0, 0.6, 0.3)
"""Training losses at which a run of Figure 7 may count as converged."""
COUNTS = (10, 100)
"""Servers of Figure 7 on USPS, which has too few examples for 1,000."""
ASYNCHRONOUS = {"MAPA": "", "AUDP": MEASURED, "ASGD": ""}
"""What is compared over the number of servers, and its G."""
SERVERS = (5, 20)
"""Those of Figure 8."""
TRIED: dict[str, tuple[str, tuple[float, ...]]] = {
    "ε": ("privacy.epsilon_per_release", (0.01,)),
    "b": ("algorithm.batch_size", (24,)),
    "L": ("algorithm.smoothness", (2.5,)),
    "σ": ("algorithm.sampling_std", (5, 100)),
    "δ": ("algorithm.failure_probability", (1e-5, 1e-1)),
    "θ": ("algorithm.reduction", (0.25, 0.75)),
}
DEFAULTS = {"ε": 0.1, "b": 12.0, "L": 10.0, "σ": 30.0, "δ": 1e-3, "θ": 0.5}
BETWEEN = (2_500, 5_000, 10_000)
"""Updates after which the networks of Figures 8 and 9 are looked at."""
CLOSE = 3.0
"""Points of accuracy within which two settings are alike."""


def _file(algorithm: str) -> str:
    return f"mapa/usps-lr-{algorithm.lower()}.yaml"


def _changes(algorithm: str, task: Task, updates: int, every: int, sigma: float | None = None) -> tuple[str, ...]:
    protects = task.model == "CNN" and algorithm in CLIPS
    return (
        *task.changes,
        f"stop.updates={updates}",
        f"evaluate.every.updates={every}",
        "record.updates=false",
        *(["privacy.noise_on=first_convolution"] if protects else []),  # as the paper has it
        *([f"algorithm.sampling_std={sigma}"] if sigma is not None else []),
    )


def _noise(task: Task, bound: str, epsilon: float) -> tuple[str, ...]:
    """Return AUDP's clipping and noise; unclipped, the noise is that of norm 4."""
    norm = task.bound if bound == MEASURED else {FOUR: 4.0, UNCLIPPED: NO_CLIP}[bound]
    size = epsilon * norm / 4.0 if bound == UNCLIPPED else epsilon
    return f"privacy.clipping_norm={norm:g}", f"privacy.epsilon_per_release={size:g}"


def experiments(quick: bool) -> Sequence[Experiment]:
    """Return the experiments; the quick form has USPS, one model and one σ."""
    if quick:
        return [*over_epsilon([TEN_WAY[0]], (5,), (0.1, 0.5)), *over_clips((30,))]
    return [
        *over_epsilon(TEN_WAY[:1], SIGMAS, EPSILONS),
        # MNIST, and other models on the smaller set alone, at the code's σ: a run on MNIST takes four times as long.
        *over_epsilon(TEN_WAY[1:], SIGMAS[:1], EPSILONS[::2]),
        *over_epsilon([task for task in TASKS if task.choice and task.data == "USPS"][1:], SIGMAS[:1], EPSILONS[::2]),
        *on_network(),
        *over_clips((5, 30)),
        *over_servers(),
        *on_testbed(),
        *over_parameters(),
        *private_noise(),
    ]


def over_epsilon(tasks: Sequence[Task], sigmas: Sequence[float], epsilons: Sequence[float]) -> Iterator[Experiment]:
    """Yield Figure 6 for linear models; AUDP at extreme epsilons only."""
    ends = (epsilons[0], epsilons[-1])
    for task, sigma in itertools.product(tasks, sigmas):
        places: list[Cell] = [("ASGD", sigma), ("CSGD", sigma), *(("MAPA", sigma, epsilon) for epsilon in epsilons)]
        places += [("AUDP", sigma, bound, epsilon) for bound in BOUNDS for epsilon in ends]
        yield from (_at_end(task, *place) for place in places)


def on_network() -> Iterator[Experiment]:
    """Yield Figure 6 for the network on the smaller set."""
    places: list[Cell] = [("MAPA", 5, 0.1), ("MAPA", 5, 0.5), ("ASGD", 5), ("CSGD", 5)]
    places += [("AUDP", 5, bound, 0.1) for bound in BOUNDS]
    yield from (_at_end(Task("CNN", "", "USPS"), *place) for place in places)


def _at_end(task: Task, algorithm: str, sigma: float, *rest: Any) -> Experiment:
    """Return runs that are looked at when they end."""
    updates = UPDATES[task.model]
    own: tuple[str, ...] = ()
    if algorithm == "AUDP":
        own = _noise(task, *rest)
    elif algorithm == "MAPA":
        own = (f"privacy.epsilon_per_release={rest[0]:g}",)
    cell = str(task), algorithm, sigma, *(f"G: {part}" if isinstance(part, str) else part for part in rest)
    return Experiment(
        ACCURACY, cell, _file(algorithm), (*_changes(algorithm, task, updates, updates, sigma), *own), SEEDS
    )


def over_clips(sigmas: Sequence[float]) -> Iterator[Experiment]:
    """Yield figure 5: norms of clipped gradients, K = 100."""
    task, common = TEN_WAY[0], ("clients.count=100", "evaluate.gradients=1000")
    for sigma in sigmas:
        yield Experiment(
            NORMS, ("ASGD", sigma), _file("ASGD"), (*_changes("ASGD", task, 15_000, 250, sigma), *common), SEEDS
        )
        for algorithm, clips in CLIPS.items():
            for clip in clips:
                fixed = ("algorithm.failure_probability=null",) if algorithm == "MAPA" else ()
                own = (*common, f"privacy.clipping_norm={clip}", *fixed)
                changes = (*_changes(algorithm, task, 15_000, 250, sigma), *own)
                yield Experiment(NORMS, (algorithm, sigma, clip), _file(algorithm), changes, SEEDS)


def over_servers() -> Iterator[Experiment]:
    """Yield figure 7: K edge servers that take turns."""
    usps, mnist = TEN_WAY
    yield _converging(usps, 1, "CSGD", 5, 3_000, 20)
    yield _converging(usps, 10, "ASGD", 5, 15_000)
    yield _converging(usps, 100, "ASGD", 5, 250_000, 500)
    for count in COUNTS:
        yield _converging(usps, count, "MAPA", 5, 40_000)
        for bound in BOUNDS:  # ten times what MAPA needs, where AUDP is slow
            yield _converging(usps, count, "AUDP", 5, 120_000 if bound == MEASURED else 30_000, bound=bound)
    yield _converging(mnist, 1000, "MAPA", 5, 150_000, 1_500)
    yield _converging(mnist, 1000, "ASGD", 5, 20_000, 500)


def _converging(
    task: Task, count: int, algorithm: str, sigma: float, limit: int, every: int = 100, bound: str = ""
) -> Experiment:  # fmt: skip
    servers = () if algorithm == "CSGD" else (f"clients.count={count}",)
    noise = _noise(task, bound, 0.1) if bound else ()
    cell = str(task), count, algorithm, sigma, *([f"G: {bound}"] if bound else [])
    changes = (*_changes(algorithm, task, limit, every, sigma), *servers, *noise)
    return Experiment(CONVERGENCE, cell, _file(algorithm), changes, SEEDS)


_WORLD = ("clients.speed={kind: lognormal, sigma: 0.5}", "algorithm.delays=world")
_WORLD_INSTEAD = "a simulated world for the testbed"


def on_testbed() -> Iterator[Experiment]:
    """Yield figure 8: delays from the servers' speeds and links."""
    for count in SERVERS:
        places = [("MAPA", ""), ("AUDP", FOUR), ("AUDP", UNCLIPPED)]
        places += [("ASGD", "")] * (count == SERVERS[-1])
        for algorithm, bound in places:
            own = (*_WORLD, f"clients.count={count}", *(_noise(NETWORK, bound, 0.1) if bound else ()))
            changes = (*_changes(algorithm, NETWORK, BETWEEN[-1], BETWEEN[0], 30), *own)
            cell = algorithm, count, *([f"G: {bound}"] if bound else [])
            yield Experiment(TESTBED, cell, _file(algorithm), changes, SEEDS)
    yield Experiment(TESTBED, ("CSGD",), _file("CSGD"), _changes("CSGD", NETWORK, BETWEEN[-1], BETWEEN[0], 30), SEEDS)


def over_parameters() -> Iterator[Experiment]:
    """Yield Figure 9: MAPA with one changed parameter; defaults are in Figure 8."""
    changes = (*_changes("MAPA", NETWORK, BETWEEN[-1], BETWEEN[0], 30), *_WORLD, "clients.count=5")
    yield Experiment(PARAMETERS, ("default",), _file("MAPA"), changes, SEEDS)
    for name, (path, values) in TRIED.items():
        for value in values:
            yield Experiment(PARAMETERS, (name, value), _file("MAPA"), (*changes, f"{path}={value}"), SEEDS)


def private_noise() -> Iterator[Experiment]:
    """Yield runs whose noise is private."""
    for epsilon in (0.1, 0.5, 10.0):
        own = (
            "privacy.mechanism=laplace_l2",
            "privacy.neighbors=replace_one",
            f"privacy.epsilon_per_release={epsilon}",
        )
        for algorithm, file in (("MAPA", "mapa"), ("AUDP", "audp"), ("MAPA, stages as in one dimension", "sound")):
            changes = (*_changes("MAPA", TEN_WAY[0], 15_000, 1_500), *own)
            yield Experiment(PRIVATE, (algorithm, epsilon), _file(file), changes, SEEDS)


# -- numbers ---------------------------------------------------------------------------------------


def epsilon_numbers(runs: Runs) -> Iterator[Number]:
    """Yield figure 6."""
    part = f"{ACCURACY}: noise of the published code, which is private for no ε"
    for cell in runs.cells(ACCURACY):
        row, column = (cell[:-1], f"ε = {cell[-1]:g}") if cell[1] in CLIPS else (cell, "no noise")
        accuracies = runs.accuracy(ACCURACY, cell)
        yield Number(part, ACCURACY.label(*row), column, accuracies, digits=1, unit="test accuracy, %")


def norm_numbers(runs: Runs) -> Iterator[Number]:
    """Yield figure 5."""
    part = f"{NORMS}: norm of the mean of 1,000 clipped gradients, LR on USPS, K = 100, ε = 0.1"
    for cell in runs.cells(NORMS):
        row = NORMS.label(*cell)
        for updates in (0, 500, 2_500, 15_000):
            norms = runs.each(NORMS, cell, functools.partial(_at, updates=updates, column="gradient_norm"))
            yield Number(part, row, f"after {updates:,} updates", norms, digits=3)
        if cell[0] != "ASGD":
            last = runs.each(NORMS, cell, lambda run: float(run.metrics["clipping_norm"].iloc[-1]))
            yield Number(part, row, "last C", last, digits=3)
        yield Number(part, row, "test accuracy, %", runs.accuracy(NORMS, cell), digits=1)


def _at(run: Run, updates: int, column: str) -> float:
    metrics = run.metrics
    return float(metrics[column][metrics["updates"] == updates].iloc[0])


def updates_until(run: Run, loss: float) -> float:
    """Return the updates until five successive losses average below the bar; or inf.

    They are those of the middle one of the five, and between two such means on the line through both: how often losses
    are measured then has no part in it.
    """
    metrics = run.metrics
    average = metrics["train_loss"].rolling(5, center=True).mean().to_numpy()
    updates, below_bar = metrics["updates"].to_numpy(), average < loss
    if not below_bar.any():
        return math.inf
    first = int(below_bar.argmax())
    before, after = average[first - 1], average[first]
    if math.isnan(before):  # the first mean that there is
        return float(updates[first])
    return float(updates[first - 1] + (before - loss) / (before - after) * (updates[first] - updates[first - 1]))


def updates_at_least(run: Run, loss: float) -> float:
    """Return the updates until the loss is below the bar, or the run's number.

    Of ASGD these are as many as it takes at the mean rate of the run: its steps are so short and free of noise that it
    follows the gradient flow of a convex function, whose value falls ever more slowly.
    """
    updates, metrics = updates_until(run, loss), run.metrics
    if math.isfinite(updates):
        return updates
    losses, last = metrics["train_loss"], float(metrics["updates"].iloc[-1])
    fallen = float(losses.iloc[0] - losses.iloc[-1])
    if run.algorithm == KINDS["ASGD"] and fallen > 0.0:
        return max(last, last * (float(losses.iloc[0]) - loss) / fallen)
    return last


def convergence_numbers(runs: Runs) -> Iterator[Number]:
    """Yield figure 7."""
    for loss in LOSSES:
        part = f"{CONVERGENCE}: updates until the training loss is below {loss:g} (inf: not within the run), ε = 0.1"
        for cell in runs.cells(CONVERGENCE):
            task, count, algorithm, sigma, *bound = cell
            updates = runs.each(CONVERGENCE, cell, functools.partial(updates_until, loss=loss))
            row = ", ".join([task, algorithm, f"σ = {sigma:g}", *bound])
            column = "one machine" if algorithm == "CSGD" else f"K = {count:,}"
            yield Number(part, row, column, updates, digits=0)


def testbed_numbers(runs: Runs) -> Iterator[Number]:
    """Yield figure 8."""
    yield from _over_updates(runs, TESTBED, "delays of a simulated world, CNN on MNIST, ε = 0.1, σ = 30")


def parameter_numbers(runs: Runs) -> Iterator[Number]:
    """Yield figure 9."""
    yield from _over_updates(
        runs, PARAMETERS, "MAPA, CNN on MNIST, K = 5 (default: ε = 0.1, b = 12, L = 10, σ = 30, δ = 1e-3, θ = 0.5)"
    )


def _over_updates(runs: Runs, section: Section, about: str) -> Iterator[Number]:
    for cell, updates in itertools.product(runs.cells(section), BETWEEN):
        accuracies = runs.each(section, cell, functools.partial(accuracy_after, updates=updates))
        yield Number(f"{section}: {about}", section.label(*cell), f"after {updates:,} updates", accuracies, digits=1,
                     unit="test accuracy, %")  # fmt: skip


def accuracy_after(run: Run, updates: int) -> float:
    """Return the test accuracy after some updates, in percent."""
    return 100 * _at(run, updates, "test_accuracy")


def private_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the accuracy that remains with private noise."""
    part = "Noise of the right law (laplace_l2): LR on USPS"
    for cell in runs.cells(PRIVATE):
        row = PRIVATE.label(*cell)
        yield Number(part, row, "test accuracy, %", runs.accuracy(PRIVATE, cell), digits=1)
        yield Number(part, row, "certified ε of the whole run, δ = 1e-5", runs.epsilon(PRIVATE, cell), digits=3)


# -- claims of figure 6 ----------------------------------------------------------------------------


def ran(runs: Runs, *models: str) -> Iterator[tuple[Task, int]]:
    """Yield the tasks of figure 6 that were run, with their σ."""
    for task, sigma in itertools.product(TASKS, SIGMAS):
        if (not models or task.model in models) and runs.cells(ACCURACY, str(task), "MAPA", sigma):
            yield task, sigma


def _choices(task: Task, sigma: int) -> dict[str, str]:
    """Return the words of a reading over all models."""
    return {"model": ", ".join(filter(None, (task.model, task.choice))), "data": task.data, "σ": f"{sigma}"}


def _lead(runs: Runs, task: Task, sigma: int, bound: str, epsilon: float) -> tuple[float, ...] | None:
    """Return MAPA's lead over AUDP in points; None if it was not run."""
    one, other = (str(task), "MAPA", sigma, epsilon), (str(task), "AUDP", sigma, f"G: {bound}", epsilon)
    return runs.ahead(ACCURACY, one, other) if runs.has(ACCURACY, one, other) else None


def beats_audp(runs: Runs, model: str) -> Iterator[Reading]:
    """Judge whether MAPA is more accurate than AUDP at the smallest epsilon."""
    for (task, sigma), bound in itertools.product(ran(runs, model), BOUNDS):
        values = _lead(runs, task, sigma, bound, 0.1)
        if values is not None:
            cell = str(task), "AUDP", sigma, f"G: {bound}", 0.1
            shown = show(runs.accuracy(ACCURACY, (str(task), "MAPA", sigma, 0.1)), 1)
            clip = runs.first(ACCURACY, cell).scenario["privacy"]["clipping_norm"]
            how = "unclipped" if bound == UNCLIPPED else f"clipped to {clip:.1f}"
            text = (
                f"{show(values, 1, True)} points ahead at ε = 0.1: {shown} % against AUDP's "
                f"{show(runs.accuracy(ACCURACY, cell), 1)} %, {how}"
            )
            yield Reading({**task.choices, "σ": f"{sigma}", "G": bound}, [above(values, 0.0, text)])


def leads_most_at_small_epsilon(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA's lead over AUDP is larger at ε = 0.1 than at 0.5."""
    for (task, sigma), bound in itertools.product(ran(runs), BOUNDS):
        small, large = (_lead(runs, task, sigma, bound, epsilon) for epsilon in (0.1, 0.5))
        if sigma == SIGMAS[0] and small is not None and large is not None:
            more = [one - other for one, other in zip(small, large, strict=True)]
            text = f"{show(small, 1, True)} points ahead at ε = 0.1, {show(large, 1, True)} at 0.5"
            choices = _choices(task, sigma)
            del choices["σ"]
            yield Reading({**choices, "G": bound}, [above(more, 0.0, text)])


def mapa_grows(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA's accuracy grows with epsilon."""
    for task, sigma in ran(runs):
        accuracies = runs.accuracies(ACCURACY, str(task), "MAPA", sigma)
        if len(accuracies) > 1:
            cells = [(str(task), "MAPA", sigma, epsilon) for epsilon in accuracies]
            curve = ", ".join(f"{show(values, 1)} at ε = {epsilon:g}" for epsilon, values in accuracies.items())
            parts = [above(runs.ahead(ACCURACY, cells[-1], cells[0]), 0.0, f"{curve} %")]
            for one, other in itertools.pairwise(cells):
                step = runs.ahead(ACCURACY, other, one)
                text = f"{show(step, 1, True)} from ε = {one[-1]:g} to {other[-1]:g} (bar: no fall of a point)"
                parts += [above(step, -1.0, text)] * (len(cells) > 2)
            yield Reading(_choices(task, sigma), parts)


def audp_grows(runs: Runs) -> Iterator[Reading]:
    """Judge whether AUDP's accuracy grows with epsilon."""
    for (task, sigma), bound in itertools.product(ran(runs), BOUNDS):
        small, large = ((str(task), "AUDP", sigma, f"G: {bound}", epsilon) for epsilon in (0.1, 0.5))
        if runs.has(ACCURACY, small, large):
            one, other = (show(runs.accuracy(ACCURACY, cell), 1) for cell in (small, large))
            text = f"{one} % at ε = 0.1, {other} % at 0.5"
            choices = {**_choices(task, sigma), "G": bound}
            yield Reading(choices, [above(runs.ahead(ACCURACY, large, small), 0.0, text)])


def _against(runs: Runs, name: str, lead: float, *models: str) -> Iterator[Reading]:
    """Judge whether MAPA at the largest epsilon beats an algorithm without noise."""
    for task, sigma in ran(runs, *models):
        one, other = (str(task), "MAPA", sigma, 0.5), (str(task), name, sigma)
        if runs.has(ACCURACY, one, other):
            shown = [show(runs.accuracy(ACCURACY, cell), 1) for cell in (one, other)]
            bar = f" (bar: {-lead:g} points behind)" if lead else ""
            text = f"{shown[0]} % at ε = 0.5, {name} {shown[1]} %{bar}"
            choices = _choices(task, sigma)
            yield Reading(choices, [above(runs.ahead(ACCURACY, one, other), lead, text)])


def near_asgd(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA at the largest epsilon comes close to ASGD."""
    return _against(runs, "ASGD", -CLOSE)


def beyond_asgd(runs: Runs) -> Iterator[Reading]:
    """Judge whether logistic regression by MAPA is even more accurate than by ASGD."""
    return _against(runs, "ASGD", 0.0, "LR")


def csgd_is_best(runs: Runs) -> Iterator[Reading]:
    """Judge whether no asynchronous algorithm is more accurate than one machine."""
    for task, sigma in ran(runs):
        best = str(task), "CSGD", sigma
        others = [(str(task), "ASGD", sigma), (str(task), "MAPA", sigma, 0.5)]
        if runs.has(ACCURACY, best, *others):
            shown = show(runs.accuracy(ACCURACY, best), 1)
            yield Reading(
                _choices(task, sigma),
                [
                    above(
                        runs.ahead(ACCURACY, best, other),
                        0.0,
                        f"{shown} %, {other[1]} {show(runs.accuracy(ACCURACY, other), 1)} %",
                    )
                    for other in others
                ],
            )


# -- claims of figure 5 ----------------------------------------------------------------------------


def _sigmas(runs: Runs) -> list[int]:
    return sorted({cell[1] for cell in runs.cells(NORMS)})


def _ends(runs: Runs, algorithm: str, sigma: int) -> str:
    accuracies = runs.accuracies(NORMS, algorithm, sigma)
    return ", ".join(f"{show(values, 1)} % from C = {clip:g}" for clip, values in accuracies.items())


def insensitive(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA ends alike whatever clipping norm it begins with."""
    for sigma in _sigmas(runs):
        cells = runs.cells(NORMS, "MAPA", sigma)
        said = _ends(runs, "MAPA", sigma)
        yield Reading(
            {"σ": f"{sigma}"},
            [
                within(
                    runs.ahead(NORMS, one, other),
                    CLOSE,
                    f"{said}: C = {one[2]:g} and {other[2]:g} differ by {show(runs.ahead(NORMS, one, other), 1, True)} "
                    f"(bar: {CLOSE:g} points)",
                )
                for one, other in itertools.combinations(cells, 2)
            ],
        )


def as_good_as_audp(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA ends about as accurate as AUDP at its best norm."""
    for sigma in _sigmas(runs):
        best = max(runs.cells(NORMS, "AUDP", sigma), key=lambda cell: mean(runs.accuracy(NORMS, cell)))
        said = f"AUDP with C = {best[2]:g} {show(runs.accuracy(NORMS, best), 1)} %, MAPA {_ends(runs, 'MAPA', sigma)}"
        yield Reading(
            {"σ": f"{sigma}"},
            [
                above(runs.ahead(NORMS, cell, best), -CLOSE, f"{said}, here C = {cell[2]:g} (bar: {CLOSE:g} points)")
                for cell in runs.cells(NORMS, "MAPA", sigma)
            ],
        )


def bad_bound(runs: Runs, bad: float, least: float) -> Iterator[Reading]:
    """Judge whether AUDP loses more than `least` points with a bad norm."""
    for sigma in _sigmas(runs):
        lost = runs.ahead(NORMS, ("AUDP", sigma, 3), ("AUDP", sigma, bad))
        text = f"{_ends(runs, 'AUDP', sigma)}: C = 3 is {show(lost, 1, True)} points ahead (bar: {least:g})"
        yield Reading({"σ": f"{sigma}"}, [above(lost, least, text)])


# -- claims of figure 7 ----------------------------------------------------------------------------


def _count(runs: Runs, cell: Cell, loss: float) -> str:
    """Write how many updates a cell needs."""
    shown = f"{median_of(runs.each(CONVERGENCE, cell, functools.partial(updates_at_least, loss=loss))).mean:,.0f}"
    return shown if _all_there(runs, cell, loss) else f"at least {shown}"


def _all_there(runs: Runs, cell: Cell, loss: float) -> bool:
    return all(map(math.isfinite, runs.each(CONVERGENCE, cell, functools.partial(updates_until, loss=loss))))


def times_as_many(runs: Runs, many: Cell, few: Cell, loss: float, times: float, text: str) -> Part:
    """Return whether one cell needs more than `times` as many updates as another.

    Where runs end before they converge, what they had is the least that they need: that is enough to be more, not to
    be fewer.
    """

    def orders(one: Run, other: Run) -> float:
        return math.log10(updates_at_least(one, loss) / updates_at_least(other, loss))

    evidence = above(runs.pairs(CONVERGENCE, many, few, orders), math.log10(times), text)
    open_ = {False: not _all_there(runs, many, loss), True: not _all_there(runs, few, loss)}
    return Part(None, evidence.text) if evidence.held is not None and open_[evidence.held] else evidence


def _of(task: Task, count: int, algorithm: str, sigma: int, bound: str = "") -> Cell:
    return str(task), count, algorithm, sigma, *([f"G: {bound}"] if bound else [])


def more_servers(runs: Runs) -> Iterator[Reading]:
    """Judge whether asynchronous algorithms need more updates with more servers."""
    runs.require(CONVERGENCE)
    for (name, bound), loss in itertools.product(ASYNCHRONOUS.items(), LOSSES[:2]):
        fewer, more = (_of(TEN_WAY[0], count, name, 5, bound) for count in COUNTS)
        said = " and ".join(_count(runs, cell, loss) for cell in (fewer, more))
        text = f"{said} updates at K = {COUNTS[0]} and {COUNTS[1]}"
        yield Reading({"algorithm": name, "loss": f"{loss:g}"}, [times_as_many(runs, more, fewer, loss, 1.0, text)])


def fewest_on_one_machine(runs: Runs) -> Iterator[Reading]:
    """Judge whether CSGD needs the fewest updates, against 10 servers."""
    runs.require(CONVERGENCE)
    one = _of(TEN_WAY[0], 1, "CSGD", 5)
    for loss in LOSSES:
        parts = []
        for name, bound in ASYNCHRONOUS.items():
            other = _of(TEN_WAY[0], 10, name, 5, bound)
            text = f"CSGD {_count(runs, one, loss)} updates, {name} {_count(runs, other, loss)}"
            parts.append(times_as_many(runs, other, one, loss, 1.0, text))
        yield Reading({"loss": f"{loss:g}"}, parts)


def saves_against_audp(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA needs at most a tenth of AUDP's updates, at K = 10 and 100."""
    runs.require(CONVERGENCE)
    for count, bound, loss in itertools.product(COUNTS, BOUNDS, LOSSES):
        few, many = _of(TEN_WAY[0], count, "MAPA", 5), _of(TEN_WAY[0], count, "AUDP", 5, bound)
        text = f"MAPA {_count(runs, few, loss)} updates, AUDP {_count(runs, many, loss)} (bar: ten times as many)"
        choices = {"K": f"{count}", "G": bound, "loss": f"{loss:g}"}
        yield Reading(choices, [times_as_many(runs, many, few, loss, 10.0, text)])


def saves_against_asgd(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA needs two orders fewer updates than ASGD."""
    runs.require(CONVERGENCE)
    for (count, task), loss in itertools.product(((100, TEN_WAY[0]), (1000, TEN_WAY[1])), LOSSES[:2]):
        few, many = _of(task, count, "MAPA", 5), _of(task, count, "ASGD", 5)
        text = (
            f"MAPA {_count(runs, few, loss)} updates, ASGD {_count(runs, many, loss)} (bar: 32 times as many, "
            "1.5 orders)"
        )
        choices = {"K": f"{count:,} on {task.data}", "loss": f"{loss:g}"}
        yield Reading(choices, [times_as_many(runs, many, few, loss, 10**1.5, text)])


# -- claims of figures 8 and 9 ---------------------------------------------------------------------


def _gain(runs: Runs, section: Section, one: Cell, other: Cell, updates: int) -> tuple[float, ...]:
    """Return by how many points the first cell is ahead after some updates."""
    return runs.pairs(section, one, other, lambda a, b: accuracy_after(a, updates) - accuracy_after(b, updates))


def _after(runs: Runs, section: Section, cell: Cell, updates: int) -> str:
    return show(runs.each(section, cell, functools.partial(accuracy_after, updates=updates)), 1)


def on_the_testbed(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA is more accurate than AUDP with the delays of a world."""
    for count, bound, updates in itertools.product(SERVERS, (FOUR, UNCLIPPED), BETWEEN):
        one, other = ("MAPA", count), ("AUDP", count, f"G: {bound}")
        said = [_after(runs, TESTBED, cell, updates) for cell in (one, other)]
        yield Reading(
            {"K": f"{count}", "G": bound, "after": f"{updates:,} updates"},
            [above(_gain(runs, TESTBED, one, other, updates), 0.0, f"{said[0]} % against AUDP's {said[1]} %")],
        )


def beyond_asgd_on_the_testbed(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA is more accurate than ASGD where servers are many."""
    for updates in BETWEEN:
        one, other = (("MAPA", SERVERS[-1]), ("ASGD", SERVERS[-1]))
        said = [_after(runs, TESTBED, cell, updates) for cell in (one, other)]
        text = f"K = {SERVERS[-1]}: {said[0]} % against ASGD's {said[1]} %"
        yield Reading({"after": f"{updates:,} updates"}, [above(_gain(runs, TESTBED, one, other, updates), 0.0, text)])


def near_csgd(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA and AUDP come close to CSGD."""
    last = BETWEEN[-1]
    for cell in (*runs.cells(TESTBED, "MAPA"), *runs.cells(TESTBED, "AUDP")):
        text = (
            f"{_after(runs, TESTBED, cell, last)} % against CSGD's {_after(runs, TESTBED, ('CSGD',), last)} % "
            f"(bar: {CLOSE:g} points)"
        )
        name = f"{cell[0]}, {cell[2]}" if cell[2:] else cell[0]
        yield Reading(
            {"K": f"{cell[1]}", "algorithm": name},
            [above(_gain(runs, TESTBED, cell, ("CSGD",), last), -CLOSE, text)],
        )


def _tried(name: str) -> dict[float, Cell]:
    """Return the values of a parameter, in their order, and where they are."""
    cells: dict[float, Cell] = {**{value: (name, value) for value in TRIED[name][1]}, DEFAULTS[name]: ("default",)}
    return {value: cells[value] for value in sorted(cells)}


def _curve(runs: Runs, name: str, updates: int) -> str:
    curve = ", ".join(f"{_after(runs, PARAMETERS, cell, updates)} at {value:g}" for value, cell in _tried(name).items())
    return f"{name}: {curve} % after {updates:,} updates"


def no_matter(runs: Runs, name: str) -> Iterator[Reading]:
    """Judge whether a parameter does not matter in the end."""
    for value in TRIED[name][1]:
        gain = _gain(runs, PARAMETERS, (name, value), ("default",), BETWEEN[-1])
        text = f"{_curve(runs, name, BETWEEN[-1])} (bar: {CLOSE:g} points)"
        yield Reading({name: f"{value:g} for {DEFAULTS[name]:g}"}, [within(gain, CLOSE, text)])


def matters(runs: Runs) -> Iterator[Reading]:
    """Judge whether accuracy depends on epsilon."""
    (value,) = TRIED["ε"][1]
    gain = _gain(runs, PARAMETERS, ("default",), ("ε", value), BETWEEN[-1])
    yield Reading({}, [above(gain, CLOSE, f"{_curve(runs, 'ε', BETWEEN[-1])} (bar: {CLOSE:g} points)")])


def rises(runs: Runs, name: str, updates: int, falling: bool = False) -> list[Part]:
    """Return whether accuracy grows, or falls, along a parameter's values."""
    steps = itertools.pairwise(_tried(name).values())
    judge = below if falling else above
    return [
        judge(_gain(runs, PARAMETERS, more, less, updates), 0.0, _curve(runs, name, updates)) for less, more in steps
    ]


def faster_at_first(runs: Runs, name: str, falling: bool) -> Iterator[Reading]:
    """Judge whether a parameter makes the beginning faster: larger b, or smaller L."""
    yield Reading({}, rises(runs, name, BETWEEN[0], falling))


def slower_reduction(runs: Runs) -> Iterator[Reading]:
    """Judge whether a larger reduction ratio ends less accurate, both meanings."""
    yield Reading({"larger reduction": "smaller θ"}, rises(runs, "θ", BETWEEN[-1]))
    yield Reading({"larger reduction": "larger θ"}, rises(runs, "θ", BETWEEN[-1], falling=True))


# -- claims of privacy -----------------------------------------------------------------------------

_LAWS = {"code": "as the code draws it", "density": "of the printed density"}


def private(runs: Runs) -> Iterator[Reading]:
    """Judge whether an iteration is ε-private."""
    runs.require(ACCURACY)
    drawn = runs.epsilon(ACCURACY, (str(TEN_WAY[0]), "MAPA", 5, 0.1))
    text = "its length is drawn as in one dimension, and no ε is certified"
    yield Reading({"noise": _LAWS["code"]}, [exactly(not any(map(math.isnan, drawn)), text)])
    if runs.has(PRIVATE):
        certified = runs.epsilon(PRIVATE, ("MAPA", 0.1))
        text = f"the whole run is certified with ε = {show(certified)}, δ = 1e-5, at ε = 0.1 of an iteration"
        yield Reading({"noise": _LAWS["density"]}, [exactly(not any(map(math.isnan, certified)), text)])


def useful_and_private(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA comes close to ASGD with noise that is certified."""
    runs.require(PRIVATE)
    for cell in runs.cells(PRIVATE):
        if cell[0] != "AUDP":
            best = mean(runs.accuracy(ACCURACY, (str(TEN_WAY[0]), "ASGD", 30)))
            accuracies = runs.accuracy(PRIVATE, cell)
            text = f"{show(accuracies, 1)} %, ASGD without noise {best:.1f} % (bar: 10 points behind)"
            choices = {"ε": f"{cell[1]:g}", "stages": "one dimension" if cell[0] != "MAPA" else "all dimensions"}
            yield Reading(choices, [above(accuracies, best - 10.0, text)])


# -- figures ---------------------------------------------------------------------------------------


def draw_accuracy(runs: Runs) -> Figure:
    """Draw accuracy over epsilon at the code's σ, a panel per model and data set."""
    sigma = SIGMAS[0]
    if not (there := [task for task, own in ran(runs) if own == sigma]):
        raise NotMeasuredError(f"{ACCURACY}: no finished run")
    columns = len({task.data for task in there})
    rows = -(-len(there) // columns)
    figure, axes = panels(rows, columns, (4.2 * columns, 2.4 * rows + 0.6), sharex=True)
    for axis in axes.flat[len(there) :]:
        axis.remove()
    for axis, task in zip(axes.flat, there, strict=False):
        lines = {"MAPA": ("MAPA", "-"), **{f"AUDP, G: {bound}": ("AUDP", line) for bound, line in
                 zip(BOUNDS, ("--", "-.", ":"), strict=True)}}  # fmt: skip
        for label, (algorithm, line) in lines.items():
            start = (str(task), algorithm, sigma, *(label.split(", ", 1)[1:] if algorithm == "AUDP" else ()))
            accuracies = runs.accuracies(ACCURACY, *start)
            if accuracies:
                look = {"ls": line, "color": color_of(KINDS[algorithm]), "label": label}
                with_bars(axis, list(accuracies), list(accuracies.values()), **look)
        for algorithm, line in (("ASGD", "-."), ("CSGD", ":")):
            if runs.has(ACCURACY, (str(task), algorithm, sigma)):
                height = mean(runs.accuracy(ACCURACY, (str(task), algorithm, sigma)))
                axis.axhline(height, lw=1.5, ls=line, color=color_of(KINDS[algorithm]), label=algorithm)
        axis.set_title(str(task))
    return labeled(figure, axes, "ε of an iteration (of noise that is not private)", columns=3)


def draw_norms(runs: Runs) -> Figure:
    """Draw norms of clipped gradients over updates."""
    runs.require(NORMS)
    figure, axes = panels(1, 3, (10, 3.2), sharex=True, sharey=True)
    for axis, algorithm in zip(axes.flat, ("ASGD", "AUDP", "MAPA"), strict=True):
        cells = runs.cells(NORMS, algorithm, 30)
        for cell, line, color in zip(cells, ("-", "--", "-."), PALETTE, strict=False):
            metrics = runs.first(NORMS, cell).metrics
            label = f"C {'=' if algorithm == 'AUDP' else 'from'} {cell[-1]:g}"
            axis.plot(metrics["updates"], metrics["gradient_norm"], line, color=color, label=label)
        axis.set(yscale="log", title=algorithm, xticks=(0, 5_000, 10_000, 15_000))
        axis.xaxis.set_major_formatter(lambda value, position: f"{value:,.0f}")
        if len(cells) > 1:
            axis.legend()
    return labeled(figure, axes, "updates", "norm of the clipped gradient")


def draw_convergence(runs: Runs) -> Figure:
    """Draw updates until convergence over servers; arrows for lower bounds."""
    runs.require(CONVERGENCE)
    loss = LOSSES[0]
    figure, axes = panels(1, 1, (5, 3.6))
    axis = axes[0][0]
    for (algorithm, bound), line in zip(ASYNCHRONOUS.items(), ("-", "--", "-."), strict=True):
        cells = [_of(TEN_WAY[0], count, algorithm, 5, bound) for count in COUNTS]
        least = functools.partial(updates_at_least, loss=loss)
        heights = [median_of(runs.each(CONVERGENCE, cell, least)).mean for cell in cells]
        color = color_of(KINDS[algorithm])
        axis.plot(COUNTS, heights, line, marker="o", ms=4, color=color, label=algorithm)
        for count, cell, height in zip(COUNTS, cells, heights, strict=True):
            if not _all_there(runs, cell, loss):
                axis.plot(count, height, marker="^", ms=9, color=color)
    axis.set(yscale="log", title=str(TEN_WAY[0]))
    log_axis(axis, COUNTS, "{:,}")
    y = f"updates until the loss is below {loss:g}"
    return labeled(figure, axes, "edge servers K", y, columns=3, title="▲: at least")


def _claim(check: Callable[..., Iterator[Reading]], *given: Any) -> Callable[[Runs], Iterator[Reading]]:
    return lambda runs: check(runs, *given)


PAPER = Paper(
    name="mapa",
    title="Li, Yang, Ren, Zhao: Asynchronous Federated Learning with Differential Privacy for Edge Intelligence",
    page="mapa.md",
    data=("usps", "mnist"),
    minutes=(2, 30),
    experiments=experiments,
    numbers=(
        epsilon_numbers, norm_numbers, convergence_numbers, testbed_numbers, parameter_numbers, private_numbers,
    ),
    claims=(
        PaperClaim("LR: MAPA is more accurate than AUDP at small ε (Figure 6).", _claim(beats_audp, "LR"), True,
                   "accuracy"),
        PaperClaim("SVM: MAPA is more accurate than AUDP at small ε (Figure 6).", _claim(beats_audp, "SVM"),
                   figure="accuracy"),
        PaperClaim("CNN: MAPA is more accurate than AUDP at small ε (Figure 6).", _claim(beats_audp, "CNN"),
                   figure="accuracy"),
        PaperClaim("MAPA's lead over AUDP is larger at small ε (Figure 6).", leads_most_at_small_epsilon,
                   figure="accuracy"),
        PaperClaim("MAPA's accuracy grows with ε (Figure 6).", mapa_grows, figure="accuracy"),
        PaperClaim("AUDP's accuracy grows with ε (Figure 6).", audp_grows, figure="accuracy"),
        PaperClaim("MAPA comes close to ASGD as ε grows (Figure 6).", near_asgd, figure="accuracy"),
        PaperClaim("For LR, MAPA is even more accurate than ASGD (Figure 6).", beyond_asgd, figure="accuracy"),
        PaperClaim("CSGD is best (Figure 6).", csgd_is_best, figure="accuracy"),
        PaperClaim("MAPA ends alike whatever clipping norm it begins with (Figure 5).", insensitive, True,
                   "gradient-norms"),
        PaperClaim("MAPA ends about as accurate as AUDP with a good clipping norm (Figure 5).", as_good_as_audp,
                   figure="gradient-norms"),
        PaperClaim("AUDP loses accuracy with too small a clipping norm (Figure 5).", _claim(bad_bound, 0.2, CLOSE),
                   figure="gradient-norms"),
        PaperClaim("AUDP loses accuracy with too large a clipping norm (Figure 5).", _claim(bad_bound, 15, 0.0),
                   figure="gradient-norms"),
        PaperClaim("The asynchronous algorithms need more iterations the more servers there are (Figure 7).",
                   more_servers, figure="convergence"),
        PaperClaim("CSGD needs the fewest iterations (Figure 7).", fewest_on_one_machine, figure="convergence"),
        PaperClaim("MAPA needs one to two orders fewer iterations than AUDP at K = 10 and 100 (Figure 7).",
                   saves_against_audp, figure="convergence"),
        PaperClaim("MAPA needs about two orders fewer iterations than ASGD at K = 100 and 1,000 (Figure 7).",
                   saves_against_asgd, figure="convergence"),
        PaperClaim("On a testbed MAPA is more accurate than AUDP in all cases (Figure 8).", on_the_testbed,
                   instead=_WORLD_INSTEAD),
        PaperClaim("With many servers MAPA is more accurate than ASGD (Figure 8).", beyond_asgd_on_the_testbed,
                   instead=_WORLD_INSTEAD),
        PaperClaim("MAPA and AUDP are almost as accurate as CSGD for the CNN (Figure 8).", near_csgd,
                   instead=_WORLD_INSTEAD),
        PaperClaim("σ does not matter (Figure 9).", _claim(no_matter, "σ"), instead=_WORLD_INSTEAD),
        PaperClaim("δ does not matter (Figure 9).", _claim(no_matter, "δ"), instead=_WORLD_INSTEAD),
        PaperClaim("Larger b is faster at first (Figure 9).", _claim(faster_at_first, "b", False),
                   instead=_WORLD_INSTEAD),
        PaperClaim("Smaller L is faster at first (Figure 9).", _claim(faster_at_first, "L", True),
                   instead=_WORLD_INSTEAD),
        PaperClaim("b does not matter in the end (Figure 9).", _claim(no_matter, "b"), instead=_WORLD_INSTEAD),
        PaperClaim("L does not matter in the end (Figure 9).", _claim(no_matter, "L"), instead=_WORLD_INSTEAD),
        PaperClaim("ε matters (Figure 9).", matters, instead=_WORLD_INSTEAD),
        PaperClaim("A larger reduction ratio ends less accurate (Figure 9).", slower_reduction,
                   instead=_WORLD_INSTEAD),
        PaperClaim("What a server sends in an iteration is ε-differentially private.", private),
        PaperClaim("MAPA keeps the model useful with that privacy.", useful_and_private),
    ),
    figures={
        "accuracy": ("accuracy over ε, σ = 5", draw_accuracy),
        "gradient-norms": ("norms of clipped gradients over updates", draw_norms),
        "convergence": ("updates to converge over the number of edge servers", draw_convergence),
    },
    untested=(
        ("Figure 4's images from gradients.", "a picture and no number: `notebooks/gradient_inversion.ipynb` draws it"),
    ),
    deviations=(
        "The paper prints curves and no numbers: there is nothing to subtract.",
        "The noise is that of the published code (`laplace_l2_radius_only`): ε is a name for its size. What noise of "
        "the right law leaves is in the last table.",
        "AUDP clips each example's gradient to G, and MAPA to b ΔS/2. Outside of Figure 5 the paper's AUDP and its "
        "code do not clip, and its MAPA clips the mean over the batch, which bounds the sensitivity by twice as much. "
        "AUDP without clipping, with the noise of the code's G = 4, is one of the readings.",
        "G as measured is a bound over all models for LR and SVM: the largest example times the steepest slope of the "
        "loss. For the CNN, which has none, it is the largest gradient of an example of USPS at the first models.",
        "The paper's two classes for LR are not named: 0 or 1 and 3 or 5 stand beside all ten. Its SVM is that of "
        "Crammer and Singer (worst class) or of one against the rest (each class).",
        "The network averages in its pooling layers and applies ReLU after them; the published code has another order.",
        "The next ΔS is θ ΔS, as in Algorithm 1. Table 2's rule makes ΔS grow if its Δ_s is Δ_b; if it is the bound "
        "2 Δ_b/(P(τ+1)) on the squared gradient, which the paper may mean, the rule is that of the text.",
        "Figure 7 is for LR alone, with three losses: the paper names none. USPS has too few examples for 1,000 "
        "servers, which have MNIST. Where ASGD's runs end before they converge, its count is the least that a convex "
        "loss can need after what they showed.",
        "The testbed of Figures 8 and 9 is a simulated world whose servers differ in speed, with 10,000 updates; the "
        "text does not say how many the paper's had. σ is 30 there, Figure 9's default.",
    ),
)  # fmt: skip
