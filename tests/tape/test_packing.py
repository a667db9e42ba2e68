import numpy as np
import pytest

from simfl.tape import Tape
from simfl.tape.packing import Bank, pack
from simfl.world.links import LinkModel
from tests.helpers import (
    NEVER,
    NullExecutor,
    NumpyExecutor,
    constant,
    lognormal,
    make_algorithm,
    make_training,
    make_world,
)

D = 2


class Packing(NullExecutor):
    """Packs windows and computes nothing; counts the steps, and keeps the bank."""

    def __init__(self, width=4, combines=2, capacity=8):
        super().__init__()
        self.bank = Bank(capacity)
        self.width, self.combining = width, combines
        self.steps = 0

    def submit(self, window):
        super().submit(window)
        self.steps += pack(window, self.bank, self.width, self.combining).count


def step(tape, model, client=0, draw=0):
    return tape.combine((1.0, model), (-0.5, tape.gradient(model, client, draw, 8)))


@pytest.mark.parametrize(("count", "width", "steps"), [(8, 4, 2), (8, 8, 1), (9, 8, 2), (8, 1, 8)])
def test_independent_operations_share_steps(count, width, steps):
    executor = Packing(width=width)
    tape = Tape(executor, window=1000)
    models = [tape.constant(np.ones(D)) for _ in range(count)]
    models = [step(tape, model, client) for client, model in enumerate(models)]
    tape.flush()
    assert executor.steps == steps


def test_a_chain_takes_a_step_per_link_and_chains_run_side_by_side():
    executor = Packing(width=4)
    tape = Tape(executor, window=1000)
    models = [tape.constant(np.ones(D)) for _ in range(4)]
    for client in range(4):  # recorded one after the other, but independent of each other
        for draw in range(10):
            models[client] = step(tape, models[client], client, draw)
    tape.flush()
    assert executor.steps == 10


def test_gradients_and_combinations_of_one_depth_share_a_step():
    executor = Packing(width=2, combines=2)
    tape = Tape(executor, window=1000)
    one, two = tape.constant(np.ones(D)), tape.constant(np.ones(D))
    keep = [step(tape, one), step(tape, two), tape.settle(tape.combine((0.5, one), (0.5, two)))]
    tape.flush()
    assert executor.steps == 1
    assert len(keep) == 3


def test_a_sum_of_many_gradients_is_wide_and_not_a_chain():
    executor = Packing(width=16, combines=4)
    tape = Tape(executor, window=1000)
    model = tape.constant(np.ones(D))
    terms = [(-0.1, tape.gradient(model, k, 0, 8)) for k in range(64)]
    model = tape.combine((1.0, model), *terms)
    tape.flush()
    assert executor.gradients == 64
    assert executor.steps <= 4 + 3, "four steps of sixteen gradients, and a tree of sums"


@pytest.mark.parametrize(
    ("kind", "options", "lanes"),
    [("adpsgd", {"exchange": "atomic"}, 0.6), ("adpsgd", {}, 0.5), ("sync_sgd", {}, 0.6)],
)
def test_a_long_run_fills_lanes_and_keeps_the_bank_small(kind, options, lanes):
    K = 32
    executor = Packing(width=4, combines=2)
    world = make_world(K, jitter=lognormal(0.3), links=LinkModel(latency=constant(2e-3)))
    tape = Tape(executor, window=512)
    algorithm = make_algorithm(kind, world, tape, make_training([64] * K), **options)
    capacities = []

    def mark():
        capacities.append(executor.bank.capacity)
        if algorithm.updates >= 12_000:
            world.clock.stop()
            return NEVER
        return algorithm.updates + 1000

    algorithm.marks.call, algorithm.marks.next = mark, 2000
    algorithm.start()
    world.clock.run()
    assert capacities[0] <= 6 * K
    assert capacities[-1] <= capacities[0] + 64, "memory follows living models, not the length of the run"
    assert executor.gradients / (4 * executor.steps) > lanes, "lanes are filled"


def test_places_of_dead_rows_are_reused_at_once():
    """A chain of any length needs two places: for the value that is read and the one that is written."""
    executor = NumpyExecutor(D, width=1, combines=1, capacity=2)
    tape = Tape(executor, window=1000)
    model = tape.constant(np.ones(D))
    for draw in range(500):
        model = step(tape, model, 0, draw)
    tape.flush()
    assert executor.bank.capacity == 2
    assert executor.steps == 500


def test_unread_results_do_not_change_others():
    executor = NumpyExecutor(D, lambda params, *_: params, width=2, combines=1, capacity=2)
    tape = Tape(executor, window=1000)
    model = tape.constant(np.ones(D))
    for draw in range(20):
        step(tape, model, 1, draw)
    model = step(tape, model)
    np.testing.assert_allclose(tape.values([model])[0], 0.5)


def test_a_bank_that_grows_keeps_its_places():
    bank = Bank(3)
    assert bank.spare == 3
    taken = [bank.free.pop(), bank.free.pop()]
    bank.grow(10)
    assert bank.capacity >= 12
    assert bank.spare == bank.capacity
    assert len(bank.free) >= 10
    assert not set(taken) & set(bank.free)
    assert sorted([*taken, *bank.free]) == list(range(bank.capacity))
    assert bank.places(np.array([-1], np.int32)).tolist() == [bank.spare]
