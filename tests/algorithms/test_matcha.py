"""MATCHA: an independent loop, consensus at the rate of rho, times of rounds, and its limit with the whole budget."""

import numpy as np
import pytest

from simfl.world.matchings import laplacians
from tests.helpers import make_world, pulled, targets

D, STEP, BATCH_S, COUNT = 3, 0.1, 8e-3, 9
PULLS = targets(COUNT, D)


def after(rounds, *, models=None, **options):
    """Return an algorithm on a torus and its models after a number of rounds, f64 [9, D]."""
    begin = np.zeros((COUNT, D)) if models is None else models
    world = make_world(COUNT, topology="torus", seed=1)
    return pulled("matcha", world, (rounds + 0.5) * BATCH_S, models=begin, **options)


def mixings(algorithm, rounds):
    """Yield W of each round, from the matchings that are drawn for it."""
    each, streams = laplacians(algorithm.matchings, COUNT), algorithm.world.streams
    for number in range(rounds):
        active = streams.generator("matchings", 0, number).random(len(each)) < algorithm.chances
        yield np.eye(COUNT) - algorithm.alpha * np.tensordot(active, each, 1)


@pytest.mark.parametrize("budget", [0.3, 1.0])
def test_models_equal_those_of_a_loop(budget):
    algorithm, models = after(15, budget=budget)
    x = np.zeros((COUNT, D))
    for mixing in mixings(algorithm, 15):
        x = mixing @ x - STEP * (x - PULLS)
    np.testing.assert_allclose(models, x, atol=1e-5)


def test_matchings_are_active_with_their_probabilities_and_models_keep_their_mean():
    algorithm, models = after(12, step=0.0, budget=0.5, models=PULLS)
    np.testing.assert_allclose(models.mean(axis=0), PULLS.mean(axis=0), atol=1e-5)
    assert np.linalg.norm(models - models.mean(axis=0)) < 0.2 * np.linalg.norm(PULLS - PULLS.mean(axis=0))
    rounds, times = 3000, np.zeros(len(algorithm.matchings))
    for number in range(100, 100 + rounds):
        weights = algorithm._graph_of(number).weights
        times += [edges[0][1] in weights[edges[0][0]] for edges in algorithm.matchings]
    p = algorithm.chances
    assert np.all(np.abs(times / rounds - p) <= 5 * np.sqrt(p * (1 - p) / rounds) + 1e-4)
