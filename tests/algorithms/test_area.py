"""AREA: its model is the mean of the clients' last models, in NumPy and on the tape, whatever the delays."""

from pathlib import Path

import numpy as np
import pytest

import simfl
from simfl.algorithms.staleness import StalenessBound
from simfl.errors import ScenarioError
from tests.algorithms.test_cached import served
from tests.algorithms.test_fedbuff import Watched
from tests.helpers import Lab, lognormal, make_problem, make_world, run_algorithm

SCENARIO = Path(__file__).parents[2] / "scenarios/late/area.yaml"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"buffer_size": 4},
        pytest.param({"buffer_size": 3, "after_update": "wait"}, marks=pytest.mark.slow),
        {"buffer_size": 2, "staleness": StalenessBound(2, "down_weight")},
        {"staleness": StalenessBound(4, "drop")},
    ],
    ids=["one", "buffer", "waiting", "down_weight", "drop"],
)
def test_the_model_is_the_mean_of_the_last_models_of_all_clients(options):
    problem = make_problem(6, local=True)
    watched = Watched(problem, "area", updates=61, **options)
    initial, size = watched.training.initial.astype(np.float64), options.get("buffer_size", 1)
    last, buffer, models = [initial] * 6, [], {0: initial}
    weights = iter([event[2] for event in watched.events if event[0] == "take" and event[2]])

    def take(w, client, delta, staleness, version):  # `delta` is multiplied by the weight
        buffer.append((client, next(weights), models[version - staleness], delta))
        if len(buffer) < size:
            return w
        for sender, weight, read, change in buffer:
            last[sender] = (1.0 - weight) * last[sender] + weight * read + change
        buffer.clear()
        models[version + 1] = np.mean(last, axis=0)
        return models[version + 1]

    expected = served(watched, problem, take)
    np.testing.assert_allclose(watched.model, expected, rtol=0, atol=1e-5)
    assert (sum(watched.algorithm.client_dropped) > 0) == ("drop" in str(options))


def test_the_mean_stays_exact_after_many_messages():
    world = make_world(6, speeds=[1.0, 1.0, 2.0, 0.5, 3.0, 6.0], jitter=lognormal(0.5), seed=2)
    with Lab(make_problem(6, local=True)) as lab:
        training = lab.training(step_size=0.3)
        algorithm, _ = run_algorithm("area", world, lab.tape, training, updates=1000, steps=[2] * 6)
        model, *last = lab.tape.values([*algorithm.models(), *(algorithm.last.latest[k] for k in range(6))])
    assert np.abs(model - training.initial).max() > 0.5, "the run went somewhere"
    np.testing.assert_allclose(model, np.mean(np.float64(last), axis=0), rtol=0, atol=2e-6)


@pytest.mark.slow
def test_area_reaches_the_optimum_of_unlike_data_where_fedasync_and_fedbuff_stall(tmp_path):
    scenario = simfl.load(SCENARIO)
    assert simfl.run(scenario, out=tmp_path).manifest.reason == "suboptimality"
    local = {"batch_size": 10, "local_steps": 1, "step_size": 0.02}
    for rival in ({"kind": "fedasync", "mixing": 0.1}, {"kind": "fedbuff", "buffer_size": 1, "server_step": 0.1}):
        stalled = simfl.run(scenario.replace(algorithm={**rival, **local}), out=tmp_path)
        assert stalled.metrics["suboptimality"].min() > 0.005


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"server_optimizer": "adam"}, "algorithm.server_optimizer: expected sgd with 'area', found 'adam'; its server "
         "averages models and takes no step; use fedbuff"),
        ({"server_step": 0.5}, "algorithm.server_step: expected a key of kind area"),
        ({"buffer_size": 5, "after_update": "wait"}, "algorithm.buffer_size: expected at most 4 where clients wait"),
    ],
)  # fmt: skip
def test_what_contradicts_the_paper_is_refused(options, line):
    with pytest.raises(ScenarioError) as caught:
        simfl.load({"data": "digits", "clients": 4, "stop": {"updates": 2}, "algorithm": {"kind": "area", **options}})
    assert line in str(caught.value)
