"""An own algorithm whose messages are functions of models: the CHOCO example of the pages."""

import math
from pathlib import Path

import numpy as np
import pytest

from simfl.runs.runner import prepare, resume, run
from simfl.scenario import load
from simfl.scenario.own_code import look_beside
from tests.helpers import batch_examples, run_until, softmax_gradient

FILE = Path(__file__).parents[2] / "notebooks" / "own_algorithm" / "choco.yaml"
SHORT = ["stop={updates: 96}", "evaluate={every: {updates: 48}}", "clients.count=6"]


def scenario(*changes):
    look_beside([FILE])
    return load(FILE, [*SHORT, *changes])


@pytest.mark.parametrize("window", [7, 64])
def test_results_do_not_depend_on_the_window(tmp_path, window):
    whole = run(scenario(), out=tmp_path)
    assert run(scenario(f"execution.window={window}"), out=tmp_path).manifest.digest == whole.manifest.digest


@pytest.mark.slow(but=["0.5"])
@pytest.mark.parametrize("at", [0.2, 0.5, 0.9])
def test_a_resumed_run_keeps_estimates_and_messages_in_flight(tmp_path, at):
    whole, events = run_until(prepare(scenario()), math.inf, tmp_path)
    cut, _ = run_until(prepare(scenario()), int(at * events), tmp_path)
    assert cut.status == "interrupted"
    again = resume(cut.folder)
    assert again.manifest.digest == whole.manifest.digest
    assert again.manifest.extra["models"] == whole.manifest.extra["models"]


def test_the_models_are_those_of_a_plain_loop(tmp_path):
    """The loop is the listing in float64, with every client in every round and the same mini-batches."""
    setup = prepare(scenario("record.client_models=true"))
    problem, count, gamma = setup.problem, 6, 0.3
    k = round(0.05 * problem.model.size)
    weights = setup.topology.mixing_matrix("metropolis").toarray()
    models = [np.asarray(setup.training.initial, np.float64) for _ in range(count)]
    estimates = list(models)
    for draw in range(16):
        for i in range(count):
            change = models[i] - estimates[i]
            places = np.argsort(-np.abs(change), kind="stable")[:k]
            estimates[i] = estimates[i] + np.where(np.isin(np.arange(len(change)), places), change, 0.0)
        stepped = []
        for i in range(count):
            examples = batch_examples(problem, i, draw, 16)
            x, y = problem.data.train_x[examples], problem.data.train_y[examples]
            gradient = softmax_gradient(models[i], x / 16.0 if x.dtype.kind != "f" else x, y) / 16
            mixed = models[i] + gamma * sum(weights[i, j] * (estimates[j] - estimates[i]) for j in range(count))
            stepped.append(mixed - 0.3 * gradient)
        models = stepped
    made = run(setup, out=tmp_path)
    with np.load(made.folder / "client_models.npz") as file:
        values = np.concatenate([file[name].reshape(count, -1) for name in file.files], axis=1)
    np.testing.assert_allclose(values, models, atol=2e-5)
