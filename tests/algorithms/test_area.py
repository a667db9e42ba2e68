"""AREA: its model is the mean of the clients' last models, in NumPy and on the tape, whatever the delays."""

import numpy as np
import pytest

import simfl
from simfl.algorithms.staleness import StalenessBound
from tests.algorithms.test_fedbuff import ETA, STEPS, Watched, change
from tests.helpers import Lab, batch_gradient, lognormal, make_problem, make_world, run_algorithm

SIZES = [16, 96, 40, 64, 24, 80]
SPEEDS = [1.0, 1.37, 2.11, 0.53, 3.19, 6.07]


def afl_sim(problem, updates, size, weighted):
    """Return the model of the authors' order of events in float64, and the versions behind of each update.

    A client that arrives gets the model first; the server steps afterwards, if its buffer is full.
    """
    w = (0.1 * np.random.default_rng(1).standard_normal(problem.model.size)).astype(np.float32).astype(np.float64)
    last, buffer, version, stale, draws = [w] * 6, [], 0, [], [0] * 6
    shares = [6 * n / sum(SIZES) if weighted else 1.0 for n in SIZES]
    reads = [(STEPS[k] * 8e-3 * SPEEDS[k], k, w, 0) for k in range(6)]
    for _ in range(updates):
        now, me, start, read = min(reads, key=lambda one: one[:2])
        reads.remove((now, me, start, read))
        y = start.copy()
        for _ in range(STEPS[me]):
            y -= ETA * shares[me] * batch_gradient(problem, y, me, draws[me], 8) / 8
            draws[me] += 1
        buffer.append(y - last[me])
        last[me] = y
        stale.append(version - read)
        reads.append((now + STEPS[me] * 8e-3 * SPEEDS[me], me, w, version))
        if len(buffer) == size:
            w, version, buffer = w + sum(buffer) / 6, version + 1, []
    return w, stale


@pytest.mark.parametrize(("size", "weighting"), [(3, "data"), (1, "data"), (2, "uniform")])
def test_the_model_equals_a_loop_in_the_order_of_the_authors_program(size, weighting):
    problem = make_problem(6, local=True, sizes=SIZES)
    expected, stale = afl_sim(problem, 61, size, weighting == "data")
    world = make_world(6, speeds=SPEEDS)
    options = {} if (size, weighting) == (3, "data") else {"buffer_size": size, "weighting": weighting}
    with Lab(problem) as lab:
        training = lab.training(step_size=ETA)
        algorithm, rows = run_algorithm("area", world, lab.tape, training, updates=60, steps=STEPS, **options)
        (model,) = lab.tape.values(algorithm.models())
    assert len(rows) == 60
    assert [row[4] for row in rows] == stale[:60]
    assert np.abs(expected - training.initial).max() > 0.02, "the run went somewhere"
    np.testing.assert_allclose(model, afl_sim(problem, 60, size, weighting == "data")[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"buffer_size": 1},
        {"buffer_size": 4},
        pytest.param({"buffer_size": 3, "after_update": "wait"}, marks=pytest.mark.slow),
        {"buffer_size": 2, "staleness": StalenessBound(2, "down_weight")},
        {"buffer_size": 1, "staleness": StalenessBound(4, "drop")},
        {"buffer_size": 2, "staleness": StalenessBound(2, "wait")},
    ],
    ids=["one", "buffer", "waiting", "down_weight", "drop", "wait"],
)
def test_the_model_is_the_mean_of_the_last_models_of_all_clients(options):
    problem = make_problem(6, local=True)
    watched = Watched(problem, "area", updates=61, **options)
    size, first = options["buffer_size"], "wait" not in str(options)
    w, version = watched.training.initial.astype(np.float64), 0
    last, buffer, under_way = [w] * 6, [], {}
    before: tuple = ()
    for event, client, *rest in watched.events:
        if event == "read":
            under_way[client] = before if first and before else (version, w)
        elif event == "train":
            read, start = under_way[client]
            under_way[client] = read, start, change(problem, start, client, *rest)
        else:
            weight, staleness = rest
            read, start, delta = under_way.pop(client)
            assert staleness == version - read
            before = version, w
            if weight:
                buffer.append((client, weight, start + delta))
            if len(buffer) == size:
                for sender, part, model in buffer:
                    last[sender] = (1.0 - part) * last[sender] + part * model
                w, version, buffer = np.mean(last, axis=0), version + 1, []
    assert np.abs(w - watched.training.initial).max() > 0.02, "the run went somewhere"
    np.testing.assert_allclose(watched.model, w, rtol=0, atol=1e-5)
    assert (sum(watched.algorithm.client_dropped) > 0) == ("drop" in str(options))
    if "'wait')" in str(options):
        assert max(row[4] for row in watched.rows) == 2


def test_the_mean_stays_exact_after_many_messages():
    world = make_world(6, speeds=[1.0, 1.0, 2.0, 0.5, 3.0, 6.0], jitter=lognormal(0.5), seed=2)
    with Lab(make_problem(6, local=True)) as lab:
        training = lab.training(step_size=0.3)
        algorithm, _ = run_algorithm("area", world, lab.tape, training, updates=999, steps=[2] * 6)
        model, *last = lab.tape.values([*algorithm.models(), *(algorithm.last.latest[k] for k in range(6))])
    assert np.abs(model - training.initial).max() > 0.5, "the run went somewhere"
    np.testing.assert_allclose(model, np.mean(np.float64(last), axis=0), rtol=0, atol=2e-6)


@pytest.mark.parametrize("weighting", ["data", "uniform"])
def test_the_model_reaches_the_optimum_of_all_examples_if_clients_hold_unequal_shares(weighting, tmp_path):
    """Each client holds copies of one row, so that its mini-batches are all alike."""
    owners = np.repeat(np.arange(4), (2, 12, 4, 8))
    x, y = np.concatenate([np.eye(3), np.full((1, 3), 0.8)]), np.array([1.0, -2.0, 0.5, 1.5])
    np.savez(tmp_path / "rows.npz", x=x[owners], y=y[owners], client=owners)
    scenario = simfl.load(
        {
            "data": {"set": "linear", "path": str(tmp_path / "rows.npz"), "partition": "natural"},
            "model": {"kind": "linear", "intercept": False},
            "clients": {"count": 4, "speed": {"kind": "list", "values": [1, 2, 3, 4]}},
            "algorithm": {"kind": "area", "local_steps": 1, "batch_size": 2, "step_size": 0.3, "weighting": weighting},
            "stop": {"updates": 3000},
            "evaluate": {"every": {"updates": 3000}, "metrics": ["suboptimality"]},
        }
    )
    run = simfl.run(scenario, out=tmp_path)
    assert (run.metrics["suboptimality"].iloc[-1] < 1e-6) == (weighting == "data")
