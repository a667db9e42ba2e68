"""Bounds by hand, constants by an independent computation, and how a curve is judged."""

import itertools
import math
import types

import numpy as np
import pandas as pd
import pytest

from simfl import run
from simfl.assembly.assemble import prepare
from simfl.errors import ConditionError
from simfl.papers.theorems import adp2sgd, async_fl, mapa, proactive_dp, without_replacement
from simfl.papers.theorems.judging import Curve, Statement, averages, drawing_of, falls, holds, informs, slope_of
from simfl.papers.theorems.problems import problem_of
from simfl.reproduction.papers import Experiment, Runs, Section
from simfl.reproduction.reproducing import scenarios_folder
from simfl.scenario import load

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


def test_theorem_4_is_judged_at_a_small_delta():
    plan = async_fl.PLAN
    assert all(inequality.holds for inequality in plan.conditions)
    assert async_fl.DELTAS["as printed"] == pytest.approx(math.exp(-(plan.claim.budget**2) / 2))
    assert async_fl.DELTAS["with an integer λ"] == pytest.approx(math.exp(1.0 - plan.claim.budget**2 / 2))
    assert max(async_fl.DELTAS.values()) < 1e-3 / plan.setting.num_examples


def test_the_best_case_is_the_mean_loss_of_a_model_with_noise():
    h, draws = np.array([1.0, 0.5, 0.25]), np.random.default_rng(0).normal(0.0, 0.3, (200_000, 3))
    assert proactive_dp.best_case(h.sum(), 0.3) == pytest.approx((h * draws**2).sum(axis=1).mean() / 2, rel=0.01)


def made(base, *changes, ends=(0, 10, 20, 40), staleness=2):
    """Return a run whose suboptimality is 1, 1/2, 1/4, 1/4 at some updates, in which all pairs meet equally often."""
    whole = load(scenarios_folder() / base, changes).resolved()
    metrics = pd.DataFrame({"updates": ends, "suboptimality": [1.0, 0.5, 0.25, 0.25], "distance": 0.1})
    pairs = list(itertools.combinations(range(whole["clients"]["count"]), 2))
    updates = pd.DataFrame(pairs, columns=["client", "peer"]).assign(staleness=staleness, noise_std=1.5)
    return types.SimpleNamespace(scenario=whole, metrics=metrics.assign(consensus_distance=0.0), updates=updates)


def printed(own, run):
    return own.forms["as printed"](run)


def test_theorem_1_of_adp2sgd_by_hand():
    run = made(adp2sgd.BASE)
    assert adp2sgd.mixing_of(run) == pytest.approx(2 / 3), "1 - 1/(K-1)"
    own, curve = problem_of(run.scenario), printed(adp2sgd.THEOREM1, run)
    assert curve.start == pytest.approx(2 * own.gap), "the Hessian is the identity"
    # Squared gradients are 2 gap, 1, 1/2, 1/2 at steps 0, 10, 20, 40; eta B = 0.0014, K = 4, B = 8, d = 5, sigma = 1.5.
    assert curve.measured[-1] == pytest.approx((5 * (2 * own.gap + 1) + 7.5 + 10) / 40)
    noise = own.spread * 8 + 6 * own.drift * 64 + 5 * 2.25
    assert curve.bound[-1] == pytest.approx(8 * own.gap / (0.0014 * 40) + 2 * 0.0014 / 8 / (8 * 4) * noise)


def test_theorem_1_of_adp2sgd_does_not_apply_to_large_steps_or_clipped_gradients():
    with pytest.raises(ConditionError, match="C3 <= 1"):
        printed(adp2sgd.THEOREM1, made(adp2sgd.BASE, "algorithm.step_size=0.01"))
    with pytest.raises(ConditionError, match="may exceed 2"):
        printed(adp2sgd.THEOREM1, made(adp2sgd.BASE, "privacy.clipping_norm=2"))


def test_the_propositions_of_adp2sgd_by_hand_and_their_conditions():
    run = made(adp2sgd.BASE, *adp2sgd.FLAT, ends=(0, 5_000, 10_000, 20_000))
    own, curve = problem_of(run.scenario), printed(adp2sgd.PROPOSITION1, run)
    spread = own.spread / 8 + 6 * own.drift + 3 * 2.25 / 64
    assert curve.bound == pytest.approx((2 * own.gap + 2 * 0.02 * spread) / math.sqrt(20_000))
    with pytest.raises(ConditionError, match="T = 40 is below T_min"):
        printed(adp2sgd.PROPOSITION1, made(adp2sgd.BASE, *adp2sgd.FLAT))
    for seed, message in ((1, r"of \(8\) is below T_min"), (2, "Theorem 2 have")):
        short = made(adp2sgd.BASE, *adp2sgd.PRIVATE, "privacy.clipping_norm=0.5", f"seed={seed}")
        with pytest.raises(ConditionError, match=message):
            printed(adp2sgd.PROPOSITION2, short)


def test_theorems_3_and_6_without_replacement_by_hand():
    few = "data.samples=2000"
    run = made(without_replacement.BASE, few)
    own = problem_of(run.scenario)
    # R = 4, L = B, eta = 0.1, T = 40, b = 50, n = b T = 2000, noise of 1.5/50 on the mean.
    sampling = 2 * (2 + 12 * math.sqrt(2)) * 4 * own.lipschitz / 3 * 3 / math.sqrt(2000)
    curve = printed(without_replacement.THEOREM3, run)
    assert curve.bound[-1] == pytest.approx(16 / 8 + own.lipschitz**2 / 20 + 0.05 * 0.03**2 + sampling)
    assert curve.measured[-1] == pytest.approx((7.5 + 3.75 + 5) / 40)
    larger = without_replacement.THEOREM3.forms["with d"](run).bound - curve.bound
    assert larger == pytest.approx(4 * 0.05 * 0.03**2), "d = 5"
    coin = f"{without_replacement.COIN}order: random, step_size: 0.1}}"
    sixth = without_replacement.THEOREM6.forms["with d"](made(without_replacement.BASE, few, coin))
    # M = 4 nodes, and a half of the steps are Global.
    assert sixth.bound[-1] == pytest.approx(5 * 16 / 16 + own.lipschitz**2 / 10 + 5 * 0.1 * 0.03**2 / 4 + sampling)


def test_the_noise_of_mapas_runs_has_the_sensitivity_of_the_theorems(without_numbers):
    for own in mapa.experiments(quick=True):
        whole = load(scenarios_folder() / mapa.BASE, (*own.overrides, "stop.updates=2", "evaluate.every.updates=1"))
        result, privacy = run(whole), whole.resolved()["privacy"]
        scale = 2 * privacy["clipping_norm"] / 16 / privacy["epsilon_per_release"]  # ΔS/ε
        d = whole.resolved()["data"]["dimension"]
        assert result.updates["noise_std"].to_numpy() == pytest.approx(16 * scale * (d + 1) ** 0.5, rel=1e-6)


def test_theorem_2_of_mapa_needs_steps_for_the_problem():
    own, run = mapa.THEOREM2, made(mapa.BASE)
    curve = printed(own, run)
    # Steps are for sigma = 3, L = 5 and tau = 4; b = 16, dS = 2 * 4.5/16, epsilon 1, R = 0.1, and T = 40.
    delta = 9 / 16 + 2 * (9 / 16) ** 2
    first = 5 * 5 + math.sqrt(delta + 1)
    drift = 5 * (delta + 4.5**2) / (2 * (delta + 1)) * 25 * math.log(40) / 40
    rest = (4.01 * math.sqrt(delta + 1) + 0.01 * first) / (2 * math.sqrt(40))
    assert curve.bound[-1] == pytest.approx(0.1 * 4.5 * 4 / 40 + drift + rest)
    for change in ("algorithm.smoothness=0.1", "algorithm.sampling_std=0.1", "algorithm.largest_staleness=1"):
        with pytest.raises(ConditionError, match="smaller σ, L or τ"):
            printed(own, made(mapa.BASE, change))
    fourth = printed(mapa.THEOREM4, made(mapa.BASE, *mapa.QUADRATIC, *mapa.CONSTANT))
    known = problem_of(made(mapa.BASE, *mapa.QUADRATIC).scenario)
    # gamma = 0.01 and L = 1; dS = 2 * 20/16, epsilon 10
    delta = known.variance / 16 + 2 * 0.25**2
    assert fourth.bound[-1] == pytest.approx(2 / (40 * 0.01) + 2 * delta * 0.01)
    with pytest.raises(ConditionError, match="condition \\(13\\)"):
        printed(mapa.THEOREM4, made(mapa.BASE, *mapa.QUADRATIC, "algorithm.step_size=0.2"))


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


def judged(judge, curve, *values, **options):
    """Return the only reading of one cell, whose runs are numbers."""
    own = Statement(Section("s"), {"as printed": curve}, "x", **options)
    (reading,) = own.readings(Runs({Experiment(own.section, ("all",), ""): dict(enumerate(values, start=1))}), judge)
    return reading


@pytest.mark.parametrize(("level", "held"), [(0.5, True), (2.0, False), (1.0, None)])
def test_a_curve_is_judged_by_its_largest_share_of_the_bound(level, held):
    def curve(run):
        return Curve(AT, np.array([0.1, run, 0.2]), np.ones(3), 2.0)

    assert judged(holds, curve, *(level * factor for factor in (0.9, 0.95, 1.0, 1.05, 1.1))).held is held


def test_a_bound_above_the_value_of_the_starting_model_is_vacuous():
    def curve(run):
        return Curve(AT, np.array([0.1, 0.2, 0.2]), np.array([9.0, 3.0, run]), 2.0)

    near, far = (judged(holds, curve, *values) for values in ((1.0,) * 5, (3.0,) * 5))
    assert (near.held, far.held) == (True, True)
    assert ("vacuous" in near.evidence, "vacuous" in far.evidence) == (False, True)
    assert [judged(informs, curve, *values).held for values in ((1.0,) * 5, (3.0,) * 5)] == [True, False]


@pytest.mark.parametrize(("power", "held"), [(-1.0, True), (-0.5, False), (-1.3, True)])
@pytest.mark.parametrize("rate", [None, -1.0])
def test_a_slope_is_compared_with_the_rate(power, held, rate):
    steps = np.geomspace(1.0, 1000.0, 50)
    bound = 1 / steps if rate is None else np.ones(50)
    reading = judged(
        falls, lambda run: Curve(steps, run * steps**power, bound, 1.0), 1.0, 1.1, 1.2, 1.3, 1.4, rate=rate
    )
    assert reading.held is held
    assert slope_of(steps, steps**power) == pytest.approx(power)


def test_a_swept_curve_has_the_last_point_of_each_cell_for_seeds_that_all_have():
    section = Section("s", ("{}",))
    own = Statement(section, {"as printed": lambda run: Curve(AT, AT * run, AT, run)}, "x", swept=True)
    runs = Runs({Experiment(section, ("all", n), ""): {1: n, 2: 2 * n, n: 7} for n in (10, 20)})
    first, second = own.curves(runs, "all", "as printed")
    assert first.steps.tolist() == [10.0, 20.0]
    assert first.measured.tolist() == [40_000.0, 80_000.0]
    assert second.measured.tolist() == [80_000.0, 160_000.0]


def test_the_mean_of_a_curve_is_by_trapezoids():
    assert averages(np.array([0.0, 1.0, 3.0]), np.array([4.0, 2.0, 0.0])).tolist() == [3.0, 5.0 / 3.0]


def test_a_theorem_whose_condition_fails_is_neither_held_nor_refuted():
    def measure(run):
        raise ConditionError("the step is too large")

    for judge in (holds, falls, informs):
        reading = judged(judge, measure, 1, 2, 3, 4, 5)
        assert reading.held is None
        assert reading.evidence == "not applicable: the step is too large"


def test_a_figure_shows_single_points_the_starting_model_and_what_each_form_measures():
    def measure(run, scale=1.0):
        return Curve(AT[-1:] + run, np.array([scale * run]), np.ones(1), 2.0)

    section = Section("Paper, Theorem 1")
    own = Statement(section, {"as printed": measure, "scaled": lambda run: measure(run, 3.0)}, "x")
    figure = drawing_of(own)(Runs({Experiment(section, ("all",), ""): {1: 1.0, 2: 2.0}}))
    (axis,) = figure.axes
    lines = {line.get_label(): line for line in axis.lines}
    for name, value in {"measured": 1.5, "measured, scaled": 4.5, "bound, as printed": 1.0}.items():
        assert lines[name].get_marker() == "o"
        assert (lines[name].get_xdata().tolist(), lines[name].get_ydata().tolist()) == ([4001.5], [value])
    assert lines["starting model"].get_ydata() == [2.0, 2.0]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["4,001", "4,002"]
    assert (axis.get_title(), axis.get_ylabel()) == ("Theorem 1, all", "x")
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert 0 <= legend.x0 < legend.x1 <= figure.bbox.width
