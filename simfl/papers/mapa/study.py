"""MAPA against AUDP, ASGD and CSGD: accuracy, convergence, parameters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from simfl.errors import DataError
from simfl.papers.drawing import labeled, log_axis, panels, with_bars
from simfl.plots.style import PALETTE, color_of
from simfl.privacy.mechanisms import LaplaceL2, LaplaceL2RadiusOnly
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
TWO_WAY = {
    "even or odd": "[[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]",
    "below five or not": "[[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]",
}
"""The paper's LR is a "2-way classifier" and names no two classes: two natural groups of all ten digits."""
STEEPEST = {**dict.fromkeys(TWO_WAY, 1.0), "ten-way": math.sqrt(2), "worst class": math.sqrt(2),
            "each class": math.sqrt(10)}  # fmt: skip
"""The largest gradient of each loss with respect to the logits, over all models."""
AT_START = {"USPS": 26.73, "MNIST": 21.12}
"""The largest gradient of an example at the convolutional network's initial models of the five seeds."""


@dataclass(frozen=True)
class Task:
    """A model and the data that it learns.

    Args:
        model: LR, SVM or CNN.
        choice: what the paper leaves open: the classes of LR, the hinge of SVM.
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
        classes = f", class_groups: {TWO_WAY[self.choice]}" if self.two_way else ""
        kind = {"LR": "logistic" if self.two_way else "softmax", "SVM": "svm", "CNN": "cnn"}[self.model]
        hinge = ", loss_kind: one_vs_rest" if self.choice == "each class" else ""
        return f"data={SETS[self.data].format(classes)}", f"model={{kind: {kind}, l2: 1e-4{hinge}}}"

    @property
    def two_way(self) -> bool:
        """Whether it separates two classes, as the text says of LR."""
        return self.choice in TWO_WAY

    @property
    def bound(self) -> float:
        """The largest norm of a gradient: AUDP's G, "determined by actual model"."""
        return STEEPEST[self.choice] * LARGEST[self.data] if self.choice else AT_START[self.data]


UPDATES = {"LR": 15_000, "SVM": 10_000, "CNN": 25_000}
CHOICES = {"LR": (*TWO_WAY, "ten-way"), "SVM": ("each class", "worst class"), "CNN": ("",)}
OPEN = {"LR": "classes", "SVM": "hinge of"}
"""What the paper leaves open of a model."""
TASKS = [Task(model, choice, data) for model in CHOICES for choice in CHOICES[model] for data in SETS]
TEN_WAY = [Task("LR", "ten-way", data) for data in SETS]
PARITY = Task("LR", "even or odd", "USPS")
NETWORK = Task("CNN", "", "MNIST")
KINDS = {"MAPA": "mapa", "AUDP": "audp", "ASGD": "async_sgd", "CSGD": "centralized_sgd"}
SIGMAS, EPSILONS = (5, 30), (0.1, 0.3, 0.5)
"""σ of all algorithms: the published code's, and the default of Figure 9."""
MEASURED, FOUR, UNCLIPPED = "measured", "4", "4, unclipped"
BOUNDS = (MEASURED, FOUR, UNCLIPPED)
"""AUDP's G: as measured in the data, that of the published code, and the latter's noise without clipping."""
NO_CLIP = 1000.0
"""A clipping norm far above every gradient here."""

ACCURACY = Section("Figure 6", ("σ = {:g}", "ε = {:g}"))
NORMS = Section("Figure 5", ("C from {:g}",))
CONVERGENCE = Section("Figure 7", ("K = {}",))
TESTBED = Section("Figure 8", ("K = {}",))
PARAMETERS = Section("Figure 9", ("{:g}",), " = ")
PRIVATE = Section("noise of the right law", ("ε = {:g}",))

CLIPS = {"AUDP": (15, 3, 0.2), "MAPA": (200, 100, 10)}
LOSSES = {"even or odd": (0.5, 0.4), "ten-way": (1.0, 0.6, 0.3)}
"""Training losses at which a run of Figure 7 may count as converged, by the classes."""
COUNTS = (10, 100)
"""Numbers of servers in Figure 7 on USPS, which has too few examples for 1,000."""
COUNTED = {PARITY: COUNTS, TEN_WAY[0]: COUNTS, TEN_WAY[1]: (1000,)}
"""The numbers of servers in Figure 7, by task."""
ASYNCHRONOUS = {"MAPA": "", "AUDP": MEASURED, "ASGD": ""}
"""The algorithms that Figure 7 compares over the number of servers, each with its G."""
SERVERS = (5, 10, 15, 20)
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
    """Return the experiments; the quick form has two-way LR on USPS and one σ."""
    code, default = SIGMAS
    usps = [task for task in TASKS if task.choice and task.data == "USPS" and task != PARITY]
    if quick:
        return [*over_epsilon([PARITY], code, (0.1, 0.5)), *over_clips([PARITY])]
    return [
        *over_epsilon([PARITY], code, EPSILONS),
        *over_epsilon(usps, code, EPSILONS[::2]),
        # A run on MNIST takes several times as long: AUDP has one ε there, as at the other σ.
        *over_epsilon(
            [Task("LR", PARITY.choice, "MNIST"), Task("SVM", "each class", "MNIST")], code, (0.1, 0.5), (0.1,)
        ),
        *over_epsilon([PARITY], default, (0.1, 0.5), (0.1,)),
        *on_networks(),
        *over_clips([PARITY, TEN_WAY[0]]),
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


def over_epsilon(
    tasks: Sequence[Task], sigma: float, epsilons: Sequence[float], ends: Sequence[float] = (0.1, 0.5)
) -> Iterator[Experiment]:
    """Yield Figure 6 for linear models; `ends` are AUDP's ε."""
    for task in tasks:
        places: list[Cell] = [("ASGD", sigma), ("CSGD", sigma), *(("MAPA", sigma, epsilon) for epsilon in epsilons)]
        places += itertools.product(["AUDP"], [sigma], BOUNDS, ends)
        yield from (_at_end(task, *place) for place in places)


def on_networks() -> Iterator[Experiment]:
    """Yield Figure 6 for the network; on MNIST the smallest ε alone."""
    audp: list[Cell] = list(itertools.product(["AUDP"], [5], BOUNDS, [0.1, 0.5]))
    places: list[Cell] = [("MAPA", 5, 0.1), ("MAPA", 5, 0.5), ("ASGD", 5), ("CSGD", 5), *audp]
    yield from (_at_end(Task("CNN", "", "USPS"), *place) for place in places)
    yield from (_at_end(NETWORK, *place) for place in (places[0], *audp[::2]))


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


def over_clips(tasks: Sequence[Task]) -> Iterator[Experiment]:
    """Yield Figure 5: norms of clipped gradients, K = 100, at Figure 9's σ."""
    common = ("clients.count=100", "evaluate.gradients=1000")
    for task in tasks:
        yield _runs(NORMS, _cell(task, "ASGD"), "ASGD", task, 15_000, 250, *common, sigma=30)
        for algorithm, clips in CLIPS.items():
            fixed = ("algorithm.failure_probability=null",) if algorithm == "MAPA" else ()
            for clip in clips:
                cell, changes = _cell(task, algorithm, clip), (*common, f"privacy.clipping_norm={clip}", *fixed)
                yield _runs(NORMS, cell, algorithm, task, 15_000, 250, *changes, sigma=30)


def over_servers() -> Iterator[Experiment]:
    """Yield Figure 7: K edge servers that take turns."""
    usps, mnist = TEN_WAY
    yield _converging(PARITY, 1, "CSGD", 3_000, 20)
    yield _converging(PARITY, 10, "ASGD", 15_000)
    yield _converging(PARITY, 100, "ASGD", 60_000, 500)
    yield _converging(usps, 1, "CSGD", 3_000, 20)
    yield _converging(usps, 10, "ASGD", 15_000)
    yield _converging(usps, 100, "ASGD", 250_000, 500)
    for count in COUNTS:
        yield _converging(PARITY, count, "MAPA", 15_000)
        yield _converging(usps, count, "MAPA", 40_000)
        for bound in BOUNDS:
            yield _converging(PARITY, count, "AUDP", 15_000, bound=bound)
            # With the measured bound, ten times the updates that MAPA needs at K = 10: AUDP is slow there.
            slow = bound == MEASURED and count == COUNTS[0]
            yield _converging(usps, count, "AUDP", 120_000 if slow else 30_000, bound=bound)
    yield _converging(mnist, 1, "CSGD", 3_000, 20)
    yield _converging(mnist, 1000, "MAPA", 90_000, 1_500)
    yield _converging(mnist, 1000, "ASGD", 20_000, 500)


def _converging(task: Task, count: int, algorithm: str, updates: int, every: int = 100, bound: str = "") -> Experiment:
    servers = () if algorithm == "CSGD" else (f"clients.count={count}",)
    noise = _noise(task, bound, 0.1) if bound else ()
    cell = _cell(task, count, algorithm, bound)
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
    for epsilon in (0.1, 10.0):
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
    for classes, losses in LOSSES.items():
        cells = [cell for cell in runs.cells(CONVERGENCE) if cell[0].startswith(f"LR, {classes} ")]
        for loss, cell in itertools.product(losses, cells):
            part = (
                f"{CONVERGENCE}: updates until the training loss is below {loss:g} (inf: not within the run), ε = 0.1"
            )
            task, count, algorithm, *bound = cell
            column = "one machine" if algorithm == "CSGD" else f"K = {count:,}"
            updates = runs.each(CONVERGENCE, cell, partial(updates_until, loss=loss))
            yield Number(part, ", ".join([task, algorithm, *bound]), column, updates, digits=0)


def saving_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the orders of magnitude that MAPA saves, where both algorithms converge."""
    part = f"{CONVERGENCE}: orders of magnitude between the updates of another algorithm and of MAPA"
    for classes, losses in LOSSES.items():
        for (count, task), loss in itertools.product(_counted(classes), losses):
            few = _cell(task, count, "MAPA")
            for many in [cell for cell in runs.cells(CONVERGENCE, str(task), count) if cell != few]:
                paper = 2.0 if (many[2], count) in (("AUDP", 10), ("ASGD", 100), ("ASGD", 1000)) else None
                if all(_all_converge(runs, cell, loss) for cell in (few, many)):
                    row = f"{', '.join([str(task), *many[2:]])}, loss {loss:g}"
                    orders = runs.pairs(CONVERGENCE, many, few, partial(_orders, loss=loss))
                    yield Number(part, row, f"K = {count:,}", orders, paper)


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


def ran(runs: Runs, sigma: int, *models: str) -> list[Task]:
    """Return the tasks of Figure 6 that were run with a σ."""
    tasks = [task for task in TASKS if not models or task.model in models]
    return [task for task in tasks if runs.cells(ACCURACY, str(task), "MAPA", sigma)]


def combined(runs: Runs, *models: str) -> Iterator[tuple[dict[str, str], bool, list[Task], int]]:
    """Yield what a claim "in all sub-figures" is judged by.

    These are the choices of a reading, whether the text names them, the tasks of all models and data sets with these
    choices, and σ. The choices are the classes of LR and the hinge of the SVM. σ is a choice where LR alone is judged,
    since the other models were run with the first one.
    """
    for sigma in SIGMAS if models == ("LR",) else SIGMAS[:1]:
        tasks = ran(runs, sigma, *models)
        open_models = [model for model in OPEN if any(task.model == model for task in tasks)]
        of_models = [[choice for choice in CHOICES[m] if any(t.choice == choice for t in tasks)] for m in open_models]
        for choices in itertools.product(*of_models) if tasks else ():
            named = {OPEN[model]: choice for model, choice in zip(open_models, choices, strict=True)}
            own = "LR" in open_models and choices[open_models.index("LR")] in TWO_WAY
            of_sigma = {"σ": f"{sigma}"} if models == ("LR",) else {}
            yield named | of_sigma, own, [task for task in tasks if task.choice in ("", *choices)], sigma


def _percent(runs: Runs, section: Section, cell: Cell) -> str:
    """Write the accuracy of a cell at the end."""
    return show(runs.accuracy(section, cell), 1)


def _pair(task: Task, sigma: int, bound: str, epsilon: float) -> tuple[Cell, Cell]:
    """Return the cells of MAPA and AUDP."""
    return _cell(task, "MAPA", sigma, epsilon), _cell(task, "AUDP", sigma, bound, epsilon)


def beats_audp(runs: Runs, *models: str, epsilons: Sequence[float] = (0.1,)) -> Iterator[Reading]:
    """Judge whether MAPA is more accurate than AUDP at some epsilons."""
    for (choices, own, tasks, sigma), bound in itertools.product(combined(runs, *models), BOUNDS):
        parts = []
        for task, epsilon in itertools.product(tasks, epsilons):
            mapa, audp = _pair(task, sigma, bound, epsilon)
            if runs.has(ACCURACY, mapa, audp):
                lead = runs.ahead(ACCURACY, mapa, audp)
                clip = runs.first(ACCURACY, audp).scenario["privacy"]["clipping_norm"]
                how = "unclipped" if bound == UNCLIPPED else f"clipped to {clip:.1f}"
                text = (
                    f"{task}: {show(lead, 1, True)} points ahead at ε = {epsilon:g}: "
                    f"{_percent(runs, ACCURACY, mapa)} % against AUDP's {_percent(runs, ACCURACY, audp)} %, {how}"
                )
                parts.append(above(lead, 0.0, text))
        if parts:
            yield Reading({**choices, "G": bound}, parts, own=own)


def beats_audp_everywhere(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA is more accurate than AUDP for all models, data sets and ε."""
    return beats_audp(runs, epsilons=EPSILONS[::2])


LEADS = {
    "c": (20.0, [Task("CNN", "", "USPS"), *(Task("SVM", hinge, "USPS") for hinge in CHOICES["SVM"])]),
    "f": (100.0, [NETWORK]),
}
"""The largest leads that the text prints, by panel of Figure 6, and what the panel may show.

The text does not say what (c) shows: of six panels in the order of the text it is the network on USPS if rows are data
sets, or the SVM on USPS if columns are. The last one is the network on MNIST either way.
"""


def _panel(runs: Runs, panel: str) -> Iterator[tuple[Task, str]]:
    """Yield what a panel may show, with AUDP's G."""
    for task, bound in itertools.product(LEADS[panel][1], BOUNDS):
        if runs.has(ACCURACY, *_pair(task, SIGMAS[0], bound, 0.1)):
            yield task, bound


def _leads(runs: Runs, task: Task, bound: str) -> dict[str, tuple[float, ...]]:
    """Return MAPA's lead at ε = 0.1 in percent of AUDP's accuracy, and in points."""
    mapa, audp = _pair(task, SIGMAS[0], bound, 0.1)
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
                yield Reading({"panel": str(task), "G": bound, "%": meaning}, [above(lead, bar, text)])


def leads_most_at_small_epsilon(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA's lead over AUDP is larger at ε = 0.1 than at 0.5."""
    for (choices, own, tasks, sigma), bound in itertools.product(combined(runs), BOUNDS):
        parts = []
        for task in tasks:
            pairs = [_pair(task, sigma, bound, epsilon) for epsilon in (0.1, 0.5)]
            if runs.has(ACCURACY, *pairs[0], *pairs[1]):
                small, large = (runs.ahead(ACCURACY, *pair) for pair in pairs)
                more = [one - other for one, other in zip(small, large, strict=True)]
                text = f"{task}: {show(small, 1, True)} points ahead at ε = 0.1, {show(large, 1, True)} at 0.5"
                parts.append(above(more, 0.0, text))
        if parts:
            yield Reading({**choices, "G": bound}, parts, own=own)


def mapa_grows(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA's accuracy grows with epsilon."""
    for choices, own, tasks, sigma in combined(runs):
        parts = []
        for task in tasks:
            accuracies = runs.accuracies(ACCURACY, str(task), "MAPA", sigma)
            cells = [_cell(task, "MAPA", sigma, epsilon) for epsilon in accuracies]
            if len(cells) > 1:
                curve = ", ".join(f"{show(values, 1)} at ε = {epsilon:g}" for epsilon, values in accuracies.items())
                parts.append(above(runs.ahead(ACCURACY, cells[-1], cells[0]), 0.0, f"{task}: {curve} %"))
            for less, more in itertools.pairwise(cells if len(cells) > 2 else []):
                step = runs.ahead(ACCURACY, more, less)
                text = f"{task}: {show(step, 1, True)} from ε = {less[-1]:g} to {more[-1]:g} (bar: no fall of a point)"
                parts.append(above(step, -1.0, text))
        if parts:
            yield Reading(choices, parts, own=own)


def audp_grows(runs: Runs) -> Iterator[Reading]:
    """Judge whether AUDP's accuracy grows with epsilon."""
    for (choices, own, tasks, sigma), bound in itertools.product(combined(runs), BOUNDS):
        parts = []
        for task in tasks:
            small, large = (_pair(task, sigma, bound, epsilon)[1] for epsilon in (0.1, 0.5))
            if runs.has(ACCURACY, small, large):
                ends = f"{_percent(runs, ACCURACY, small)} % at ε = 0.1, {_percent(runs, ACCURACY, large)} % at 0.5"
                parts.append(above(runs.ahead(ACCURACY, large, small), 0.0, f"{task}: {ends}"))
        if parts:
            yield Reading({**choices, "G": bound}, parts, own=own)


def near_asgd(runs: Runs, *models: str, lead: float = -CLOSE) -> Iterator[Reading]:
    """Judge whether MAPA's lead over ASGD exceeds a bar, at the largest epsilon.

    A negative bar allows MAPA to be behind by as many points.
    """
    bar = f" (bar: {-lead:g} points behind)" if lead else ""
    for choices, own, tasks, sigma in combined(runs, *models):
        parts = []
        for task in tasks:
            mapa, asgd = _cell(task, "MAPA", sigma, 0.5), _cell(task, "ASGD", sigma)
            if runs.has(ACCURACY, mapa, asgd):
                both = f"{_percent(runs, ACCURACY, mapa)} % at ε = 0.5, ASGD {_percent(runs, ACCURACY, asgd)} %"
                parts.append(above(runs.ahead(ACCURACY, mapa, asgd), lead, f"{task}: {both}{bar}"))
        if parts:
            yield Reading(choices, parts, own=own)


def beyond_asgd(runs: Runs) -> Iterator[Reading]:
    """Judge whether logistic regression by MAPA is even more accurate than by ASGD."""
    return near_asgd(runs, "LR", lead=0.0)


def csgd_is_best(runs: Runs) -> Iterator[Reading]:
    """Judge whether CSGD is more accurate than the asynchronous algorithms."""
    for choices, own, tasks, sigma in combined(runs):
        parts = []
        for task, other in itertools.product(tasks, (("ASGD",), ("MAPA",))):
            csgd = _cell(task, "CSGD", sigma)
            cell = _cell(task, *other, sigma, *([0.5] * (other == ("MAPA",))))
            if runs.has(ACCURACY, csgd, cell):
                both = f"{_percent(runs, ACCURACY, csgd)} %, {other[0]} {_percent(runs, ACCURACY, cell)} %"
                parts.append(above(runs.ahead(ACCURACY, csgd, cell), 0.0, f"{task}: {both}"))
        if parts:
            yield Reading(choices, parts, own=own)


# -- claims of Figure 5 ----------------------------------------------------------------------------


def _clipped(runs: Runs) -> Iterator[tuple[Task, dict[str, str]]]:
    """Yield the tasks of Figure 5 that were run, with the choice of a reading."""
    runs.require(NORMS)
    for task in (PARITY, TEN_WAY[0]):
        if runs.cells(NORMS, str(task)):
            yield task, {"classes": task.choice}


def _ends(runs: Runs, task: Task, algorithm: str) -> str:
    """Write an algorithm's accuracy at the end from every clipping norm."""
    accuracies = runs.accuracies(NORMS, str(task), algorithm)
    return ", ".join(f"{show(values, 1)} % from C = {clip:g}" for clip, values in accuracies.items())


def insensitive(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA's final accuracy is independent of its first clipping norm."""
    for task, choices in _clipped(runs):
        parts: list[Part] = []
        for one, other in itertools.combinations(runs.cells(NORMS, str(task), "MAPA"), 2):
            lead = runs.ahead(NORMS, one, other)
            ends = _ends(runs, task, "MAPA") + ": " if not parts else ""
            text = (
                f"{ends}C = {one[2]:g} and {other[2]:g} differ by {show(lead, 1, True)} points (bar: {CLOSE:g} points)"
            )
            parts.append(within(lead, CLOSE, text))
        yield Reading(choices, parts, own=task.two_way)


def as_good_as_audp(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA ends about as accurate as AUDP with its best clipping norm."""
    for task, choices in _clipped(runs):
        best = max(runs.cells(NORMS, str(task), "AUDP"), key=lambda cell: mean(runs.accuracy(NORMS, cell)))
        parts: list[Part] = []
        for cell in runs.cells(NORMS, str(task), "MAPA"):
            ends = f"AUDP with C = {best[2]:g} {_percent(runs, NORMS, best)} %, " if not parts else ""
            text = f"{ends}MAPA {_percent(runs, NORMS, cell)} % from C = {cell[2]:g} (bar: {CLOSE:g} points)"
            parts.append(above(runs.ahead(NORMS, cell, best), -CLOSE, text))
        yield Reading(choices, parts, own=task.two_way)


def bad_bound(runs: Runs, bad: float, least: float) -> Iterator[Reading]:
    """Judge whether AUDP loses more than `least` points with a bad clipping norm."""
    for task, choices in _clipped(runs):
        lost = runs.ahead(NORMS, _cell(task, "AUDP", 3), _cell(task, "AUDP", bad))
        text = f"{_ends(runs, task, 'AUDP')}: C = 3 is {show(lost, 1, True)} points ahead (bar: {least:g})"
        yield Reading(choices, [above(lost, least, text)], own=task.two_way)


# -- claims of Figure 7 ----------------------------------------------------------------------------


def _counted(classes: str) -> list[tuple[int, Task]]:
    """Return the numbers of servers of LR with some classes, and their tasks."""
    return [(count, task) for task, counts in COUNTED.items() if task.choice == classes for count in counts]


def _losses(runs: Runs, longest: int) -> Iterator[tuple[Task, float, dict[str, str]]]:
    """Yield the tasks on USPS with at most some losses, and the choices of a reading."""
    runs.require(CONVERGENCE)
    for classes, losses in LOSSES.items():
        for loss in losses[:longest]:
            yield Task("LR", classes, "USPS"), loss, {"classes": classes, "loss": f"{loss:g}"}


def _least(runs: Runs, cell: Cell, loss: float) -> float:
    """Return the median of the updates that a cell needs at least."""
    return median_of(runs.each(CONVERGENCE, cell, partial(updates_at_least, loss=loss))).mean


def _count(runs: Runs, cell: Cell, loss: float) -> str:
    """Write the number of updates that a cell needs."""
    prefix = "" if _all_converge(runs, cell, loss) else "at least "
    return f"{prefix}{_least(runs, cell, loss):,.0f}"


def _all_converge(runs: Runs, cell: Cell, loss: float) -> bool:
    return all(map(math.isfinite, runs.each(CONVERGENCE, cell, partial(updates_until, loss=loss))))


def _orders(one: Run, other: Run, loss: float) -> float:
    return math.log10(updates_at_least(one, loss) / updates_at_least(other, loss))


def times_as_many(runs: Runs, many: Cell, few: Cell, loss: float, times: float, text: str) -> Part:
    """Return whether one cell needs more than `times` as many updates as another.

    A run that ends before it converges gives a lower bound on the updates that it needs. A lower bound on `many` can
    show that the claim holds, not that it fails; one on `few` can show that it fails, not that it holds.
    """
    orders = runs.pairs(CONVERGENCE, many, few, partial(_orders, loss=loss))
    evidence = above(orders, math.log10(times), text)
    bounded = {False: many, True: few}
    open_ = evidence.held is not None and not _all_converge(runs, bounded[evidence.held], loss)
    return Part(None, evidence.text) if open_ else evidence


def more_servers(runs: Runs) -> Iterator[Reading]:
    """Judge whether all asynchronous algorithms need more updates with more servers."""
    for task, loss, choices in _losses(runs, 2):
        parts = []
        for name, bound in ASYNCHRONOUS.items():
            fewer, more = (_cell(task, count, name, bound) for count in COUNTS)
            needed = " and ".join(_count(runs, cell, loss) for cell in (fewer, more))
            text = f"{name}: {needed} updates at K = {COUNTS[0]} and {COUNTS[1]}"
            parts.append(times_as_many(runs, more, fewer, loss, 1.0, text))
        yield Reading(choices, parts, own=task.two_way)


def fewest_on_one_machine(runs: Runs) -> Iterator[Reading]:
    """Judge whether CSGD needs the fewest updates, against 10 servers."""
    for task, loss, choices in _losses(runs, 3):
        csgd = _cell(task, 1, "CSGD")
        parts = []
        for name, bound in ASYNCHRONOUS.items():
            other = _cell(task, 10, name, bound)
            text = f"CSGD {_count(runs, csgd, loss)} updates, {name} {_count(runs, other, loss)}"
            parts.append(times_as_many(runs, other, csgd, loss, 1.0, text))
        yield Reading(choices, parts, own=task.two_way)


def saves_against_audp(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA needs at most a tenth of AUDP's updates, at K = 10 and 100."""
    for (task, loss, choices), bound in itertools.product(_losses(runs, 3), BOUNDS):
        parts = []
        for count in COUNTS:
            few, many = _cell(task, count, "MAPA"), _cell(task, count, "AUDP", bound)
            counts = f"MAPA {_count(runs, few, loss)} updates, AUDP {_count(runs, many, loss)}"
            text = f"K = {count}: {counts} (bar: ten times as many)"
            parts.append(times_as_many(runs, many, few, loss, 10.0, text))
        yield Reading({**choices, "G": bound}, parts, own=task.two_way)


def saves_against_asgd(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA needs two orders fewer updates than ASGD."""
    for usps, loss, choices in _losses(runs, 2):
        parts = []
        for count, task in _counted(usps.choice):
            if count > COUNTS[0]:
                few, many = _cell(task, count, "MAPA"), _cell(task, count, "ASGD")
                counts = f"MAPA {_count(runs, few, loss)} updates, ASGD {_count(runs, many, loss)}"
                text = f"K = {count:,} on {task.data}: {counts} (bar: 32 times as many, 1.5 orders)"
                parts.append(times_as_many(runs, many, few, loss, 10**1.5, text))
        yield Reading(choices, parts, own=usps.two_way)


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
    """Judge whether MAPA is more accurate than AUDP with every number of servers."""
    runs.require(TESTBED)
    for bound, updates in itertools.product((FOUR, UNCLIPPED), BETWEEN):
        places = [(count, _cell("AUDP", count, bound)) for count in SERVERS]
        parts = [_ahead(runs, ("MAPA", count), audp, updates, setting=f"K = {count}: ") for count, audp in places]
        yield Reading({"G": bound, "after": f"{updates:,} updates"}, parts)


def beyond_asgd_on_the_testbed(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA is more accurate than ASGD with the most servers."""
    count = SERVERS[-1]
    for updates in BETWEEN:
        part = _ahead(runs, ("MAPA", count), ("ASGD", count), updates, setting=f"K = {count}: ")
        yield Reading({"after": f"{updates:,} updates"}, [part])


def near_csgd(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA and AUDP come close to CSGD."""
    runs.require(TESTBED)
    for bound in (FOUR, UNCLIPPED):
        cells = [_cell(*cell) for count in SERVERS for cell in (("MAPA", count), ("AUDP", count, bound))]
        parts = [
            _ahead(runs, cell, ("CSGD",), BETWEEN[-1], -CLOSE, setting=f"{cell[0]}, K = {cell[1]}: ") for cell in cells
        ]
        yield Reading({"G": bound}, parts)


def _tried(name: str) -> dict[float, Cell]:
    """Return the cells of a parameter's values, in ascending order of the values."""
    cells: dict[float, Cell] = {**{value: (name, value) for value in TRIED[name][1]}, DEFAULTS[name]: ("default",)}
    return {value: cells[value] for value in sorted(cells)}


def _curve(runs: Runs, name: str, updates: int) -> str:
    ends = (
        f"{_after(runs, PARAMETERS, cell, updates)} % at {name} = {value:g}" for value, cell in _tried(name).items()
    )
    return f"after {updates:,} updates {', '.join(ends)}"


def no_matter(runs: Runs, name: str) -> Iterator[Reading]:
    """Judge whether a parameter leaves the final accuracy unchanged."""
    parts: list[Part] = []
    for value in TRIED[name][1]:
        gain = _gain(runs, PARAMETERS, (name, value), ("default",), BETWEEN[-1])
        curve = "" if parts else f"{_curve(runs, name, BETWEEN[-1])}: "
        text = f"{curve}{value:g} for {DEFAULTS[name]:g} makes {show(gain, 1, True)} points (bar: {CLOSE:g} points)"
        parts.append(within(gain, CLOSE, text))
    yield Reading({}, parts, own=True)


def matters(runs: Runs) -> Iterator[Reading]:
    """Judge whether accuracy depends on epsilon."""
    (value,) = TRIED["ε"][1]
    gain = _gain(runs, PARAMETERS, ("default",), ("ε", value), BETWEEN[-1])
    text = f"{_curve(runs, 'ε', BETWEEN[-1])} (bar: {CLOSE:g} points)"
    yield Reading({}, [above(gain, CLOSE, text)], own=True)


def rises(runs: Runs, name: str, updates: int, falling: bool = False) -> Iterator[Reading]:
    """Judge whether accuracy grows, or falls, along a parameter's values."""
    judge = below if falling else above
    parts: list[Part] = []
    for less, more in itertools.pairwise(_tried(name).values()):
        gain = _gain(runs, PARAMETERS, more, less, updates)
        curve = "" if parts else f"{_curve(runs, name, updates)}: "
        parts.append(judge(gain, 0.0, f"{curve}{show(gain, 1, True)} points from one value to the next"))
    yield Reading({}, parts, own=True)


# -- claims of privacy -----------------------------------------------------------------------------


def private(runs: Runs) -> Iterator[Reading]:
    """Judge whether an iteration is ε-private."""
    runs.require(ACCURACY)
    drawn = runs.epsilon(ACCURACY, _cell(PARITY, "MAPA", SIGMAS[0], 0.1))
    text = "its length is drawn as in one dimension, and no ε is certified"
    yield Reading({"noise": "as the code draws it"}, [exactly(not any(map(math.isnan, drawn)), text)])
    if runs.has(PRIVATE):
        certified = runs.epsilon(PRIVATE, ("MAPA", 0.1))
        text = f"the whole run is certified with ε = {show(certified)}, δ = 1e-5, at ε = 0.1 of an iteration"
        part = exactly(not any(map(math.isnan, certified)), text)
        yield Reading({"noise": "of the printed density"}, [part], own=True)


def useful_and_private(runs: Runs) -> Iterator[Reading]:
    """Judge whether MAPA comes close to ASGD with noise that is certified."""
    runs.require(PRIVATE)
    for cell in runs.cells(PRIVATE):
        if cell[0] != "AUDP":
            best = mean(runs.accuracy(ACCURACY, _cell(TEN_WAY[0], "ASGD", SIGMAS[0])))
            accuracies = runs.accuracy(PRIVATE, cell)
            text = f"{show(accuracies, 1)} %, ASGD without noise {best:.1f} % (bar: 10 points behind)"
            choices = {"ε": f"{cell[1]:g}", "stages": "one dimension" if cell[0] != "MAPA" else "all dimensions"}
            own = cell[1] in EPSILONS and cell[0] != "MAPA"  # the text counts with one dimension
            yield Reading(choices, [above(accuracies, best - 10.0, text)], own=own)


# -- Figure 4 --------------------------------------------------------------------------------------

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

    from simfl.attacks.inversion import input_from
    from simfl.build.data import load_data
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


# -- figures ---------------------------------------------------------------------------------------


_STYLES: dict[str, tuple[Any, str]] = {
    "": ("-", "o"),
    MEASURED: ("--", "s"),
    FOUR: ("-.", "^"),
    UNCLIPPED: (":", "D"),
    "ASGD": ((0, (6, 2)), "v"),
    "CSGD": ((0, (1, 1)), "x"),
}
"""Lines and marks of MAPA, of AUDP by its G, and of the algorithms without noise."""


def _look(algorithm: str, bound: str = "") -> dict[str, Any]:
    """Return how a curve of an algorithm is drawn."""
    line, mark = _STYLES[algorithm if algorithm in ("ASGD", "CSGD") else bound]
    label = ", ".join(_cell(algorithm, bound))
    return {"ls": line, "marker": mark, "color": color_of(KINDS[algorithm]), "label": label}


def _one_legend(figure: Figure, axes: Iterable[Any], columns: int, title: str = "") -> None:
    """Put one legend with the curves of all panels above them."""
    curves = {label: curve for axis in axes for curve, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(curves.values(), curves.keys(), loc="outside upper center", ncols=columns, title=title or None)


def draw_accuracy(runs: Runs) -> Figure:
    """Draw Figure 6 at the code's σ: a row of panels per data set, a column per model."""
    tasks = [task for task in ran(runs, SIGMAS[0]) if task.choice == CHOICES[task.model][0]]
    if not tasks:
        raise NotMeasuredError(f"{ACCURACY}: no finished run")
    sets, names = list(dict.fromkeys(task.data for task in tasks)), list(dict.fromkeys(task.name for task in tasks))
    figure, axes = panels(len(sets), len(names), (3.0 * len(names) + 0.8, 2.5 * len(sets) + 1), sharex=True)
    drawn = {(task.data, task.name): task for task in tasks}
    for (row, data), (column, name) in itertools.product(enumerate(sets), enumerate(names)):
        axis, task = axes[row][column], drawn.get((data, name))
        if task is None:
            axis.set_axis_off()
            continue
        for algorithm, bound in (("MAPA", ""), *zip(itertools.repeat("AUDP"), BOUNDS)):
            accuracies = runs.accuracies(ACCURACY, *_cell(task, algorithm, SIGMAS[0], bound))
            if accuracies:
                with_bars(axis, list(accuracies), list(accuracies.values()), **_look(algorithm, bound))
        for algorithm in ("ASGD", "CSGD"):
            cell = _cell(task, algorithm, SIGMAS[0])
            if runs.has(ACCURACY, cell):
                look = {**_look(algorithm), "marker": ""}
                axis.axhline(mean(runs.accuracy(ACCURACY, cell)), lw=1.5, **look)
        axis.set(title=str(task), xticks=EPSILONS, xlim=(0.05, 0.55))
        axis.set_xlabel("ε of an iteration")
    for row in range(len(sets)):
        axes[row][0].set_ylabel("test accuracy, %")
    _one_legend(figure, axes.flat, 3)
    return figure


def draw_norms(runs: Runs) -> Figure:
    """Draw norms of clipped gradients over updates."""
    tasks = [task for task, _ in _clipped(runs)]
    figure, axes = panels(len(tasks), 3, (10, 2.6 * len(tasks) + 0.4), sharex=True, sharey="row")
    for row, task in enumerate(tasks):
        for axis, algorithm in zip(axes[row], ("ASGD", "AUDP", "MAPA"), strict=True):
            cells = runs.cells(NORMS, str(task), algorithm)
            for cell, line, color in zip(cells, ("-", "--", "-."), PALETTE, strict=False):
                metrics = runs.first(NORMS, cell).metrics
                label = f"C {'=' if algorithm == 'AUDP' else 'from'} {cell[2]:g}" if cell[2:] else ""
                axis.plot(metrics["updates"], metrics["gradient_norm"], ls=line, color=color, label=label)
            axis.set(yscale="log", title=f"{algorithm}, {task.name}", xticks=(0, 5_000, 10_000, 15_000))
            axis.xaxis.set_major_formatter("{x:,.0f}")
            if len(cells) > 1:
                axis.legend()
    return labeled(figure, axes, "updates", "norm of the clipped gradient")


def draw_convergence(runs: Runs) -> Figure:
    """Draw Figure 7: updates until convergence over servers, lower bounds marked."""
    runs.require(CONVERGENCE)
    shown = {classes: losses[0] for classes, losses in LOSSES.items()}
    figure, axes = panels(1, len(shown), (4.2 * len(shown), 4.0))
    bounded = False
    for axis, (classes, loss) in zip(axes[0], shown.items(), strict=True):
        tasks = [task for task in COUNTED if task.choice == classes]
        for task, (algorithm, bound) in itertools.product(tasks, _CURVES):
            cells = {count: _cell(task, count, algorithm, bound) for count in COUNTED[task]}
            places = {count: cell for count, cell in cells.items() if runs.has(CONVERGENCE, cell)}
            heights = [_least(runs, cell, loss) for cell in places.values()]
            if places:
                axis.plot(list(places), heights, ms=5, lw=1.5, **_look(algorithm, bound))
            for (count, cell), height in zip(places.items(), heights, strict=True):
                if not _all_converge(runs, cell, loss):
                    bounded = True
                    axis.annotate(
                        "", (count, 2.2 * height), (count, height), arrowprops={"arrowstyle": "->", "lw": 1.5}
                    )
        for task in tasks:
            if runs.has(CONVERGENCE, _cell(task, 1, "CSGD")):
                ends = {"USPS": COUNTS, "MNIST": (400, 1000)}[task.data]
                height = _least(runs, _cell(task, 1, "CSGD"), loss)
                axis.plot(ends, [height] * 2, lw=1.5, **{**_look("CSGD"), "marker": ""})
        ticks = sorted({count for task in tasks for count in COUNTED[task]})
        title = f"LR, {classes}, until the loss is below {loss:g}"
        axis.set(yscale="log", title=title + "\n(K = 1,000 on MNIST, else USPS)" * (len(tasks) > 1))
        log_axis(axis, ticks, "{:,}")
    for axis in axes[0]:
        axis.set_xlabel("edge servers K")
    axes[0][0].set_ylabel("updates")
    _one_legend(figure, axes[0], 3, "an arrow: at least" if bounded else "")
    return figure


_CURVES = (("MAPA", ""), *zip(itertools.repeat("AUDP"), BOUNDS), ("ASGD", ""))
"""The asynchronous curves of Figures 7 and 8."""


def _over_updates(axis: Any, runs: Runs, section: Section, cell: Cell, **look: Any) -> None:
    """Draw the accuracy over updates, with the intervals of the seeds."""
    updates = [int(count) for count in runs.first(section, cell).metrics["updates"]]
    measured = [runs.each(section, cell, partial(accuracy_after, updates=count)) for count in updates]
    with_bars(axis, updates, measured, **look)


def draw_testbed(runs: Runs) -> Figure:
    """Draw Figure 8: accuracy over updates, a panel per number of servers."""
    runs.require(TESTBED)
    figure, axes = panels(2, 2, (7.6, 6.2), sharex=True, sharey=True)
    for axis, count in zip(axes.flat, SERVERS, strict=True):
        for algorithm, bound in _CURVES:
            cell = _cell(algorithm, count, bound)
            if runs.has(TESTBED, cell):
                _over_updates(axis, runs, TESTBED, cell, **_look(algorithm, bound))
        _over_updates(axis, runs, TESTBED, ("CSGD",), **_look("CSGD"))
        axis.set(title=f"K = {count}", ylim=(0, 100))
        axis.xaxis.set_major_formatter("{x:,.0f}")
    labeled(figure, axes, "updates")
    _one_legend(figure, axes.flat, 3)
    return figure


def draw_parameters(runs: Runs) -> Figure:
    """Draw Figure 9: MAPA's accuracy over updates, a panel per parameter."""
    runs.require(PARAMETERS)
    figure, axes = panels(2, 3, (9.6, 5.6), sharex=True, sharey=True)
    looks = list(zip(PALETTE, ("-", "--", "-."), ("o", "s", "^"), strict=False))
    for axis, letter, name in zip(axes.flat, "abcdef", ("ε", "b", "σ", "L", "δ", "θ"), strict=True):
        for (value, cell), (color, line, mark) in zip(_tried(name).items(), looks, strict=False):
            label = f"{name} = {value:g}" + " (default)" * (cell == ("default",))
            _over_updates(axis, runs, PARAMETERS, cell, color=color, ls=line, marker=mark, label=label)
        axis.set(title=f"({letter}) {name}", ylim=(0, 100))
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.legend(loc="lower right")
    return labeled(figure, axes, "updates")


# -- the study -------------------------------------------------------------------------------------

#: Figure of the paper, whether it is a headline, the claim, its check.
_CLAIMS: Sequence[tuple[int, bool, str, Callable[[Runs], Iterator[Reading]]]] = (
    (6, True, "LR: MAPA is more accurate than AUDP at small ε", lambda runs: beats_audp(runs, "LR")),
    (6, False, "SVM: MAPA is more accurate than AUDP at small ε", lambda runs: beats_audp(runs, "SVM")),
    (6, False, "CNN: MAPA is more accurate than AUDP at small ε", lambda runs: beats_audp(runs, "CNN")),
    (6, False, "MAPA is more accurate than AUDP in all sub-figures, at every ε", beats_audp_everywhere),
    (6, False, "MAPA's lead over AUDP reaches 20 % in panel (c)", partial(leads_by, panel="c")),
    (6, False, "MAPA's lead over AUDP reaches 100 % in panel (f)", partial(leads_by, panel="f")),
    (6, False, "MAPA's lead over AUDP is larger at small ε", leads_most_at_small_epsilon),
    (6, False, "MAPA's accuracy grows with ε", mapa_grows),
    (6, False, "AUDP's accuracy grows with ε", audp_grows),
    (6, False, "MAPA comes close to ASGD as ε grows, in all sub-figures", near_asgd),
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
    (9, False, "Larger b is faster at first", partial(rises, name="b", updates=BETWEEN[0])),
    (9, False, "Smaller L is faster at first", partial(rises, name="L", updates=BETWEEN[0], falling=True)),
    (9, False, "b does not matter in the end", partial(no_matter, name="b")),
    (9, False, "L does not matter in the end", partial(no_matter, name="L")),
    (9, False, "ε matters", matters),
    (
        9,
        False,
        "A larger reduction ratio, a smaller θ, ends less accurate",
        partial(rises, name="θ", updates=BETWEEN[-1]),
    ),
)
_FIGURES = {6: "accuracy", 5: "gradient-norms", 7: "convergence", 8: "testbed", 9: "parameters"}
_INSTEAD = dict.fromkeys((8, 9), "a simulated world for the testbed")
_SHORT: dict[Callable[[Runs], Iterator[Reading]], str] = {
    near_csgd: "runs as long as the paper's: the text does not say how many updates they had, and accuracies still "
    f"rise after {BETWEEN[-1]:,}"
}

PAPER = Paper(
    name="mapa",
    title="Li, Yang, Ren, Zhao: Asynchronous Federated Learning with Differential Privacy for Edge Intelligence",
    page="mapa.md",
    data=("usps", "mnist"),
    minutes=(2, 30),
    experiments=experiments,
    numbers=(
        epsilon_numbers,
        lead_numbers,
        norm_numbers,
        convergence_numbers,
        saving_numbers,
        network_numbers,
        inversion_numbers,
        private_numbers,
    ),
    claims=(
        *(
            PaperClaim(
                f"{text} (Figure {number}).",
                check,
                headline,
                _FIGURES[number],
                _INSTEAD.get(number, ""),
                _SHORT.get(check, ""),
            )
            for number, headline, text, check in _CLAIMS
        ),
        PaperClaim(
            "Images inferred from a gradient are blurred at ε = 0.01, and some are seen at 1 (Figure 4).", blurs
        ),
        PaperClaim("What a server sends in an iteration is ε-differentially private.", private),
        PaperClaim("MAPA keeps the model useful with that privacy.", useful_and_private),
    ),
    figures={
        "accuracy": ("Figure 6: accuracy over ε, σ = 5", draw_accuracy),
        "gradient-norms": ("Figure 5: norms of clipped gradients over updates", draw_norms),
        "convergence": ("Figure 7: updates to converge over the number of edge servers", draw_convergence),
        "testbed": ("Figure 8: accuracy over updates on a simulated testbed", draw_testbed),
        "parameters": ("Figure 9: MAPA's accuracy over updates, one parameter changed", draw_parameters),
    },
    deviations=(
        "The paper prints curves and hardly a number: leads of 20 % and 100 %, and orders of magnitude in Figure 7.",
        "The noise is that of the published code (`laplace_l2_radius_only`): ε is a name for its size. What noise of "
        "the right law leaves is in the last table.",
        "AUDP clips each example's gradient to G, and MAPA to b ΔS/2. Outside of Figure 5 the paper's AUDP and its "
        "code do not clip, and its MAPA clips the mean over the batch, which bounds the sensitivity by twice as much. "
        "AUDP without clipping, with the noise of the code's G = 4, is one of the readings.",
        "G as measured is a bound over all models for LR and SVM: the largest example times the steepest slope of the "
        "loss. For the CNN, which has none, it is the largest gradient of an example at the first models.",
        "The paper's LR has two classes, which it does not name: even against odd digits and below five against the "
        "others are its own readings here, and all ten digits stand beside them. Its SVM is that of Crammer and Singer "
        "(worst class) or of one against the rest (each class).",
        'Models and data sets are parts of one reading where the text says "in all sub-figures". On MNIST, two-way LR '
        "is even or odd, the SVM is that of each class, and AUDP has ε = 0.1 alone; so has the CNN there, without ASGD "
        "and CSGD.",
        "The network averages in its pooling layers and applies ReLU after them; the published code has another order.",
        "The next ΔS is θ ΔS, as in Algorithm 1. Table 2's rule makes ΔS grow if its Δ_s is Δ_b; if it is the bound "
        "2 Δ_b/(P(τ+1)) on the squared gradient, which the paper may mean, the rule is that of the text.",
        "Figure 4 infers single images at LR's first model, from one example's gradient clipped to 1.",
        "Figure 7 is for LR alone, with two or three losses: the paper names none. USPS has too few examples for 1,000 "
        "servers, which have MNIST. Where ASGD's runs end before they converge, its count is the least that a convex "
        "loss can need after what they showed.",
        "The testbed of Figures 8 and 9 is a simulated world whose servers differ in speed, with 10,000 updates; the "
        "text does not say how many the paper's had. σ is 30 there, Figure 9's default. ASGD has 20 servers alone.",
    ),
)
