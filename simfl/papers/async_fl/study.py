"""Asynchronous FL with growing sample sizes: rounds, accuracy and privacy."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simfl.papers.async_fl.privacy import GrowthSetting
from simfl.papers.async_fl.selection import aggregated_noise, epsilon_of_sizes, select_parameters
from simfl.papers.async_fl.sizes import OverLogSizes, PolynomialSizes
from simfl.papers.drawing import labeled, log_axis, panels, with_bars
from simfl.plots.groups import average
from simfl.plots.style import LINE_STYLES, PALETTE
from simfl.privacy.accounting import Accountant
from simfl.privacy.calibration import least_noise, noise_multiplier_for
from simfl.records.comparison import median_of
from simfl.studies.evidence import NotMeasuredError, Part, Reading, above, below, exactly, show, typical, within
from simfl.studies.papers import Cell, Experiment, Number, Paper, PaperClaim, Runs, Section, mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from simfl.records.sweeps import Group

CONSTANT, GROWING = Section("Table 3", ("s = {}",)), Section("Figures 3, 4 and 8")
STEPS, BIASED = Section("Figures 6 and 9"), Section("Figures 2, 10 and 11")
PRIVATE = Section("Figures 1b, 12 and 13")
STRONGLY, PLAIN, LENET5 = "a9a, strongly convex", "a9a, plain convex", "MNIST, LeNet-5"
PROBLEMS = (STRONGLY, PLAIN, LENET5)

SUM, MEAN = "sum", "mean"
EVEN, UNEVEN = "equal speeds", "unequal speeds"
WITH, WITHOUT = "with intercept", "without intercept"
SETTINGS = {
    SUM: ("algorithm.aggregation=sum",),
    MEAN: ("algorithm.aggregation=mean",),
    EVEN: (),
    UNEVEN: ("clients.speed={kind: lognormal, sigma: 0.5}",),
    WITH: (),
    WITHOUT: ("model.intercept=false",),
}
"""Choices that the paper leaves open in every experiment, or in which its code may differ from its text."""
Setting = tuple[str, str, str]
"""Aggregation, speeds of the clients, intercept."""
LISTING: Setting = (SUM, EVEN, WITH)
"""As in Algorithm 3 and equation 32, with identical clients."""
GRID: tuple[Setting, ...] = tuple(itertools.product((SUM, MEAN), (EVEN, UNEVEN), (WITH, WITHOUT)))
SUMS, MEANS = (tuple(setting for setting in GRID if setting[0] == way) for way in (SUM, MEAN))
EQUALS, EVEN_MEANS = (tuple(setting for setting in some if setting[1] == EVEN) for some in (GRID, MEANS))
"""With equal speeds: the mean does not depend on speeds, so it is not run with others."""
PLAIN_MEAN: Setting = (MEAN, EVEN, WITH)

SIZES = (50, 100, 200, 500, 700, 1000)
TABLE3 = {
    STRONGLY: dict(zip(SIZES, (84.18, 84.43, 83.86, 83.33, 82.98, 72.71), strict=True)),
    PLAIN: dict(zip(SIZES, (84.09, 84.15, 84.17, 82.99, 83.46, 72.76), strict=True)),
    LENET5: dict(zip(SIZES, (94.50, 94.70, 91.80, 87.40, 87.00, 70.80), strict=True)),
}
"""Test accuracy in percent by problem and size."""
TABLE3_ROUNDS = dict(zip(SIZES, (80, 40, 20, 8, 6, 4), strict=True))
TABLE3_FILES = {
    STRONGLY: "async_fl/constant-a9a-strongly.yaml",
    PLAIN: "async_fl/constant-a9a-plain.yaml",
    LENET5: "async_fl/constant-mnist-lenet5.yaml",
}
LITTLE = {STRONGLY: 3.0, PLAIN: 3.0, LENET5: 10.0}
"""Points that sizes of 500 and 700 may lose: up to 1.5 in the paper on a9a, 7.7 with LeNet-5."""
COLLAPSE = 5.0
"""Points that a size of 1000 must lose: 11.4 to 23.9 in the paper."""

FIRST, LINEAR, OVER_LOG = "50", "50 i", "50 i/ln i"
POWERS = {FIRST: 0.0, "50 i^0.25": 0.25, "50 i^0.5": 0.5, "50 i^0.75": 0.75, LINEAR: 1.0}
KINDS = {
    **{kind: f"{{kind: polynomial, a: 50, power: {power}}}" for kind, power in POWERS.items()},
    OVER_LOG: "{kind: over_log, a: 50}",
    **{size: size for size in ("322", "500", "1000")},
}
"""322 gives 63 rounds; their ratio to the rounds of 50 i is 20 to 9. 500 gives 40 rounds, 1000 gives 20."""
FIXED, LARGE_FIXED = "322", ("500", "1000")
COMPARED = (FIRST, LINEAR, OVER_LOG, *LARGE_FIXED)

STEEP, ROOT = "η₀/(1 + βt)", "η₀/(1 + β√t)"
PAPERS_STEP, SMALL_STEP = "falling from 0.1", "falling from 0.01"
_RULE = "algorithm.step_size={kind: %s, initial: %g, beta: %g, count: examples}"
_ROOT = _RULE % ("inverse_sqrt", 0.01, 0.01)
NETWORK_STEPS = ("0.0025, constant", "0.01, constant", "0.1, constant")
STEP_RULES = {
    STEEP: _RULE % ("inverse", 0.01, 0.001),
    ROOT: _ROOT,
    PAPERS_STEP: _RULE % ("inverse_sqrt", 0.1, 0.01),
    SMALL_STEP: _ROOT,
    **{case: f"algorithm.step_size={case.split(',')[0]}" for case in NETWORK_STEPS},
}
GROWING_FILES = {
    STRONGLY: ("async_fl/increasing-a9a-strongly.yaml", "evaluate.every.epochs=0.02"),
    PLAIN: ("async_fl/increasing-a9a-plain.yaml", "evaluate.every.epochs=0.02"),
    LENET5: (
        "async_fl/constant-mnist-lenet5.yaml", "clients.count=4", "algorithm.sizes_of=all", "evaluate.every.epochs=0.1",
    ),
}  # fmt: skip

_SAME = "algorithm.sizes=500"  # 20 rounds of all clients, the paper's number
ETAS = (0.0025, 0.005, 0.01, 0.03, 0.1)
FIRST_STEPS = {SUM: (0.01, 0.03, 0.1), MEAN: (0.03, 0.1, 0.3)}
"""First steps of falling ones: the paper has 0.1, the sum overshoots from 0.3, the mean moves little from 0.01."""
PER_ROUND, PER_GRADIENT, PER_ROUND_LARGE = (
    {first: f"falling from {first:g} by {what}" for first in sorted({*FIRST_STEPS[SUM], *FIRST_STEPS[MEAN]})}
    for what in ("rounds, growing", "gradients, growing", "rounds, 1112")
)
"""Cases by first step. 1112 of all clients are 9 rounds, as many as growing sizes have."""
DIMINISHING_1, DIMINISHING_2 = PER_GRADIENT[0.1], PER_ROUND[0.1]
CONSTANT_STEPS = {f"{eta:g}, constant": eta for eta in ETAS}
GROWING_CONSTANT_STEPS = {f"{eta:g}, growing": eta for eta in ETAS}


def _falling(first: float, *changes: str) -> tuple[str, ...]:
    return (*changes, *(f"algorithm.step_size.initial={first:g}" for first in {first} - {0.1}))


STEP_CASES = {
    **{case: _falling(first, "algorithm.step_per=gradient") for first, case in PER_GRADIENT.items()},
    **{case: _falling(first) for first, case in PER_ROUND.items()},
    **{case: _falling(first, "algorithm.sizes=1112") for first, case in PER_ROUND_LARGE.items()},
    **{case: (f"algorithm.step_size={eta}", _SAME) for case, eta in CONSTANT_STEPS.items()},
    **{case: (f"algorithm.step_size={eta}",) for case, eta in GROWING_CONSTANT_STEPS.items()},
}
PHISHING, PHISHING_PLAIN = "phishing, strongly convex", "phishing, plain convex"
STEP_FILES = {PHISHING: "async_fl/steps-phishing-strongly.yaml", PHISHING_PLAIN: "async_fl/steps-phishing-plain.yaml"}

GROWN, SIXTEEN, AS_MANY, NO_PRIVACY = "growing", "16", "constant, as many rounds as growing", "growing, no privacy"
FROM_SMALL = "growing, steps from 0.01"
SMALL_STEPS = {"16, step 0.01": 0.01, "16, step 0.001": 0.001}
SIGMAS = {"8": "", "5.8, for the claimed ε": ", σ = 5.8"}
"""The noise of constant sizes: that of growing sizes, or less, which Example 3 allows for the same epsilon."""
W8A_STRONGLY, W8A_PLAIN = "w8a, strongly convex", "w8a, plain convex"
PRIVATE_FILES = {
    W8A_STRONGLY: ("async_fl/dp-w8a-strongly.yaml",),
    W8A_PLAIN: ("async_fl/dp-w8a-plain.yaml",),
    LENET5: ("async_fl/dp-mnist-lenet5.yaml", "algorithm.gradients=25000", "evaluate.every.epochs=0.1"),
}
ALIKE = {W8A_STRONGLY: 137, W8A_PLAIN: 137, LENET5: 73}
"""Constant sizes with as many rounds as the growing ones."""

LARGER_CLASS = 97.02
"""Share of the larger class of w8a, in percent."""
DIGITS = "{set: mnist, classes: [0, 1], partition: {kind: %s}}"
TWO, TEN, NETWORK = "digits 0 and 1, one each", "all digits, five each", "LeNet-5"
BIASED_DATA: dict[str, dict[str, tuple[str, ...]]] = {
    "biased": {TWO: (f"data={DIGITS % 'by_label, labels_per_client: 1'}",), TEN: ()},
    "unbiased": {TWO: (f"data={DIGITS % 'iid'}",), TEN: ("data={set: mnist}",)},
}
_BINARY, _PLAIN = "model={kind: logistic, l2: 7.9e-5}", ("model.l2=0", _ROOT)  # 1/N, N = 12,665
BIASED_CASES: dict[tuple[str, str], tuple[str, ...]] = {
    ("strongly convex", TWO): (_BINARY,),
    ("plain convex", TWO): (_BINARY, *_PLAIN),
    ("strongly convex", TEN): (),
    ("plain convex", TEN): _PLAIN,
    (NETWORK, TEN): ("model=lenet5", _ROOT),
}

EXAMPLES = {PHISHING: 6_723, PHISHING_PLAIN: 6_723, LENET5: 60_000, TWO: 12_665, TEN: 60_000}
"""Training examples: an epoch has as many gradients."""

EQUAL = 1.0
"""Points of accuracy below which two settings count as equal."""
EQUAL_NETWORK = 3.0
"""The same for LeNet-5: Table 3 calls both 94.7 and 91.8 % the best accuracy."""
BETTER = 0.5
"""Points of a lead that counts."""
ALIKE_BIASED, GOOD_BIASED = 2.0, 5.0
"""Points by which biased data may change the accuracy either way, and that they may cost LeNet-5."""

_QUIET = ("record.updates=false", "record.epsilon=false")


def experiments(quick: bool) -> Sequence[Experiment]:
    """Return the experiments; the quick form has only convex problems."""
    w8a, roles = [(W8A_STRONGLY,), (W8A_PLAIN,)], (GROWN, SIXTEEN, *SMALL_STEPS, AS_MANY)
    even, ways = ((SUM, EVEN, WITH), (SUM, EVEN, WITHOUT)), ((SUM,), (MEAN,))
    if quick:
        few = (DIMINISHING_2, PER_ROUND[0.01], "0.0025, constant", "0.01, constant", "0.1, constant")
        kinds = (FIRST, LINEAR, *LARGE_FIXED)
        return [
            *_grid(CONSTANT, [(STRONGLY,)], (*SUMS, PLAIN_MEAN), (100, 500, 1000), 6),
            *_grid(GROWING, [(STRONGLY, STEEP), (PLAIN, ROOT)], (LISTING, PLAIN_MEAN), kinds, 6),
            *_grid(GROWING, [(PLAIN, STEEP)], (LISTING,), kinds, 6),
            *_grid(STEPS, [(PHISHING,)], (*even, PLAIN_MEAN), few, 6),
            *_grid(PRIVATE, w8a, (LISTING,), (GROWN, *SMALL_STEPS, AS_MANY), 6),
            *_grid(BIASED, [("strongly convex", TWO)], ways[:1], BIASED_DATA, 6),
        ]
    others = tuple(kind for kind, power in POWERS.items() if 0 < power < 1)
    quieter = tuple(role + SIGMAS["5.8, for the claimed ε"] for role in (SIXTEEN, *SMALL_STEPS))
    falling, constant = (
        (PAPERS_STEP, SMALL_STEP),
        {PHISHING: (*CONSTANT_STEPS, *GROWING_CONSTANT_STEPS), PHISHING_PLAIN: tuple(CONSTANT_STEPS)},
    )
    steps = ((even, SUM, 12), (EVEN_MEANS, MEAN, 6))
    return [
        # Single seeds of large rounds are 13 points apart.
        *_grid(CONSTANT, [(STRONGLY,), (PLAIN,)], SUMS, SIZES, 12),
        *_grid(CONSTANT, [(STRONGLY,), (PLAIN,)], EVEN_MEANS, SIZES, 6),
        *_grid(CONSTANT, [(LENET5,)], (LISTING,), SIZES, 6),
        *_grid(CONSTANT, [(LENET5,)], ((SUM, UNEVEN, WITH), PLAIN_MEAN), (100, 500, 1000), 6),
        *_grid(GROWING, [(STRONGLY, STEEP), (PLAIN, STEEP)], (*SUMS, *EVEN_MEANS), COMPARED, 6),
        *_grid(GROWING, [(STRONGLY, STEEP)], (LISTING,), others, 6),
        *_grid(GROWING, [(PLAIN, ROOT)], SUMS, COMPARED, 16),
        *_grid(GROWING, [(PLAIN, ROOT)], EVEN_MEANS, COMPARED, 6),
        *_grid(GROWING, [(LENET5, steps) for steps in falling], (LISTING, PLAIN_MEAN), (FIRST, LINEAR), 6),
        # The sum learns nothing from 0.1, and the mean would need more than 0.0025.
        *_grid(GROWING, [(LENET5, steps) for steps in NETWORK_STEPS[:2]], (LISTING,), (FIXED,), 6),
        *_grid(GROWING, [(LENET5, steps) for steps in NETWORK_STEPS[1:]], (PLAIN_MEAN,), (FIXED,), 6),
        *_grid(GROWING, [(LENET5, SMALL_STEP)], (LISTING,), LARGE_FIXED[1:], 6),
        *_grid(GROWING, [(LENET5, PAPERS_STEP)], (PLAIN_MEAN,), LARGE_FIXED[1:], 6),
        *(
            experiment
            for (problem, constants), (settings, way, seeds) in itertools.product(constant.items(), steps)
            for experiment in _grid(STEPS, [(problem,)], settings, (*_falling_cases(way), *constants), seeds)
        ),
        *_grid(PRIVATE, w8a, EQUALS, roles, 5),
        *_grid(PRIVATE, w8a, even, quieter, 5),
        *_grid(PRIVATE, w8a, (LISTING,), (NO_PRIVACY,), 5),
        *_grid(PRIVATE, [(LENET5,)], (LISTING,), (GROWN, FROM_SMALL, *SMALL_STEPS, AS_MANY), 5),
        *_grid(PRIVATE, [(LENET5,)], (PLAIN_MEAN,), (GROWN, *SMALL_STEPS), 5),
        *_grid(BIASED, [case for case in BIASED_CASES if case[0] != NETWORK], ways, BIASED_DATA, 5),
        *_grid(BIASED, [(NETWORK, TEN)], ways, BIASED_DATA, 6),
    ]


def _falling_cases(aggregation: str) -> list[str]:
    cases = (PER_GRADIENT, PER_ROUND, PER_ROUND_LARGE)
    return [named[first] for named in cases for first in FIRST_STEPS[aggregation]]


def _grid(
    section: Section, starts: Iterable[Cell], settings: Iterable[Sequence[str]], cases: Iterable[Any], seeds: int
) -> Iterator[Experiment]:
    """Yield a section's experiments, whose cells are (*start, *setting, case)."""
    for start, setting, case in itertools.product(starts, settings, cases):
        base, *changes = _SCENARIOS[section](*start, case)
        shared = (change for choice in setting for change in SETTINGS[choice])
        yield Experiment(section, (*start, *setting, case), base, (*changes, *shared, *_QUIET), seeds)


def _private(problem: str, role: str) -> Iterator[str]:
    yield from PRIVATE_FILES[problem]
    name, _, sigma = role.partition(", σ = ")
    if name == NO_PRIVACY:
        yield from ("privacy=null", "algorithm.sampling=poisson")
    if name in (SIXTEEN, *SMALL_STEPS):
        yield "algorithm.sizes=16"
    if name in SMALL_STEPS:
        yield f"algorithm.step_size={SMALL_STEPS[name]}"
    if name == AS_MANY:
        yield f"algorithm.sizes={ALIKE[problem]}"
    if name == FROM_SMALL or (problem, name) == (LENET5, AS_MANY):
        yield "algorithm.step_size.initial=0.01"
    if name in SMALL_STEPS and problem == LENET5:
        yield "algorithm.batch_size=32"  # fills the operations, which would be half empty
    if sigma:
        yield f"privacy.noise_multiplier={sigma}"


_SCENARIOS: dict[Section, Callable[..., Iterable[str]]] = {
    CONSTANT: lambda problem, size: (TABLE3_FILES[problem], f"algorithm.sizes={size}"),
    GROWING: lambda problem, steps, kind: (
        *GROWING_FILES[problem], STEP_RULES[steps], f"algorithm.sizes={KINDS[kind]}",
    ),
    STEPS: lambda problem, case: (STEP_FILES[problem], *STEP_CASES[case]),
    PRIVATE: _private,
    BIASED: lambda task, data, name: (
        "async_fl/biased-mnist-strongly.yaml", *BIASED_DATA[name][data], *BIASED_CASES[task, data],
    ),
}  # fmt: skip
"""By section, the scenario and the overrides that the parts of a cell mean, without those of the setting."""


# -- numbers ---------------------------------------------------------------------------------------


def round_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the rounds of Table 3, and of Figure 3's sizes."""
    part = "Rounds (Table 3): s of each of five clients, 20,000 gradients of all"
    for size, paper in TABLE3_ROUNDS.items():
        if runs.has(CONSTANT, cell := (STRONGLY, *LISTING, size)):
            yield Number(part, "rounds", CONSTANT.label(size), (runs.rounds(CONSTANT, cell),), paper, 0)
    part = "Rounds of the sizes of Figure 3: s_i of all clients together, 20,000 gradients"
    for sequence in runs.cells(GROWING, STRONGLY, STEEP, *LISTING):
        yield Number(part, "rounds", sequence[-1], (runs.rounds(GROWING, sequence),), None, 0)


def size_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the accuracies of Table 3 beside the listing's and nearest settings."""
    part = "Table 3: constant sizes of each client, step size 0.0025"
    for problem in PROBLEMS:
        rows = {
            start[1:]: runs.accuracies(CONSTANT, *start)
            for start in dict.fromkeys(cell[:-1] for cell in runs.cells(CONSTANT, problem))
        }
        papers = TABLE3[problem]
        far = {setting: _distance(row, papers) for setting, row in rows.items() if row.keys() == papers.keys()}
        nearest = min((setting for setting in far if math.isfinite(far[setting])), key=far.__getitem__, default=None)
        for setting, row in rows.items():
            named = " (nearest to the paper, chosen after the result was seen)" * (setting == nearest)
            label = CONSTANT.label(problem, *setting) + named
            for size, values in row.items():
                paper = papers[size] if setting in (LISTING, nearest) else None
                yield Number(part, label, CONSTANT.label(size), values, paper, unit="test accuracy, %")


def _distance(row: Mapping[int, Sequence[float]], papers: Mapping[int, float]) -> float:
    """Return the mean distance of medians from the paper's numbers."""
    return statistics.fmean(abs(_median(values) - papers[size]) for size, values in row.items())


def _median(values: Sequence[float]) -> float:
    """Return the median; diverged runs count as worst."""
    return statistics.median(typical(values))


def sequence_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the accuracies of Figures 4 and 8."""
    part = "Figures 4 and 8: growing sizes of all clients together"
    for cell in runs.cells(GROWING):
        row, column = GROWING.label(*cell[:-1]), cell[-1]
        yield Number(part, row, column, runs.accuracy(GROWING, cell), unit="test accuracy, %")


def step_numbers(runs: Runs) -> Iterator[Number]:
    """Yield rounds and accuracies of Figures 6 and 9."""
    part = "Figures 6 and 9: step sizes and sample sizes, phishing"
    for cell in runs.cells(STEPS):
        growing = cell[-1] in (DIMINISHING_1, DIMINISHING_2)
        row, paper = STEPS.label(*cell), 20 if cell[-1] in CONSTANT_STEPS else 9 if growing else None
        yield Number(part, row, "rounds", (runs.rounds(STEPS, cell),), paper, 0)
        yield Number(part, row, "test accuracy, %", runs.accuracy(STEPS, cell))


def private_numbers(runs: Runs) -> Iterator[Number]:
    """Yield accuracy, loss and epsilon of growing and constant sizes, equal noise."""
    part = f"{PRIVATE}: σ = 8, sizes of a client growing as 16 + 1.322 i, or constant"
    for cell in runs.cells(PRIVATE):
        row = PRIVATE.label(cell[0], cell[1], cell[3], cell[4])
        claimed = 1.0 if cell[-1] == GROWN and cell[0] != LENET5 else None  # the network has fewer gradients
        yield Number(part, row, "rounds", (runs.rounds(PRIVATE, cell),), digits=0)
        yield Number(part, row, "test accuracy, %", runs.accuracy(PRIVATE, cell))
        loss = runs.each(PRIVATE, cell, lambda run: float(run.metrics["test_loss"].iloc[-1]))
        yield Number(part, row, "test loss", loss, digits=4)
        if runs.first(PRIVATE, cell).privacy is not None:
            column = "certified ε at δ = 5.5e-8 (the paper's claim)"
            yield Number(part, row, column, runs.epsilon(PRIVATE, cell), claimed, digits=4)


def biased_numbers(runs: Runs) -> Iterator[Number]:
    """Yield accuracies with biased and unbiased data."""
    for case, difference in _bias(runs).items():
        row = BIASED.label(*case)
        for name in BIASED_DATA:
            yield Number(str(BIASED), row, f"{name}, %", runs.accuracy(BIASED, (*case, name)))
        yield Number(str(BIASED), row, "difference, points", difference)


def _bias(runs: Runs) -> dict[Cell, tuple[float, ...]]:
    """Return the lead of biased data in points, by problem, data, aggregation."""
    cases = [cell[:-1] for cell in runs.cells(BIASED) if cell[-1] == "biased"]
    pairs = {case: [(*case, name) for name in BIASED_DATA] for case in cases}
    return {case: runs.ahead(BIASED, *pair) for case, pair in pairs.items() if runs.has(BIASED, *pair)}


def example_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the paper's examples of parameter selection."""
    part = "Examples 1 to 5: parameter selection, sizes N q (i + m) from s_0 = 16"
    one = 1 / math.e
    # N, epsilon, sigma, K/N and r0 (rounded as in the paper); passes: in the paper one for K*, three for K^-; the
    # printed numbers, None where the paper has none.
    examples: tuple[tuple[tuple[int, float, float, float, float], int, tuple[float | None, ...]], ...] = (
        ((50_000, 2.0, 3.0, 100.0, 0.0110), 1, (3.3611e-3, 4760.33, 54546, 1.970756, -1.6867)),
        ((10_000, 2.0, 5.0, 10.0, 0.0202), 1, (8.1608e-3, 1960.59, 4951, None, None)),
        ((10_000, 1.0, 8.0, 2.5, one), 3, (1.321633, 12.10624, 195, 5.781956, -7.2594)),
        ((25_000, 2.0, 8.0, 5.0, 0.0247), 1, (0.0238316, 671.376, 3239, 3.11155, -4.2047)),
        ((25_000, 2.0, 8.0, 5.0, one), 3, (1.8887431, 8.471242, 364, 6.964834, -21.0672)),
    )
    for example, (numbers, passes, papers) in enumerate(examples, start=1):
        setting = GrowthSetting(1, *numbers, "worked")
        claim = select_parameters(setting, 16, iterations=passes, whole_rounds=True).claim
        row = f"example {example}: N = {setting.num_examples:,}, ε = {setting.epsilon:g}, σ = {setting.sigma:g}"
        columns = {
            "N q": (setting.num_examples * claim.q, 5),
            "m": (claim.m, 2),
            "T": (claim.rounds, 0),
            "σ over its factor": (claim.budget, 4),
            "log10 of the claimed δ": (math.log10(claim.claimed_delta), 3),
        }
        for (column, (value, digits)), paper in zip(columns.items(), papers, strict=True):
            yield Number(part, row, column, (value,), paper, digits)


@functools.cache
def aggregated() -> dict[str, float]:
    """Return sqrt(T) sigma at a certified epsilon of 1, for Example 3."""
    delta, examples, gradients = 5.5e-8, 10_000, 25_000
    growing = PolynomialSizes(1.322, b=16, start=0)
    sizes = growing.first(growing.rounds_for(gradients))

    def epsilon(sigma: float, accountant: Accountant) -> float:
        return epsilon_of_sizes(sizes, examples, sigma, delta, accountant=accountant)

    noise = {GROWN: aggregated_noise(least_noise(epsilon, 1.0, "renyi"), len(sizes))}
    for name, size in ((SIXTEEN, 16), (AS_MANY, 137)):
        rounds = math.ceil(gradients / size)
        sigma = noise_multiplier_for(1.0, delta, steps=rounds, sampling_rate=size / examples, accountant="renyi")
        noise[name] = aggregated_noise(sigma, rounds)
    return noise


# -- claims ----------------------------------------------------------------------------------------


def _reading(choices: dict[str, str], setting: Sequence[str], *parts: Part, own: bool = True) -> Reading:
    """Return a reading with the settings that every experiment shares.

    Unequal speeds and a missing intercept were considered only after Table 3 had been compared. The paper's own are the
    sum of its listing, and the intercept of its equation 32, with identical clients; `own` says whether the other
    choices are its own, too.
    """
    keys = {SUM: "aggregation", MEAN: "aggregation", EVEN: "speeds", UNEVEN: "speeds", WITH: "intercept"}
    shared = {keys.get(choice, "intercept"): choice.split()[0] for choice in setting}
    afterwards = UNEVEN in setting or WITHOUT in setting
    return Reading({**choices, **shared}, parts, afterwards, own=own and not afterwards and MEAN not in setting)


def _typically(values: Sequence[float], bar: float, what: str, least: float = 0.0, about: str = "") -> Part:
    """Return whether the median of six or more seeds is above a bar.

    A lead up to `least` does not count. The median is used because single runs whose rounds overshoot end far from all
    others; diverged runs count as worst. `about` begins the text.
    """
    median = median_of(typical(values))
    held = True if median.low > bar else False if median.high < bar + least else None
    bounds = f", {median.low:+.1f} to {median.high:+.1f}" if median.low < median.high else ""
    return Part(held, f"{about}{median.mean:+.1f} (median{bounds}) {what}")


def _no_worse(ahead: Sequence[float], against: str, most: float = EQUAL, about: str = "") -> Part:
    """Return whether a difference in points is at most a small loss."""
    return _typically(ahead, -most, f"points against {against} (bar: -{most:g})", about=about)


def _saves_rounds(
    runs: Runs, section: Section, grown: Cell, other: Cell, against: str, about: str = "", most: float = EQUAL
) -> Part:
    """Return whether growing sizes need fewer rounds and lose little, or else gain.

    Against sizes that need no more rounds than growing ones, growing ones have to be more accurate by a lead that
    counts.
    """
    ahead = _apart(runs.accuracy(section, grown), runs.accuracy(section, other))
    few, many = runs.rounds(section, grown), runs.rounds(section, other)
    if few < many:
        return _no_worse(ahead, against, most, f"{about}{few} rounds instead of {many}, ")
    what = f"points against {against} (bar: {BETTER:g})"
    return _typically(ahead, BETTER, what, about=f"{about}{few} rounds against {many}, ")


SMALL, LARGE = "sizes of 50", "large constant sizes"


def _of_a9a(runs: Runs, kind: str) -> Iterator[Reading]:
    """Judge whether a kind of growing sizes saves rounds on a9a, both problems."""
    for setting in dict.fromkeys(cell[2:5] for cell in runs.cells(GROWING, STRONGLY)):
        for rule, (against, sizes) in itertools.product((ROOT, STEEP), {SMALL: (FIRST,), LARGE: LARGE_FIXED}.items()):
            starts = (STRONGLY, STEEP, *setting), (PLAIN, rule, *setting)
            pairs = [((*start, kind), (*start, size)) for start in starts for size in sizes]
            if runs.has(GROWING, *itertools.chain.from_iterable(pairs)):
                parts = [
                    _saves_rounds(runs, GROWING, grown, other, f"sizes of {other[-1]}", f"{grown[0]}: ")
                    for grown, other in pairs
                ]
                choices = {"against": against, "steps, plain convex": rule}
                yield _reading(choices, setting, *parts, own=(rule, against) == (ROOT, SMALL))


def fewer_rounds(runs: Runs) -> Iterator[Reading]:
    """Judge whether sizes of 50 i need fewer rounds and keep the accuracy."""
    return _of_a9a(runs, LINEAR)


def over_log(runs: Runs) -> Iterator[Reading]:
    """Judge whether sizes of order i/ln i need fewer rounds, keep the accuracy."""
    return _of_a9a(runs, OVER_LOG)


def network(runs: Runs) -> Iterator[Reading]:
    """Judge whether LeNet-5 loses nothing with growing sizes, falling steps.

    Falling steps start from the better of two first steps, constant ones are the best of a grid.
    """
    others = {"constant steps and sizes": FIXED, SMALL: FIRST, LARGE: LARGE_FIXED[1]}
    for way, (against, kind) in itertools.product((SUM, MEAN), others.items()):
        cells = [cell for cell in runs.cells(GROWING, LENET5) if cell[2] == way]
        grown, fixed = ([cell for cell in cells if cell[-1] == size] for size in (LINEAR, kind))
        if grown and fixed:
            best, other = _best(runs, GROWING, grown), _best(runs, GROWING, fixed)
            what = f"sizes of {kind}, steps {other[1]} ({show(runs.accuracy(GROWING, other), 1)} %)"
            about = f"steps {best[1]}: "
            part = _saves_rounds(runs, GROWING, best, other, what, about, EQUAL_NETWORK)
            yield _reading({"against": against}, (way,), part, own=kind == FIXED)


def _best(runs: Runs, section: Section, cells: Sequence[Cell]) -> Cell:
    """Return the cell of the best median."""
    return max(cells, key=lambda cell: _median(runs.accuracy(section, cell)))


def rounds_of_linear(runs: Runs) -> Iterator[Reading]:
    """Judge whether 50 i has fewer rounds than every smaller power of i."""
    return _fewest(runs, LINEAR)


def rounds_of_over_log(runs: Runs) -> Iterator[Reading]:
    """Judge whether 50 i/ln i has fewer rounds than every smaller power of i."""
    return _fewest(runs, OVER_LOG)


def _fewest(runs: Runs, kind: str) -> Iterator[Reading]:
    counts = {name: PolynomialSizes(50, c=power).rounds_for(20_000) for name, power in POWERS.items()}
    counts[OVER_LOG] = OverLogSizes(50).rounds_for(20_000)
    formulas = {**counts, **{size: math.ceil(20_000 / int(size)) for size in LARGE_FIXED}}
    measured = {cell[-1]: runs.rounds(GROWING, cell) for cell in runs.cells(GROWING, STRONGLY, STEEP, *LISTING)}
    agree = all(formulas[name] == rounds for name, rounds in measured.items())
    parts = [
        exactly(counts[kind] < counts[name], f"{counts[kind]} rounds against {counts[name]} of {name}")
        for name, power in POWERS.items()
        if power < 1
    ]
    yield Reading({}, (*parts, exactly(agree, "runs agree with the formulas")), own=True)


SIXTEEN_SMALL, SIXTEEN_SAME = "a constant 16, steps of 0.01 and 0.001", "a constant 16, the same steps"
EQUAL_ROUNDS = "a constant size of as many rounds"


def better_with_privacy(runs: Runs) -> Iterator[Reading]:
    """Judge whether growing sizes are more accurate than constant ones on w8a."""
    tables = {SIXTEEN_SMALL: tuple(SMALL_STEPS), SIXTEEN_SAME: (SIXTEEN,), EQUAL_ROUNDS: (AS_MANY,)}
    for (against, roles), sigma in itertools.product(tables.items(), SIGMAS):
        others = [role + SIGMAS[sigma] for role in roles]
        for aggregation, intercept in itertools.product((SUM, MEAN), (WITH, WITHOUT)):
            starts = [(task, aggregation, EVEN, intercept) for task in (W8A_STRONGLY, W8A_PLAIN)]
            if parts := [part for start in starts for part in _leads(runs, start, GROWN, others)]:
                choices = {"against": against, "its σ": sigma}
                own = (against, sigma) == (SIXTEEN_SMALL, "8")
                yield _reading(choices, (aggregation, intercept), *parts, own=own)


def network_with_privacy(runs: Runs) -> Iterator[Reading]:
    """Judge whether growing sizes beat constant ones for LeNet-5.

    Growing sizes start from the better of two first steps.
    """
    tables = {SIXTEEN_SMALL: list(SMALL_STEPS), EQUAL_ROUNDS: [AS_MANY]}
    for way, (against, roles) in itertools.product((SUM, MEAN), tables.items()):
        start = (LENET5, way, EVEN, WITH)
        grown = [cell for role in (GROWN, FROM_SMALL) if runs.has(PRIVATE, cell := (*start, role))]
        if grown and (parts := _leads(runs, start, _best(runs, PRIVATE, grown)[-1], roles)):
            yield _reading({"against": against}, (way,), *parts, own=against == SIXTEEN_SMALL)


def _leads(runs: Runs, start: Cell, grown: str, roles: Sequence[str]) -> list[Part]:
    """Return whether growing sizes lead each constant size that was run."""
    if not runs.has(PRIVATE, (*start, grown), *((*start, role) for role in roles)):
        return []
    leads = {role: runs.ahead(PRIVATE, (*start, grown), (*start, role)) for role in roles}
    about = f"{start[0]}" + f", {grown}" * (grown != GROWN)
    named = {AS_MANY: f"a constant {ALIKE[start[0]]}"}
    return [
        above(
            typical(ahead),
            0,
            f"{about}: {show(ahead, 1, True)} points against {named.get(role, role)} (bar: above 0)",
            BETTER,
        )
        for role, ahead in leads.items()
    ]


def certified(runs: Runs) -> Iterator[Reading]:
    """Judge whether an accountant certifies the epsilon that the paper claims."""
    cells = [(problem, *LISTING, GROWN) for problem in (W8A_STRONGLY, W8A_PLAIN)]
    epsilons = {cell[0]: mean(runs.epsilon(PRIVATE, cell)) for cell in cells if runs.has(PRIVATE, cell)}
    said = ", ".join(f"{problem}: {epsilon:.3f}" for problem, epsilon in epsilons.items())
    if epsilons:
        text = f"certified ε of the growing sizes, where the paper claims 1: {said}"
        yield Reading({}, (exactly(max(epsilons.values()) <= 1, text),), own=True)


def less_noise(runs: Runs) -> Iterator[Reading]:
    """Judge whether growing sizes aggregate less noise at the same epsilon."""
    noise = aggregated()
    for role, size in ((SIXTEEN, "16, the paper's"), (AS_MANY, "137, of as many rounds")):
        text = f"√T σ at a certified (1, 5.5e-8): {noise[GROWN]:.1f} growing, {noise[role]:.1f} constant"
        printed = " (the paper, by its theorem: 112 and 229)" * (role == SIXTEEN)
        part = exactly(noise[GROWN] < noise[role], text + printed)
        yield Reading({"constant size": size}, (part,), own=role == SIXTEEN)


def _table3(runs: Runs) -> Iterator[tuple[Setting, dict[str, Mapping[int, tuple[float, ...]]]]]:
    """Yield settings with the accuracies of every problem, by size.

    LeNet-5 has no choice of an intercept, so its runs stand for both.
    """
    for setting in dict.fromkeys(cell[1:4] for cell in runs.cells(CONSTANT, STRONGLY)):
        starts = {STRONGLY: setting, PLAIN: setting, LENET5: (*setting[:2], WITH)}
        rows = {problem: runs.accuracies(CONSTANT, problem, *start) for problem, start in starts.items()}
        yield setting, {problem: row for problem, row in rows.items() if row}


def best_sizes(runs: Runs) -> Iterator[Reading]:
    """Judge whether the best constant sizes are 50 to 200, for every problem."""
    for setting, rows in _table3(runs):
        parts = []
        for problem, row in rows.items():
            small, large = ([size for size in row if (size <= 200) == low] for low in (True, False))
            leads = [_apart(row[one], row[other]) for one in small for other in large]
            names = [", ".join(map(str, sizes)) for sizes in (small, large)]
            what = f"points are the least lead of {names[0]} over {names[1]} (bar: above 0)"
            least = [min(lead) for lead in zip(*leads, strict=True)]  # for every seed
            parts.append(_typically(least, 0, what, BETTER, f"{problem}: "))
        yield _reading({}, setting, *parts)


def collapse(runs: Runs) -> Iterator[Reading]:
    """Judge whether the largest size loses much accuracy, for every problem."""
    for setting, rows in _table3(runs):
        parts = []
        for problem, row in rows.items():
            lost = _apart(row[100], row[1000])
            paper = TABLE3[problem][100] - TABLE3[problem][1000]
            text = f"{problem}: {show(lost, 1)} points less than s = 100, {paper:.1f} in the paper (bar: {COLLAPSE:g})"
            parts.append(above(lost, COLLAPSE, text))
        yield _reading({}, setting, *parts)


def little_lost(runs: Runs) -> Iterator[Reading]:
    """Judge whether sizes of 500 and 700 lose little, for every problem."""
    for setting, rows in _table3(runs):
        parts = []
        for (problem, row), size in itertools.product(rows.items(), (500, 700)):
            if size in row:
                bar, ahead = LITTLE[problem], _apart(row[size], row[100])
                paper = TABLE3[problem][size] - TABLE3[problem][100]
                what = f"points against s = 100, {paper:.1f} in the paper (bar: -{bar:g})"
                parts.append(_typically(ahead, -bar, what, about=f"{problem}, s = {size}: "))
        yield _reading({}, setting, *parts)


def _apart(one: Sequence[float], other: Sequence[float]) -> tuple[float, ...]:
    """Return differences by seeds; all other runs lead a diverged one by infinity."""
    pairs = zip(typical(one), typical(other), strict=True)
    return typical([first - second for first, second in pairs])


def _phishing(runs: Runs) -> Iterator[tuple[Setting, dict[str, Cell]]]:
    """Yield settings with the best falling steps for every problem.

    Falling steps start from the best of a grid, as constant ones are the best of a grid.
    """
    for setting in dict.fromkeys(cell[1:4] for cell in runs.cells(STEPS, PHISHING)):
        starts = {problem: (problem, *setting) for problem in (PHISHING, PHISHING_PLAIN)}
        cells = {problem: _cells(runs, start, PER_ROUND.values()) for problem, start in starts.items()}
        yield setting, {problem: _best(runs, STEPS, some) for problem, some in cells.items() if some}


def _cells(runs: Runs, start: Cell, cases: Iterable[str]) -> list[Cell]:
    return [cell for case in cases if runs.has(STEPS, cell := (*start, case))]


def falling_steps(runs: Runs) -> Iterator[Reading]:
    """Judge whether falling steps, growing sizes are no worse in fewer rounds."""
    tables = {"constant steps and sizes": CONSTANT_STEPS, LARGE: PER_ROUND_LARGE.values()}
    for (setting, best), (against, cases) in itertools.product(_phishing(runs), tables.items()):
        parts = []
        for grown in best.values():
            if cells := _cells(runs, grown[:-1], cases):
                other = _best(runs, STEPS, cells)
                what = f"{other[-1]} ({show(runs.accuracy(STEPS, other), 1)} %)"
                parts.append(_saves_rounds(runs, STEPS, grown, other, what, f"{_named(runs, grown)}: "))
        if parts:
            yield _reading({"against": against}, setting, *parts, own=against != LARGE)


def _named(runs: Runs, grown: Cell) -> str:
    """Return a problem with its best falling steps, and the paper's if worse."""
    papers = (*grown[:-1], DIMINISHING_2)
    said = f"{grown[0]}, {grown[-1].removesuffix(', growing')}"
    if runs.has(STEPS, papers) and _median(runs.accuracy(STEPS, grown)) > _median(runs.accuracy(STEPS, papers)) + EQUAL:
        said += f" (from the paper's 0.1: {show(runs.accuracy(STEPS, papers), 1)} %)"
    return said


def tuned_steps(runs: Runs) -> Iterator[Reading]:
    """Judge whether falling steps equal the best constant step, growing sizes."""
    for setting, best in _phishing(runs):
        grown = best[PHISHING]
        if cells := _cells(runs, grown[:-1], GROWING_CONSTANT_STEPS):
            other = _best(runs, STEPS, cells)
            what = f"{other[-1]} ({show(runs.accuracy(STEPS, other), 1)} %)"
            part = _no_worse(runs.ahead(STEPS, grown, other), what, about=f"{_named(runs, grown)}: ")
            yield _reading({}, setting, part)


def tuned_alone(runs: Runs) -> Iterator[Reading]:
    """Judge whether the best constant step equals falling ones; the worst not."""
    for setting, grown in _phishing(runs):
        if cells := _cells(runs, grown[PHISHING][:-1], GROWING_CONSTANT_STEPS):
            falling = runs.accuracy(STEPS, grown[PHISHING])
            ordered = sorted(cells, key=lambda cell: _median(runs.accuracy(STEPS, cell)))
            missed, reached = (_apart(runs.accuracy(STEPS, cell), falling) for cell in (ordered[0], ordered[-1]))
            parts = (
                above(reached, -EQUAL, f"{ordered[-1][-1]}: {show(reached, 1, True)} points (bar: -{EQUAL:g})"),
                below(missed, -EQUAL, f"{ordered[0][-1]}: {show(missed, 1, True)} points (bar: below -{EQUAL:g})"),
            )
            yield _reading({}, setting, *parts)


def steps_alike(runs: Runs) -> Iterator[Reading]:
    """Judge whether steps that fall by gradients and by rounds are alike."""
    by_gradients = dict(zip(PER_ROUND.values(), PER_GRADIENT.values(), strict=True))
    for setting, best in _phishing(runs):
        parts = []
        for problem, grown in best.items():
            if runs.has(STEPS, cell := (*grown[:-1], by_gradients[grown[-1]])):
                ahead = runs.ahead(STEPS, grown, cell)
                first = f"{problem}, {grown[-1].removesuffix(', growing')}"
                text = f"{first}: {show(ahead, 1, True)} points ahead (bar: {EQUAL:g} either way)"
                parts.append(within(ahead, EQUAL, text))
        if parts:
            yield _reading({}, setting, *parts)


def insensitive(runs: Runs) -> Iterator[Reading]:
    """Judge whether biased data make no difference to both convex problems."""
    differences = _bias(runs)
    for data, way in dict.fromkeys(case[1:] for case in differences if case[0] != NETWORK):
        parts = []
        for (task, *others), difference in differences.items():
            if task != NETWORK and others == [data, way]:
                text = f"{task}: {show(difference, 1, True)} points with biased data (bar: {ALIKE_BIASED:g} either way)"
                parts.append(within(difference, ALIKE_BIASED, text))
        yield _reading({"data": data}, (way,), *parts, own=data == TWO)


def network_insensitive(runs: Runs) -> Iterator[Reading]:
    """Judge whether LeNet-5 still learns well from biased data."""
    for (task, _, aggregation), difference in _bias(runs).items():
        if task == NETWORK:
            yield _reading({}, (aggregation,), _no_worse(difference, "unbiased data", GOOD_BIASED))


# -- figures ---------------------------------------------------------------------------------------


def draw_curves(
    axis: Axes,
    groups: Iterable[Group | None],
    column: str,
    from_first: bool = False,
    *,
    measure: str = "test_accuracy",
    scale: float = 1.0,
) -> None:
    """Draw the mean of a measure of groups over a column, with bands or as runs.

    Accuracies are drawn in percent. `from_first` begins at the first evaluation after the start, for a logarithmic
    axis. `scale` multiplies the column: with the number of examples, epochs become gradients.
    """
    factor, most = (100.0, 100.0) if measure == "test_accuracy" else (1.0, math.inf)
    for position, group in enumerate(groups):
        if group is None or (band := average(group, column, measure)) is None:
            continue  # the others keep their colors
        color = PALETTE[position]
        tables = [run.metrics[run.metrics[column] > 0] for run in group.good.values()]
        shown = band.x >= (max(float(table[column].min()) for table in tables) if from_first else 0)
        x = scale * band.x[shown]
        if band.count >= 4:
            low, high = ((factor * values[shown]).clip(0, most) for values in (band.low, band.high))
            axis.fill_between(x, low, high, color=color, alpha=0.15, lw=0)
        elif band.count > 1:
            for table in tables:
                axis.plot(scale * table[column], factor * table[measure], color=color, lw=0.6, alpha=0.6)
        axis.plot(x, factor * band.mean[shown], color=color, ls=LINE_STYLES[position], label=group.label)


def draw_rounds(runs: Runs) -> Figure:
    """Draw accuracy over rounds, a panel for every problem and aggregation."""
    rules = {STRONGLY: STEEP, PLAIN: ROOT}
    kinds = {
        FIRST: f"constant {FIRST}",
        LINEAR: LINEAR,
        OVER_LOG: OVER_LOG,
        "500": "constant 500",
        "1000": "constant 1000",
    }
    problems = [task for task in rules if runs.has(GROWING, (task, rules[task], *LISTING, LINEAR))]
    figure, axes = panels(2, len(problems), (4.2 * len(problems) + 0.6, 6.2), sharex=True, sharey="col")
    for (row, way), (column, problem) in itertools.product(enumerate((SUM, MEAN)), enumerate(problems)):
        axis, start = axes[row][column], (problem, rules[problem])
        cells = {name: (*start, way, EVEN, WITH, kind) for kind, name in kinds.items()}
        draw_curves(axis, _drawn(runs, GROWING, cells), "rounds", from_first=True)
        axis.set(xscale="log", title=GROWING.label(problem, way), xlim=(4, 480))
        log_axis(axis, (5, 10, 20, 28, 51, 100, 400))
        ends = [mean(runs.accuracy(GROWING, cell)) for cell in runs.cells(GROWING, *start) if cell[3:5] == LISTING[1:]]
        if not any(math.isnan(end) for end in ends):  # show where the curves end, not where they begin
            axis.set_ylim(min(ends) - 4, max(ends) + 2)
    return labeled(figure, axes, "rounds", columns=5, title="sample sizes $s_i$ of all clients")


def _drawn(runs: Runs, section: Section, cells: Mapping[str, Cell]) -> list[Group | None]:
    """Return the groups of cells, named for a legend; None for one that was not run."""
    return [runs.group(section, cell, name) if runs.has(section, cell) else None for name, cell in cells.items()]


def _draw_steps(runs: Runs, problems: Sequence[str], cases: Mapping[str, str], title: str) -> Figure:
    """Draw accuracy over gradients, a row of panels for every problem."""
    figure, axes = panels(len(problems), 2, (9.0, 2.6 * len(problems) + 1.2), sharex=True, sharey=True)
    for (row, problem), (column, way) in itertools.product(enumerate(problems), enumerate((SUM, MEAN))):
        start = (problem, way, EVEN, WITH)
        cells: dict[str, Cell] = {name: (*start, case) for name, case in cases.items()}
        if best := _cells(runs, start, PER_ROUND.values()):
            cells["falling from the best first step"] = _best(runs, STEPS, best)
        draw_curves(axes[row][column], _drawn(runs, STEPS, cells), "epochs", scale=EXAMPLES[problem])
        axes[row][column].set_title(STEPS.label(problem, way))
    return labeled(figure, axes, "gradients of all clients", columns=2, title=title)


def draw_steps(runs: Runs) -> Figure:
    """Draw Figures 1a and 6: falling steps, growing sizes; constant ones of both."""
    cells = [(problem, *LISTING, DIMINISHING_2) for problem in (PHISHING, PHISHING_PLAIN)]
    problems = [cell[0] for cell in cells if runs.has(STEPS, cell)]
    falling = {"diminishing₁, from 0.1 by gradients": DIMINISHING_1, "diminishing₂, from 0.1 by rounds": DIMINISHING_2}
    constant = {f"constant step {eta:g}": f"{eta:g}, constant" for eta in (0.0025, 0.01, 0.1)}
    few, many = (runs.rounds(STEPS, (PHISHING, *LISTING, case)) for case in (DIMINISHING_2, "0.01, constant"))
    title = f"{few} rounds with growing sizes, {many} with constant ones (the paper: 9 and 20)"
    return _draw_steps(runs, problems, {**falling, **constant}, title)


def draw_tuned(runs: Runs) -> Figure:
    """Draw Figure 9: constant and falling steps, both with growing sizes."""
    constant = {f"constant step {eta:g}": f"{eta:g}, growing" for eta in (0.0025, 0.005, 0.01, 0.1)}
    if not runs.has(STEPS, (PHISHING, *LISTING, "0.01, growing")):
        raise NotMeasuredError("no finished run")  # the quick form has none
    return _draw_steps(runs, (PHISHING,), {"falling from 0.1 (the paper)": DIMINISHING_2, **constant}, "growing sizes")


def draw_network(runs: Runs) -> Figure:
    """Draw Figure 8: LeNet-5 with falling steps, growing sizes; constant ones."""
    ways = [way for way in (SUM, MEAN) if runs.has(GROWING, (LENET5, PAPERS_STEP, way, EVEN, WITH, LINEAR))]
    figure, axes = panels(1, len(ways), (4.2 * len(ways) + 0.6, 4.6))
    for axis, way in zip(axes.flat, ways, strict=True):
        some = [cell for cell in runs.cells(GROWING, LENET5) if cell[2] == way]
        best = {kind: [cell for cell in some if cell[-1] == kind] for kind in (FIRST, FIXED, LARGE_FIXED[1])}
        cells = {
            "growing, steps falling from 0.1 (the paper)": (LENET5, PAPERS_STEP, way, EVEN, WITH, LINEAR),
            "growing, steps falling from 0.01": (LENET5, SMALL_STEP, way, EVEN, WITH, LINEAR),
            **{
                f"constant {kind}, the best {'constant' if kind == FIXED else 'falling'} steps": _best(
                    runs, GROWING, own
                )
                for kind, own in best.items()
                if own
            },
        }
        draw_curves(axis, _drawn(runs, GROWING, cells), "epochs", scale=EXAMPLES[LENET5])
        axis.set(title=GROWING.label(LENET5, way), xticks=range(0, 20_001, 5_000))
        axis.set_ylim((0, 100) if way == SUM else (80, 100))
    return labeled(figure, axes, "gradients of all clients", columns=2)


def draw_biased(runs: Runs) -> Figure:
    """Draw Figures 2, 10 and 11: accuracy with biased and unbiased data."""
    cases = [("strongly convex", TWO), ("plain convex", TWO), (NETWORK, TEN)]
    cases = [case for case in cases if runs.has(BIASED, (*case, SUM, "biased"))]
    figure, axes = panels(2, len(cases), (3.5 * len(cases) + 0.6, 5.8), sharex="col", sharey="col")
    for (row, way), (column, case) in itertools.product(enumerate((SUM, MEAN)), enumerate(cases)):
        cells = {name: (*case, way, name) for name in BIASED_DATA}
        draw_curves(axes[row][column], _drawn(runs, BIASED, cells), "epochs", scale=EXAMPLES[case[1]])
        axes[row][column].set_title(f"{case[0]}, {way}")
    for axis, case in zip(axes[0], cases, strict=True):
        axis.set_ylim((0, 100) if case[0] == NETWORK else (99, 100.1))
    return labeled(figure, axes, "gradients of all clients", columns=2)


def draw_sizes(runs: Runs) -> Figure:
    """Draw accuracy over constant sizes beside the paper's."""
    settings = {LISTING: "-", (SUM, UNEVEN, WITHOUT): "-.", (SUM, UNEVEN, WITH): "--", PLAIN_MEAN: ":"}
    problems = [problem for problem in PROBLEMS if runs.cells(CONSTANT, problem, *LISTING)]
    figure, axes = panels(1, len(problems), (3.5 * len(problems) + 0.6, 3.6))
    for axis, problem in zip(axes.flat, problems, strict=True):
        axis.plot(SIZES, list(TABLE3[problem].values()), color="#555555", ls=":", marker="x", label="paper")
        for (setting, line), color in zip(settings.items(), PALETTE, strict=False):
            if row := runs.accuracies(CONSTANT, problem, *setting):
                with_bars(axis, list(row), list(row.values()), color=color, ls=line, label=", ".join(setting))
        axis.set_title(problem)
        log_axis(axis, SIZES)
    return labeled(figure, axes, "sample size of a client", columns=3)


def draw_privacy(runs: Runs) -> Figure:
    """Draw accuracy and loss over epochs at equal noise.

    Accuracies of w8a hardly differ from the share of its larger class, which is a line; its losses differ.
    """
    labels = {
        GROWN: "growing: 16 + 1.322 i",
        AS_MANY: AS_MANY,
        "16, step 0.01": "constant 16, step 0.01",
        "16, step 0.001": "constant 16, step 0.001",
        NO_PRIVACY: NO_PRIVACY,
    }
    problems = [problem for problem in PRIVATE_FILES if runs.has(PRIVATE, (problem, *LISTING, GROWN))]
    figure, axes = panels(2, len(problems), (3.5 * len(problems) + 0.6, 6.2), sharex="col")
    for column, problem in enumerate(problems):
        instead = {GROWN: FROM_SMALL} if problem == LENET5 else {}  # it learns nothing from the paper's 0.15
        cells = {name: (problem, *LISTING, instead.get(role, role)) for role, name in labels.items()}
        for axis, measure in zip(axes[:, column], ("test_accuracy", "test_loss"), strict=True):
            draw_curves(axis, _drawn(runs, PRIVATE, cells), "epochs", measure=measure)
        axes[0][column].set(title=problem, ylim=(0, 70) if problem == LENET5 else (96, 98.5))
        losses = (1, 2, 5, 10) if problem == LENET5 else (0.05, 0.1, 0.2, 0.4, 0.8)
        axes[1][column].set(yscale="log", ylim=(losses[0], losses[-1]))
        axes[1][column].set_yticks(losses, [f"{loss:g}" for loss in losses])
        axes[1][column].minorticks_off()
        if problem != LENET5:
            axes[0][column].axhline(LARGER_CLASS, color="#555555", lw=0.8, label="answering no throughout")
    labeled(figure, axes, "epochs", columns=2)
    axes[1][0].set_ylabel("test loss")
    return figure


PAPER = Paper(
    name="async_fl",
    title="Van Dijk, Nguyen, Nguyen, Nguyen, Tran-Dinh, Nguyen: Asynchronous Federated Learning with Reduced Number of "
    "Rounds and with Differential Privacy from Less Aggregated Gaussian Noise",
    page="async_fl.md",
    data=("a9a", "w8a", "phishing", "mnist"),
    minutes=(2, 25),
    experiments=experiments,
    numbers=(
        round_numbers, size_numbers, sequence_numbers, step_numbers, private_numbers, biased_numbers, example_numbers,
    ),
    claims=(
        PaperClaim('Sizes of 50 i "provide fewer communication rounds while maintaining a good accuracy, when '
                   'compared to other settings", on a9a, strongly and plain convex (Figures 3 and 4).',
                   fewer_rounds, True, "rounds"),
        PaperClaim("Sizes of order i/ln i need fewer rounds than others and maintain a good accuracy, too (Figures 3 "
                   "and 4).", over_log, figure="rounds"),
        PaperClaim("Sizes of 50 i need fewer rounds than those of every smaller power of i (Figure 3).",
                   rounds_of_linear),
        PaperClaim("Sizes of 50 i/ln i need fewer rounds than those of every smaller power of i (Figure 3).",
                   rounds_of_over_log),
        PaperClaim("With differential privacy growing sample sizes are more accurate than constant ones on w8a, "
                   "strongly and plain convex (Figures 1b and 12).", better_with_privacy, True, "privacy"),
        PaperClaim("With differential privacy growing sample sizes are more accurate than constant ones with LeNet-5, "
                   "too (Figure 13).", network_with_privacy, figure="privacy",
                   short="25,000 gradients of all clients together; the paper may mean 25,000 of each"),
        PaperClaim("The growing sizes of Example 3 are (1, 5.5e-8)-differentially private at σ = 8.", certified),
        PaperClaim("Growing sizes aggregate less noise over all rounds than constant ones of the same privacy.",
                   less_noise),
        PaperClaim("With LeNet-5 falling steps with growing sizes are as accurate as constant ones, in fewer rounds "
                   "(Figure 8).", network, figure="network"),
        PaperClaim("The best constant sizes are 50 to 200, for every problem (Table 3).", best_sizes, figure="sizes"),
        PaperClaim("Sizes of 500 and 700 lose little, for every problem (Table 3).", little_lost, figure="sizes"),
        PaperClaim("At s = 1000 accuracy collapses, for every problem (Table 3).", collapse, figure="sizes"),
        PaperClaim("Falling steps with growing sizes are at least as accurate as constant ones of both, in 9 rounds "
                   "instead of 20, on phishing, strongly and plain convex (Figures 1a and 6).", falling_steps,
                   figure="steps"),
        PaperClaim("Steps that fall by gradients and by rounds are alike (Figure 6).", steps_alike, figure="steps"),
        PaperClaim("With growing sizes falling steps are as accurate as a tuned constant step (Figure 9).",
                   tuned_steps, figure="tuned"),
        PaperClaim("With growing sizes a constant step is as accurate as falling ones only where it is tuned (Figure "
                   "9).", tuned_alone, figure="tuned"),
        PaperClaim("Biased data make no difference to convex problems (Figures 2 and 10).", insensitive,
                   figure="biased"),
        PaperClaim("LeNet-5 still learns well from biased data (Figure 11).", network_insensitive, figure="biased"),
    ),
    figures={
        "rounds": ("Figures 3 and 4: accuracy over rounds for constant and growing sizes, 20,000 gradients each",
                   draw_rounds),
        "privacy": ("Figures 1b, 12 and 13: accuracy and loss over epochs at σ = 8, growing sizes against constant "
                    "ones, with the sum", draw_privacy),
        "sizes": ("Table 3: accuracy over constant sizes, step size 0.0025, 20,000 gradients, and the paper's numbers",
                  draw_sizes),
        "steps": ("Figures 1a (strongly convex) and 6: accuracy over gradients on phishing", draw_steps),
        "network": ("Figure 8: accuracy over gradients with LeNet-5", draw_network),
        "tuned": ("Figure 9: accuracy over gradients on phishing, growing sizes with constant and falling steps",
                  draw_tuned),
        "biased": ("Figures 2 (strongly convex), 10 and 11: accuracy over gradients with biased and unbiased data",
                   draw_biased),
    },
    untested=(
        ("Table 3 and Figure 5 on covtype, Figures 7 and 9 on ijcnn1.", "the data sets were not available"),
    ),
    deviations=(
        "Sum: the server takes every update whole, as the paper's listing has it. Mean: it takes it times p_c.",
        "Unequal speeds are log-normal, 0.5. The paper says nothing about speeds; its equation 32 has an intercept, "
        "its code may have none. Both choices were made after Table 3 had been compared with.",
        "In the plain convex case η₀/(1 + β√t) is what the paper's figures have; its Table 1 allows η₀/(1 + βt), too.",
        "The paper prints no number of Figure 3, and not its powers of i: the rounds are those of its formulas, at "
        "steps of a quarter. Of its other figures it prints the rounds of Figure 6 alone, 9 and 20.",
        "Sizes of 500 and 1000 of all clients with the same falling steps are our baseline, as are 1112 on phishing, "
        "and sizes of as many rounds with privacy: growing sizes have to be more accurate, without privacy by half a "
        "point, than those that need no more rounds.",
        "On phishing and with LeNet-5 falling steps start from the best of a grid, and constant ones are the best of "
        "one; the paper searched, too. Its own first steps, 0.1 and 0.15, are in the numbers. The grids were chosen "
        "after the results from 0.1 were seen.",
        "Without privacy clients move their model after every gradient, as Algorithm 1 has it; with privacy a round's "
        "gradients are taken at one model, because the listing with noise has no proof.",
        "phishing has 8,404 of its 11,055 examples; w8a's five clients have 9,452 examples each instead of 10,000.",
        "97 % of w8a's examples are of one class, which a model that never moves far enough answers throughout.",
        "A constant size with as many rounds is 137 on w8a and 73 on MNIST, where it is compared with growing sizes "
        "whose steps fall from 0.01: from the paper's 0.15 the sum over LeNet-5's clients learns nothing.",
        "LeNet-5 counts as equally accurate within 3 points: Table 3 calls both 94.7 and 91.8 % the best.",
        "In Example 4 the paper takes the square root of 1 - r0/σ with Example 2's σ = 5.",
        "Biased data with all ten digits, five for each client, are not the paper's in the convex case.",
    ),
)  # fmt: skip
