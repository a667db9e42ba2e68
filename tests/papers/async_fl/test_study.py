"""The study of growing sample sizes: readings follow from accuracies, rounds and epsilons."""

import itertools
import math

import pytest

import simfl
from simfl.papers.async_fl import study_claims as claims
from simfl.papers.async_fl import study_runs
from simfl.papers.async_fl.study_runs import (
    BIASED,
    CONSTANT,
    EVEN,
    FIRST,
    FROM_SMALL,
    GROWING,
    GROWING_CONSTANT_STEPS,
    GROWN,
    LARGE_FIXED,
    LINEAR,
    LISTING,
    MEAN,
    OVER_LOG,
    PER_GRADIENT,
    PER_ROUND,
    PER_ROUND_LARGE,
    PHISHING,
    PLAIN,
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
from simfl.reproduction.evidence import Verdict, gathered, under, verdict_of
from simfl.reproduction.reproducing import find_paper
from simfl.scenario import load
from tests.papers.made_up import SCENARIOS, made_up

pytestmark = pytest.mark.slow


def runs_of(section, accuracy, rounds=lambda *cell: 100, seeds=6, **others):
    """Return made-up runs of one section of the full form; accuracy in percent and rounds depend on the cell."""
    own = [one for one in study_runs.experiments(False) if one.section == section]
    if section == GROWING:  # its readings treat unequal speeds as they treat equal ones
        own = [one for one in own if UNEVEN not in one.cell]
    runs = made_up(own, lambda one, seed: accuracy(*one.cell) / 100, seeds=seeds, **others)
    for experiment in own:
        for run in runs.of(section, experiment.cell).values():
            run.metrics["rounds"] = run.metrics["rounds"] * rounds(*experiment.cell) // 100
    return runs


def judged(check, runs):
    """Return the verdict of a claim and its readings."""
    readings = gathered(check(runs))
    return verdict_of(readings), readings


def few(*cell):
    return {FIRST: 400, LINEAR: 28, OVER_LOG: 51, "500": 40, "1000": 20}.get(cell[-1], 63)


SMALL = "against: sizes of 50"


@pytest.mark.parametrize(
    ("points", "rounds", "verdict", "holds_under"),
    [
        (lambda cell: -2.0 * (cell[-1] in LARGE_FIXED), few, Verdict.REPRODUCED, ""),
        (lambda cell: 0.0, few, Verdict.MIXED, SMALL),
        (lambda cell: 0.2 * (cell[-1] == LINEAR), few, Verdict.MIXED, SMALL),  # a lead that does not count
        (lambda cell: 5.0 * (cell[-1] == "500" and cell[0] == PLAIN), few, Verdict.MIXED, SMALL),
        (
            lambda cell: 2.0 * (cell[-1] == LINEAR) - 7.0 * (cell[-1] == LINEAR and cell[1] == ROOT and cell[2] == SUM),
            few, Verdict.MIXED, "",  # the paper's own is among those that fail
        ),
        (lambda cell: -5.0 * (cell[-1] == LINEAR), few, Verdict.NOT_REPRODUCED, ""),
        (lambda cell: 0.0, lambda *cell: 100, Verdict.NOT_REPRODUCED, ""),
    ],
    ids=["better than large ones", "equal", "hardly better", "a large one is better", "plain and summed alone fails",
         "always worse", "not fewer rounds"],
)  # fmt: skip
def test_fewer_rounds_follows_from_accuracies_and_rounds(points, rounds, verdict, holds_under):
    word, readings = judged(claims.fewer_rounds, runs_of(GROWING, lambda *cell: 84.0 + points(cell), rounds))
    assert word == verdict
    if holds_under:
        assert under(readings) == holds_under
    (own,) = (reading for reading in readings if reading.own)
    assert own.choices == {
        "against": "sizes of 50", "steps, plain convex": ROOT, "aggregation": "sum", "speeds": "equal",
        "intercept": "with",
    }  # fmt: skip
    assert {len(reading.parts) for reading in readings} == {2, 4}, "both problems, and both large sizes"


def test_over_log_holds_where_accuracy_is_kept_and_large_sizes_are_beaten():
    large = {"500": 3.0, "1000": 3.0}
    worse = runs_of(
        GROWING, lambda *cell: 84.0 - large.get(cell[-1], 2.0 * (cell[-1] == OVER_LOG and cell[2] == SUM)), few
    )
    word, readings = judged(claims.over_log, worse)
    assert word == Verdict.MIXED
    assert {reading.choices["aggregation"] for reading in readings if reading.held is False} == {"sum"}
    assert under(readings) == "all readings but against: sizes of 50 and aggregation: sum"


def test_figure_3_has_the_rounds_of_its_formulas():
    counts = dict(zip(study_runs.KINDS, (400, 144, 71, 42, 28, 51, 63, 40, 20), strict=True))
    runs = runs_of(GROWING, lambda *cell: 84.0, lambda *cell: counts[cell[-1]])
    assert judged(claims.rounds_of_linear, runs)[0] == Verdict.REPRODUCED
    word, (reading,) = judged(claims.rounds_of_over_log, runs)
    assert word == Verdict.NOT_REPRODUCED
    assert "51 rounds against 71 of 50 i^0.5; 51 rounds against 42 of 50 i^0.75 (does not hold)" in reading.evidence
    other = runs_of(GROWING, lambda *cell: 84.0, lambda *cell: counts[cell[-1]] + 1)
    assert judged(claims.rounds_of_linear, other)[0] == Verdict.NOT_REPRODUCED
    papers = [number.paper for number in claims.round_numbers(other)]
    assert papers == [None] * (len(counts) - 1), "the paper prints none of them"


def lenet(falling, constant, from_tenth=None):
    """Return runs with falling steps at `falling`, 4 points less with large sizes; constant ones at most `constant`.

    `from_tenth` is the accuracy of the sum with the paper's first step.
    """

    def accuracy(problem, steps, *others):
        if "falling" not in steps:
            return constant if steps == "0.01, constant" else 80.0
        failed = from_tenth is not None and steps == study_runs.PAPERS_STEP and others[0] == SUM
        return from_tenth if failed else falling - 4.0 * (others[-1] in LARGE_FIXED)

    return runs_of(GROWING, accuracy, few)


def test_lenet_is_compared_with_the_best_of_each_grid():
    assert judged(claims.network, lenet(95.0, 97.0))[0] == Verdict.REPRODUCED  # within 3 points, as Table 3 spreads
    word, readings = judged(claims.network, lenet(92.0, 97.0))
    assert word == Verdict.MIXED
    assert {reading.choices["against"] for reading in readings if not reading.held} == {"constant steps and sizes"}
    assert "0.01, constant (97.0 %)" in next(own.evidence for own in readings if own.held is False)
    word, readings = judged(claims.network, lenet(95.0, 95.0, from_tenth=10.0))
    assert word == Verdict.REPRODUCED, "a first step from which nothing is learned is no reading"
    (own,) = (reading for reading in readings if reading.own)
    assert own.evidence.startswith("steps falling from 0.01: 28 rounds instead of 63")
    assert own.choices == {"against": "constant steps and sizes", "aggregation": "sum"}
    assert judged(claims.network, runs_of(GROWING, lambda *cell: 95.0, lambda *cell: 100))[0] == Verdict.NOT_REPRODUCED


@pytest.mark.parametrize(
    ("ahead", "verdict", "holds_under"),
    [
        (lambda role: 2.0 * (role == GROWN), Verdict.REPRODUCED, ""),
        (lambda role: 2.0 * (role in (GROWN, study_runs.AS_MANY)), Verdict.MOSTLY,
         "against: a constant 16, steps of 0.01 and 0.001 or a constant 16, the same steps"),
        (lambda role: -2.0 * (role.startswith(SIXTEEN) and role not in (SIXTEEN, *SMALL_STEPS)), Verdict.MIXED,
         "its σ: 5.8, for the claimed ε"),
        (lambda role: 0.0, Verdict.NOT_REPRODUCED, ""),
    ],
    ids=["everywhere", "by rounds", "at the claimed epsilon alone", "nowhere"],
)  # fmt: skip
def test_better_with_privacy_follows_from_leads_over_constant_sizes(ahead, verdict, holds_under):
    runs = runs_of(PRIVATE, lambda *cell: 90 + ahead(cell[-1]), epsilon=0.136)
    word, readings = judged(claims.better_with_privacy, runs)
    assert word == verdict
    if holds_under:
        assert under(readings) == holds_under
    (own,) = (reading for reading in readings if reading.own)
    assert (own.choices["against"], own.choices["its σ"]) == ("a constant 16, steps of 0.01 and 0.001", "8")
    assert len(own.parts) == 4, "two problems, two step sizes"


def test_lenet_with_privacy_is_not_tested_at_the_budget_of_the_paper():
    (claim,) = (own for own in find_paper("async-fl").claims if own.check is claims.network_with_privacy)

    def verdict_at(lead, first=0.0):
        runs = runs_of(PRIVATE, lambda *cell: 50 + {GROWN: lead + first, FROM_SMALL: lead}.get(cell[-1], 0.0))
        readings = gathered(claim.check(runs))
        assert [own.choices["aggregation"] for own in readings if own.own] == ["sum"]
        assert any("growing, steps from 0.01" in own.evidence for own in readings) == (first < 0)
        return verdict_of(readings, claim.short)

    assert (verdict_at(5.0), verdict_at(-5.0)) == (Verdict.REPRODUCED, Verdict.UNDECIDABLE)
    assert verdict_at(5.0, -20.0) == Verdict.MOSTLY, "the mean starts from the paper's 0.15 alone"


@pytest.mark.parametrize("epsilon", [0.136, 1.2, None])
def test_claimed_epsilon_is_compared_with_the_certified_one(epsilon):
    word = judged(claims.certified, runs_of(PRIVATE, lambda *cell: 97.0, epsilon=epsilon))[0]
    assert (word == Verdict.REPRODUCED) == (epsilon == 0.136)


def test_less_noise_compares_aggregated_noise(monkeypatch):
    measured = {GROWN: 21.5, SIXTEEN: 43.1, study_runs.AS_MANY: 19.9}
    monkeypatch.setattr(claims, "aggregated", lambda: measured)
    word, readings = judged(claims.less_noise, made_up([]))
    assert word == Verdict.MIXED
    assert under(readings) == "constant size: 16, the paper's"
    measured[GROWN] = 50.0
    assert judged(claims.less_noise, made_up([]))[0] == Verdict.NOT_REPRODUCED


def table3(problem, aggregation, speeds, intercept, size):
    """Return accuracies as if the sum overshot from 500 on with equal speeds, only at 1000 with unequal ones."""
    if aggregation == MEAN or size <= 200:
        return 84.0 - size / 1000
    return 70.0 if size == 1000 or speeds == EVEN else 83.0


def test_claims_on_table_3_follow_from_its_accuracies():
    runs = runs_of(CONSTANT, table3)
    assert judged(claims.best_sizes, runs)[0] == Verdict.REPRODUCED
    word, readings = judged(claims.collapse, runs)
    assert word == Verdict.MOSTLY
    assert under(readings) == "aggregation: sum"
    assert [len(reading.parts) for reading in readings] == [3] * 6, "every problem is a part of every reading"
    word, readings = judged(claims.little_lost, runs)
    assert word == Verdict.MIXED
    for reading in readings:
        well = reading.choices["aggregation"] == "mean" or reading.choices["speeds"] == "unequal"
        assert reading.held == well, reading.label
        changed = reading.choices["speeds"] == "unequal" or reading.choices["intercept"] == "without"
        assert reading.afterwards == changed
        assert reading.own == (not changed and reading.choices["aggregation"] == "sum")
    level = runs_of(CONSTANT, lambda *cell: 84.0)
    assert judged(claims.best_sizes, level)[0] == Verdict.NOT_REPRODUCED
    assert judged(claims.collapse, level)[0] == Verdict.NOT_REPRODUCED


def test_diverged_runs_have_collapsed():
    runs = runs_of(CONSTANT, lambda *cell: 84.0)
    for cell in runs.cells(CONSTANT):
        if cell[-1] == 1000:
            for run in runs.of(CONSTANT, cell).values():
                run.status = "diverged"
            assert all(map(math.isnan, runs.accuracy(CONSTANT, cell)))
    readings = gathered(claims.collapse(runs))
    assert {reading.held for reading in readings if reading.choices["aggregation"] == "sum"} == {True}


def steps(best, others=70.0, large=85.0, first=None, by_gradients=0.0):
    """Return runs with falling steps at 90, a constant step of 0.1 at `best`, others at `others`.

    Steps fall to `first` from 0.1, and large constant sizes end at `large`. Steps that fall by gradients are
    `by_gradients` points ahead.
    """

    def accuracy(*cell):
        case = cell[-1]
        if case in PER_ROUND_LARGE.values():
            return large
        if "falling" in case:
            falling = first if first is not None and case.startswith("falling from 0.1 ") else 90.0
            return falling + by_gradients * (case in PER_GRADIENT.values())
        return best if case.startswith("0.1,") else others

    growing = (*PER_ROUND_LARGE.values(), *PER_ROUND.values(), *PER_GRADIENT.values(), *GROWING_CONSTANT_STEPS)
    return runs_of(STEPS, accuracy, lambda *cell: 9 if cell[-1] in growing else 20)


def test_falling_steps_are_compared_with_tuned_ones_and_large_sizes():
    assert judged(claims.falling_steps, steps(89.5))[0] == Verdict.REPRODUCED
    word, readings = judged(claims.falling_steps, steps(92.0))
    assert word == Verdict.MIXED
    assert under(readings) == "against: large constant sizes"
    word, readings = judged(claims.falling_steps, steps(89.5, large=90.0))
    assert word == Verdict.MIXED
    assert under(readings) == "against: constant steps and sizes"
    assert judged(claims.falling_steps, steps(92.0, 92.0, 90.0))[0] == Verdict.NOT_REPRODUCED
    (own,) = (reading for reading in readings if reading.own)
    assert own.choices["against"] == "constant steps and sizes"
    assert len(own.parts) == 2, "strongly and plain convex"


def test_falling_steps_start_from_the_best_of_a_grid():
    word, readings = judged(claims.falling_steps, steps(89.5, first=60.0))
    assert word == Verdict.REPRODUCED
    assert all("(from the paper's 0.1: 60.0 %)" in part.text for reading in readings for part in reading.parts)
    assert not any("the paper's 0.1" in reading.evidence for reading in gathered(claims.falling_steps(steps(89.5))))


def test_cells_with_more_seeds_are_compared_on_the_seeds_in_common():
    """Figure 9 has more seeds than Figure 6, whose claims have some of its cells."""
    runs = made_up([one for one in study_runs.experiments(False) if one.section == STEPS], seeds=30)
    cells = [(PHISHING, *LISTING, case) for case in (*PER_ROUND.values(), *study_runs.CONSTANT_STEPS)]
    assert {len(runs.of(STEPS, cell)) for cell in cells if runs.has(STEPS, cell)} == {12, 30}
    assert judged(claims.falling_steps, runs)[0] in Verdict


def test_claims_on_tuned_steps_follow_from_accuracies():
    assert judged(claims.tuned_steps, steps(90.0))[0] == Verdict.REPRODUCED
    word, readings = judged(claims.tuned_steps, steps(92.0))
    assert word == Verdict.NOT_REPRODUCED
    assert [reading.own for reading in readings] == [True, False, False, False]
    assert judged(claims.tuned_alone, steps(90.0))[0] == Verdict.REPRODUCED
    assert judged(claims.tuned_alone, steps(90.0, 90.0))[0] == Verdict.NOT_REPRODUCED  # no tuning needed
    assert judged(claims.tuned_alone, steps(80.0))[0] == Verdict.NOT_REPRODUCED  # tuning does not help


def test_steps_by_gradients_and_by_rounds_are_alike_within_the_bar():
    word, readings = judged(claims.steps_alike, steps(90.0))
    assert word == Verdict.REPRODUCED
    assert {len(reading.parts) for reading in readings} == {2}
    assert judged(claims.steps_alike, steps(90.0, by_gradients=10.0))[0] == Verdict.NOT_REPRODUCED
    spread = steps(90.0)
    for cell in spread.cells(STEPS, PHISHING):
        for seed, run in spread.of(STEPS, cell).items():
            run.metrics["test_accuracy"] += 0.05 * (cell[-1] in PER_GRADIENT.values()) * (-1) ** seed
    assert judged(claims.steps_alike, spread)[0] == Verdict.UNDECIDABLE


@pytest.mark.parametrize(("apart", "convex", "network"), [
    (1.0, Verdict.REPRODUCED, Verdict.REPRODUCED),
    (-3.0, Verdict.NOT_REPRODUCED, Verdict.REPRODUCED),
    (3.0, Verdict.NOT_REPRODUCED, Verdict.REPRODUCED),
    (-8.0, Verdict.NOT_REPRODUCED, Verdict.NOT_REPRODUCED),
])  # fmt: skip
def test_claims_on_biased_data_follow_from_the_difference(apart, convex, network):
    runs = runs_of(BIASED, lambda *cell: 90 + apart * (cell[-1] == "biased"))
    assert judged(claims.insensitive, runs)[0] == convex
    assert judged(claims.network_insensitive, runs)[0] == network


def test_biased_clients_have_one_digit_and_unbiased_clients_both():
    from simfl.reproduction.reproducing import scenarios_folder
    from simfl.scenario import load

    one, both = (
        load(scenarios_folder() / own.base, own.overrides) for own in study_runs.experiments(False)
        if own.section == BIASED and own.cell[:3] == ("strongly convex", study_runs.TWO, SUM)
    )  # fmt: skip
    assert one.data.classes == both.data.classes == (0, 1)
    assert (one.data.partition.kind, both.data.partition.kind) == ("by_label", "iid")
    assert one.resolved()["model"] == both.resolved()["model"]


def test_readings_change_only_algorithm_clients_and_model():
    from simfl.reproduction.reproducing import scenarios_folder
    from simfl.scenario import load

    settings = {
        own.cell[1:4]: load(scenarios_folder() / own.base, own.overrides).resolved()
        for own in study_runs.experiments(False) if own.section == CONSTANT and own.cell[0] == STRONGLY
    }  # fmt: skip
    plain, mean, uneven = settings[LISTING], settings[MEAN, EVEN, WITHOUT], settings[SUM, UNEVEN, WITHOUT]
    assert {key for key in plain if plain[key] != mean[key]} == {"algorithm", "model"}
    assert {key for key in plain if plain[key] != uneven[key]} == {"clients", "model"}
    assert (plain["algorithm"]["aggregation"], mean["algorithm"]["aggregation"]) == ("sum", "mean")
    assert uneven["clients"]["speed"] == {"kind": "lognormal", "sigma": 0.5}
    assert (plain["model"]["intercept"], mean["model"]["intercept"]) == (True, False)
    assert len(settings) == len(study_runs.GRID) - 2, "the mean is not run with unequal speeds"


@pytest.mark.usefixtures("without_numbers")
def test_table_3_and_figure_5_are_run_on_covtype_where_its_file_is(tmp_path, monkeypatch):
    """A made-up file in the format of LIBSVM's covtype: classes 1 and 2, 54 features from 0 to 1."""
    monkeypatch.setenv("SIMFL_DATA", str(tmp_path))
    path = SCENARIOS / "async_fl/constant-covtype-strongly.yaml"
    before = study_runs.experiments(quick=False)
    with pytest.raises(simfl.DataError, match=r"covtype\.binary: no such file.*run `simfl data fetch covtype\.binary`"):
        simfl.prepare(path)
    (tmp_path / "libsvm").mkdir()
    lines = [f"{1 + i % 2} 1:0.{i % 9 + 1} {10 + i % 45}:1" for i in range(500)]
    (tmp_path / "libsvm" / "covtype.binary").write_text("\n".join(lines), encoding="utf-8")
    added = [own for own in study_runs.experiments(quick=False) if own not in before]
    problems = {(own.section, own.cell[0]): own for own in added}
    both = (study_runs.COVTYPE, study_runs.COVTYPE_PLAIN)
    assert list(problems) == [*itertools.product((study_runs.CONSTANT, study_runs.GROWING), both)]
    assert len(added) == 2 * 2 * (len(study_runs.SIZES) + len(study_runs.COMPARED))
    for own in problems.values():
        scenario = load(SCENARIOS / own.base, [*own.overrides, "algorithm.gradients=1000", "algorithm.sizes=20"])
        run = simfl.run(scenario, out=tmp_path / "out")
        assert (run.manifest.status, run.clients["samples"].sum()) == ("done", 400)
    saved = gathered(claims.fewer_on_covtype(runs_of(GROWING, lambda *cell: 84.0, few)))
    assert {reading.held for reading in saved if "against: sizes of 50" in reading.label} == {True}
    assert {reading.held for reading in saved if "against: large" in reading.label} == {False}, "they are as good"
