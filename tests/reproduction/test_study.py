import dataclasses
import math

import pytest

from simfl.errors import ScenarioError
from simfl.reproduction import Experiment, Number, Section, Verdict, find_paper
from simfl.reproduction.study import NotMeasuredError, judge, show
from tests.reproduction.made_up import made_up

TABLE, ELSEWHERE = Section("table", ("ε = {:g}", "b = {}")), Section("elsewhere")
CELL = ("convex", 0.50, 16)
EXPERIMENT = Experiment(TABLE, CELL, "demo/adpsgd.yaml", seeds=3)


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


def test_cells_are_found_by_what_they_are_and_written_in_words():
    assert EXPERIMENT.label == "convex, ε = 0.5, b = 16"
    assert TABLE.label("convex", 0.1) == "convex, ε = 0.1"
    other = dataclasses.replace(EXPERIMENT, cell=("convex", 0.5, 32))
    runs = made_up([EXPERIMENT, other], lambda own, seed: own.cell[-1] / 100, seeds=1)
    assert runs.cells(TABLE, "convex", 0.5) == [CELL, other.cell]
    assert runs.cells(TABLE, "convex", 1.0) == []
    assert runs.accuracies(TABLE, "convex", 0.5) == {16: pytest.approx((16,)), 32: pytest.approx((32,))}
    assert runs.accuracies(TABLE, "convex") == {}
    assert runs.has(TABLE, CELL, other.cell)
    assert runs.has(TABLE)
    assert not runs.has(TABLE, CELL, ("convex", 0.5))
    assert not runs.has(ELSEWHERE)


def test_pairs_are_of_one_seed_and_what_is_missing_is_said():
    runs = made_up([EXPERIMENT], lambda own, seed: 0.5 + 0.1 * seed, seeds=3)
    assert runs.accuracy(TABLE, CELL) == pytest.approx((60, 70, 80))
    assert runs.pairs(TABLE, CELL, CELL, lambda one, other: one.manifest.seed - other.manifest.seed) == (0, 0, 0)
    with pytest.raises(NotMeasuredError, match=r"table, strongly, b: no finished run"):
        runs.accuracy(TABLE, ("strongly", "b"))
    with pytest.raises(NotMeasuredError, match="elsewhere"):
        runs.require(TABLE, ELSEWHERE)


def test_a_run_that_diverged_has_no_accuracy_and_is_ahead_of_none():
    runs = made_up([EXPERIMENT], seeds=2)
    runs.of(TABLE, CELL)[2].status = "diverged"
    for first, second in (runs.accuracy(TABLE, CELL), runs.ahead(TABLE, CELL, CELL)):
        assert first in (80, 0)
        assert math.isnan(second)


def test_the_name_of_a_paper_may_be_written_with_dashes():
    assert find_paper("without-replacement") is find_paper("without_replacement")


def test_papers_have_names():
    with pytest.raises(ScenarioError, match=r"expected one of adp2sgd, .*; did you mean 'mapa'\?"):
        find_paper("maps")
