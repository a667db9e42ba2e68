"""K-GT against its listing in NumPy, and its linear rate on problems where local D-PSGD stalls."""

import numpy as np

from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.algorithms.test_corrected_gossip import PROBLEM, D, K, w_of
from tests.algorithms.test_corrected_gossip import simulate as tracking
from tests.helpers import NumpyExecutor, exponential, lognormal, make_training, make_world, run_algorithm

STEP, STEPS = 0.03, [1, 2, 3, 4, 5, 4, 3, 2]
SIZES = [20, 40, 60, 80, 100, 120, 140, 160]


def change(params, client, draw, first, steps, size, step, correction=0.0, share=1.0):
    """Return the change by local steps with the exact gradient of the client's quadratic."""
    w = np.array(params)
    for _ in range(steps):
        w = w - step * share * (PROBLEM.hessians[client] @ w - PROBLEM.targets[client] + correction / share)
    return w - params


def simulate(rounds, *, world=None, sizes=(64,) * K, steps=STEPS, step=STEP, **options):
    """Return the clients' models f64 [K, D] after `rounds`, computed by the tape in float64."""
    world = world or make_world(K)

    def rounds_of(params, client, draw, steps, size, step, correction):
        return change(params, client, draw, 0, steps, size, step, correction)

    tape = Tape(NumpyExecutor(D, change=rounds_of), window=60, local=True, corrected=True)
    models = {}

    def prepare(algorithm):
        algorithm.on_update = lambda row: models.setdefault(row[3], {}).setdefault(row[1], algorithm.model[row[1]])

    training = make_training(sizes, d=D, batch_size=4, step_size=step)
    run_algorithm("k_gt", world, tape, training, updates=rounds * K, prepare=prepare, steps=steps, **options)
    last = max(r for r, of_clients in models.items() if len(of_clients) == K)
    return last, tape.values([models[last][k] for k in range(K)])


def listing(rounds, w, *, steps=STEPS, step=STEP, outer=1.0, shares=(1.0,) * K):
    """Algorithm 1 in NumPy; returns x f64 [K, D]."""
    x, c = np.zeros((K, D)), np.zeros((K, D))
    lengths = step * np.array(steps)[:, None]
    for _ in range(rounds):
        z = [change(x[k], k, 0, 0, steps[k], 4, step, c[k], shares[k]) for k in range(K)] / -lengths
        x = w @ (x - outer * lengths * z)
        c = c - (z - w @ z)
    return x


def test_rounds_equal_the_listing_in_numpy():
    """Also with shares of different sizes, and messages that are lost and overtake each other."""
    links = LinkModel(latency=exponential(5e-3), loss=0.3, resend_timeout_s=0.01)
    crash = {3: [Outage(0.02, 0.06, crash=True)]}
    world = make_world(K, topology="star", jitter=lognormal(0.5), links=links, outages=crash)
    last, models = simulate(20, world=world, sizes=SIZES, outer_step=0.7)
    expected = listing(last + 1, w_of("star"), outer=0.7, shares=np.array(SIZES) / np.mean(SIZES))
    assert last > 10
    np.testing.assert_allclose(models, expected, rtol=0, atol=1e-5)


def test_one_step_is_gradient_tracking():
    _, models = simulate(10, steps=[1] * K)
    np.testing.assert_allclose(models, tracking("tracking", 10, step=STEP), rtol=0, atol=1e-6)
