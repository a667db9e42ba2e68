"""Matchings cover a graph, and their probabilities and the step of mixing have closed forms and the paper's values."""

import networkx as nx
import numpy as np
import pytest
from scipy import optimize

from simfl.world.matchings import laplacians, matchings_of, mixing_step, probabilities
from simfl.world.topology import Topology, build_topology

#: The graph of eight clients of the paper's figure 1, by matchings, as in its program.
EIGHT = [[(1, 5), (6, 7), (0, 4), (2, 3)], [(1, 7), (3, 6)], [(0, 1), (3, 7), (5, 6)], [(1, 2), (0, 7)], [(1, 3)]]


def graph(kind, count, **options):
    return build_topology(kind, count, np.random.default_rng(0), **options)


GRAPHS = {
    "ring": graph("ring", 8),
    "odd ring": graph("ring", 9),
    "star": graph("star", 6),
    "complete": graph("complete", 8),
    "complete of seven": graph("complete", 7),
    "torus": graph("torus", 16),
    "random": graph("erdos_renyi", 20, probability=0.3),
    "figure": Topology.from_graph(nx.Graph([edge for matching in EIGHT for edge in matching])),
    "pair": graph("complete", 2),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_matchings_partition_the_edges(name):
    topology = GRAPHS[name]
    matchings = matchings_of(topology)
    assert sorted(edge for edges in matchings for edge in edges) == sorted(topology.edges)
    assert all(len({client for edge in edges for client in edge}) == 2 * len(edges) for edges in matchings)
    degree = int(topology.degrees.max())
    assert len(matchings) <= {"odd ring": 3, "complete of seven": 7, "random": degree + 1}.get(name, degree)
    assert np.array_equal(
        laplacians(matchings, topology.num_clients).sum(axis=0), nx.laplacian_matrix(topology.graph).toarray()
    )


def second(each, p):
    return np.linalg.eigvalsh(np.tensordot(p, each, 1))[1]


@pytest.mark.parametrize("budget", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("name", GRAPHS)
def test_probabilities_keep_the_budget_and_the_step_is_the_best(name, budget):
    topology = GRAPHS[name]
    each = laplacians(matchings_of(topology), topology.num_clients)
    p = probabilities(each, budget)
    assert p.sum() <= budget * len(each) * (1 + 1e-12)
    assert p.min() >= 0.0
    assert p.max() <= 1.0
    alpha, rho = mixing_step(each, p)
    assert 0.0 < rho < 1.0
    # E[W' W] - J by enumeration or by draws would be this matrix; here its largest eigenvalue near the best alpha.
    mean, spread = np.tensordot(p, each, 1), np.tensordot(p * (1 - p), each, 1)
    for near in (0.9, 0.99, 1.0, 1.01, 1.1):
        a = near * alpha
        matrix = np.eye(len(mean)) - 1 / len(mean) - 2 * a * mean + a**2 * (mean @ mean + 2 * spread)
        assert np.linalg.eigvalsh(matrix)[-1] >= rho - 1e-9


def least_bound(each, p, budget):
    """Return the least upper bound on lambda_2 over all probabilities that vectors near those of lambda_2 give.

    For weights X >= 0 of trace 1 on vectors that add up to 0, lambda_2(sum p_j L_j) <= sum p_j <L_j, X>. The largest
    value of the right side over p is that of a linear program, whose dual is minimized together with X = A A'.
    """
    values, vectors = np.linalg.eigh(np.tensordot(p, each, 1))
    near = vectors[:, 1:][:, values[1:] <= values[1] * 1.02]
    parts, size = near.T @ each @ near, near.shape[1]

    def values_of(x):
        root = x[: size * size].reshape(size, size)
        return np.einsum("jab,ac,bc->j", parts, root, root) / np.sum(root**2)

    def slack(x):
        return x[size * size] + x[size * size + 1 :] - values_of(x)

    begin = np.concatenate((np.eye(size).ravel(), [parts.max()], np.zeros(len(each))))
    bounds = [(None, None)] * size**2 + [(0, None)] * (1 + len(each))
    cost = np.concatenate((np.zeros(size**2), [budget * len(each)], np.ones(len(each))))
    found = optimize.minimize(
        lambda x: cost @ x,
        begin,
        jac=lambda x: cost,
        bounds=bounds,
        constraints={"type": "ineq", "fun": slack},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    return found.fun + budget * len(each) * max(0.0, -slack(found.x).min())  # feasible in any case


@pytest.mark.parametrize("budget", [0.3, 0.7])
@pytest.mark.parametrize("name", GRAPHS)
def test_probabilities_have_the_largest_second_eigenvalue(name, budget):
    topology = GRAPHS[name]
    each = laplacians(matchings_of(topology), topology.num_clients)
    p = probabilities(each, budget)
    assert second(each, p) == pytest.approx(least_bound(each, p, budget), rel=1e-4)


def test_rho_is_that_of_the_expected_square_over_all_subsets():
    each = laplacians(EIGHT, 8)
    p = probabilities(each, 0.5)
    alpha, rho = mixing_step(each, p)
    square = np.zeros((8, 8))
    for subset in range(2**5):
        active = np.array([subset >> j & 1 for j in range(5)])
        mixing = np.eye(8) - alpha * np.tensordot(active, each, 1)
        square += np.prod(np.where(active, p, 1 - p)) * mixing.T @ mixing
    assert np.linalg.norm(square - 1 / 8, 2) == pytest.approx(rho, rel=1e-9)


@pytest.mark.parametrize("budget", [0.2, 0.6, 1.0])
def test_small_graphs_have_closed_forms(budget):
    pair = laplacians(matchings_of(GRAPHS["pair"]), 2)
    p = probabilities(pair, budget)
    assert p == pytest.approx([budget], rel=1e-4)
    assert mixing_step(pair, p) == pytest.approx((0.5, 1 - p[0]), abs=1e-7), "an active pair is its mean"
    ring = laplacians(matchings_of(GRAPHS["ring"]), 8)
    assert probabilities(ring, budget) == pytest.approx([budget] * 2, rel=1e-4), "both matchings alike"
    star = laplacians(matchings_of(GRAPHS["star"]), 6)
    assert probabilities(star, budget) == pytest.approx([budget] * 5, rel=1e-4)
    assert second(star, probabilities(star, budget)) == pytest.approx(budget, rel=1e-4)
    complete = laplacians(matchings_of(GRAPHS["complete"]), 8)
    assert second(complete, probabilities(complete, budget)) == pytest.approx(8 * budget, rel=1e-4)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_whole_budget_has_the_best_constant_weights(name):
    """alpha = 2 / (lambda_2 + lambda_K), rho = ((lambda_K - lambda_2) / (lambda_K + lambda_2))^2."""
    topology = GRAPHS[name]
    each = laplacians(matchings_of(topology), topology.num_clients)
    assert np.array_equal(probabilities(each, 1.0), np.ones(len(each)))
    values = np.linalg.eigvalsh(each.sum(axis=0))
    low, high = values[1], values[-1]
    assert mixing_step(each, np.ones(len(each))) == pytest.approx(
        (2 / (low + high), ((high - low) / (high + low)) ** 2), abs=1e-9
    )


def test_half_of_the_budget_is_as_good_as_the_whole_on_the_graph_of_the_paper():
    """Its figure 3: at a budget of 0.5 rho is not above that of D-PSGD on this graph of eight clients."""
    each = laplacians(EIGHT, 8)
    half, whole = mixing_step(each, probabilities(each, 0.5))[1], mixing_step(each, np.ones(5))[1]
    assert half < whole == pytest.approx(0.654, abs=5e-4)
    assert mixing_step(each, np.full(5, 0.5))[1] > 0.79, "with equal probabilities it is"
