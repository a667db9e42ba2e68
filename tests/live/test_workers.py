"""Algorithms as processes against the same simulated algorithms, in threads and without MPI."""

from types import SimpleNamespace

import numpy as np
import pytest

from simfl.bench.limits import Nothing, run_world
from simfl.live.coordinator import Row, with_staleness
from simfl.live.workers import PairWorker, SyncWorker
from simfl.streams import Streams
from simfl.tape import Tape
from simfl.world.topology import build_topology
from tests.live.wires import POLL_S, run_live, side_by_side, transports


class Reducer(SyncWorker):
    """The all-reduce of a single worker."""

    def __init__(self, client, count, transport, steps):
        self.me, self.count, self.transport, self.all_reduce = client, count, transport, steps
        self.begin = self.communicate_s = 0.0
        self.rounds, self._parts, self._stopped = 0, {}, False
        transport.handlers[9] = self._on_part


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("steps", ["ring", "halving", "doubling"])
def test_an_all_reduce_sums_all_vectors(steps, count):
    ends = transports(count)
    vectors = np.random.default_rng(0).normal(size=(count, 37)).astype(np.float32)
    reducers = [Reducer(k, count, ends[k], steps) for k in range(count)]
    totals = side_by_side([lambda k=k: reducers[k].reduced(vectors[k]) for k in range(count)], ends[0].clock)
    for total in totals:
        np.testing.assert_allclose(total, vectors.sum(axis=0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["sync_sgd", "decentralized_sgd", "adpsgd", "fedasync"])
def test_a_run_takes_the_time_of_the_simulated_world(kind):
    more = {"local_steps": 2} if kind == "fedasync" else {}
    slow = [{"clients": [1], "factor": 3}]
    setup, _, coordinator = run_live(
        algorithm={"kind": kind, "batch_size": 32, "step_size": 0.5, **more}, slowdowns=slow
    )
    rows = coordinator.final
    assert len(rows) == 40
    assert coordinator.status == "done"
    predicted = run_world(setup, Tape(Nothing(), **setup.problem.recorded), 40)[2].clock.now
    waits = 2 * POLL_S * len(rows)  # a message is received at the next poll
    assert predicted <= rows[-1].time_s <= predicted + waits
    by_client = np.bincount([row.client for row in rows], minlength=4)
    assert by_client[1] == by_client.min()
    if kind in ("sync_sgd", "decentralized_sgd"):
        assert by_client.max() - by_client.min() <= 2
    else:
        assert by_client[1] < 0.6 * by_client[0], "the other clients do not wait for the slow one"
        assert {row.staleness >= 0 for row in rows} == {True}
    assert len(coordinator.marks) == 2


def test_models_move_by_the_mean_of_known_gradients():
    """Each client's gradients are constant, so SYNC moves all models by their mean."""
    _, workers, _ = run_live(stop={"updates": 8}, evaluate={"every": {"updates": 4}})
    first = workers[0].snapshots[0]
    step = 0.5 * np.mean([1, 2, 3, 4]) / 32
    for worker in workers:
        np.testing.assert_allclose(worker.snapshots[0], first)
        moved = (worker.training.initial - worker.snapshots[0]) / np.float32(step)
        assert moved == pytest.approx(np.full(moved.shape, round(float(moved[0]))), abs=1e-3)


def test_pairwise_averaging_changes_the_sum_of_models_by_steps_only():
    setup, workers, _ = run_live(
        algorithm={"kind": "adpsgd", "batch_size": 32, "step_size": 0.5}, topology={"kind": "complete"}
    )
    total = np.sum([worker.model - setup.training.initial for worker in workers], axis=0)
    steps = sum(0.5 / 32 * (worker.me + 1) * worker.updates for worker in workers)
    largest = 0.5 / 32 * 4 * 4  # the effect of an exchange that is in flight at the end
    assert np.abs(total + steps).max() <= largest + 1e-3


def test_requests_of_two_equal_clients_that_cross_are_one_exchange(monkeypatch):
    """Models differ by the last steps alone. A swap would carry the difference on."""
    after = {0: [], 1: []}

    def noted(self, *arguments):
        after[self.me].append(self.model)
        updated(self, *arguments)

    updated = PairWorker.updated
    monkeypatch.setattr(PairWorker, "updated", noted)
    algorithm = {"kind": "adpsgd", "batch_size": 32, "step_size": 0.5, "pairing": "everyone"}
    clients = {"count": 2, "seconds_per_example": 2e-4}
    _, workers, _ = run_live((5e-3, np.inf), algorithm=algorithm, clients=clients, stop={"updates": 24})
    assert min(map(len, after.values())) >= 11
    for one, other in zip(after[0], after[1], strict=False):
        np.testing.assert_allclose(one - other, np.full_like(one, 0.5 / 32), rtol=0, atol=1e-6)
    assert sum(worker.transport.messages for worker in workers) <= 24 + 2, "requests, and no answers"


class Pair(PairWorker):
    """An end of exchanges alone: a list of messages is its transport."""

    away = False

    def __init__(self, me, model):
        self.me, self.model, self.sent = me, model, []
        self.transport = SimpleNamespace(handlers={}, send=lambda *message: self.sent.append(message))
        self.world = SimpleNamespace(topology=build_topology("complete", 2, None), streams=Streams(0))
        self.set_up(exchange="messages", pairing="everyone")


def pass_on(source, target):
    """Deliver the oldest message of a client to the other one."""
    _, kind, numbers, vector = (*source.sent.pop(0), np.zeros(0))[:4]
    target.transport.handlers[kind](source.me, numbers, vector)


@pytest.mark.parametrize("later", [False, True])
def test_a_crossing_request_that_is_refused_is_followed_by_an_answer(later):
    """Client 0 has averaged, perhaps begun the next exchange, when it learns that its request was refused."""
    zero, one = Pair(0, np.float32([4.0])), Pair(1, np.float32([8.0]))
    zero.ask(1)
    one.ask(0)
    pass_on(one, zero)
    one.away = True
    pass_on(zero, one)
    assert (zero.model, one.model) == (6.0, 8.0)
    if later:
        zero.ask(1)
        one.away = False
        pass_on(zero, one)  # does not cross the request of client 1, which was there before
        assert one.model == 7.0
    pass_on(one, zero)
    pass_on(zero, one)
    if later:
        pass_on(one, zero)
    assert (zero.model, one.model) == ((7.0, 5.0) if later else (6.0, 6.0))
    assert (zero.sent, one.sent) == ([], [])
    assert zero._answered
    assert one._answered


def test_a_crash_pauses_a_client_and_destroys_its_gradient():
    crash = [{"clients": [2], "crash": [{"at": 0.03, "back": 0.12}]}]
    _, _, coordinator = run_live(algorithm={"kind": "adpsgd", "batch_size": 32}, availability=crash, stop={"time": 0.2})
    times = np.array([row.time_s for row in coordinator.final if row.client == 2])
    assert not ((times > 0.03) & (times < 0.12)).any()
    assert (times > 0.12).any()
    assert coordinator.reason == "time"


def test_staleness_counts_the_updates_of_all_clients_since_the_read():
    rows = [Row(0.1 * i, i % 2, -1, -1, max(0.0, 0.1 * i - 0.25), 8, 0.5) for i in range(1, 6)]
    assert [row.staleness for row in with_staleness(rows)] == [0, 1, 2, 2, 2]
