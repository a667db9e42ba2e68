"""The runs of MAPA's study."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from simfl.reproduction.evidence import SEEDS
from simfl.reproduction.papers import Cell, Experiment, Section

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
PRINTED = "MAPA as printed"
"""MAPA whose clients clip the mean over the batch, as line 5 of the listing does, under the noise of MAPA."""
BATCH = 12
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
JOINING, LATER, FROM_START, ABSENT = Section("servers that join"), "two join later", "all from the start", "three alone"
PRIVATE = Section("noise of the right law", ("ε = {:g}",))

CLIPS = {"AUDP": (15, 3, 0.2), "MAPA": (200, 100, 10)}
LOSSES = {"even or odd": (0.5, 0.4), "ten-way": (1.0, 0.6, 0.3)}
"""Training losses at which a run of Figure 7 may count as converged, by the classes."""
COUNTS = (10, 100)
"""Numbers of servers in Figure 7 on USPS, which has too few examples for 1,000."""
COUNTED = {PARITY: COUNTS, TEN_WAY[0]: COUNTS, TEN_WAY[1]: (1000,)}
"""The numbers of servers in Figure 7, by task."""
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
NONE = 1.0
"""Points of accuracy below which a lead counts as none."""
AHEAD = 1.1
"""The least ratio of updates that counts as a difference."""


def experiments(quick: bool) -> Sequence[Experiment]:
    """Return the experiments; the quick form has the headlines', of even or odd."""
    code, default = SIGMAS
    usps = [task for task in TASKS if task.choice and task.data == "USPS" and task != PARITY]
    if quick:
        few = [*over_epsilon([PARITY], code, (0.1, 0.5), (0.1,)), *over_clips([PARITY])]
        return [own for own in few if own.cell[1] == "MAPA" or (own.section, own.cell[1]) == (ACCURACY, "AUDP")]
    return [
        *over_epsilon([PARITY], code, EPSILONS),
        *over_epsilon(usps, code, EPSILONS[::2]),
        # A run on MNIST takes several times as long: AUDP has one ε there, as at the other σ.
        *over_epsilon(
            [Task("LR", PARITY.choice, "MNIST"), Task("SVM", "each class", "MNIST")], code, (0.1, 0.5), (0.1,)
        ),
        *over_epsilon([PARITY], default, (0.1, 0.5), (0.1,)),
        *as_printed(code, EPSILONS[::2]),
        *on_networks(),
        *over_clips([PARITY, TEN_WAY[0]]),
        *over_servers(),
        *on_testbed(),
        *joining(),
        *over_parameters(),
        *private_noise(),
    ]


def cell_of(*parts: Any) -> Cell:
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


def as_printed(sigma: float, epsilons: Sequence[float]) -> Iterator[Experiment]:
    """Yield Figure 6 for LR with a clipped mean, whose epsilon is b times as large."""
    for task in (task for task in TASKS if task.model == "LR" and task.data == "USPS"):
        for epsilon in epsilons:
            changes = (
                "privacy.mechanism=laplace_l2_radius_only_mean",
                f"privacy.epsilon_per_release={BATCH * epsilon:g}",
            )
            yield _at_end(task, PRINTED, sigma, epsilon, changes=changes)


def on_networks() -> Iterator[Experiment]:
    """Yield Figure 6 for the network; on MNIST the smallest ε alone."""
    audp: list[Cell] = list(itertools.product(["AUDP"], [5], BOUNDS, [0.1, 0.5]))
    places: list[Cell] = [("MAPA", 5, 0.1), ("MAPA", 5, 0.5), ("ASGD", 5), ("CSGD", 5), *audp]
    yield from (_at_end(Task("CNN", "", "USPS"), *place) for place in places)
    yield from (_at_end(NETWORK, *place) for place in (places[0], *audp[::2]))


def _at_end(task: Task, algorithm: str, sigma: float, *noise: Any, changes: tuple[str, ...] = ()) -> Experiment:
    """Return runs that are evaluated when they end.

    `noise` is MAPA's ε, or AUDP's bound and ε.
    """
    if algorithm == "AUDP":
        changes = _noise(task, *noise)
    elif algorithm == "MAPA":
        changes = (f"privacy.epsilon_per_release={noise[0]:g}",)
    cell, updates = cell_of(task, algorithm, sigma, *noise), UPDATES[task.model]
    file = "mapa" if algorithm == PRINTED else ""
    return _runs(ACCURACY, cell, algorithm, task, updates, updates, *changes, sigma=sigma, file=file)


def over_clips(tasks: Sequence[Task]) -> Iterator[Experiment]:
    """Yield Figure 5: norms of clipped gradients, K = 100, at Figure 9's σ."""
    common = ("clients.count=100", "evaluate.gradients=1000")
    for task in tasks:
        yield _runs(NORMS, cell_of(task, "ASGD"), "ASGD", task, 15_000, 250, *common, sigma=30)
        for algorithm, clips in CLIPS.items():
            fixed = ("algorithm.failure_probability=null",) if algorithm == "MAPA" else ()
            for clip in clips:
                cell, changes = cell_of(task, algorithm, clip), (*common, f"privacy.clipping_norm={clip}", *fixed)
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
    cell = cell_of(task, count, algorithm, bound)
    return _runs(CONVERGENCE, cell, algorithm, task, updates, every, *servers, *noise, sigma=5)


_WORLD = ("clients.speed={kind: lognormal, sigma: 0.5}", "algorithm.delays=world")


def on_testbed() -> Iterator[Experiment]:
    """Yield Figure 8: delays from the servers' speeds and links."""
    for count in SERVERS:
        places = [("MAPA", ""), ("AUDP", FOUR), ("AUDP", UNCLIPPED)]
        places += [("ASGD", "")] * (count == SERVERS[-1])
        for algorithm, bound in places:
            cell, noise = cell_of(algorithm, count, bound), _noise(NETWORK, bound, 0.1) if bound else ()
            yield _of_network(TESTBED, cell, algorithm, *_WORLD, f"clients.count={count}", *noise)
    yield _of_network(TESTBED, ("CSGD",), "CSGD")


def joining() -> Iterator[Experiment]:
    """Yield runs in which two of five servers join, or do not."""
    changes = {LATER: (), FROM_START: ("availability=[]",), ABSENT: ("availability=[]", "clients.count=3")}
    for case, own in changes.items():
        yield _runs(JOINING, (case,), "MAPA", PARITY, UPDATES["LR"], UPDATES["LR"], *own, sigma=5, file="joining")


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
