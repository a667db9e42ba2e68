"""What the utility graph predicts from a run without noise: the noise of each reading, and the accuracy with it."""

import math

import numpy as np
import pytest

from simfl import run
from simfl.assembly.assemble import assemble
from simfl.papers.proactive_dp.predicting import mean_steps, noise_stds, predicted
from simfl.scenario import from_mapping, loads

pytestmark = pytest.mark.slow

SYNC = """
seed: 1
data: digits
model: softmax
clients: {count: 4}
algorithm: {kind: sync_sgd, batch_size: 20, sampling: poisson, step_size: 0.5}
privacy: {mechanism: gaussian, clipping_norm: 2, noise_multiplier: 3, delta: 1.0e-3}
stop: {updates: 40}
"""
ASYNC = SYNC.replace("kind: sync_sgd, batch_size: 20, sampling: poisson, step_size: 0.5",
                     "kind: async_fl, sizes: 20, sizes_of: each, step_size: 0.025")  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A private run of each algorithm, and one without noise."""
    folder = tmp_path_factory.mktemp("runs")
    texts = {"sync": SYNC, "async": ASYNC, "quiet": SYNC.replace("noise_multiplier: 3", "noise_multiplier: 0")}
    return {name: run(loads(text + f"name: {name}\n"), out=folder) for name, text in texts.items()}


def test_noise_of_rounds_whose_updates_are_averaged(runs):
    """Ten rounds of four clients: a round moves the model by 0.5 / 20 of a sum, whose noise the mean halves."""
    last = 3 * 2 * 0.5 / 20 / math.sqrt(4)
    assert noise_stds(runs["sync"]) == pytest.approx({"all": last * math.sqrt(10), "last": last, "figure": 6.0})


def test_noise_of_rounds_whose_updates_are_added(runs):
    """The server adds four sums, each with noise: twice the noise of one."""
    last = 3 * 2 * 0.025 * math.sqrt(4)
    assert noise_stds(runs["async"]) == pytest.approx({"all": last * math.sqrt(10), "last": last, "figure": 6.0})


def test_the_prediction_is_the_accuracy_of_the_quiet_model_with_noise(runs):
    accuracy = 100 * runs["quiet"].metrics["test_accuracy"].iloc[-1]
    by_reading = predicted(runs["quiet"], runs["sync"])
    assert by_reading["figure"] < by_reading["all"] < by_reading["last"]
    setup, draws = assemble(from_mapping(runs["quiet"].scenario)), np.random.default_rng(0)
    params, data = setup.model.joined(runs["quiet"].model), setup.dataset.floats()
    for reading, std in noise_stds(runs["sync"]).items():
        noisy = [params + std * draws.standard_normal(len(params)).astype(np.float32) for _ in range(100)]
        mean = np.mean([np.mean(setup.model.correct(one, data.test_x, data.test_y)) for one in noisy])
        assert by_reading[reading] == pytest.approx(100 * mean, abs=6.0)
    assert predicted(runs["quiet"], runs["quiet"]) == pytest.approx(dict.fromkeys(by_reading, accuracy), abs=0.01)


def test_steps_of_a_schedule_count_a_clients_or_all_gradients(runs):
    text = ASYNC.replace("step_size: 0.025", "step_size: {kind: inverse, initial: 0.1, beta: 0.01, count: examples}")
    for of, shared in (("all", 4), ("each", 1)):
        setup = assemble(loads(text.replace("sizes_of: each", f"sizes_of: each, step_size_of: {of}") + "name: a\n"))
        expected = [0.1 / (1 + 0.01 * 20 * i * shared) * 20 * 4 for i in range(5)]
        np.testing.assert_allclose(mean_steps(setup, 20, 5), expected, rtol=1e-6)


def test_an_average_of_updates_has_no_steps_of_sums():
    setup = assemble(loads(ASYNC.replace("sizes_of: each", "sizes_of: each, aggregation: mean") + "name: a\n"))
    with pytest.raises(ValueError, match="aggregation: expected sum, found mean"):
        mean_steps(setup, 20, 5)
