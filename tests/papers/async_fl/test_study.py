"""The study of growing sample sizes: readings follow from accuracies, rounds and epsilons."""

import math

import pytest

from simfl.papers.async_fl import study as async_fl
from simfl.papers.async_fl.study import (
    BIASED,
    CONSTANT,
    EVEN,
    FIRST,
    FROM_SMALL,
    GROWING,
    GROWN,
    LENET5,
    LINEAR,
    LISTING,
    MEAN,
    NETWORK,
    OVER_LOG,
    PER_GRADIENT,
    PER_ROUND,
    PRIVATE,
    ROOT,
    SIXTEEN,
    SMALL_STEPS,
    STEPS,
    STRONGLY,
    SUM,
    UNEVEN,
    WITHOUT,
)  # fmt: skip
from simfl.studies.evidence import Verdict, under, verdict_of
from simfl.studies.pages import numbers_of
from simfl.studies.reading import counted
from simfl.studies.reproducing import find_paper
from tests.papers.made_up import made_up

pytestmark = pytest.mark.slow


def runs_of(section, accuracy, rounds=lambda *cell: 100, seeds=6, **others):
    """Return made-up runs of one section of the full form; accuracy in percent and rounds depend on the cell."""
    own = [one for one in async_fl.experiments(False) if one.section == section]
    if section in (GROWING, STEPS):  # their readings treat unequal speeds as they treat equal ones
        own = [one for one in own if UNEVEN not in one.cell]
    runs = made_up(own, lambda one, seed: accuracy(*one.cell) / 100, seeds=seeds, **others)
    for experiment in own:
        for run in runs.of(section, experiment.cell).values():
            run.metrics["rounds"] = run.metrics["rounds"] * rounds(*experiment.cell) // 100
    return runs


def judged(check, runs):
    """Return the verdict of a claim and its readings."""
    readings = list(check(runs))
    return verdict_of(readings), readings


def few(*cell):
    return {FIRST: 400, LINEAR: 28, OVER_LOG: 51}.get(cell[-1], 63)


@pytest.mark.parametrize(
    ("loses", "rounds", "verdict"),
    [
        (lambda cell: False, few, Verdict.REPRODUCED),
        (lambda cell: cell[1] == ROOT, few, Verdict.MIXED),
        (lambda cell: True, few, Verdict.NOT_REPRODUCED),
        (lambda cell: False, lambda *cell: 100, Verdict.NOT_REPRODUCED),
    ],
    ids=["equal", "slowly falling steps", "always worse", "not fewer rounds"],
)
def test_fewer_rounds_follows_from_accuracies_and_rounds(loses, rounds, verdict):
    def accuracy(*cell):
        return 84.0 - 5.0 * (cell[-1] == LINEAR and loses(cell))

    word, readings = judged(async_fl.fewer_rounds, runs_of(GROWING, accuracy, rounds))
    assert word == verdict
    assert not any(reading.choices["task"] == LENET5 for reading in readings)
    if verdict == Verdict.MIXED:
        assert under(readings) == "steps: η₀/(1 + βt)"


def test_sequences_whose_seeds_are_far_apart_are_not_decided():
    runs = runs_of(GROWING, lambda *cell: 84.0, few)
    for cell in runs.cells(GROWING):
        for seed, run in runs.of(GROWING, cell).items():
            run.metrics["test_accuracy"] += 0.1 * (cell[-1] == LINEAR) * (-1) ** seed
    assert judged(async_fl.fewer_rounds, runs)[0] == Verdict.UNDECIDABLE


def test_few_seeds_decide_nothing():
    runs = runs_of(GROWING, lambda *cell: 84.0, few, seeds=4)
    assert judged(async_fl.fewer_rounds, runs)[0] == Verdict.UNDECIDABLE
    assert judged(async_fl.over_log, runs)[0] == Verdict.UNDECIDABLE
    assert (
        judged(async_fl.best_sizes, runs_of(CONSTANT, lambda *cell: 84.0 - cell[-1], seeds=4))[0] == Verdict.UNDECIDABLE
    )


def test_over_log_holds_where_accuracy_is_kept():
    worse = runs_of(GROWING, lambda *cell: 84.0 - 2.0 * (cell[-1] == OVER_LOG and cell[2] == SUM), few)
    word, readings = judged(async_fl.over_log, worse)
    assert word == Verdict.MIXED
    assert under(readings) == "aggregation: mean"


def test_figure_3_has_the_rounds_of_its_formulas():
    counts = dict(zip(async_fl.KINDS, (400, 144, 71, 42, 28, 51), strict=False))
    runs = runs_of(GROWING, lambda *cell: 84.0, lambda *cell: counts.get(cell[-1], 63))
    word, (half, more) = judged(async_fl.counts_of_rounds, runs)
    assert word == Verdict.MIXED  # 50 i/ln i has more rounds than 50 i^0.75
    assert (half.held, more.held) == (True, False)
    other = runs_of(GROWING, lambda *cell: 84.0, lambda *cell: counts.get(cell[-1], 63) + 1)
    assert judged(async_fl.counts_of_rounds, other)[0] == Verdict.NOT_REPRODUCED
    papers = [number.paper for number in async_fl.round_numbers(other)]
    assert papers == [None] * len(counts), "the paper prints none of them"


def test_lenet_is_compared_with_the_best_constant_step():
    def accuracy(problem, steps, *others):
        return 95.0 if "falling" in steps else 97.0 if steps == "0.01, constant" else 80.0

    runs = runs_of(GROWING, accuracy, few)
    word, readings = judged(async_fl.network, runs)
    assert word == Verdict.MIXED
    assert under(readings) == "against: sizes of 50, the same steps"
    assert "0.01, constant (97.0 %)" in next(own.evidence for own in readings if own.held is False)
    assert (
        judged(async_fl.network, runs_of(GROWING, lambda *cell: 95.0, lambda *cell: 100))[0] == Verdict.NOT_REPRODUCED
    )


@pytest.mark.parametrize(
    ("ahead", "verdict"),
    [
        (lambda role: 2.0 * (role == GROWN), Verdict.REPRODUCED),
        (lambda role: 2.0 * (role not in SMALL_STEPS and SIXTEEN not in role), Verdict.REPRODUCED),
        (lambda role: -2.0 * (role.startswith(SIXTEEN) and role not in (SIXTEEN, *SMALL_STEPS)), Verdict.MIXED),
        (lambda role: 0.0, Verdict.NOT_REPRODUCED),
    ],
    ids=["everywhere", "by rounds", "at the claimed epsilon alone", "nowhere"],
)
def test_better_with_privacy_follows_from_leads_over_constant_sizes(ahead, verdict):
    runs = runs_of(PRIVATE, lambda *cell: 90 + ahead(cell[-1]), epsilon=0.136)
    word, readings = judged(async_fl.better_with_privacy, runs)
    assert word == verdict
    if verdict == Verdict.MIXED:
        assert under(readings) == "its σ: 5.8, for the claimed ε"
    with_growth = judged(async_fl.growth_alone, runs)[0]
    assert (with_growth == Verdict.NOT_REPRODUCED) == (ahead(GROWN) == ahead(async_fl.AS_MANY))


def test_lenet_with_privacy_is_not_tested_at_the_budget_of_the_paper():
    (claim,) = (own for own in find_paper("async-fl").claims if own.check is async_fl.network_with_privacy)

    def verdict_at(lead):
        runs = runs_of(PRIVATE, lambda *cell: 50 + lead * (cell[-1] in (GROWN, FROM_SMALL)))
        readings = list(claim.check(runs))
        assert [own.afterwards for own in readings] == [own.choices["first step"] == "0.01" for own in readings]
        return verdict_of(readings, claim.short)

    assert (verdict_at(5.0), verdict_at(-5.0)) == (Verdict.REPRODUCED, Verdict.UNDECIDABLE)


@pytest.mark.parametrize("epsilon", [0.136, 1.2, None])
def test_claimed_epsilon_is_compared_with_the_certified_one(epsilon):
    word = judged(async_fl.certified, runs_of(PRIVATE, lambda *cell: 97.0, epsilon=epsilon))[0]
    assert (word == Verdict.REPRODUCED) == (epsilon == 0.136)


def test_less_noise_compares_aggregated_noise(monkeypatch):
    measured = {GROWN: 21.5, SIXTEEN: 43.1, async_fl.AS_MANY: 19.9}
    monkeypatch.setattr(async_fl, "aggregated", lambda: measured)
    word, readings = judged(async_fl.less_noise, made_up([]))
    assert word == Verdict.MIXED
    assert under(readings) == "constant size: 16, the paper's"
    measured[GROWN] = 50.0
    assert judged(async_fl.less_noise, made_up([]))[0] == Verdict.NOT_REPRODUCED


def table3(problem, aggregation, speeds, intercept, size):
    """Return accuracies as if the sum overshot from 500 on with equal speeds, only at 1000 with unequal ones."""
    if aggregation == MEAN or size <= 200:
        return 84.0 - size / 1000
    return 70.0 if size == 1000 or speeds == EVEN else 83.0


def test_claims_on_table_3_follow_from_its_accuracies():
    runs = runs_of(CONSTANT, table3)
    assert judged(async_fl.best_sizes, runs)[0] == Verdict.REPRODUCED
    word, readings = judged(async_fl.collapse, runs)
    assert word == Verdict.MOSTLY
    assert under(readings) == "aggregation: sum"
    assert judged(async_fl.little_lost, runs)[0] == Verdict.MIXED
    for reading in async_fl.little_lost(runs):
        well = reading.choices["aggregation"] == "mean" or reading.choices["speeds"] == "unequal"
        assert reading.held == well, reading.label
        changed = reading.choices["speeds"] == "unequal" or reading.choices["intercept"] == "without"
        assert reading.afterwards == changed
    level = runs_of(CONSTANT, lambda *cell: 84.0)
    assert judged(async_fl.best_sizes, level)[0] == Verdict.NOT_REPRODUCED
    assert judged(async_fl.collapse, level)[0] == Verdict.NOT_REPRODUCED


def test_diverged_runs_have_collapsed():
    runs = runs_of(CONSTANT, lambda *cell: 84.0)
    for cell in runs.cells(CONSTANT):
        if cell[-1] == 1000:
            for run in runs.of(CONSTANT, cell).values():
                run.status = "diverged"
            assert all(map(math.isnan, runs.accuracy(CONSTANT, cell)))
    readings = list(async_fl.collapse(runs))
    assert {reading.held for reading in readings if reading.choices["aggregation"] == "sum"} == {True}


def test_table_3_is_shown_beside_the_listing_and_the_nearest_setting():
    runs = runs_of(CONSTANT, table3, lambda *cell: 80)
    text = "\n".join(numbers_of(counted(find_paper("async-fl"), runs)))
    assert "| a9a, strongly convex, sum, equal speeds, with intercept | 83.95 (84.18, -0.23)" in text
    nearest = [line for line in text.splitlines() if "nearest to the paper, chosen after the result was seen" in line]
    assert len(nearest) == 3
    assert nearest[0].startswith(f"| {STRONGLY}, {SUM}, {UNEVEN}")
    assert "| rounds | 80 (80, +0) | 80 (40, +40) |" in text


def steps(best, others=70.0):
    """Return runs with falling steps at 90, a constant step of 0.1 at `best`, others at `others`."""

    def accuracy(*cell):
        return 90.0 if cell[-1] in (PER_ROUND, PER_GRADIENT) else best if cell[-1].startswith("0.1,") else others

    return runs_of(STEPS, accuracy, lambda *cell: 9 if "growing" in cell[-1] or "falling" in cell[-1] else 20)


def test_falling_steps_are_compared_with_tuned_ones():
    assert judged(async_fl.falling_steps, steps(89.5))[0] == Verdict.REPRODUCED
    word, readings = judged(async_fl.falling_steps, steps(92.0))
    assert word == Verdict.MIXED
    assert under(readings) == "constant step: 0.0025, Table 3's"
    assert judged(async_fl.falling_steps, steps(92.0, 92.0))[0] == Verdict.NOT_REPRODUCED


def test_claims_on_tuned_steps_follow_from_accuracies():
    assert judged(async_fl.tuned_steps, steps(90.0))[0] == Verdict.REPRODUCED
    word, readings = judged(async_fl.tuned_steps, steps(92.0))
    assert word == Verdict.MIXED
    assert under(readings) == "tuned over: 0.005 and 0.01, the paper's"
    assert judged(async_fl.tuned_alone, steps(90.0))[0] == Verdict.REPRODUCED
    assert judged(async_fl.tuned_alone, steps(90.0, 90.0))[0] == Verdict.NOT_REPRODUCED  # no tuning needed
    assert judged(async_fl.tuned_alone, steps(80.0))[0] == Verdict.NOT_REPRODUCED  # tuning does not help


def test_steps_by_gradients_and_by_rounds_are_alike_within_the_bar():
    assert judged(async_fl.steps_alike, steps(90.0))[0] == Verdict.REPRODUCED
    apart = runs_of(STEPS, lambda *cell: 90.0 if cell[-1] == PER_ROUND else 80.0)
    assert judged(async_fl.steps_alike, apart)[0] == Verdict.NOT_REPRODUCED


@pytest.mark.parametrize(("apart", "convex", "network"), [
    (1.0, Verdict.REPRODUCED, Verdict.REPRODUCED),
    (-3.0, Verdict.NOT_REPRODUCED, Verdict.REPRODUCED),
    (3.0, Verdict.NOT_REPRODUCED, Verdict.REPRODUCED),
    (-8.0, Verdict.NOT_REPRODUCED, Verdict.NOT_REPRODUCED),
])  # fmt: skip
def test_claims_on_biased_data_follow_from_the_difference(apart, convex, network):
    runs = runs_of(BIASED, lambda *cell: 90 + apart * (cell[-1] == "biased"))
    assert judged(async_fl.insensitive, runs)[0] == convex
    assert judged(async_fl.network_insensitive, runs)[0] == network


def test_biased_data_whose_seeds_are_far_apart_are_not_decided():
    own = [one for one in async_fl.experiments(False) if one.section == BIASED and one.cell[0] == NETWORK]
    runs = made_up(own, lambda one, seed: 0.8 + 0.15 * (one.cell[-1] == "biased") * (-1) ** seed, seeds=12)
    assert judged(async_fl.network_insensitive, runs)[0] == Verdict.UNDECIDABLE


def test_biased_clients_have_one_digit_and_unbiased_clients_both():
    from simfl.scenario import load
    from simfl.studies.reproducing import scenarios_folder

    one, both = (
        load(scenarios_folder() / own.base, own.overrides) for own in async_fl.experiments(False)
        if own.section == BIASED and own.cell[:3] == ("strongly convex", async_fl.TWO, SUM)
    )  # fmt: skip
    assert one.data.classes == both.data.classes == (0, 1)
    assert (one.data.partition.kind, both.data.partition.kind) == ("by_label", "iid")
    assert one.resolved()["model"] == both.resolved()["model"]


def test_readings_change_only_algorithm_clients_and_model():
    from simfl.scenario import load
    from simfl.studies.reproducing import scenarios_folder

    settings = {
        own.cell[1:4]: load(scenarios_folder() / own.base, own.overrides).resolved()
        for own in async_fl.experiments(False) if own.section == CONSTANT and own.cell[0] == STRONGLY
    }  # fmt: skip
    plain, other = settings[LISTING], settings[MEAN, UNEVEN, WITHOUT]
    assert {key for key in plain if plain[key] != other[key]} == {"algorithm", "clients", "model"}
    assert (plain["algorithm"]["aggregation"], other["algorithm"]["aggregation"]) == ("sum", "mean")
    assert other["clients"]["speed"] == {"kind": "lognormal", "sigma": 0.5}
    assert (plain["model"]["intercept"], other["model"]["intercept"]) == (True, False)
    assert len(settings) == len(async_fl.GRID)


def test_examples_agree_with_the_paper():
    for number in async_fl.example_numbers(made_up([])):
        if number.paper is not None and not ("example 4" in number.row and number.column[-1] in "δr"):
            assert number.difference == pytest.approx(0, abs=2e-4 * abs(number.paper) + 1e-5), number
