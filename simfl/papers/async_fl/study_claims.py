"""Numbers and claims of the study of asynchronous FL."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from simfl.accounts.plans import noise_multiplier_for
from simfl.comparison.comparing import median_of
from simfl.papers.async_fl import study_runs as plan
from simfl.papers.async_fl.privacy import GrowthSetting
from simfl.papers.async_fl.selection import aggregated_noise, epsilon_of_sizes, select_parameters
from simfl.papers.async_fl.sizes import OverLogSizes, PolynomialSizes
from simfl.papers.async_fl.study_runs import BIASED, CONSTANT, GROWING, GROWN, LENET5, MEAN, PRIVATE, STEPS, SUM, WITH
from simfl.privacy.accounting import Accountant
from simfl.privacy.calibration import least_noise
from simfl.reproduction.evidence import Part, Reading, above, below, exactly, show, typical, within
from simfl.reproduction.papers import Cell, Number, Runs, Section, mean

LITTLE = {**dict.fromkeys(plan.PROBLEMS, 3.0), LENET5: 10.0}
"""Points that sizes of 500 and 700 may lose: up to 1.5 in the paper in convex problems, 7.7 with LeNet-5."""
COLLAPSE = 5.0
"""Points that a size of 1000 must lose: 5.8 to 23.9 in the paper."""
EQUAL = 1.0
"""Points of accuracy below which two settings count as equal."""
EQUAL_NETWORK = 3.0
"""The same for LeNet-5: Table 3 calls both 94.7 and 91.8 % the best accuracy."""
BETTER = 0.5
"""Points of a lead that counts."""
ALIKE_BIASED, GOOD_BIASED = 2.0, 5.0
"""Points by which biased data may change the accuracy either way, and that they may cost LeNet-5."""


def round_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the rounds of Table 3, and of Figure 3's sizes."""
    part = "Rounds (Table 3): s of each of five clients, 20,000 gradients of all"
    for size, paper in plan.TABLE3_ROUNDS.items():
        if runs.has(CONSTANT, cell := (plan.STRONGLY, *plan.LISTING, size)):
            yield Number(part, "rounds", CONSTANT.label(size), (runs.rounds(CONSTANT, cell),), paper, 0)
    part = "Rounds of the sizes of Figure 3: s_i of all clients together, 20,000 gradients"
    for sequence in runs.cells(GROWING, plan.STRONGLY, plan.STEEP, *plan.LISTING):
        yield Number(part, "rounds", sequence[-1], (runs.rounds(GROWING, sequence),), None, 0)


def size_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the accuracies of Table 3 beside the listing's and nearest settings."""
    part = "Table 3: constant sizes of each client, step size 0.0025"
    for problem in plan.PROBLEMS:
        rows = {
            start[1:]: runs.accuracies(CONSTANT, *start)
            for start in dict.fromkeys(cell[:-1] for cell in runs.cells(CONSTANT, problem))
        }
        papers = plan.TABLE3[problem]
        far = {
            setting: statistics.fmean(abs(_median(values) - papers[size]) for size, values in row.items())
            for setting, row in rows.items() if row.keys() == papers.keys()
        }  # fmt: skip
        nearest = min((setting for setting in far if math.isfinite(far[setting])), key=far.__getitem__, default=None)
        for setting, row in rows.items():
            named = " (nearest to the paper, chosen after the result was seen)" * (setting == nearest)
            label = CONSTANT.label(problem, *setting) + named
            for size, values in row.items():
                paper = papers[size] if setting in (plan.LISTING, nearest) else None
                yield Number(part, label, CONSTANT.label(size), values, paper, unit="test accuracy, %")


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
        growing = cell[-1] in (plan.DIMINISHING_1, plan.DIMINISHING_2)
        row, paper = STEPS.label(*cell), 20 if cell[-1] in plan.CONSTANT_STEPS else 9 if growing else None
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
        for name in plan.BIASED_DATA:
            yield Number(str(BIASED), row, f"{name}, %", runs.accuracy(BIASED, (*case, name)))
        yield Number(str(BIASED), row, "difference, points", difference)


def _bias(runs: Runs) -> dict[Cell, tuple[float, ...]]:
    """Return the lead of biased data in points, by problem, data, aggregation."""
    cases = [cell[:-1] for cell in runs.cells(BIASED) if cell[-1] == "biased"]
    pairs = {case: [(*case, name) for name in plan.BIASED_DATA] for case in cases}
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
    for name, size in ((plan.SIXTEEN, 16), (plan.AS_MANY, 137)):
        rounds = math.ceil(gradients / size)
        sigma = noise_multiplier_for(1.0, delta, steps=rounds, sampling_rate=size / examples, accountant="renyi")
        noise[name] = aggregated_noise(sigma, rounds)
    return noise


def _reading(choices: dict[str, str], setting: Sequence[str], *parts: Part, own: bool = True) -> Reading:
    """Return a reading with the settings that every experiment shares.

    Unequal speeds and a missing intercept were considered only after Table 3 had been compared. Nearest to the paper
    are the sum of its listing, and the intercept of its equation 32, with identical clients; `own` says whether the
    other choices are the nearest, too.
    """
    keys = {SUM: "aggregation", MEAN: "aggregation", plan.EVEN: "speeds", plan.UNEVEN: "speeds", WITH: "intercept"}
    shared = {keys.get(choice, "intercept"): choice.split()[0] for choice in setting}
    afterwards = plan.UNEVEN in setting or plan.WITHOUT in setting
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


def _saving(runs: Runs, kind: str, strongly: str = plan.STRONGLY, plain: str = plan.PLAIN) -> Iterator[Reading]:
    """Judge whether growing sizes save rounds in both problems of a data set."""
    for setting in dict.fromkeys(cell[2:5] for cell in runs.cells(GROWING, strongly)):
        for rule, (against, sizes) in itertools.product(
            (plan.ROOT, plan.STEEP), {SMALL: (plan.FIRST,), LARGE: plan.LARGE_FIXED}.items()
        ):
            starts = (strongly, plan.STEEP, *setting), (plain, rule, *setting)
            pairs = [((*start, kind), (*start, size)) for start in starts for size in sizes]
            for grown, other in pairs if runs.has(GROWING, *itertools.chain.from_iterable(pairs)) else ():
                part = _saves_rounds(runs, GROWING, grown, other, f"sizes of {other[-1]}", f"{grown[0]}: ")
                choices = {"against": against, "steps, plain convex": rule}
                yield _reading(choices, setting, part, own=(rule, against) == (plan.ROOT, SMALL))


#: The same for sizes of 50 i, also on covtype, and for sizes of order i/ln i.
fewer_rounds = functools.partial(_saving, kind=plan.LINEAR)
fewer_on_covtype = functools.partial(_saving, kind=plan.LINEAR, strongly=plan.COVTYPE, plain=plan.COVTYPE_PLAIN)
over_log = functools.partial(_saving, kind=plan.OVER_LOG)


def network(runs: Runs) -> Iterator[Reading]:
    """Judge whether LeNet-5 loses nothing with growing sizes, falling steps.

    Falling steps start from the better of two first steps, constant ones are the best of a grid.
    """
    others = {"constant steps and sizes": plan.FIXED, SMALL: plan.FIRST, LARGE: plan.LARGE_FIXED[1]}
    for way, (against, kind) in itertools.product((SUM, MEAN), others.items()):
        cells = [cell for cell in runs.cells(GROWING, LENET5) if cell[2] == way]
        grown, fixed = ([cell for cell in cells if cell[-1] == size] for size in (plan.LINEAR, kind))
        if grown and fixed:
            best, other = best_cell(runs, GROWING, grown), best_cell(runs, GROWING, fixed)
            what = f"sizes of {kind}, steps {other[1]} ({show(runs.accuracy(GROWING, other), 1)} %)"
            about = f"steps {best[1]}: "
            part = _saves_rounds(runs, GROWING, best, other, what, about, EQUAL_NETWORK)
            yield _reading({"against": against}, (way,), part, own=kind == plan.FIXED)


def best_cell(runs: Runs, section: Section, cells: Sequence[Cell]) -> Cell:
    """Return the cell of the best median."""
    return max(cells, key=lambda cell: _median(runs.accuracy(section, cell)))


def _fewest(runs: Runs, kind: str) -> Iterator[Reading]:
    """Judge whether a kind of sizes has fewer rounds than every smaller power of i."""
    counts = {name: PolynomialSizes(50, c=power).rounds_for(20_000) for name, power in plan.POWERS.items()}
    counts[plan.OVER_LOG] = OverLogSizes(50).rounds_for(20_000)
    formulas = {**counts, **{size: math.ceil(20_000 / int(size)) for size in plan.LARGE_FIXED}}
    measured = {
        cell[-1]: runs.rounds(GROWING, cell) for cell in runs.cells(GROWING, plan.STRONGLY, plan.STEEP, *plan.LISTING)
    }
    agree = all(formulas[name] == rounds for name, rounds in measured.items())
    parts = [
        exactly(counts[kind] < counts[name], f"{counts[kind]} rounds against {counts[name]} of {name}")
        for name, power in plan.POWERS.items()
        if power < 1
    ]
    yield Reading({}, (*parts, exactly(agree, "runs agree with the formulas")), own=True)


rounds_of_linear = functools.partial(_fewest, kind=plan.LINEAR)
rounds_of_over_log = functools.partial(_fewest, kind=plan.OVER_LOG)


SIXTEEN_SMALL, SIXTEEN_SAME = "a constant 16, steps of 0.01 and 0.001", "a constant 16, the same steps"
EQUAL_ROUNDS = "a constant size of as many rounds"


def better_with_privacy(runs: Runs) -> Iterator[Reading]:
    """Judge whether growing sizes are more accurate than constant ones on w8a."""
    tables = {SIXTEEN_SMALL: tuple(plan.SMALL_STEPS), SIXTEEN_SAME: (plan.SIXTEEN,), EQUAL_ROUNDS: (plan.AS_MANY,)}
    grid = (tables.items(), plan.SIGMAS, (SUM, MEAN), (WITH, plan.WITHOUT), (plan.W8A_STRONGLY, plan.W8A_PLAIN))
    for (against, roles), sigma, way, intercept, task in itertools.product(*grid):
        others, own = [role + plan.SIGMAS[sigma] for role in roles], (against, sigma) == (SIXTEEN_SMALL, "8")
        parts = _leads(runs, (task, way, plan.EVEN, intercept), GROWN, others)
        yield _reading({"against": against, "its σ": sigma}, (way, intercept), *parts, own=own)


def network_with_privacy(runs: Runs) -> Iterator[Reading]:
    """Judge whether growing sizes beat constant ones for LeNet-5.

    Growing sizes start from the better of two first steps.
    """
    tables = {SIXTEEN_SMALL: list(plan.SMALL_STEPS), EQUAL_ROUNDS: [plan.AS_MANY]}
    for way, (against, roles) in itertools.product((SUM, MEAN), tables.items()):
        start = (LENET5, way, plan.EVEN, WITH)
        grown = [cell for role in (GROWN, plan.FROM_SMALL) if runs.has(PRIVATE, cell := (*start, role))]
        parts = _leads(runs, start, best_cell(runs, PRIVATE, grown)[-1], roles) if grown else []
        yield _reading({"against": against}, (way,), *parts, own=against == SIXTEEN_SMALL)


def _above_typically(lead: Sequence[float], bar: float, text: str, least: float) -> Part:
    return above(typical(lead), bar, text, least)


def _leads(runs: Runs, start: Cell, grown: str, roles: Sequence[str]) -> list[Part]:
    """Return whether growing sizes lead each constant size that was run."""
    if not runs.has(PRIVATE, (*start, grown), *((*start, role) for role in roles)):
        return []
    about = f"{start[0]}" + f", {grown}" * (grown != GROWN)
    parts = []
    for role in roles:
        against = f"a constant {plan.ALIKE[start[0]]}" if role == plan.AS_MANY else role
        text = f"{about}: {{lead}} points against {against} (bar: above 0)"
        parts += runs.leads(PRIVATE, (*start, grown), (*start, role), text, 0.0, BETTER, judge=_above_typically)
    return parts


def certified(runs: Runs) -> Iterator[Reading]:
    """Judge whether an accountant certifies the epsilon that the paper claims."""
    cells = [(problem, *plan.LISTING, GROWN) for problem in (plan.W8A_STRONGLY, plan.W8A_PLAIN)]
    epsilons = {cell[0]: mean(runs.epsilon(PRIVATE, cell)) for cell in cells if runs.has(PRIVATE, cell)}
    said = ", ".join(f"{problem}: {epsilon:.3f}" for problem, epsilon in epsilons.items())
    if epsilons:
        text = f"certified ε of the growing sizes, where the paper claims 1: {said}"
        yield Reading({}, (exactly(max(epsilons.values()) <= 1, text),), own=True)


def less_noise(runs: Runs) -> Iterator[Reading]:
    """Judge whether growing sizes aggregate less noise at the same epsilon."""
    noise = aggregated()
    for role, size in ((plan.SIXTEEN, "16, the paper's"), (plan.AS_MANY, "137, of as many rounds")):
        text = f"√T σ at a certified (1, 5.5e-8): {noise[GROWN]:.1f} growing, {noise[role]:.1f} constant"
        printed = " (the paper, by its theorem: 112 and 229)" * (role == plan.SIXTEEN)
        part = exactly(noise[GROWN] < noise[role], text + printed)
        yield Reading({"constant size": size}, (part,), own=role == plan.SIXTEEN)


def _table3(runs: Runs) -> Iterator[tuple[plan.Setting, str, Mapping[int, tuple[float, ...]]]]:
    """Yield settings and problems with the accuracies by size.

    LeNet-5 has no choice of an intercept, so its runs stand for both.
    """
    for setting in dict.fromkeys(cell[1:4] for cell in runs.cells(CONSTANT, plan.STRONGLY)):
        for problem in (plan.STRONGLY, plan.PLAIN, LENET5):
            if row := runs.accuracies(CONSTANT, problem, *setting[:2], WITH if problem == LENET5 else setting[2]):
                yield setting, problem, row


def best_sizes(runs: Runs) -> Iterator[Reading]:
    """Judge whether the best constant sizes are 50 to 200, for every problem."""
    for setting, problem, row in _table3(runs):
        small, large = ([size for size in row if (size <= 200) == low] for low in (True, False))
        leads = [_apart(row[one], row[other]) for one in small for other in large]
        names = [", ".join(map(str, sizes)) for sizes in (small, large)]
        what = f"points are the least lead of {names[0]} over {names[1]} (bar: above 0)"
        least = [min(lead) for lead in zip(*leads, strict=True)]  # for every seed
        yield _reading({}, setting, _typically(least, 0, what, BETTER, f"{problem}: "))


def collapse(runs: Runs) -> Iterator[Reading]:
    """Judge whether the largest size loses much accuracy, for every problem."""
    for setting, problem, row in _table3(runs):
        lost, paper = _apart(row[100], row[1000]), plan.TABLE3[problem][100] - plan.TABLE3[problem][1000]
        text = f"{problem}: {show(lost, 1)} points less than s = 100, {paper:.1f} in the paper (bar: {COLLAPSE:g})"
        yield _reading({}, setting, above(lost, COLLAPSE, text))


def little_lost(runs: Runs) -> Iterator[Reading]:
    """Judge whether sizes of 500 and 700 lose little, for every problem."""
    for setting, problem, row in _table3(runs):
        for size in (size for size in (500, 700) if size in row):
            bar, ahead = LITTLE[problem], _apart(row[size], row[100])
            paper = plan.TABLE3[problem][size] - plan.TABLE3[problem][100]
            what = f"points against s = 100, {paper:.1f} in the paper (bar: -{bar:g})"
            yield _reading({}, setting, _typically(ahead, -bar, what, about=f"{problem}, s = {size}: "))


def _apart(one: Sequence[float], other: Sequence[float]) -> tuple[float, ...]:
    """Return differences by seeds in common; infinite against a diverged run."""
    pairs = zip(typical(one), typical(other), strict=False)  # seeds begin at 1, and one may have more of them
    return typical([first - second for first, second in pairs])


def _phishing(runs: Runs, *problems: str) -> Iterator[tuple[plan.Setting, Cell]]:
    """Yield settings with the best falling steps for problems, by default both.

    Falling steps start from the best of a grid, as constant ones are the best of a grid.
    """
    for setting in dict.fromkeys(cell[1:4] for cell in runs.cells(STEPS, plan.PHISHING)):
        for problem in problems or (plan.PHISHING, plan.PHISHING_PLAIN):
            if not (cells := cells_of(runs, (problem, *setting), plan.PER_ROUND.values())):
                break
            yield setting, best_cell(runs, STEPS, cells)


def cells_of(runs: Runs, start: Cell, cases: Iterable[str]) -> list[Cell]:
    """Return the cells of some cases that have runs."""
    return [cell for case in cases if runs.has(STEPS, cell := (*start, case))]


def falling_steps(runs: Runs) -> Iterator[Reading]:
    """Judge whether falling steps, growing sizes are no worse in fewer rounds."""
    tables = {"constant steps and sizes": plan.CONSTANT_STEPS, LARGE: plan.PER_ROUND_LARGE.values()}
    for (setting, grown), (against, cases) in itertools.product(_phishing(runs), tables.items()):
        if cells := cells_of(runs, grown[:-1], cases):
            other = best_cell(runs, STEPS, cells)
            what = f"{other[-1]} ({show(runs.accuracy(STEPS, other), 1)} %)"
            part = _saves_rounds(runs, STEPS, grown, other, what, f"{_named(runs, grown)}: ")
            yield _reading({"against": against}, setting, part, own=against != LARGE)


def _named(runs: Runs, grown: Cell) -> str:
    """Return a problem with its best falling steps, and the paper's if worse."""
    papers = (*grown[:-1], plan.DIMINISHING_2)
    said = f"{grown[0]}, {grown[-1].removesuffix(', growing')}"
    if runs.has(STEPS, papers) and _median(runs.accuracy(STEPS, grown)) > _median(runs.accuracy(STEPS, papers)) + EQUAL:
        said += f" (from the paper's 0.1: {show(runs.accuracy(STEPS, papers), 1)} %)"
    return said


def tuned_steps(runs: Runs) -> Iterator[Reading]:
    """Judge whether falling steps equal the best constant step, growing sizes."""
    for setting, grown in _phishing(runs, plan.PHISHING):
        if cells := cells_of(runs, grown[:-1], plan.GROWING_CONSTANT_STEPS):
            other = best_cell(runs, STEPS, cells)
            what = f"{other[-1]} ({show(runs.accuracy(STEPS, other), 1)} %)"
            part = _no_worse(runs.ahead(STEPS, grown, other), what, about=f"{_named(runs, grown)}: ")
            yield _reading({}, setting, part)


def tuned_alone(runs: Runs) -> Iterator[Reading]:
    """Judge whether the best constant step equals falling ones; the worst not."""
    for setting, grown in _phishing(runs, plan.PHISHING):
        if cells := cells_of(runs, grown[:-1], plan.GROWING_CONSTANT_STEPS):
            falling = runs.accuracy(STEPS, grown)
            ordered = sorted(cells, key=lambda cell: _median(runs.accuracy(STEPS, cell)))
            missed, reached = (_apart(runs.accuracy(STEPS, cell), falling) for cell in (ordered[0], ordered[-1]))
            parts = (
                above(reached, -EQUAL, f"{ordered[-1][-1]}: {show(reached, 1, True)} points (bar: -{EQUAL:g})"),
                below(missed, -EQUAL, f"{ordered[0][-1]}: {show(missed, 1, True)} points (bar: below -{EQUAL:g})"),
            )
            yield _reading({}, setting, *parts)


def steps_alike(runs: Runs) -> Iterator[Reading]:
    """Judge whether steps that fall by gradients and by rounds are alike."""
    by_gradients = dict(zip(plan.PER_ROUND.values(), plan.PER_GRADIENT.values(), strict=True))
    for setting, grown in _phishing(runs):
        text = f"{grown[0]}, {grown[-1].removesuffix(', growing')}: {{lead}} points ahead (bar: {EQUAL:g} either way)"
        cell = (*grown[:-1], by_gradients[grown[-1]])
        yield _reading({}, setting, *runs.leads(STEPS, grown, cell, text, EQUAL, judge=within))


def insensitive(runs: Runs) -> Iterator[Reading]:
    """Judge whether biased data make no difference to both convex problems."""
    for (task, data, way), difference in _bias(runs).items():
        if task != plan.NETWORK:
            text = f"{task}: {show(difference, 1, True)} points with biased data (bar: {ALIKE_BIASED:g} either way)"
            yield _reading({"data": data}, (way,), within(difference, ALIKE_BIASED, text), own=data == plan.TWO)


def network_insensitive(runs: Runs) -> Iterator[Reading]:
    """Judge whether LeNet-5 still learns well from biased data."""
    for (task, _, aggregation), difference in _bias(runs).items():
        if task == plan.NETWORK:
            yield _reading({}, (aggregation,), _no_worse(difference, "unbiased data", GOOD_BIASED))
