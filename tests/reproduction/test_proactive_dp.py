"""The study of Proactive DP: what is planned is claimed and certified, and verdicts follow from accuracies."""

import math

import pytest

from simfl.reproduction import Verdict, proactive_dp
from simfl.reproduction.running import scenarios_folder
from simfl.scenario import load
from simfl.theory.proactive_dp.theorems import simplified_plan
from tests.reproduction.made_up import made_up

YES, PARTLY, NO = Verdict.REPRODUCED, Verdict.PARTLY, Verdict.NOT_REPRODUCED


def runs_of(section, accuracy, epsilon=0.01, seeds=2):
    """Made-up runs of one section of the full form, whose accuracies in percent depend on the cell; 1,974 rounds."""
    own = [experiment for experiment in proactive_dp.experiments(False) if experiment.section == section]
    runs = made_up(own, lambda one, seed: (accuracy(*one.cell) + 0.01 * seed) / 100, seeds, epsilon=epsilon)
    for experiment in own:
        for run in runs.of(section, experiment.cell).values():
            size = run.scenario["algorithm"]["sizes"]["value"]
            run.metrics["rounds"] = run.metrics["rounds"] * math.ceil(37_500 / size) // 100
    return runs


def rising(problem, epsilon, level=85.0):
    return 95.0 if epsilon == proactive_dp.OPEN else level + 10 * epsilon


def test_plans_are_those_of_the_papers_calculator():
    for own in proactive_dp.over_epsilon(proactive_dp.EPSILONS, 1):
        scenario = load(scenarios_folder() / own.base, own.overrides)
        if scenario.privacy is None:
            continue
        plan = simplified_plan(7_500, 37_500, epsilon=own.cell[1])
        assert scenario.algorithm.sizes.value == plan.batch
        assert plan.sigma <= scenario.privacy.noise_multiplier <= plan.sigma + 1e-3
        assert scenario.data.partition.size == 7_500
        assert scenario.algorithm.gradients == 5 * 37_500


def test_what_is_claimed_is_the_planned_epsilon():
    runs = runs_of(proactive_dp.BUDGETS, rising)
    for epsilon in proactive_dp.EPSILONS:
        run = runs.first(proactive_dp.BUDGETS, (proactive_dp.STRONGLY, epsilon))
        assert proactive_dp.claimed(run) == pytest.approx(epsilon, rel=2e-3)


@pytest.mark.parametrize(
    ("level", "epsilon", "verdict"),
    [(86.0, 0.01, YES), (75.0, 0.01, PARTLY), (86.0, 0.7, PARTLY)],
    ids=["within ten points", "far below", "claims too little"],
)
def test_the_headline(level, epsilon, verdict):
    found, evidence = proactive_dp.reaches(runs_of(proactive_dp.BUDGETS, lambda *cell: rising(*cell, level), epsilon))
    assert found == verdict
    assert "points lost at 0.05 (bar: 10 points; the paper loses 7)" in evidence


def test_the_headline_can_fail():
    def fallen(problem, epsilon):
        return 95.0 if epsilon == proactive_dp.OPEN else 75 - 10 * epsilon

    falling = runs_of(proactive_dp.BUDGETS, fallen, epsilon=0.7)
    assert proactive_dp.reaches(falling)[0] == NO
    assert proactive_dp.grows(falling)[0] == NO
    assert proactive_dp.grows(runs_of(proactive_dp.BUDGETS, rising))[0] == YES


def test_the_bar_is_on_the_mean():
    assert proactive_dp.within([9.0, 10.0, 11.0])
    assert not proactive_dp.within([9.0, 10.0, 12.0])
    assert not proactive_dp.within([1.0, math.nan])


def test_sizes():
    grown = runs_of(proactive_dp.SIZES, lambda problem, size: 50 + size / 2)
    verdict, evidence = proactive_dp.largest_best(grown)
    assert verdict == YES
    assert "beyond the plan 70.0 % at 40, 90.0 % at 80" in evidence
    fallen = runs_of(proactive_dp.SIZES, lambda problem, size: 90 - size / 2)
    assert proactive_dp.largest_best(fallen)[0] == NO


@pytest.mark.parametrize(
    ("private", "epsilon", "verdict"), [(90.0, 0.02, YES), (85.0, 0.02, PARTLY), (85.0, 0.5, NO)]
)  # fmt: skip
def test_the_network(private, epsilon, verdict):
    runs = runs_of(proactive_dp.LENET5, lambda epsilon: 97.0 if epsilon == proactive_dp.OPEN else private, epsilon)
    assert proactive_dp.network(runs)[0] == verdict


def test_coverage():
    assert proactive_dp.covers(runs_of(proactive_dp.SIZES, lambda *cell: 80.0, 0.01))[0] == YES
    assert proactive_dp.covers(runs_of(proactive_dp.SIZES, lambda *cell: 80.0, 0.1))[0] == PARTLY
    assert proactive_dp.covers(runs_of(proactive_dp.SIZES, lambda *cell: 80.0, 0.9))[0] == NO
    assert proactive_dp.covers(runs_of(proactive_dp.SIZES, lambda *cell: 80.0, None))[0] == NO


def test_the_tables(monkeypatch):
    assert proactive_dp.four_to_five(made_up([]))[0] == YES
    assert proactive_dp.tight(made_up([]))[0] == PARTLY
    monkeypatch.setattr(proactive_dp, "spent", lambda table, batch: (0.01, 0.01))
    assert proactive_dp.tight(made_up([]))[0] == NO
    assert proactive_dp.four_to_five(made_up([]))[0] == PARTLY, "the sizes are what they were"


def test_numbers_of_the_tables():
    for number in proactive_dp.table_numbers(made_up([])):
        if number.paper is not None and "γ = 1/2" not in number.column:
            assert number.difference == pytest.approx(0, abs=0.011 * number.paper), number
