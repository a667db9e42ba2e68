"""A(DP)²SGD against SYNC: accuracy, time, slow learners, large steps, privacy."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from simfl.assembly.data import load_data
from simfl.comparison.comparing import evaluations_until, median_of, ratio_of
from simfl.papers.adp2sgd.theory import Theorem2, theorem2
from simfl.papers.drawing import Figure, labeled, panels
from simfl.plots.groups import average, plot_groups
from simfl.plots.style import MARKERS, PALETTE
from simfl.records import Run, common_accuracy
from simfl.records.display import show_fixed
from simfl.reproduction.evidence import SEEDS, Part, Reading, above, exactly, show, typical, within
from simfl.reproduction.papers import Cell, Experiment, Number, Paper, PaperClaim, Runs, Section, accuracy, mean
from simfl.scenario import from_mapping
from simfl.streams import Streams

SIGMA = {"no noise": 0.0, "small noise": 1.0, "medium noise": 2.0, "large noise": 4.0}
"""The paper's standard deviations of noise on images."""
NOISE = {case: f"noise-{case.split()[0]}" if sigma else "baseline" for case, sigma in SIGMA.items()}
"""The scenario of each, without its kind."""
CLIPPED = "no noise, clipped"
"""Noise multiplier 0: the cost of clipping alone."""
SLOW = {
    "case I: in every iteration a random worker is 2x slower": "case1",
    "case II: one worker is 10x slower": "case2",
}
EQUALLY_FAST = "medium noise"
"""The case without a slow learner that has the noise of the cases with one."""
LARGE = "case III: twice the batch and step size"
UNCLIPPED = f"{LARGE}, not clipped"
METHODS = {"sync": "SYNC", "adpsgd": "A(DP)²SGD"}
SOFTMAX = Section("MNIST, softmax regression, clipped")
MLP = Section("MNIST, MLP, not clipped")
LENET5 = Section("digits, LeNet-5, not clipped")
RESNET = Section("digits, residual network, not clipped")
EDGE = Section("the edge of stability, MLP, not clipped", ("batch {}", "step {}", "σ = {:g}"))
LSTM = Section("text, LSTM")
IDEAL = Section("times without jitter and communication")
CIFAR = Section("CIFAR-10, residual network, not clipped")
NETWORKS = {SOFTMAX: "softmax regression", MLP: "MLP", LENET5: "LeNet-5", RESNET: "residual network",
            CIFAR: "residual network on CIFAR-10"}  # fmt: skip
CONVOLUTIONAL = (LENET5, RESNET, CIFAR)
"""The networks nearest to the paper's: convolutional, not clipped, with its noise on the mean of a batch."""
SYNC = "SYNC"
EXCHANGES = {"atomic": "at once (Algorithm 1)", "messages": "by messages (Appendix A)"}
"""When a pair of models is averaged, in the paper's two views."""

ARITHMETIC = dict(zip(SLOW, (2 / (1 + 1 / 16), (15 + 1 / 10) * 10 / 16), strict=True))
"""The ratio of times by the paper's reasoning: SYNC waits for the slow learner, and A(DP)²SGD for none."""
COLLAPSE = {EDGE: 80.0, SOFTMAX: 80.0, LSTM: 20.0, CIFAR: 15.0}
"""Accuracy in percent below which a run has collapsed: below that of a linear model, or of a guess."""
SIDE = 0.025
"""How often a test may err on one side. No test of five seeds is as sure."""
CAREFUL = 8
"""Seeds at twice the batch and step size, where runs end in one of two ways, twice as many in the middle of the map.

An MLP and an LSTM have as many where their times to equal accuracy are judged, which differ between seeds.
"""
DOUBLED_STEP = 0.8
"""Twice the paper's first step size."""
MIDDLE = (128, DOUBLED_STEP, 1.0)
"""Twice the batch and step size of the other cases, with small noise."""
HALF = (64, 0.4, 1.0)
"""The batch and step size of the other cases."""

PRIVACY = {
    "CIFAR-10, 300 epochs, as the paper's": (3125, 256, 300 * 50_000 // 256, (8.5, 10.0, 15.0)),
    "MNIST, 20 epochs, as run here": (3750, 64, 20 * 60_000 // 64, (2.8, 5.0, 10.0)),
}
"""Examples of a worker, batch size, mini-batches of all workers, and epsilons that Theorem 2 covers for these."""
DELTA = 1e-5
EQUAL_EPSILON = 0.05
"""Relative difference up to which certified epsilons count as equal."""

TABLE1 = {
    "no noise": ((90.41, 91.21), (92.82, 94.17), (91.87, 92.80), (94.29, 94.14), (92.95, 92.73), (94.01, 94.97),
                 (92.74, 92.67), (94.04, 94.65), (94.19, 94.68)),
    "small noise": ((90.26, 89.90), (91.63, 91.52), (90.58, 90.59), (92.61, 92.13), (91.21, 91.03), (91.67, 91.64),
                    (91.23, 90.78), (91.94, 92.26), (91.99, 91.92)),
    "medium noise": ((88.13, 87.01), (89.30, 88.61), (88.92, 88.13), (90.93, 90.45), (88.27, 87.89), (89.08, 88.43),
                     (89.39, 88.71), (90.28, 90.05), (89.99, 88.99)),
    "large noise": ((82.99, 82.47), (84.35, 82.20), (84.16, 83.11), (86.52, 84.83), (82.80, 81.78), (83.40, 81.01),
                    (85.08, 82.67), (86.34, 85.51)),
}  # fmt: skip
"""SYNC and A(DP)²SGD of nine networks; at large noise without SENet-18, where SYNC collapsed."""
TABLE1_LOSSES = dict(zip(SIGMA, ([(1.566, 1.585)], [(1.617, 1.627)], [(1.752, 1.732)], [(1.990, 2.010)]), strict=True))
"""The held-out losses of the LSTM."""


def spread(table: Mapping[str, Sequence[tuple[float, float]]]) -> float:
    """Return the largest difference between the two methods in a table."""
    return round(max(abs(other - one) for pairs in table.values() for one, other in pairs), 6)


BAR = spread(TABLE1)
"""Points of accuracy up to which methods are alike: the paper calls every difference of its Table 1 comparable."""
LOSS_BAR = spread(TABLE1_LOSSES)
"""The same for a loss, in nats."""


def _scheduled(epochs: int) -> tuple[str, str]:
    """Return overrides for a run with the paper's schedule in `epochs` epochs.

    The step size falls to a tenth at 160 and 240 of 300 epochs.
    """
    ends = f"{round(epochs * 160 / 300, 2):g}, {round(epochs * 240 / 300, 2):g}"
    steps = f"algorithm.step_size={{kind: by_epochs, values: [0.4, 0.04, 0.004], boundaries: [{ends}]}}"
    return steps, f"stop={{epochs: {epochs}}}"


#: A world where only computing takes time, the same for every batch.
_IDEAL = (
    "clients.jitter=1", "links.latency=0 s", "links.bandwidth=null", "data=digits", "algorithm.sampling=shuffle",
    "algorithm.batch_size=32", "algorithm.step_size=0.4", "privacy=null", "stop={epochs: 60}",
    "evaluate.every={epochs: 60}", "record.updates=false",
)  # fmt: skip
_BRIEF = ("record.updates=false",)
_MLP = (*_BRIEF, "model={kind: mlp, hidden: [128, 64, 64]}", "links.bandwidth=594 Mbit/s")
_SHORT = (*_MLP, *_scheduled(4), "evaluate.every={epochs: 0.25}")
_EDGE = (*_MLP, "stop={epochs: 3}", "evaluate.every={epochs: 3}")
#: There are only 1,437 examples: with batches of 16 a worker takes six steps in an epoch, the paper's twelve.
_DIGITS = (*_BRIEF, "data={set: digits}", "algorithm.batch_size=16", "clients.seconds_per_example=28.5 ms")
_LENET5 = (*_DIGITS, "model={kind: lenet5}", *_scheduled(60), "evaluate={every: {epochs: 10}, clients: true}")
_EIGHT_LAYERS = (*_DIGITS, "model={kind: resnet}", "links.bandwidth=406 Mbit/s")
_RESNET = (*_EIGHT_LAYERS, *_scheduled(40), "evaluate={every: {epochs: 8}, clients: true}")
_TEXT = (*_BRIEF, "data.length=8", "data.stride=8", "clients.seconds_per_example=35.1 ms")


def experiments(quick: bool) -> Sequence[Experiment]:
    """Return pairs of SYNC and AD-PSGD; the quick form has those of slow learners.

    Its LSTM learns text that is generated, and needs no file.
    """
    if quick:
        cases = {EQUALLY_FAST: ("baseline", "medium"), [*SLOW][1]: ("case2", "case2")}
        pairs = [_pair(MLP, case, base, *_SHORT, noise(SIGMA[EQUALLY_FAST])) for case, (base, _) in cases.items()]
        pairs += [
            _pair(LSTM, case, f"lstm-{base}", *_TEXT, "algorithm.batch_size=16") for case, (_, base) in cases.items()
        ]
        return [*itertools.chain(*pairs)]
    pairs = [_pair(SOFTMAX, case, base, *_BRIEF) for case, base in {**NOISE, **SLOW}.items()]
    pairs += [_pair(SOFTMAX, LARGE, "case3", *_BRIEF, seeds=_seeds(LARGE))]
    pairs += [_pair(SOFTMAX, CLIPPED, "noise-small", *_BRIEF, "privacy.noise_multiplier=0")]
    pairs += [_pair(IDEAL, case, base, *_IDEAL) for case, base in SLOW.items()]
    for case, base in {**dict.fromkeys(SIGMA, "baseline"), **SLOW}.items():
        private = noise(SIGMA.get(case, SIGMA[EQUALLY_FAST]))
        pairs += [_pair(MLP, case, base, *_SHORT, private, seeds=_seeds(case))]
    # Batches are a sixteenth of the paper's, and so is the noise on their sums: that on the mean is the paper's.
    pairs += [_pair(LENET5, case, "lenet5-baseline", *_LENET5, noise(std / 16)) for case, std in SIGMA.items()]
    ends = ("no noise", "large noise")
    pairs += [_pair(RESNET, case, "baseline", *_RESNET, noise(SIGMA[case] / 16)) for case in ends]
    for case, base in {"no noise": "baseline", EQUALLY_FAST: "medium", **SLOW}.items():
        pairs += [_pair(LSTM, case, f"lstm-{base}", *_TEXT, "algorithm.batch_size=16", seeds=_seeds(case))]
    large = (*_TEXT, "algorithm.batch_size=32")
    for case, changes in {LARGE: (), UNCLIPPED: (noise(0.08),)}.items():
        pairs += [_pair(LSTM, case, "lstm-case3", *large, *changes, seeds=_seeds(case))]
    edge = [*_edge(MIDDLE, 2 * CAREFUL), *_edge(HALF, CAREFUL, ()), *_edge((64, DOUBLED_STEP, 1.0), CAREFUL)]
    return [*itertools.chain(*pairs), *edge]


def noise(std: float) -> str:
    """Return the override for the paper's noise: a std on unclipped sums."""
    return f"privacy={{mechanism: gaussian_unclipped, noise_std: {std:g}}}" if std else "privacy=null"


def _seeds(case: str) -> int:
    """Return how many seeds decide a case, more where seeds differ much."""
    return CAREFUL if case in (EQUALLY_FAST, *SLOW, LARGE, UNCLIPPED) else SEEDS


def _pair(section: Section, case: str, base: str, *changes: str, seeds: int = SEEDS) -> list[Experiment]:
    """Return runs of SYNC and of A(DP)²SGD; `base` is the scenario without its kind."""
    return [Experiment(section, (case, kind), f"adp2sgd/{base}-{kind}.yaml", changes, seeds) for kind in METHODS]


def _edge(cell: tuple[int, float, float], seeds: int, exchanges: Sequence[str] = tuple(EXCHANGES)) -> list[Experiment]:
    """Return runs at the edge of stability; those that are drawn have curves."""
    batch, step, sigma = cell
    changes = [*_EDGE, noise(sigma), f"algorithm.batch_size={batch}", f"algorithm.step_size={step}"]
    changes += ["evaluate.every={epochs: 0.25}"] * (cell == MIDDLE)
    kinds = {SYNC: ("sync", ()), **{kind: ("adpsgd", (f"algorithm.exchange={kind}",)) for kind in exchanges}}
    return [
        Experiment(EDGE, (*cell, kind), f"adp2sgd/case3-{base}.yaml", (*changes, *more), seeds)
        for kind, (base, more) in kinds.items()
    ]


def cases_of(runs: Runs, section: Section = SOFTMAX) -> list[str]:
    """Return the cases in which both algorithms were run."""
    cases = dict.fromkeys(cell[0] for cell in runs.cells(section))
    return [case for case in cases if runs.has(section, *((case, kind) for kind in METHODS))]


def ratios(runs: Runs, section: Section, case: str, measure: Callable[[Run, Run], float]) -> tuple[float, ...]:
    """Return a measure of SYNC's and A(DP)²SGD's runs, by pairs of one seed."""
    return runs.pairs(section, (case, "sync"), (case, "adpsgd"), measure)


def lead(runs: Runs, section: Section, case: str, own: bool = False) -> tuple[float, ...]:
    """Return A(DP)²SGD's accuracy minus SYNC's, in points, by pairs of one seed.

    With `own` it is the accuracy of workers' own models, the mean over workers, instead of that of the mean model.
    """
    measure = own_accuracy if own else accuracy  # SYNC has one model
    return runs.pairs(section, (case, "adpsgd"), (case, "sync"), lambda one, other: measure(one) - accuracy(other))


def own_accuracy(run: Run) -> float:
    """Return the final accuracy of workers' own models in percent, the mean."""
    table = run.client_metrics
    last = table[table["time_s"] == table["time_s"].max()]
    return math.nan if run.status == "diverged" else 100 * float(last["test_accuracy"].mean())


def speed_up(sync: Run, adpsgd: Run) -> float:
    """Return SYNC's virtual time to a common accuracy, over A(DP)²SGD's."""
    # A quarter of a point below the plateau, so that the time does not depend on the plateau's last digit.
    target = common_accuracy([sync, adpsgd]) - 0.0025
    slow, fast = (run.metrics["time_s"].iloc[evaluations_until(run, target) or 0] for run in (sync, adpsgd))
    return float(slow / fast)


def throughput(sync: Run, adpsgd: Run) -> float:
    """Return the ratio of virtual times for equally many updates."""
    one, other = sync.manifest, adpsgd.manifest
    return (one.time_s / one.updates) / (other.time_s / other.updates)


def loss(run: Run) -> float:
    """Return the held-out loss at the end of a run."""
    return float(run.metrics["test_loss"].iloc[-1])


def smallest_loss(run: Run) -> float:
    """Return the smallest expected loss on a run's generated text, nats per character."""
    text = load_data(from_mapping(run.scenario), Streams(run.manifest.seed))
    assert text.optimal_loss is not None, "generated"
    return text.optimal_loss


def accuracies(runs: Runs) -> Iterator[Number]:
    """Yield accuracy at equal epochs, and the certified epsilon."""
    for section in NETWORKS:
        title = f"Accuracy at the end ({section})"
        for case in cases_of(runs, section):
            for kind, name in METHODS.items():
                yield Number(title, case, f"{name}, %", runs.accuracy(section, (case, kind)))
            yield Number(title, case, "difference, points", lead(runs, section, case))
            if section in (LENET5, RESNET):
                yield Number(title, case, "difference of own models, points", lead(runs, section, case, own=True))
            for kind, name in METHODS.items():
                certified = runs.epsilon(section, (case, kind))
                if all(map(math.isfinite, certified)):
                    yield Number(title, case, f"certified epsilon, {name}", certified)


def costs(runs: Runs) -> Iterator[Number]:
    """Yield the cost of clipping, and of noise beside it, in points of accuracy."""
    title = f"What clipping costs, and what noise ({SOFTMAX}), points"
    steps = {"clipping": ("no noise", CLIPPED)}
    steps |= {f"{case} beside clipping": (CLIPPED, case) for case in NOISE if case != "no noise"}
    for (row, (before, after)), (kind, name) in itertools.product(steps.items(), METHODS.items()):
        yield Number(title, row, name, runs.ahead(SOFTMAX, (before, kind), (after, kind)))


def table1(runs: Runs) -> Iterator[Number]:
    """Yield A(DP)²SGD's lead over SYNC per network, beside the paper's mean."""
    title = "A(DP)²SGD's lead over SYNC, points, beside the mean lead in Table 1"
    for section, case in itertools.product((LENET5, RESNET, MLP), SIGMA):
        yield Number(title, case, NETWORKS[section], lead(runs, section, case), lead_in_table1(case))


def lead_in_table1(case: str) -> float:
    """Return A(DP)²SGD's lead in the paper in points, the mean over networks."""
    return mean([other - one for one, other in TABLE1[case]])


def times(runs: Runs) -> Iterator[Number]:
    """Yield ratios of times."""
    for section in (SOFTMAX, MLP):
        for case in cases_of(runs, section):
            yield from times_of(runs, section, case, f"Times ({section})")
    title = f"Times of an iteration ({IDEAL}), beside arithmetic"
    for case, expected in ARITHMETIC.items():
        yield Number(title, _short(case), "SYNC over A(DP)²SGD", ratios(runs, IDEAL, case, throughput))
        yield Number(title, _short(case), "2/(1 + 1/16) or (15 + 1/10) 10/16", (expected,))


def times_of(runs: Runs, section: Section, case: str, title: str) -> Iterator[Number]:
    """Yield the ratios of times of a case, to equal accuracy and for equal epochs."""
    yield Number(title, case, "to equal accuracy, SYNC over A(DP)²SGD", ratios(runs, section, case, speed_up))
    yield Number(title, case, "for equal epochs", ratios(runs, section, case, throughput))


def edges(runs: Runs) -> Iterator[Number]:
    """Yield the share of runs below the bar, by batch and step size."""
    title = f"Runs that collapse, % of seeds ({EDGE})"
    for cell in runs.cells(EDGE):
        row, name = EDGE.label(*cell[:3]), f"A(DP)²SGD, {EXCHANGES[cell[3]]}" if cell[3] in EXCHANGES else SYNC
        lost = [100.0 * (value < COLLAPSE[EDGE]) for value in typical(runs.accuracy(EDGE, cell))]
        yield Number(title, row, name, (mean(lost),), digits=0)
        yield Number(title, row, f"seeds, {name}", (float(len(lost)),), digits=0)


def sequences(runs: Runs) -> Iterator[Number]:
    """Yield the LSTM's loss beside the best possible, accuracy, and times."""
    title = f"An LSTM after 30 epochs ({LSTM})"
    for case in cases_of(runs, LSTM):
        for kind, name in METHODS.items():
            yield Number(title, case, f"held-out loss, {name}", runs.each(LSTM, (case, kind), loss), digits=3)
        yield Number(title, case, "smallest possible", runs.each(LSTM, (case, "sync"), smallest_loss), digits=3)
        for kind, name in METHODS.items():
            yield Number(title, case, f"{name}, % of characters", runs.accuracy(LSTM, (case, kind)))
        yield from times_of(runs, LSTM, case, title)


def _equal(case: str, values: Sequence[float], bar: float, unit: str, digits: int = 2) -> Part:
    text = f"{case}: A(DP)²SGD minus SYNC: {show(values, digits, sign=True)} {unit} (bar: {bar:g} either way)"
    return within(values, bar, text)


def equal_accuracy(runs: Runs) -> Iterator[Reading]:
    """Judge whether A(DP)²SGD is as accurate as SYNC at every noise level."""
    for section, network in NETWORKS.items():
        for case in (case for case in cases_of(runs, section) if case in NOISE):
            part = _equal(case, lead(runs, section, case), BAR, "points")
            yield Reading({"network": network}, [part], own=section in CONVOLUTIONAL)


def ahead_without_noise(runs: Runs) -> Iterator[Reading]:
    """Judge whether AD-PSGD is more accurate than SYNC if no noise is added."""
    printed = [other - one for one, other in TABLE1["no noise"]]
    paper = f"Table 1: {mean(printed):+.2f} in the mean, {sum(gap > 0 for gap in printed)} of {len(printed)} ahead"
    for section, own in itertools.product(NETWORKS, (False, True)):
        if (own and section not in CONVOLUTIONAL) or "no noise" not in cases_of(runs, section):
            continue
        values = lead(runs, section, "no noise", own)
        text = f"AD-PSGD minus SYNC: {show(values, sign=True)} points ({paper})"
        part = above(values, 0.0, text, least=mean(printed) / 4)
        yield Reading(_evaluated(section, own), [part], own=section in CONVOLUTIONAL and not own)


def _evaluated(section: Section, own: bool) -> dict[str, str]:
    """Return a network, and which model of it is evaluated."""
    return {"network": NETWORKS[section], "evaluated": "a worker's own model" if own else "the mean model"}


def lead_is_lost(runs: Runs) -> Iterator[Reading]:
    """Judge whether large noise takes A(DP)²SGD's lead without noise."""
    least = lead_in_table1("no noise") - lead_in_table1("large noise")
    for section, own in itertools.product((LENET5, RESNET, MLP), (False, True)):
        if (own and section is MLP) or not runs.has(section):
            continue
        without, large = (lead(runs, section, case, own) for case in ("no noise", "large noise"))
        drift = [one - other for one, other in zip(without, large, strict=True)]
        text = (
            f"leads by {show(without, sign=True)} points without noise, {show(large, sign=True)} with large noise, "
            f"{show(drift, sign=True)} less (Table 1: {least:.1f} less)"
        )
        part = above(drift, 0.0, text, least=least / 4)
        yield Reading(_evaluated(section, own), [part], own=section in CONVOLUTIONAL and not own)


def noise_costs(runs: Runs) -> Iterator[Reading]:
    """Judge whether every increase of noise costs both methods accuracy."""
    for section, network in NETWORKS.items():
        levels = [case for case in NOISE if case in cases_of(runs, section)]
        if len(levels) < len(NOISE):
            continue
        starts = {"not clipped": levels[0], **({"clipped": CLIPPED} if section is SOFTMAX else {})}
        for (words, start), (kind, name) in itertools.product(starts.items(), METHODS.items()):
            for less, more in itertools.pairwise([start, *levels[1:]]):
                text = f"{name}, {more} against {less} costs {{lead}} points"
                cost = runs.leads(section, (less, kind), (more, kind), text, digits=2)
                yield Reading({"network": network, "without noise": words}, cost, own=section in CONVOLUTIONAL)


def slow_learners(runs: Runs, sections: Sequence[Section] = (SOFTMAX, MLP)) -> Iterator[Reading]:
    """Judge whether slow learners make A(DP)²SGD much faster, in cases I and II.

    SYNC also waits for jitter and for its all-reduce. The ratio of times is therefore divided by that without a slow
    learner. It must be at least half of the paper's arithmetic, in logarithms.
    """
    for section in sections:
        cases = cases_of(runs, section)
        for case in (case for case in cases if case in SLOW and EQUALLY_FAST in cases):
            slow, usual = (ratios(runs, section, which, speed_up) for which in (case, EQUALLY_FAST))
            logs = [math.log(one / other) for one, other in zip(slow, usual, strict=False)]
            bar, gain, gap = math.sqrt(ARITHMETIC[case]), ratio_of([*map(math.exp, logs)]), lead(runs, section, case)
            span = "" if math.isnan(gain.low) else f"{gain.low:.2f} to {gain.high:.2f}; "
            text = (
                f"{_short(case)}: SYNC takes {ratio_of(slow).mean:.2f} times as long as A(DP)²SGD, and "
                f"{ratio_of(usual).mean:.2f} times without a slow learner: {gain.mean:.2f} times as much ({span}bar: "
                f"{bar:.2f}; geometric means)"
            )
            near = within(gap, BAR, f"{_short(case)}: {show(gap, sign=True)} points (bar: {BAR:g} either way)")
            parts = [above(logs, math.log(bar), text), near]
            yield Reading({"network": NETWORKS.get(section, "LSTM")}, parts, own=section in (MLP, CIFAR))


def _short(case: str) -> str:
    """Return "case I" or "case II"."""
    return case.partition(":")[0]


def collapses(sync: Sequence[float], adpsgd: Sequence[float], bar: float) -> Part:
    """Return whether SYNC's runs collapse and A(DP)²SGD's converge.

    The arguments are accuracies in percent by seed, NaN for runs that diverged; a run below `bar` has collapsed. The
    claim holds if more than half of SYNC's and less than half of A(DP)²SGD's runs collapse, and Fisher's exact test
    says that the counts differ. It does not hold if an exact binomial test says that SYNC collapses in less, or
    A(DP)²SGD in more, than half of all seeds. Tests have 2.5 % a side, as intervals have.
    """
    from scipy.stats import binomtest, fisher_exact

    (one, runs), (other, others) = (
        (sum(value < bar for value in typical(values)), len(values)) for values in (sync, adpsgd)
    )
    p = float(fisher_exact([[one, runs - one], [other, others - other]], alternative="two-sided").pvalue)
    converges = binomtest(one, runs, alternative="less").pvalue <= SIDE
    both = binomtest(other, others, alternative="greater").pvalue <= SIDE
    held = True if p <= 2 * SIDE and 2 * one > runs and 2 * other < others else False if converges or both else None
    medians = [median_of(typical(values)).mean for values in (sync, adpsgd)]
    shown = [f"{show_fixed(value, digits=1)} %" if math.isfinite(value) else "diverged" for value in medians]
    text = (
        f"SYNC ends below {bar:g} % in {one} of {runs} seeds (median {shown[0]}), A(DP)²SGD in {other} of {others} "
        f"({shown[1]}); Fisher's exact test, two-sided: p = {p:.2g}"
    )
    return Part(held if min(runs, others) >= SEEDS else None, text)


def converges(values: Sequence[float], bar: float) -> Part:
    """Return whether SYNC converges at half the batch and step size.

    It does if a binomial test says that fewer than half of all seeds collapse.
    """
    from scipy.stats import binomtest

    lost, count = sum(value < bar for value in typical(values)), len(values)
    fewer, more = (binomtest(lost, count, alternative=side).pvalue <= SIDE for side in ("less", "greater"))
    held = True if fewer else False if more else None
    text = f"at half the batch and step size SYNC ends below {bar:g} % in {lost} of {count} seeds"
    return Part(held if count >= SEEDS else None, text)


def large_batches(runs: Runs) -> Iterator[Reading]:
    """Judge whether only SYNC collapses at twice the batch and the paper's step size.

    Where half of both was run, SYNC must also converge there.
    """
    for batch, step, sigma, kind in runs.cells(EDGE):
        if kind not in EXCHANGES or step != DOUBLED_STEP:
            continue
        setting = (batch, step, sigma)
        sync, adpsgd = (runs.accuracy(EDGE, (*setting, method)) for method in (SYNC, kind))
        parts = [collapses(sync, adpsgd, COLLAPSE[EDGE])]
        if setting == MIDDLE and runs.has(EDGE, (*HALF, SYNC)):
            parts.append(converges(runs.accuracy(EDGE, (*HALF, SYNC)), COLLAPSE[EDGE]))
        yield Reading(_case3("MLP", "not clipped", kind, batch, sigma), parts, own=setting == MIDDLE)
    if LARGE in cases_of(runs, SOFTMAX):
        sync, adpsgd = (runs.accuracy(SOFTMAX, (LARGE, kind)) for kind in METHODS)
        choices = _case3("softmax regression", "clipped", "messages", MIDDLE[0], MIDDLE[2])
        yield Reading(choices, [collapses(sync, adpsgd, COLLAPSE[SOFTMAX])])


def _case3(network: str, gradients: str, exchange: str, batch: int, sigma: float) -> dict[str, str]:
    how = {"network": network, "gradients": gradients, "models are averaged": EXCHANGES[exchange]}
    return {**how, "batch": str(batch), "σ": f"{sigma:g}"}


def large_batches_of_sequences(runs: Runs) -> Iterator[Reading]:
    """Judge whether an LSTM at twice batch and step collapses under SYNC alone."""
    for case, words in ((LARGE, "clipped"), (UNCLIPPED, "not clipped")):
        if case in cases_of(runs, LSTM):
            sync, adpsgd = (runs.accuracy(LSTM, (case, kind)) for kind in METHODS)
            yield Reading({"gradients": words}, [collapses(sync, adpsgd, COLLAPSE[LSTM])], own=case == UNCLIPPED)


def equal_losses(runs: Runs) -> Iterator[Reading]:
    """Judge whether an LSTM equals SYNC at every noise level."""
    for case in (case for case in cases_of(runs, LSTM) if case in NOISE):
        values = runs.pairs(LSTM, (case, "adpsgd"), (case, "sync"), lambda one, other: loss(one) - loss(other))
        yield Reading({"measured": "held-out loss"}, [_equal(case, values, LOSS_BAR, "nats", digits=3)], own=True)
        yield Reading({"measured": "accuracy"}, [_equal(case, lead(runs, LSTM, case), BAR, "points")])


@functools.cache
def claimed(examples: int, batch_size: int, steps: int, epsilons: tuple[float, ...]) -> tuple[Theorem2, ...]:
    """Return Theorem 2's noise for 16 workers, for every epsilon."""
    setting = {"num_workers": 16, "examples": examples, "batch_size": batch_size, "steps": steps}
    return tuple(theorem2(epsilon, DELTA, **setting) for epsilon in epsilons)


def theorem_holds(runs: Runs) -> Iterator[Reading]:
    """Judge whether the noise of Theorem 2 gives the epsilon that it claims.

    It does where the certified epsilon is as small, and does not where delta is larger on some data. That lower bound
    holds for a sender that is seen or hidden; nothing is certified for a hidden one, or for noise as printed.
    """
    for printed in (False, True):
        least = {setting: [own.least_delta(printed) for own in claimed(*PRIVACY[setting])] for setting in PRIVACY}
        noise_ = "σ on the sum (as Algorithm 1 prints it)" if printed else "σ on the mean (as the proof has it)"
        for seen, (setting, deltas) in itertools.product((True, False), least.items()):
            theorems = claimed(*PRIVACY[setting])
            most = [math.inf if printed or not seen else own.certified().epsilon for own in theorems]
            fails = any(delta > own.delta for delta, own in zip(deltas, theorems, strict=True))
            holds = all(epsilon <= own.epsilon for epsilon, own in zip(most, theorems, strict=True))
            text = (
                f"{setting}: claimed is ε {_listed(own.epsilon for own in theorems)} with δ = {DELTA:g}, certified "
                f"is {'nothing' if math.inf in most else f'ε {_listed(most)}'}, δ is at least {_listed(deltas)}"
            )
            part = Part(False if fails else True if holds else None, text)
            choices = {"noise": noise_, "whose an update is": "seen by neighbors" if seen else "hidden from all"}
            yield Reading(choices, [part], own=not printed and not seen)


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def runs_are_private(runs: Runs) -> Iterator[Reading]:
    """Judge whether both methods' runs are differentially private, and equally so."""
    for section, words in ((SOFTMAX, "clipped to norm 1"), (MLP, "not clipped, as the paper reports")):
        cases = [case for case in cases_of(runs, section) if SIGMA.get(case)]
        if not cases:
            continue
        spent = {kind: [max(runs.epsilon(section, (case, kind))) for case in cases] for kind in METHODS}
        finite = all(map(math.isfinite, itertools.chain(*spent.values())))
        equal = [abs(one - other) <= EQUAL_EPSILON * one for one, other in zip(*spent.values(), strict=True)]
        said = "; ".join(f"{METHODS[kind]} {', '.join(f'{value:.3g}' for value in own)}" for kind, own in spent.items())
        text = f"certified ε at {', '.join(cases)}: {said} (alike: within {EQUAL_EPSILON:.0%})"
        part = exactly(finite and all(equal), text if finite else "nothing is certified")
        yield Reading({"gradients": words}, [part], own=section is MLP)


def draw_slow(runs: Runs, sections: Sequence[Section] = (SOFTMAX, MLP), y: str = "test_accuracy") -> Figure:
    """Draw a measure over time with slow learners, a row for each network."""
    drawn = [(section, case) for section in sections for case in cases_of(runs, section) if case in SLOW]
    rows, cases = (list(dict.fromkeys(place)) for place in zip(*drawn, strict=True)) if drawn else ([], [])
    figure, axes = panels(len(rows), len(cases), (4.2 * len(cases) + 0.6, 3.4 * len(rows) + 0.2), sharey="row")
    for (row, section), (column, case) in itertools.product(enumerate(rows), enumerate(cases)):
        axis = axes[row][column]
        if (section, case) in drawn:
            plot_groups([runs.group(section, (case, kind), METHODS[kind]) for kind in ("adpsgd", "sync")], y=y, ax=axis)
        axis.set_title(f"{NETWORKS.get(section, 'LSTM')}, {case.replace('in every iteration ', '')}", fontsize=9)
        if row or column:
            axis.get_legend().remove()
        if column:
            axis.set_ylabel("")
    return figure


def draw_noise(runs: Runs, sections: Sequence[Section] = tuple(NETWORKS), y: str = "test_accuracy") -> Figure:
    """Draw a measure over epochs at every level of noise: a panel for a network."""
    drawn = [section for section in sections if any(case in NOISE for case in cases_of(runs, section))]
    columns = min(2, len(drawn))
    figure, axes = panels(-(-len(drawn) // max(1, columns)), columns, (4.2 * columns + 0.8, 1.4 + 1.35 * len(drawn)))
    for axis, section in itertools.zip_longest(axes.flat, drawn):
        if section is None:
            axis.set_axis_off()
            continue
        levels = [case for case in (*NOISE, CLIPPED) if case in cases_of(runs, section)]
        for case, (kind, name) in itertools.product(levels, METHODS.items()):
            band = average(runs.group(section, (case, kind), case), "epochs", y)
            if band is not None:
                place = (*NOISE, CLIPPED).index(case)
                look: dict[str, Any] = {"color": PALETTE[place], "ls": "-" if kind == "adpsgd" else "--"}
                look |= {"marker": MARKERS[place], "ms": 3.5, "markevery": (place, max(1, len(band.x) // 6))}
                axis.plot(band.x, band.mean * _scale(y), label=f"{name}, {case}", lw=1.2, **look)
        axis.set_title(NETWORKS.get(section, "LSTM"))
    return labeled(figure, axes, "epochs", _LABELS[y], columns=2)


_LABELS = {"test_accuracy": "test accuracy, %", "test_loss": "held-out loss, nats"}


def _scale(y: str) -> float:
    return 100.0 if y == "test_accuracy" else 1.0


def draw_large(runs: Runs) -> Figure:
    """Draw every seed's curve over epochs at twice the batch and step size."""
    cells: dict[str, Cell] = {SYNC: (*MIDDLE, SYNC)}
    cells |= {f"A(DP)²SGD, {words}": (*MIDDLE, kind) for kind, words in EXCHANGES.items()}
    there = {name: cell for name, cell in cells.items() if runs.has(EDGE, cell)}
    drawn: dict[str, tuple[Section, str, dict[str, Cell]]] = {}
    drawn |= {"MLP, not clipped": (EDGE, "test_accuracy", there)} if SYNC in there else {}
    for case, words in ((LARGE, "clipped"), (UNCLIPPED, "not clipped")):
        if case in cases_of(runs, LSTM):
            drawn[f"LSTM, {words}"] = LSTM, "test_loss", {name: (case, kind) for kind, name in METHODS.items()}
    figure, axes = panels(1, len(drawn), (4.0 * len(drawn) + 0.6, 3.9))
    looks = {
        SYNC: (PALETTE[1], "--"),
        METHODS["adpsgd"]: (PALETTE[0], "-"),
        **dict(zip(EXCHANGES.values(), zip(PALETTE[:3:2], ("-", ":"), strict=True), strict=True)),
    }
    for axis, (title, (section, y, shown)) in zip(axes.flat, drawn.items(), strict=True):
        for name, cell in shown.items():
            color, line = looks[name if name in looks else name.partition(", ")[2]]
            for count, run in enumerate(runs.of(section, cell).values()):
                heights = run.metrics[y] * _scale(y)
                axis.plot(
                    run.metrics["epochs"], heights, color=color, ls=line, lw=0.8, label=name if not count else None
                )
        axis.set_title(title)
        axis.set_ylabel(_LABELS[y])
        axis.set_xlabel("epochs")
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=8)
    return figure


_on_images = partial(PaperClaim, instead="on small networks and images instead of nine networks on CIFAR-10")
_on_text = partial(PaperClaim, instead="on generated text instead of speech")
_FEWER = "300 epochs of CIFAR-10, not at most 60 of small images"
_SMALLER = "43 million parameters and 2,000 hours of speech, not 5,512 and 32,000 characters"

PAPER = Paper(
    name="adp2sgd",
    title="Xu, Zhang, Wang: A(DP)²SGD: Asynchronous Decentralized Parallel SGD with Differential Privacy",
    page="adp2sgd.md",
    data=("mnist",),
    minutes=(4, 74),
    experiments=experiments,
    numbers=(accuracies, costs, table1, times, edges, sequences),
    claims=(
        _on_images("With slow learners A(DP)²SGD is much faster than SYNC to the same accuracy, at the same noise "
                   "(Figures 2 and 3).", slow_learners, headline=True, figure="slow-learners"),
        _on_images("At every noise level A(DP)²SGD is as accurate as SYNC after the same epochs (Table 1).",
                   equal_accuracy, figure="noise", short=_FEWER),
        _on_images("Without noise AD-PSGD is more accurate than SYNC after the same epochs (Table 1).",
                   ahead_without_noise, figure="noise", short=_FEWER),
        _on_images("Large noise takes more from A(DP)²SGD than from SYNC (the columns of Table 1).",
                   lead_is_lost, short=_FEWER),
        _on_images("More noise costs both of them accuracy (Figure 1).", noise_costs, figure="noise"),
        _on_images("At twice the batch and step size SYNC collapses, A(DP)²SGD converges (Figure 4).", large_batches,
                   figure="large-batches", short=_FEWER),
        PaperClaim("With the noise of Theorem 2 A(DP)²SGD is (ε, δ)-differentially private.", theorem_holds),
        _on_images("Noise of one level gives SYNC and A(DP)²SGD the same differential privacy (section 5.2).",
                   runs_are_private),
        _on_text("An LSTM on sequences, slow learners: A(DP)²SGD is much faster than SYNC to the same accuracy "
                 "(Figure 9).", partial(slow_learners, sections=(LSTM,)), figure="sequences"),
        _on_text("An LSTM on sequences: A(DP)²SGD is as good as SYNC after the same epochs (Table 1, Figure 8).",
                 equal_losses, figure="sequences-noise", short=_SMALLER),
        _on_text("An LSTM on sequences: at twice the batch and step size SYNC collapses, A(DP)²SGD converges "
                 "(Figure 4).", large_batches_of_sequences, figure="large-batches", short=_SMALLER),
    ),
    figures={
        "slow-learners": ("accuracy over virtual time with slow learners, medium noise (Figures 2, 3, 6 and 7)",
                          draw_slow),
        "noise": ("accuracy over epochs at four levels of noise (Figures 1 and 5)", draw_noise),
        "large-batches": ("twice the batch and step size, small noise, a line for each seed (Figure 4)", draw_large),
        "sequences": ("an LSTM's held-out loss over virtual time with slow learners, medium noise (Figure 9)",
                      partial(draw_slow, sections=(LSTM,), y="test_loss")),
        "sequences-noise": ("an LSTM's held-out loss over epochs (Figure 8)",
                            partial(draw_noise, sections=(LSTM,), y="test_loss")),
    },
    untested=(
        ("Table 1's accuracies of nine networks on CIFAR-10.",
         "300 epochs of nine networks take days on two cores; `scenarios/adp2sgd/cifar10-*.yaml` has the batch, the "
         "epochs and the step sizes on a residual network, for those with a GPU"),
        ("Table 1's loss of an LSTM on 2,000 hours of speech.",
         "the data (SWB300) cannot be had; the orderings are judged above, on text"),
    ),
    deviations=(
        "Softmax regression and an MLP on MNIST, LeNet-5 and a residual network of eight layers on 8x8 digits take the "
        "place of nine networks on CIFAR-10, 60 epochs or less that of 300.",
        "The paper gives noise of standard deviation 1, 2 and 4 without a clipping norm, which gives no protection. On "
        "softmax regression they are noise multipliers at clipping norm 1. The MLP has them as they are, on the sum of "
        "64 gradients that are not clipped; the networks on digits, whose batches are a sixteenth of the paper's, have "
        "a sixteenth, so that the noise on the mean is the paper's.",
        "Case III has an MLP 784-128-64-64-10 with ReLU, for three epochs at the doubled first step size of the paper, "
        "0.8, and batches of 64 and of 128.",
        "An LSTM of 5,512 parameters on generated text of known entropy, of 16 speakers, takes the place of one of "
        "165 MB on speech. Noise is that for speech (0.08 and 0.16), as multipliers at clipping norm 1; in case III "
        "also as it is, without clipping.",
        "The LSTM has 30 epochs, batches of 16, and the step sizes 1 (epoch 1), 6 (to 20), 2 (to 25) and 0.6. The "
        "paper's has 20 epochs, batches of 128, and steps that grow to 1 in ten epochs, then fall by √2/2 an epoch.",
        "Times are those of Table 2: a batch of any network on images takes as long as VGG-19's of 256, one of the "
        "LSTM as long as the paper's of 128. Messages take as long as the paper's models would at 100 Gbit/s. Times "
        "of computing vary by 10 %.",
        "A time to equal accuracy is to a quarter of a point below the best that both runs of a pair reach.",
    ),
)  # fmt: skip
