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
from simfl.studies.evidence import Part, Reading, above, below, exactly, show, typical, within
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
    "322": "322",
}
"""322 gives 63 rounds; their ratio to the rounds of 50 i is 20 to 9."""
COMPARED = (FIRST, LINEAR, OVER_LOG)

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

PER_ROUND, PER_GRADIENT = "falling by rounds, growing", "falling by gradients, growing"
_SAME = "algorithm.sizes=500"  # 20 rounds of all clients, the paper's number
ETAS = (0.0025, 0.005, 0.01, 0.03, 0.1)
CONSTANT_STEPS = {f"{eta:g}, constant": eta for eta in ETAS}
GROWING_CONSTANT_STEPS = {f"{eta:g}, growing": eta for eta in ETAS}
STEP_CASES = {
    PER_GRADIENT: ("algorithm.step_per=gradient",),
    PER_ROUND: (),
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

EQUAL = 1.0
"""Points of accuracy below which two settings count as equal."""
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
        few = (PER_ROUND, "0.0025, constant", "0.01, constant", "0.1, constant")
        return [
            *_grid(CONSTANT, [(STRONGLY,)], (*SUMS, PLAIN_MEAN), (100, 500, 1000), 6),
            *_grid(GROWING, [(STRONGLY, STEEP), (PLAIN, ROOT)], (LISTING, PLAIN_MEAN), (FIRST, LINEAR), 6),
            *_grid(GROWING, [(PLAIN, STEEP)], (LISTING,), (FIRST, LINEAR), 6),
            *_grid(STEPS, [(PHISHING,)], (*even, PLAIN_MEAN), few, 6),
            *_grid(PRIVATE, w8a, (LISTING,), (GROWN, *SMALL_STEPS), 6),
            *_grid(BIASED, [("strongly convex", TWO)], ways[:1], BIASED_DATA, 6),
        ]
    others = tuple(kind for kind in POWERS if kind not in COMPARED)
    private = tuple(setting for setting in GRID if setting[1] == EVEN)
    quieter = tuple(role + SIGMAS["5.8, for the claimed ε"] for role in (SIXTEEN, *SMALL_STEPS))
    plain_steps, falling = (PER_GRADIENT, PER_ROUND, *CONSTANT_STEPS), (PAPERS_STEP, SMALL_STEP)
    return [
        *_grid(CONSTANT, [(STRONGLY,)], SUMS, SIZES, 12),  # single seeds of large rounds are 13 points apart
        *_grid(CONSTANT, [(STRONGLY,)], MEANS, SIZES, 6),
        *_grid(CONSTANT, [(PLAIN,)], SUMS, SIZES, 12),
        *_grid(CONSTANT, [(LENET5,)], (LISTING,), SIZES, 6),
        *_grid(CONSTANT, [(LENET5,)], ((SUM, UNEVEN, WITH), PLAIN_MEAN), (100, 500, 1000), 6),
        *_grid(GROWING, [(STRONGLY, STEEP)], GRID, COMPARED, 6),
        *_grid(GROWING, [(STRONGLY, STEEP)], (LISTING,), others, 6),
        *_grid(GROWING, [(PLAIN, ROOT)], SUMS, COMPARED, 16),
        *_grid(GROWING, [(PLAIN, ROOT)], MEANS, COMPARED, 6),
        *_grid(GROWING, [(PLAIN, STEEP)], (*SUMS, PLAIN_MEAN), COMPARED, 6),
        *_grid(GROWING, [(LENET5, steps) for steps in falling], (LISTING, PLAIN_MEAN), (FIRST, LINEAR), 6),
        # The sum learns nothing from 0.1, and the mean would need more than 0.0025.
        *_grid(GROWING, [(LENET5, steps) for steps in NETWORK_STEPS[:2]], (LISTING,), ("322",), 6),
        *_grid(GROWING, [(LENET5, steps) for steps in NETWORK_STEPS[1:]], (PLAIN_MEAN,), ("322",), 6),
        *_grid(STEPS, [(PHISHING,)], SUMS, STEP_CASES, 12),
        *_grid(STEPS, [(PHISHING,)], MEANS, STEP_CASES, 6),
        *_grid(STEPS, [(PHISHING_PLAIN,)], even, plain_steps, 12),
        *_grid(STEPS, [(PHISHING_PLAIN,)], private[2:], plain_steps, 6),
        *_grid(PRIVATE, w8a, private, roles, 5),
        *_grid(PRIVATE, w8a, even, quieter, 5),
        *_grid(PRIVATE, w8a, (LISTING,), (NO_PRIVACY,), 5),
        *_grid(PRIVATE, [(LENET5,)], (LISTING,), (GROWN, FROM_SMALL, *SMALL_STEPS, AS_MANY), 5),
        *_grid(PRIVATE, [(LENET5,)], (PLAIN_MEAN,), (GROWN, *SMALL_STEPS), 5),
        *_grid(BIASED, [case for case in BIASED_CASES if case[0] != NETWORK], ways, BIASED_DATA, 5),
        *_grid(BIASED, [(NETWORK, TEN)], ways[:1], BIASED_DATA, 12),
        *_grid(BIASED, [(NETWORK, TEN)], ways[1:], BIASED_DATA, 6),
    ]


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
        rows = {start[1:]: row for start, row in _table3(runs) if start[0] == problem}
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
        row, paper = STEPS.label(*cell), 20 if cell[-1] in CONSTANT_STEPS else 9
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


def _reading(choices: dict[str, str], setting: Sequence[str], *parts: Part) -> Reading:
    """Return a reading with the settings that every experiment shares.

    Unequal speeds and a missing intercept were considered only after Table 3 had been compared.
    """
    keys = {SUM: "aggregation", MEAN: "aggregation", EVEN: "speeds", UNEVEN: "speeds", WITH: "intercept"}
    shared = {keys.get(choice, "intercept"): choice.split()[0] for choice in setting}
    return Reading({**choices, **shared}, parts, afterwards=UNEVEN in setting or WITHOUT in setting)


def _typically(values: Sequence[float], bar: float, what: str, least: float = 0.0) -> Part:
    """Return whether the median of six or more seeds is above a bar.

    A lead up to `least` does not count. The median is used because single runs whose rounds overshoot end far from all
    others; diverged runs count as worst.
    """
    median = median_of(typical(values))
    held = True if median.low > bar else False if median.high < bar + least else None
    bounds = f", {median.low:+.1f} to {median.high:+.1f}" if median.low < median.high else ""
    return Part(held, f"{median.mean:+.1f} (median{bounds}) {what}")


def _no_worse(ahead: Sequence[float], against: str, most: float = EQUAL) -> Part:
    """Return whether a difference in points is at most a small loss."""
    return _typically(ahead, -most, f"points against {against} (bar: -{most:g})")


def _fewer(few: int, many: int, share: float = 1.0) -> Part:
    """Return whether rounds are fewer than the others, or at most a share of them."""
    return exactly(few < many if share == 1 else few <= share * many, f"{few} rounds instead of {many}")


def _of_a9a(runs: Runs, kind: str) -> Iterator[tuple[dict[str, str], Setting, Cell, Cell]]:
    """Yield choices, setting and cells of two kinds of sizes, convex problems."""
    for cell in runs.cells(GROWING):
        first = (*cell[:-1], FIRST)
        if cell[-1] == kind and cell[0] != LENET5 and runs.has(GROWING, first):
            yield {"task": cell[0], "steps": cell[1]}, cell[2:5], cell, first


def fewer_rounds(runs: Runs) -> Iterator[Reading]:
    """Judge whether growing sizes are as accurate in a fraction of the rounds."""
    for choices, setting, cell, first in _of_a9a(runs, LINEAR):
        fewer = _fewer(runs.rounds(GROWING, cell), runs.rounds(GROWING, first), 0.1)
        yield _reading(choices, setting, fewer, _no_worse(runs.ahead(GROWING, cell, first), "sizes of 50"))


def over_log(runs: Runs) -> Iterator[Reading]:
    """Judge whether sizes of order i/ln i keep the accuracy."""
    for choices, setting, cell, first in _of_a9a(runs, OVER_LOG):
        yield _reading(choices, setting, _no_worse(runs.ahead(GROWING, cell, first), "sizes of 50"))


def network(runs: Runs) -> Iterator[Reading]:
    """Judge whether LeNet-5 loses nothing with growing sizes, falling steps."""
    for steps, aggregation in itertools.product((PAPERS_STEP, SMALL_STEP), (SUM, MEAN)):
        setting = (aggregation, EVEN, WITH)
        grown, fixed = (LENET5, steps, *setting, LINEAR), (LENET5, steps, *setting, FIRST)
        cells = runs.cells(GROWING, LENET5)
        constants = [cell for cell in cells if cell[1] in NETWORK_STEPS and cell[2] == aggregation]
        for name, others in (("sizes of 50, the same steps", [fixed]), ("the best constant step and size", constants)):
            if others and runs.has(GROWING, grown, *others):
                best = _best(runs, GROWING, others)
                fewer = _fewer(runs.rounds(GROWING, grown), runs.rounds(GROWING, best))
                against = name if best is fixed else f"{best[1]} ({show(runs.accuracy(GROWING, best), 1)} %)"
                parts = fewer, _no_worse(runs.ahead(GROWING, grown, best), against)
                yield Reading({"steps": steps, "against": name, "aggregation": aggregation}, parts)


def _best(runs: Runs, section: Section, cells: Sequence[Cell]) -> Cell:
    """Return the cell of the best median."""
    return max(cells, key=lambda cell: _median(runs.accuracy(section, cell)))


def counts_of_rounds(runs: Runs) -> Iterator[Reading]:
    """Judge whether 50 i and 50 i/ln i have the fewest rounds."""
    counts = {kind: PolynomialSizes(50, c=power).rounds_for(20_000) for kind, power in POWERS.items()}
    counts[OVER_LOG] = OverLogSizes(50).rounds_for(20_000)
    measured = {cell[-1]: runs.rounds(GROWING, cell) for cell in runs.cells(GROWING, STRONGLY, STEEP, *LISTING)}
    agree = exactly(all(counts[kind] == rounds for kind, rounds in measured.items()), "runs agree with the formulas")
    for most in (0.5, 0.75):
        others = {kind: counts[kind] for kind, power in POWERS.items() if power <= most}
        said = ", ".join(f"{kind}: {count}" for kind, count in others.items())
        least, kinds = min(others.values()), (LINEAR, OVER_LOG)
        parts = [exactly(counts[kind] < least, f"{kind}: {counts[kind]} against {said}") for kind in kinds]
        yield Reading({"other powers": f"up to {most:g}"}, (*parts, agree))


def better_with_privacy(runs: Runs) -> Iterator[Reading]:
    """Judge whether growing sizes are more accurate than a constant 16."""
    for task, sigma in itertools.product((W8A_STRONGLY, W8A_PLAIN), SIGMAS):
        for aggregation, intercept in itertools.product((SUM, MEAN), (WITH, WITHOUT)):
            setting = (aggregation, EVEN, intercept)
            for against, roles in (("steps of 0.01 and 0.001", tuple(SMALL_STEPS)), ("the same steps", (SIXTEEN,))):
                choices = {"task": task, "constant 16 with": against, "its σ": sigma}
                if parts := _leads(runs, (task, *setting), GROWN, [role + SIGMAS[sigma] for role in roles]):
                    yield _reading(choices, (aggregation, intercept), *parts)


def network_with_privacy(runs: Runs) -> Iterator[Reading]:
    """Judge whether growing sizes beat a constant 16 for LeNet-5, paper's steps."""
    for aggregation, (first, role) in itertools.product((SUM, MEAN), (("0.15", GROWN), ("0.01", FROM_SMALL))):
        if parts := _leads(runs, (LENET5, aggregation, EVEN, WITH), role, list(SMALL_STEPS)):
            yield Reading({"first step": first, "aggregation": aggregation}, parts, afterwards=role == FROM_SMALL)


def _leads(runs: Runs, start: Cell, grown: str, roles: Sequence[str]) -> list[Part]:
    """Return whether growing sizes lead each constant size that was run."""
    if not runs.has(PRIVATE, (*start, grown), *((*start, role) for role in roles)):
        return []
    leads = {role: runs.ahead(PRIVATE, (*start, grown), (*start, role)) for role in roles}
    return [
        above(typical(ahead), 0, f"{show(ahead, 1, True)} points against {role} (bar: above 0)", BETTER)
        for role, ahead in leads.items()
    ]


def growth_alone(runs: Runs) -> Iterator[Reading]:
    """Judge whether growing sizes beat constant ones of as many rounds."""
    for cell in runs.cells(PRIVATE):
        grown = (*cell[:-1], FROM_SMALL if cell[0] == LENET5 else GROWN)
        if cell[-1] == AS_MANY and runs.has(PRIVATE, grown):
            ahead = runs.ahead(PRIVATE, grown, cell)
            text = f"{show(ahead, 1, True)} points against a constant {ALIKE[cell[0]]} (bar: above 0)"
            yield _reading({"task": cell[0]}, (cell[1], cell[3]), above(typical(ahead), 0, text, BETTER))


def certified(runs: Runs) -> Iterator[Reading]:
    """Judge whether an accountant certifies the epsilon that the paper claims."""
    cells = [(problem, *LISTING, GROWN) for problem in (W8A_STRONGLY, W8A_PLAIN)]
    epsilons = {cell[0]: mean(runs.epsilon(PRIVATE, cell)) for cell in cells if runs.has(PRIVATE, cell)}
    said = ", ".join(f"{problem}: {epsilon:.3f}" for problem, epsilon in epsilons.items())
    if epsilons:
        text = f"certified ε of the growing sizes, where the paper claims 1: {said}"
        yield Reading({}, (exactly(max(epsilons.values()) <= 1, text),))


def less_noise(runs: Runs) -> Iterator[Reading]:
    """Judge whether growing sizes aggregate less noise at the same epsilon."""
    noise = aggregated()
    for role, size in ((SIXTEEN, "16, the paper's"), (AS_MANY, "137, of as many rounds")):
        text = f"√T σ at a certified (1, 5.5e-8): {noise[GROWN]:.1f} growing, {noise[role]:.1f} constant"
        printed = " (the paper, by its theorem: 112 and 229)" * (role == SIXTEEN)
        yield Reading({"constant size": size}, (exactly(noise[GROWN] < noise[role], text + printed),))


def _table3(runs: Runs) -> Iterator[tuple[Cell, dict[int, tuple[float, ...]]]]:
    """Yield problem and setting of each row of Table 3, with accuracies by size."""
    for start in dict.fromkeys(cell[:-1] for cell in runs.cells(CONSTANT)):
        yield start, runs.accuracies(CONSTANT, *start)


def best_sizes(runs: Runs) -> Iterator[Reading]:
    """Judge whether the best constant sizes are among 50 to 200."""
    for start, row in _table3(runs):
        small, large = ([size for size in row if (size <= 200) == low] for low in (True, False))
        leads = [_apart(row[one], row[other]) for one in small for other in large]
        names = [", ".join(map(str, sizes)) for sizes in (small, large)]
        what = f"points are the least lead of {names[0]} over {names[1]} (bar: above 0)"
        least = [min(lead) for lead in zip(*leads, strict=True)]  # for every seed
        yield _reading({"task": start[0]}, start[1:], _typically(least, 0, what, BETTER))


def collapse(runs: Runs) -> Iterator[Reading]:
    """Judge whether the largest size loses much accuracy."""
    for start, row in _table3(runs):
        lost = _apart(row[100], row[1000])
        paper = TABLE3[start[0]][100] - TABLE3[start[0]][1000]
        text = f"{show(lost, 1)} points less than s = 100, {paper:.1f} in the paper (bar: {COLLAPSE:g})"
        yield _reading({"task": start[0]}, start[1:], above(lost, COLLAPSE, text))


def little_lost(runs: Runs) -> Iterator[Reading]:
    """Judge whether sizes of 500 and 700 lose as little as in the paper."""
    for (start, row), size in itertools.product(_table3(runs), (500, 700)):
        if size in row:
            bar, ahead = LITTLE[start[0]], _apart(row[size], row[100])
            paper = TABLE3[start[0]][size] - TABLE3[start[0]][100]
            what = f"points against s = 100, {paper:.1f} in the paper (bar: -{bar:g})"
            yield _reading({"task": start[0], "s": str(size)}, start[1:], _typically(ahead, -bar, what))


def _apart(one: Sequence[float], other: Sequence[float]) -> tuple[float, ...]:
    """Return differences by seeds; all other runs lead a diverged one by infinity."""
    pairs = zip(typical(one), typical(other), strict=True)
    return typical([first - second for first, second in pairs])


def falling_steps(runs: Runs) -> Iterator[Reading]:
    """Judge whether falling steps, growing sizes are no worse in fewer rounds."""
    tables = {"0.0025, Table 3's": ["0.0025, constant"], "the best": list(CONSTANT_STEPS)}
    for start, (name, cases) in itertools.product(_phishing(runs), tables.items()):
        cells = [(*start, case) for case in cases if runs.has(STEPS, (*start, case))]
        if cells:
            best, grown = _best(runs, STEPS, cells), (*start, PER_ROUND)
            parts = _fewer(runs.rounds(STEPS, grown), runs.rounds(STEPS, best)), _against(runs, grown, best)
            yield _reading({"task": start[0], "constant step": name}, start[1:], *parts)


def tuned_steps(runs: Runs) -> Iterator[Reading]:
    """Judge whether falling steps equal the best constant step, growing sizes."""
    papers = ["0.005, growing", "0.01, growing"]
    tables = {"0.005 and 0.01, the paper's": papers, "the best": list(GROWING_CONSTANT_STEPS)}
    for start, (name, cases) in itertools.product(_phishing(runs), tables.items()):
        cells = [(*start, case) for case in cases]
        if runs.has(STEPS, *cells):
            parts = _against(runs, (*start, PER_ROUND), _best(runs, STEPS, cells))
            yield _reading({"tuned over": name}, start[1:], parts)


def tuned_alone(runs: Runs) -> Iterator[Reading]:
    """Judge whether the best constant step equals falling ones; the worst not."""
    for start in _phishing(runs):
        cells = {(*start, case): case for case in GROWING_CONSTANT_STEPS}
        if runs.has(STEPS, *cells):
            grown = (*start, PER_ROUND)
            best = _best(runs, STEPS, list(cells))
            worst = min(cells, key=lambda cell: _median(runs.accuracy(STEPS, cell)))
            reached, missed = (
                _apart(runs.accuracy(STEPS, cell), runs.accuracy(STEPS, grown)) for cell in (best, worst)
            )
            parts = (
                above(reached, -EQUAL, f"{cells[best]}: {show(reached, 1, True)} points (bar: -{EQUAL:g})"),
                below(missed, -EQUAL, f"{cells[worst]}: {show(missed, 1, True)} points (bar: below -{EQUAL:g})"),
            )
            yield _reading({}, start[1:], *parts)


def steps_alike(runs: Runs) -> Iterator[Reading]:
    """Judge whether steps that fall by gradients and by rounds are alike."""
    for start in _phishing(runs):
        if runs.has(STEPS, cell := (*start, PER_GRADIENT)):
            ahead = runs.ahead(STEPS, (*start, PER_ROUND), cell)
            text = f"by rounds {show(ahead, 1, True)} points ahead (bar: {EQUAL:g} either way)"
            yield _reading({"task": start[0]}, start[1:], within(ahead, EQUAL, text))


def _phishing(runs: Runs) -> list[Cell]:
    """Return the problems and settings whose falling steps were run."""
    return [cell[:-1] for cell in runs.cells(STEPS) if cell[-1] == PER_ROUND]


def _against(runs: Runs, grown: Cell, best: Cell) -> Part:
    """Return whether falling steps lose at most a little to constant ones."""
    return _no_worse(runs.ahead(STEPS, grown, best), f"{best[-1]} ({show(runs.accuracy(STEPS, best), 1)} %)")


def insensitive(runs: Runs) -> Iterator[Reading]:
    """Judge whether biased data make no difference to convex problems."""
    for (task, data, aggregation), difference in _bias(runs).items():
        if task != NETWORK:
            text = f"biased minus unbiased {show(difference, 1, True)} points (bar: {ALIKE_BIASED:g} either way)"
            yield _reading({"task": task, "data": data}, (aggregation,), within(difference, ALIKE_BIASED, text))


def network_insensitive(runs: Runs) -> Iterator[Reading]:
    """Judge whether LeNet-5 still learns well from biased data."""
    for (task, _, aggregation), difference in _bias(runs).items():
        if task == NETWORK:
            yield _reading({}, (aggregation,), _no_worse(difference, "unbiased data", GOOD_BIASED))


# -- figures ---------------------------------------------------------------------------------------


def draw_curves(axis: Axes, groups: Iterable[Group], column: str, from_first: bool = False) -> None:
    """Draw the mean accuracy of groups over a column, with bands or as runs.

    `from_first` begins at the first evaluation after the start, for a logarithmic axis.
    """
    for position, group in enumerate(groups):
        band = average(group, column, "test_accuracy")
        if band is None:
            continue
        color = PALETTE[position]
        tables = [run.metrics[run.metrics[column] > 0] for run in group.good.values()]
        shown = band.x >= (max(float(table[column].min()) for table in tables) if from_first else 0)
        if band.count >= 4:
            low, high = (100 * values.clip(0, 1) for values in (band.low[shown], band.high[shown]))
            axis.fill_between(band.x[shown], low, high, color=color, alpha=0.15, lw=0)
        elif band.count > 1:
            for table in tables:
                axis.plot(table[column], 100 * table["test_accuracy"], color=color, lw=0.6, alpha=0.6)
        axis.plot(band.x[shown], 100 * band.mean[shown], color=color, ls=LINE_STYLES[position], label=group.label)


def draw_rounds(runs: Runs) -> Figure:
    """Draw accuracy over rounds, a panel for every problem and aggregation."""
    steps = {STRONGLY: STEEP, PLAIN: ROOT, LENET5: SMALL_STEP}
    kinds = [kind for kind in COMPARED if runs.has(GROWING, (STRONGLY, STEEP, *LISTING, kind))]
    problems = [task for task in PROBLEMS if runs.has(GROWING, (task, steps[task], *LISTING, LINEAR))]
    figure, axes = panels(2, len(problems), (3.5 * len(problems) + 0.6, 5.6), sharex=True, sharey="col")
    for (row, way), (column, problem) in itertools.product(enumerate((SUM, MEAN)), enumerate(problems)):
        axis, start = axes[row][column], (problem, steps[problem])
        cells = {kind: (*start, way, EVEN, WITH, kind) for kind in kinds}
        groups = [runs.group(GROWING, cell, kind) for kind, cell in cells.items() if runs.has(GROWING, cell)]
        draw_curves(axis, groups, "rounds", from_first=True)
        axis.set(xscale="log", title=GROWING.label(problem, way), xlim=(4, 480))
        log_axis(axis, (5, 10, 28, 51, 100, 400))
        ends = [mean(runs.accuracy(GROWING, cell)) for cell in runs.cells(GROWING, *start) if cell[3:5] == LISTING[1:]]
        if not any(math.isnan(end) for end in ends):  # show where the curves end, not where they begin
            axis.set_ylim(min(ends) - 8, max(ends) + 4)
    return labeled(figure, axes, "rounds", columns=len(kinds), title="sample sizes $s_i$")


def draw_sizes(runs: Runs) -> Figure:
    """Draw accuracy over constant sizes beside the paper's."""
    settings = {LISTING: "-", (SUM, UNEVEN, WITHOUT): "-.", (SUM, UNEVEN, WITH): "--", PLAIN_MEAN: ":"}
    rows = dict(_table3(runs))
    problems = [problem for problem in PROBLEMS if (problem, *LISTING) in rows]
    figure, axes = panels(1, len(problems), (3.5 * len(problems) + 0.6, 3.6))
    for axis, problem in zip(axes.flat, problems, strict=True):
        axis.plot(SIZES, list(TABLE3[problem].values()), color="#555555", ls=":", marker="x", label="paper")
        for (setting, line), color in zip(settings.items(), PALETTE, strict=False):
            if row := rows.get((problem, *setting)):
                with_bars(axis, list(row), list(row.values()), color=color, ls=line, label=", ".join(setting))
        axis.set_title(problem)
        log_axis(axis, SIZES)
    return labeled(figure, axes, "sample size of a client", columns=3)


def draw_privacy(runs: Runs) -> Figure:
    """Draw accuracy over epochs at equal noise, growing and constant sizes."""
    labels = {GROWN: "growing: 16 + 1.322 i", AS_MANY: AS_MANY, "16, step 0.01": "constant 16, step 0.01"}
    problems = [problem for problem in PRIVATE_FILES if runs.has(PRIVATE, (problem, *LISTING, GROWN))]
    figure, axes = panels(1, len(problems), (3.5 * len(problems) + 0.6, 3.8))
    for axis, problem in zip(axes.flat, problems, strict=True):
        instead = {GROWN: FROM_SMALL} if problem == LENET5 else {}  # it learns nothing from the paper's 0.15
        cells = {role: (problem, *LISTING, instead.get(role, role)) for role in labels}
        groups = [runs.group(PRIVATE, cell, labels[role]) for role, cell in cells.items() if runs.has(PRIVATE, cell)]
        draw_curves(axis, groups, "epochs")
        axis.set(title=problem, ylim=(0, 70) if problem == LENET5 else (94.5, 98))
    return labeled(figure, axes, "epochs", columns=2)


PAPER = Paper(
    name="async_fl",
    title="Van Dijk, Nguyen, Nguyen, Nguyen, Tran-Dinh, Nguyen: Asynchronous Federated Learning with Reduced Number of "
    "Rounds and with Differential Privacy from Less Aggregated Gaussian Noise",
    page="async_fl.md",
    data=("a9a", "w8a", "phishing", "mnist"),
    minutes=(2, 28),
    experiments=experiments,
    numbers=(
        round_numbers, size_numbers, sequence_numbers, step_numbers, private_numbers, biased_numbers, example_numbers,
    ),
    claims=(
        PaperClaim("Growing sample sizes need a tenth of the rounds of constant ones for the same accuracy (Figures 3 "
                   "and 4).", fewer_rounds, True, "rounds"),
        PaperClaim("With differential privacy growing sample sizes are more accurate than a constant 16 (Figures 1b "
                   "and 12).", better_with_privacy, True, "privacy"),
        PaperClaim("With differential privacy growing sample sizes are more accurate than a constant 16 with LeNet-5, "
                   "too (Figure 13).", network_with_privacy, figure="privacy",
                   short="25,000 gradients of all clients together; the paper may mean 25,000 of each"),
        PaperClaim("With differential privacy growing sample sizes are more accurate than constant ones, at as many "
                   "rounds.", growth_alone),
        PaperClaim("The growing sizes of Example 3 are (1, 5.5e-8)-differentially private at σ = 8.", certified),
        PaperClaim("Growing sizes aggregate less noise over all rounds than constant ones of the same privacy.",
                   less_noise),
        PaperClaim("Sizes of 50 i and of 50 i/ln i need fewer rounds than those of smaller powers of i (Figure 3).",
                   counts_of_rounds),
        PaperClaim("Sizes of order i/ln i keep the accuracy (Figure 4).", over_log, figure="rounds"),
        PaperClaim("With LeNet-5 falling steps with growing sizes are as accurate as constant ones, in fewer rounds "
                   "(Figure 8).", network),
        PaperClaim("The best constant sizes are 50 to 200 (Table 3).", best_sizes, figure="sizes"),
        PaperClaim("Sizes of 500 and 700 lose little (Table 3).", little_lost, figure="sizes"),
        PaperClaim("At s = 1000 accuracy collapses (Table 3).", collapse, figure="sizes"),
        PaperClaim("Falling steps with growing sizes are at least as accurate as constant ones of both, in 9 rounds "
                   "instead of 20 (Figures 1a and 6).", falling_steps),
        PaperClaim("Steps that fall by gradients and by rounds are alike (Figure 6).", steps_alike),
        PaperClaim("With growing sizes falling steps are as accurate as a tuned constant step (Figure 9).",
                   tuned_steps),
        PaperClaim("With growing sizes a constant step is as accurate as falling ones only where it is tuned (Figure "
                   "9).", tuned_alone),
        PaperClaim("Biased data make no difference to convex problems (Figures 2 and 10).", insensitive),
        PaperClaim("LeNet-5 still learns well from biased data (Figure 11).", network_insensitive),
    ),
    figures={
        "rounds": ("accuracy over rounds for constant and growing sizes, 20,000 gradients each", draw_rounds),
        "privacy": ("accuracy over epochs at σ = 8, growing sizes against constant ones", draw_privacy),
        "sizes": ("accuracy over constant sizes, step size 0.0025, 20,000 gradients", draw_sizes),
    },
    untested=(
        ("Table 3 and Figure 5 on covtype, Figures 7 and 9 on ijcnn1.", "the data sets were not available"),
    ),
    deviations=(
        "Sum: the server takes every update whole, as the paper's listing has it. Mean: it takes it times p_c.",
        "Unequal speeds are log-normal, 0.5. The paper says nothing about speeds; its equation 32 has an intercept, "
        "its code may have none. Both choices were made after Table 3 had been compared with.",
        "In the plain convex case η₀/(1 + β√t) is what the paper's figures have; its Table 1 allows η₀/(1 + βt), too.",
        "The paper prints no number of Figure 3: the rounds are those of its formulas.",
        "Without privacy clients move their model after every gradient, as Algorithm 1 has it; with privacy a round's "
        "gradients are taken at one model, because the listing with noise has no proof.",
        "phishing has 8,404 of its 11,055 examples; w8a's five clients have 9,452 examples each instead of 10,000.",
        "97 % of w8a's examples are of one class, which a model that never moves far enough answers throughout.",
        "A constant size with as many rounds is 137 on w8a and 73 on MNIST, where it is compared with growing sizes "
        "whose steps fall from 0.01: from the paper's 0.15 the sum over LeNet-5's clients learns nothing.",
        "In Example 4 the paper takes the square root of 1 - r0/σ with Example 2's σ = 5.",
        "Biased data with all ten digits, five for each client, are not the paper's in the convex case.",
    ),
)  # fmt: skip
