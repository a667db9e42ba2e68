"""SGP with running sums: losses lose no mass and move no limit, and models equal those of sums in NumPy."""

import numpy as np
import pytest

from simfl.accounts.network import LINKS as EVERY_LINK
from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.accounts.test_network import network
from tests.accounts.test_network import scenario as private
from tests.algorithms.test_corrected_gossip import PROBLEM, D, K
from tests.helpers import NumpyExecutor, exponential, lognormal, make_training, make_world, run_algorithm

LOSSY = LinkModel(latency=exponential(5e-3), loss=0.3, resend_timeout_s=0.01)
APART = np.random.default_rng(4).standard_normal((K, D)).astype(np.float32)


def simulate(step, *, updates, links=LOSSY, prepare=lambda algorithm: None, outages=None, **options):
    """Return the algorithm and the tape, which computes in float64."""
    batch = 4
    executor = NumpyExecutor(D, lambda w, k, *_: batch * (PROBLEM.hessians[k] @ w - PROBLEM.targets[k]))
    tape = Tape(executor, window=60, max_batch=batch)
    world = make_world(K, topology="star", jitter=lognormal(0.3), links=links, outages=outages)
    training = make_training([64] * K, d=D, batch_size=batch)
    object.__setattr__(training, "step_size", step if callable(step) else lambda *at: step)
    options = {"lost": "sums", "models": APART, **options}
    algorithm, _ = run_algorithm("sgp", world, tape, training, updates=updates, prepare=prepare, **options)
    return algorithm, tape


def total(algorithm, tape):
    """Return the sums of x and w at clients, in inboxes and in running sums that are not used."""
    waiting = [share for inbox in algorithm._inbox for share in inbox.values()] + algorithm._sums.unused()
    models = [model for model, _ in waiting if model.rows]
    x = tape.values([*algorithm.model, *models]).sum(axis=0)
    return x, sum(algorithm.weight) + sum(weight for _, weight in waiting)


def test_the_sums_of_x_and_w_stay_under_losses():
    crash = {3: [Outage(0.1, 0.3, crash=True)]}
    algorithm, tape = simulate(0.0, updates=40 * K, outages=crash)
    x, w = total(algorithm, tape)
    network = algorithm.world.network
    assert network.lost > 0.25 * network.messages
    np.testing.assert_allclose(x, APART.astype(np.float64).sum(axis=0), rtol=0, atol=1e-12)
    assert w == pytest.approx(K, abs=1e-12)
    assert sum(algorithm.weight) + algorithm.flying == pytest.approx(K, abs=1e-12)


def forgetful(algorithm):
    """Let messages have their own share only."""
    sums = algorithm._sums
    sums.use = lambda source, target, number: {number: sums._given[source, target].pop(number)}
    sums.lose = lambda source, target, number: None


@pytest.mark.parametrize("graph", ["one_peer", "topology"])
def test_losses_do_not_move_the_limit_of_averages(graph):
    mean = np.tile(APART.mean(axis=0), (K, 1))
    algorithm, tape = simulate(0.0, updates=150 * K, graph=graph)
    np.testing.assert_allclose(tape.values(algorithm.models()), mean, rtol=0, atol=1e-4)
    algorithm, tape = simulate(0.0, updates=30 * K, graph=graph, prepare=forgetful)
    models = tape.values(algorithm.models())
    assert np.abs(models - mean).max() > 0.02, "without running sums, z goes elsewhere"


def test_models_equal_those_of_sums_that_are_sent():
    """Algorithm 1 with rho - rho' in NumPy, by the order of events of a run."""
    x, w = list(APART.astype(np.float64)), [1.0] * K
    rho = {(i, j): (np.zeros(D), 0.0) for i in range(K) for j in range(K)}
    sent, used, newest, inbox, reads, step = {}, dict(rho), {}, [[] for _ in range(K)], {}, 0.05

    def prepare(algorithm):
        gradient, push = algorithm.batches.gradient, algorithm.push
        receive, absorb = algorithm._receive_sums, algorithm.absorb

        def read(model, client):
            at = x[client] / w[client]
            reads[client] = PROBLEM.hessians[client] @ at - PROBLEM.targets[client]
            return gradient(model, client)

        def pushed(me, round_num):
            targets = algorithm.edges(round_num)[0][me]
            x[me] = x[me] - step * reads[me]
            if w[me] >= 1 / 8:
                x[me], w[me] = x[me] / (1 + len(targets)), w[me] / (1 + len(targets))
                for j in targets:
                    rho[me, j] = rho[me, j][0] + x[me], rho[me, j][1] + w[me]
            for j in targets:
                sent[me, j, round_num] = rho[me, j]
            push(me, round_num)

        def received(me, source, round_num, sums):
            link = source, me
            if round_num > newest.get(link, -1):
                newest[link] = round_num
                of_x, of_w = sent[source, me, round_num]
                inbox[me].append((of_x - used[link][0], of_w - used[link][1]))
                used[link] = of_x, of_w
            receive(me, source, round_num, sums)

        def absorbed(me, round_num):
            for of_x, of_w in inbox[me]:
                x[me], w[me] = x[me] + of_x, w[me] + of_w
            inbox[me].clear()
            absorb(me, round_num)

        algorithm.batches.gradient, algorithm.push = read, pushed
        algorithm._receive_sums, algorithm.absorb = received, absorbed

    algorithm, tape = simulate(step, updates=30 * K, prepare=prepare, graph="exponential")
    np.testing.assert_allclose(algorithm.weight, w, rtol=1e-12)
    np.testing.assert_allclose(tape.values(algorithm.model), x, rtol=0, atol=1e-5)
    network = algorithm.world.network
    assert network.lost > 0.25 * network.messages
    assert network.bytes_sent == network.messages * 4 * (D + 1), "x and w"


def test_observers_see_the_sums():
    links = {"latency": "1 ms", "loss": 0.3, "resend_timeout": "2 ms"}
    run = private("sgp", options={"lost": "sums", "graph": "topology"}, links=links)
    report = network(run, observers=[0, EVERY_LINK])
    assert (report.pairs["epsilon"] <= report.pairs["local"]).all()
    assert report.pairs["epsilon"].max() > 0.0
