"""Asynchronous FL with growing sample sizes: rounds and accuracy of constant and growing sizes, and with privacy."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from simfl.records import Run
from simfl.records.comparison import interval_of
from simfl.reproduction.study import Claim, Number, Paper, Runs, Setting, Verdict, judge, mean, show

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from simfl.records.sweeps import Group

CONSTANT, GROWING, STEPS = "Table 3", "Figures 3, 4 and 8", "Figures 6 and 9"
PRIVATE, BIASED = "Figures 1b, 12 and 13", "Figures 2, 10 and 11"
STRONGLY, PLAIN, LENET5 = "strongly convex", "plain convex", "LeNet-5"
DATA = {STRONGLY: "a9a, strongly convex", PLAIN: "a9a, plain convex", LENET5: "MNIST, LeNet-5"}

SIZES = (50, 100, 200, 500, 700, 1000)
TABLE3 = {
    STRONGLY: (84.18, 84.43, 83.86, 83.33, 82.98, 72.71),
    PLAIN: (84.09, 84.15, 84.17, 82.99, 83.46, 72.76),
    LENET5: (94.50, 94.70, 91.80, 87.40, 87.00, 70.80),
}
TABLE3_ROUNDS = (80, 40, 20, 8, 6, 4)
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
STEP_CASES = {
    PER_GRADIENT: ("algorithm.step_per=gradient",),
    PER_ROUND: (),
    "falling by rounds, growing, sum": ("algorithm.aggregation=sum",),
    **{f"{eta:g}, constant": (f"algorithm.step_size={eta}", _SAME) for eta in (0.0025, 0.01, 0.1)},
    **{f"{eta:g}, growing": (f"algorithm.step_size={eta}",) for eta in (0.005, 0.01)},
}
STEP_FILES = {
    STRONGLY: "async_fl/steps-phishing-strongly.yaml",
    PLAIN: "async_fl/steps-phishing-plain.yaml",
}

GROWN, SIXTEEN, AS_MANY = "growing", "16", "constant, as many rounds as growing"
SMALL_STEPS = {"16, step 0.01": 0.01, "16, step 0.001": 0.001}
W8A_STRONGLY, W8A_PLAIN, MNIST = "w8a, strongly convex", "w8a, plain convex", "MNIST, LeNet-5"
PRIVATE_FILES = {
    W8A_STRONGLY: ("async_fl/dp-w8a-strongly.yaml", ()),
    W8A_PLAIN: ("async_fl/dp-w8a-plain.yaml", ()),
    # A fifth of the gradients; at the paper's first step, 0.15, nothing is learnt.
    MNIST: (
        "async_fl/dp-mnist-lenet5.yaml",
        ("algorithm.gradients=20000", "algorithm.step_size.initial=0.01", "evaluate.every.epochs=0.05"),
    ),
}
ALIKE = {W8A_STRONGLY: 137, W8A_PLAIN: 137, MNIST: 66}
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


def settings(quick: bool) -> Sequence[Setting]:
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
            *with_privacy((MNIST,), (GROWN, SIXTEEN, AS_MANY), of_network),
            *over_bias(list(BIASED_CASES)[:2], seeds),
        ]
    return [
        *found,
        *over_sizes((STRONGLY,), tuple(WAYS)[2:], SIZES, seeds),
        *over_sizes((LENET5,), (SUM, MEAN), SIZES, of_network),
        *over_sequences((LENET5,), tuple(KINDS), of_network),
        *with_privacy(w8a, (*roles, NO_PRIVACY), seeds),
        *with_privacy((MNIST,), (*roles, LARGE_STEP), 3),
        *over_bias(list(BIASED_CASES), 4),
    ]


def over_sizes(problems: Sequence[str], ways: Sequence[str], sizes: Sequence[int], seeds: int) -> Iterator[Setting]:
    """Yield Table 3: constant sizes and step size."""
    for problem, way, size in itertools.product(problems, ways, sizes):
        changes = (f"algorithm.sizes={size}", *WAYS[way], *_QUIET)
        yield Setting(CONSTANT, f"{DATA[problem]}, {way}, s = {size}", TABLE3_FILES[problem], changes, seeds)


def over_sequences(problems: Sequence[str], kinds: Sequence[str], seeds: int) -> Iterator[Setting]:
    """Yield Figures 3, 4 and 8: sizes 50 i^c and 50 i / ln i."""
    for problem, way, kind in itertools.product(problems, (SUM, MEAN), kinds):
        base, own = GROWING_FILES[problem]
        changes = (*own, f"algorithm.sizes={KINDS[kind]}", *WAYS[way], *_QUIET)
        yield Setting(GROWING, f"{DATA[problem]}, {way}, {kind}", base, changes, seeds)


def over_steps(cases: Sequence[str], seeds: int) -> Iterator[Setting]:
    """Yield Figures 6 and 9: falling steps with growing sizes against constant ones."""
    for (problem, base), case in itertools.product(STEP_FILES.items(), cases):
        yield Setting(STEPS, f"{problem}: {case}", base, (*STEP_CASES[case], *_QUIET), seeds)


def with_privacy(problems: Sequence[str], roles: Sequence[str], seeds: int) -> Iterator[Setting]:
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
        yield Setting(PRIVATE, f"{problem}: {role}", base, (*own, *changes, *_QUIET), seeds)


def over_bias(cases: Sequence[str], seeds: int) -> Iterator[Setting]:
    """Yield Figures 2, 10 and 11: two clients, each with its own digits, or with the same mixture."""
    for case in cases:
        changes, unbiased = BIASED_CASES[case]
        file = "async_fl/biased-mnist-strongly.yaml"
        yield Setting(BIASED, f"{case}, biased", file, (*changes, *_QUIET), seeds)
        yield Setting(BIASED, f"{case}, unbiased", file, (*changes, f"data={unbiased}", *_QUIET), seeds)


# -- measures --------------------------------------------------------------------------------------


def accuracy(run: Run) -> float:
    """Return the last test accuracy in percent, NaN of a run that diverged."""
    return math.nan if run.status == "diverged" else 100 * float(run.metrics["test_accuracy"].iloc[-1])


def ahead(runs: Runs, part: str, one: str, other: str) -> tuple[float, ...]:
    """Return by how many points the first setting is more accurate, by pairs of one seed."""
    return runs.pairs((part, one), (part, other), lambda a, b: accuracy(a) - accuracy(b))


def rounds_of(runs: Runs, part: str, name: str) -> int:
    """Return how many rounds were complete, which is the same for every seed."""
    return int(runs.first(part, name).metrics["rounds"].iloc[-1])


def epsilon_of(runs: Runs, name: str) -> tuple[float, ...]:
    """Return the certified epsilons of a setting with privacy."""
    return runs.each(PRIVATE, name, lambda run: run.epsilon_and_delta()[0])


# -- numbers ---------------------------------------------------------------------------------------


def round_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the rounds of Table 3 and of Figure 3."""
    for size, paper in zip(SIZES, TABLE3_ROUNDS, strict=True):
        name = f"{DATA[STRONGLY]}, {SUM}, s = {size}"
        if runs.has(CONSTANT, name):
            part = "Rounds (Table 3): s of each of five clients, 20,000 gradients of all"
            yield Number(part, "rounds", f"s = {size}", (rounds_of(runs, CONSTANT, name),), paper, 0)
    for kind, paper in FIGURE3.items():
        name = f"{DATA[STRONGLY]}, {SUM}, {kind}"
        if runs.has(GROWING, name):
            part = "Rounds (Figure 3): s_i of all clients together, 20,000 gradients"
            yield Number(part, "rounds", kind, (rounds_of(runs, GROWING, name),), paper, 0)


def size_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the accuracies of Table 3."""
    part = "Table 3: constant sizes of each client, step size 0.0025"
    for problem, way, (position, size) in itertools.product(DATA, WAYS, enumerate(SIZES)):
        name = f"{DATA[problem]}, {way}, s = {size}"
        if runs.has(CONSTANT, name):
            paper = TABLE3[problem][position] if way == SUM else None
            yield Number(part, f"{DATA[problem]}, {way}", f"s = {size}", runs.accuracy(CONSTANT, name), paper,
                         unit="test accuracy, %")  # fmt: skip


def sequence_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the accuracies of Figures 4 and 8."""
    part = "Figures 4 and 8: growing sizes of all clients together"
    for problem, way, kind in itertools.product(DATA, (SUM, MEAN), KINDS):
        name = f"{DATA[problem]}, {way}, {kind}"
        if runs.has(GROWING, name):
            yield Number(part, f"{DATA[problem]}, {way}", kind, runs.accuracy(GROWING, name), unit="test accuracy, %")


def step_numbers(runs: Runs) -> Iterator[Number]:
    """Yield rounds and accuracies of Figures 6 and 9."""
    part = "Figures 6 and 9: step sizes and sample sizes, phishing, mean of the clients"
    for name in runs.names(STEPS):
        paper = 20 if name.endswith(", constant") else 9
        yield Number(part, name, "rounds", (rounds_of(runs, STEPS, name),), paper, 0)
        yield Number(part, name, "test accuracy, %", runs.accuracy(STEPS, name))


def private_numbers(runs: Runs) -> Iterator[Number]:
    """Yield what growing and constant sizes reach at the same noise, and what they cost."""
    part = f"{PRIVATE}: σ = 8, sizes of a client growing as 16 + 1.322 i, or constant"
    for name in runs.names(PRIVATE):
        problem, role = name.split(": ")
        claimed = 1.0 if role == GROWN and problem != MNIST else None  # the network has a fifth of the gradients
        yield Number(part, name, "rounds", (rounds_of(runs, PRIVATE, name),), digits=0)
        yield Number(part, name, "test accuracy, %", runs.accuracy(PRIVATE, name))
        loss = runs.each(PRIVATE, name, lambda run: float(run.metrics["test_loss"].iloc[-1]))
        yield Number(part, name, "test loss", loss, digits=4)
        if runs.first(PRIVATE, name).privacy is not None:
            column = "certified ε at δ = 5.5e-8 (the paper's claim)"
            yield Number(part, name, column, epsilon_of(runs, name), claimed, digits=4)


def biased_numbers(runs: Runs) -> Iterator[Number]:
    """Yield accuracies with biased and unbiased data."""
    for case in _cases(runs):
        for kind in ("biased", "unbiased"):
            yield Number(BIASED, case, f"{kind}, %", runs.accuracy(BIASED, f"{case}, {kind}"))
        yield Number(BIASED, case, "difference, points", ahead(runs, BIASED, f"{case}, biased", f"{case}, unbiased"))


def _cases(runs: Runs) -> list[str]:
    return [case for case in BIASED_CASES if runs.has(BIASED, f"{case}, biased")]


def example_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the paper's examples of its parameter selection: rounds, what is claimed, and noise in all."""
    from simfl.theory.async_fl.privacy import Setting as Asked
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
    pairs = itertools.product(DATA, (SUM, MEAN))
    return [
        (problem, way)
        for problem, way in pairs
        if all(runs.has(GROWING, f"{DATA[problem]}, {way}, {kind}") for kind in (FIRST, LINEAR))
    ]


def fewer_rounds(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether growing sizes are as accurate as constant ones in a fraction of the rounds."""
    held, said, fell = [], [], set()
    for problem, way in _sequences(runs):
        first, linear = (f"{DATA[problem]}, {way}, {kind}" for kind in (FIRST, LINEAR))
        found = ahead(runs, GROWING, linear, first)
        few, many = (rounds_of(runs, GROWING, name) for name in (linear, first))
        held.append(mean(found) >= -EQUAL and 10 * few <= many)
        said.append(f"{DATA[problem]}, {way}: {show(found, 1, True)}")
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
    found = {
        kind: rounds_of(runs, GROWING, f"{DATA[STRONGLY]}, {SUM}, {kind}")
        for kind in KINDS
        if runs.has(GROWING, f"{DATA[STRONGLY]}, {SUM}, {kind}")
    }
    said = ", ".join(f"{kind}: {count} ({FIGURE3[kind]})" for kind, count in found.items())
    return judge(*(count == FIGURE3[kind] for kind, count in found.items())), f"ours (the paper's): {said}"


def over_log(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether sizes of order i/ln i keep the accuracy."""
    held, said = [], []
    for problem, way in _sequences(runs):
        found = ahead(runs, GROWING, f"{DATA[problem]}, {way}, {OVER_LOG}", f"{DATA[problem]}, {way}, {FIRST}")
        held.append(mean(found) >= -EQUAL)
        said.append(f"{DATA[problem]}, {way}: {show(found, 1, True)}")
    count = rounds_of(runs, GROWING, f"{DATA[STRONGLY]}, {SUM}, {OVER_LOG}")
    return judge(*held), f"{count} rounds; points ahead of 50: {'; '.join(said)} (bar: {EQUAL:g} point less)"


def better_with_privacy(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether growing sizes are more accurate than a constant 16 at the same noise, whatever its steps."""
    held, said, alike, more = [], [], [], []
    costs: dict[str, list[str]] = {}
    for problem in PRIVATE_FILES:
        names = [f"{problem}: {role}" for role in (GROWN, SIXTEEN, AS_MANY)]
        if not all(runs.has(PRIVATE, name) for name in names):
            continue
        against = {
            "same steps": names[1],
            **{f"step {eta:g}": f"{problem}: {role}" for role, eta in SMALL_STEPS.items()},
        }
        told = []
        for what, name in against.items():
            if runs.has(PRIVATE, name):
                found = ahead(runs, PRIVATE, names[0], name)
                held.append(mean(found) >= BETTER and min(found) > 0)
                told.append(f"{show(found, 1, True)} ({what})")
        said.append(f"{problem}: {', '.join(told)}")
        found = ahead(runs, PRIVATE, names[0], names[2])
        more.append(interval_of(found).low > 0)
        alike.append(f"{problem} {show(found, 1, True)}")
        cost = ", ".join(f"{mean(epsilon_of(runs, name)):.3f}" for name in names)
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
    held, said = [], []
    for problem in (W8A_STRONGLY, W8A_PLAIN):
        if runs.has(PRIVATE, f"{problem}: {GROWN}"):
            found = mean(epsilon_of(runs, f"{problem}: {GROWN}"))
            held.append(found <= 1)
            said.append(f"{problem}: {found:.3f}")
    return judge(*held), f"certified ε of the growing sizes, where the paper claims 1: {', '.join(said)}"


def less_noise(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether growing sizes aggregate less noise than a constant 16 of the same certified epsilon."""
    del runs
    found = aggregated()
    fewer = ": fewer rounds help, growing does not" if found[AS_MANY] <= found[GROWN] else ""
    return judge(found[GROWN] < found[SIXTEEN]), (
        f"√T σ at a certified (1, 5.5e-8): {found[GROWN]:.1f} growing, {found[SIXTEEN]:.1f} with a constant 16 (the "
        f"paper, by its theorem: 112 and 229), {found[AS_MANY]:.1f} with a constant 137 and as many rounds{fewer}"
    )


def _table3(runs: Runs) -> Iterator[tuple[str, dict[int, float]]]:
    """Yield the rows of Table 3 with their accuracies by size, as far as they were run."""
    for problem in DATA:
        names = {size: f"{DATA[problem]}, {SUM}, s = {size}" for size in SIZES}
        found = {size: mean(runs.accuracy(CONSTANT, name)) for size, name in names.items() if runs.has(CONSTANT, name)}
        if found:
            yield problem, found


def _listed(found: dict[int, float]) -> str:
    return ", ".join(f"{value:.1f} % at {size}" for size, value in found.items())


def best_sizes(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether the best constant sizes are 50 to 200."""
    held, said = [], []
    for problem, found in _table3(runs):
        small = [value for size, value in found.items() if size <= 200]
        large = [value for size, value in found.items() if size > 200]
        held += [value > max(large) for value in small]
        said.append(f"{DATA[problem]}: {_listed(found)}")
    return judge(*held), f"{'; '.join(said)} (bar: each of 50, 100, 200 above every larger one)"


def collapse(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether the largest size loses much accuracy."""
    held, said, with_mean = [], [], []
    for problem, found in _table3(runs):
        best = max(found.values())
        held.append(not found[1000] > best - 5)  # a run that diverged has collapsed, too
        paper = max(TABLE3[problem]) - TABLE3[problem][-1]
        said.append(f"{DATA[problem]} {best - found[1000]:.1f} ({paper:.1f})")
        name = f"{DATA[problem]}, {MEAN}, s = 1000"
        if runs.has(CONSTANT, name):
            lost = mean(runs.accuracy(CONSTANT, f"{DATA[problem]}, {MEAN}, s = 50")) - mean(
                runs.accuracy(CONSTANT, name)
            )
            with_mean.append(f"{lost:.1f} on {DATA[problem]}")
    more = f"; with the mean of the clients instead of their sum {', '.join(with_mean)}" if with_mean else ""
    return judge(*held), f"points lost at s = 1000 (in the paper): {', '.join(said)} (bar: 5 points){more}"


def falling_steps(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether falling steps with growing sizes beat constant steps with constant sizes."""
    held, said = [], []
    for problem in STEP_FILES:
        names = [name for name in runs.names(STEPS) if name.startswith(problem) and name.endswith(", constant")]
        best = max(names, key=lambda name: mean(runs.accuracy(STEPS, name)), default="")
        if not best:
            continue
        grown = f"{problem}: {PER_ROUND}"
        told = []
        for name in names:
            found = ahead(runs, STEPS, grown, name)
            held.append(mean(found) >= (-EQUAL if name == best else EQUAL))
            told.append(f"{show(found, 1, True)} to {name.split(': ')[1].removesuffix(', constant')}")
        few, many = rounds_of(runs, STEPS, grown), rounds_of(runs, STEPS, best)
        said.append(f"{problem}: {', '.join(told)}")
    return judge(*held), (
        f"{few} rounds instead of {many}; points ahead of constant steps: {'; '.join(said)} (bars: {EQUAL:g} point "
        f"ahead of all but the best, at most {EQUAL:g} behind the best)"
    )


def steps_alike(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether steps that fall by gradients and by rounds are alike."""
    found = {p: ahead(runs, STEPS, f"{p}: {PER_ROUND}", f"{p}: {PER_GRADIENT}") for p in STEP_FILES}
    said = ", ".join(f"{problem}: {show(values, 1, True)}" for problem, values in found.items())
    return judge(*(abs(mean(values)) <= EQUAL for values in found.values())), (
        f"by rounds minus by gradients, in points: {said} (bar: {EQUAL:g} point)"
    )


def small_constant_steps(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether constant steps with growing sizes are worse than falling ones."""
    held, said = [], []
    for problem, eta in itertools.product(STEP_FILES, (0.005, 0.01)):
        found = ahead(runs, STEPS, f"{problem}: {PER_ROUND}", f"{problem}: {eta:g}, growing")
        held.append(mean(found) >= EQUAL)
        said.append(f"{problem}, {eta:g}: {show(found, 1, True)}")
    return judge(*held), f"points that falling steps are ahead of constant ones: {'; '.join(said)} (bar: {EQUAL:g})"


def insensitive(runs: Runs) -> tuple[Verdict, str]:
    """Judge whether biased data make no difference."""
    found = {case: ahead(runs, BIASED, f"{case}, biased", f"{case}, unbiased") for case in _cases(runs)}
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
    from simfl.plots.groups import average
    from simfl.plots.style import LINE_STYLES, PALETTE

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
    from matplotlib import pyplot as plt

    drawn = _sequences(runs)
    problems = [problem for problem in DATA if (problem, SUM) in drawn]
    kinds = [kind for kind in (FIRST, "50 i^0.5", LINEAR, OVER_LOG) if runs.has(
        GROWING, f"{DATA[STRONGLY]}, {SUM}, {kind}")]  # fmt: skip
    figure, axes = plt.subplots(
        2, len(problems), figsize=(3.5 * len(problems) + 0.6, 5.6), squeeze=False, sharex=True, sharey="col",
        layout="constrained",
    )  # fmt: skip
    for (row, way), (column, problem) in itertools.product(enumerate((SUM, MEAN)), enumerate(problems)):
        axis = axes[row][column]
        groups = [runs.group(GROWING, f"{DATA[problem]}, {way}, {kind}", kind) for kind in kinds]
        draw_curves(axis, groups, "rounds", from_first=True)
        axis.set(xscale="log", title=f"{DATA[problem]}, {way}", xlim=(4, 480))
        axis.set_xticks((5, 10, 28, 51, 100, 400), ("5", "10", "28", "51", "100", "400"))
        axis.minorticks_off()
        both = itertools.product((SUM, MEAN), kinds)
        ends = [mean(runs.accuracy(GROWING, f"{DATA[problem]}, {own}, {kind}")) for own, kind in both]
        if not any(math.isnan(end) for end in ends):  # where the curves end is worth seeing, not where they begin
            axis.set_ylim(min(ends) - 8, max(ends) + 4)
    for axis in axes[-1]:
        axis.set_xlabel("rounds")
    for row in axes:
        row[0].set_ylabel("test accuracy, %")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, title="sample sizes $s_i$", loc="outside upper center", ncols=len(kinds))
    return figure


def draw_sizes(runs: Runs) -> Figure:
    """Draw accuracy over constant sizes beside the paper's."""
    from matplotlib import pyplot as plt

    from simfl.plots.style import PALETTE

    problems = [problem for problem, _ in _table3(runs)]
    figure, axes = plt.subplots(
        1, len(problems), figsize=(3.5 * len(problems) + 0.6, 3.6), squeeze=False, layout="constrained"
    )
    for axis, problem in zip(axes[0], problems, strict=True):
        axis.plot(SIZES, TABLE3[problem], color="#555555", ls=":", marker="x", label="paper")
        for position, (way, label) in enumerate(((SUM, "ours, sum"), (MEAN, "ours, mean"))):
            names = {size: f"{DATA[problem]}, {way}, s = {size}" for size in SIZES}
            there = [size for size, name in names.items() if runs.has(CONSTANT, name)]
            if there:
                _with_bars(axis, there, lambda size, own=names: runs.accuracy(CONSTANT, own[size]),  # type: ignore[misc]
                           PALETTE[position], ("-", "--")[position], label)  # fmt: skip
        axis.set(xscale="log", xlabel="sample size of a client", title=DATA[problem])
        axis.set_xticks(SIZES, [str(size) for size in SIZES])
        axis.minorticks_off()
    axes[0][0].set_ylabel("test accuracy, %")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    return figure


def _with_bars(
    axis: Axes, places: Sequence[int], measure: Callable[[int], Sequence[float]], color: str, line: str, label: str
) -> None:
    found = [interval_of(measure(place)) for place in places]
    halves = [0.0 if math.isnan(own.low) else own.half_width for own in found]
    axis.errorbar(places, [own.mean for own in found], halves, color=color, ls=line, marker="o", ms=3.5, capsize=2,
                  lw=1.5, label=label)  # fmt: skip


def draw_privacy(runs: Runs) -> Figure:
    """Draw accuracy over epochs at the same noise, growing sizes against constant ones."""
    from matplotlib import pyplot as plt

    problems = [problem for problem in PRIVATE_FILES if runs.has(PRIVATE, f"{problem}: {GROWN}")]
    figure, axes = plt.subplots(
        1, len(problems), figsize=(3.5 * len(problems) + 0.6, 3.8), squeeze=False, layout="constrained"
    )
    labels: dict[str, str] = {
        GROWN: "growing: 16 + 1.322 i",
        AS_MANY: AS_MANY,
        SIXTEEN: "constant 16",
        "16, step 0.01": "constant 16, step 0.01",
    }
    for axis, problem in zip(axes[0], problems, strict=True):
        there = {role: label for role, label in labels.items() if runs.has(PRIVATE, f"{problem}: {role}")}
        draw_curves(axis, [runs.group(PRIVATE, f"{problem}: {role}", label) for role, label in there.items()], "epochs")
        axis.set(xlabel="epochs", title=problem)
        axis.set_ylim((0, 70) if problem == MNIST else (94.5, 98))
    axes[0][0].set_ylabel("test accuracy, %")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=2)
    return figure


PAPER = Paper(
    name="async-fl",
    title="Van Dijk, Nguyen, Nguyen, Nguyen, Tran-Dinh, Nguyen: Asynchronous Federated Learning with Reduced Number of "
    "Rounds and with Differential Privacy from Less Aggregated Gaussian Noise",
    page="async_fl.md",
    data=("a9a", "w8a", "phishing", "mnist"),
    minutes=(3, 17),
    settings=settings,
    numbers=(
        round_numbers, size_numbers, sequence_numbers, step_numbers, private_numbers, biased_numbers, example_numbers,
    ),
    claims=(
        Claim("Growing sample sizes need a fraction of the rounds of constant ones for the same accuracy (Figures 3, 4 "
              "and 8).", fewer_rounds, True, "rounds"),
        Claim("With differential privacy growing sample sizes are more accurate than constant ones at the same noise "
              "(Figures 1b, 12 and 13).", better_with_privacy, True, "privacy"),
        Claim("The growing sizes of Example 3 are (1, 5.5e-8)-differentially private at σ = 8.", certified),
        Claim("Growing sizes aggregate less noise over all rounds than constant ones of the same privacy.", less_noise),
        Claim("20,000 gradients in sizes 50 i^c are 400, 144, 71, 42 and 28 rounds, in sizes 50 i/ln i 51 (Figure 3).",
              counts_of_rounds),
        Claim("Sizes of order i/ln i keep the accuracy (Figures 4 and 8).", over_log, figure="rounds"),
        Claim("The best constant sizes are 50 to 200 (Table 3).", best_sizes, figure="sizes"),
        Claim("At s = 1000 accuracy collapses (Table 3).", collapse, figure="sizes"),
        Claim("Falling steps with growing sizes are at least as accurate as constant ones of both, in 9 rounds instead "
              "of 20 (Figures 1a and 6).", falling_steps),
        Claim("Steps that fall by gradients and by rounds are alike (Figure 6).", steps_alike),
        Claim("With growing sizes constant steps are worse than falling ones (Figure 9).", small_constant_steps),
        Claim("Biased data make no difference (Figures 2, 10 and 11).", insensitive),
    ),
    figures={
        "rounds": ("accuracy over rounds for constant and growing sizes, 20,000 gradients each", draw_rounds),
        "privacy": ("accuracy over epochs at σ = 8, growing sizes against constant ones", draw_privacy),
        "sizes": ("accuracy over constant sizes, step size 0.0025, 20,000 gradients", draw_sizes),
    },
    untested=(
        ("Table 3 and Figure 5 on covtype, Figures 6 and 7 on ijcnn1.", "the data sets were not at hand"),
    ),
    remarks=(
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
