"""Times and staleness of servers are theorems: recursions for fixed speeds, product forms for exponential times."""

import itertools

import numpy as np
import pytest

import simfl
from simfl.data.synthetic import load_quadratic
from simfl.streams import Streams
from tests.algorithms.test_ringmaster import BATCH_S, SPEEDS, by_hand
from tests.helpers import exponential, make_world, run_without_numbers

TAU = BATCH_S * np.array(SPEEDS)
EPSILON, STEP = 1e-3, 0.1
DATA = {"samples": 40, "dimension": 6, "condition_number": 10.0, "noise": 0.0}


def suboptimalities(read_at):
    """Return f - f* after each step; step k is along the gradient at the model after `read_at[k]` steps."""
    data = load_quadratic(None, Streams(0), **DATA)
    h = data.curvature.astype(float)
    models = [-data.optimum.astype(float)]
    for version in read_at:
        models.append(models[-1] - STEP * h * models[version])
    return np.array([0.5 * h @ model**2 for model in models[1:]])


def together(size):
    """Return the times of 400 steps, each min {t: sum_i floor(t / tau_i) >= S} long."""
    multiples = np.sort(np.concatenate([tau * np.arange(1, size + 1) for tau in TAU]))
    return multiples[size - 1] * np.arange(1, 401)


def ringmaster(late):
    rows, _ = by_hand(3, late, 400)
    return np.array([time for time, *_ in rows]), [number - delay for number, (_, _, delay) in enumerate(rows)]


PREDICTED = {
    "rennala": ({"gradients_per_step": 4, "late": "stop"}, lambda: (together(4), range(400))),
    "m_sync_sgd": ({"wait_for": 3}, lambda: (TAU[2] * np.arange(1, 401), range(400))),
    "ringmaster": ({"threshold": 3}, lambda: ringmaster("drop")),
    "ringmaster that stops": ({"threshold": 3, "late": "stop"}, lambda: ringmaster("stop")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PREDICTED)
def test_times_to_epsilon_are_those_of_the_recursions_within_5_percent(name, tmp_path):
    """A little noise in the gradients, 1/1000 of the first one, does not change that."""
    options, predict = PREDICTED[name]
    times, read_at = predict()
    reached = suboptimalities(read_at) <= EPSILON
    expected = times[np.argmax(reached)]
    assert 30 < np.argmax(reached) < 399
    optimizing = {"batch_size": 8, "step_size": STEP, "gradient_noise": 1e-3}
    scenario = {
        "data": {"set": "quadratic", **DATA},
        "model": "quadratic",
        "clients": {"count": 5, "seconds_per_example": 1e-3, "speed": {"kind": "list", "values": SPEEDS}},
        "links": {"latency": 0, "bandwidth": "1000 Gbit/s"},
        "algorithm": {"kind": name.partition(" ")[0], **optimizing, **options},
        "stop": {"time": 2 * float(expected), "suboptimality": EPSILON},
        "evaluate": {"every": {"time": float(expected) / 300}, "metrics": ["suboptimality"]},
    }
    table = simfl.run(scenario, out=tmp_path).metrics
    time = table["time_s"][table["suboptimality"] <= EPSILON].iloc[0]
    assert time == pytest.approx(expected, rel=0.05)


def throughput(rates, tasks):
    """Return the updates per second of a closed network: at most one task a client, the next client any idle one.

    The clients S that compute have the product form P(S) ~ prod_{i in S} 1 / rate_i, for the chain that moves a task
    from a client that is done to a client drawn from it and those that do not compute is reversible.
    """
    weights = {one: 1 / np.prod([rates[k] for k in one]) for one in itertools.combinations(range(len(rates)), tasks)}
    return sum(weight * sum(rates[k] for k in one) for one, weight in weights.items()) / sum(weights.values())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "tasks"), [("async_sgd", 6), ("fedasync", 6), ("fedasync", 3)])
def test_mean_staleness_of_each_client_is_that_of_the_product_form(kind, tasks):
    """While client i computes, the others are a network with one task less (arrival theorem).

    So the mean staleness of its updates is their throughput over its rate; see https://arxiv.org/abs/2502.08206.
    """
    speeds = [1.0, 1.5, 2.0, 3.0, 5.0, 8.0]
    rates = 1 / (8e-3 * np.array(speeds))
    options = {} if kind == "async_sgd" else {"concurrency": tasks}
    world = make_world(6, speeds=speeds, jitter=exponential(1.0), seed=11)
    _, rows = run_without_numbers(kind, world, updates=16_000, **options)
    for client in range(6):
        stale = np.array([row[4] for row in rows if row[1] == client][10:], dtype=float)
        means = stale[: len(stale) // 20 * 20].reshape(20, -1).mean(axis=1)
        expected = throughput(np.delete(rates, client), tasks - 1) / rates[client]
        error = means.std(ddof=1) / np.sqrt(20)
        assert abs(means.mean() - expected) < 4 * error, (client, means.mean(), expected, error)
        assert error < 0.05 * expected, "the test could notice a difference"
