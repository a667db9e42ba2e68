"""Problems of several tasks on the same data, and the ordered events of a run with them."""

from __future__ import annotations

import dataclasses

import numpy as np

from simfl.models import build_model
from simfl.privacy.noise import gaussian
from simfl.tape.problem import Tasks
from tests.helpers import Lab, _positions, lognormal, make_problem, make_training, make_world, run_algorithm

TASKS = 10


def make_task_problem(nodes=4, *, batch_size=8, sizes=None, l2=0.0, clipping_norm=None, noisy=False, radius=None):
    """Return one-vs-all logistic regression (64 weights per task) on digits, without intercept."""
    whole = build_model("one_vs_all", input_shape=(64,), num_classes=TASKS, l2=l2, intercept=False)
    problem = make_problem(nodes, batch_size=batch_size, sizes=sizes, clipping_norm=clipping_norm, noisy=noisy)
    return dataclasses.replace(problem, model=whole.task_models[0], tasks=Tasks(TASKS, whole), radius=radius)


def make_task_training(problem, *, step_size=0.5, noise_std=0.0, schedule=None):
    """Return training of a task from a random model."""
    initial = 0.1 * np.random.default_rng(1).standard_normal(problem.model.size).astype(np.float32)
    training = make_training(
        problem.data.sizes, batch_size=problem.batches.size, l2=problem.model.l2, noise_std=noise_std, initial=initial
    )
    return dataclasses.replace(training, tasks=problem.num_tasks, step_size=schedule or step_size)


def pair_examples(problem, pair, draw):
    """Return the rows of the training set in mini-batch number `draw` of a pair, int [B]."""
    node = pair // problem.num_tasks
    positions = _positions("shuffle", problem.batches.size, problem.batches.size)
    places = positions(problem.keys.data, np.int32(pair), np.int32(draw), np.int32(problem.data.sizes[node]))
    return problem.data.indices[problem.data.offsets[node] + np.asarray(places)]


def pair_gradient(problem, params, pair, draw):
    """Return the (clipped) mean gradient of a pair's mini-batch with the penalty's, in float64."""
    rows = pair_examples(problem, pair, draw)
    x = problem.data.train_x[rows].astype(np.float64)
    y = problem.data.train_y[rows] == pair % problem.num_tasks
    each = ((1.0 / (1.0 + np.exp(-x @ params))) - y)[:, None] * x
    if problem.clipping.norm is not None:
        each *= np.minimum(1.0, problem.clipping.norm / np.linalg.norm(each, axis=1))[:, None]
    return each.mean(axis=0) + problem.model.l2 * params


def pair_loss(problem, params, pair, draw):
    """Return the mean loss of a pair's mini-batch with the penalty, in float64."""
    rows = pair_examples(problem, pair, draw)
    z = problem.data.train_x[rows].astype(np.float64) @ params
    z = np.where(problem.data.train_y[rows] == pair % problem.num_tasks, -z, z)
    return np.logaddexp(0.0, z).mean() + 0.5 * problem.model.l2 * params @ params


def pair_noise(problem, pair, draw):
    """Return the unit noise that a pair's gradient number `draw` carries."""
    with np.errstate(over="ignore"):
        noise = gaussian(problem.keys.noise, np.int32(pair), np.int32(draw), problem.model.size)
    return np.asarray(noise, np.float64)


def into_ball(model, radius):
    """Project, if there is a radius."""
    return model if radius is None else model * min(1.0, radius / np.linalg.norm(model))


class Events:
    """A run of an algorithm on several tasks: its events in order, and its final models.

    Attributes:
        events: (kind, node, task, version or -1, staleness, step size, std of the noise on the sum), kind "global" or
            "local".
        models: the global models, f32 [tasks, d].
        local: the local models, f32 [nodes * tasks, d].
    """

    def __init__(self, kind, problem, *, world=None, noise_std=0.0, schedule=None, spy=None, **options):
        self.problem, self.events = problem, []
        nodes = len(problem.data.sizes)
        world = world or make_world(nodes, jitter=lognormal(0.5), seed=3)
        self.training = make_task_training(problem, noise_std=noise_std, schedule=schedule)
        with Lab(problem, width=8, window=200) as lab:
            if spy is not None:
                submit = lab.executor.submit
                lab.executor.submit = lambda window: (spy(window), submit(window))
            self.algorithm, self.rows = run_algorithm(
                kind, world, lab.tape, self.training, prepare=self._prepare, **options
            )
            self.models = lab.tape.values(self.algorithm.models())
            self.local = lab.tape.values(self.algorithm.client_models())
        self.world = world

    def _prepare(self, algorithm):
        finished = algorithm.finished

        def spy(node, task, staleness, step_size, source, version, noise_std):
            kind = "global" if version >= 0 else "local"
            self.events.append((kind, node, task, version, staleness, step_size, noise_std))
            finished(node, task, staleness, step_size, source, version, noise_std)

        algorithm.finished = spy
