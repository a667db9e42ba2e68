"""Accounts of whole networks, against closed forms: matrices by hand, without a world."""

import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.accounts.views import View, error_of, recovered

ONE = np.array([1.0])


def only(column):
    return np.array([column])


def gossip(weights, rounds):
    """Messages of gossip averaging of one noisy value each: (time, source, target, row over values)."""
    count, state, sent = len(weights), np.eye(len(weights)), []
    for time in range(rounds):
        sent += [(time, j, k, state[j]) for j in range(count) for k in range(count) if j != k and weights[j, k]]
        state = weights @ state
    return sent


def mu_of(rows, target, observer, std=1.0):
    a = np.array(rows)
    a[:, observer] = 0.0
    return View.of_own_noise(a, np.full(a.shape[1], std)).mu(only(target), ONE)


def ring_weights(count):
    weights = np.eye(count) / 3
    for k in range(count):
        weights[k, k - 1] = weights[k - 1, k] = 1 / 3
    return weights


def muffliato(weights, observer, target, rounds):
    """Cyffers et al. 2022: sum over messages of ((W^t)_uw)^2 / |(W^t)_w|^2, each message by itself; C = sigma = 1."""
    powers = [np.linalg.matrix_power(weights, t) for t in range(rounds)]
    near = [w for w in range(len(weights)) if w != observer and weights[w, observer]]
    return sum(p[target, w] ** 2 / (p[w] @ p[w]) for p in powers for w in near)


def metropolis(graph):
    graph = nx.convert_node_labels_to_integers(graph)
    weights = np.zeros((len(graph), len(graph)))
    for one, other in graph.edges():
        share = 1.0 / (1 + max(graph.degree[one], graph.degree[other]))
        weights[one, other] = weights[other, one] = share
    return weights + np.diag(1.0 - weights.sum(axis=1))


@pytest.mark.parametrize("graph", [nx.cycle_graph(8), nx.karate_club_graph(), nx.hypercube_graph(3)])
def test_single_messages_of_averaging_have_the_mu_of_muffliato(graph):
    """Muffliato's sum over messages holds for each of them alone, but messages sent together are seen together."""
    weights = metropolis(graph)
    for time, _, observer, row in gossip(weights, 4)[:: len(weights)]:
        for target in {0, len(weights) // 2} - {observer}:
            alone = View.of_own_noise(row[None], np.ones(len(weights))).mu(only(target), ONE)
            assert alone**2 == pytest.approx(row[target] ** 2 / (row @ row), abs=1e-12)
            assert alone**2 <= muffliato(weights, observer, target, time + 1) + 1e-9


def test_messages_of_averaging_together_reveal_more_than_their_sum():
    """On the line u - w - v: w's value, and then a third of all three, are u's value with no noise but its own."""
    weights = metropolis(nx.path_graph(3))
    seen = [row for _, _, observer, row in gossip(weights, 2) if observer == 2]
    assert mu_of(seen, 0, 2) ** 2 == pytest.approx(1.0)
    together = np.array(seen)
    together[:, 2] = 0.0
    np.testing.assert_allclose(together[1] - weights[1, 1] * together[0], [weights[1, 0], 0.0, 0.0], atol=1e-12)
    assert muffliato(weights, 2, 0, 2) == pytest.approx(1 / 3)


def test_one_round_on_a_complete_graph_is_the_local_view():
    seen = [row for _, _, target, row in gossip(np.full((5, 5), 0.2), 1) if target == 0]
    assert [mu_of(seen, k, 0, std=2.0) for k in range(1, 5)] == pytest.approx([0.5] * 4)


def test_a_secure_sum_adds_the_noise_of_all():
    row = np.ones(6)
    assert mu_of([row], 3, 0, std=2.0) == pytest.approx(1 / (2.0 * math.sqrt(5)))


def test_a_server_that_sends_sums_is_central_privacy_with_the_noise_of_all():
    """Round after round, as central Gaussian noise of variance K sigma^2."""
    clients, rounds, std = 4, 7, 3.0
    a = np.kron(np.eye(rounds), np.ones(clients))  # a row a round, gradients round by round
    view = View.of_own_noise(a, np.full(clients * rounds, std))
    mine = np.arange(rounds) * clients
    assert view.mu(mine, np.ones(rounds)) == pytest.approx(math.sqrt(rounds / clients) / std)


def test_knowledge_on_a_ring_decreases_with_distance():
    """Of training, where every round has fresh noise: x <- W x + g + xi."""
    count, rounds = 12, 8
    weights = ring_weights(count)
    state, seen = np.zeros((count, rounds * count)), []
    for time in range(rounds):
        seen += [state[1].copy(), state[-1].copy()]
        state = weights @ state
        state[:, time * count : (time + 1) * count] = np.eye(count)
    a = np.array(seen)
    a[:, np.arange(rounds) * count] = 0.0  # of the observer itself
    view = View.of_own_noise(a, np.ones(a.shape[1]))
    mus = [view.mu(np.arange(rounds) * count + k, np.ones(rounds)) for k in range(1, 7)]
    assert mus == sorted(mus, reverse=True)
    assert mus[0] > 2.0 > 0.1 > mus[-1] > 0.0


def test_recovered_gradients_have_their_unit_vector_in_the_row_space():
    a = np.array([[1.0, 1.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    np.testing.assert_array_equal(recovered(a), [True, True, False, False])
    std = np.array([1.0, 2.0, 3.0, 4.0])
    view = View.of_own_noise(a, std)
    np.testing.assert_allclose(error_of(view, recovered(a)), [1.0, 2.0, np.inf, np.inf])
    # one value in several gradients is estimated from all of them: inverse variances add up
    groups = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    errors = error_of(view, np.array([True, True]), groups)
    np.testing.assert_allclose(errors, [1 / math.sqrt(1 + 1 / 4), math.sqrt(9 + 16) / 2])


def test_a_worker_that_repeats_messages_shows_why_the_view_alone_is_not_certified():
    """u -> w -> v: with fixed gradients 1/sqrt(5), of u's message alone 1, C = sigma = 1.

    w adds to half of u's value a noisy gradient of its own: x = u/2 + g. As fixed, w's noise hides u. But g may be
    any function of u's message: if it is the other half of it, v sees u + the noises of both; and if w amplifies what
    it heard, by as much as clipping allows, u's value comes through as it is.
    """
    view = View.of_own_noise(np.array([[0.5, 1.0]]), np.ones(2))
    assert view.mu(only(0), ONE) == pytest.approx(1 / math.sqrt(5))
    closure = View.of_own_noise(np.array([[0.5, 1.0], [1.0, 0.0]]), np.ones(2))
    assert closure.mu(only(0), ONE) == pytest.approx(1.0)
    # x = u + xi_u/2-shares: w's gradient tells by its sign, of size 10, on which side u's message was
    generator = np.random.default_rng(0)
    noise_u, noise_w = generator.standard_normal((2, 400_000))

    def seen(value):
        heard = value + noise_u
        return 0.5 * heard + 10.0 * np.sign(heard - 0.5) + noise_w  # a mini-batch of ten examples

    advantage = np.mean(seen(1.0) > 0.25) - np.mean(seen(0.0) > 0.25)
    as_fixed = 2 * _phi(0.5 / math.sqrt(5)) - 1
    local = 2 * _phi(0.5) - 1
    assert as_fixed + 0.1 < advantage < local + 0.005


def _phi(x):
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


matrices = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@settings(max_examples=60, deadline=None)
@given(generator=matrices, rows=st.integers(1, 8), columns=st.integers(1, 6))
def test_seeing_less_reveals_no_more(generator, rows, columns):
    a = generator.integers(-2, 3, (rows, columns)).astype(float)
    std = generator.uniform(0.5, 2.0, columns)
    some, whole = View.of_own_noise(a[: rows // 2 + 1], std), View.of_own_noise(a, std)
    everything = View.of_everything(std)
    gap = np.linalg.eigvalsh(whole.m() - some.m())
    assert gap.min() > -1e-9
    assert np.linalg.eigvalsh(everything.m() - whole.m()).min() > -1e-9
    chosen, deltas = np.arange(columns), generator.uniform(0.1, 1.0, columns)
    assert whole.mu(chosen, deltas) <= everything.mu(chosen, deltas) + 1e-9
    # single releases with these precisions reveal at least as much as the view
    precisions = whole.precisions(chosen)
    assert np.linalg.eigvalsh(np.diag(precisions) - whole.m()).min() > -1e-9
    # against dense matrices, and with explicit noise
    np.testing.assert_allclose(whole.m(), a.T @ np.linalg.pinv(a @ np.diag(std**2) @ a.T) @ a, atol=1e-7)
    other = View(a, a * std)
    np.testing.assert_allclose(other.m(), whole.m(), atol=1e-7)
    assert not other.exposed.any()


@settings(max_examples=40, deadline=None)
@given(generator=matrices, rows=st.integers(1, 5), columns=st.integers(1, 4))
def test_mu_is_at_least_that_of_each_example(generator, rows, columns):
    """The distance between the views' means under the worst of many pairs of neighbors, in units of the noise."""
    a, b = generator.standard_normal((rows, columns)), generator.standard_normal((rows, rows + 2))
    view = View(a, b)
    deltas = generator.uniform(0.1, 1.0, columns)
    mu = view.mu(np.arange(columns), deltas)
    inverse = np.linalg.inv(b @ b.T)
    for _ in range(30):
        directions = generator.standard_normal((columns, 3))
        changes = deltas[:, None] * directions / np.linalg.norm(directions, axis=1, keepdims=True)
        shift = a @ changes
        assert np.sqrt(np.trace(shift.T @ inverse @ shift)) <= mu + 1e-9


def test_passes_take_one_batch_each():
    view = View.of_own_noise(np.eye(4), np.ones(4))
    passes = [np.array([0, 1]), np.array([2, 3])]
    assert view.mu(np.arange(4), np.ones(4), passes) == pytest.approx(math.sqrt(2))
    # a batch in both passes may hold the example twice
    straddling = [np.array([0, 1]), np.array([1, 2])]
    assert view.mu(np.arange(3), np.ones(3), straddling) == pytest.approx(2.0)


def test_gradients_seen_without_noise_have_infinite_mu():
    a, b = np.array([[1.0, 1.0], [1.0, 0.0]]), np.array([[1.0], [1.0]])
    view = View(a, b)  # the difference of the rows is the second gradient
    np.testing.assert_array_equal(view.exposed, [False, True])
    assert view.mu(only(0), ONE) == pytest.approx(1.0)
    assert math.isinf(view.mu(only(1), ONE))
    assert math.isinf(view.precisions(only(1))[0])
    np.testing.assert_array_equal(View(np.eye(2), np.zeros((2, 3))).exposed, [True, True])


def test_canceling_noise_hides_neighbors_from_an_observer_of_all_messages():
    """Two clients whose noises nearly cancel: the sum has little noise, each message much."""
    b = np.array([[0.1, 0.0, 5.0], [0.0, 0.1, -5.0]])
    view = View(np.eye(2), b)
    assert view.mu(only(0), ONE) == pytest.approx(math.sqrt(1 / (0.02) + 1 / (0.02 + 100)) / math.sqrt(1), rel=0.3)
    dense = np.linalg.inv(b @ b.T)[0, 0]
    assert view.mu(only(0), ONE) == pytest.approx(math.sqrt(dense))


def test_an_empty_view_reveals_nothing():
    nothing = View.of_own_noise(np.zeros((0, 3)), np.ones(3))
    assert nothing.mu(np.arange(3), np.ones(3)) == 0.0
    assert View(np.zeros((2, 3)), np.zeros((2, 3))).mu(np.arange(3), np.ones(3)) == 0.0
    np.testing.assert_array_equal(recovered(np.zeros((0, 3))), [False] * 3)


@pytest.mark.parametrize("rest", [1e-6, 1e-13, 3e-14])
def test_a_direction_that_two_messages_nearly_share_is_kept(rest):
    """In exact arithmetic, the two reveal both gradients, each with its own noise."""
    a = np.array([[1.0, 0.0], [1.0, rest]])
    view = View.of_own_noise(a, np.full(2, 2.0))
    assert view.rank == 2
    assert [view.mu(only(column), ONE) for column in (0, 1)] == pytest.approx([0.5, 0.5], rel=1e-2)
