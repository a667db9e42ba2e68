"""Ditto: personal models written out in NumPy, FedAvg's global model, and what the pull does."""

import dataclasses

import numpy as np
import pytest

import simfl
from simfl.tape import Tape
from simfl.tape.problem import LocalRounds
from simfl.world.links import LinkModel
from tests.algorithms.test_corrected_gossip import PROBLEM, D, K
from tests.algorithms.test_fedavg import change, numbers
from tests.algorithms.test_k_gt import change as quadratic
from tests.helpers import NumpyExecutor, constant, make_problem, make_training, make_world, run_algorithm

CLIENTS, ROUNDS, PULL = 6, 3, 0.5
STEPS = [1, 2, 3, 4, 5, 6]
SIZES = [30, 40, 50, 60, 70, 80]


@pytest.mark.numbers
@pytest.mark.slow
def test_rounds_equal_the_listing_in_numpy():
    problem = dataclasses.replace(make_problem(CLIENTS, sizes=SIZES, local=True), rounds=LocalRounds(corrected=True))
    world = make_world(CLIENTS, links=LinkModel(latency=constant(1e-3)))

    def watch(algorithm):  # one sum of the global model and two personal ones
        v = algorithm.personal
        algorithm.models = lambda: [algorithm.tape.combine((1.0, algorithm.server_model), (1.0, v[3]), (0.5, v[5]))]

    total, start, *_ = numbers("ditto", problem, world, ROUNDS * CLIENTS, watch, steps=STEPS, personal_pull=PULL)
    expected, v, draws, weights = start, [start] * CLIENTS, [0] * CLIENTS, np.array(SIZES) / sum(SIZES)
    for _ in range(ROUNDS):
        made = []
        for k, steps in enumerate(STEPS):
            for h in range(steps):
                v[k] = v[k] + change(problem, v[k], k, draws[k] + h, 1, correction=PULL * (v[k] - expected))
            made.append(change(problem, expected, k, draws[k] + steps, steps))
            draws[k] += 2 * steps
        expected = expected + weights @ np.array(made)
    np.testing.assert_allclose(total, expected + v[3] + 0.5 * v[5], rtol=0, atol=1e-5)
    assert min(np.abs(v[k] - expected).max() for k in range(CLIENTS)) > 0.05


def personal(pull, rounds=70):
    """Return x and all v after rounds of whole batches on quadratics, in float64."""

    def rounds_of(params, client, draw, steps, size, step, correction):
        return quadratic(params, client, draw, 0, steps, size, step, correction)

    tape = Tape(NumpyExecutor(D, change=rounds_of), window=60, local=True, corrected=True)
    training = make_training([64] * K, d=D, batch_size=4, step_size=0.1)
    algorithm, _ = run_algorithm(
        "ditto", make_world(K), tape, training, updates=rounds * K, steps=[2] * K, personal_pull=pull
    )
    return tape.values(algorithm.models())[0], tape.values(algorithm.client_models())


def test_personal_models_minimize_the_local_loss_with_the_pull():
    """v = (H + lambda I)^-1 (b + lambda x); without a pull it is the local minimizer, and x does not depend on it."""
    x, v = personal(1.0)
    for k in range(K):
        expected = np.linalg.solve(PROBLEM.hessians[k] + np.eye(D), PROBLEM.targets[k] + x)
        np.testing.assert_allclose(v[k], expected, rtol=0, atol=1e-4)
    same, alone = personal(0.0)
    np.testing.assert_allclose(same, x, rtol=0, atol=1e-12)
    assert np.abs(alone - v).max() > 0.1


def test_a_round_takes_the_time_of_both_models():
    ends = {}
    for kind in ("fedavg", "ditto"):
        world = make_world(K)
        tape = Tape(NumpyExecutor(D, change=lambda w, *_: 0.0 * w), window=60, local=True, corrected=kind == "ditto")
        run_algorithm(kind, world, tape, make_training([64] * K, d=D), updates=4 * K, steps=[3] * K)
        ends[kind] = world.clock.now
    assert ends["ditto"] == pytest.approx(2 * ends["fedavg"])


@pytest.mark.numbers
@pytest.mark.slow
def test_personal_models_are_in_the_table_of_clients(tmp_path):
    scenario = {
        "name": "personal",
        "data": {"set": "digits", "partition": {"kind": "shards", "shards_per_client": 2}},
        "model": "softmax",
        "clients": 8,
        "algorithm": {"kind": "ditto", "local_epochs": 1, "batch_size": 16, "step_size": 0.2, "personal_pull": 0.1},
        "stop": {"epochs": 6},
        "evaluate": {
            "every": {"epochs": 3},
            "clients": True,
            "metrics": ["own_classes", "own_classes_models", "worst_decile_models"],
        },
        "record": {"client_models": True},
    }
    run = simfl.run(scenario, out=tmp_path)
    last = run.client_metrics[run.client_metrics["updates"] == run.client_metrics["updates"].max()]
    assert len(last) == 8
    assert last["test_accuracy"].max() < run.metrics["test_accuracy"].iloc[-1], "they know two digits each"
    end = run.metrics.iloc[-1]
    assert end["own_classes_models"] > max(0.95, end["own_classes"]), "of the two, a client's own model knows it better"
    assert end["own_classes"] == pytest.approx(end["test_accuracy"], abs=0.05), "all mixes together are the test set's"
    assert run.client_models["weights"].shape == (8, *run.model["weights"].shape)
