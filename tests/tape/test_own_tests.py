"""Models on the test examples of each client, before and after local steps, beside float64 loops."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from simfl.streams import Streams
from simfl.tape.problem import LocalSteps, OwnTests
from tests.helpers import Lab, batch_gradient, make_problem

K, ETA, STEPS = 4, 0.3, 3
SIZES = [20, 6, 40, 30]
TESTS = np.array([5, 9, 3, 99, 7, 8, 1, 2, 30, 31, 32])
OFFSETS = np.array([0, 3, 3, 4, 11])


def losses(problem, w, examples):
    """Return the loss and the accuracy of a softmax regression on test examples, float64."""
    x, y = problem.data.test_x[examples].astype(np.float64), problem.data.test_y[examples]
    z = x @ w[:640].reshape(10, 64).T + w[640:]
    z -= z.max(axis=1, keepdims=True)
    loss = np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]
    return loss.mean(), (z.argmax(axis=1) == y).mean()


@pytest.mark.numbers
@pytest.mark.parametrize("parts", [None, np.arange(650) >= 640], ids=["all", "bias"])
@pytest.mark.parametrize("count", [0, STEPS])
def test_each_model_is_measured_on_its_own_examples(count, parts):
    if parts is not None and not count:
        pytest.skip("parts are of local steps")
    key = Streams(5).key("own-steps")
    mask = None if parts is None else parts.astype(np.float32)
    local = LocalSteps(count, ETA, key, mask) if count else None
    problem = make_problem(K, sizes=SIZES)
    measured = dataclasses.replace(problem.measured, own=OwnTests(TESTS.astype(np.int32), OFFSETS, None, local))
    problem = dataclasses.replace(problem, measured=measured)
    drawn = dataclasses.replace(problem, keys=dataclasses.replace(problem.keys, data=key))  # the steps' mini-batches
    models = np.random.default_rng(1).normal(0, 0.3, (K, 650)).astype(np.float32)
    with Lab(problem) as lab:
        rows = [lab.tape.constant(model) for model in models]
        lab.tape.flush()
        each = lab.tape.forms(rows)
        found = lab.executor.evaluate(*each, clients=True).result()
        one = lab.executor.evaluate(*lab.tape.forms(rows[:1]), clients=True).result()
    for evaluation, own in ((found, models), (one, [models[0]] * K)):
        for k in range(K):
            w, examples = own[k].astype(np.float64), TESTS[OFFSETS[k] : OFFSETS[k + 1]]
            if not len(examples):
                assert np.isnan(evaluation.client_loss[k])
                assert np.isnan(evaluation.client_accuracy[k])
                continue
            for h in range(count):
                size = min(problem.batches.size, SIZES[k])
                step = ETA / size * batch_gradient(drawn, w, k, h, size)
                w = w - (step if parts is None else np.where(parts, step, 0.0))
            loss, accuracy = losses(problem, w, examples)
            assert evaluation.client_loss[k] == pytest.approx(loss, rel=1e-4)
            assert evaluation.client_accuracy[k] == pytest.approx(accuracy)
    np.testing.assert_allclose(one.client_distance, 0.0, atol=1e-6)
    assert found.client_distance.min() > 1.0


def test_the_summary_has_groups_of_its_own():
    own = OwnTests(np.arange(10, dtype=np.int32), np.array([0, 4, 5, 5, 10]), np.array([0, 1, 2, 3]))
    nan = float("nan")
    measured = SimpleNamespace(client_accuracy=[0.5, 1.0, nan, 0.2], client_loss=[1.0, 0.0, nan, 3.0])
    summary = own.summary(measured, np.array([True, False, False, True]))
    assert summary == {
        "own_accuracy": pytest.approx(1.7 / 3),
        "own_accuracy_weighted": pytest.approx((4 * 0.5 + 1 + 5 * 0.2) / 10),
        "own_accuracy_worst": 0.2,
        "own_accuracy_seen": pytest.approx(0.35),
        "own_accuracy_unseen": 1.0,
        "own_loss": pytest.approx(4 / 3),
        "own_loss_worst": 3.0,
    }
    honest = dataclasses.replace(own, clients=np.array([0, 1]))
    assert honest.summary(measured, np.full(4, True))["own_accuracy"] == 0.75, "attackers do not count"
    assert np.isnan(honest.summary(measured, np.full(4, True))["own_accuracy_unseen"])
