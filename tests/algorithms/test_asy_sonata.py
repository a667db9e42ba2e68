"""ASY-SONATA: its listing in NumPy, a sum that losses do not change, and the optimum over lossy directed links."""

import numpy as np
import pytest

from simfl.accounts.network import LINKS as EVERY_LINK
from simfl.scenario import loads
from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.accounts.test_network import network
from tests.accounts.test_network import scenario as private
from tests.algorithms.test_corrected_gossip import PROBLEM, D, K
from tests.helpers import NumpyExecutor, exponential, lognormal, make_training, make_world, run_algorithm

GRID, STEP, BATCH = 2.0**23, 0.1, 4
LOSSY = LinkModel(latency=exponential(5e-3), loss=0.3, resend_timeout_s=0.01)
CRASHES = {3: [Outage(0.1, 0.3, crash=True)], 5: [Outage(0.2, 0.25)]}


def simulate(rounds, *, links=LOSSY, outages=None, jitter=0.5, step=STEP, prepare=lambda algorithm: None, **options):
    """Return the algorithm and the tape, which computes in float64."""
    executor = NumpyExecutor(D, lambda w, k, *_: BATCH * (PROBLEM.hessians[k] @ w - PROBLEM.targets[k]))
    tape = Tape(executor, window=60, max_batch=BATCH)
    world = make_world(K, topology="ring", jitter=lognormal(jitter) if jitter else None, links=links, outages=outages)
    training = make_training(options.pop("sizes", [64] * K), d=D, batch_size=BATCH, step_size=step)
    algorithm, _ = run_algorithm("asy_sonata", world, tape, training, updates=rounds * K, prepare=prepare, **options)
    return algorithm, tape


@pytest.mark.slow(but=["topology"])
@pytest.mark.parametrize("graph", ["topology", "ring", "exponential"])
def test_models_equal_the_listing_in_numpy(graph):
    """z, v, x and rho - rho' by the order of events of a run, with gradients before that are kept."""
    x, z, g = np.zeros((K, D)), np.zeros((K, D)), np.zeros((K, D))
    rho, used, v = {}, {}, [{} for _ in range(K)]

    def prepare(algorithm):
        step, use, sent = algorithm.step, algorithm.sums.use, {}

        def stepped(me, gradient, step_size):
            number, targets, sources = algorithm.client_updates[me], algorithm._targets(me), algorithm._sources(me)
            fresh = PROBLEM.gradients(x)[me]
            y = z[me] + fresh - g[me]
            for j in sources:
                y = y + rho.get((j, me, "came"), 0.0) - used.get((j, me), 0.0)
                used[j, me] = rho.get((j, me, "came"), 0.0)
            g[me] = fresh
            out, into = (round(GRID / (1 + len(those))) / GRID for those in (targets, sources))
            z[me] = (1 - len(targets) * out) * y
            shown = x[me] - STEP * z[me]
            for j in targets:
                rho[me, j] = rho.get((me, j), 0.0) + out * y
                sent[me, j, number] = rho[me, j], shown
            heard = [v[me][j][1] for j in sources if j in v[me]]
            x[me] = (1 - into * len(heard)) * shown + into * sum(heard)
            step(me, gradient, step_size)

        def arrived(source, me, number):
            if number >= v[me].get(source, (0, None))[0]:
                rho[source, me, "came"], shown = sent[source, me, number]
                v[me][source] = number, shown
            return use(source, me, number)

        algorithm.step, algorithm.sums.use = stepped, arrived

    algorithm, tape = simulate(20, graph=graph, outages=CRASHES, prepare=prepare)
    network = algorithm.world.network
    assert network.lost > 0.2 * network.messages
    assert network.bytes_sent == network.messages * 8 * D
    np.testing.assert_allclose(tape.values(algorithm.model), x, rtol=0, atol=1e-5)
    assert np.abs(x).max() > 0.1


def test_losses_crashes_and_overtaking_do_not_stop_the_fall():
    errors = []
    for rounds in (50, 100):
        algorithm, tape = simulate(rounds, step=0.6, outages=CRASHES)
        errors.append(np.linalg.norm(tape.values(algorithm.model) - PROBLEM.best()))
    assert errors[1] < 0.4 * errors[0]


@pytest.mark.parametrize("weighting", ["data", "uniform"])
def test_the_sum_of_all_z_is_that_of_the_last_gradients(weighting):
    """With b = z - g: the sum of b and of shares that are not used is 0, under losses and crashes."""
    sizes = [20, 40, 60, 80, 100, 120, 140, 160]
    algorithm, tape = simulate(30, outages=CRASHES, weighting=weighting, sizes=sizes)
    shares = [model for came in algorithm._came for model in came]
    shares += [model for model, _ in algorithm.sums.unused()]
    bases = tape.values(algorithm.base)
    assert np.abs(bases).max() > 0.1
    np.testing.assert_allclose(bases.sum(axis=0) + tape.values(shares).sum(axis=0), 0.0, atol=1e-12)


def test_observers_see_both_vectors():
    links = {"latency": "1 ms", "loss": 0.3, "resend_timeout": "2 ms"}
    report = network(private("asy_sonata", links=links), observers=[0, EVERY_LINK])
    assert (report.pairs["epsilon"] <= report.pairs["local"]).all()
    assert report.pairs["epsilon"].max() > 0.0


def test_a_graph_that_changes_is_warned_of():
    text = "algorithm: {kind: asy_sonata}\nclients: 8\ntopology: {kind: one_peer, redraw_every: 1 s}"
    assert loads(text).warnings() == (
        "algorithm.graph: asy_sonata is proven for a constant graph, and topology 'one_peer' changes; a lost share "
        "waits until its link is back",
    )
