"""MAPA against AUDP, ASGD and CSGD: accuracy over epsilon, clipped gradients, iterations to converge, parameters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from simfl.records import Run
from simfl.records.comparison import interval_of
from simfl.reproduction.study import Claim, Number, Paper, Runs, Setting, Verdict, judge, mean, show

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

ACCURACY, NORMS, CONVERGENCE = "Figure 6", "Figure 5", "Figure 7"
TESTBED, PARAMETERS, PRIVATE = "Figure 8", "Figure 9", "noise of the right law"
CLIPS = {"AUDP": (15, 3, 0.2), "MAPA": (200, 100, 10)}
TRIED: dict[str, tuple[str, tuple[float, ...]]] = {
    "ε": ("privacy.epsilon_per_release", (0.01, 0.05, 0.5, 1.0)),
    "b": ("algorithm.batch_size", (3, 6, 24, 48)),
    "L": ("algorithm.smoothness", (2.5, 5, 20, 40)),
    "σ": ("algorithm.sampling_std", (10, 20, 50, 100)),
    "δ": ("algorithm.failure_probability", (1e-5, 1e-4, 1e-2, 1e-1)),
    "θ": ("algorithm.reduction", (0.1, 0.25, 0.75, 0.9)),
}
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


def settings(quick: bool) -> Sequence[Setting]:
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
) -> Iterator[Setting]:  # fmt: skip
    """Yield figure 6."""
    for model, name, algorithm in itertools.product(models, data, KINDS):
        changes = _changes(algorithm, name, model, ITERATIONS[model], 10)
        if algorithm in CLIPS:
            for epsilon in epsilons:
                own = (*changes, f"privacy.epsilon_per_release={epsilon}")
                yield Setting(
                    ACCURACY, f"{model} on {name}, {algorithm}, ε = {epsilon:g}", _file(algorithm), own, seeds
                )
        else:
            yield Setting(ACCURACY, f"{model} on {name}, {algorithm}", _file(algorithm), changes, seeds)


def over_clips(seeds: int) -> Iterator[Setting]:
    """Yield figure 5: norms of clipped gradients, K = 100."""
    common = ("clients.count=100", "evaluate.gradients=1000")
    yield Setting(NORMS, "ASGD", _file("ASGD"), (*_changes("ASGD", "USPS", "LR", 15_000, 60), *common), seeds)
    for algorithm, clips in CLIPS.items():
        for clip in clips:
            fixed = ("algorithm.failure_probability=null",) if algorithm == "MAPA" else ()
            own = (f"privacy.clipping_norm={clip}", *fixed)
            changes = (*_changes(algorithm, "USPS", "LR", 15_000, 60), *common, *own)
            yield Setting(NORMS, f"{algorithm}, C from {clip:g}", _file(algorithm), changes, seeds)


def over_servers(counts: Sequence[int], seeds: int, quick: bool = False) -> Iterator[Setting]:
    """Yield figure 7: K edge servers that take turns."""
    for algorithm, count in itertools.product(KINDS, counts):
        if algorithm != "CSGD" or count == counts[0]:
            limit = LIMITS[10 if quick else count]
            changes = _changes(algorithm, "MNIST", "LR", limit, limit // 200)
            own = () if algorithm == "CSGD" else (f"clients.count={count}",)
            yield Setting(CONVERGENCE, f"{algorithm}, K = {count}", _file(algorithm), (*changes, *own), seeds)


def on_testbed(seeds: int) -> Iterator[Setting]:
    """Yield figure 8: delays from the servers' speeds and links."""
    for algorithm, count in itertools.product(("MAPA", "AUDP"), (5, 10, 20)):
        own = (f"clients.count={count}", "clients.speed={kind: lognormal, sigma: 0.5}", "algorithm.delays=world")
        changes = (*_changes(algorithm, "USPS", "LR", 15_000, 30), *own)
        yield Setting(TESTBED, f"{algorithm}, K = {count}", _file(algorithm), changes, seeds)


def over_parameters(seeds: int) -> Iterator[Setting]:
    """Yield figure 9: MAPA with another value of one parameter."""
    changes = _changes("MAPA", "USPS", "LR", 15_000, 30)
    yield Setting(PARAMETERS, "default", _file("MAPA"), changes, seeds)
    for name, (path, values) in TRIED.items():
        for value in values:
            yield Setting(PARAMETERS, f"{name} = {value:g}", _file("MAPA"), (*changes, f"{path}={value}"), seeds)


def private_noise(seeds: int) -> Iterator[Setting]:
    """Yield runs whose noise is private."""
    for epsilon in (0.1, 0.5, 10.0):
        own = (
            "privacy.mechanism=laplace_l2",
            "privacy.neighbors=replace_one",
            f"privacy.epsilon_per_release={epsilon}",
        )
        for algorithm, file in (("MAPA", "mapa"), ("AUDP", "audp"), ("MAPA, stages as in one dimension", "sound")):
            changes = (*_changes("MAPA", "USPS", "LR", 15_000, 10), *own)
            yield Setting(PRIVATE, f"{algorithm}, ε = {epsilon:g}", _file(file), changes, seeds)


# -- numbers ---------------------------------------------------------------------------------------


def epsilon_numbers(runs: Runs) -> Iterator[Number]:
    """Yield figure 6."""
    part = f"{ACCURACY}: noise of the published code, which is private for no ε"
    for model, data, algorithm in itertools.product(MODELS, DATA, KINDS):
        row = f"{model} on {data}, {algorithm}"
        if runs.has(ACCURACY, row):
            yield Number(part, row, "no noise", runs.accuracy(ACCURACY, row), digits=1, unit="test accuracy, %")
        for epsilon in EPSILONS:
            if runs.has(ACCURACY, f"{row}, ε = {epsilon:g}"):
                found = runs.accuracy(ACCURACY, f"{row}, ε = {epsilon:g}")
                yield Number(part, row, f"ε = {epsilon:g}", found, digits=1, unit="test accuracy, %")


def norm_numbers(runs: Runs) -> Iterator[Number]:
    """Yield figure 5."""
    part = f"{NORMS}: norm of the mean of 1,000 clipped gradients, LR on USPS, K = 100, ε = 0.1"
    for name in runs.names(NORMS):
        for updates in (0, 500, 2_500, 15_000):
            yield Number(part, name, f"after {updates:,} updates", _norms(runs, name, updates), digits=3)
        if name != "ASGD":
            last = runs.each(NORMS, name, lambda run: float(run.metrics["clipping_norm"].iloc[-1]))
            yield Number(part, name, "last C", last, digits=3)
        yield Number(part, name, "test accuracy, %", runs.accuracy(NORMS, name), digits=1)


def _norms(runs: Runs, name: str, updates: int) -> tuple[float, ...]:
    return runs.each(NORMS, name, lambda run: _at(run, updates, "gradient_norm"))


def _at(run: Run, updates: int, column: str) -> float:
    metrics = run.metrics
    return float(metrics[column][metrics["updates"] == updates].iloc[0])


def converged(run: Run) -> float:
    """Return the updates until the mean of five successive training losses is below the bar; infinity if never."""
    average = run.metrics["train_loss"].rolling(5).mean()
    below = run.metrics["updates"][average < LOSS]
    return float(below.iloc[0]) if len(below) else math.inf


def convergence(runs: Runs, algorithm: str, count: int) -> float:
    """Return the mean number of updates until convergence."""
    names = runs.names(CONVERGENCE)
    name = next(
        (name for name in names if algorithm == "CSGD" and name.startswith("CSGD")), f"{algorithm}, K = {count}"
    )
    return float(np.mean(runs.each(CONVERGENCE, name, converged)))


def convergence_numbers(runs: Runs) -> Iterator[Number]:
    """Yield figure 7."""
    part = f"{CONVERGENCE}: updates until the training loss is below {LOSS}, LR on MNIST (inf: not within the run)"
    for name in runs.names(CONVERGENCE):
        algorithm, count = name.split(", ")
        column = "one machine" if algorithm == "CSGD" else count
        yield Number(part, algorithm, column, runs.each(CONVERGENCE, name, converged), digits=0)


def testbed_numbers(runs: Runs) -> Iterator[Number]:
    """Yield figure 8."""
    part = f"{TESTBED}: delays of a simulated world, LR on USPS, ε = 0.1"
    for name in runs.names(TESTBED):
        algorithm, count = name.split(", ")
        for updates in BETWEEN:
            found = runs.each(TESTBED, name, lambda run, at=updates: 100 * _at(run, at, "test_accuracy"))  # type: ignore[misc]
            yield Number(part, f"{algorithm}, {count}", f"after {updates:,} updates", found, digits=1,
                         unit="test accuracy, %")  # fmt: skip


def parameter(runs: Runs, name: str, updates: int) -> tuple[float, ...]:
    """Return the accuracy of a run of figure 9 after some updates, in percent."""
    return runs.each(PARAMETERS, name, lambda run: 100 * _at(run, updates, "test_accuracy"))


def parameter_numbers(runs: Runs) -> Iterator[Number]:
    """Yield figure 9."""
    part = f"{PARAMETERS}: MAPA, LR on USPS, ε = 0.1 (b = 12, L = 10, σ = 30, δ = 1e-3, θ = 0.5)"
    for name, updates in itertools.product(runs.names(PARAMETERS), BETWEEN):
        yield Number(part, name, f"after {updates:,} updates", parameter(runs, name, updates), digits=1,
                     unit="test accuracy, %")  # fmt: skip


def private_numbers(runs: Runs) -> Iterator[Number]:
    """Yield what is left with noise that is private."""
    part = "Noise of the right law (laplace_l2): LR on USPS"
    for name in runs.names(PRIVATE):
        yield Number(part, name, "test accuracy, %", runs.accuracy(PRIVATE, name), digits=1)
        certified = runs.each(PRIVATE, name, lambda run: run.epsilon_and_delta()[0])
        yield Number(part, name, "certified ε of the whole run, δ = 1e-5", certified, digits=3)


# -- claims ----------------------------------------------------------------------------------------


def tasks(runs: Runs) -> list[str]:
    """Return model and data set of every panel of figure 6 that was run."""
    names = [f"{model} on {data}" for model, data in itertools.product(MODELS, DATA)]
    return [name for name in names if runs.has(ACCURACY, f"{name}, CSGD")]


def ahead_of_audp(runs: Runs, task: str, epsilon: float) -> tuple[float, ...]:
    """Return by how many points MAPA is ahead of AUDP, by seed."""
    return runs.pairs(
        (ACCURACY, f"{task}, MAPA, ε = {epsilon:g}"),
        (ACCURACY, f"{task}, AUDP, ε = {epsilon:g}"),
        lambda one, other: 100 * float(one.metrics["test_accuracy"].iloc[-1] - other.metrics["test_accuracy"].iloc[-1]),
    )


def beats_audp(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether MAPA is more accurate than AUDP at small epsilon."""
    runs.require(ACCURACY)
    held, said = [], []
    for task in tasks(runs):
        there = [eps for eps in (0.1, 0.2) if runs.has(ACCURACY, f"{task}, MAPA, ε = {eps:g}")]
        values = {eps: ahead_of_audp(runs, task, eps) for eps in there}
        held += [mean(own) > 0 for own in values.values()]
        said.append(f"{task}: " + ", ".join(f"{show(own, 1, True)} at ε = {eps:g}" for eps, own in values.items()))
    return judge(*held), (
        f"points ahead: {'; '.join(said)}. AUDP has a clipping norm that suits it (4, the published code's)"
    )


def insensitive(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether MAPA ends alike whatever clipping norm it begins with, and AUDP does not."""
    found = {
        name: [mean(runs.accuracy(NORMS, f"{name}, C from {clip:g}")) for clip in clips]
        for name, clips in CLIPS.items()
    }
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
        there = [eps for eps in EPSILONS if runs.has(ACCURACY, f"{task}, {name}, ε = {eps:g}")]
        values = [mean(runs.accuracy(ACCURACY, f"{task}, {name}, ε = {eps:g}")) for eps in there]
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
        best, asynchronous = (mean(runs.accuracy(ACCURACY, f"{task}, {name}")) for name in ("CSGD", "ASGD"))
        private = max(
            mean(runs.accuracy(ACCURACY, f"{task}, MAPA, ε = {eps:g}"))
            for eps in EPSILONS
            if runs.has(ACCURACY, f"{task}, MAPA, ε = {eps:g}")
        )
        held += [best >= max(asynchronous, private), private >= asynchronous - 3]
        said.append(f"{task}: {best:.1f}, {asynchronous:.1f}, {private:.1f} %")
    return judge(*held), f"CSGD, ASGD, MAPA at its best ε: {'; '.join(said)} (bar: 3 points to ASGD)"


def fewer_iterations(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether MAPA converges in far fewer iterations than AUDP and ASGD, the more so the more servers."""
    runs.require(CONVERGENCE)
    counts = [count for count in COUNTS if runs.has(CONVERGENCE, f"MAPA, K = {count}")]
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
    return runs.first(CONVERGENCE, f"MAPA, K = {count}").manifest.updates


def _count(value: float, limit: int) -> str:
    return f"more than {limit:,}" if math.isinf(value) else f"{value:,.0f}"


def on_the_testbed(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether MAPA is at least as accurate as AUDP with real delays."""
    held, said = [], []
    for count in (5, 10, 20):
        one, other = (runs.accuracy(TESTBED, f"{name}, K = {count}") for name in ("MAPA", "AUDP"))
        held.append(mean(one) >= mean(other))
        said.append(f"K = {count}: {show(one, 1)} and {show(other, 1)} %")
    return judge(*held), f"MAPA and AUDP: {'; '.join(said)}"


def _tried(runs: Runs, name: str, updates: int) -> dict[float, float]:
    default = {"b": 12.0, "L": 10.0, "σ": 30.0, "δ": 1e-3, "θ": 0.5, "ε": 0.1}[name]
    values = {value: mean(parameter(runs, f"{name} = {value:g}", updates)) for value in TRIED[name][1]}
    return dict(sorted({**values, default: mean(parameter(runs, "default", updates))}.items()))


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
    name = f"{tasks(runs)[0]}, MAPA, ε = 0.1"
    epsilons = runs.each(ACCURACY, name, lambda run: run.epsilon_and_delta()[0])
    said = "the noise of the published code is drawn with the length of one dimension, and certified for no ε"
    if runs.has(PRIVATE):
        best = max(mean(runs.accuracy(PRIVATE, own)) for own in runs.names(PRIVATE) if own.endswith("ε = 0.1"))
        said += f"; with noise of the right law at ε = 0.1, {best:.1f} % accuracy is left"
    return judge(not math.isnan(epsilons[0])), said


# -- figures ---------------------------------------------------------------------------------------


def draw_accuracy(runs: Runs) -> Figure:
    """Draw accuracy over epsilon, a panel for every model and data set."""
    from matplotlib import pyplot as plt

    from simfl.plots.style import color_of

    models = [model for model in MODELS if runs.has(ACCURACY, f"{model} on USPS, CSGD")]
    data = [name for name in DATA if runs.has(ACCURACY, f"{models[0]} on {name}, CSGD")]
    figure, axes = plt.subplots(
        len(models), len(data), figsize=(4.2 * len(data), 2.9 * len(models) + 0.4), squeeze=False, sharex=True,
        layout="constrained",
    )  # fmt: skip
    for (row, model), (column, name) in itertools.product(enumerate(models), enumerate(data)):
        axis, task = axes[row][column], f"{model} on {name}"
        for (algorithm, kind), line in zip(KINDS.items(), ("-", "--", "-.", ":"), strict=True):
            if algorithm in CLIPS:
                there = [eps for eps in EPSILONS if runs.has(ACCURACY, f"{task}, {algorithm}, ε = {eps:g}")]
                found = [interval_of(runs.accuracy(ACCURACY, f"{task}, {algorithm}, ε = {eps:g}")) for eps in there]
                halves = [0.0 if math.isnan(own.low) else own.half_width for own in found]
                axis.errorbar(there, [own.mean for own in found], halves, marker="o", ms=3.5, capsize=2, lw=1.5,
                              ls=line, color=color_of(kind), label=algorithm)  # fmt: skip
            else:
                height = mean(runs.accuracy(ACCURACY, f"{task}, {algorithm}"))
                axis.axhline(height, ls=line, lw=1.5, color=color_of(kind), label=algorithm)
        axis.set_title(task)
        if column == 0:
            axis.set_ylabel("test accuracy, %")
    for axis in axes[-1]:
        axis.set_xlabel("ε of an iteration (of noise that is not private)")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def draw_norms(runs: Runs) -> Figure:
    """Draw norms of clipped gradients over updates."""
    from matplotlib import pyplot as plt

    from simfl.plots.style import PALETTE

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharex=True, sharey=True, layout="constrained")
    for axis, algorithm in zip(axes, ("ASGD", "AUDP", "MAPA"), strict=True):
        names = [name for name in runs.names(NORMS) if name.startswith(algorithm)]
        for index, name in enumerate(names):
            metrics = runs.first(NORMS, name).metrics
            label = name.removeprefix(f"{algorithm}, ").replace("C from", "C =" if algorithm == "AUDP" else "C from")
            axis.plot(metrics["updates"], metrics["gradient_norm"], ("-", "--", "-.")[index], color=PALETTE[index],
                      label=label)  # fmt: skip
        axis.set(yscale="log", xlabel="updates", title=algorithm, xticks=(0, 5_000, 10_000, 15_000))
        axis.xaxis.set_major_formatter(lambda value, position: f"{value:,.0f}")
        if len(names) > 1:
            axis.legend()
    axes[0].set_ylabel("norm of the clipped gradient")
    return figure


def draw_convergence(runs: Runs) -> Figure:
    """Draw updates until convergence over the number of servers; runs that never got there are arrows at the limit."""
    from matplotlib import pyplot as plt

    from simfl.plots.style import color_of

    counts = [count for count in COUNTS if runs.has(CONVERGENCE, f"MAPA, K = {count}")]
    figure, axis = plt.subplots(figsize=(6.6, 3.6), layout="constrained")
    for (algorithm, kind), line in zip(KINDS.items(), ("-", "--", "-.", ":"), strict=True):
        values = [convergence(runs, algorithm, count) for count in counts]
        finite = [min(value, limit_of(runs, count)) for count, value in zip(counts, values, strict=True)]
        axis.plot(counts, finite, line, marker="o", ms=4, color=color_of(kind), label=algorithm)
        lost = [(count, last) for count, last, value in zip(counts, finite, values, strict=True) if math.isinf(value)]
        for place, height in lost:
            axis.plot(place, height, marker="^", ms=9, color=color_of(kind))
    axis.set(xscale="log", yscale="log", xlabel="edge servers K", ylabel=f"updates until the loss is below {LOSS}")
    axis.set_xticks(counts, [f"{count:,}" for count in counts])
    axis.minorticks_off()
    axis.legend(title="▲: and more", loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)
    return figure


PAPER = Paper(
    name="mapa",
    title="Li, Yang, Ren, Zhao: Asynchronous Federated Learning with Differential Privacy for Edge Intelligence",
    page="mapa.md",
    data=("usps", "mnist"),
    minutes=(3, 20),
    settings=settings,
    numbers=(
        epsilon_numbers, norm_numbers, convergence_numbers, testbed_numbers, parameter_numbers, private_numbers,
    ),
    claims=(
        Claim("MAPA is more accurate than AUDP, most of all at small ε (Figure 6).", beats_audp, True, "accuracy"),
        Claim("MAPA ends alike whatever clipping norm it begins with; AUDP does not (Figure 5).", insensitive, True,
              "gradient-norms"),
        Claim("Accuracy grows with ε (Figure 6).", grows, figure="accuracy"),
        Claim("CSGD is best, and MAPA comes close to ASGD (Figure 6).", order, figure="accuracy"),
        Claim("Iterations to converge grow with K; MAPA needs fewer than AUDP, and one to two orders fewer than ASGD "
              "(Figure 7).", fewer_iterations, figure="convergence"),
        Claim("With the delays of a testbed MAPA is at least as accurate as AUDP (Figure 8).", on_the_testbed),
        Claim("σ and δ do not matter (Figure 9).", no_matter),
        Claim("Larger b and smaller L are faster at first (Figure 9).", faster_at_first),
        Claim("A stronger reduction (smaller θ) is slower (Figure 9).", slower_reduction),
        Claim("What a server sends in an iteration is ε-differentially private.", private),
    ),
    figures={
        "accuracy": ("accuracy over ε", draw_accuracy),
        "gradient-norms": ("norms of clipped gradients over updates", draw_norms),
        "convergence": ("updates to converge over the number of edge servers", draw_convergence),
    },
    untested=(
        ("Figure 4's images from gradients.", "a picture and no number: `notebooks/gradient_inversion.ipynb` draws it"),
    ),
    remarks=(
        "The paper prints curves and no numbers: there is nothing to subtract.",
        "The noise is that of the published code (`laplace_l2_radius_only`): ε is a name for its size. What noise of "
        "the right law leaves is in the last table.",
        "LR has all ten classes (the paper's is of two that it does not name); each example's gradient is clipped, not "
        "the mean over the batch, which would bound the sensitivity by twice as much.",
        "The testbed of Figure 8 is a simulated world whose servers differ in speed.",
    ),
)  # fmt: skip
