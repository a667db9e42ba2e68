"""Streaming DiLoCo: its turns written out in NumPy, its clock, and DiLoCo as its limit."""

import math

import numpy as np
import pytest

from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.algorithms.test_fedbuff import ETA, STEPS, change
from tests.helpers import Lab, constant, exponential, make_problem, make_world, run_algorithm
from tests.helpers import run_without_numbers as run

SPEEDS = [1.0, 1.37, 2.11, 0.53, 3.17, 0.71]
LATENCY_S, BANDWIDTH = 0.05, 3e4
LR, BETA, ALPHA, P = 0.6, 0.8, 0.3, 4


def turns(problem, initial, delay, count):
    """Return the times of the turns' ends, [turn, client], and the server's model, by plain loops in float64."""
    d = len(initial)
    parts = [slice(d * p // P, d * (p + 1) // P) for p in range(P)]
    x, m, models, draws = initial.copy(), np.zeros(d), [initial] * 6, [0] * 6
    now, ends, arrivals, results = np.zeros(6), [], [], []
    for n in range(count):
        part = parts[n % P]
        message_s = LATENCY_S + 4 * (part.stop - part.start) / BANDWIDTH
        now = now + 8e-3 * np.array(STEPS) * SPEEDS
        ends.append(now)
        for k in range(6):
            models[k] = models[k] + change(problem, models[k], k, draws[k], STEPS[k])
            draws[k] += STEPS[k]
        total = np.mean([x[part] - model[part] for model in models], axis=0)
        m[part] = BETA * m[part] + total
        x[part] -= LR * (total + BETA * m[part])
        arrivals.append(now.max() + 2 * message_s)
        results.append(x[part].copy())
        if n >= delay:
            part = parts[(n - delay) % P]
            now = np.maximum(now, arrivals[n - delay])
            for model in models:
                model[part] = ALPHA * model[part] + (1 - ALPHA) * results[n - delay]
    return np.array(ends), x


@pytest.mark.numbers
@pytest.mark.slow
@pytest.mark.parametrize("delay", [0, 1, 3])
def test_times_and_models_equal_those_of_plain_loops(delay):
    problem = make_problem(6, local=True)
    links = LinkModel(latency=constant(LATENCY_S), bandwidth=BANDWIDTH)
    with Lab(problem) as lab:
        training = lab.training(step_size=ETA)
        algorithm, rows = run_algorithm(
            "streaming_diloco", make_world(6, speeds=SPEEDS, links=links), lab.tape, training, until=1.9, steps=STEPS,
            fragments=P, server_step=LR, momentum=BETA, local_share=ALPHA, delay=delay,
        )  # fmt: skip
        model = lab.tape.values(algorithm.models())[0]
    steps = sum(algorithm.stepped)
    ends, x = turns(problem, training.initial.astype(np.float64), delay, 40)
    for k in range(6):
        times = [row[0] for row in rows if row[1] == k]
        assert times == pytest.approx(ends[: len(times), k])
        assert len(times) >= steps > 6
    _, x = turns(problem, training.initial.astype(np.float64), delay, steps)
    np.testing.assert_allclose(model, x, rtol=0, atol=2e-5)
    assert np.abs(x - training.initial).max() > 0.05


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_a_fragment_that_all_send_is_not_stale(delay):
    """All clients apply a fragment's mean before they send it again; a client that joins may have an older one."""
    options = {"fragments": P, "delay": delay, "until": 3.0}
    links = LinkModel(latency=exponential(0.02), bandwidth=BANDWIDTH)
    algorithm, rows = run("streaming_diloco", make_world(6, speeds=SPEEDS, links=links), **options)
    assert min(algorithm.stepped) > 3
    assert {row[4] for row in rows} == {0}
    world = make_world(
        6, speeds=SPEEDS, links=links, outages={1: [Outage(0.0, 1.0)], 2: [Outage(0.7, 1.1, crash=True)]}
    )
    _, rows = run("streaming_diloco", world, **options)
    assert {row[4] for row in rows if row[0] < 1.0} == {0}
    assert {row[4] for row in rows} <= {0, 1}


def test_a_client_that_comes_back_joins_in_a_new_turn():
    away = {1: [Outage(0.1, 0.5, crash=True)], 2: [Outage(1.0, math.inf, crash=True)]}
    world = make_world(3, outages=away, links=LinkModel(latency=constant(0.005)))
    algorithm, rows = run("streaming_diloco", world, until=2.0, fragments=4, delay=1)
    made = [[row[0] for row in rows if row[1] == k] for k in range(3)]
    assert len(made[0]) > 210, "no client waits for absent clients"
    assert not [time for time in made[1] if 0.1 < time < 0.5]
    assert len([time for time in made[1] if time > 0.5]) > 140
    assert abs(algorithm.turn[0] - algorithm.turn[1]) <= 1
    assert set(algorithm.first) == {0, 1}
