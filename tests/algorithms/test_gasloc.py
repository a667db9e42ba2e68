"""GASLoC: an independent loop with event times, DiLoCo as the limit of equal clients, and momentum of pairs."""

import numpy as np
import pytest

from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.algorithms.test_noloco import BANDWIDTH, LATENCY_S, SPEEDS, STEPS, D, local, play
from tests.helpers import (
    NumpyExecutor,
    constant,
    exponential,
    make_training,
    make_world,
    run_algorithm,
    run_without_numbers,
    targets,
)

OPTIONS = {"group": 2, "outer_step": 0.9, "momentum": 0.4, "consensus": 0.8}


def run(world, pulls, **options):
    return play("gasloc", world, pulls, **{**OPTIONS, **options})


@pytest.mark.parametrize("group", [2, 3])
def test_models_and_times_equal_those_of_a_loop(group):
    """Seven clients: the last group is smaller. The loop knows each round's groups, and nothing of simfl's events."""
    count, rounds, message_s = 7, 9, LATENCY_S + 4 * D / BANDWIDTH
    links = LinkModel(latency=constant(LATENCY_S), bandwidth=BANDWIDTH)
    world = make_world(count, topology="complete", speeds=SPEEDS, links=links)
    pulls, x, before = targets(count, D), np.zeros((count, D)), np.zeros((count, D))
    free, times, models = np.zeros(count), np.zeros((rounds, count)), []
    for number in range(rounds):
        order = world.streams.generator("noloco", 0, number).permutation(count).tolist()
        trained = free + 8e-3 * np.array(SPEEDS) * STEPS
        u = x + 0.9 * np.array([local(x[k], pulls[k], STEPS[k]) for k in range(count)])
        for at in range(0, count, group):
            members = order[at : at + group]
            for k in members:
                x[k] = u[k] - 0.8 * (u[k] - u[members].mean(0)) + 0.4 * (u[k] - before[k])
                free[k] = max([trained[k], *(trained[j] + message_s for j in members if j != k)])
        before, times[number] = u, free
        models.append(x.copy())
    if group == 2:  # with more, the messages of a client would share its links
        _, rows, _ = run(world, pulls, updates=count * (rounds - 2))
        for row in rows:
            assert row[0] == pytest.approx(times[row[3], row[1]], abs=1e-12)
    snapshots = {}

    def prepare(algorithm):
        algorithm.on_update = lambda row: snapshots.setdefault((row[3], row[1]), algorithm.model[row[1]])

    world = make_world(count, topology="complete", speeds=SPEEDS)
    algorithm, _, _ = run(world, pulls, group=group, updates=count * rounds + 5, prepare=prepare)
    for number in range(rounds - 1):
        found = algorithm.tape.values([snapshots[number, k] for k in range(count)])
        np.testing.assert_allclose(found, models[number], atol=1e-6)


def test_with_equal_clients_it_is_diloco():
    """Nesterov's momentum of DiLoCo's server, m <- gamma m + g and x <- x + eta (g + gamma m), in a plain loop."""
    pulls, x, m = np.ones((4, D)), np.zeros(D), np.zeros(D)
    for _ in range(10):
        g = local(x, pulls[0], 3)
        m = 0.4 * m + g
        x = x + 0.9 * (g + 0.4 * m)
    _, _, models = run(make_world(4), pulls, steps=[3] * 4, consensus=1.0, updates=40)
    np.testing.assert_allclose(models, np.broadcast_to(x, models.shape), atol=1e-6)


@pytest.mark.parametrize(("momentum", "grows"), [(0.0, False), (0.5, False), (0.7, False), (0.9, True)])
def test_pairs_with_much_momentum_drift_apart(momentum, grows):
    """Ten clients that do not train, from models apart."""
    apart = np.random.default_rng(1).standard_normal((10, D)).astype(np.float32)
    tape = Tape(NumpyExecutor(D, change=lambda params, *_: np.zeros(D)), local=True, corrected=True)
    training = make_training([64] * 10, d=D)
    options = {**OPTIONS, "consensus": 1.0, "momentum": momentum}

    def prepare(algorithm):  # u of the round before the first
        algorithm._before = list(algorithm.model)

    algorithm, _ = run_algorithm(
        "gasloc", make_world(10), tape, training, updates=10 * 150, models=apart, prepare=prepare, **options
    )
    left = tape.values(algorithm.models()).std(axis=0).max()
    assert (left > 10.0) if grows else (left < 0.5)


def test_groups_go_on_without_clients_that_leave_and_with_late_ones():
    rough = LinkModel(latency=exponential(2e-3), loss=0.2, resend_timeout_s=0.02)
    outages = {1: [Outage(0.1, np.inf, crash=True)], 2: [Outage(0.2, np.inf)], 6: [Outage(0.0, 0.3)]}
    algorithm, rows = run_without_numbers("gasloc", make_world(7, links=rough, outages=outages), until=2.0, **OPTIONS)
    assert {row[1] for row in rows if row[0] > 1.0} == {0, 3, 4, 5, 6}
    assert all(len(box) < 4 for box in algorithm._inbox)
