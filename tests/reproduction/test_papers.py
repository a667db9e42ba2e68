import dataclasses
import math

import pytest

from simfl.errors import ScenarioError
from simfl.reproduction.evidence import NotMeasuredError, Reading, Verdict
from simfl.reproduction.papers import Experiment, Number, Paper, PaperClaim, Runs, Section
from simfl.reproduction.reading import judged
from simfl.reproduction.reproducing import find_paper
from tests.papers.made_up import made_up

TABLE, ELSEWHERE = Section("table", ("ε = {:g}", "b = {}")), Section("elsewhere")
CELL = ("convex", 0.50, 16)
EXPERIMENT = Experiment(TABLE, CELL, "demo/adpsgd.yaml", seeds=3)


def test_numbers_have_a_difference_from_the_papers():
    number = Number("t", "r", "c", (1.0, 3.0), paper=1.5)
    assert number.difference == 0.5
    assert math.isnan(Number("t", "r", "c", (1.0,)).difference)


def test_cells_are_found_by_their_elements_and_written_in_words():
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


def test_pairs_have_equal_seeds_and_missing_runs_are_named():
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


def test_a_claim_of_which_a_reading_has_no_run_was_not_run():
    claim = PaperClaim("It holds.", lambda runs: [Reading({"data": "all"}, [])])
    paper = Paper("made_up", "Made up", lambda quick: (), (claim,), part=" --only one")
    (judgment,) = judged(paper, Runs({}))
    assert judgment.verdict is Verdict.NOT_RUN
    assert judgment.evidence == "run by `simfl reproduce made-up`"
    assert judgment.counts.undecided == 0


def test_the_name_of_a_paper_may_be_written_with_dashes():
    assert find_paper("without-replacement") is find_paper("without_replacement")


def test_papers_have_names():
    with pytest.raises(ScenarioError, match=r"expected one of adp2sgd, .*; did you mean 'mapa'\?"):
        find_paper("maps")
