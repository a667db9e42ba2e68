"""APFL: both models written out in NumPy, and the two ends of the mixture."""

import dataclasses

import numpy as np
import pytest

from simfl.tape.problem import LocalRounds
from simfl.world.links import LinkModel
from tests.algorithms.test_ditto import CLIENTS, ROUNDS, SIZES, STEPS
from tests.algorithms.test_fedavg import change, numbers
from tests.helpers import constant, make_problem, make_world


def played(kind, **options):
    """Return the sum of the server's model and two personal ones, the first model, the problem and the time."""
    problem = dataclasses.replace(
        make_problem(CLIENTS, sizes=SIZES, local=True), rounds=LocalRounds(corrected=kind == "ditto")
    )
    world = make_world(CLIENTS, links=LinkModel(latency=constant(1e-3)))

    def watch(algorithm):
        v = algorithm.personal
        algorithm.models = lambda: [algorithm.tape.combine((1.0, algorithm.server_model), (1.0, v[3]), (0.5, v[5]))]

    total, start, *_ = numbers(kind, problem, world, ROUNDS * CLIENTS, watch, steps=STEPS, **options)
    return total, start, problem, world.clock.now


@pytest.mark.numbers
@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_rounds_equal_the_listing_in_numpy(alpha):
    total, start, problem, now = played("apfl", mixture=alpha)
    x, draws, weights = start, [0] * CLIENTS, np.array(SIZES) / sum(SIZES)
    v, mixed, w = [start] * CLIENTS, [start] * CLIENTS, [start] * CLIENTS
    for _ in range(ROUNDS):
        for k, steps in enumerate(STEPS):
            w[k] = x
            for h in range(steps):
                at = alpha * v[k] + (1 - alpha) * w[k]
                v[k] = v[k] + alpha * change(problem, at, k, draws[k] + 2 * h, 1)
                w[k] = w[k] + change(problem, w[k], k, draws[k] + 2 * h + 1, 1)
            draws[k] += 2 * steps
            mixed[k] = alpha * v[k] + (1 - alpha) * w[k]
        x = x + weights @ (np.array(w) - x)
    np.testing.assert_allclose(total, x + mixed[3] + 0.5 * mixed[5], rtol=0, atol=1e-5)
    assert now == played("ditto")[3], "a round takes the time of both models"
    assert np.abs(mixed[3] - x).max() > 0.05


@pytest.mark.numbers
@pytest.mark.slow
def test_without_a_weight_the_personal_model_is_that_of_a_round_of_fedavg():
    """With alpha = 0, m_k is w_k after the round."""

    def keep(algorithm):
        algorithm.models = lambda: [algorithm.personal[2]]

    problem, world = make_problem(CLIENTS, sizes=SIZES, local=True), make_world(CLIENTS)
    total, start, *_ = numbers("apfl", problem, world, CLIENTS, keep, steps=STEPS, mixture=0.0)
    w = start
    for h in range(STEPS[2]):
        w = w + change(problem, w, 2, 2 * h + 1, 1)
    np.testing.assert_allclose(total, w, rtol=0, atol=1e-5)
