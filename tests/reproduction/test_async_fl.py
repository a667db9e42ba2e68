"""The study of growing sample sizes: its verdicts follow from accuracies, rounds and epsilons."""

import math

import pytest

from simfl.reproduction import Verdict, async_fl, find_paper
from simfl.reproduction.page import numbers_of
from simfl.reproduction.running import counted
from simfl.theory.async_fl.sizes import PolynomialSizes
from tests.reproduction.made_up import made_up

YES, PARTLY, NO = Verdict.REPRODUCED, Verdict.PARTLY, Verdict.NOT_REPRODUCED


def runs_of(section, accuracy, rounds=lambda *cell: 100, **others):
    """Made-up runs of one section of the full form, whose accuracies in percent and rounds depend on the cell."""
    own = [experiment for experiment in async_fl.experiments(False) if experiment.section == section]
    runs = made_up(own, lambda one, seed: (accuracy(*one.cell) + 0.01 * seed) / 100, seeds=2, **others)
    for experiment in own:
        for run in runs.of(section, experiment.cell).values():
            run.metrics["rounds"] = run.metrics["rounds"] * rounds(*experiment.cell) // 100
    return runs


def as_counted(problem, way, kind):
    return async_fl.FIGURE3[kind]


@pytest.mark.parametrize(
    ("lost", "rounds", "verdict"),
    [
        ({}, as_counted, YES),
        ({async_fl.SUM: 5.0}, as_counted, PARTLY),
        ({async_fl.SUM: 5.0, async_fl.MEAN: 5.0}, as_counted, NO),
        ({}, lambda *cell: 100, NO),
    ],
    ids=["equal", "the sum overshoots", "always worse", "not fewer rounds"],
)
def test_growing_sizes_need_fewer_rounds(lost, rounds, verdict):
    def accuracy(problem, way, kind):
        return 84.0 - (lost.get(way, 0.0) if kind == async_fl.LINEAR else 0.0)

    found, evidence = async_fl.fewer_rounds(runs_of(async_fl.GROWING, accuracy, rounds))
    assert found == verdict
    assert ("overshoots" in evidence) == (verdict == PARTLY)
    if rounds is as_counted:
        assert evidence.startswith("28 rounds instead of 400")


def test_rounds_are_compared_with_the_papers_count():
    runs = runs_of(async_fl.GROWING, lambda *cell: 84.0, as_counted)
    assert async_fl.counts_of_rounds(runs)[0] == YES
    more = runs_of(async_fl.GROWING, lambda *cell: 84.0, lambda *cell: as_counted(*cell) + 1)
    assert async_fl.counts_of_rounds(more)[0] == NO
    for kind in list(async_fl.KINDS)[:-1]:
        power = float(async_fl.KINDS[kind].split()[-1].rstrip("}"))
        assert PolynomialSizes(50, c=power).rounds_for(20_000) == async_fl.FIGURE3[kind]


@pytest.mark.parametrize(
    ("ahead", "verdict", "rounds_alone"),
    [
        (lambda problem, role: 2.0 * (role in (async_fl.GROWN, async_fl.AS_MANY)), YES, True),
        (lambda problem, role: 2.0 * (problem == async_fl.LENET5 and role == async_fl.GROWN), PARTLY, False),
        (lambda problem, role: -2.0 * (role == async_fl.GROWN), NO, True),
    ],
    ids=["everywhere", "on the network alone", "nowhere"],
)
def test_growing_sizes_with_privacy(ahead, verdict, rounds_alone):
    runs = runs_of(async_fl.PRIVATE, lambda *cell: 90 + ahead(*cell), epsilon=0.136)
    found, evidence = async_fl.better_with_privacy(runs)
    assert found == verdict
    assert ("fewer rounds help, growing does not" in evidence) == rounds_alone
    assert "0.136, 0.136, 0.136" in evidence
    assert "the paper claims 1" in evidence


def test_an_advantage_must_show_in_every_seed():
    own = [experiment for experiment in async_fl.experiments(False) if experiment.section == async_fl.PRIVATE]
    runs = made_up(own, lambda one, seed: 0.8 + 0.1 * (one.cell[1] == async_fl.GROWN) * (-1) ** seed)
    assert async_fl.better_with_privacy(runs)[0] == NO


@pytest.mark.parametrize(("epsilon", "verdict"), [(0.136, YES), (1.2, NO), (None, NO)])
def test_a_claim_is_held_against_the_certificate(epsilon, verdict):
    assert async_fl.certified(runs_of(async_fl.PRIVATE, lambda *cell: 97.0, epsilon=epsilon))[0] == verdict


def test_aggregated_noise(monkeypatch):
    found = {async_fl.GROWN: 21.5, async_fl.SIXTEEN: 43.1, async_fl.AS_MANY: 19.9}
    monkeypatch.setattr(async_fl, "aggregated", lambda: found)
    verdict, evidence = async_fl.less_noise(made_up([]))
    assert verdict == YES
    assert "growing does not" in evidence
    found[async_fl.GROWN] = 50.0
    assert async_fl.less_noise(made_up([]))[0] == NO


def test_constant_sizes():
    def accuracy(problem, way, size):
        return 84.0 if size <= 200 or way == async_fl.MEAN else 84.0 - size / 100

    runs = runs_of(async_fl.CONSTANT, accuracy)
    assert async_fl.best_sizes(runs)[0] == YES
    verdict, evidence = async_fl.collapse(runs)
    assert verdict == YES
    assert "with the mean of the clients instead of their sum 0.0 on a9a" in evidence
    level = runs_of(async_fl.CONSTANT, lambda *cell: 84.0)
    assert (async_fl.best_sizes(level)[0], async_fl.collapse(level)[0]) == (NO, NO)


def test_a_run_that_diverged_has_collapsed():
    runs = runs_of(async_fl.CONSTANT, lambda *cell: 84.0)
    for cell in runs.cells(async_fl.CONSTANT):
        if cell[-1] == 1000:
            for run in runs.of(async_fl.CONSTANT, cell).values():
                run.status = "diverged"
            assert all(map(math.isnan, runs.accuracy(async_fl.CONSTANT, cell)))
    assert async_fl.collapse(runs)[0] == YES


def test_steps():
    def best_constant(above):
        found = {async_fl.PER_ROUND: 90.0, async_fl.PER_GRADIENT: 90.0, "0.1, constant": 90.0 + above}
        return runs_of(async_fl.STEPS, lambda problem, case: found.get(case, 70.0))

    assert async_fl.falling_steps(best_constant(-0.5))[0] == YES
    assert async_fl.falling_steps(best_constant(2.0))[0] == PARTLY
    behind = runs_of(async_fl.STEPS, lambda problem, case: 80.0 + 9 * (case in async_fl.CONSTANT_STEPS))
    assert async_fl.falling_steps(behind)[0] == NO
    assert async_fl.steps_alike(best_constant(0.0))[0] == YES
    apart = runs_of(async_fl.STEPS, lambda problem, case: 90.0 if async_fl.PER_ROUND in case else 80.0)
    assert async_fl.steps_alike(apart)[0] == NO
    assert async_fl.small_constant_steps(apart)[0] == YES
    assert async_fl.small_constant_steps(runs_of(async_fl.STEPS, lambda *cell: 90.0))[0] == NO


@pytest.mark.parametrize(("apart", "verdict"), [(1.0, YES), (-3.0, NO), (3.0, NO)])
def test_biased_data(apart, verdict):
    runs = runs_of(async_fl.BIASED, lambda case, kind: 90 + apart * (kind == "biased"))
    found, evidence = async_fl.insensitive(runs)
    assert found == verdict
    assert ("overshoots" in evidence) == (apart > 2)


def test_one_digit_each_and_both_digits_for_both():
    from simfl.reproduction.running import scenarios_folder
    from simfl.scenario import load

    one, both = (
        load(scenarios_folder() / own.base, own.overrides) for own in async_fl.experiments(False)
        if own.section == async_fl.BIASED and own.cell[0] == next(iter(async_fl.BIASED_CASES))
    )  # fmt: skip
    assert one.data.classes == both.data.classes == (0, 1)
    assert (one.data.partition.kind, both.data.partition.kind) == ("by_label", "iid")
    assert one.resolved()["model"] == both.resolved()["model"]


def test_examples_agree_with_the_paper():
    for number in async_fl.example_numbers(made_up([])):
        if number.paper is not None and not ("example 4" in number.row and number.column[-1] in "δr"):
            assert number.difference == pytest.approx(0, abs=2e-4 * abs(number.paper) + 1e-5), number


def test_numbers_stand_beside_the_papers():
    paper = find_paper("async-fl")
    runs = runs_of(async_fl.CONSTANT, lambda *cell: 84.0, lambda *cell: 80)
    text = "\n".join(numbers_of(counted(paper, runs)))
    assert "| a9a, strongly convex, sum | 84.02 ± 0.06 (84.18, -0.17)" in text
    assert "| rounds | 80 (80, +0) | 80 (40, +40) |" in text
