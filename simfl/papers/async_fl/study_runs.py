"""The runs of the study of asynchronous FL."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from simfl.assembly.data import data_root
from simfl.reproduction.papers import Cell, Experiment, Section

CONSTANT, GROWING = Section("Table 3", ("s = {}",)), Section("Figures 3, 4 and 8")
STEPS, BIASED = Section("Figures 6 and 9"), Section("Figures 2, 10 and 11")
PRIVATE = Section("Figures 1b, 12 and 13")
STRONGLY, PLAIN, LENET5 = "a9a, strongly convex", "a9a, plain convex", "MNIST, LeNet-5"
COVTYPE, COVTYPE_PLAIN = "covtype, strongly convex", "covtype, plain convex"
PROBLEMS = (STRONGLY, PLAIN, LENET5, COVTYPE, COVTYPE_PLAIN)

SUM, MEAN = "sum", "mean"
EVEN, UNEVEN = "equal speeds", "unequal speeds"
WITH, WITHOUT = "with intercept", "without intercept"
SETTINGS: dict[str, tuple[str, ...]] = {
    **{way: (f"algorithm.aggregation={way}",) for way in (SUM, MEAN)}, **dict.fromkeys((EVEN, WITH), ()),
    UNEVEN: ("clients.speed={kind: lognormal, sigma: 0.5}",), WITHOUT: ("model.intercept=false",),
}  # fmt: skip
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
    COVTYPE: dict(zip(SIZES, (84.29, 84.02, 84.08, 83.60, 82.78, 78.27), strict=True)),
    COVTYPE_PLAIN: dict(zip(SIZES, (84.21, 84.38, 84.04, 83.81, 83.79, 72.87), strict=True)),
}
"""Test accuracy in percent by problem and size."""
TABLE3_ROUNDS = dict(zip(SIZES, (80, 40, 20, 8, 6, 4), strict=True))
_NAMES = ("a9a-strongly", "a9a-plain", "mnist-lenet5", "covtype-strongly", "covtype-plain")
TABLE3_FILES = {problem: f"async_fl/constant-{name}.yaml" for problem, name in zip(PROBLEMS, _NAMES, strict=True)}

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
    COVTYPE: ("async_fl/increasing-covtype-strongly.yaml",),
    COVTYPE_PLAIN: ("async_fl/increasing-covtype-plain.yaml",),
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


_QUIET = ("record.updates=false", "record.epsilon=false")
_OF_FIGURE_9 = (*(PER_ROUND[first] for first in FIRST_STEPS[SUM]), *GROWING_CONSTANT_STEPS)
DECIDING = 30
"""Seeds of Figure 9 as in the listing: so many decide with a probability of 90 % what 12 did not."""


def covtype_is_there() -> bool:
    """Whether the folder of data sets has covtype in two classes."""
    root = data_root()
    return root is not None and any((root / "libsvm").glob("covtype.binary*"))


def experiments(quick: bool) -> Sequence[Experiment]:
    """Return the experiments; the quick form has the headlines and some of Table 3."""
    w8a, roles = [(W8A_STRONGLY,), (W8A_PLAIN,)], (GROWN, SIXTEEN, *SMALL_STEPS, AS_MANY)
    even, ways = ((SUM, EVEN, WITH), (SUM, EVEN, WITHOUT)), ((SUM,), (MEAN,))
    if quick:
        return [
            *_grid(CONSTANT, [(STRONGLY,)], (LISTING,), (100, 500, 1000), 6),
            *_grid(GROWING, [(STRONGLY, STEEP), (PLAIN, ROOT)], (LISTING,), (FIRST, LINEAR, *LARGE_FIXED), 6),
            *_grid(PRIVATE, w8a, (LISTING,), (GROWN, *SMALL_STEPS), 5),
        ]
    others = tuple(kind for kind, power in POWERS.items() if 0 < power < 1)
    quieter = tuple(role + SIGMAS["5.8, for the claimed ε"] for role in (SIXTEEN, *SMALL_STEPS))
    falling, constant = (
        (PAPERS_STEP, SMALL_STEP),
        {PHISHING: (*CONSTANT_STEPS, *GROWING_CONSTANT_STEPS), PHISHING_PLAIN: tuple(CONSTANT_STEPS)},
    )
    steps = ((even, SUM, 12), (EVEN_MEANS, MEAN, 6))
    rules = (PER_GRADIENT, PER_ROUND, PER_ROUND_LARGE)
    falling_from = {way: [named[first] for named in rules for first in firsts] for way, firsts in FIRST_STEPS.items()}
    covtype, of_growing = ([(COVTYPE,), (COVTYPE_PLAIN,)], [(COVTYPE, STEEP), (COVTYPE_PLAIN, ROOT)])
    if not covtype_is_there():
        covtype, of_growing = [], []
    return [
        # Single seeds of large rounds are 13 points apart. Medians need six seeds, five have no interval of 95 %.
        *_grid(CONSTANT, [(STRONGLY,), (PLAIN,)], SUMS, SIZES, 12),
        *_grid(CONSTANT, [(STRONGLY,), (PLAIN,)], EVEN_MEANS, SIZES, 6),
        *_grid(CONSTANT, [(LENET5,)], (LISTING,), SIZES, 6),
        *_grid(CONSTANT, [(LENET5,)], ((SUM, UNEVEN, WITH), PLAIN_MEAN), (100, 500, 1000), 6),
        *_grid(CONSTANT, covtype, (LISTING, PLAIN_MEAN), SIZES, 6),
        *_grid(GROWING, of_growing, (LISTING, PLAIN_MEAN), COMPARED, 6),
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
            for experiment in _grid(STEPS, [(problem,)], settings, (*falling_from[way], *constants), seeds)
            if (experiment.cell[:-1], experiment.cell[-1] in _OF_FIGURE_9) != ((PHISHING, *LISTING), True)
        ),
        *_grid(STEPS, [(PHISHING,)], (LISTING,), _OF_FIGURE_9, DECIDING),
        *_grid(PRIVATE, w8a, EQUALS, roles, 5),
        *_grid(PRIVATE, w8a, even, quieter, 5),
        *_grid(PRIVATE, w8a, (LISTING,), (NO_PRIVACY,), 5),
        *_grid(PRIVATE, [(LENET5,)], (LISTING,), (GROWN, FROM_SMALL, *SMALL_STEPS, AS_MANY), 5),
        *_grid(PRIVATE, [(LENET5,)], (PLAIN_MEAN,), (GROWN, *SMALL_STEPS), 5),
        *_grid(BIASED, [case for case in BIASED_CASES if case[0] != NETWORK], ways, BIASED_DATA, 5),
        *_grid(BIASED, [(NETWORK, TEN)], ways, BIASED_DATA, 6),
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
