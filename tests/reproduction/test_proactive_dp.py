"""The study of Proactive DP: what is planned is claimed and certified, and verdicts follow from accuracies."""

import math

import pytest

from simfl.reproduction import Verdict, proactive_dp
from simfl.reproduction.running import scenarios_folder
from simfl.scenario import load
from simfl.theory.proactive_dp.theorems import simplified_plan
from tests.reproduction.made_up import made_up

YES, PARTLY, NO = Verdict.REPRODUCED, Verdict.PARTLY, Verdict.NOT_REPRODUCED


def runs_of(part, accuracy, epsilon=0.01, seeds=2):
    """Made-up runs of one part of the full form, whose accuracies in percent depend on the name; 1,974 rounds."""
    settings = [setting for setting in proactive_dp.settings(False) if setting.part == part]
    runs = made_up(settings, lambda part, name, seed: (accuracy(name) + 0.01 * seed) / 100, seeds, epsilon=epsilon)
    for setting in settings:
        for run in runs.of(part, setting.name).values():
            size = run.scenario["algorithm"]["sizes"]["value"]
            run.metrics["rounds"] = run.metrics["rounds"] * math.ceil(37_500 / size) // 100
    return runs


def rising(name, level=85.0):
    return 95.0 if "no privacy" in name else level + 10 * float(name.rsplit(" ", 1)[1])


def test_plans_are_those_of_the_papers_calculator():
    for setting in proactive_dp.over_epsilon(proactive_dp.EPSILONS, 1):
        scenario = load(scenarios_folder() / setting.base, setting.overrides)
        if scenario.privacy is None:
            continue
        plan = simplified_plan(7_500, 37_500, epsilon=float(setting.name.rsplit(" ", 1)[1]))
        assert scenario.algorithm.sizes.value == plan.batch
        assert plan.sigma <= scenario.privacy.noise_multiplier <= plan.sigma + 1e-3
        assert scenario.data.partition.size == 7_500
        assert scenario.algorithm.gradients == 5 * 37_500


def test_what_is_claimed_is_the_planned_epsilon():
    runs = runs_of(proactive_dp.BUDGETS, rising)
    for epsilon, name in proactive_dp.epsilons_of(runs, proactive_dp.STRONGLY).items():
        assert proactive_dp.claimed(runs.first(proactive_dp.BUDGETS, name)) == pytest.approx(epsilon, rel=2e-3)


@pytest.mark.parametrize(
    ("level", "epsilon", "verdict"),
    [(86.0, 0.01, YES), (75.0, 0.01, PARTLY), (86.0, 0.7, PARTLY)],
    ids=["within ten points", "far below", "claims too little"],
)
def test_the_headline(level, epsilon, verdict):
    found, evidence = proactive_dp.reaches(runs_of(proactive_dp.BUDGETS, lambda n: rising(n, level), epsilon))
    assert found == verdict
    assert "points lost at 0.05 (bar: 10 points; the paper loses 7)" in evidence


def test_the_headline_can_fail():
    falling = runs_of(proactive_dp.BUDGETS, lambda name: 160 - rising(name) if "ε" in name else 95.0, epsilon=0.7)
    assert proactive_dp.reaches(falling)[0] == NO
    assert proactive_dp.grows(falling)[0] == NO
    assert proactive_dp.grows(runs_of(proactive_dp.BUDGETS, rising))[0] == YES


def test_the_bar_is_on_the_mean():
    assert proactive_dp.within([9.0, 10.0, 11.0])
    assert not proactive_dp.within([9.0, 10.0, 12.0])
    assert not proactive_dp.within([1.0, math.nan])


def test_sizes():
    grown = runs_of(proactive_dp.SIZES, lambda name: 50 + float(name.rsplit(" ", 1)[1]) / 2)
    verdict, evidence = proactive_dp.largest_best(grown)
    assert verdict == YES
    assert "beyond the plan 70.0 % at 40, 90.0 % at 80" in evidence
    fallen = runs_of(proactive_dp.SIZES, lambda name: 90 - float(name.rsplit(" ", 1)[1]) / 2)
    assert proactive_dp.largest_best(fallen)[0] == NO


@pytest.mark.parametrize(
    ("private", "epsilon", "verdict"), [(90.0, 0.02, YES), (85.0, 0.02, PARTLY), (85.0, 0.5, NO)]
)  # fmt: skip
def test_the_network(private, epsilon, verdict):
    runs = runs_of(proactive_dp.LENET5, lambda name: private if name == proactive_dp.PRIVATE else 97.0, epsilon)
    assert proactive_dp.network(runs)[0] == verdict


def test_coverage():
    assert proactive_dp.covers(runs_of(proactive_dp.SIZES, lambda name: 80.0, 0.01))[0] == YES
    assert proactive_dp.covers(runs_of(proactive_dp.SIZES, lambda name: 80.0, 0.1))[0] == PARTLY
    assert proactive_dp.covers(runs_of(proactive_dp.SIZES, lambda name: 80.0, 0.9))[0] == NO
    assert proactive_dp.covers(runs_of(proactive_dp.SIZES, lambda name: 80.0, None))[0] == NO


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
