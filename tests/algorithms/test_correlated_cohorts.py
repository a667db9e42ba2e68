"""Noise of a server that is correlated over its releases: its numbers in models, and whole scenarios."""

import dataclasses

import jax
import numpy as np
import pytest

import simfl
from simfl.accounts import check as claims
from simfl.privacy.cohorts import CohortPlan, Gate
from simfl.privacy.correlated_cohorts import CorrelatedCohortLedger
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.privacy.in_time import Participation
from simfl.privacy.noise import gaussian
from simfl.privacy.strategies import Blt, Tree, square_root
from simfl.privacy.terms import Terms
from simfl.scenario import from_mapping
from simfl.tape.recording import NOISE_DRAWS
from tests.algorithms.test_cohorts import fedbuff, scenario
from tests.helpers import Lab, lognormal, make_problem, make_world, run_algorithm

USERS, STEPS, MADE = 6, [1, 2, 3, 1, 2, 3], 11
STRATEGIES = {
    "tree": Tree(),
    "nodes": Tree(efficient=False),
    "restarts": Tree(restart=4),
    "bands": square_root(2),
    "blt": Blt((0.75, 0.25), (0.25, 0.125)),
}


def run(kind, strategy, *, updates=None, releases=MADE, **options):
    """Return the noise of the last model per coordinate, the key of noises, and rows of updates."""
    norm, scale = 1e-9, 0.6  # next to the noise, updates are nothing
    problem = make_problem(USERS, local=True, clip="update", clipping_norm=norm, noise="gaussian")
    plan = CohortPlan(scale, None, releases, gate=Gate(2), strategy=strategy)
    with Lab(problem) as lab:
        training = dataclasses.replace(lab.training(step_size=0.1), cohorts=plan)
        terms = Terms("gaussian_cohort", 1e-5)
        ledger = CorrelatedCohortLedger(terms, training.sizes, training.batch_size, "shuffle", [1.0] * USERS, plan)
        lab.tape.releases = ledger.counted_by(ledger, [scale] * USERS, norm, True)
        world = make_world(USERS, jitter=lognormal(0.5))
        algorithm, rows = run_algorithm(
            kind, world, lab.tape, training, updates=updates, until=100.0, steps=STEPS, **options
        )
        assert lab.tape.releases.refusal is None
        model = lab.tape.values(algorithm.models())[0].astype(float)
    return (model - training.initial) / scale, problem.keys.noise, algorithm, rows


@pytest.mark.slow(every=5)
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize(
    ("kind", "options", "factor"),
    [
        ("fedavg", {"fraction": 0.5, "weighting": "uniform", "server_step": 0.7}, 0.7 / 3),
        ("fedbuff", {"buffer_size": 2, "server_step": 0.7}, 0.7 / 2),
    ],
)
def test_a_models_noise_is_that_of_the_strategy(name, kind, options, factor):
    """The sum over releases of the matrix's rows, with the normals that the seed names."""
    strategy = STRATEGIES[name]
    noise, key, algorithm, rows = run(kind, strategy, **options)
    assert algorithm.admission.number == MADE
    matrix = strategy.matrix(MADE)
    draws = jax.vmap(lambda draw: gaussian(key, np.int32(0), draw, len(noise)))
    normals = np.asarray(draws(NOISE_DRAWS + np.arange(matrix.shape[1], dtype=np.int32)))
    np.testing.assert_allclose(noise, factor * matrix.sum(axis=0) @ normals, atol=3e-5)
    assert [row[7] for row in rows if row[7]] == [0.6 * std for std in strategy.deviations(MADE)]


def test_mixing_in_single_models_carries_the_noise():
    """FedAsync: w <- (1 - share) w + share (w_H + noise)."""
    noise, key, _, _ = run("fedasync", Tree(), weighting="constant", mixing=0.5, releases=3)
    matrix = Tree().matrix(3)
    normals = np.stack([gaussian(key, np.int32(0), np.int32(NOISE_DRAWS + n), len(noise)) for n in range(4)])
    # w_H is a client's start, the initial model or a later one, so only the first release has a closed form
    assert np.corrcoef(noise, (0.5 * matrix[2] + 0.25 * matrix[1]) @ normals)[0, 1] > 0.5


# -- scenarios -----------------------------------------------------------------------------------

TREE = {
    "unit": "user", "clipping_norm": 0.5, "noise_multiplier": 4.0, "delta": 1e-3, "releases": 20,
    "participation": {"min_separation": 2, "at_most": 7}, "noise": {"correlated": "tree"},
}  # fmt: skip


def tree(**changes):
    return fedbuff(**{"privacy": TREE, "stop": {"updates": 1000}, **changes})


def changed(**changes):
    return tree(privacy={**TREE, **changes})


@pytest.mark.usefixtures("without_numbers")
@pytest.mark.parametrize("kind", ["fedavg", "fedprox", "fedbuff", "fedasync"])
def test_a_run_is_accounted_by_participations(kind, tmp_path):
    algorithm = {"kind": kind, "local_steps": 2, "batch_size": 16, "step_size": 0.1}
    further = {"fedavg": {"fraction": 0.4, "weighting": "uniform"}, "fedbuff": {"buffer_size": 3}}
    further["fedprox"] = further["fedavg"]
    made = simfl.run(tree(algorithm={**algorithm, **further.get(kind, {})}), out=tmp_path)
    assert made.cohorts["release"].max() >= 17, "FedAvg chooses few in some rounds, and many have been in 7 at its end"
    numbers = made.cohorts.groupby("client")["release"]
    assert numbers.diff().dropna().min() >= 2
    counts = numbers.size().reindex(range(10), fill_value=0)
    expected = [gaussian_epsilon(1e-3, Tree().sensitivity(20, Participation(2, n)) / 4) if n else 0.0 for n in counts]
    assert made.clients["epsilon"].to_numpy() == pytest.approx(expected, rel=1e-6)
    again = claims.check_run(made).findings[0].certified["local_transcript", "add_or_remove"]
    assert again == pytest.approx(max(expected), rel=1e-6)
    assert "exact as one Gaussian mechanism for users at least 2 releases apart" in made.manifest.extra["privacy"]
    assert made.metrics["epsilon"].is_monotonic_increasing


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("noise", ["tree", "square_root", "banded", "blt"])
def test_a_budget_gives_the_noise(noise):
    pytest.importorskip("jax_privacy")
    bands = {"bands": 2} if noise in ("square_root", "banded") else {}
    given = {**TREE, "epsilon": 4.0, "noise": {"correlated": noise, **bands}}
    del given["noise_multiplier"]
    setup = simfl.prepare(tree(privacy=given, stop={"updates": 60}))
    ledger = setup.ledger
    planned = setup.kind.planned(setup)
    assert planned.counts == [6] * 10
    assert ledger.final_epsilon(planned).max() == pytest.approx(4.0, rel=2e-3)
    assert ledger.final_epsilon(planned).max() <= 4.0
    assert setup.training.allowances == [6] * 10


def test_a_draw_of_users_does_not_amplify():
    ledger = simfl.prepare(scenario(privacy={**TREE, "where": "server", "mechanism": "gaussian"})).ledger
    assert "(q = 1: noise is correlated over releases, so none can be considered alone)" in ledger.statement


def test_restarts_cost_less_where_users_are_far_apart():
    """One release a tree: sens(C)^2 is the number of trees times the tree's height."""
    apart = Participation(16, 4)
    assert Tree(restart=16).sensitivity(64, apart) ** 2 == pytest.approx(4 * 5)
    assert Tree().sensitivity(64, apart) ** 2 == pytest.approx(4 * 5 + 2 * 4 + 16)


def test_a_scenario_says_which_strategy():
    from simfl.assembly.cohorts import strategy_of

    made = from_mapping({**tree().given(), "privacy": {**TREE, "noise": {"correlated": "tree", "estimate": "nodes"}}})
    assert strategy_of(made.privacy) == Tree(None, False)
    assert strategy_of(changed(noise={"correlated": "square_root", "bands": 2}).privacy).coefficients == (1.0, 0.5)
