"""Corrected gossip against the papers' recursions, and its linear rate on problems where D-PSGD stalls."""

import numpy as np
import pytest

from simfl.scenario import loads
from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.accounts.test_network import ROUGH, network
from tests.accounts.test_network import scenario as private
from tests.helpers import NumpyExecutor, constant, exponential, lognormal, make_training, make_world, run_algorithm

METHODS = ("extra", "exact_diffusion", "nids", "tracking")
K, D, STEP = 8, 4, 0.1
each_method = pytest.mark.parametrize("method", METHODS)


class Quadratics:
    """f_k(w) = w' H_k w / 2 - b_k' w, different for each client, with eigenvalues of H_k in [0.1, 3]."""

    def __init__(self, seed=0):
        generator = np.random.default_rng(seed)
        frames = np.linalg.qr(generator.standard_normal((K, D, D)))[0]
        self.hessians = np.einsum("kij,kj,klj->kil", frames, generator.uniform(0.1, 3.0, (K, D)), frames)
        self.targets = 2.0 * generator.standard_normal((K, D))

    def gradients(self, x, targets=None):
        return np.einsum("kij,kj->ki", self.hessians, x) - (self.targets if targets is None else targets)

    def best(self, weights=None):
        weights = np.ones(K) if weights is None else np.asarray(weights)
        return np.linalg.solve(np.einsum("k,kij->ij", weights, self.hessians), weights @ self.targets)


PROBLEM = Quadratics()


def simulate(method, rounds=None, *, world=None, sizes=(64,) * K, step=STEP, l2=0.0, prepare=None, **options):
    """Return the clients' models f64 [K, D] after `rounds`, computed by the tape in float64."""
    world = world or make_world(K)
    problem, batch = PROBLEM, 4
    executor = NumpyExecutor(D, lambda w, k, *_: batch * (problem.hessians[k] @ w - problem.targets[k]))
    tape = Tape(executor, window=60)
    training = make_training(sizes, d=D, batch_size=batch, step_size=step, l2=l2)
    kind = "decentralized_sgd" if method == "d-psgd" else "corrected_gossip"
    options |= {} if method == "d-psgd" else {"method": method}
    updates = None if rounds is None else rounds * K
    algorithm, _ = run_algorithm(kind, world, tape, training, updates=updates, prepare=prepare, **options)
    return tape.values(algorithm.model)


def papers(method, rounds, w, *, shares=1.0, step=STEP, l2=0.0, factors=(1.0,) * K):
    """The recursions of the papers, without corrections: f64 [rounds + 1, K, D]."""
    shares, factors = np.broadcast_to(shares, K)[:, None], np.array(factors)[:, None]
    step, identity = step * factors, np.eye(K)
    half = identity - factors / (2.0 * factors.max()) * (identity - w)

    def gradient(x):
        return shares * (PROBLEM.gradients(x) + l2 * x)

    x = [np.zeros((K, D))]
    y = gradient(x[0])
    for r in range(rounds):
        g, before = gradient(x[-1]), gradient(x[r - 1]) if r else 0.0
        if method == "tracking":
            x.append(w @ (x[-1] - step * y))
            y = w @ y + gradient(x[-1]) - g
        elif method == "extra":
            x.append(w @ x[0] - step * g if not r else x[-1] + w @ x[-1] - half @ x[-2] - step * (g - before))
        elif not r:
            x.append(half @ (x[0] - step * g) if method == "exact_diffusion" else x[0] - step * g)
        else:
            x.append(half @ (2.0 * x[-1] - x[-2] - step * (g - before)))
    return np.array(x)


def w_of(topology="ring"):
    return make_world(K, topology=topology).topology.mixing_matrix().toarray()


@pytest.mark.slow(but=["tracking"])
@pytest.mark.parametrize("topology", ["ring", "star", "complete"])
@each_method
def test_models_are_those_of_the_papers_recursions(method, topology):
    """Also with shares of different sizes, an L2 penalty, and messages that are lost and overtake each other."""
    sizes = [20, 40, 60, 80, 100, 120, 140, 160]
    links = LinkModel(latency=exponential(5e-3), loss=0.3, resend_timeout_s=0.01)
    crash = {3: [Outage(0.02, 0.06, crash=True)]}
    world = make_world(K, topology=topology, jitter=lognormal(0.5), links=links, outages=crash)
    factors = {"step_factors": [0.5, 1.0, 1.5, 1.0, 0.7, 1.0, 1.2, 1.0]} if method == "nids" else {}
    models, tapes = {}, []

    def prepare(algorithm):
        algorithm.on_update = lambda row: models.setdefault(row[3], {}).setdefault(row[1], algorithm.model[row[1]])
        tapes.append(algorithm.tape)

    simulate(method, 30, world=world, sizes=sizes, l2=0.05, prepare=prepare, **factors)
    shares = np.array(sizes) / np.mean(sizes)
    expected = papers(
        method, 30, w_of(topology), shares=shares, l2=0.05, factors=factors.get("step_factors", (1.0,) * K)
    )
    whole = [r for r, of_clients in models.items() if len(of_clients) == K]
    assert len(whole) > 15
    for r in whole:
        computed = tapes[0].values([models[r][k] for k in range(K)])
        np.testing.assert_allclose(computed, expected[r + 1], rtol=0, atol=1e-5)
    assert np.abs(expected[-1] - expected[-2]).max() < np.abs(expected[1]).max()


@pytest.mark.parametrize("weighting", ["data", "uniform"])
def test_the_weighting_decides_which_optimum_is_reached(weighting):
    sizes = [20, 40, 60, 80, 100, 120, 140, 160]
    best = {"data": PROBLEM.best(sizes), "uniform": PROBLEM.best()}
    models = simulate("exact_diffusion", 250, sizes=sizes, weighting=weighting)
    np.testing.assert_allclose(models, np.tile(best[weighting], (K, 1)), rtol=0, atol=1e-4)
    assert np.linalg.norm(best["data"] - best["uniform"]) > 0.1


@pytest.mark.slow(but=["tracking"])
@each_method
def test_clients_that_join_late_move_the_optimum_to_that_of_all(method):
    world = make_world(K, outages={2: [Outage(0.0, 0.1)], 5: [Outage(0.0, 0.25)]})
    models = simulate(method, 250, world=world)
    np.testing.assert_allclose(models, np.tile(PROBLEM.best(), (K, 1)), rtol=0, atol=1e-4)


@pytest.mark.slow
def test_the_sum_of_corrections_does_not_drift_in_long_runs():
    """Weights 1/3 as float32 do not add up to 1: they would move the sum by 1e-8 in every round, all to one side."""
    sums = []

    def prepare(algorithm):
        algorithm.world.clock.call_at(
            0.004 * 2000 - 1e-3, lambda: sums.append(algorithm.tape.values(algorithm.correction).sum(axis=0))
        )

    models = simulate("exact_diffusion", 2000, prepare=prepare)
    assert np.abs(sums).max() < 1e-9
    np.testing.assert_allclose(models, np.tile(PROBLEM.best(), (K, 1)), rtol=0, atol=1e-8)


def test_tracking_sends_two_vectors_and_the_first_round_of_nids_none():
    sent = {}
    for method in METHODS:
        world = make_world(K, links=LinkModel(latency=constant(1e-3)))
        simulate(method, 10, world=world)
        sent[method] = world.network.bytes_sent / (4 * D)
    assert sent["exact_diffusion"] == 2 * K * 10
    assert sent["tracking"] == 2 * sent["exact_diffusion"]
    assert sent["nids"] == sent["exact_diffusion"] - 2 * K


@pytest.mark.slow(but=["tracking"])
@each_method
def test_observers_see_all_that_a_client_uses(method):
    """The account of a network checks that models and corrections follow from the messages; it sees both vectors."""
    options = {"method": method, "sampling": "without_replacement"}
    run = private("corrected_gossip", options=options, privacy={"neighbors": "replace_one"}, **ROUGH)
    report = network(run, observers=[0])
    assert (report.pairs["epsilon"] <= report.pairs["local"]).all()
    assert report.pairs["epsilon"].max() > 0.0


def test_warnings_name_what_keeps_clients_from_the_optimum():
    def warned(text):
        return loads(f"algorithm: {{kind: corrected_gossip}}\n{text}").warnings()

    assert warned("clients: 8") == ()
    leaves = "availability: a client leaves with its correction, and the others do not reach their optimum any more"
    assert leaves in warned("availability: [{clients: [1], crash: [{at: 1 s, back: never}]}]")
    changing = warned("topology: {kind: one_peer, redraw_every: 1 s}")
    proven = "algorithm.method: exact_diffusion is proven for a constant graph, and topology 'one_peer' changes"
    assert f"{proven}; use tracking" in changing
