"""NoLoCo: an independent loop with event times, the limit of one group, and groups that clients leave."""

import numpy as np
import pytest

from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
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

D, STEP, STEPS, LATENCY_S, BANDWIDTH = 3, 0.1, [2, 3, 1, 2, 4, 2, 3], 0.004, 3e4
SPEEDS = [1.0, 1.37, 2.11, 0.53, 3.17, 0.71, 1.9]
OPTIONS = {"group": 2, "outer_step": 0.7, "momentum": 0.5, "consensus": 0.4}


def local(params, pull, steps):
    """Return the change by local steps along params - pull."""
    w = np.array(params, dtype=np.float64)
    for _ in range(steps):
        w = w - STEP * (w - pull)
    return w - params


def play(kind, world, pulls, **options):
    """Run an algorithm with quadratic losses in float64; return it, its rows and models."""
    change = NumpyExecutor(D, change=lambda params, k, draw, steps, *_: local(params, pulls[k], steps))
    tape = Tape(change, window=50, local=True, corrected=True)
    training = make_training([64] * world.num_clients, d=D, step_size=STEP)
    algorithm, rows = run_algorithm(kind, world, tape, training, **{"steps": STEPS[: world.num_clients], **options})
    return algorithm, rows, tape.values(algorithm.models())


def run(world, **options):
    return play("noloco", world, targets(world.num_clients, D), **{**OPTIONS, **options})


@pytest.mark.parametrize("group", [2, 3])
def test_models_and_times_equal_those_of_a_loop(group):
    """Seven clients: the last group is smaller. The loop knows each round's groups, and nothing of simfl's events."""
    count, rounds, message_s = 7, 9, LATENCY_S + 2 * 4 * D / BANDWIDTH
    links = LinkModel(latency=constant(LATENCY_S), bandwidth=BANDWIDTH)
    world = make_world(count, topology="complete", speeds=SPEEDS, links=links)
    pulls, phi, delta = targets(count, D), np.zeros((count, D)), np.zeros((count, D))
    free, times, models = np.zeros(count), np.zeros((rounds, count)), []
    for number in range(rounds):
        order = world.streams.generator("noloco", 0, number).permutation(count).tolist()
        trained = free + 8e-3 * np.array(SPEEDS) * STEPS
        change = np.array([local(phi[k], pulls[k], STEPS[k]) for k in range(count)])
        before = phi.copy()
        for at in range(0, count, group):
            members = order[at : at + group]
            for k in members:
                delta[k] = 0.5 * delta[k] + 0.7 * change[members].mean(0) + 0.4 * (before[members].mean(0) - before[k])
                free[k] = max([trained[k], *(trained[j] + message_s for j in members if j != k)])
        phi, times[number] = phi + delta, free
        models.append(phi)
    if group == 2:  # with more, the messages of a client would share its links
        _, rows, _ = run(world, updates=count * (rounds - 2))
        for row in rows:
            assert row[0] == pytest.approx(times[row[3], row[1]], abs=1e-12)
    snapshots = {}
    world = make_world(count, topology="complete", speeds=SPEEDS)

    def prepare(algorithm):
        algorithm.on_update = lambda row: snapshots.setdefault((row[3], row[1]), algorithm.model[row[1]])

    algorithm, _, _ = run(world, group=group, updates=count * rounds + 5, prepare=prepare)
    for number in range(rounds - 1):
        found = algorithm.tape.values([snapshots[number, k] for k in range(count)])
        np.testing.assert_allclose(found, models[number], atol=1e-6)


def test_one_group_of_all_keeps_models_equal():
    _, _, models = run(make_world(6), group=6, updates=60)
    np.testing.assert_allclose(models, np.broadcast_to(models[0], models.shape), atol=1e-12)


def test_groups_go_on_without_clients_that_leave_and_with_late_ones():
    rough = LinkModel(latency=exponential(2e-3), loss=0.2, resend_timeout_s=0.02)
    outages = {1: [Outage(0.1, np.inf, crash=True)], 2: [Outage(0.2, np.inf)], 6: [Outage(0.0, 0.3)]}
    world = make_world(7, links=rough, outages=outages)
    algorithm, rows = run_without_numbers("noloco", world, until=2.0, **OPTIONS)
    assert {row[1] for row in rows if row[0] > 1.0} == {0, 3, 4, 5, 6}
    assert all(len(box) < 4 for box in algorithm._inbox)
    assert len(algorithm._drawn) < 10
