from types import SimpleNamespace

import numpy as np
import pytest

from simfl.algorithms.aggregation import Weighted
from simfl.algorithms.mixing import CommonMixing, Shown
from simfl.algorithms.steps import State
from simfl.tape import Model, Tape
from simfl.tape.recording import Row
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.helpers import NumpyExecutor, constant, make_training, make_world, run_algorithm, run_without_numbers

D = 3


def gossip(world, models, *, rounds, mixing="metropolis"):
    """Average without steps; return the models f64 [rounds + 1, K, D] after each round, at equal speeds."""
    tape = Tape(NumpyExecutor(D), window=100)
    training = make_training([64] * world.num_clients, d=D, step_size=0.0)
    seen = []

    def prepare(algorithm):
        for r in range(rounds + 1):
            world.clock.call_at(0.008 * r + 0.004, lambda: seen.append(tape.values(algorithm.model)))

    run_algorithm(
        "decentralized_sgd", world, tape, training, until=0.008 * (rounds + 1), models=models, prepare=prepare,
        mixing=mixing,
    )  # fmt: skip
    return np.array(seen)


def distance(models):
    return np.sqrt(((models - models.mean(axis=-2, keepdims=True)) ** 2).sum(axis=(-2, -1)))


@pytest.mark.parametrize(
    ("topology", "num_clients", "mixing"),
    [
        ("ring", 8, "metropolis"),
        ("ring", 9, "uniform"),
        ("torus", 16, "metropolis"),
        ("star", 8, "metropolis"),
        ("star", 8, "max_degree"),
        ("exponential", 16, "uniform"),
    ],
)
def test_gossip_contracts_at_the_rate_of_the_spectral_gap(topology, num_clients, mixing):
    world = make_world(num_clients, topology=topology)
    models = np.random.default_rng(0).standard_normal((num_clients, D))
    rounds = 25
    distances = distance(gossip(world, models, rounds=rounds, mixing=mixing))
    rate = 1 - world.topology.spectral_gap(mixing)
    assert 0.1 < rate < 0.95
    assert (distances[1:] <= distances[:-1] * rate * (1 + 1e-5)).all(), "never slower than the gap says"
    assert distances[-1] / distances[-2] == pytest.approx(rate, rel=2e-3), "and in the end no faster"


def test_rounds_are_those_that_all_active_clients_have_completed():
    outages = {2: [Outage(0.0, 0.4)], 5: [Outage(0.2, float("inf"), crash=True)]}
    algorithm, rows = run_without_numbers("decentralized_sgd", make_world(8, outages=outages), until=0.801)
    assert algorithm.rounds >= 90, "neither who joins late nor who has left holds the count"
    first = next(row[3] for row in rows if row[1] == 2)
    assert first == pytest.approx(0.4 / 0.008, abs=2), "who joins late begins with the round that comes next"
    assert max(row[3] for row in rows if row[1] == 5) == pytest.approx(0.2 / 0.008, abs=2)


def test_the_weight_of_a_neighbor_that_left_goes_to_the_clients_own_model():
    outages = {0: [Outage(0.012, float("inf"), crash=True)]}
    world = make_world(3, topology="star", outages=outages)
    models = np.array([[6.0], [0.0], [3.0]]) * np.ones((1, D))
    after = gossip(world, models, rounds=4)
    # Client 0, in the center, has sent its model of round 1 when it leaves: it counts once more, and then not again.
    third = 1 / 3
    first = [[3.0], [2.0], [4.0]]
    np.testing.assert_allclose(after[1], first * np.ones((1, D)), atol=1e-6)
    second = [2 * third * 2.0 + third * 3.0, 2 * third * 4.0 + third * 3.0]
    for later in after[2:]:
        np.testing.assert_allclose(later[:, 0], [3.0, *second], atol=1e-6)


def test_a_client_that_is_offline_when_a_neighbor_leaves_continues_at_its_return():
    outages = {0: [Outage(0.02, 0.06)], 1: [Outage(0.03, float("inf"), crash=True)]}
    world = make_world(2, speeds=[1.0, 10.0], links=LinkModel(latency=constant(0.04)), outages=outages)
    _, rows = run_without_numbers("decentralized_sgd", world, until=0.1)
    assert rows[0][:2] == (pytest.approx(0.06), 0), "it waited for its neighbor's model, which is lost"


def test_a_round_frees_the_rows_of_models_before_those_of_states():
    """This order is recorded, and places of rows in the bank follow it."""
    freed, mean = [], Model((), ())
    tape = SimpleNamespace(combine=lambda *terms: mean, settle=lambda model: model)
    descent = SimpleNamespace(averages=True, shown=lambda client: None, average=lambda client, terms: None)
    means = CommonMixing(SimpleNamespace(tape=tape, descent=descent, training=SimpleNamespace(model_bytes=4)))

    def vector(number):
        return Model((Row(number, 0, freed),), (1.0,))

    heard = [(j, 0.25, Shown(vector(j), State((vector(10 + j),), 0))) for j in (1, 2, 3)]
    assert means.mix(0, 0, Weighted(mean, 0.25), heard) is mean
    assert freed == [3, 2, 1, 13, 12, 11]
