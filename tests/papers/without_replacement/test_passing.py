"""Under any faults of nodes and links, nodes that stay use all of their data, and none waits for a node that left."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.algorithms import ALGORITHMS
from simfl.papers.without_replacement.without_replacement_sgd import WithoutReplacementSGD
from simfl.tape import Tape
from simfl.world.links import LinkModel
from tests.algorithms import test_contract as contract
from tests.algorithms.test_contract import ENDLESS, ROUGH_LINKS, absences
from tests.helpers import NullExecutor, constant, lognormal, make_algorithm, make_training, make_world

#: Its decisions need numbers, which these worlds do not compute: tests/papers/without_replacement/test_deep_q_sgd.py.
DECIDING = "deep_q_sgd"
OTHER_WAYS = [
    ("without_replacement_sgd", {"contention": "race"}),
    ("without_replacement_sgd", {"contention": "token", "order": "round_robin"}),
    ("without_replacement_sgd", {"order": "fewest"}),
    ("without_replacement_sgd", {"order": "rounds"}),
    ("random_walk_sgd", {"visits": 3}),
]
EVERY = [(kind, {}) for kind in ALGORITHMS if kind not in (*ENDLESS, DECIDING)] + OTHER_WAYS
every = pytest.mark.parametrize(
    ("kind", "options"), EVERY, ids=["-".join([kind, *map(str, options.values())]) for kind, options in EVERY]
)


def run(kind, world, *, tasks=3, sizes=None, executor=None, training=None, **options):
    rows = []
    made = make_training(sizes or [64] * world.num_clients)
    training = dataclasses.replace(made, tasks=tasks, **(training or {}))
    tape = Tape(executor or NullExecutor(), window=500, max_batch=8)
    algorithm = make_algorithm(kind, world, tape, training, rows.append, **options)
    algorithm.start()
    world.clock.run(1000.0)
    tape.flush()
    return algorithm, rows


@pytest.mark.slow(but=["without_replacement_sgd-race"])
@every
@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data(), seed=st.integers(0, 99))
def test_nodes_that_stay_use_all_of_their_data(kind, options, data, seed):
    outages = data.draw(absences(4))
    links = data.draw(st.sampled_from([LinkModel(), ROUGH_LINKS]))
    world = make_world(4, jitter=lognormal(0.3), links=links, outages=outages, seed=seed)
    algorithm, rows = run(kind, world, **options)
    assert world.clock.now == 1000.0
    batches = 8 * algorithm.visits
    for node in range(4):
        used = algorithm.used[3 * node : 3 * node + 3]
        if world.availability.gone(node, 1000.0):
            assert max(used) <= batches
        else:
            assert used == [batches] * 3
            assert algorithm.client_updates[node] == 3 * batches
    assert len(rows) == algorithm.updates == sum(algorithm.client_updates)
    for time_s, node, *_ in rows:
        assert world.availability.online(node, time_s + 1e-9) or world.availability.online(node, time_s - 1e-9)
    assert sum(algorithm.version) == algorithm.updates
    for node in range(4):
        spent = algorithm.times
        away_s = world.availability.offline_s(node, 1000.0)
        total = spent.computed_s(node) + spent.waited_s(node) + spent.communicated_s(node) + away_s
        assert total == pytest.approx(1000.0)


@pytest.mark.slow(but=["without_replacement_sgd"])
@every
def test_memory_follows_the_number_of_living_models(kind, options):
    def rows(size):
        executor = NullExecutor()
        world = make_world(8, jitter=lognormal(0.3), links=LinkModel(latency=constant(1e-3)))
        run(kind, world, sizes=[size] * 8, executor=executor, **options)
        assert executor.gradients >= 3 * size
        return executor.rows

    assert rows(2400) <= rows(480) + 200


def test_an_algorithm_that_is_in_the_catalogue_is_in_a_contract_suite():
    covered = {kind for kind, _ in (*contract.EVERY, *EVERY)} | {*contract.ALONE, DECIDING}
    assert covered == set(ALGORITHMS)
    assert contract.ALONE == ["centralized_sgd"]


@pytest.mark.parametrize("order", ["random", "round_robin", "fewest", "rounds"])
def test_turns_have_the_order_of_the_schedule(order):
    _, rows = run("without_replacement_sgd", make_world(4), tasks=1, sizes=[800] * 4, order=order)
    nodes = np.array([row[1] for row in rows])
    rounds = nodes.reshape(100, 4)
    if order in ("round_robin", "rounds"):
        assert nodes.tolist() == [0, 1, 2, 3] * 100
    elif order == "fewest":
        assert np.array_equal(np.sort(rounds), np.tile(np.arange(4), (100, 1)))
        assert len({tuple(each) for each in rounds.tolist()}) > 12, "ties are drawn"
    else:
        assert np.bincount(nodes[:200]) == pytest.approx(np.full(4, 50), abs=5 * np.sqrt(200 * 3 / 16))
        after_itself = (nodes[1:200] == nodes[:199]).mean()
        assert after_itself == pytest.approx(0.25, abs=5 * np.sqrt(3 / 16 / 199))


@pytest.mark.parametrize("order", ["rounds", "fewest"])
def test_nodes_use_up_their_batches_evenly(order):
    world = make_world(4, jitter=lognormal(0.5), links=ROUGH_LINKS)
    _, rows = run("without_replacement_sgd", world, sizes=[320, 320, 320, 160], tasks=1, order=order)
    nodes = np.array([row[1] for row in rows])
    used = np.cumsum(nodes[:, None] == np.arange(4), axis=0)
    half = used[:80]
    assert np.ptp(half, axis=1).max() == 1 if order == "rounds" else np.ptp(half, axis=1).max() <= 3
    assert used[-1].tolist() == [40, 40, 40, 20]


@pytest.mark.parametrize("tasks", [1, 3])
def test_rounds_go_on_without_nodes_whose_privacy_budget_is_spent(tasks, monkeypatch):
    limits = [3 * tasks, 4 * tasks, 99, 99]
    start = WithoutReplacementSGD.start

    def limited(self):
        self.budgets.spent = lambda node: self.client_updates[node] >= limits[node]
        start(self)

    monkeypatch.setattr(WithoutReplacementSGD, "start", limited)
    budget = {"allowances": limits}
    algorithm, _ = run("without_replacement_sgd", make_world(4), tasks=tasks, order="rounds", training=budget)
    assert algorithm.client_updates == [3 * tasks, 4 * tasks, 8 * tasks, 8 * tasks]


def test_a_node_works_on_another_task_while_it_waits():
    def idle_and_busy(tasks):
        world = make_world(2, links=LinkModel(latency=constant(8e-3)))
        algorithm, rows = run("without_replacement_sgd", world, tasks=tasks, order="round_robin", sizes=[160, 160])
        busy_s = sum(algorithm.times.computed_s(node) for node in range(2))
        assert sum(algorithm.times.waited_s(node) for node in range(2)) == pytest.approx(2 * world.clock.now - busy_s)
        return 2 * rows[-1][0] - busy_s, busy_s

    idle_s, busy_s = idle_and_busy(8)
    assert idle_s < 0.1 * busy_s
    idle_s, busy_s = idle_and_busy(1)
    assert idle_s > 3 * busy_s, "broadcast, request and model, each 8 ms"


@pytest.mark.parametrize("shared", ["uplink", "downlink", "bandwidth"])
def test_a_transfer_of_a_model_takes_the_time_of_its_bytes(shared):
    """Two integers to the next node, two to the holder, 16 bytes of model: 32 bytes between two batches of 8 ms."""
    world = make_world(2, links=LinkModel(**{shared: 1e4}))
    _, rows = run("without_replacement_sgd", world, tasks=1, order="round_robin", sizes=[160, 160])
    times_s = np.array([row[0] for row in rows])
    assert [row[1] for row in rows] == [0, 1] * 20
    np.testing.assert_allclose(np.diff(times_s), 8e-3 + 32 / 1e4)
    assert world.network.bytes_sent == 39 * 32 + 8, "the last model stays where it is"
