"""Plexus: an independent loop, event times with interrupted clients, and aggregators that leave."""

import numpy as np
import pytest

from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.helpers import (
    Lab,
    batch_gradient,
    constant,
    exponential,
    make_problem,
    make_world,
    run_algorithm,
    run_without_numbers,
)

BATCH_S = 8e-3


def order(world, number):
    """Return all clients by the hash of the round and of each."""
    return np.argsort(world.streams.generator("sample", 0, number).random(world.num_clients)).tolist()


@pytest.mark.parametrize("success", [1.0, 0.5])
def test_the_model_equals_that_of_a_loop(success):
    """Two local steps of SGD at clients of unequal speed, which may stop older rounds, on the real executor."""
    problem, rounds, speeds = make_problem(6, local=True), 7, [1.0, 1.3, 2.9, 1.7, 4.3, 1.1]
    needed, now, busy, draws, times = int(success * 4), 0.0, {}, [0] * 6, []
    world = make_world(6, speeds=speeds)
    w = (0.1 * np.random.default_rng(1).standard_normal(problem.model.size)).astype(np.float32).astype(np.float64)
    for number in range(rounds):
        came = []
        for k in order(world, number)[:4]:
            if busy.get(k, 0.0) > now:
                draws[k] -= 2  # the round that it left used nothing
            x, busy[k] = w.copy(), now + 2 * BATCH_S * speeds[k]
            for _ in range(2):
                x -= 0.3 * batch_gradient(problem, x, k, draws[k], 8) / 8
                draws[k] += 1
            came.append((busy[k], k, x))
        came = sorted(came, key=lambda one: one[:2])[:needed]
        now, w = came[-1][0], np.mean([x for _, _, x in came], axis=0)
        times.append(now)
    with Lab(problem) as lab:
        training = lab.training(step_size=0.3)
        algorithm, _ = run_algorithm(
            "plexus", world, lab.tape, training, until=times[-1] + 1e-6, sample=4, success=success, steps=[2] * 6
        )
        (model,) = lab.tape.values(algorithm.models())
    assert algorithm.rounds == rounds
    np.testing.assert_allclose(model, w, atol=1e-5)


def run_with_a_slow_member(**absences):
    """Return who is in rounds 0 and 1, and the updates; client `slow` of the first sample takes three times as long.

    `aggregator` and `slow` are when these clients leave.
    """
    for seed in range(100):
        first, second = order(make_world(6, seed=seed), 0)[:3], order(make_world(6, seed=seed), 1)
        if second[0] not in first and second[1] not in first:
            break
    speeds, slow = [1.0] * 6, first[2]
    speeds[slow] = 3.0
    who = {"aggregator": second[0], "slow": slow}
    outages = {who[name]: [Outage(at, np.inf, crash=True)] for name, at in absences.items()}
    world = make_world(6, speeds=speeds, links=LinkModel(latency=constant(1e-3)), outages=outages, seed=seed)
    _, rows = run_without_numbers("plexus", world, until=0.1, sample=3, success=1.0)
    return first, second, [(row[0], row[1]) for row in rows if row[3] == 1]


def test_the_next_client_takes_the_place_of_an_aggregator_that_leaves_at_once():
    _, second, rows = run_with_a_slow_member()
    assert min(rows) == (pytest.approx(25e-3 + BATCH_S), second[0]), "the slow model comes after 25 ms"
    _, second, rows = run_with_a_slow_member(aggregator=12e-3)
    assert min(rows) == (pytest.approx(25e-3 + BATCH_S), second[1]), "others were sent again before"
    assert second[0] not in {client for _, client in rows}
    assert len(rows) == 3
    _, second, rows = run_with_a_slow_member(aggregator=24.5e-3)
    assert min(rows) == (pytest.approx(25.5e-3 + BATCH_S), second[1]), "all were sent again after 24.5 ms"


def test_a_round_ends_at_once_when_all_that_it_waits_for_have_left():
    _, second, rows = run_with_a_slow_member(slow=15e-3)
    assert min(rows) == (pytest.approx(15e-3 + BATCH_S), second[0])
    _, second, rows = run_with_a_slow_member(aggregator=12e-3, slow=12.5e-3)
    assert min(rows) == (pytest.approx(13e-3 + BATCH_S), second[1]), "the models are on their way when it leaves"


def test_aggregators_and_members_that_leave_are_replaced():
    rough = LinkModel(latency=exponential(2e-3), loss=0.2, resend_timeout_s=0.02)
    outages = {k: [Outage(0.1 * k, np.inf, crash=True)] for k in range(1, 6)} | {7: [Outage(0.0, 0.3)]}
    for seed in range(6):
        world = make_world(8, links=rough, outages=outages, seed=seed)
        _, rows = run_without_numbers("plexus", world, until=2.0, sample=4)
        assert {row[1] for row in rows if row[0] > 1.0} == {0, 6, 7}
        assert sum(row[0] > 1.5 for row in rows) > 20
    # All leave, and one joins later.
    outages = {0: [Outage(0.1, np.inf)], 1: [Outage(0.2, np.inf, crash=True)], 2: [Outage(0.0, 0.5)]}
    _, rows = run_without_numbers("plexus", make_world(3, outages=outages), until=1.0)
    assert {row[1] for row in rows if row[0] > 0.5} == {2}
    assert not [row for row in rows if 0.21 < row[0] < 0.5]
