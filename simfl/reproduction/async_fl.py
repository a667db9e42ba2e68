"""Asynchronous FL with growing sample sizes: rounds and accuracy of constant and growing sizes, and with privacy."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simfl.plots.groups import average
from simfl.plots.style import LINE_STYLES, PALETTE
from simfl.records.comparison import interval_of
from simfl.reproduction.drawing import labelled, log_axis, panels, with_bars
from simfl.reproduction.study import Experiment, Number, Paper, PaperClaim, Runs, Section, Verdict, judge, mean, show

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from simfl.records.sweeps import Group

CONSTANT, GROWING = Section("Table 3", ("s = {}",)), Section("Figures 3, 4 and 8")
STEPS, BIASED = Section("Figures 6 and 9", between=": "), Section("Figures 2, 10 and 11")
PRIVATE = Section("Figures 1b, 12 and 13", between=": ")
STRONGLY, PLAIN, LENET5 = "a9a, strongly convex", "a9a, plain convex", "MNIST, LeNet-5"
PROBLEMS = (STRONGLY, PLAIN, LENET5)

SIZES = (50, 100, 200, 500, 700, 1000)
TABLE3 = {
    STRONGLY: (84.18, 84.43, 83.86, 83.33, 82.98, 72.71),
    PLAIN: (84.09, 84.15, 84.17, 82.99, 83.46, 72.76),
    LENET5: (94.50, 94.70, 91.80, 87.40, 87.00, 70.80),
}
TABLE3_ROUNDS = dict(zip(SIZES, (80, 40, 20, 8, 6, 4), strict=True))
TABLE3_FILES = {
    STRONGLY: "async_fl/constant-a9a-strongly.yaml",
    PLAIN: "async_fl/constant-a9a-plain.yaml",
    LENET5: "async_fl/constant-mnist-lenet5.yaml",
}
SUM, MEAN = "sum", "mean"
WAYS = {
    SUM: (),
    MEAN: ("algorithm.aggregation=mean",),
    "sum, no client ahead": ("algorithm.gate.ahead=0",),
    "sum, a round's gradients at one model": ("algorithm.local_steps=false", "algorithm.batch_size=50"),
}

FIRST, LINEAR, OVER_LOG = "50", "50 i", "50 i/ln i"
KINDS = {
    FIRST: "{kind: polynomial, a: 50, power: 0.0}",
    "50 i^0.25": "{kind: polynomial, a: 50, power: 0.25}",
    "50 i^0.5": "{kind: polynomial, a: 50, power: 0.5}",
    "50 i^0.75": "{kind: polynomial, a: 50, power: 0.75}",
    LINEAR: "{kind: polynomial, a: 50, power: 1.0}",
    OVER_LOG: "{kind: over_log, a: 50}",
}
FIGURE3 = dict(zip(KINDS, (400, 144, 71, 42, 28, 51), strict=True))
"""Rounds that the paper counts."""

_LENET5_STEPS = "algorithm.step_size={kind: inverse_sqrt, initial: 0.01, beta: 0.01, count: examples}"
GROWING_FILES = {
    STRONGLY: ("async_fl/increasing-a9a-strongly.yaml", ("evaluate.every.epochs=0.02",)),
    PLAIN: ("async_fl/increasing-a9a-plain.yaml", ("evaluate.every.epochs=0.02",)),
    LENET5: (
        "async_fl/constant-mnist-lenet5.yaml",
        ("clients.count=4", "algorithm.sizes_of=all", _LENET5_STEPS, "evaluate.every.epochs=0.05"),
    ),
}

PER_ROUND, PER_GRADIENT = "falling by rounds, growing", "falling by gradients, growing"
_SAME = "algorithm.sizes=500"  # 20 rounds of all clients, the paper's number
CONSTANT_STEPS = {f"{eta:g}, constant": eta for eta in (0.0025, 0.01, 0.1)}
SMALL_CONSTANT_STEPS = {f"{eta:g}, growing": eta for eta in (0.005, 0.01)}
STEP_CASES = {
    PER_GRADIENT: ("algorithm.step_per=gradient",),
    PER_ROUND: (),
    "falling by rounds, growing, sum": ("algorithm.aggregation=sum",),
    **{case: (f"algorithm.step_size={eta}", _SAME) for case, eta in CONSTANT_STEPS.items()},
    **{case: (f"algorithm.step_size={eta}",) for case, eta in SMALL_CONSTANT_STEPS.items()},
}
STEP_FILES = {
    "strongly convex": "async_fl/steps-phishing-strongly.yaml",
    "plain convex": "async_fl/steps-phishing-plain.yaml",
}

GROWN, SIXTEEN, AS_MANY = "growing", "16", "constant, as many rounds as growing"
SMALL_STEPS = {"16, step 0.01": 0.01, "16, step 0.001": 0.001}
W8A_STRONGLY, W8A_PLAIN = "w8a, strongly convex", "w8a, plain convex"
PRIVATE_FILES = {
    W8A_STRONGLY: ("async_fl/dp-w8a-strongly.yaml", ()),
    W8A_PLAIN: ("async_fl/dp-w8a-plain.yaml", ()),
    # A fifth of the gradients; at the paper's first step, 0.15, nothing is learnt.
    LENET5: (
        "async_fl/dp-mnist-lenet5.yaml",
        ("algorithm.gradients=20000", "algorithm.step_size.initial=0.01", "evaluate.every.epochs=0.05"),
    ),
}
ALIKE = {W8A_STRONGLY: 137, W8A_PLAIN: 137, LENET5: 66}
"""Constant sizes of as many rounds as the growing ones."""
LARGE_STEP, NO_PRIVACY = "growing, steps from 0.15", "growing, no privacy"

DIGITS = "{set: mnist, classes: [0, 1], partition: {kind: %s}}"
_PLAIN_STEPS = ("model.l2=0", _LENET5_STEPS)
BIASED_CASES: dict[str, tuple[tuple[str, ...], str]] = {
    "MNIST 0 and 1, one digit each, strongly convex": (
        (f"data={DIGITS % 'by_label, labels_per_client: 1'}", "model={kind: logistic, l2: 7.9e-5}"),
        DIGITS % "iid",
    ),
    "MNIST, five digits each, strongly convex": ((), "{set: mnist}"),
    "MNIST, five digits each, plain convex": (_PLAIN_STEPS, "{set: mnist}"),
    "MNIST, five digits each, LeNet-5": (("model=lenet5", _LENET5_STEPS), "{set: mnist}"),
}

EQUAL = 1.0
"""Points of accuracy below which two settings count as equal."""
BETTER = 0.5
"""Points by which one setting must beat another, and in every seed."""

_QUIET = ("record.updates=false", "record.epsilon=false")


def experiments(quick: bool) -> Sequence[Experiment]:
    """Return what to run; in quick form LeNet-5 with privacy alone, and fewer seeds."""
    convex, seeds, of_network = (STRONGLY, PLAIN), 4 if quick else 6, 2
    w8a, roles = (W8A_STRONGLY, W8A_PLAIN), (GROWN, SIXTEEN, *SMALL_STEPS, AS_MANY)
    found = [
        *over_sizes((STRONGLY,), (SUM, MEAN), SIZES, seeds),
        *over_sizes((PLAIN,), (SUM,), SIZES, seeds),
        *over_sequences(convex, tuple(KINDS), seeds),
        *over_steps(tuple(STEP_CASES), seeds),
    ]
    if quick:
        return [
            *found,
            *with_privacy(w8a, (GROWN, SIXTEEN, "16, step 0.01", AS_MANY), seeds),
            *with_privacy((LENET5,), (GROWN, SIXTEEN, AS_MANY), of_network),
            *over_bias(list(BIASED_CASES)[:2], seeds),
        ]
    return [
        *found,
        *over_sizes((STRONGLY,), tuple(WAYS)[2:], SIZES, seeds),
        *over_sizes((LENET5,), (SUM, MEAN), SIZES, of_network),
        *over_sequences((LENET5,), tuple(KINDS), of_network),
        *with_privacy(w8a, (*roles, NO_PRIVACY), seeds),
        *with_privacy((LENET5,), (*roles, LARGE_STEP), 3),
        *over_bias(list(BIASED_CASES), 4),
    ]


def over_sizes(problems: Sequence[str], ways: Sequence[str], sizes: Sequence[int], seeds: int) -> Iterator[Experiment]:
    """Yield Table 3: constant sizes and step size."""
    for problem, way, size in itertools.product(problems, ways, sizes):
        changes = (f"algorithm.sizes={size}", *WAYS[way], *_QUIET)
        yield Experiment(CONSTANT, (problem, way, size), TABLE3_FILES[problem], changes, seeds)


def over_sequences(problems: Sequence[str], kinds: Sequence[str], seeds: int) -> Iterator[Experiment]:
    """Yield Figures 3, 4 and 8: sizes 50 i^c and 50 i / ln i."""
    for problem, way, kind in itertools.product(problems, (SUM, MEAN), kinds):
        base, own = GROWING_FILES[problem]
        changes = (*own, f"algorithm.sizes={KINDS[kind]}", *WAYS[way], *_QUIET)
        yield Experiment(GROWING, (problem, way, kind), base, changes, seeds)


def over_steps(cases: Sequence[str], seeds: int) -> Iterator[Experiment]:
    """Yield Figures 6 and 9: falling steps with growing sizes against constant ones."""
    for (problem, base), case in itertools.product(STEP_FILES.items(), cases):
        yield Experiment(STEPS, (problem, case), base, (*STEP_CASES[case], *_QUIET), seeds)


def with_privacy(problems: Sequence[str], roles: Sequence[str], seeds: int) -> Iterator[Experiment]:
    """Yield Figures 1b, 12 and 13: growing sizes against constant ones at sigma = 8."""
    for problem, role in itertools.product(problems, roles):
        base, own = PRIVATE_FILES[problem]
        changes = {
            GROWN: (),
            SIXTEEN: ("algorithm.sizes=16",),
            AS_MANY: (f"algorithm.sizes={ALIKE[problem]}",),
            LARGE_STEP: ("algorithm.step_size.initial=0.15",),
            NO_PRIVACY: ("privacy=null", "algorithm.sampling=poisson"),
            **{name: ("algorithm.sizes=16", f"algorithm.step_size={eta}") for name, eta in SMALL_STEPS.items()},
        }[role]
        yield Experiment(PRIVATE, (problem, role), base, (*own, *changes, *_QUIET), seeds)


def over_bias(cases: Sequence[str], seeds: int) -> Iterator[Experiment]:
    """Yield Figures 2, 10 and 11: two clients, each with its own digits, or with the same mixture."""
    for case in cases:
        changes, unbiased = BIASED_CASES[case]
        file = "async_fl/biased-mnist-strongly.yaml"
        yield Experiment(BIASED, (case, "biased"), file, (*changes, *_QUIET), seeds)
        yield Experiment(BIASED, (case, "unbiased"), file, (*changes, f"data={unbiased}", *_QUIET), seeds)


# -- numbers ---------------------------------------------------------------------------------------


def round_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the rounds of Table 3 and of Figure 3."""
    tables: dict[Section, tuple[str, Mapping[Any, int]]] = {
        CONSTANT: ("Rounds (Table 3): s of each of five clients, 20,000 gradients of all", TABLE3_ROUNDS),
        GROWING: ("Rounds (Figure 3): s_i of all clients together, 20,000 gradients", FIGURE3),
    }
    for section, (part, papers) in tables.items():
        for last, paper in papers.items():
            if runs.has(section, cell := (STRONGLY, SUM, last)):
                yield Number(part, "rounds", section.label(last), (runs.rounds(section, cell),), paper, 0)


def size_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the accuracies of Table 3."""
    part = "Table 3: constant sizes of each client, step size 0.0025"
    for problem, way in itertools.product(PROBLEMS, WAYS):
        for size, values in runs.accuracies(CONSTANT, problem, way).items():
            paper = TABLE3[problem][SIZES.index(size)] if way == SUM else None
            row, column = CONSTANT.label(problem, way), CONSTANT.label(size)
            yield Number(part, row, column, values, paper, unit="test accuracy, %")


def sequence_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the accuracies of Figures 4 and 8."""
    part = "Figures 4 and 8: growing sizes of all clients together"
    for problem, way in itertools.product(PROBLEMS, (SUM, MEAN)):
        for kind, values in runs.accuracies(GROWING, problem, way).items():
            yield Number(part, GROWING.label(problem, way), kind, values, unit="test accuracy, %")


def step_numbers(runs: Runs) -> Iterator[Number]:
    """Yield rounds and accuracies of Figures 6 and 9."""
    part = "Figures 6 and 9: step sizes and sample sizes, phishing, mean of the clients"
    for cell in runs.cells(STEPS):
        row, paper = STEPS.label(*cell), 20 if cell[1] in CONSTANT_STEPS else 9
        yield Number(part, row, "rounds", (runs.rounds(STEPS, cell),), paper, 0)
        yield Number(part, row, "test accuracy, %", runs.accuracy(STEPS, cell))


def private_numbers(runs: Runs) -> Iterator[Number]:
    """Yield what growing and constant sizes reach at the same noise, and what they cost."""
    part = f"{PRIVATE}: σ = 8, sizes of a client growing as 16 + 1.322 i, or constant"
    for problem, role in runs.cells(PRIVATE):
        cell, row = (problem, role), PRIVATE.label(problem, role)
        claimed = 1.0 if role == GROWN and problem != LENET5 else None  # the network has a fifth of the gradients
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
        for kind, values in runs.accuracies(BIASED, case).items():
            yield Number(str(BIASED), case, f"{kind}, %", values)
        yield Number(str(BIASED), case, "difference, points", difference)


def _bias(runs: Runs) -> dict[str, tuple[float, ...]]:
    """Return by how many points biased data are ahead, by case."""
    cases = [case for case in BIASED_CASES if runs.has(BIASED, (case, "biased"))]
    return {case: runs.ahead(BIASED, (case, "biased"), (case, "unbiased")) for case in cases}


def example_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the paper's examples of its parameter selection: rounds, what is claimed, and noise in all."""
    from simfl.theory.async_fl.privacy import GrowthSetting as Asked
    from simfl.theory.async_fl.selection import select_parameters

    part = "Examples 1 to 5: parameter selection, sizes N q (i + m) from s_0 = 16"
    one = 1 / math.e
    # K* is settled in one pass, K^- takes the paper three; r0 is rounded as it has it, what is None it does not print.
    examples: dict[int, tuple[Asked, int, tuple[float | None, ...]]] = {
        1: (Asked(1, 50_000, 2.0, 3.0, 100.0, 0.0110, "worked"), 1, (3.3611e-3, 4760.33, 54546, 1.970756, -1.6867)),
        2: (Asked(1, 10_000, 2.0, 5.0, 10.0, 0.0202, "worked"), 1, (8.1608e-3, 1960.59, 4951, None, None)),
        3: (Asked(1, 10_000, 1.0, 8.0, 2.5, one, "worked"), 3, (1.321633, 12.10624, 195, 5.781956, -7.2594)),
        4: (Asked(1, 25_000, 2.0, 8.0, 5.0, 0.0247, "worked"), 1, (0.0238316, 671.376, 3239, 3.11155, -4.2047)),
        5: (Asked(1, 25_000, 2.0, 8.0, 5.0, one, "worked"), 3, (1.8887431, 8.471242, 364, 6.964834, -21.0672)),
    }
    for example, (asked, passes, papers) in examples.items():
        claim = select_parameters(asked, 16, iterations=passes, whole_rounds=True).claim
        row = f"example {example}: N = {asked.num_examples:,}, ε = {asked.epsilon:g}, σ = {asked.sigma:g}"
        found = {
            "N q": (asked.num_examples * claim.q, 5),
            "m": (claim.m, 2),
            "T": (claim.rounds, 0),
            "σ over its factor": (claim.budget, 4),
            "log10 of the claimed δ": (math.log10(claim.claimed_delta), 3),
        }
        for (column, (value, digits)), paper in zip(found.items(), papers, strict=True):
            yield Number(part, row, column, (value,), paper, digits)


@functools.cache
def aggregated() -> dict[str, float]:
    """Return sqrt(T) sigma at a certified epsilon of 1, for Example 3's growing sizes and for constant ones."""
    from collections import Counter

    from simfl.privacy.accounting import Accountant, Release
    from simfl.privacy.accounting import epsilon_of as spent
    from simfl.privacy.calibration import least_noise, noise_multiplier_for

    delta, examples, gradients = 5.5e-8, 10_000, 25_000
    sizes: list[int] = []
    while sum(sizes) < gradients:
        sizes.append(16 + math.ceil(1.322 * len(sizes)))
    counts = sorted(Counter(sizes).items())

    def growing(sigma: float, accountant: Accountant) -> float:
        releases = [(Release(sigma, size / examples), rounds) for size, rounds in counts]
        return spent(releases, delta, accountant=accountant)

    found = {GROWN: least_noise(growing, 1.0, "renyi") * math.sqrt(len(sizes))}
    for name, size in ((SIXTEEN, 16), (AS_MANY, 137)):
        rounds = math.ceil(gradients / size)
        sigma = noise_multiplier_for(
            1.0, delta, steps=rounds, sampling_rate=size / examples, accountant="renyi"
        )  # fmt: skip
        found[name] = sigma * math.sqrt(rounds)
    return found


# -- claims ----------------------------------------------------------------------------------------


def _sequences(runs: Runs) -> list[tuple[str, str]]:
    """Return problem and way of every sequence that was run from constant to linear sizes."""
    pairs = itertools.product(PROBLEMS, (SUM, MEAN))
    return [pair for pair in pairs if runs.has(GROWING, (*pair, FIRST), (*pair, LINEAR))]


def fewer_rounds(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether growing sizes are as accurate as constant ones in a fraction of the rounds."""
    held, said, fell = [], [], set()
    for problem, way in _sequences(runs):
        first, linear = (problem, way, FIRST), (problem, way, LINEAR)
        found = runs.ahead(GROWING, linear, first)
        few, many = (runs.rounds(GROWING, cell) for cell in (linear, first))
        held.append(mean(found) >= -EQUAL and 10 * few <= many)
        said.append(f"{problem}, {way}: {show(found, 1, True)}")
        if not held[-1]:
            fell.add(way)
    verdict = judge(*held)
    why = ". The sum over like clients overshoots in the last, large rounds; their mean does not"
    return verdict, (
        f"{few} rounds instead of {many}; accuracy with sizes 50 i minus that with 50, in points: {'; '.join(said)} "
        f"(bars: a tenth of the rounds, at most {EQUAL:g} point less){why if fell == {SUM} else ''}"
    )


def counts_of_rounds(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether the sequences need as many rounds as the paper counts."""
    found = {cell[2]: runs.rounds(GROWING, cell) for cell in runs.cells(GROWING, STRONGLY, SUM)}
    said = ", ".join(f"{kind}: {count} ({FIGURE3[kind]})" for kind, count in found.items())
    return judge(*(count == FIGURE3[kind] for kind, count in found.items())), f"ours (the paper's): {said}"


def over_log(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether sizes of order i/ln i keep the accuracy."""
    held, said = [], []
    for problem, way in _sequences(runs):
        found = runs.ahead(GROWING, (problem, way, OVER_LOG), (problem, way, FIRST))
        held.append(mean(found) >= -EQUAL)
        said.append(f"{problem}, {way}: {show(found, 1, True)}")
    count = runs.rounds(GROWING, (STRONGLY, SUM, OVER_LOG))
    return judge(*held), f"{count} rounds; points ahead of 50: {'; '.join(said)} (bar: {EQUAL:g} point less)"


def better_with_privacy(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether growing sizes are more accurate than a constant 16 at the same noise, whatever its steps."""
    held, said, alike, more = [], [], [], []
    costs: dict[str, list[str]] = {}
    against = {SIXTEEN: "same steps", **{role: f"step {eta:g}" for role, eta in SMALL_STEPS.items()}}
    for problem in PRIVATE_FILES:
        cells = [(problem, role) for role in (GROWN, SIXTEEN, AS_MANY)]
        if not runs.has(PRIVATE, *cells):
            continue
        told = []
        for role, what in against.items():
            if runs.has(PRIVATE, (problem, role)):
                found = runs.ahead(PRIVATE, cells[0], (problem, role))
                held.append(mean(found) >= BETTER and min(found) > 0)
                told.append(f"{show(found, 1, True)} ({what})")
        said.append(f"{problem}: {', '.join(told)}")
        found = runs.ahead(PRIVATE, cells[0], cells[2])
        more.append(interval_of(found).low > 0)
        alike.append(f"{problem} {show(found, 1, True)}")
        cost = ", ".join(f"{mean(runs.epsilon(PRIVATE, cell)):.3f}" for cell in cells)
        costs.setdefault(cost, []).append(problem)
    verdict = judge(*held)
    spent = "; ".join(f"{cost} ({' and '.join(problems)})" for cost, problems in costs.items())
    return verdict, (
        f"points ahead of a constant 16 at σ = 8: {'; '.join(said)} (bar: {BETTER:g} points, and in every seed). Ahead "
        f"of a constant size with as many rounds: {', '.join(alike)}"
        f"{'' if any(more) else ': fewer rounds help, growing does not'}. Certified ε of growing, 16, as many rounds: "
        f"{spent}; the paper claims 1 for the growing sizes"
    )


def certified(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether an accountant certifies the epsilon that the paper claims."""
    cells = [(problem, GROWN) for problem in (W8A_STRONGLY, W8A_PLAIN)]
    found = {cell[0]: mean(runs.epsilon(PRIVATE, cell)) for cell in cells if runs.has(PRIVATE, cell)}
    said = ", ".join(f"{problem}: {epsilon:.3f}" for problem, epsilon in found.items())
    return judge(*(epsilon <= 1 for epsilon in found.values())), (
        f"certified ε of the growing sizes, where the paper claims 1: {said}"
    )


def less_noise(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether growing sizes aggregate less noise than a constant 16 of the same certified epsilon."""
    del runs
    found = aggregated()
    fewer = ": fewer rounds help, growing does not" if found[AS_MANY] <= found[GROWN] else ""
    return judge(found[GROWN] < found[SIXTEEN]), (
        f"√T σ at a certified (1, 5.5e-8): {found[GROWN]:.1f} growing, {found[SIXTEEN]:.1f} with a constant 16 (the "
        f"paper, by its theorem: 112 and 229), {found[AS_MANY]:.1f} with a constant 137 and as many rounds{fewer}"
    )


def _table3(runs: Runs) -> dict[str, dict[int, float]]:
    """Return the rows of Table 3 with their accuracies by size, as far as they were run."""
    found = {problem: runs.accuracies(CONSTANT, problem, SUM) for problem in PROBLEMS}
    return {problem: {size: mean(own) for size, own in row.items()} for problem, row in found.items() if row}


def best_sizes(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether the best constant sizes are 50 to 200."""
    held, said = [], []
    for problem, found in _table3(runs).items():
        largest = max(value for size, value in found.items() if size > 200)
        held += [value > largest for size, value in found.items() if size <= 200]
        said.append(f"{problem}: {', '.join(f'{value:.1f} % at {size}' for size, value in found.items())}")
    return judge(*held), f"{'; '.join(said)} (bar: each of 50, 100, 200 above every larger one)"


def collapse(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether the largest size loses much accuracy."""
    held, said, with_mean = [], [], []
    for problem, found in _table3(runs).items():
        best = max(found.values())
        held.append(not found[1000] > best - 5)  # a run that diverged has collapsed, too
        paper = max(TABLE3[problem]) - TABLE3[problem][-1]
        said.append(f"{problem} {best - found[1000]:.1f} ({paper:.1f})")
        if own := runs.accuracies(CONSTANT, problem, MEAN):
            with_mean.append(f"{mean(own[50]) - mean(own[1000]):.1f} on {problem}")
    more = f"; with the mean of the clients instead of their sum {', '.join(with_mean)}" if with_mean else ""
    return judge(*held), f"points lost at s = 1000 (in the paper): {', '.join(said)} (bar: 5 points){more}"


def falling_steps(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether falling steps with growing sizes beat constant steps with constant sizes."""
    held, said = [], []
    for problem in STEP_FILES:
        constant = {case: mean(runs.accuracy(STEPS, (problem, case))) for case in CONSTANT_STEPS if runs.has(
            STEPS, (problem, case))}  # fmt: skip
        if not constant:
            continue
        best, grown, told = max(constant, key=constant.__getitem__), (problem, PER_ROUND), []
        for case in constant:
            found = runs.ahead(STEPS, grown, (problem, case))
            held.append(mean(found) >= (-EQUAL if case == best else EQUAL))
            told.append(f"{show(found, 1, True)} to {CONSTANT_STEPS[case]:g}")
        few, many = runs.rounds(STEPS, grown), runs.rounds(STEPS, (problem, best))
        said.append(f"{problem}: {', '.join(told)}")
    return judge(*held), (
        f"{few} rounds instead of {many}; points ahead of constant steps: {'; '.join(said)} (bars: {EQUAL:g} point "
        f"ahead of all but the best, at most {EQUAL:g} behind the best)"
    )


def steps_alike(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether steps that fall by gradients and by rounds are alike."""
    found = {problem: runs.ahead(STEPS, (problem, PER_ROUND), (problem, PER_GRADIENT)) for problem in STEP_FILES}
    said = ", ".join(f"{problem}: {show(values, 1, True)}" for problem, values in found.items())
    return judge(*(abs(mean(values)) <= EQUAL for values in found.values())), (
        f"by rounds minus by gradients, in points: {said} (bar: {EQUAL:g} point)"
    )


def small_constant_steps(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether constant steps with growing sizes are worse than falling ones."""
    held, said = [], []
    for problem, (case, eta) in itertools.product(STEP_FILES, SMALL_CONSTANT_STEPS.items()):
        found = runs.ahead(STEPS, (problem, PER_ROUND), (problem, case))
        held.append(mean(found) >= EQUAL)
        said.append(f"{problem}, {eta:g}: {show(found, 1, True)}")
    return judge(*held), f"points that falling steps are ahead of constant ones: {'; '.join(said)} (bar: {EQUAL:g})"


def insensitive(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether biased data make no difference."""
    found = _bias(runs)
    said = "; ".join(f"{case}: {show(values, 1, True)}" for case, values in found.items())
    better = any(mean(values) > 2 * EQUAL for values in found.values())
    why = ". Where biased data are ahead, the sum over two clients with like data overshoots" if better else ""
    return judge(*(abs(mean(values)) <= 2 * EQUAL for values in found.values())), (
        f"biased minus unbiased, in points: {said} (bar: {2 * EQUAL:g} points either way){why}"
    )


# -- figures ---------------------------------------------------------------------------------------


def draw_curves(axis: Axes, groups: Iterable[Group], column: str, from_first: bool = False) -> None:
    """Draw the mean accuracy of groups, a colour and a style of line each, with bands; below four runs with the runs.

    Args:
        axis: where.
        groups: in the order of their colours.
        column: of the metrics, along the axis.
        from_first: leave out what is before the first evaluation after the start, for a logarithmic axis.
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
    """Draw accuracy over rounds, a panel for every problem and way of adding up."""
    drawn = _sequences(runs)
    problems = [problem for problem in PROBLEMS if (problem, SUM) in drawn]
    kinds = [kind for kind in (FIRST, "50 i^0.5", LINEAR, OVER_LOG) if runs.has(GROWING, (STRONGLY, SUM, kind))]
    figure, axes = panels(2, len(problems), (3.5 * len(problems) + 0.6, 5.6), sharex=True, sharey="col")
    for (row, way), (column, problem) in itertools.product(enumerate((SUM, MEAN)), enumerate(problems)):
        axis = axes[row][column]
        draw_curves(axis, [runs.group(GROWING, (problem, way, kind), kind) for kind in kinds], "rounds", True)
        axis.set(xscale="log", title=GROWING.label(problem, way), xlim=(4, 480))
        log_axis(axis, (5, 10, 28, 51, 100, 400))
        ends = [mean(runs.accuracy(GROWING, (problem, *own))) for own in itertools.product((SUM, MEAN), kinds)]
        if not any(math.isnan(end) for end in ends):  # where the curves end is worth seeing, not where they begin
            axis.set_ylim(min(ends) - 8, max(ends) + 4)
    return labelled(figure, axes, "rounds", columns=len(kinds), title="sample sizes $s_i$")


def draw_sizes(runs: Runs) -> Figure:
    """Draw accuracy over constant sizes beside the paper's."""
    problems = list(_table3(runs))
    figure, axes = panels(1, len(problems), (3.5 * len(problems) + 0.6, 3.6))
    for axis, problem in zip(axes.flat, problems, strict=True):
        axis.plot(SIZES, TABLE3[problem], color="#555555", ls=":", marker="x", label="paper")
        for way, color, line in zip((SUM, MEAN), PALETTE, ("-", "--"), strict=False):
            if found := runs.accuracies(CONSTANT, problem, way):
                with_bars(axis, list(found), list(found.values()), color=color, ls=line, label=f"ours, {way}")
        axis.set_title(problem)
        log_axis(axis, SIZES)
    return labelled(figure, axes, "sample size of a client", columns=3)


def draw_privacy(runs: Runs) -> Figure:
    """Draw accuracy over epochs at the same noise, growing sizes against constant ones."""
    problems = [problem for problem in PRIVATE_FILES if runs.has(PRIVATE, (problem, GROWN))]
    figure, axes = panels(1, len(problems), (3.5 * len(problems) + 0.6, 3.8))
    labels = {
        GROWN: "growing: 16 + 1.322 i",
        AS_MANY: AS_MANY,
        SIXTEEN: "constant 16",
        "16, step 0.01": "constant 16, step 0.01",
    }
    for axis, problem in zip(axes.flat, problems, strict=True):
        there = {role: label for role, label in labels.items() if runs.has(PRIVATE, (problem, role))}
        draw_curves(axis, [runs.group(PRIVATE, (problem, role), label) for role, label in there.items()], "epochs")
        axis.set(title=problem, ylim=(0, 70) if problem == LENET5 else (94.5, 98))
    return labelled(figure, axes, "epochs", columns=2)


PAPER = Paper(
    name="async_fl",
    title="Van Dijk, Nguyen, Nguyen, Nguyen, Tran-Dinh, Nguyen: Asynchronous Federated Learning with Reduced Number of "
    "Rounds and with Differential Privacy from Less Aggregated Gaussian Noise",
    page="async_fl.md",
    data=("a9a", "w8a", "phishing", "mnist"),
    minutes=(3, 17),
    experiments=experiments,
    numbers=(
        round_numbers, size_numbers, sequence_numbers, step_numbers, private_numbers, biased_numbers, example_numbers,
    ),
    claims=(
        PaperClaim("Growing sample sizes need a fraction of the rounds of constant ones for the same accuracy (Figures "
                   "3, 4 and 8).", fewer_rounds, True, "rounds"),
        PaperClaim("With differential privacy growing sample sizes are more accurate than constant ones at the same "
                   "noise (Figures 1b, 12 and 13).", better_with_privacy, True, "privacy"),
        PaperClaim("The growing sizes of Example 3 are (1, 5.5e-8)-differentially private at σ = 8.", certified),
        PaperClaim("Growing sizes aggregate less noise over all rounds than constant ones of the same privacy.",
                   less_noise),
        PaperClaim("20,000 gradients in sizes 50 i^c are 400, 144, 71, 42 and 28 rounds, in sizes 50 i/ln i 51 (Figure "
                   "3).", counts_of_rounds),
        PaperClaim("Sizes of order i/ln i keep the accuracy (Figures 4 and 8).", over_log, figure="rounds"),
        PaperClaim("The best constant sizes are 50 to 200 (Table 3).", best_sizes, figure="sizes"),
        PaperClaim("At s = 1000 accuracy collapses (Table 3).", collapse, figure="sizes"),
        PaperClaim("Falling steps with growing sizes are at least as accurate as constant ones of both, in 9 rounds "
                   "instead of 20 (Figures 1a and 6).", falling_steps),
        PaperClaim("Steps that fall by gradients and by rounds are alike (Figure 6).", steps_alike),
        PaperClaim("With growing sizes constant steps are worse than falling ones (Figure 9).", small_constant_steps),
        PaperClaim("Biased data make no difference (Figures 2, 10 and 11).", insensitive),
    ),
    figures={
        "rounds": ("accuracy over rounds for constant and growing sizes, 20,000 gradients each", draw_rounds),
        "privacy": ("accuracy over epochs at σ = 8, growing sizes against constant ones", draw_privacy),
        "sizes": ("accuracy over constant sizes, step size 0.0025, 20,000 gradients", draw_sizes),
    },
    untested=(
        ("Table 3 and Figure 5 on covtype, Figures 6 and 7 on ijcnn1.", "the data sets were not at hand"),
    ),
    deviations=(
        "Sum: the server takes every update whole, as the paper's listing has it. Mean: it takes it times p_c.",
        "Without privacy clients move their model after every gradient, as Algorithm 1 has it; with privacy a round's "
        "gradients are taken at one model, because the listing with noise has no proof.",
        "phishing has 8,404 of its 11,055 examples; w8a's five clients have 9,452 examples each instead of 10,000.",
        "97 % of w8a's examples are of one class, which a model that never moves far enough answers throughout.",
        "LeNet-5 with privacy takes a fifth of the paper's gradients, and steps from 0.01: from the paper's 0.15 it "
        "learns nothing. A constant size with as many rounds is 137 on w8a and 66 on MNIST.",
        "In Example 4 the paper takes the square root of 1 - r0/σ with Example 2's σ = 5.",
        "The paper gives no first step for LeNet-5 with growing sizes; it is 0.01 here, as on a9a.",
    ),
)  # fmt: skip
