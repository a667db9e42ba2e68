"""CA2FL, ACE and FADAS equal servers in NumPy; with unlike data and speeds, caches remove the bias of fast clients."""

import numpy as np
import pytest

import simfl
from simfl.algorithms.staleness import StalenessBound
from simfl.robust.rules.median import Median
from tests.algorithms.test_fedbuff import Watched, change
from tests.helpers import make_problem


def served(watched, problem, take):
    """Replay the clients of a run; `take(w, client, Delta, weight, staleness, version)` returns the server's model."""
    w, under_way, version = watched.training.initial.astype(np.float64), {}, 0
    for event, client, *rest in watched.events:
        if event == "read":
            under_way[client] = version, w
        elif event == "train":
            read, start = under_way[client]
            under_way[client] = read, change(problem, start, client, *rest)
        else:
            weight, staleness = rest
            read, delta = under_way.pop(client)
            assert staleness == version - read
            after = w if weight == 0.0 else take(w, client, weight * delta, staleness, version)
            version += after is not w
            w = after
    assert np.abs(w - watched.training.initial).max() > 0.02, "the run went somewhere"
    return w


@pytest.mark.parametrize(
    "options",
    [{}, pytest.param({"after_update": "wait", "server_step": 0.7}, marks=pytest.mark.slow)],
    ids=["paper", "waiting"],
)
def test_ca2fl_equals_a_numpy_server(options):
    problem = make_problem(6, local=True)
    watched = Watched(problem, "ca2fl", updates=61, buffer_size=4, staleness_exponent=0.0, noise="client", **options)
    cache, buffer = dict.fromkeys(range(6), 0.0), []

    def take(w, client, delta, staleness, version):
        buffer.append((client, delta))
        if len(buffer) < 4:
            return w
        mean = sum(cache.values()) / 6
        v = mean + sum(delta - cache[client] for client, delta in buffer) / 4
        cache.update(buffer)
        buffer.clear()
        return w + options.get("server_step", 1.0) * v

    expected = served(watched, problem, take)
    np.testing.assert_allclose(watched.model, expected, rtol=0, atol=1e-5)
    fast = [row for row in watched.rows if row[1] == 3]
    assert len(fast) > len({row[3] for row in fast}) or options, "a client was twice in a buffer"


@pytest.mark.parametrize(
    "options",
    [{}, {"max_age": 3, "server_step": 0.7, "staleness": StalenessBound(6, "down_weight")}],
    ids=["ace", "aced"],
)
def test_ace_equals_a_numpy_server(options):
    problem = make_problem(6, local=True)
    watched = Watched(problem, "ace", updates=60, **options)
    cache, left_out = {}, 0

    def take(w, client, delta, staleness, version):
        nonlocal left_out
        cache[client] = version - staleness, delta
        oldest = version - options.get("max_age", 1000)
        young = [delta for k, (read, delta) in cache.items() if read >= oldest or k == client]
        left_out += len(cache) - len(young)
        return w + options.get("server_step", 1.0) * np.mean(young, axis=0)

    expected = served(watched, problem, take)
    np.testing.assert_allclose(watched.model, expected, rtol=0, atol=1e-5)
    assert (left_out > 0) == ("max_age" in options)


@pytest.mark.parametrize(
    ("threshold", "corrected", "rule"),
    [(1, True, None), (1, False, Median()), pytest.param(None, True, None, marks=pytest.mark.slow)],
)
def test_fadas_equals_a_numpy_server(threshold, corrected, rule):
    """With the corrections of the authors' program, `update_model_inplace` with `fedams`, or without.

    A robust rule takes the place of the mean.
    """
    problem = make_problem(6, local=True)
    options = {"server_step": 0.02, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "delay_threshold": threshold}
    options |= {} if corrected else {"bias_correction": False}
    options |= {"buffer_size": 3, "staleness_exponent": 0.0, "noise": "client"}
    watched = Watched(problem, "fadas", updates=60, rule=rule, **options)
    buffer, m, v, u, delays = [], 0.0, 0.0, 0.0, set()

    def take(w, client, delta, staleness, version):
        nonlocal m, v, u
        buffer.append((staleness, delta))
        if len(buffer) < 3:
            return w
        middle = np.mean if rule is None else np.median
        mean, latest = middle([delta for _, delta in buffer], axis=0), max(staleness for staleness, _ in buffer)
        buffer.clear()
        delays.add(latest)
        m, v = 0.8 * m + 0.2 * mean, 0.95 * v + 0.05 * mean**2
        u = np.maximum(u, v)
        step = 0.02 / latest if threshold is not None and latest > threshold else 0.02
        first, second = (1 - 0.8 ** (version + 1), 1 - 0.95 ** (version + 1)) if corrected else (1.0, 1.0)
        return w + step / first * m / (np.sqrt(u) / np.sqrt(second) + 1e-3)

    expected = served(watched, problem, take)
    np.testing.assert_allclose(watched.model, expected, rtol=0, atol=1e-5)
    assert min(delays) <= 1 < max(delays)


@pytest.mark.parametrize(
    ("given", "steps"),
    [({"kind": "ace"}, 1), ({"kind": "ace", "local_epochs": 1}, 7), ({"kind": "ace", "local_steps": 4}, 4),
     ({"kind": "ca2fl"}, 7)],
)  # fmt: skip
def test_a_client_of_ace_sends_one_gradient_by_default(given, steps):
    """As in the paper; a scenario may give passes or steps."""
    sections = {"data": {"set": "linear", "samples": 52, "dimension": 4}, "model": "linear", "stop": {"updates": 2}}
    setup = simfl.prepare(simfl.load({**sections, "clients": 4, "algorithm": {**given, "batch_size": 2}}))
    assert setup.options["steps"] == [steps] * 4
