"""Plans of a server's noise: the noise of matrices, the table of the page, and what a scenario is built with."""

import math

import numpy as np
import pytest

import simfl
from simfl.accounts.strategy_plans import strategy_plans
from simfl.privacy.accounting import Release, epsilon_of
from simfl.privacy.gaussian import gaussian_epsilon
from tests.algorithms.test_correlated_cohorts import TREE, fedbuff
from tests.privacy.test_strategies import STRATEGIES


@pytest.mark.parametrize("releases", [1, 2, 13, 32])
@pytest.mark.parametrize("name", STRATEGIES)
def test_noise_of_prefix_sums_is_that_of_the_matrix(name, releases):
    strategy = STRATEGIES[name]
    prefixes = np.linalg.norm(np.cumsum(strategy.matrix(releases), axis=0), axis=1)
    assert strategy.errors(releases) == pytest.approx(prefixes, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("releases", "apart", "ratios"),  # of docs/users_correlated.md
    [(100, 20, (0.63, 0.70, 0.60, 0.37, 0.36, 0.40)), (100, 5, (0.96, 1.05, 0.98, 0.53, 0.51, 0.58))],
)
def test_the_table_of_the_page_follows(releases, apart, ratios):
    pytest.importorskip("jax_privacy")
    plans, missing = strategy_plans(4.0, 1e-3, releases=releases, min_separation=apart)
    assert not missing
    by = {plan.name: plan.rmse for plan in plans}
    tree = by["tree"], by["tree, estimate: nodes"], by[f"tree, restart_every: {apart}"]
    bands = by[f"square_root, bands: {apart}"], by[f"banded, bands: {apart}"], by["blt, buffers: 2"]
    assert [one / by["independent"] for one in (*tree, *bands)] == pytest.approx(list(ratios), abs=0.006)


@pytest.mark.usefixtures("made_up_strategies")
@pytest.mark.parametrize("neighbors", ["add_or_remove", "replace_one"])
def test_each_plan_spends_the_epsilon(neighbors):
    moved = 1.0 if neighbors == "add_or_remove" else 2.0
    plans, _ = strategy_plans(2.0, 1e-5, releases=60, min_separation=6, at_most=4, neighbors=neighbors, bands=3)
    for plan in plans:
        assert gaussian_epsilon(1e-5, moved * plan.sensitivity / plan.noise_multiplier) == pytest.approx(2.0, rel=1e-6)
    assert {plan.name for plan in plans} >= {"square_root, bands: 3", "independent", "tree"}
    assert [plan.rmse for plan in plans] == sorted(plan.rmse for plan in plans)
    independent = next(plan for plan in plans if plan.name == "independent")
    assert independent.sensitivity == pytest.approx(2.0, rel=1e-6), "four releases"
    assert independent.largest == pytest.approx(independent.noise_multiplier * math.sqrt(60))


@pytest.mark.slow
@pytest.mark.usefixtures("made_up_strategies")
def test_plans_of_draws_are_sampled_gaussian_releases():
    plans, _ = strategy_plans(2.0, 1e-3, releases=50, fraction=0.2)
    drawn = {plan.name: plan for plan in plans if plan.drawn}
    assert len(drawn) == 3, "from 1, 2 and 4 groups"
    for groups, plan in ((1, drawn["independent, drawn"]), (4, drawn["square_root, groups: 4"])):
        release = Release(plan.noise_multiplier / plan.sensitivity, 0.2 * groups, "poisson")
        assert 1.98 < epsilon_of([(release, -(-50 // groups))], 1e-3, neighbors="add_or_remove") <= 2.0
    plans, missing = strategy_plans(2.0, 1e-3, releases=50, fraction=0.2, neighbors="replace_one")
    assert not any(plan.drawn for plan in plans)
    assert missing == ["draws amplify under add_or_remove only"]


@pytest.mark.usefixtures("made_up_strategies")
def test_a_scenario_is_built_with_the_planned_noise():
    given = {**TREE, "epsilon": 4.0, "noise": {"correlated": "square_root", "bands": 2}}
    del given["noise_multiplier"]
    ledger = simfl.prepare(fedbuff(privacy=given, stop={"updates": 70})).ledger
    plans, _ = strategy_plans(4.0, 1e-3, releases=20, min_separation=2, at_most=7)
    plan = next(plan for plan in plans if plan.name == "square_root, bands: 2")
    assert ledger.levels[0] == pytest.approx(plan.noise_multiplier, rel=1e-4)


@pytest.mark.parametrize(("changes", "line"), [
    ({"releases": 0}, r"releases: expected an integer from 1 to 10000, found 0"),
    ({"min_separation": 0}, r"min_separation: expected an integer >= 1"),
    ({"bands": 3, "min_separation": 2}, r"bands: expected an integer from 1 to 2, found 3"),
    ({"fraction": 1.5}, r"fraction: expected a number in \[0, 1\]"),
    ({"epsilon": 0.0}, r"epsilon: expected a finite number > 0"),
])  # fmt: skip
def test_wrong_arguments_give_one_line(changes, line):
    arguments = {"epsilon": 1.0, "delta": 1e-3, "releases": 10, **changes}
    with pytest.raises(ValueError, match=line):
        strategy_plans(arguments.pop("epsilon"), arguments.pop("delta"), **arguments)
