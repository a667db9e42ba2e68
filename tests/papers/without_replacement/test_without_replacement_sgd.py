"""Algorithm 1: data used once, a chain of models, and the same numbers as a plain loop over the recorded order."""

import numpy as np
import pytest

from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.algorithms.tasks import (
    TASKS,
    Events,
    into_ball,
    make_task_problem,
    make_task_training,
    pair_examples,
    pair_gradient,
    pair_noise,
)
from tests.helpers import NullExecutor, constant, exponential, lognormal, make_algorithm, make_world

KIND = "without_replacement_sgd"
ROUGH = LinkModel(latency=exponential(4e-3), bandwidth=1e6, loss=0.2, resend_timeout_s=0.01)


def rough_world(nodes, outages=None, links=ROUGH):
    return make_world(nodes, jitter=lognormal(0.5), links=links, outages=outages, seed=3)


def replay(run):
    """Algorithm 1 in float64, in the order of the run: stale gradients are taken at the version that was read."""
    problem, initial = run.problem, run.training.initial.astype(np.float64)
    versions = [[initial] for _ in range(TASKS)]
    draws = {}
    for kind, node, task, version, staleness, step_size, noise_std in run.events:
        assert kind == "global"
        assert version == len(versions[task]) - 1, "versions of a task are numbered without a gap"
        pair = node * TASKS + task
        draw = draws[pair] = draws.get(pair, -1) + 1
        read = versions[task][version - staleness]
        direction = pair_gradient(problem, read, pair, draw)
        direction += noise_std * pair_noise(problem, pair, draw) / problem.batches.size
        versions[task].append(into_ball(versions[task][-1] - step_size * direction, problem.radius))
    return np.array([models[-1] for models in versions])


@pytest.mark.slow
@pytest.mark.parametrize("contention", ["token", "race"])
@pytest.mark.parametrize("order", ["random", "round_robin"])
def test_models_equal_a_plain_loop_in_the_recorded_order(order, contention):
    problem = make_task_problem(sizes=[40, 80, 64, 56], clipping_norm=0.9, noisy=True)
    run = Events(KIND, problem, world=rough_world(4), noise_std=0.3, order=order, contention=contention)
    assert run.models == pytest.approx(replay(run), abs=2e-5)
    stale = [staleness for _, _, _, _, staleness, _, _ in run.events]
    assert (max(stale) > 0) == (contention == "race")


@pytest.mark.slow
@pytest.mark.parametrize("radius", [None, 0.5, 2.0])
def test_models_equal_a_plain_loop_with_penalty_projection_and_steps_by_a_tasks_updates(radius):
    problem = make_task_problem(l2=0.1, radius=radius)
    run = Events(KIND, problem, schedule=lambda t, examples, epochs: 2.0 / (0.1 * (t + 1)))
    assert run.models == pytest.approx(replay(run), abs=2e-4 * float(np.abs(run.models).max()))
    for _, _, _, version, _, step_size, _ in run.events:
        assert step_size == 2.0 / (0.1 * (version + 1))
    norms = np.linalg.norm(run.models, axis=1)
    assert (norms <= radius * (1 + 1e-6)).all() if radius else (norms > 0.5).any()


@pytest.mark.parametrize("contention", ["token", "race"])
def test_every_example_is_used_exactly_once_for_every_task(contention):
    problem = make_task_problem(sizes=[40, 80, 64, 59])  # 3 of the last node's 59 make no batch of 8
    run = Events(KIND, problem, world=rough_world(4), contention=contention)
    count = {}
    for _, node, task, *_ in run.events:
        count[node, task] = count.get((node, task), 0) + 1
    for node, size in enumerate(problem.data.sizes.tolist()):
        own = problem.data.indices[problem.data.offsets[node] : problem.data.offsets[node + 1]]
        for task in range(TASKS):
            assert count[node, task] == size // 8
            pair = node * TASKS + task
            used = np.concatenate([pair_examples(problem, pair, draw) for draw in range(size // 8)])
            assert len(set(used.tolist())) == len(used) == size // 8 * 8
            assert set(used.tolist()) <= set(own.tolist())
    first = [pair_examples(problem, pair, 0).tolist() for pair in range(TASKS)]
    assert len(set(map(tuple, first))) == TASKS, "tasks go through the data in orders of their own"
    assert run.algorithm.ending == "every client has used its data 1 time"


def test_in_token_mode_the_models_of_a_task_are_a_chain():
    run = Events(KIND, make_task_problem(), world=rough_world(4))
    reached = [0] * TASKS
    for _, _, task, version, staleness, *_ in run.events:
        assert staleness == 0
        assert version == reached[task]
        reached[task] += 1
    assert reached == [40] * TASKS


def test_offline_nodes_are_skipped_and_leaving_nodes_pass_on_their_rights():
    outages = {
        0: [Outage(0.05, 0.4)],
        1: [Outage(0.1, 0.2, crash=True)],
        2: [Outage(0.12, np.inf, crash=True)],
        3: [Outage(0.0, 0.3)],
    }
    run = Events(KIND, make_task_problem(), world=rough_world(4, outages))
    assert run.models == pytest.approx(replay(run), abs=2e-5)
    finished = {node: [row[0] for row in run.rows if row[1] == node] for node in range(4)}
    assert {node: len(times) for node, times in finished.items() if node != 2} == {0: 100, 1: 100, 3: 100}
    assert 0 < len(finished[2]) < 100
    assert max(finished[2]) <= 0.12
    assert min(finished[3]) > 0.3


def test_a_model_travels_from_its_holder_after_two_integers():
    sent = []
    links = LinkModel(latency=constant(1e-3), bandwidth=1e6)
    world = make_world(3, links=links, on_delivery=sent.append)
    problem = make_task_problem(3, sizes=[16, 16, 16])
    run = Events(KIND, problem, world=world, order="round_robin")
    model_bytes = 4 * 64
    fetched = [message for message in sent if message[4] == model_bytes]
    # Every update but the first of a task is by another node than the one before.
    assert len(fetched) == TASKS * 5
    assert {message[4] for message in sent} == {8, model_bytes}
    for start, end, *_ in fetched:
        assert end - start == pytest.approx(1e-3 + model_bytes / 1e6)
    for time_s, node, source, version, *_ in run.rows:
        assert (source >= 0) == (version > 0)
        assert source != node
        assert time_s > 0
    traffic = world.network.traffic
    # A broadcast to two others for each update, a request and a model for each fetch.
    assert sum(t.sent_bytes for t in traffic) == 60 * 2 * 8 + 50 * (8 + model_bytes)
    assert sum(t.messages for t in traffic) == 60 * 2 + 50 * 2


def test_links_that_take_no_time_give_the_same_models_and_traffic():
    problem = make_task_problem()
    slowly, at_once = [], []
    late = make_world(4, links=LinkModel(latency=constant(0.1)), on_delivery=slowly.append)
    slow = Events(KIND, problem, world=late, order="round_robin")
    fast = Events(KIND, problem, world=make_world(4, on_delivery=at_once.append), order="round_robin")
    fetched = [sorted(row[2:] for row in rows if row[4] > 8) for rows in (slowly, at_once)]
    assert fetched[0] == fetched[1] != []
    assert np.array_equal(slow.models, fast.models)
    totals = [[(t.sent_bytes, t.messages) for t in run.world.network.traffic] for run in (slow, fast)]
    assert totals[0] == totals[1]
    assert fast.world.clock.now < slow.world.clock.now


def run_in_time(nodes, *, batches=40, links=None, **options):
    """Return the virtual time of one pass over 8 * batches * 20 examples, divided among the nodes."""
    sizes = [8 * batches * 20 // nodes] * nodes
    world = make_world(nodes, seconds_per_example=1e-3, links=links)
    tape = Tape(NullExecutor(), window=1000, max_batch=8)
    problem = make_task_problem(sizes=[40] * 4)
    training = make_task_training(problem)
    object.__setattr__(training, "sizes", np.array(sizes))
    algorithm = make_algorithm(KIND, world, tape, training, **options)
    algorithm.start()
    world.clock.run()
    assert algorithm.updates == batches * 20 * TASKS
    return world.clock.now


def test_tasks_that_overlap_make_a_pass_faster_in_proportion_to_the_nodes():
    """Remark 5: while a node waits for one task it works on others, so up to as many nodes as tasks are busy."""
    alone = run_in_time(1)
    assert alone == pytest.approx(40 * 20 * TASKS * 8e-3)
    for nodes in (2, 5, 10):
        assert alone / run_in_time(nodes, order="round_robin") == pytest.approx(nodes, rel=0.02)
    assert alone / run_in_time(20, order="round_robin") == pytest.approx(10, rel=0.02), "ten tasks keep ten nodes busy"
    assert 4 < alone / run_in_time(10, order="random") < 9, "turns that are drawn leave some nodes idle"
    assert alone / run_in_time(20, contention="race") > 15, "who races does not wait"
