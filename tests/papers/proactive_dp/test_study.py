"""The study of Proactive DP: plans, claims and certified epsilons agree, and verdicts follow from accuracies."""

import dataclasses
import math

import pytest

from simfl.papers.proactive_dp import study as proactive_dp
from simfl.papers.proactive_dp.theorems import plan_rounds, simplified_plan
from simfl.reproduction.evidence import Verdict, gathered, verdict_of
from simfl.reproduction.reproducing import scenarios_folder
from simfl.scenario import load
from tests.papers.made_up import made_up

pytestmark = pytest.mark.slow

OWN, ALL = proactive_dp.OWN, proactive_dp.ALL
BUDGETS, GRAPH, SIZES, STEPS = proactive_dp.BUDGETS, proactive_dp.GRAPH, proactive_dp.SIZES, proactive_dp.STEPS


def held(check, runs):
    """Return whether each reading holds, in order."""
    return [reading.held for reading in gathered(check(runs))]


def runs_of(sections, accuracy, epsilon=0.01, seeds=6):
    """Make runs of some sections of the full form; `accuracy` gives the percent of a cell."""
    own = [experiment for experiment in proactive_dp.experiments(False) if experiment.section in sections]
    runs = made_up(own, lambda one, seed: (accuracy(*one.cell) + 0.01 * seed) / 100, seeds, epsilon=epsilon)
    for experiment in own:
        for run in runs.of(experiment.section, experiment.cell).values():
            if experiment.section == GRAPH:
                continue
            size = run.scenario["algorithm"]["sizes"]["value"]
            run.metrics["rounds"] = run.metrics["rounds"] * math.ceil(37_500 / size) // 100
    return runs


def rising(problem, *cell, level=85.0):
    return 95.0 if cell[-1] in proactive_dp.BASELINES else level + 10 * cell[-1]


def test_plans_are_those_of_the_papers_calculator():
    for own in proactive_dp.over_epsilon(proactive_dp.EPSILONS, 1):
        scenario = load(scenarios_folder() / own.base, own.overrides)
        if own.cell[2] in proactive_dp.BASELINES:
            assert scenario.privacy is None or scenario.privacy.noise_multiplier == 0
            continue
        plan = simplified_plan(7_500, 37_500, epsilon=own.cell[2])
        assert scenario.algorithm.sizes.value == plan.batch
        assert scenario.algorithm.step_size_of == ("each" if own.cell[1] == OWN else "all")
        assert plan.sigma <= scenario.privacy.noise_multiplier <= plan.sigma + 1e-3
        assert scenario.data.partition.size == 7_500
        assert scenario.algorithm.gradients == 5 * 37_500


def test_the_claim_is_the_planned_epsilon():
    runs = runs_of((BUDGETS,), rising)
    for epsilon in proactive_dp.EPSILONS:
        run = runs.first(BUDGETS, (proactive_dp.STRONGLY, OWN, epsilon))
        assert proactive_dp.claimed(run) == pytest.approx(epsilon, rel=2e-3)


@pytest.mark.parametrize(
    ("level", "epsilon", "each"),
    [(86.0, 0.01, True), (75.0, 0.01, False), (86.0, 0.7, False)],
    ids=["within ten points", "far below", "claims too little"],
)
def test_the_headline_holds_within_ten_points_and_within_the_claim(level, epsilon, each):
    runs = runs_of((STEPS, BUDGETS), lambda *cell: rising(*cell, level=level), epsilon)
    readings = gathered(proactive_dp.reaches(runs))
    assert len(readings) == 2 * 2, "one best first step for all cases"
    assert {reading.held for reading in readings} == {each}
    assert readings[0].label == (
        "t counts: a client's own gradients, η₀ is the best: at ε = 0.05 and no privacy, against: no privacy "
        "(nearest to the paper)"
    )
    assert [part.text.partition(",")[0] for part in readings[0].parts][::3] == ["strongly convex", "plain convex"]
    assert "points lost (bar: 10; the paper loses 7)" in readings[0].evidence
    (first, *_) = gathered(proactive_dp.reaches(runs_of((BUDGETS,), lambda *cell: rising(*cell, level=level), epsilon)))
    assert first.held is each, "the quick form has only the first steps of the figures"


def test_first_steps_that_are_best_for_plans_and_without_privacy_are_two_readings():
    def accuracy(problem, count, *cell):
        best = {proactive_dp.OPEN: 0.3}.get(cell[-1], 0.1)
        return rising(problem, *cell) - 5 * (len(cell) == 2 and cell[0] != best)

    readings = gathered(proactive_dp.reaches(runs_of((STEPS, BUDGETS), accuracy)))
    assert [reading.choices["η₀ is the best"] for reading in readings[:2]] == ["at ε = 0.05", "no privacy"]
    assert len(readings) == 2 * 2 * 2


def test_verdicts_on_sizes_follow_the_curve():
    grown = runs_of((SIZES,), lambda problem, size: 50 + size / 2)
    assert held(proactive_dp.smallest_worst, grown) == held(proactive_dp.largest_best, grown) == [True]
    fallen = runs_of((SIZES,), lambda problem, size: 90 - size / 2)
    assert held(proactive_dp.smallest_worst, fallen) == held(proactive_dp.largest_best, fallen) == [False]
    level = runs_of((SIZES,), lambda problem, size: 50 if size == 1 else 80)
    assert held(proactive_dp.smallest_worst, level) == [True]
    assert held(proactive_dp.largest_best, level) == [False], "equal accuracies are not the best"


@pytest.mark.parametrize(("private", "epsilon", "each"), [(90.0, 0.02, True), (80.0, 0.02, False), (90.0, 0.5, False)])
def test_the_network_needs_a_small_loss_and_a_covered_epsilon(private, epsilon, each):
    """Two seeds decide nothing; the verdict names the smaller budget as the reason."""
    experiments = [dataclasses.replace(one, seeds=6) for one in proactive_dp.on_lenet5(2)]

    def accuracy(one, seed):
        return (97.0 if one.cell == (proactive_dp.OPEN,) else private) / 100

    runs = made_up(experiments, accuracy, 6, epsilon=epsilon)
    for run in runs.of(proactive_dp.LENET5, (0.152,)).values():
        run.metrics["rounds"] = run.metrics["rounds"] * 417 // 100
    assert held(proactive_dp.network, runs) == [each]
    two = made_up(experiments, accuracy, 2, epsilon=0.001)
    assert verdict_of(list(proactive_dp.network(two)), "two passes") == Verdict.UNDECIDABLE


def test_coverage_needs_every_certified_epsilon_below_its_claim():
    for epsilon, covered in ((0.01, True), (0.1, False), (0.9, False), (None, False)):
        assert held(proactive_dp.covers, runs_of((SIZES,), lambda *cell: 80.0, epsilon)) == [covered]


def test_verdicts_on_the_tables_follow_their_epsilons(monkeypatch):
    assert held(proactive_dp.four_to_five, made_up([])) == [True]
    readings = gathered(proactive_dp.tight(made_up([])))
    assert [(reading.held, reading.own) for reading in readings] == [
        (False, True), (True, False), (False, False), (True, False),
    ]  # fmt: skip
    assert [part.held for part in readings[0].parts] == [False, False, True], "Table 11 alone is violated at 4"
    monkeypatch.setattr(proactive_dp, "spent", lambda table, batch: (0.01, 0.01))
    assert held(proactive_dp.tight, made_up([])) == [False] * 4
    assert held(proactive_dp.four_to_five, made_up([])) == [False]


def test_numbers_of_the_tables_are_the_papers():
    for number in proactive_dp.table_numbers(made_up([])):
        if number.paper is not None and "γ = 1/2" not in number.column:
            assert number.difference == pytest.approx(0, abs=0.011 * number.paper), number


@pytest.mark.parametrize(
    ("graph", "run", "expected"),
    [
        ((84, 83, 75, 40), (85, 84, 70, 35), True),
        ((88, 87, 86, 84), (85, 84, 70, 35), False),
        ((84, 75, 70, 60), (95, 94, 93, 92), False),
        ((60, 50, 40, 30), (85, 84, 70, 35), False),
        ((60, 50, 40, 30), (70, 60, 50, 40), True),
    ],
    ids=["as predicted", "too much noise", "too careful by far", "allows nothing", "rightly allows nothing"],
)
def test_the_utility_graph_is_judged_at_the_most_noise_that_it_allows(monkeypatch, graph, run, expected):
    noises = proactive_dp.PLANNED_NOISES
    by_noise, reached = dict(zip(noises, graph, strict=True)), dict(zip(noises, run, strict=True))

    def predicted(quiet, private):
        assert quiet.manifest.seed == private.manifest.seed
        return dict.fromkeys(proactive_dp.NOISES, by_noise[private.scenario["privacy"]["noise_multiplier"]])

    monkeypatch.setattr(proactive_dp, "predicted", predicted)
    runs = runs_of((GRAPH,), lambda cell: reached.get(cell, 92.0))
    readings = list(proactive_dp.foretells(runs))
    assert [reading.held for reading in readings] == [expected] * 3
    assert not any(reading.own for reading in readings), "the paper's data set is phishing"
    assert "wanted: 82.8 %" in readings[0].evidence
    few = list(proactive_dp.foretells(runs_of((GRAPH,), lambda cell: reached.get(cell, 92.0), seeds=4)))
    assert {reading.held for reading in few} == {None}


def test_the_utility_graph_is_judged_on_the_papers_data_too(monkeypatch):
    monkeypatch.setattr(proactive_dp, "predicted", lambda quiet, private: dict.fromkeys(proactive_dp.NOISES, 90.0))
    readings = list(proactive_dp.foretells(runs_of((BUDGETS,), lambda *cell: rising(*cell, level=87.0))))
    assert [reading.choices["data"] for reading in readings] == ["phishing, strongly convex"] * 3 + [
        "phishing, plain convex"
    ] * 3
    assert [reading.own for reading in readings] == [True, False, False] * 2
    assert {reading.held for reading in readings} == {True}


def test_plans_on_mnist_are_those_of_the_theorem():
    for own in proactive_dp.over_noises(1):
        scenario = load(scenarios_folder() / own.base, own.overrides)
        (case,) = own.cell
        if case in proactive_dp.BASELINES:
            assert scenario.privacy is None or scenario.privacy.noise_multiplier == 0
            continue
        plan = plan_rounds(15_000, epochs=10, delta=1 / 15_000, sigma=case)
        assert (scenario.algorithm.batch_size, scenario.stop.updates) == (plan.batch, 4 * plan.rounds)
        assert scenario.algorithm.step_size.initial == pytest.approx(0.3 * plan.batch / 64, rel=1e-5)
