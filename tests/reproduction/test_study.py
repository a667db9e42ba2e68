import math

import pytest

from simfl.errors import ScenarioError
from simfl.reproduction import Number, Setting, Verdict, find_paper
from simfl.reproduction.study import NotMeasuredError, judge, show
from tests.reproduction.made_up import made_up

SETTING = Setting("part", "name", "demo/adpsgd.yaml", seeds=3)


@pytest.mark.parametrize(
    ("held", "verdict"),
    [
        ([True], Verdict.REPRODUCED),
        ([True, True], Verdict.REPRODUCED),
        ([True, False], Verdict.PARTLY),
        ([False, False], Verdict.NOT_REPRODUCED),
    ],
)
def test_a_claim_of_several_parts(held, verdict):
    assert judge(*held) == verdict


def test_nothing_measured_is_no_success():
    with pytest.raises(NotMeasuredError):
        judge()


@pytest.mark.parametrize(
    ("values", "digits", "text"),
    [
        ((1.0,), 2, "1.00"),
        ((1.0, 1.0), 2, "1.00"),
        # half of the interval: t(1, 0.975) s / √2 = 12.706 · 0.70711 · 2 / √2
        ((1.0, 3.0), 1, "2.0 ± 12.7"),
        ((1.0, math.nan), 2, "diverged"),
        ((), 2, "-"),
    ],
)
def test_a_mean_with_its_interval(values, digits, text):
    assert show(values, digits) == text


def test_numbers_and_their_difference_from_the_papers():
    number = Number("t", "r", "c", (1.0, 3.0), paper=1.5)
    assert number.difference == 0.5
    assert math.isnan(Number("t", "r", "c", (1.0,)).difference)


def test_pairs_are_of_one_seed_and_what_is_missing_is_said():
    runs = made_up([SETTING], lambda part, name, seed: 0.5 + 0.1 * seed, seeds=3)
    assert runs.accuracy("part", "name") == pytest.approx((60, 70, 80))
    same = ("part", "name")
    assert runs.pairs(same, same, lambda one, other: one.manifest.seed - other.manifest.seed) == (0, 0, 0)
    with pytest.raises(NotMeasuredError, match=r"part, other: no finished run"):
        runs.accuracy("part", "other")
    with pytest.raises(NotMeasuredError, match="elsewhere"):
        runs.require("part", "elsewhere")


def test_a_run_that_diverged_has_no_accuracy():
    runs = made_up([SETTING], seeds=2)
    runs.of("part", "name")[2].status = "diverged"
    first, second = runs.accuracy("part", "name")
    assert first == 80
    assert math.isnan(second)


def test_papers_have_names():
    with pytest.raises(ScenarioError, match=r"expected one of adp2sgd, .*; did you mean 'mapa'\?"):
        find_paper("maps")
