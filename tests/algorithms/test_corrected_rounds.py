"""SCAFFOLD, FedDyn and FedNova: rounds written out in NumPy, and the optimum where FedAvg stalls."""

import dataclasses

import numpy as np
import pytest

from simfl.errors import ScenarioError
from simfl.tape.problem import LocalRounds
from simfl.world.links import LinkModel
from tests.accounts.test_network import network
from tests.accounts.test_network import scenario as private
from tests.algorithms.test_fedavg import ETA, change, numbers
from tests.helpers import constant, make_problem, make_world

K, ROUNDS, ALPHA, MU = 6, 5, 0.5, 0.2
STEPS = [1, 2, 3, 4, 5, 6]
SIZES = [30, 40, 50, 60, 70, 80]
KINDS = {"scaffold": {"server_step": 0.7}, "feddyn": {"weighting": "uniform", "alpha": ALPHA}, "fednova": {"mu": MU}}


def rounds_in_numpy(kind, problem, start):
    """The listings of the papers, for all clients in every round; returns x f64 [d]."""
    weights = np.ones(K) if kind == "feddyn" else np.array(SIZES)
    weights = weights / weights.sum()
    x, c, draws = start.copy(), np.zeros_like(start), [0] * K
    each = np.zeros((K, len(start)))
    pull = {"scaffold": 0.0, "feddyn": ALPHA, "fednova": MU}[kind]
    for _ in range(ROUNDS):
        shift = {"scaffold": c - each, "feddyn": -each, "fednova": 0.0 * each}[kind]
        made = np.array([change(problem, x, k, draws[k], STEPS[k], pull, shift[k]) for k in range(K)])
        draws = [draw + steps for draw, steps in zip(draws, STEPS, strict=True)]
        if kind == "scaffold":
            after = np.array([each[k] - c - made[k] / (STEPS[k] * ETA) for k in range(K)])
            c, each = c + weights @ (after - each), after
            x = x + 0.7 * weights @ made
        elif kind == "feddyn":
            each = each - ALPHA * made
            c = c - ALPHA * made.mean(axis=0)
            x = x + made.mean(axis=0) - c / ALPHA
        else:
            norms = np.array([sum((1 - ETA * MU) ** h for h in range(steps)) for steps in STEPS])
            x = x + (weights @ norms) * (weights @ (made / norms[:, None]))
    return x


@pytest.mark.numbers
@pytest.mark.slow(but=["scaffold"])
@pytest.mark.parametrize("kind", KINDS)
def test_rounds_equal_the_listings_in_numpy(kind):
    problem = make_problem(K, sizes=SIZES, local=True)
    rounds = LocalRounds(proximal={"feddyn": ALPHA, "fednova": MU}.get(kind, 0.0), corrected=kind != "fednova")
    problem = dataclasses.replace(problem, rounds=rounds)
    world = make_world(K, links=LinkModel(latency=constant(1e-3)))
    x, start, *_ = numbers(kind, problem, world, ROUNDS * K, steps=STEPS, **KINDS[kind])
    np.testing.assert_allclose(x, rounds_in_numpy(kind, problem, start), rtol=0, atol=1e-5)
    assert np.abs(x - start).max() > 0.05
    sent = world.network.bytes_sent / (4 * len(start))
    vectors = 2 if kind == "scaffold" else 1
    assert sent == pytest.approx(vectors * K * (2 * ROUNDS - 1), abs=vectors * K), "the first models are there already"


def test_an_observer_of_corrected_rounds_is_refused():
    """The account of a network follows linear forms; that of the releases holds."""
    run = private("scaffold", options={"local_steps": 2}, privacy={"mechanism": "gaussian_update"})
    expected = "expected rounds without control variates, found some, which are added to gradients inside of rounds"
    with pytest.raises(ScenarioError, match=expected):
        network(run, observers=[0])
