"""Algorithm 2: rules (9) and (10), what stays private until when, and decisions by the pair's own state."""

import math

import numpy as np
import pytest

from simfl.papers.without_replacement.deep_q_sgd import DeepQSGD
from simfl.papers.without_replacement.q_learning import QLearner
from simfl.world.availability import Outage
from simfl.world.cuts import Cut, Cuts
from simfl.world.links import LinkModel
from tests.algorithms.tasks import (
    TASKS,
    Events,
    into_ball,
    make_task_problem,
    pair_gradient,
    pair_loss,
    pair_noise,
)
from tests.algorithms.test_faults import Life
from tests.helpers import constant, exponential, lognormal, make_world

KIND = "deep_q_sgd"
SMALL = {"hidden": 8, "memory": 6, "replay": 3}
ROUGH = LinkModel(latency=exponential(4e-3), bandwidth=1e6, loss=0.2, resend_timeout_s=0.01)


def rough_world(nodes=4, outages=None):
    return make_world(nodes, jitter=lognormal(0.5), links=ROUGH, outages=outages, seed=3)


def replay(run, decay=None):
    """Algorithm 2 in float64, in the order of the run; returns the global and the local models, and their history."""
    problem, initial = run.problem, run.training.initial.astype(np.float64)
    together = [initial] * TASKS
    local = [initial] * (len(problem.data.sizes) * TASKS)
    used = [0] * len(local)
    history = [[(initial, None)] for _ in local]
    for kind, node, task, _, _, step_size, noise_std in run.events:
        pair = node * TASKS + task
        draw, used[pair] = used[pair], used[pair] + 1
        if kind == "local":
            assert noise_std == 0.0
            new = local[pair] - step_size * pair_gradient(problem, local[pair], pair, draw)  # it is 2 eta already
        else:
            direction = pair_gradient(problem, together[task], pair, draw)
            direction += noise_std * pair_noise(problem, pair, draw) / problem.batches.size
            new = (together[task] + local[pair]) / 2 - step_size * direction
            together[task] = into_ball(new, problem.radius)
        local[pair] = into_ball(new, problem.radius)
        history[pair].append((local[pair], kind))
    return np.array(together), np.array(local), history


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"l2": 0.05, "radius": 1.5}], ids=["convex", "strongly"])
def test_models_follow_rules_9_and_10_in_the_recorded_order(options):
    problem = make_task_problem(sizes=[40, 80, 64, 56], clipping_norm=0.9, noisy=True, **options)
    run = Events(KIND, problem, world=rough_world(), noise_std=0.3, **SMALL)
    together, local, _ = replay(run)
    assert run.models == pytest.approx(together, abs=2e-5)
    assert run.local == pytest.approx(local, abs=2e-5)
    kinds = [kind for kind, *_ in run.events]
    assert 0.2 < kinds.count("global") / len(kinds) < 0.8
    assert len(kinds) == 30 * TASKS, "each batch is used once"
    for kind, *_, step_size, _ in run.events:
        assert step_size == (1.0 if kind == "local" else 0.5)


@pytest.mark.slow
def test_noise_covers_the_largest_step_since_the_last_global_one():
    """Lemma 5: std(N_t) = c 2L max_k eta_k / (eta_t b epsilon)."""
    run = Events(KIND, make_task_problem(noisy=True), noise_std=0.2, schedule=lambda t, *_: 1.0 / (t + 1), **SMALL)
    since = {}
    ratios = []
    for kind, node, task, _, _, step_size, noise_std in run.events:
        steps = since.setdefault((node, task), [])
        if kind == "local":
            steps.append(step_size / 2)
        else:
            ratios.append(max([*steps, step_size]) / step_size)
            assert noise_std == pytest.approx(0.2 * ratios[-1])
            steps.clear()
    assert max(ratios) > 1.5
    assert min(ratios) == 1.0


@pytest.mark.slow
def test_local_models_stay_private_until_a_global_action():
    """Every operation is watched: a row written by a pair's Local step is read by operations of that pair only."""
    owner = {}
    read_by_others = []
    publications = []

    def spy(window):
        reads = window.combines.floats.shape[1]
        order = np.argsort(window.gradients.depths, kind="stable")
        for ints, floats in zip(window.gradients.ints[order], window.gradients.floats[order], strict=True):
            rows, out, pair = ints[: reads + 1].tolist(), int(ints[reads + 1]), int(ints[reads + 2])
            for row in rows:
                if owner.get(row, pair) != pair:
                    read_by_others.append((row, pair))
            noise_scale = floats[reads + 1]
            owner[out] = pair
            if noise_scale > 0:
                publications.append(any(row in owner and owner[row] == pair for row in rows))
                del owner[out]
        assert not len(window.combines.ints), "nothing else is computed from any model"

    run = Events(KIND, make_task_problem(noisy=True), noise_std=0.3, spy=spy, **SMALL)
    assert not read_by_others
    assert any(publications)
    assert not all(publications)
    kinds = [kind for kind, *_ in run.events]
    assert len(publications) == kinds.count("global")
    assert run.algorithm.releases.counts == [
        sum(kind == "global" and node == k for kind, node, *_ in run.events) for k in range(4)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("reward", ["after", "before"])
def test_states_and_rewards_equal_those_of_the_paper(reward, monkeypatch):
    seen = {}
    decide = QLearner.decide

    def spy(self, agents, states, rewards, explore):
        actions = decide(self, agents, states, rewards, explore)
        for row in zip(agents, states, rewards, explore, actions, strict=True):
            seen.setdefault(row[0], []).append(row[1:])
        return actions

    monkeypatch.setattr(QLearner, "decide", spy)
    problem = make_task_problem(l2=0.05)
    run = Events(KIND, problem, reward=reward, explore_to=0.2, **SMALL)
    _, _, history = replay(run)
    for pair, decisions in seen.items():
        assert len(decisions) == 10, "one decision for each batch"
        for t, (state, gained, explore, action) in enumerate(decisions):
            model, _ = history[pair][t]
            assert state[:-1] == pytest.approx(model, abs=2e-5)
            assert state[-1] == pytest.approx(pair_loss(problem, model, pair, t), rel=1e-4)
            assert history[pair][t + 1][1] == ("local", "global")[action]
            assert explore == pytest.approx(max(0.2, 1.0 - 0.8 * t / 5))
            if t:
                of = model if reward == "after" else history[pair][t - 1][0]
                assert gained == pytest.approx(-pair_loss(problem, of, pair, t - 1), rel=1e-4)


@pytest.mark.slow
def test_deciding_early_changes_nothing(monkeypatch):
    """All pairs that are ready decide in one call; one at a time they decide the same."""
    problem = make_task_problem()
    together = Events(KIND, problem, world=rough_world(), **SMALL)
    calls = []
    original = DeepQSGD._decide_all

    def one_by_one(self):
        ready = self._ready
        wanted = next(pair for pair in ready if pair == self.asked)
        self._ready = [wanted]
        original(self)
        self._ready = [pair for pair in ready if pair != wanted]
        calls.append(wanted)

    decide = DeepQSGD.decide

    def asking(self, pair):
        self.asked = pair
        return decide(self, pair)

    monkeypatch.setattr(DeepQSGD, "_decide_all", one_by_one)
    monkeypatch.setattr(DeepQSGD, "decide", asking)
    apart = Events(KIND, problem, world=rough_world(), **SMALL)
    assert len(calls) == 40 * TASKS
    assert together.events == apart.events
    assert np.array_equal(together.local, apart.local)


@pytest.mark.slow
def test_few_calls_decide_for_all():
    problem = make_task_problem()
    calls = []
    decide = QLearner.decide
    QLearner.decide = lambda self, agents, *rest: calls.append(len(agents)) or decide(self, agents, *rest)
    try:
        Events(KIND, problem, world=make_world(4, links=LinkModel(latency=constant(1e-3))), **SMALL)
    finally:
        QLearner.decide = decide
    assert sum(calls) == 40 * TASKS
    assert np.mean(calls) > 8


def spread(run):
    """Difference between nodes in batches of a task: the largest at any time, and the mean in the second quarter."""
    used = np.zeros((len(run.problem.data.sizes), TASKS), int)
    differences = []
    for _, node, task, *_ in run.events:
        used[node, task] += 1
        differences.append(np.ptp(used, axis=0))
    quarter = len(differences) // 4
    return np.max(differences), np.mean(differences[quarter : 2 * quarter])


@pytest.mark.slow
def test_every_node_acts_once_per_round_of_a_task():
    """Assumption 2; with other orders the nodes whose steps are Local are ahead."""
    problem = make_task_problem(sizes=[160] * 4)
    orders = {"by default": {}, **{order: {"order": order} for order in ("rounds", "fewest", "random")}}
    apart = {
        name: spread(Events(KIND, problem, world=rough_world(), **order, **SMALL)) for name, order in orders.items()
    }
    assert apart["rounds"][0] == apart["by default"][0] == 1
    assert apart["rounds"][1] < apart["fewest"][1] < apart["random"][1]


def decided(monkeypatch, global_nodes=()):
    """Let some nodes decide for the global model at every step, and the others never."""
    monkeypatch.setattr(DeepQSGD, "decide", lambda self, pair: int(pair // self.num_tasks in global_nodes))


#: Node 1 takes some 96 s for its first batch; it is away, or cut off from the holder, from 0.5 s to 1.5 s.
ABSENCES = {
    "offline": {"outages": {1: [Outage(0.5, 1.5)]}},
    "crashed": {"outages": {1: [Outage(0.5, 1.5, crash=True)]}},
    "offline now and then": {"outages": {1: [Outage(0.5, 0.9), Outage(0.9, 1.5)]}},
    "cut off": {"links": LinkModel(cuts=Cuts([Cut((frozenset({1}),), 0.5, 1.5)]))},
    "not there yet": {"outages": {1: [Outage(0.0, 1.5)]}},
    "gone": {"outages": {1: [Outage(0.5, math.inf, crash=True)]}},
}


@pytest.mark.parametrize("absence", ABSENCES)
def test_a_round_waits_for_nodes_that_are_present_only(absence, monkeypatch):
    decided(monkeypatch, global_nodes={0})
    world = {"links": LinkModel(), "speeds": [1.0, 3e3, 1.0, 1.0], **ABSENCES[absence]}
    life = Life(KIND, {}, until=400.0, **world)
    life.invariants()
    others = {0, 2, 3}
    if absence == "not there yet":
        assert life.made_by(others, 0.0, 0.5) > 20
    else:
        assert life.made_by(others, 0.0, 0.5) == 3
    assert life.made_by(others, 0.5, 1.5) > 50
    assert (life.made_by(others, 1.6, 40.0) > 0) == (absence == "gone")
    assert life.made_by({1}, 40.0, 400.0) > 0 or absence == "gone"


@pytest.mark.slow
def test_nodes_that_leave_delay_no_other_node():
    outages = {0: [Outage(0.05, 0.4)], 1: [Outage(0.1, 0.2, crash=True)], 2: [Outage(0.12, np.inf, crash=True)]}
    run = Events(KIND, make_task_problem(), world=rough_world(4, outages), **SMALL)
    together, local, _ = replay(run)
    assert run.models == pytest.approx(together, abs=2e-5)
    assert run.local == pytest.approx(local, abs=2e-5)
    done = [sum(node == k for _, node, *_ in run.events) for k in range(4)]
    assert done[0] == done[1] == done[3] == 100
    assert 0 < done[2] < 100


@pytest.mark.slow
def test_a_coin_decides_without_values_of_models():
    problem, other = make_task_problem(), make_task_problem(clipping_norm=0.1)
    coin = {"explore_from": 1.0, "explore_to": 1.0, **SMALL}
    one, two = Events(KIND, problem, **coin), Events(KIND, other, **coin)
    assert one.events == two.events
    assert not np.array_equal(one.models, two.models)
    kinds = [kind for kind, *_ in one.events]
    assert kinds.count("global") / 400 == pytest.approx(0.5, abs=5 * np.sqrt(0.25 / 400))
