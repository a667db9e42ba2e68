"""MAPA against AUDP, ASGD and CSGD: accuracy, convergence, parameters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from simfl.papers.drawing import labeled, log_axis, panels, with_bars
from simfl.plots.style import PALETTE, color_of
from simfl.records import Run
from simfl.records.comparison import median_of
from simfl.studies.evidence import SEEDS, NotMeasuredError, Part, Reading, above, below, exactly, show, within
from simfl.studies.papers import Cell, Experiment, Number, Paper, PaperClaim, Runs, Section, mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE = "mapa/usps-lr-{}.yaml"
SETS = {"USPS": "{{set: libsvm, path: usps{}}}", "MNIST": "{{set: mnist{}}}"}
LARGEST = {"USPS": 15.655, "MNIST": 17.209}
"""The largest norm of a training example with a constant 1 appended; it scales the gradients of linear models."""
STEEPEST = {"ten-way": math.sqrt(2), "0 or 1": 1.0, "3 or 5": 1.0, "worst class": math.sqrt(2),
            "each class": math.sqrt(10)}  # fmt: skip
"""The largest gradient of each loss with respect to the logits, over all models."""
AT_START = {"USPS": 26.73}
"""The largest gradient of an example at the convolutional network's initial models of the five seeds."""


@dataclass(frozen=True)
class Task:
    """A model and the data that it learns.

    Args:
        model: LR, SVM or CNN.
        choice: what the paper leaves open: the two classes of LR, the hinge of SVM.
        data: USPS or MNIST.
    """

    model: str
    choice: str
    data: str

    @property
    def name(self) -> str:
        """The model with its choice."""
        return ", ".join(filter(None, (self.model, self.choice)))

    def __str__(self) -> str:
        return f"{self.name} on {self.data}"

    @property
    def changes(self) -> tuple[str, ...]:
        """The overrides that select this model and data in a scenario."""
        two = self.choice in ("0 or 1", "3 or 5")
        classes = f", classes: [{self.choice.replace(' or', ',')}]" if two else ""
        kind = {"LR": "logistic" if two else "softmax", "SVM": "svm", "CNN": "cnn"}[self.model]
        hinge = ", loss_kind: one_vs_rest" if self.choice == "each class" else ""
        return f"data={SETS[self.data].format(classes)}", f"model={{kind: {kind}, l2: 1e-4{hinge}}}"

    @property
    def choices(self) -> dict[str, str]:
        """The choices of a reading of one model."""
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
"""σ of all algorithms: the published code's, USPS's at the first model, and the default of Figure 9."""
MEASURED, FOUR, UNCLIPPED = "measured", "4", "4, unclipped"
BOUNDS = (MEASURED, FOUR, UNCLIPPED)
"""AUDP's G: as measured in the data, that of the published code, and the latter's noise without clipping."""
NO_CLIP = 1000.0
"""A clipping norm far above every gradient here."""

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
"""Numbers of servers in Figure 7 on USPS, which has too few examples for 1,000."""
ASYNCHRONOUS = {"MAPA": "", "AUDP": MEASURED, "ASGD": ""}
"""The algorithms that Figure 7 compares over the number of servers, each with its G."""
SERVERS = (5, 20)
"""Numbers of servers in Figure 8."""
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
"""Numbers of updates after which the networks of Figures 8 and 9 are evaluated."""
CLOSE = 3.0
"""Points of accuracy within which two settings count as equal."""


# -- experiments -----------------------------------------------------------------------------------


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


def _cell(*parts: Any) -> Cell:
    """Return a cell: tasks as text, bounds as "G: ...", empty parts left out."""
    texts = {bound: f"G: {bound}" for bound in BOUNDS}
    return tuple(str(part) if isinstance(part, Task) else texts.get(part, part) for part in parts if part != "")


def _runs(
    section: Section,
    cell: Cell,
    algorithm: str,
    task: Task,
    updates: int,
    every: int,
    *changes: str,
    sigma: float | None = None,
    file: str = "",
) -> Experiment:
    """Return runs of an algorithm on a task, evaluated after `every` updates.

    The scenario is `file`, by default the algorithm's; `changes` are overrides for this cell.
    """
    overrides = [*task.changes, f"stop.updates={updates}", f"evaluate.every.updates={every}", "record.updates=false"]
    if task.model == "CNN" and algorithm in CLIPS:
        overrides.append("privacy.noise_on=first_convolution")  # as in the paper
    if sigma is not None:
        overrides.append(f"algorithm.sampling_std={sigma}")
    return Experiment(section, cell, FILE.format(file or algorithm.lower()), (*overrides, *changes), SEEDS)


def _noise(task: Task, bound: str, epsilon: float) -> tuple[str, ...]:
    """Return AUDP's clipping and noise; unclipped, the noise is that of norm 4."""
    norm = task.bound if bound == MEASURED else {FOUR: 4.0, UNCLIPPED: NO_CLIP}[bound]
    size = epsilon * norm / 4.0 if bound == UNCLIPPED else epsilon
    return f"privacy.clipping_norm={norm:g}", f"privacy.epsilon_per_release={size:g}"


def over_epsilon(tasks: Sequence[Task], sigmas: Sequence[float], epsilons: Sequence[float]) -> Iterator[Experiment]:
    """Yield Figure 6 for linear models; AUDP at the smallest and largest ε only."""
    ends = (epsilons[0], epsilons[-1])
    for task, sigma in itertools.product(tasks, sigmas):
        places: list[Cell] = [("ASGD", sigma), ("CSGD", sigma), *(("MAPA", sigma, epsilon) for epsilon in epsilons)]
        places += itertools.product(["AUDP"], [sigma], BOUNDS, ends)
        yield from (_at_end(task, *place) for place in places)


def on_network() -> Iterator[Experiment]:
    """Yield Figure 6 for the network on the smaller set."""
    places: list[Cell] = [("MAPA", 5, 0.1), ("MAPA", 5, 0.5), ("ASGD", 5), ("CSGD", 5)]
    places += itertools.product(["AUDP"], [5], BOUNDS, [0.1])
    yield from (_at_end(Task("CNN", "", "USPS"), *place) for place in places)


def _at_end(task: Task, algorithm: str, sigma: float, *noise: Any) -> Experiment:
    """Return runs that are evaluated when they end.

    `noise` is MAPA's ε, or AUDP's bound and ε.
    """
    changes: tuple[str, ...] = ()
    if algorithm == "AUDP":
        changes = _noise(task, *noise)
    elif algorithm == "MAPA":
        changes = (f"privacy.epsilon_per_release={noise[0]:g}",)
    cell, updates = _cell(task, algorithm, sigma, *noise), UPDATES[task.model]
    return _runs(ACCURACY, cell, algorithm, task, updates, updates, *changes, sigma=sigma)


def over_clips(sigmas: Sequence[float]) -> Iterator[Experiment]:
    """Yield Figure 5: norms of clipped gradients, K = 100."""
    common = ("clients.count=100", "evaluate.gradients=1000")
    for sigma in sigmas:
        yield _runs(NORMS, ("ASGD", sigma), "ASGD", TEN_WAY[0], 15_000, 250, *common, sigma=sigma)
        for algorithm, clips in CLIPS.items():
            fixed = ("algorithm.failure_probability=null",) if algorithm == "MAPA" else ()
            for clip in clips:
                cell, changes = (algorithm, sigma, clip), (*common, f"privacy.clipping_norm={clip}", *fixed)
                yield _runs(NORMS, cell, algorithm, TEN_WAY[0], 15_000, 250, *changes, sigma=sigma)


def over_servers() -> Iterator[Experiment]:
    """Yield Figure 7: K edge servers that take turns."""
    usps, mnist = TEN_WAY
    yield _converging(usps, 1, "CSGD", 3_000, 20)
    yield _converging(usps, 10, "ASGD", 15_000)
    yield _converging(usps, 100, "ASGD", 250_000, 500)
    for count in COUNTS:
        yield _converging(usps, count, "MAPA", 40_000)
        for bound in BOUNDS:  # with the measured bound, ten times the updates that MAPA needs: AUDP is slow there
            yield _converging(usps, count, "AUDP", 120_000 if bound == MEASURED else 30_000, bound=bound)
    yield _converging(mnist, 1000, "MAPA", 150_000, 1_500)
    yield _converging(mnist, 1000, "ASGD", 20_000, 500)


def _converging(task: Task, count: int, algorithm: str, updates: int, every: int = 100, bound: str = "") -> Experiment:
    servers = () if algorithm == "CSGD" else (f"clients.count={count}",)
    noise = _noise(task, bound, 0.1) if bound else ()
    cell = _cell(task, count, algorithm, 5, bound)
    return _runs(CONVERGENCE, cell, algorithm, task, updates, every, *servers, *noise, sigma=5)


_WORLD = ("clients.speed={kind: lognormal, sigma: 0.5}", "algorithm.delays=world")


def on_testbed() -> Iterator[Experiment]:
    """Yield Figure 8: delays from the servers' speeds and links."""
    for count in SERVERS:
        places = [("MAPA", ""), ("AUDP", FOUR), ("AUDP", UNCLIPPED)]
        places += [("ASGD", "")] * (count == SERVERS[-1])
        for algorithm, bound in places:
            cell, noise = _cell(algorithm, count, bound), _noise(NETWORK, bound, 0.1) if bound else ()
            yield _of_network(TESTBED, cell, algorithm, *_WORLD, f"clients.count={count}", *noise)
    yield _of_network(TESTBED, ("CSGD",), "CSGD")


def over_parameters() -> Iterator[Experiment]:
    """Yield Figure 9: MAPA with the defaults, as in Figure 8, and with one changed."""
    common = (*_WORLD, "clients.count=5")
    yield _of_network(PARAMETERS, ("default",), "MAPA", *common)
    for name, (path, values) in TRIED.items():
        for value in values:
            yield _of_network(PARAMETERS, (name, value), "MAPA", *common, f"{path}={value}")


def _of_network(section: Section, cell: Cell, algorithm: str, *changes: str) -> Experiment:
    return _runs(section, cell, algorithm, NETWORK, BETWEEN[-1], BETWEEN[0], *changes, sigma=30)


def private_noise() -> Iterator[Experiment]:
    """Yield runs whose noise is private."""
    for epsilon in (0.1, 0.5, 10.0):
        changes = (
            "privacy.mechanism=laplace_l2",
            "privacy.neighbors=replace_one",
            f"privacy.epsilon_per_release={epsilon}",
        )
        for algorithm, file in (("MAPA", "mapa"), ("AUDP", "audp"), ("MAPA, stages as in one dimension", "sound")):
            yield _runs(PRIVATE, (algorithm, epsilon), algorithm, TEN_WAY[0], 15_000, 1_500, *changes, file=file)


# -- measures --------------------------------------------------------------------------------------


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
    if run.algorithm == KINDS["ASGD"] and fallen > 0.0:
        return max(last, last * (float(losses.iloc[0]) - loss) / fallen)
    return last


def accuracy_after(run: Run, updates: int) -> float:
    """Return the test accuracy after a number of updates, in percent."""
    return 100 * _at(run, updates, "test_accuracy")


def _at(run: Run, updates: int, column: str) -> float:
    metrics = run.metrics
    return float(metrics[column][metrics["updates"] == updates].iloc[0])


# -- numbers ---------------------------------------------------------------------------------------


def epsilon_numbers(runs: Runs) -> Iterator[Number]:
    """Yield Figure 6."""
    part = f"{ACCURACY}: noise of the published code, which is private for no ε"
    for cell in runs.cells(ACCURACY):
        row, column = (cell[:-1], f"ε = {cell[-1]:g}") if cell[1] in CLIPS else (cell, "no noise")
        accuracies = runs.accuracy(ACCURACY, cell)
        yield Number(part, ACCURACY.label(*row), column, accuracies, digits=1, unit="test accuracy, %")


def norm_numbers(runs: Runs) -> Iterator[Number]:
    """Yield Figure 5."""
    part = f"{NORMS}: norm of the mean of 1,000 clipped gradients, LR on USPS, K = 100, ε = 0.1"
    for cell in runs.cells(NORMS):
        row = NORMS.label(*cell)
        for updates in (0, 500, 2_500, 15_000):
            norms = runs.each(NORMS, cell, partial(_at, updates=updates, column="gradient_norm"))
            yield Number(part, row, f"after {updates:,} updates", norms, digits=3)
        if cell[0] != "ASGD":
            last = runs.each(NORMS, cell, lambda run: float(run.metrics["clipping_norm"].iloc[-1]))
            yield Number(part, row, "last C", last, digits=3)
        yield Number(part, row, "test accuracy, %", runs.accuracy(NORMS, cell), digits=1)


def convergence_numbers(runs: Runs) -> Iterator[Number]:
    """Yield Figure 7."""
    for loss in LOSSES:
        part = f"{CONVERGENCE}: updates until the training loss is below {loss:g} (inf: not within the run), ε = 0.1"
        for cell in runs.cells(CONVERGENCE):
            task, count, algorithm, sigma, *bound = cell
            row = ", ".join([task, algorithm, f"σ = {sigma:g}", *bound])
            column = "one machine" if algorithm == "CSGD" else f"K = {count:,}"
            updates = runs.each(CONVERGENCE, cell, partial(updates_until, loss=loss))
            yield Number(part, row, column, updates, digits=0)


def network_numbers(runs: Runs) -> Iterator[Number]:
    """Yield Figures 8 and 9."""
    settings = {
        TESTBED: "delays of a simulated world, CNN on MNIST, ε = 0.1, σ = 30",
        PARAMETERS: "MAPA, CNN on MNIST, K = 5 (default: ε = 0.1, b = 12, L = 10, σ = 30, δ = 1e-3, θ = 0.5)",
    }
    for section, setting in settings.items():
        for cell, updates in itertools.product(runs.cells(section), BETWEEN):
            row, column = section.label(*cell), f"after {updates:,} updates"
            accuracies = runs.each(section, cell, partial(accuracy_after, updates=updates))
            yield Number(f"{section}: {setting}", row, column, accuracies, digits=1, unit="test accuracy, %")


def private_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the accuracy that remains with private noise."""
    part = "Noise of the right law (laplace_l2): LR on USPS"
    for cell in runs.cells(PRIVATE):
        row = PRIVATE.label(*cell)
        yield Number(part, row, "test accuracy, %", runs.accuracy(PRIVATE, cell), digits=1)
        yield Number(part, row, "certified ε of the whole run, δ = 1e-5", runs.epsilon(PRIVATE, cell), digits=3)


# -- claims of Figure 6 ----------------------------------------------------------------------------


def ran(runs: Runs, *models: str) -> Iterator[tuple[Task, int]]:
    """Yield the tasks of Figure 6 that were run, with their σ."""
    for task, sigma in itertools.product(TASKS, SIGMAS):
        if (not models or task.model in models) and runs.cells(ACCURACY, str(task), "MAPA", sigma):
            yield task, sigma


def _percent(runs: Runs, section: Section, cell: Cell) -> str:
    """Write the accuracy of a cell at the end."""
    return show(runs.accuracy(section, cell), 1)


def _choices(task: Task, sigma: int) -> dict[str, str]:
    """Return the choices of a reading over all models."""
    return {"model": task.name, "data": task.data, "σ": f"{sigma}"}


def beats_audp(runs: Runs, model: str) -> Iterator[Reading]:
    """Judge whether MAPA is more accurate than AUDP at the smallest epsilon."""
    for (task, sigma), bound in itertools.product(ran(runs, model), BOUNDS):
        mapa, audp = _cell(task, "MAPA", sigma, 0.1), _cell(task, "AUDP", sigma, bound, 0.1)
        if runs.has(ACCURACY, mapa, audp):
            lead = runs.ahead(ACCURACY, mapa, audp)
            clip = runs.first(ACCURACY, audp).scenario["privacy"]["clipping_norm"]
            how = "unclipped" if bound == UNCLIPPED else f"clipped to {clip:.1f}"
            text = (
                f"{show(lead, 1, True)} points ahead at ε = 0.1: {_percent(runs, ACCURACY, mapa)} % against AUDP's "
                f"{_percent(runs, ACCURACY, audp)} %, {how}"
            )
            yield Reading({**task.choices, "σ": f"{sigma}", "G": bound}, [above(lead, 0.0, text)])


def leads_most_at_small_epsilon(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA's lead over AUDP is larger at ε = 0.1 than at 0.5."""
    for (task, sigma), bound in itertools.product(ran(runs), BOUNDS):
        pairs = [
            (_cell(task, "MAPA", sigma, epsilon), _cell(task, "AUDP", sigma, bound, epsilon)) for epsilon in (0.1, 0.5)
        ]
        if sigma == SIGMAS[0] and runs.has(ACCURACY, *pairs[0], *pairs[1]):
            small, large = (runs.ahead(ACCURACY, *pair) for pair in pairs)
            more = [one - other for one, other in zip(small, large, strict=True)]
            text = f"{show(small, 1, True)} points ahead at ε = 0.1, {show(large, 1, True)} at 0.5"
            yield Reading({"model": task.name, "data": task.data, "G": bound}, [above(more, 0.0, text)])


def mapa_grows(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA's accuracy grows with epsilon."""
    for task, sigma in ran(runs):
        accuracies = runs.accuracies(ACCURACY, str(task), "MAPA", sigma)
        if len(accuracies) > 1:
            cells = [_cell(task, "MAPA", sigma, epsilon) for epsilon in accuracies]
            curve = ", ".join(f"{show(values, 1)} at ε = {epsilon:g}" for epsilon, values in accuracies.items())
            parts = [above(runs.ahead(ACCURACY, cells[-1], cells[0]), 0.0, f"{curve} %")]
            for less, more in itertools.pairwise(cells if len(cells) > 2 else []):
                step = runs.ahead(ACCURACY, more, less)
                text = f"{show(step, 1, True)} from ε = {less[-1]:g} to {more[-1]:g} (bar: no fall of a point)"
                parts.append(above(step, -1.0, text))
            yield Reading(_choices(task, sigma), parts)


def audp_grows(runs: Runs) -> Iterator[Reading]:
    """Judge whether AUDP's accuracy grows with epsilon."""
    for (task, sigma), bound in itertools.product(ran(runs), BOUNDS):
        small, large = (_cell(task, "AUDP", sigma, bound, epsilon) for epsilon in (0.1, 0.5))
        if runs.has(ACCURACY, small, large):
            text = f"{_percent(runs, ACCURACY, small)} % at ε = 0.1, {_percent(runs, ACCURACY, large)} % at 0.5"
            lead = runs.ahead(ACCURACY, large, small)
            yield Reading({**_choices(task, sigma), "G": bound}, [above(lead, 0.0, text)])


def near_asgd(runs: Runs, *models: str, lead: float = -CLOSE) -> Iterator[Reading]:
    """Judge whether MAPA's lead over ASGD exceeds a bar, at the largest epsilon.

    A negative bar allows MAPA to be behind by as many points.
    """
    for task, sigma in ran(runs, *models):
        mapa, asgd = _cell(task, "MAPA", sigma, 0.5), _cell(task, "ASGD", sigma)
        if runs.has(ACCURACY, mapa, asgd):
            bar = f" (bar: {-lead:g} points behind)" if lead else ""
            text = f"{_percent(runs, ACCURACY, mapa)} % at ε = 0.5, ASGD {_percent(runs, ACCURACY, asgd)} %{bar}"
            yield Reading(_choices(task, sigma), [above(runs.ahead(ACCURACY, mapa, asgd), lead, text)])


def beyond_asgd(runs: Runs) -> Iterator[Reading]:
    """Judge whether logistic regression by MAPA is even more accurate than by ASGD."""
    return near_asgd(runs, "LR", lead=0.0)


def csgd_is_best(runs: Runs) -> Iterator[Reading]:
    """Judge whether CSGD is at least as accurate as the asynchronous algorithms."""
    for task, sigma in ran(runs):
        csgd = _cell(task, "CSGD", sigma)
        others = [_cell(task, "ASGD", sigma), _cell(task, "MAPA", sigma, 0.5)]
        if runs.has(ACCURACY, csgd, *others):
            parts = []
            for other in others:
                text = f"{_percent(runs, ACCURACY, csgd)} %, {other[1]} {_percent(runs, ACCURACY, other)} %"
                parts.append(above(runs.ahead(ACCURACY, csgd, other), 0.0, text))
            yield Reading(_choices(task, sigma), parts)


# -- claims of Figure 5 ----------------------------------------------------------------------------


def _sigmas(runs: Runs) -> list[int]:
    return sorted({cell[1] for cell in runs.cells(NORMS)})


def _ends(runs: Runs, algorithm: str, sigma: int) -> str:
    """Write an algorithm's accuracy at the end from every clipping norm."""
    accuracies = runs.accuracies(NORMS, algorithm, sigma)
    return ", ".join(f"{show(values, 1)} % from C = {clip:g}" for clip, values in accuracies.items())


def insensitive(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA's final accuracy is independent of its first clipping norm."""
    for sigma in _sigmas(runs):
        parts = []
        for one, other in itertools.combinations(runs.cells(NORMS, "MAPA", sigma), 2):
            lead = runs.ahead(NORMS, one, other)
            text = (
                f"{_ends(runs, 'MAPA', sigma)}: C = {one[2]:g} and {other[2]:g} differ by {show(lead, 1, True)} "
                f"(bar: {CLOSE:g} points)"
            )
            parts.append(within(lead, CLOSE, text))
        yield Reading({"σ": f"{sigma}"}, parts)


def as_good_as_audp(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA ends about as accurate as AUDP with its best clipping norm."""
    for sigma in _sigmas(runs):
        best = max(runs.cells(NORMS, "AUDP", sigma), key=lambda cell: mean(runs.accuracy(NORMS, cell)))
        ends = f"AUDP with C = {best[2]:g} {_percent(runs, NORMS, best)} %, MAPA {_ends(runs, 'MAPA', sigma)}"
        parts = []
        for cell in runs.cells(NORMS, "MAPA", sigma):
            text = f"{ends}, here C = {cell[2]:g} (bar: {CLOSE:g} points)"
            parts.append(above(runs.ahead(NORMS, cell, best), -CLOSE, text))
        yield Reading({"σ": f"{sigma}"}, parts)


def bad_bound(runs: Runs, bad: float, least: float) -> Iterator[Reading]:
    """Judge whether AUDP loses more than `least` points with a bad clipping norm."""
    for sigma in _sigmas(runs):
        lost = runs.ahead(NORMS, ("AUDP", sigma, 3), ("AUDP", sigma, bad))
        text = f"{_ends(runs, 'AUDP', sigma)}: C = 3 is {show(lost, 1, True)} points ahead (bar: {least:g})"
        yield Reading({"σ": f"{sigma}"}, [above(lost, least, text)])


# -- claims of Figure 7 ----------------------------------------------------------------------------


def _least(runs: Runs, cell: Cell, loss: float) -> float:
    """Return the median of the updates that a cell needs at least."""
    return median_of(runs.each(CONVERGENCE, cell, partial(updates_at_least, loss=loss))).mean


def _count(runs: Runs, cell: Cell, loss: float) -> str:
    """Write the number of updates that a cell needs."""
    prefix = "" if _all_converge(runs, cell, loss) else "at least "
    return f"{prefix}{_least(runs, cell, loss):,.0f}"


def _all_converge(runs: Runs, cell: Cell, loss: float) -> bool:
    return all(map(math.isfinite, runs.each(CONVERGENCE, cell, partial(updates_until, loss=loss))))


def times_as_many(runs: Runs, many: Cell, few: Cell, loss: float, times: float, text: str) -> Part:
    """Return whether one cell needs more than `times` as many updates as another.

    A run that ends before it converges gives a lower bound on the updates that it needs. A lower bound on `many` can
    show that the claim holds, not that it fails; one on `few` can show that it fails, not that it holds.
    """

    def orders(one: Run, other: Run) -> float:
        return math.log10(updates_at_least(one, loss) / updates_at_least(other, loss))

    evidence = above(runs.pairs(CONVERGENCE, many, few, orders), math.log10(times), text)
    bounded = {False: many, True: few}
    open_ = evidence.held is not None and not _all_converge(runs, bounded[evidence.held], loss)
    return Part(None, evidence.text) if open_ else evidence


def more_servers(runs: Runs) -> Iterator[Reading]:
    """Judge whether asynchronous algorithms need more updates with more servers."""
    runs.require(CONVERGENCE)
    for (name, bound), loss in itertools.product(ASYNCHRONOUS.items(), LOSSES[:2]):
        fewer, more = (_cell(TEN_WAY[0], count, name, 5, bound) for count in COUNTS)
        needed = " and ".join(_count(runs, cell, loss) for cell in (fewer, more))
        text = f"{needed} updates at K = {COUNTS[0]} and {COUNTS[1]}"
        yield Reading({"algorithm": name, "loss": f"{loss:g}"}, [times_as_many(runs, more, fewer, loss, 1.0, text)])


def fewest_on_one_machine(runs: Runs) -> Iterator[Reading]:
    """Judge whether CSGD needs the fewest updates, against 10 servers."""
    runs.require(CONVERGENCE)
    csgd = _cell(TEN_WAY[0], 1, "CSGD", 5)
    for loss in LOSSES:
        parts = []
        for name, bound in ASYNCHRONOUS.items():
            other = _cell(TEN_WAY[0], 10, name, 5, bound)
            text = f"CSGD {_count(runs, csgd, loss)} updates, {name} {_count(runs, other, loss)}"
            parts.append(times_as_many(runs, other, csgd, loss, 1.0, text))
        yield Reading({"loss": f"{loss:g}"}, parts)


def saves_against_audp(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA needs at most a tenth of AUDP's updates, at K = 10 and 100."""
    runs.require(CONVERGENCE)
    for count, bound, loss in itertools.product(COUNTS, BOUNDS, LOSSES):
        few, many = _cell(TEN_WAY[0], count, "MAPA", 5), _cell(TEN_WAY[0], count, "AUDP", 5, bound)
        text = f"MAPA {_count(runs, few, loss)} updates, AUDP {_count(runs, many, loss)} (bar: ten times as many)"
        choices = {"K": f"{count}", "G": bound, "loss": f"{loss:g}"}
        yield Reading(choices, [times_as_many(runs, many, few, loss, 10.0, text)])


def saves_against_asgd(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA needs two orders fewer updates than ASGD."""
    runs.require(CONVERGENCE)
    for (count, task), loss in itertools.product(((100, TEN_WAY[0]), (1000, TEN_WAY[1])), LOSSES[:2]):
        few, many = _cell(task, count, "MAPA", 5), _cell(task, count, "ASGD", 5)
        counts = f"MAPA {_count(runs, few, loss)} updates, ASGD {_count(runs, many, loss)}"
        part = times_as_many(runs, many, few, loss, 10**1.5, f"{counts} (bar: 32 times as many, 1.5 orders)")
        yield Reading({"K": f"{count:,} on {task.data}", "loss": f"{loss:g}"}, [part])


# -- claims of Figures 8 and 9 ---------------------------------------------------------------------


def _gain(runs: Runs, section: Section, one: Cell, other: Cell, updates: int) -> tuple[float, ...]:
    """Return the first cell's lead after a number of updates, in points."""
    return runs.pairs(section, one, other, lambda a, b: accuracy_after(a, updates) - accuracy_after(b, updates))


def _after(runs: Runs, section: Section, cell: Cell, updates: int) -> str:
    return show(runs.each(section, cell, partial(accuracy_after, updates=updates)), 1)


def _ahead(runs: Runs, one: Cell, other: Cell, updates: int, bar: float = 0.0, setting: str = "") -> Part:
    """Return whether one cell of the testbed leads another after some updates."""
    first, second = (_after(runs, TESTBED, cell, updates) for cell in (one, other))
    text = f"{setting}{first} % against {other[0]}'s {second} %" + (f" (bar: {-bar:g} points)" if bar else "")
    return above(_gain(runs, TESTBED, one, other, updates), bar, text)


def on_the_testbed(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA is more accurate than AUDP with the delays of a world."""
    for count, bound, updates in itertools.product(SERVERS, (FOUR, UNCLIPPED), BETWEEN):
        part = _ahead(runs, ("MAPA", count), _cell("AUDP", count, bound), updates)
        yield Reading({"K": f"{count}", "G": bound, "after": f"{updates:,} updates"}, [part])


def beyond_asgd_on_the_testbed(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA is more accurate than ASGD with the larger number of servers."""
    count = SERVERS[-1]
    for updates in BETWEEN:
        part = _ahead(runs, ("MAPA", count), ("ASGD", count), updates, setting=f"K = {count}: ")
        yield Reading({"after": f"{updates:,} updates"}, [part])


def near_csgd(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA and AUDP come close to CSGD."""
    for cell in (*runs.cells(TESTBED, "MAPA"), *runs.cells(TESTBED, "AUDP")):
        algorithm, count, *bound = cell
        part = _ahead(runs, cell, ("CSGD",), BETWEEN[-1], -CLOSE)
        yield Reading({"K": f"{count}", "algorithm": ", ".join([algorithm, *bound])}, [part])


def _tried(name: str) -> dict[float, Cell]:
    """Return the cells of a parameter's values, in ascending order of the values."""
    cells: dict[float, Cell] = {**{value: (name, value) for value in TRIED[name][1]}, DEFAULTS[name]: ("default",)}
    return {value: cells[value] for value in sorted(cells)}


def _curve(runs: Runs, name: str, updates: int) -> str:
    curve = ", ".join(f"{_after(runs, PARAMETERS, cell, updates)} at {value:g}" for value, cell in _tried(name).items())
    return f"{name}: {curve} % after {updates:,} updates"


def no_matter(runs: Runs, name: str) -> Iterator[Reading]:
    """Judge whether a parameter leaves the final accuracy unchanged."""
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
    judge = below if falling else above
    return [
        judge(_gain(runs, PARAMETERS, more, less, updates), 0.0, _curve(runs, name, updates))
        for less, more in itertools.pairwise(_tried(name).values())
    ]


def faster_at_first(runs: Runs, name: str, falling: bool) -> Iterator[Reading]:
    """Judge whether a parameter makes the beginning faster: larger b, or smaller L."""
    yield Reading({}, rises(runs, name, BETWEEN[0], falling))


def slower_reduction(runs: Runs) -> Iterator[Reading]:
    """Judge whether a larger reduction ratio ends less accurate, in both meanings."""
    yield Reading({"larger reduction": "smaller θ"}, rises(runs, "θ", BETWEEN[-1]))
    yield Reading({"larger reduction": "larger θ"}, rises(runs, "θ", BETWEEN[-1], falling=True))


# -- claims of privacy -----------------------------------------------------------------------------


def private(runs: Runs) -> Iterator[Reading]:
    """Judge whether an iteration is ε-private."""
    runs.require(ACCURACY)
    drawn = runs.epsilon(ACCURACY, _cell(TEN_WAY[0], "MAPA", 5, 0.1))
    text = "its length is drawn as in one dimension, and no ε is certified"
    yield Reading({"noise": "as the code draws it"}, [exactly(not any(map(math.isnan, drawn)), text)])
    if runs.has(PRIVATE):
        certified = runs.epsilon(PRIVATE, ("MAPA", 0.1))
        text = f"the whole run is certified with ε = {show(certified)}, δ = 1e-5, at ε = 0.1 of an iteration"
        yield Reading({"noise": "of the printed density"}, [exactly(not any(map(math.isnan, certified)), text)])


def useful_and_private(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA comes close to ASGD with noise that is certified."""
    runs.require(PRIVATE)
    for cell in runs.cells(PRIVATE):
        if cell[0] != "AUDP":
            best = mean(runs.accuracy(ACCURACY, _cell(TEN_WAY[0], "ASGD", 30)))
            accuracies = runs.accuracy(PRIVATE, cell)
            text = f"{show(accuracies, 1)} %, ASGD without noise {best:.1f} % (bar: 10 points behind)"
            choices = {"ε": f"{cell[1]:g}", "stages": "one dimension" if cell[0] != "MAPA" else "all dimensions"}
            yield Reading(choices, [above(accuracies, best - 10.0, text)])


# -- figures ---------------------------------------------------------------------------------------


def draw_accuracy(runs: Runs) -> Figure:
    """Draw accuracy over epsilon at the code's σ, a panel per model and data set."""
    code_sigma = SIGMAS[0]
    tasks = [task for task, sigma in ran(runs) if sigma == code_sigma]
    if not tasks:
        raise NotMeasuredError(f"{ACCURACY}: no finished run")
    columns = len({task.data for task in tasks})
    rows = math.ceil(len(tasks) / columns)
    figure, axes = panels(rows, columns, (4.2 * columns, 2.4 * rows + 0.6), sharex=True)
    for axis in axes.flat[len(tasks) :]:
        axis.remove()
    for axis, task in zip(axes.flat, tasks, strict=False):
        for algorithm, bound, line in (("MAPA", "", "-"), *zip(itertools.repeat("AUDP"), BOUNDS, ("--", "-.", ":"))):
            accuracies = runs.accuracies(ACCURACY, *_cell(task, algorithm, code_sigma, bound))
            if accuracies:
                look = {"ls": line, "color": color_of(KINDS[algorithm]), "label": ", ".join(_cell(algorithm, bound))}
                with_bars(axis, list(accuracies), list(accuracies.values()), **look)
        for algorithm, line in (("ASGD", "-."), ("CSGD", ":")):
            cell = _cell(task, algorithm, code_sigma)
            if runs.has(ACCURACY, cell):
                height = mean(runs.accuracy(ACCURACY, cell))
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
        axis.xaxis.set_major_formatter("{x:,.0f}")
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
        cells = [_cell(TEN_WAY[0], count, algorithm, 5, bound) for count in COUNTS]
        heights = [_least(runs, cell, loss) for cell in cells]
        color = color_of(KINDS[algorithm])
        axis.plot(COUNTS, heights, line, marker="o", ms=4, color=color, label=algorithm)
        for count, cell, height in zip(COUNTS, cells, heights, strict=True):
            if not _all_converge(runs, cell, loss):
                axis.plot(count, height, marker="^", ms=9, color=color)
    axis.set(yscale="log", title=str(TEN_WAY[0]))
    log_axis(axis, COUNTS, "{:,}")
    y = f"updates until the loss is below {loss:g}"
    return labeled(figure, axes, "edge servers K", y, columns=3, title="▲: at least")


# -- the study -------------------------------------------------------------------------------------

#: Figure of the paper, whether it is a headline, the claim, its check.
_CLAIMS: Sequence[tuple[int, bool, str, Callable[[Runs], Iterator[Reading]]]] = (
    (6, True, "LR: MAPA is more accurate than AUDP at small ε", partial(beats_audp, model="LR")),
    (6, False, "SVM: MAPA is more accurate than AUDP at small ε", partial(beats_audp, model="SVM")),
    (6, False, "CNN: MAPA is more accurate than AUDP at small ε", partial(beats_audp, model="CNN")),
    (6, False, "MAPA's lead over AUDP is larger at small ε", leads_most_at_small_epsilon),
    (6, False, "MAPA's accuracy grows with ε", mapa_grows),
    (6, False, "AUDP's accuracy grows with ε", audp_grows),
    (6, False, "MAPA comes close to ASGD as ε grows", near_asgd),
    (6, False, "For LR, MAPA is even more accurate than ASGD", beyond_asgd),
    (6, False, "CSGD is best", csgd_is_best),
    (5, True, "MAPA ends alike whatever clipping norm it begins with", insensitive),
    (5, False, "MAPA ends about as accurate as AUDP with a good clipping norm", as_good_as_audp),
    (5, False, "AUDP loses accuracy with too small a clipping norm", partial(bad_bound, bad=0.2, least=CLOSE)),
    (5, False, "AUDP loses accuracy with too large a clipping norm", partial(bad_bound, bad=15, least=0.0)),
    (7, False, "The asynchronous algorithms need more iterations the more servers there are", more_servers),
    (7, False, "CSGD needs the fewest iterations", fewest_on_one_machine),
    (7, False, "MAPA needs one to two orders fewer iterations than AUDP at K = 10 and 100", saves_against_audp),
    (7, False, "MAPA needs about two orders fewer iterations than ASGD at K = 100 and 1,000", saves_against_asgd),
    (8, False, "On a testbed MAPA is more accurate than AUDP in all cases", on_the_testbed),
    (8, False, "With many servers MAPA is more accurate than ASGD", beyond_asgd_on_the_testbed),
    (8, False, "MAPA and AUDP are almost as accurate as CSGD for the CNN", near_csgd),
    (9, False, "σ does not matter", partial(no_matter, name="σ")),
    (9, False, "δ does not matter", partial(no_matter, name="δ")),
    (9, False, "Larger b is faster at first", partial(faster_at_first, name="b", falling=False)),
    (9, False, "Smaller L is faster at first", partial(faster_at_first, name="L", falling=True)),
    (9, False, "b does not matter in the end", partial(no_matter, name="b")),
    (9, False, "L does not matter in the end", partial(no_matter, name="L")),
    (9, False, "ε matters", matters),
    (9, False, "A larger reduction ratio ends less accurate", slower_reduction),
)
_FIGURES = {6: "accuracy", 5: "gradient-norms", 7: "convergence"}
_INSTEAD = dict.fromkeys((8, 9), "a simulated world for the testbed")

PAPER = Paper(
    name="mapa",
    title="Li, Yang, Ren, Zhao: Asynchronous Federated Learning with Differential Privacy for Edge Intelligence",
    page="mapa.md",
    data=("usps", "mnist"),
    minutes=(2, 30),
    experiments=experiments,
    numbers=(epsilon_numbers, norm_numbers, convergence_numbers, network_numbers, private_numbers),
    claims=(
        *(
            PaperClaim(
                f"{text} (Figure {number}).", check, headline, _FIGURES.get(number, ""), _INSTEAD.get(number, "")
            )
            for number, headline, text, check in _CLAIMS
        ),
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
)
