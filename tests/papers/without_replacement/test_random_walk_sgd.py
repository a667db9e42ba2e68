"""DP-SGD-k: as many passes as visits, each in a new order, over a walk that is uniform."""

import numpy as np
import pytest

from simfl.papers.without_replacement.steps import RootOfCount
from tests.algorithms.tasks import TASKS, Events, make_task_problem, pair_examples
from tests.papers.without_replacement.test_without_replacement_sgd import replay, rough_world


@pytest.mark.slow
@pytest.mark.parametrize("visits", [1, 3])
def test_every_example_is_visited_k_times_and_models_equal_those_of_a_plain_loop(visits):
    problem = make_task_problem(sizes=[40, 24, 32, 16])
    run = Events("random_walk_sgd", problem, world=rough_world(4), visits=visits, schedule=RootOfCount(1.0))
    assert run.models == pytest.approx(replay(run), abs=2e-5)
    for _, _, _, version, staleness, step_size, _ in run.events:
        assert staleness == 0
        assert step_size == 1.0 / np.sqrt(version + 1)
    for node, size in enumerate(problem.data.sizes.tolist()):
        own = problem.data.indices[problem.data.offsets[node] : problem.data.offsets[node + 1]]
        batches = visits * size // 8
        assert sum(event[1] == node for event in run.events) == batches * TASKS
        for pair in (node * TASKS, node * TASKS + 7):
            used = np.concatenate([pair_examples(problem, pair, draw) for draw in range(batches)])
            assert np.array_equal(np.sort(used), np.sort(np.tile(own, visits)))
    plural = "s" if visits > 1 else ""
    assert run.algorithm.ending == f"every client has used its data {visits} time{plural}"


def test_one_visit_is_algorithm_1():
    problem = make_task_problem()
    walk = Events("random_walk_sgd", problem, world=rough_world(4), visits=1)
    one = Events("without_replacement_sgd", problem, world=rough_world(4))
    assert walk.events == one.events
    assert np.array_equal(walk.models, one.models)


def test_the_walk_is_uniform_over_those_that_have_budget_left():
    run = Events("random_walk_sgd", make_task_problem(), visits=5)
    half = [node for _, node, *_ in run.events[:1000]]
    counts = np.bincount(half, minlength=4)
    assert counts == pytest.approx(np.full(4, 250), abs=5 * np.sqrt(1000 * 0.25 * 0.75))
    again = [one == other for one, other in zip(half[::TASKS], half[TASKS::TASKS], strict=False)]
    assert any(again), "a node may be next after itself"
