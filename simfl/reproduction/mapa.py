"""MAPA against AUDP, ASGD and CSGD: accuracy over epsilon, clipped gradients, iterations to converge, parameters."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from simfl.plots.style import PALETTE, color_of
from simfl.records import Run
from simfl.reproduction.drawing import labelled, log_axis, panels, with_bars
from simfl.reproduction.study import (
    Cell,
    Experiment,
    Number,
    Paper,
    PaperClaim,
    Runs,
    Section,
    Verdict,
    judge,
    mean,
    show,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA = {"USPS": "{set: libsvm, path: usps}", "MNIST": "{set: mnist}"}
MODELS = {"LR": "{kind: softmax, l2: 1e-4}", "SVM": "{kind: svm, l2: 1e-4}", "CNN": "{kind: cnn, l2: 1e-4}"}
ITERATIONS = {"LR": 15_000, "SVM": 10_000, "CNN": 25_000}
EPSILONS = (0.1, 0.2, 0.3, 0.4, 0.5)
KINDS = {"MAPA": "mapa", "AUDP": "audp", "ASGD": "async_sgd", "CSGD": "centralized_sgd"}
COUNTS = (10, 100, 1000)
LIMITS = {10: 40_000, 100: 400_000, 1000: 400_000}
"""Updates that a run of Figure 7 has to converge in."""
LOSS = 0.6
"""Training loss at which a run of Figure 7 counts as converged."""

TASKS = {f"{model} on {data}": (model, data) for model, data in itertools.product(MODELS, DATA)}

ACCURACY, NORMS = Section("Figure 6", ("ε = {:g}",)), Section("Figure 5", ("C from {:g}",))
CONVERGENCE, TESTBED = Section("Figure 7", ("K = {}",)), Section("Figure 8", ("K = {}",))
PARAMETERS, PRIVATE = Section("Figure 9", ("{:g}",), " = "), Section("noise of the right law", ("ε = {:g}",))
CLIPS = {"AUDP": (15, 3, 0.2), "MAPA": (200, 100, 10)}
TRIED: dict[str, tuple[str, tuple[float, ...]]] = {
    "ε": ("privacy.epsilon_per_release", (0.01, 0.05, 0.5, 1.0)),
    "b": ("algorithm.batch_size", (3, 6, 24, 48)),
    "L": ("algorithm.smoothness", (2.5, 5, 20, 40)),
    "σ": ("algorithm.sampling_std", (10, 20, 50, 100)),
    "δ": ("algorithm.failure_probability", (1e-5, 1e-4, 1e-2, 1e-1)),
    "θ": ("algorithm.reduction", (0.1, 0.25, 0.75, 0.9)),
}
DEFAULTS = {"ε": 0.1, "b": 12.0, "L": 10.0, "σ": 30.0, "δ": 1e-3, "θ": 0.5}
BETWEEN = (1_500, 5_000, 15_000)


def _file(algorithm: str) -> str:
    return f"mapa/usps-lr-{algorithm.lower()}.yaml"


def _changes(algorithm: str, data: str, model: str, updates: int, evaluations: int) -> tuple[str, ...]:
    protects = model == "CNN" and algorithm in ("MAPA", "AUDP")
    return (
        f"data={DATA[data]}",
        f"model={MODELS[model]}",
        f"stop.updates={updates}",
        f"evaluate.every.updates={updates // evaluations}",
        "record.updates=false",
        *(["privacy.noise_on=first_convolution"] if protects else []),  # as the paper has it
    )


def experiments(quick: bool) -> Sequence[Experiment]:
    """Return what to run; in quick form logistic regression alone."""
    if quick:
        return [*over_epsilon(["LR"], (0.1, 0.5), ["USPS"], 2), *over_clips(1), *over_servers((10, 100), 1, quick=True)]
    return [
        *over_epsilon(["LR", "SVM"], EPSILONS, list(DATA), 3),
        *over_epsilon(["CNN"], (0.1, 0.5), list(DATA), 1),  # a run of the network takes a minute
        *over_clips(3),
        *over_servers(COUNTS, 1),
        *on_testbed(3),
        *over_parameters(3),
        *private_noise(2),
    ]


def over_epsilon(
    models: Sequence[str], epsilons: Sequence[float], data: Sequence[str], seeds: int
) -> Iterator[Experiment]:  # fmt: skip
    """Yield figure 6."""
    for model, name, algorithm in itertools.product(models, data, KINDS):
        changes = _changes(algorithm, name, model, ITERATIONS[model], 10)
        cell = f"{model} on {name}", algorithm
        if algorithm in CLIPS:
            for epsilon in epsilons:
                own = (*changes, f"privacy.epsilon_per_release={epsilon}")
                yield Experiment(ACCURACY, (*cell, epsilon), _file(algorithm), own, seeds)
        else:
            yield Experiment(ACCURACY, cell, _file(algorithm), changes, seeds)


def over_clips(seeds: int) -> Iterator[Experiment]:
    """Yield figure 5: norms of clipped gradients, K = 100."""
    common = ("clients.count=100", "evaluate.gradients=1000")
    yield Experiment(NORMS, ("ASGD",), _file("ASGD"), (*_changes("ASGD", "USPS", "LR", 15_000, 60), *common), seeds)
    for algorithm, clips in CLIPS.items():
        for clip in clips:
            fixed = ("algorithm.failure_probability=null",) if algorithm == "MAPA" else ()
            own = (f"privacy.clipping_norm={clip}", *fixed)
            changes = (*_changes(algorithm, "USPS", "LR", 15_000, 60), *common, *own)
            yield Experiment(NORMS, (algorithm, clip), _file(algorithm), changes, seeds)


def over_servers(counts: Sequence[int], seeds: int, quick: bool = False) -> Iterator[Experiment]:
    """Yield figure 7: K edge servers that take turns."""
    for algorithm, count in itertools.product(KINDS, counts):
        if algorithm != "CSGD" or count == counts[0]:
            limit = LIMITS[10 if quick else count]
            changes = _changes(algorithm, "MNIST", "LR", limit, limit // 200)
            own = () if algorithm == "CSGD" else (f"clients.count={count}",)
            yield Experiment(CONVERGENCE, (algorithm, count), _file(algorithm), (*changes, *own), seeds)


def on_testbed(seeds: int) -> Iterator[Experiment]:
    """Yield figure 8: delays from the servers' speeds and links."""
    for algorithm, count in itertools.product(("MAPA", "AUDP"), (5, 10, 20)):
        own = (f"clients.count={count}", "clients.speed={kind: lognormal, sigma: 0.5}", "algorithm.delays=world")
        changes = (*_changes(algorithm, "USPS", "LR", 15_000, 30), *own)
        yield Experiment(TESTBED, (algorithm, count), _file(algorithm), changes, seeds)


def over_parameters(seeds: int) -> Iterator[Experiment]:
    """Yield figure 9: MAPA with another value of one parameter."""
    changes = _changes("MAPA", "USPS", "LR", 15_000, 30)
    yield Experiment(PARAMETERS, ("default",), _file("MAPA"), changes, seeds)
    for name, (path, values) in TRIED.items():
        for value in values:
            yield Experiment(PARAMETERS, (name, value), _file("MAPA"), (*changes, f"{path}={value}"), seeds)


def private_noise(seeds: int) -> Iterator[Experiment]:
    """Yield runs whose noise is private."""
    for epsilon in (0.1, 0.5, 10.0):
        own = (
            "privacy.mechanism=laplace_l2",
            "privacy.neighbors=replace_one",
            f"privacy.epsilon_per_release={epsilon}",
        )
        for algorithm, file in (("MAPA", "mapa"), ("AUDP", "audp"), ("MAPA, stages as in one dimension", "sound")):
            changes = (*_changes("MAPA", "USPS", "LR", 15_000, 10), *own)
            yield Experiment(PRIVATE, (algorithm, epsilon), _file(file), changes, seeds)


# -- numbers ---------------------------------------------------------------------------------------


def epsilon_numbers(runs: Runs) -> Iterator[Number]:
    """Yield figure 6."""
    part = f"{ACCURACY}: noise of the published code, which is private for no ε"
    for cell in runs.cells(ACCURACY):
        column = ACCURACY.label(cell[2]) if cell[2:] else "no noise"
        found = runs.accuracy(ACCURACY, cell)
        yield Number(part, ACCURACY.label(*cell[:2]), column, found, digits=1, unit="test accuracy, %")


def norm_numbers(runs: Runs) -> Iterator[Number]:
    """Yield figure 5."""
    part = f"{NORMS}: norm of the mean of 1,000 clipped gradients, LR on USPS, K = 100, ε = 0.1"
    for cell in runs.cells(NORMS):
        row = NORMS.label(*cell)
        for updates in (0, 500, 2_500, 15_000):
            norms = runs.each(NORMS, cell, functools.partial(_at, updates=updates, column="gradient_norm"))
            yield Number(part, row, f"after {updates:,} updates", norms, digits=3)
        if row != "ASGD":
            last = runs.each(NORMS, cell, lambda run: float(run.metrics["clipping_norm"].iloc[-1]))
            yield Number(part, row, "last C", last, digits=3)
        yield Number(part, row, "test accuracy, %", runs.accuracy(NORMS, cell), digits=1)


def _at(run: Run, updates: int, column: str) -> float:
    metrics = run.metrics
    return float(metrics[column][metrics["updates"] == updates].iloc[0])


def converged(run: Run) -> float:
    """Return the updates until the mean of five successive training losses is below the bar; infinity if never."""
    average = run.metrics["train_loss"].rolling(5).mean()
    below = run.metrics["updates"][average < LOSS]
    return float(below.iloc[0]) if len(below) else math.inf


def convergence(runs: Runs, algorithm: str, count: int) -> float:
    """Return the mean number of updates until convergence; CSGD knows no number of servers."""
    cells = runs.cells(CONVERGENCE, algorithm) if algorithm == "CSGD" else [(algorithm, count)]
    return float(np.mean(runs.each(CONVERGENCE, cells[0], converged)))


def convergence_numbers(runs: Runs) -> Iterator[Number]:
    """Yield figure 7."""
    part = f"{CONVERGENCE}: updates until the training loss is below {LOSS}, LR on MNIST (inf: not within the run)"
    for algorithm, count in runs.cells(CONVERGENCE):
        column = "one machine" if algorithm == "CSGD" else CONVERGENCE.label(count)
        yield Number(part, algorithm, column, runs.each(CONVERGENCE, (algorithm, count), converged), digits=0)


def accuracy_after(runs: Runs, section: Section, cell: Cell, updates: int) -> tuple[float, ...]:
    """Return the accuracy of every run after some updates, in percent."""
    return runs.each(section, cell, lambda run: 100 * _at(run, updates, "test_accuracy"))


def testbed_numbers(runs: Runs) -> Iterator[Number]:
    """Yield figure 8."""
    yield from _over_updates(runs, TESTBED, "delays of a simulated world, LR on USPS, ε = 0.1")


def parameter_numbers(runs: Runs) -> Iterator[Number]:
    """Yield figure 9."""
    yield from _over_updates(runs, PARAMETERS, "MAPA, LR on USPS, ε = 0.1 (b = 12, L = 10, σ = 30, δ = 1e-3, θ = 0.5)")


def _over_updates(runs: Runs, section: Section, about: str) -> Iterator[Number]:
    for cell, updates in itertools.product(runs.cells(section), BETWEEN):
        found = accuracy_after(runs, section, cell, updates)
        yield Number(f"{section}: {about}", section.label(*cell), f"after {updates:,} updates", found, digits=1,
                     unit="test accuracy, %")  # fmt: skip


def private_numbers(runs: Runs) -> Iterator[Number]:
    """Yield what is left with noise that is private."""
    part = "Noise of the right law (laplace_l2): LR on USPS"
    for cell in runs.cells(PRIVATE):
        row = PRIVATE.label(*cell)
        yield Number(part, row, "test accuracy, %", runs.accuracy(PRIVATE, cell), digits=1)
        yield Number(part, row, "certified ε of the whole run, δ = 1e-5", runs.epsilon(PRIVATE, cell), digits=3)


# -- claims ----------------------------------------------------------------------------------------


def tasks(runs: Runs) -> list[str]:
    """Return model and data set of every panel of figure 6 that was run."""
    return [task for task in TASKS if runs.has(ACCURACY, (task, "CSGD"))]


def beats_audp(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether MAPA is more accurate than AUDP at small epsilon."""
    runs.require(ACCURACY)
    held, said = [], []
    for task in tasks(runs):
        values = {
            eps: runs.ahead(ACCURACY, (task, "MAPA", eps), (task, "AUDP", eps))
            for eps in (0.1, 0.2)
            if runs.has(ACCURACY, (task, "MAPA", eps))
        }
        held += [mean(own) > 0 for own in values.values()]
        said.append(f"{task}: " + ", ".join(f"{show(own, 1, True)} at ε = {eps:g}" for eps, own in values.items()))
    return judge(*held), (
        f"points ahead: {'; '.join(said)}. AUDP has a clipping norm that suits it (4, the published code's)"
    )


def insensitive(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether MAPA ends alike whatever clipping norm it begins with, and AUDP does not."""
    found = {name: [mean(runs.accuracy(NORMS, (name, clip))) for clip in clips] for name, clips in CLIPS.items()}
    spread = {name: max(values) - min(values) for name, values in found.items()}
    said = "; ".join(
        f"{name} from C = {', '.join(f'{clip:g}' for clip in clips)}: "
        f"{', '.join(f'{value:.1f}' for value in found[name])} %"
        for name, clips in CLIPS.items()
    )
    return judge(spread["MAPA"] <= 3, spread["AUDP"] >= 10), f"{said} (bars: at most 3, at least 10 points apart)"


def grows(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether accuracy grows with epsilon."""
    runs.require(ACCURACY)
    held, said = [], []
    for task, name in itertools.product(tasks(runs), CLIPS):
        values = [mean(own) for own in runs.accuracies(ACCURACY, task, name).values()]
        # A fifth of a point up or down is what seeds do.
        held.append(all(other > one - 0.2 for one, other in itertools.pairwise(values)) and values[-1] > values[0])
        if not held[-1]:
            said.append(f"{task}, {name}: {', '.join(f'{value:.1f}' for value in values)} %")
    return judge(*held), f"{sum(held)} of {len(held)} curves do" + (f"; not {'; '.join(said)}" if said else "")


def order(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether CSGD is best, and MAPA about as good as ASGD at the largest epsilon."""
    runs.require(ACCURACY)
    held, said = [], []
    for task in tasks(runs):
        best, asynchronous = (mean(runs.accuracy(ACCURACY, (task, name))) for name in ("CSGD", "ASGD"))
        private = max(mean(own) for own in runs.accuracies(ACCURACY, task, "MAPA").values())
        held += [best >= max(asynchronous, private), private >= asynchronous - 3]
        said.append(f"{task}: {best:.1f}, {asynchronous:.1f}, {private:.1f} %")
    return judge(*held), f"CSGD, ASGD, MAPA at its best ε: {'; '.join(said)} (bar: 3 points to ASGD)"


def fewer_iterations(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether MAPA converges in far fewer iterations than AUDP and ASGD, the more so the more servers."""
    runs.require(CONVERGENCE)
    counts = [count for _, count in runs.cells(CONVERGENCE, "MAPA")]
    table = {name: [convergence(runs, name, count) for count in counts] for name in KINDS}
    large = [index for index, count in enumerate(counts) if count >= 100]
    held = [table["MAPA"][i] < table["AUDP"][i] for i in large]
    held += [10 * table["MAPA"][i] <= min(table["ASGD"][i], limit_of(runs, counts[i])) for i in large]
    held += [one <= other for name in ("MAPA", "AUDP", "ASGD") for one, other in itertools.pairwise(table[name])]
    limits = [limit_of(runs, count) for count in counts]
    words = {name: [_count(*own) for own in zip(values, limits, strict=True)] for name, values in table.items()}
    shown = "; ".join(f"{name}: {', '.join(own)}" for name, own in words.items())
    return judge(*held), f"updates at K = {', '.join(f'{count:,}' for count in counts)}: {shown}"


def limit_of(runs: Runs, count: int) -> int:
    """Return how many updates the runs with so many servers had."""
    return runs.first(CONVERGENCE, ("MAPA", count)).manifest.updates


def _count(value: float, limit: int) -> str:
    return f"more than {limit:,}" if math.isinf(value) else f"{value:,.0f}"


def on_the_testbed(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether MAPA is at least as accurate as AUDP with real delays."""
    held, said = [], []
    for count in (5, 10, 20):
        one, other = (runs.accuracy(TESTBED, (name, count)) for name in ("MAPA", "AUDP"))
        held.append(mean(one) >= mean(other))
        said.append(f"K = {count}: {show(one, 1)} and {show(other, 1)} %")
    return judge(*held), f"MAPA and AUDP: {'; '.join(said)}"


def _tried(runs: Runs, name: str, updates: int) -> dict[float, float]:
    cells = {**{value: (name, value) for value in TRIED[name][1]}, DEFAULTS[name]: ("default",)}
    return {value: mean(accuracy_after(runs, PARAMETERS, cells[value], updates)) for value in sorted(cells)}


def _told(values: dict[float, float]) -> str:
    return ", ".join(f"{accuracy:.1f} % at {value:g}" for value, accuracy in values.items())


def no_matter(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether σ and δ do not matter."""
    found = {name: _tried(runs, name, 15_000) for name in ("σ", "δ")}
    held = [max(values.values()) - min(values.values()) <= 3 for values in found.values()]
    return judge(*held), "; ".join(f"{name}: {_told(values)}" for name, values in found.items()) + " (bar: 3 points)"


def faster_at_first(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether larger batches and a smaller L are faster at first."""
    b, smooth = _tried(runs, "b", 1_500), _tried(runs, "L", 1_500)
    held = [list(b.values()) == sorted(b.values()), list(smooth.values()) == sorted(smooth.values(), reverse=True)]
    return judge(*held), f"after 1,500 updates, b: {_told(b)}; L: {_told(smooth)}"


def slower_reduction(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether a stronger reduction is slower."""
    values = _tried(runs, "θ", 5_000)
    steps = itertools.pairwise(values.values())
    return judge(*(one < other for one, other in steps)), f"after 5,000 updates, θ: {_told(values)}"


def private(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether an iteration is ε-private, with the noise of the experiments."""
    runs.require(ACCURACY)
    epsilons = runs.epsilon(ACCURACY, (tasks(runs)[0], "MAPA", 0.1))
    said = "the noise of the published code is drawn with the length of one dimension, and certified for no ε"
    if runs.has(PRIVATE):
        best = max(mean(runs.accuracy(PRIVATE, cell)) for cell in runs.cells(PRIVATE) if cell[-1] == 0.1)
        said += f"; with noise of the right law at ε = 0.1, {best:.1f} % accuracy is left"
    return judge(not math.isnan(epsilons[0])), said


# -- figures ---------------------------------------------------------------------------------------


def draw_accuracy(runs: Runs) -> Figure:
    """Draw accuracy over epsilon, a panel for every model and data set."""
    there = tasks(runs)
    models, data = (list(dict.fromkeys(names)) for names in zip(*(TASKS[task] for task in there), strict=True))
    figure, axes = panels(len(models), len(data), (4.2 * len(data), 2.9 * len(models) + 0.4), sharex=True)
    for axis, task in zip(axes.flat, there, strict=True):
        for (algorithm, kind), line in zip(KINDS.items(), ("-", "--", "-.", ":"), strict=True):
            look = {"ls": line, "color": color_of(kind), "label": algorithm}
            if algorithm in CLIPS:
                found = runs.accuracies(ACCURACY, task, algorithm)
                with_bars(axis, list(found), list(found.values()), **look)
            else:
                axis.axhline(mean(runs.accuracy(ACCURACY, (task, algorithm))), lw=1.5, **look)
        axis.set_title(task)
    return labelled(figure, axes, "ε of an iteration (of noise that is not private)", columns=4)


def draw_norms(runs: Runs) -> Figure:
    """Draw norms of clipped gradients over updates."""
    figure, axes = panels(1, 3, (10, 3.2), sharex=True, sharey=True)
    for axis, algorithm in zip(axes.flat, ("ASGD", "AUDP", "MAPA"), strict=True):
        cells = runs.cells(NORMS, algorithm)
        for cell, line, color in zip(cells, ("-", "--", "-."), PALETTE, strict=False):
            metrics = runs.first(NORMS, cell).metrics
            label = NORMS.label(*cell[1:]).replace("C from", "C =" if algorithm == "AUDP" else "C from")
            axis.plot(metrics["updates"], metrics["gradient_norm"], line, color=color, label=label)
        axis.set(yscale="log", title=algorithm, xticks=(0, 5_000, 10_000, 15_000))
        axis.xaxis.set_major_formatter(lambda value, position: f"{value:,.0f}")
        if len(cells) > 1:
            axis.legend()
    return labelled(figure, axes, "updates", "norm of the clipped gradient")


def draw_convergence(runs: Runs) -> Figure:
    """Draw updates until convergence over the number of servers; runs that never got there are arrows at the limit."""
    counts = [count for _, count in runs.cells(CONVERGENCE, "MAPA")]
    figure, ((axis,),) = panels(1, 1, (6.6, 3.6))
    for (algorithm, kind), line in zip(KINDS.items(), ("-", "--", "-.", ":"), strict=True):
        values = [convergence(runs, algorithm, count) for count in counts]
        finite = [min(value, limit_of(runs, count)) for count, value in zip(counts, values, strict=True)]
        axis.plot(counts, finite, line, marker="o", ms=4, color=color_of(kind), label=algorithm)
        lost = [(count, last) for count, last, value in zip(counts, finite, values, strict=True) if math.isinf(value)]
        for place, height in lost:
            axis.plot(place, height, marker="^", ms=9, color=color_of(kind))
    axis.set(yscale="log", xlabel="edge servers K", ylabel=f"updates until the loss is below {LOSS}")
    log_axis(axis, counts, "{:,}")
    axis.legend(title="▲: and more", loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)
    return figure


PAPER = Paper(
    name="mapa",
    title="Li, Yang, Ren, Zhao: Asynchronous Federated Learning with Differential Privacy for Edge Intelligence",
    page="mapa.md",
    data=("usps", "mnist"),
    minutes=(3, 20),
    experiments=experiments,
    numbers=(
        epsilon_numbers, norm_numbers, convergence_numbers, testbed_numbers, parameter_numbers, private_numbers,
    ),
    claims=(
        PaperClaim("MAPA is more accurate than AUDP, most of all at small ε (Figure 6).", beats_audp, True, "accuracy"),
        PaperClaim("MAPA ends alike whatever clipping norm it begins with; AUDP does not (Figure 5).", insensitive,
                   True, "gradient-norms"),
        PaperClaim("Accuracy grows with ε (Figure 6).", grows, figure="accuracy"),
        PaperClaim("CSGD is best, and MAPA comes close to ASGD (Figure 6).", order, figure="accuracy"),
        PaperClaim("Iterations to converge grow with K; MAPA needs fewer than AUDP, and one to two orders fewer than "
                   "ASGD (Figure 7).", fewer_iterations, figure="convergence"),
        PaperClaim("With the delays of a testbed MAPA is at least as accurate as AUDP (Figure 8).", on_the_testbed),
        PaperClaim("σ and δ do not matter (Figure 9).", no_matter),
        PaperClaim("Larger b and smaller L are faster at first (Figure 9).", faster_at_first),
        PaperClaim("A stronger reduction (smaller θ) is slower (Figure 9).", slower_reduction),
        PaperClaim("What a server sends in an iteration is ε-differentially private.", private),
    ),
    figures={
        "accuracy": ("accuracy over ε", draw_accuracy),
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
        "LR has all ten classes (the paper's is of two that it does not name); each example's gradient is clipped, not "
        "the mean over the batch, which would bound the sensitivity by twice as much.",
        "The testbed of Figure 8 is a simulated world whose servers differ in speed.",
    ),
)  # fmt: skip
