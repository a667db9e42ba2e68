"""pFedMe: rounds written out in NumPy, and FedProx where it is that."""

import numpy as np
import pytest

from simfl.world.links import LinkModel
from tests.algorithms.test_ditto import CLIENTS, ROUNDS, SIZES, STEPS
from tests.algorithms.test_fedavg import change, numbers
from tests.helpers import constant, make_problem, make_world

PULL, OUTER, INNER = 2.0, 0.3, 2


def played(kind="pfedme", proximal=PULL, rounds=ROUNDS, **options):
    problem = make_problem(CLIENTS, sizes=SIZES, local=True, proximal=proximal)
    world = make_world(CLIENTS, links=LinkModel(latency=constant(1e-3)))

    def watch(algorithm):
        v = getattr(algorithm, "personal", None)
        if v is not None:
            algorithm.models = lambda: [algorithm.tape.combine((1.0, algorithm.server_model), (1.0, v[3]), (0.5, v[5]))]

    total, start, *_ = numbers(kind, problem, world, rounds * CLIENTS, watch, steps=STEPS, **options)
    return total, start, problem, world.clock.now


@pytest.mark.numbers
@pytest.mark.slow
def test_rounds_equal_the_listing_in_numpy():
    """Six clients make 1 to 6 steps in groups of two: some have a last group of one."""
    total, start, problem, now = played(inner_steps=INNER, outer_step=OUTER, mu=PULL, server_step=0.7)
    x, draws, weights, theta = start, [0] * CLIENTS, np.array(SIZES) / sum(SIZES), [start] * CLIENTS
    for _ in range(ROUNDS):
        moved = []
        for k, steps in enumerate(STEPS):
            w, left = x, steps
            while left:
                group = min(INNER, left)
                theta[k] = w + change(problem, w, k, draws[k], group, proximal=PULL)
                w = w - OUTER * PULL * (w - theta[k])
                draws[k], left = draws[k] + group, left - group
            moved.append(w - x)
        x = x + 0.7 * (weights @ np.array(moved))
    np.testing.assert_allclose(total, x + theta[3] + 0.5 * theta[5], rtol=0, atol=1e-5)
    assert now == played("fedavg", proximal=0.0)[3], "it makes no other steps than FedAvg"


@pytest.mark.numbers
@pytest.mark.slow
def test_one_group_that_moves_all_the_way_is_fedprox():
    """With K = H and eta lambda = 1, w is theta: a client of FedProx."""

    def server(algorithm):
        algorithm.models = lambda: [algorithm.server_model]

    ends = []
    for kind, options in (("pfedme", {"inner_steps": 6, "outer_step": 1 / PULL, "mu": PULL}), ("fedprox", {})):
        problem = make_problem(CLIENTS, sizes=SIZES, local=True, proximal=PULL)
        ends.append(numbers(kind, problem, make_world(CLIENTS), 2 * CLIENTS, server, steps=STEPS, **options)[0])
    np.testing.assert_allclose(*ends, rtol=0, atol=1e-6)
