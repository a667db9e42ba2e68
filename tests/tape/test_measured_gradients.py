"""Gradients measured at evaluations equal NumPy in float64."""

import dataclasses

import numpy as np
import pytest

from simfl.models import AbstractModel
from simfl.tape import kernels
from simfl.tape.problem import Measured
from tests.algorithms.tasks import TASKS, make_task_problem
from tests.helpers import Lab, make_problem, softmax_gradient
from tests.tape.test_executor import compilations


def measured(problem, models, norm=float("inf")):
    """Return the gradient norm and the clipped share at the mean of some rows."""
    with Lab(problem) as lab:
        held = [lab.tape.constant(model) for model in models]
        lab.tape.flush()
        evaluation = lab.executor.evaluate(*lab.tape.forms(held), clipping_norm=norm).result()
    return evaluation.gradient_norm, evaluation.clipped_share


def of_each(gradients, norm=float("inf")):
    """Return the norm of the mean of clipped gradients [n, d], and the share of those that are longer than `norm`."""
    norms = np.linalg.norm(gradients, axis=1)
    scale = np.minimum(1.0, norm / norms)
    return np.linalg.norm((gradients * scale[:, None]).mean(axis=0)), (norms > norm).mean()


def softmax_gradients(problem, count, params):
    x, y = problem.data.train_x[:count], problem.data.train_y[:count]
    return np.array([softmax_gradient(params, x[i : i + 1], y[i : i + 1]) for i in range(count)])


def random_model(size, spread=0.3):
    return (spread * np.random.default_rng(3).standard_normal(size)).astype(np.float32)


def test_gradients_are_clipped_one_by_one_at_the_mean_model(monkeypatch):
    monkeypatch.setattr("simfl.tape.evaluation.CHUNK_EXAMPLES", 30)  # 100 examples: three chunks and a third
    problem = make_problem(clipping_norm=1.0, own_clipping=True, gradient_examples=100, l2=0.1)
    models = [random_model(650, spread) for spread in (0.1, 0.5, 0.9)]
    gradients = softmax_gradients(problem, 100, np.mean(models, axis=0, dtype=np.float64))
    shares = []
    for norm in (0.05, 4.0, np.inf):
        expected = of_each(gradients, norm)
        assert measured(problem, models, norm) == (pytest.approx(expected[0], rel=1e-5), pytest.approx(expected[1]))
        shares.append(expected[1])
    assert shares[0] > shares[1] > shares[2] == 0.0


def test_a_run_without_clipping_clips_nothing():
    problem = make_problem(gradient_examples=40)
    expected, _ = of_each(softmax_gradients(problem, 40, random_model(650)))
    assert measured(problem, [random_model(650)]) == (pytest.approx(expected, rel=1e-5), 0.0)


def test_a_run_that_clips_updates_clips_no_example():
    problem = make_problem(gradient_examples=40, clipping_norm=0.01, clip="update")
    expected, _ = of_each(softmax_gradients(problem, 40, random_model(650)))
    norm, share = measured(problem, [random_model(650)], 0.01)
    assert norm == pytest.approx(expected, rel=1e-5)
    assert np.isnan(share)


def test_gradients_are_measured_on_request_only():
    assert np.isnan(measured(make_problem(clipping_norm=1.0), [random_model(650)], 1.0)).all()


@pytest.mark.slow
@pytest.mark.parametrize("clips", [False, True])
def test_each_task_clips_its_gradients_separately(clips):
    problem = make_task_problem(clipping_norm=1.0 if clips else None)
    problem = dataclasses.replace(problem, measured=Measured(np.arange(200), 50))
    rows = [random_model(64) + 0.1 * task for task in range(TASKS)]
    x, y = problem.data.train_x[:50].astype(np.float64), problem.data.train_y[:50]
    means, longer = [], []
    for task, row in enumerate(rows):
        gradients = (1.0 / (1.0 + np.exp(-x @ row)) - (y == task))[:, None] * x
        scale = np.minimum(1.0, 1.5 / np.linalg.norm(gradients, axis=1)) if clips else np.ones(50)
        means.append((gradients * scale[:, None]).mean(axis=0))
        longer.append(scale < 1.0)
    assert 0.1 < np.mean(longer) < 0.9 or not clips
    norm, share = measured(problem, rows, 1.5)
    assert norm == pytest.approx(np.linalg.norm(np.concatenate(means)), rel=1e-5)
    assert share == pytest.approx(np.mean(longer))


@dataclasses.dataclass(frozen=True)
class Unclippable(AbstractModel):
    """Least squares without per-example gradients."""

    kind = "unclippable"
    summary = "a model without per-example clipping"
    size = 64

    def init(self, key):
        raise NotImplementedError

    predict = init

    def losses(self, params, x, y):
        return 0.5 * (x @ params - y) ** 2

    def correct(self, params, x, y):
        return 0.0 * y

    def clipped_gradient_sum(self, params, x, y, weight, clipping_norm):
        raise NotImplementedError

    def gradient_norms(self, params, x, y):
        raise NotImplementedError


def test_a_model_that_cannot_clip_has_a_gradient_norm():
    problem = dataclasses.replace(make_problem(gradient_examples=20), model=Unclippable((64,)))
    params = random_model(64)
    x, y = problem.data.train_x[:20].astype(np.float64), problem.data.train_y[:20]
    expected = np.linalg.norm((x @ params - y) @ x / 20)
    assert measured(problem, [params]) == (pytest.approx(expected, rel=1e-5), 0.0)


def test_an_evaluation_is_one_call_and_all_norms_share_a_program(caplog, monkeypatch):
    calls = []
    program = kernels.gradients_program

    def counting(*arguments):
        jitted = program(*arguments)
        return lambda *given: (calls.append(given), jitted(*given))[1]

    monkeypatch.setattr(kernels, "gradients_program", counting)
    problem = make_problem(clipping_norm=1.0, own_clipping=True, gradient_examples=60)
    with Lab(problem) as lab:
        model = lab.tape.constant(random_model(650))
        lab.tape.flush()

        def look(*norms):
            return [lab.executor.evaluate(*lab.tape.forms([model]), clipping_norm=norm).result() for norm in norms]

        look(1.0)
        assert not compilations(caplog, lambda: look(0.5, 2.0, np.inf))
    assert len(calls) == 4
