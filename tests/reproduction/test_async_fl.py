"""The study of growing sample sizes: its verdicts follow from accuracies, rounds and epsilons."""

import math

import pytest

from simfl.reproduction import Verdict, async_fl, find_paper
from simfl.reproduction.page import numbers_of
from simfl.reproduction.running import counted
from simfl.theory.async_fl.sizes import PolynomialSizes
from tests.reproduction.made_up import made_up

YES, PARTLY, NO = Verdict.REPRODUCED, Verdict.PARTLY, Verdict.NOT_REPRODUCED


def runs_of(part, accuracy, rounds=lambda name: 100, **others):
    """Made-up runs of one part of the full form, whose accuracies in percent and rounds depend on the name."""
    settings = [setting for setting in async_fl.settings(False) if setting.part == part]
    runs = made_up(settings, lambda part, name, seed: (accuracy(name) + 0.01 * seed) / 100, seeds=2, **others)
    for setting in settings:
        for run in runs.of(part, setting.name).values():
            run.metrics["rounds"] = run.metrics["rounds"] * rounds(setting.name) // 100
    return runs


def as_counted(name):
    return async_fl.FIGURE3[name.rsplit(", ", 1)[1]]


@pytest.mark.parametrize(
    ("lost", "rounds", "verdict"),
    [
        (lambda name: 0.0, as_counted, YES),
        (lambda name: 5.0 * ("sum" in name), as_counted, PARTLY),
        (lambda name: 5.0, as_counted, NO),
        (lambda name: 0.0, lambda name: 100, NO),
    ],
    ids=["equal", "the sum overshoots", "always worse", "not fewer rounds"],
)
def test_growing_sizes_need_fewer_rounds(lost, rounds, verdict):
    def accuracy(name):
        return 84.0 - (lost(name) if name.endswith(async_fl.LINEAR) else 0.0)

    found, evidence = async_fl.fewer_rounds(runs_of(async_fl.GROWING, accuracy, rounds))
    assert found == verdict
    assert ("overshoots" in evidence) == (verdict == PARTLY)
    if rounds is as_counted:
        assert evidence.startswith("28 rounds instead of 400")


def test_rounds_are_compared_with_the_papers_count():
    runs = runs_of(async_fl.GROWING, lambda name: 84.0, as_counted)
    assert async_fl.counts_of_rounds(runs)[0] == YES
    more = runs_of(async_fl.GROWING, lambda name: 84.0, lambda name: as_counted(name) + 1)
    assert async_fl.counts_of_rounds(more)[0] == NO
    for kind in list(async_fl.KINDS)[:-1]:
        power = float(async_fl.KINDS[kind].split()[-1].rstrip("}"))
        assert PolynomialSizes(50, c=power).rounds_for(20_000) == async_fl.FIGURE3[kind]


@pytest.mark.parametrize(
    ("ahead", "verdict", "growing"),
    [
        (lambda name: 2.0 * name.endswith((async_fl.GROWN, "growing")), YES, "growing does not"),
        (lambda name: 2.0 * name.startswith("MNIST") * name.endswith((": growing", "growing")), PARTLY, "does not"),
        (lambda name: -2.0 * name.endswith("growing"), NO, ""),
    ],
    ids=["everywhere", "on the network alone", "nowhere"],
)
def test_growing_sizes_with_privacy(ahead, verdict, growing):
    runs = runs_of(async_fl.PRIVATE, lambda name: 90 + ahead(name), epsilon=0.136)
    found, evidence = async_fl.better_with_privacy(runs)
    assert found == verdict
    assert growing in evidence
    assert "0.136, 0.136, 0.136" in evidence
    assert "the paper claims 1" in evidence


def test_an_advantage_must_show_in_every_seed():
    settings = [setting for setting in async_fl.settings(False) if setting.part == async_fl.PRIVATE]
    runs = made_up(settings, lambda part, name, seed: 0.8 + 0.1 * name.endswith(": growing") * (-1) ** seed)
    assert async_fl.better_with_privacy(runs)[0] == NO


@pytest.mark.parametrize(("epsilon", "verdict"), [(0.136, YES), (1.2, NO), (None, NO)])
def test_a_claim_is_held_against_the_certificate(epsilon, verdict):
    assert async_fl.certified(runs_of(async_fl.PRIVATE, lambda name: 97.0, epsilon=epsilon))[0] == verdict


def test_aggregated_noise(monkeypatch):
    found = {async_fl.GROWN: 21.5, async_fl.SIXTEEN: 43.1, async_fl.AS_MANY: 19.9}
    monkeypatch.setattr(async_fl, "aggregated", lambda: found)
    verdict, evidence = async_fl.less_noise(made_up([]))
    assert verdict == YES
    assert "growing does not" in evidence
    found[async_fl.GROWN] = 50.0
    assert async_fl.less_noise(made_up([]))[0] == NO


def test_constant_sizes():
    def accuracy(name):
        size = int(name.rsplit(" ", 1)[1])
        return 84.0 if size <= 200 or async_fl.MEAN in name else 84.0 - size / 100

    runs = runs_of(async_fl.CONSTANT, accuracy)
    assert async_fl.best_sizes(runs)[0] == YES
    verdict, evidence = async_fl.collapse(runs)
    assert verdict == YES
    assert "with the mean of the clients instead of their sum 0.0 on a9a" in evidence
    level = runs_of(async_fl.CONSTANT, lambda name: 84.0)
    assert (async_fl.best_sizes(level)[0], async_fl.collapse(level)[0]) == (NO, NO)


def test_a_run_that_diverged_has_collapsed():
    runs = runs_of(async_fl.CONSTANT, lambda name: 84.0)
    for setting in async_fl.settings(False):
        if setting.part == async_fl.CONSTANT and setting.name.endswith("s = 1000"):
            for run in runs.of(setting.part, setting.name).values():
                run.status = "diverged"
                assert math.isnan(async_fl.accuracy(run))
    assert async_fl.collapse(runs)[0] == YES


def test_steps():
    def best_constant(above):
        falling = (async_fl.PER_ROUND, async_fl.PER_GRADIENT)
        return runs_of(
            async_fl.STEPS, lambda name: 90.0 if name.endswith(falling) else 90.0 + above if ": 0.1," in name else 70.0
        )

    assert async_fl.falling_steps(best_constant(-0.5))[0] == YES
    assert async_fl.falling_steps(best_constant(2.0))[0] == PARTLY
    assert async_fl.falling_steps(runs_of(async_fl.STEPS, lambda name: 80.0 + 9 * name.endswith("constant")))[0] == NO
    assert async_fl.steps_alike(best_constant(0.0))[0] == YES
    apart = runs_of(async_fl.STEPS, lambda name: 90.0 if async_fl.PER_ROUND in name else 80.0)
    assert async_fl.steps_alike(apart)[0] == NO
    assert async_fl.small_constant_steps(apart)[0] == YES
    assert async_fl.small_constant_steps(runs_of(async_fl.STEPS, lambda name: 90.0))[0] == NO


@pytest.mark.parametrize(("apart", "verdict"), [(1.0, YES), (-3.0, NO), (3.0, NO)])
def test_biased_data(apart, verdict):
    runs = runs_of(async_fl.BIASED, lambda name: 90 + apart * name.endswith(", biased"))
    found, evidence = async_fl.insensitive(runs)
    assert found == verdict
    assert ("overshoots" in evidence) == (apart > 2)


def test_one_digit_each_and_both_digits_for_both():
    from simfl.reproduction.running import scenarios_folder
    from simfl.scenario import load

    one, both = (
        load(scenarios_folder() / setting.base, setting.overrides) for setting in async_fl.settings(False)
        if setting.name.startswith("MNIST 0 and 1")
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
    runs = runs_of(async_fl.CONSTANT, lambda name: 84.0, lambda name: 80)
    text = "\n".join(numbers_of(counted(paper, runs)))
    assert "| a9a, strongly convex, sum | 84.02 ± 0.06 (84.18, -0.17)" in text
    assert "| rounds | 80 (80, +0) | 80 (40, +40) |" in text
