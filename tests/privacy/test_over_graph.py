"""Noise whose covariance is chosen for a graph: its optimum, how it is drawn, and what observers learn."""

import dataclasses
import itertools

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import minimize

from simfl.accounts.network import network
from simfl.assembly.assemble import assemble
from simfl.privacy.over_graph import levels, optimal_covariance, over_graph
from simfl.privacy.releases import Releases
from simfl.scenario import from_mapping
from simfl.tape.problem import Noise
from simfl.world.topology import Topology, build_topology
from tests.helpers import Lab, make_problem
from tests.privacy.test_correlated import KEY, D, normal

RIDGE = 1e-4
SCENARIO = {
    "clients": {"count": 6}, "topology": "ring", "stop": {"updates": 60},
    "algorithm": {"kind": "decentralized_sgd", "batch_size": 16},
    "privacy": {"noise_multiplier": 2, "noise": {"correlated": "over_graph"}},
}  # fmt: skip


def erdos_renyi(probability, count=20, seed=0):
    return build_topology("erdos_renyi", count, np.random.default_rng(seed), probability=probability)


def test_on_a_complete_graph_the_optimum_is_a_closed_form_and_nears_that_of_a_trusted_server():
    for count, ridge in itertools.product((3, 8), (1e-2, 1e-6)):
        mixing = np.full((count, count), 1 / count)
        covariance, value, bound = optimal_covariance(mixing, ridge)
        expected = (np.sqrt(1 + ridge) + (count - 1) * np.sqrt(ridge)) ** 2 / count
        assert value == pytest.approx(expected, rel=1e-8)
        assert bound <= value
        assert covariance.sum() / count >= 1 / count, "the noise of a trusted server, in all models together"
    assert covariance.sum() / count == pytest.approx(1 / count, rel=0.02)


@pytest.mark.parametrize("graph", [nx.path_graph(4), nx.star_graph(3), nx.cycle_graph(4)])
def test_the_optimum_equals_that_of_a_general_solver(graph):
    """Minimized over Cholesky factors of R^-1, whose rows have norm 1 or less."""
    mixing = Topology.from_graph(graph).mixing_matrix().toarray()
    objective, places = mixing.T @ mixing + 0.01 * np.eye(4), np.tril_indices(4)

    def precision(entries):
        factor = np.zeros((4, 4))
        factor[places] = entries
        return factor @ factor.T

    start = np.eye(4)[places] * 0.9 + 0.05
    limits = {"type": "ineq", "fun": lambda entries: 1 - np.diag(precision(entries))}
    found = minimize(lambda entries: np.trace(np.linalg.solve(precision(entries), objective)), start,
                     constraints=[limits], method="SLSQP", options={"ftol": 1e-14, "maxiter": 2000})  # fmt: skip
    covariance, value, bound = optimal_covariance(mixing, 0.01)
    assert found.fun == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(covariance, np.linalg.inv(precision(found.x)), atol=2e-3)
    np.testing.assert_allclose(np.diag(np.linalg.inv(covariance)), 1.0, atol=1e-4)
    assert value - bound <= 1e-9 * value


@pytest.mark.parametrize("probability", [0.2, 0.5, 0.8])
def test_it_leaves_less_noise_than_decor_and_independent_noise(probability):
    topology = erdos_renyi(probability)
    mixing = topology.mixing_matrix().toarray()
    laplacian = np.diag(topology.degrees) - (mixing > 0) + np.eye(20)
    covariance, _, _ = optimal_covariance(mixing, RIDGE)
    left = np.sum(mixing @ covariance * mixing)
    for pairs in (
        0.0,
        *np.logspace(-2, 2, 30),
    ):  # DECOR with its shared noise, at the level of an observer of all links
        other = np.eye(20) + pairs * laplacian
        assert left < 0.9 * np.sum(mixing @ other * mixing) * np.diag(np.linalg.inv(other)).max()
    assert left > 1 / 20, "that of a trusted server"


def test_terms_make_the_covariance_and_observers_of_fewer_releases_learn_less():
    mixing, scales = erdos_renyi(0.4, 8).mixing_matrix().toarray(), [1.0, 2.0, 1.0, 0.5, 1.0, 1.0, 3.0, 1.0]
    noise = over_graph(mixing, scales, KEY, RIDGE)
    made = np.zeros((8, 16))
    for client in range(8):
        for stream, owner, draw, coefficient in noise.terms(client, 3):
            assert draw == 3
            assert client in noise.owners(stream, owner)
            made[client, owner + 8 * (stream == "pair")] = coefficient
        assert noise.stretch(client) == pytest.approx(np.linalg.norm(made[client]))
    covariance = made @ made.T
    wanted, _, _ = optimal_covariance(mixing * np.array(scales) / 3.0, RIDGE)
    np.testing.assert_allclose(covariance / covariance[0, 0], wanted / wanted[0, 0], atol=2e-5)
    seen = levels(noise)
    np.testing.assert_allclose(seen, np.diag(np.linalg.inv(covariance)) ** -0.5, rtol=1e-6)
    assert 1.0 < seen.min() <= seen.max() < 8**0.5 + 1e-3
    for size in range(1, 8):
        for some in itertools.combinations(range(8), size):
            less = np.diag(np.linalg.inv(covariance[np.ix_(some, some)])) ** -0.5
            assert (less >= seen[list(some)] * (1 - 1e-6)).all()


def test_ridges_at_the_ends_of_their_range_have_an_optimum():
    for mixing in (np.full((40, 40), 1 / 40), erdos_renyi(0.2, 40).mixing_matrix().toarray(), np.ones((1, 1))):
        for ridge in (1e-8, 1.0):
            noise = over_graph(mixing, [1.0] * len(mixing), KEY, ridge)
            assert 1.0 <= levels(noise).min() <= len(mixing) ** 0.5 * (1 + 1e-3)


@pytest.mark.slow
def test_noise_equals_a_plain_loop():
    scales = [1.0, 2.0, 0.5, 1.0, 1.0, 3.0]
    noise = over_graph(erdos_renyi(0.5, 6).mixing_matrix().toarray(), scales, KEY, RIDGE)
    problem = make_problem(6, sampling="poisson", clipping_norm=1e-12, noisy=True, sizes=[50] * 6)
    problem = dataclasses.replace(problem, noise=Noise("gaussian", form="pairwise"), correlation=noise)
    with Lab(problem, capacity=200) as lab:
        model = lab.tape.constant(np.zeros(D, np.float32))
        rows = lab.tape.values(
            [lab.tape.combine((1.0, lab.tape.gradient(model, k, 2, 8, scales[k]))) for k in range(6)]
        )
    shared = np.stack([normal(KEY, m, 2) for m in range(6)])
    own = np.stack([normal(problem.keys.noise, k, 2) for k in range(6)])
    factor = np.tril(noise.coefficients.astype(np.float64))
    np.testing.assert_allclose(rows, np.array(scales)[:, None] * (own + factor @ shared), atol=5e-5, rtol=1e-5)


@pytest.mark.slow
def test_own_noise_is_certified_and_observers_without_seeds_learn_less():
    """A wiretap meets the level of the covariance in every round; all others together meet own noise."""
    setup = assemble(from_mapping(SCENARIO))
    plain = assemble(from_mapping({**SCENARIO, "privacy": {"noise_multiplier": 2}}))
    np.testing.assert_array_equal(
        setup.ledger.final_epsilon(Releases([10] * 6)), plain.ledger.final_epsilon(Releases([10] * 6))
    )
    assert "own noise alone: all other clients may tell" in setup.ledger.statement
    accounts = [
        network(from_mapping({**SCENARIO, "privacy": {**SCENARIO["privacy"], "noise": noise}}), observers=["links"],
                coalition=[0, 2, 3, 4, 5]).pairs.query("client == 1").set_index("observer")
        for noise in (None, {"correlated": "over_graph"})
    ]  # fmt: skip
    alone, shared = (account["pairwise_mu"] for account in accounts)
    assert shared["0+2+3+4+5"] == pytest.approx(alone["0+2+3+4+5"])
    level = levels(setup.problem.correlation)[1]
    assert alone["links"] / shared["links"] == pytest.approx(level, rel=0.2)
    assert shared["links"] >= alone["links"] / level * (1 - 1e-6), "it counts what its releases share"
