"""Gradients that an observer can solve for, against NumPy and El Mrini, Cyffers and Bellet (2024)."""

import networkx as nx
import numpy as np
import pytest

from simfl.accounts.network import Network, reconstruct
from simfl.accounts.views import recovered, rounding_of
from simfl.scenario import loads

TEXT = """
name: solved
data: digits
model: softmax
clients: {{count: {count}, seconds_per_example: 1 ms, jitter: {jitter}}}
topology: {topology}
algorithm: {{kind: {kind}, batch_size: 4, step_size: 0.1}}
stop: {{updates: {updates}}}
{privacy}
"""
NOISE = "privacy: {clipping_norm: 1, noise_multiplier: 1.5}"


def scenario(kind="adpsgd", count=6, topology="ring", rounds=5, privacy="", sigma=0.3):
    jitter = f"{{kind: lognormal, sigma: {sigma}}}"
    updates = rounds * count
    return loads(
        TEXT.format(kind=kind, count=count, topology=topology, updates=updates, privacy=privacy, jitter=jitter)
    )


def test_recovered_gradients_equal_those_of_the_papers_example():
    """Figure 1: attackers 0 and 1 get messages of 2, 5, 7 and 8; after 3 rounds, 3 and 4 alone are not solved for."""
    edges = [
        (0, 2), (1, 2), (2, 3), (2, 4), (1, 5), (1, 7), (1, 8), (5, 9), (9, 10), (9, 11), (11, 6), (7, 8), (7, 9),
        (7, 11),
    ]  # fmt: skip
    graph = nx.Graph(edges)
    laplacian = nx.laplacian_matrix(graph, nodelist=range(12)).toarray()
    w = np.eye(12) - laplacian / max(degree for _, degree in graph.degree())
    rows = {rounds: [np.eye(12)[[0, 1]]] for rounds in (2, 3)}
    for rounds, own in rows.items():
        own += [np.linalg.matrix_power(w, t)[[2, 5, 7, 8]] for t in range(rounds)]
    assert np.flatnonzero(~recovered(np.concatenate(rows[3]))).tolist() == [3, 4]
    assert np.flatnonzero(~recovered(np.concatenate(rows[2]))).tolist() == [3, 4, 6, 10]


def test_slow_gradients_of_rounds_equal_the_papers_matrix(tmp_path):
    """Its section 5: the messages of target neighbors in round t are the rows of the sum of W_TT^s over s <= t."""
    graph = nx.convert_node_labels_to_integers(nx.florentine_families_graph())
    nx.write_edgelist(graph, tmp_path / "edges", data=False)
    account = Network(
        scenario("decentralized_sgd", 15, f"{{kind: edge_list, path: {tmp_path / 'edges'}}}", rounds=6, sigma=0.0)
    )
    degrees = dict(graph.degree())
    w = np.zeros((15, 15))
    for one, other in graph.edges:
        w[one, other] = w[other, one] = 1 / (1 + max(degrees[one], degrees[other]))
    w += np.diag(1 - w.sum(axis=1))
    solved = set()
    for node in range(15):
        targets = [other for other in range(15) if other != node]
        inner, power, rows = w[np.ix_(targets, targets)], np.eye(14), []
        observer = account.observer([node])
        seen, _ = account.matrices(account.seen(observer), observer)
        rounds, left = divmod(np.count_nonzero(seen.any(axis=1)), degrees[node])
        assert (rounds in (5, 6), left) == (True, 0)
        for _ in range(rounds):
            rows.append(power[[targets.index(other) for other in graph[node]]])
            power = inner @ power + np.eye(14)
        rank = np.linalg.matrix_rank(np.concatenate(rows), tol=1e-9)
        beside = [np.linalg.matrix_rank(np.concatenate((*rows, np.eye(14)[[k]])), tol=1e-9) for k in range(14)]
        mine = account.reconstruction(observer, slow=True)
        assert mine["client"].tolist() == targets
        assert mine["recovered"].tolist() == [bool(other == rank) for other in beside]
        solved.add(int(mine["recovered"].sum()))
    assert max(solved) > 6, "some solve for gradients far beyond their neighbors"


@pytest.mark.parametrize("kind", ["adpsgd", "gossip_learning", "sgp"])
def test_least_squares_recovers_the_same_gradients(kind):
    account = Network(scenario(kind, topology="{kind: ring}", privacy=NOISE))
    observer = account.observer([2])
    a, _ = account.matrices(account.seen(observer), observer)
    each = account.reconstruction(observer)
    others = np.flatnonzero(account.owners != 2)
    assert each["client"].tolist() == account.owners[others].tolist()
    rng = np.random.default_rng(1)
    g = rng.normal(size=a.shape[1])
    solution, *_ = np.linalg.lstsq(a, a @ g, rcond=1e-10)
    _, values, basis = np.linalg.svd(a)
    free = np.linalg.norm(basis[np.count_nonzero(values > 1e-10) :], axis=0)  # what y = A g leaves open
    assert each["recovered"].tolist() == (free[others] < 1e-6).tolist()
    assert each["recovered"].any()
    assert not each["recovered"].all()
    np.testing.assert_allclose(solution[others][each["recovered"]], g[others][each["recovered"]], atol=1e-8)
    # Best linear unbiased estimates of the gradients of one size, from messages with their noise.
    slow = account.reconstruction(observer, slow=True)
    groups = np.array(account.owners[:, None] == slow["client"].to_numpy(), dtype=float)
    covariance = 1.5**2 * a @ a.T
    information = groups.T @ a.T @ np.linalg.pinv(covariance, rcond=1e-10, hermitian=True) @ a @ groups
    std = np.sqrt(np.diag(np.linalg.pinv(information, rcond=1e-10, hermitian=True)))
    kept = slow["recovered"].to_numpy()
    assert kept.any()
    np.testing.assert_allclose(slow["std"][kept], std[kept], rtol=1e-6)
    assert np.isinf(slow["std"][~kept]).all()


def test_rounding_errors_equal_those_of_32_bit_messages():
    """Two messages that differ little: their difference is the second gradient."""
    a = np.array([[1.0, 0.0], [1.0, 1e-3]])
    first, second = rounding_of(a, np.array([True, True]))
    assert first == pytest.approx(2.0**-24)
    assert second == pytest.approx(2.0**-24 * np.hypot(1.0, 1.001) / 1e-3)
    assert np.isinf(rounding_of(a[1:], np.array([False, False]))).all()


def test_a_report_has_a_row_for_every_pair():
    report = reconstruct(scenario(), observers=[0], coalition=[2, 3])
    pairs = report.pairs.set_index(["observer", "client"])
    assert list(pairs.index) == [("0", k) for k in range(1, 6)] + [("2+3", k) for k in (0, 1, 4, 5)]
    assert pairs["gradients"].to_numpy()[:5].sum() <= report.gradients
    assert (pairs["slow_recovered"] >= (pairs["recovered"] > 0) & (pairs["gradients"] == 1)).all()
    assert (pairs["std"][pairs["recovered"] > 0] == 0.0).all(), "there is no noise"
    assert np.isinf(pairs["std"][pairs["recovered"] == 0]).all()
