"""Bounds by hand, constants by an independent computation, and how a curve is judged."""

import math
import types

import numpy as np
import pytest

from simfl.assembly.assemble import prepare
from simfl.errors import ConditionError
from simfl.papers.theorems import async_fl
from simfl.papers.theorems.judging import Curve, Statement, slope_of
from simfl.papers.theorems.problems import problem_of
from simfl.scenario import load
from simfl.studies.papers import Experiment, Runs, Section
from simfl.studies.reproducing import scenarios_folder

AT = np.array([1.0, 100.0, 4000.0])


def scenario(*changes):
    return load(scenarios_folder() / async_fl.BASE, changes)


def test_theorem_2_by_hand():
    # N = 1, mu = 0.1, t = 4000: 8 * 1296 / (0.01 * 4000) = 259.2
    assert async_fl.theorem2_bound(np.array([4000.0]), 0.5, 0.1)[0] == pytest.approx(259.2)


def test_theorem_5_by_hand():
    # m = 9, t = 75: x = 25 + 75 = 100, sqrt(100 / ln 100) = 4.65990; M1 = 10: 75 + 20 + 4.65990 - 1 = 98.65990;
    # N = 1, mu = 0.5: 8 * 1296 / 0.25 * 75 / 98.65990^2 = 319.5454
    assert async_fl.theorem5_bound(np.array([75.0]), 0.5, 0.5, 9, 10.0)[0] == pytest.approx(319.5454, rel=1e-5)


def test_theorem_4_has_the_inputs_of_the_papers_example_4():
    # The paper's own selection gives m = 671.4; the corrected one is within 6 % of it.
    assert async_fl.PLAN.sizes().size(0) == 16
    assert async_fl.PLAN.claim.m == pytest.approx(671.376, rel=0.06)
    budget = async_fl.PLAN.claim.budget
    assert async_fl.DELTAS["as printed"] == pytest.approx(math.exp(-(budget**2)))
    assert async_fl.DELTAS["with an integer λ"] == pytest.approx(math.exp(2.0 - budget**2))


def test_the_constants_of_a_quadratic_are_those_of_its_points():
    checked = scenario("data.owners=2", "data.heterogeneity=0.5", "clients=2")
    own, points = problem_of(checked.resolved()), prepare(checked).dataset.train_x.astype(np.float64)
    h = np.geomspace(1.0, 0.25, 10)
    center, halves = points.mean(axis=0), [points[0::2], points[1::2]]
    assert own.noise == pytest.approx(np.mean([((h * (center - a)) ** 2).sum() for a in points]), rel=1e-5)
    assert own.drift == pytest.approx(
        np.mean([((h * (half.mean(axis=0) - center)) ** 2).sum() for half in halves]), rel=1e-4
    )
    assert own.spread == pytest.approx(max((h**2 * half.var(axis=0)).sum() for half in halves), rel=1e-4)
    assert (own.smoothness, own.strong_convexity) == pytest.approx((1.0, 0.25))


def test_the_constants_of_a_logistic_problem_bound_its_gradients():
    checked = scenario(*async_fl.PROBLEMS["logistic"])
    own, data = problem_of(checked.resolved()), prepare(checked).dataset
    x, y = data.train_x.astype(np.float64), np.where(data.train_y > 0, 1.0, -1.0)
    for w in (np.zeros(5), data.optimum, data.optimum + np.array([3.0, 0.0, 0.0, -1.0, 0.0])):
        loss = -(y / (1.0 + np.exp(y * (x @ w))))[:, None] * x
        assert np.linalg.norm(loss, axis=1).max() <= own.lipschitz
        assert ((loss - loss.mean(axis=0)) ** 2).sum(axis=1).mean() <= own.drift
        largest = np.linalg.norm(loss + 0.5 * w, axis=1).max()
        assert largest <= own.gradient_bound(float(np.linalg.norm(w - data.optimum))) + 1e-9
    assert (loss + 0.5 * w).shape == (1000, 5)
    at = -(y / (1.0 + np.exp(y * (x @ data.optimum))))[:, None] * x + 0.5 * data.optimum
    assert np.linalg.norm(at.mean(axis=0)) < 1e-6
    assert own.noise == pytest.approx((at**2).sum(axis=1).mean())
    assert own.smoothness == pytest.approx((x**2).sum(axis=1).max() / 4 + 0.5)


def test_problems_without_known_constants_are_refused():
    with pytest.raises(ConditionError, match="drawn quadratic or logistic"):
        problem_of(load(scenarios_folder() / "known" / "matrices.yaml").resolved())


def test_a_recipe_for_a_smoother_problem_does_not_apply():
    whole = scenario(*async_fl.PROBLEMS["logistic"], "algorithm.sizes.smoothness=1").resolved()
    with pytest.raises(ConditionError, match=r"L = 1 and mu = 0\.5"):
        async_fl.theorem5(types.SimpleNamespace(scenario=whole))


def runs_of(section, *values):
    """Runs of one cell; a run is a number."""
    return Runs({Experiment(section, ("all",), ""): dict(enumerate(values, start=1))})


@pytest.mark.parametrize(("level", "held"), [(0.5, True), (2.0, False), (1.0, None)])
def test_a_curve_is_judged_by_its_largest_share_of_the_bound(level, held):
    own = Statement(Section("s"), lambda run: Curve(AT, np.array([0.1, run, 0.2]), np.ones(3)), "x")
    (reading,) = own.holds(runs_of(own.section, *(level * factor for factor in (0.9, 0.95, 1.0, 1.05, 1.1))))
    assert reading.held is held


@pytest.mark.parametrize(("power", "held"), [(-1.0, True), (-0.5, False), (-1.3, True)])
def test_a_slope_is_compared_with_that_of_the_bound(power, held):
    steps = np.geomspace(1.0, 1000.0, 50)
    own = Statement(Section("s"), lambda run: Curve(steps, run * steps**power, 1 / steps), "x")
    (reading,) = own.falls(runs_of(own.section, 1.0, 1.1, 1.2, 1.3, 1.4))
    assert reading.held is held
    assert slope_of(steps, steps**power) == pytest.approx(power)


def test_a_theorem_whose_condition_fails_is_neither_held_nor_refuted():
    def measure(run):
        raise ConditionError("the step is too large")

    own = Statement(Section("s"), measure, "x")
    for readings in (own.holds, own.falls):
        (reading,) = readings(runs_of(own.section, 1, 2, 3, 4, 5))
        assert reading.held is None
        assert reading.evidence == "not applicable here: the step is too large"
    assert not list(own.numbers(runs_of(own.section, 1, 2)))
