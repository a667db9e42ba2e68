"""Results of the tape and its packing equal direct evaluation, for any operations in any windows."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.tape import Tape
from tests.helpers import NullExecutor, NumpyExecutor

D = 3
COEFS = st.sampled_from([1.0, -1.0, 0.5, -0.25, 2.0, 0.0])


@functools.cache
def vector(*name):
    return np.random.default_rng(name).standard_normal(D)


def fake_gradient(params, client, draw, first, size):
    """Return a sum over examples that depends on all arguments on which a gradient may depend."""
    return sum((0.25 * params + vector(0, client, draw, e) for e in range(first, first + size)), np.zeros(D))


def fake_noise(client, draw):
    return vector(1, client, draw)


class Mirror:
    """Records operations on a tape, and also computes them directly."""

    def __init__(self, tape):
        self.tape = tape
        self.models = []  # (model, value)
        self.promised = []  # (gradient, value)
        self.draw = 0

    def constant(self, seed):
        values = vector(2, seed).astype(np.float32)
        self.models.append((self.tape.constant(values), values.astype(np.float64)))

    def read(self, index, size, noise_scale):
        model, value = self.models[index % len(self.models)]
        self.draw += 1
        client, draw = self.draw % 3, self.draw
        total = fake_gradient(value, client, draw, 0, size) + noise_scale * fake_noise(client, draw)
        self.promised.append((self.tape.gradient(model, client, draw, size, noise_scale), total))

    def apply(self, terms, steps):
        self.combine(terms, steps, "apply")

    def combine(self, terms, steps, how="combine"):
        picked = [(c, *self.models[i % len(self.models)]) for c, i in terms]
        used = [(c, *self.promised.pop(i % len(self.promised))) for c, i in steps[: len(self.promised)]]
        if not picked and not used:
            return
        model = getattr(self.tape, how)(*((c, m) for c, m, _ in picked + used))
        self.models.append((model, sum((c * value for c, _, value in picked + used), np.zeros(D))))

    def replace(self, target, source):
        self.models[target % len(self.models)] = self.models[source % len(self.models)]

    def forget(self, index):
        if len(self.models) > 1:
            self.models.pop(index % len(self.models))

    def settle(self, index):
        model, _ = self.models[index % len(self.models)]
        assert self.tape.settle(model) is model
        assert len(model.rows) == 1

    def flush(self):
        self.tape.flush()

    def check(self):
        values = self.tape.values([model for model, _ in self.models])
        np.testing.assert_allclose(values, [value for _, value in self.models], rtol=1e-9, atol=1e-9)


index = st.integers(0, 20)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("constant"), index),
        st.tuples(st.just("read"), index, st.integers(0, 12), st.sampled_from([0.0, 2.0])),
        st.tuples(
            st.sampled_from(["combine", "apply"]),
            st.lists(st.tuples(COEFS, index), max_size=7),
            st.lists(st.tuples(COEFS, index), max_size=3),
        ),
        st.tuples(st.just("replace"), index, index),
        st.tuples(st.just("forget"), index),
        st.tuples(st.just("settle"), index),
        st.tuples(st.just("flush")),
        st.tuples(st.just("check")),
    ),
    min_size=10,
    max_size=60,
)


@pytest.mark.slow
@settings(max_examples=250, deadline=None, derandomize=True)
@given(
    operations=operations,
    window=st.sampled_from([1, 2, 5, 1000]),
    reads=st.sampled_from([3, 4, 6]),
    width=st.integers(1, 4),
    combines=st.integers(1, 3),
    max_batch=st.sampled_from([2, 5, 100]),
)
def test_any_dataflow_gives_what_direct_evaluation_gives(operations, window, reads, width, combines, max_batch):
    executor = NumpyExecutor(D, fake_gradient, fake_noise, width=width, combines=combines, capacity=2)
    mirror = Mirror(Tape(executor, window=window, reads=reads, max_batch=max_batch))
    mirror.constant(0)
    for name, *arguments in operations:
        getattr(mirror, name)(*arguments)
    mirror.check()
    mirror.check()  # a check changes nothing


def test_a_chain_of_applied_updates_adds_no_depths():
    class Keeping(NullExecutor):
        def submit(self, window):
            self.window = window

    executor = Keeping()
    tape = Tape(executor, window=10_000)
    server = tape.constant(vector(1))
    gradients = [tape.gradient(server, client, 0, 8) for client in range(100)]
    for gradient in gradients:
        server = tape.apply((1.0, server), (-0.1, gradient))
    tape.combine((1.0, server), (-0.1, tape.gradient(server, 0, 1, 8)))
    tape.flush()
    assert executor.window.gradients.depths.tolist() == [1] * 100 + [2]
    assert executor.window.serials.depths.tolist() == [1] * 100


def test_averaging_alone_takes_no_operation():
    executor = NumpyExecutor(D)
    tape = Tape(executor, window=10)
    one, two = tape.constant(vector(1)), tape.constant(vector(2))
    mean = tape.combine((0.5, one), (0.5, two))
    assert tape.combine((1.0, mean), (-1.0, two)).coefs == (0.5, -0.5)
    np.testing.assert_allclose(tape.values([mean])[0], (vector(1) + vector(2)) / 2, rtol=1e-6)
    assert executor.operations == 0


def test_a_gossip_step_is_one_operation():
    executor = NullExecutor()
    tape = Tape(executor, window=1000)
    one, two = tape.constant(vector(1)), tape.constant(vector(2))
    gradient = tape.gradient(one, 0, 0, 8)
    tape.combine((0.5, one), (0.5, two), (-0.1, gradient))
    tape.flush()
    assert (executor.gradients, executor.combines) == (1, 0)


@pytest.mark.parametrize(("size", "pieces"), [(0, 1), (1, 1), (8, 1), (9, 2), (16, 2), (23, 3)])
def test_a_batch_over_the_fixed_width_takes_more_operations_and_one_noise(size, pieces):
    class Keeping(NullExecutor):
        def submit(self, window):
            self.window = window

    executor = Keeping()
    tape = Tape(executor, max_batch=8)
    model = tape.constant(vector(1))
    tape.combine((1.0, model), (-0.5, tape.gradient(model, 3, 7, size, 1.5)))
    tape.flush()
    clients, draws, firsts, sizes = executor.window.gradients.ints[:, -4:].T
    assert len(firsts) == pieces
    assert firsts.tolist() == [8 * i for i in range(pieces)]
    assert sizes.sum() == size
    assert sizes.max() <= 8
    assert (set(clients), set(draws)) == ({3}, {7})
    assert executor.window.gradients.floats[:, -1].tolist() == [1.5] + [0.0] * (pieces - 1)
    assert executor.window.gradients.floats[:, -2].tolist() == [-0.5] * pieces


def test_windows_hold_the_given_number_of_operations():
    sizes = []

    class Keeping(NullExecutor):
        def submit(self, window):
            sizes.append(window.operations)

    flushes = []
    tape = Tape(Keeping(), window=10, on_flush=lambda: flushes.append(len(sizes)))
    model = tape.constant(vector(1))
    for draw in range(35):
        model = tape.combine((1.0, model), (-0.5, tape.gradient(model, 0, draw, 8)))
    assert sizes == [10, 10, 10]
    assert flushes == [1, 2, 3]
    tape.flush()
    tape.flush()
    assert sizes == [10, 10, 10, 5], "nothing recorded, nothing submitted"


def test_an_operation_reads_at_least_three_rows():
    with pytest.raises(ValueError, match="reads: expected"):
        Tape(NullExecutor(), reads=2)


def test_a_gradient_is_used_once():
    tape = Tape(NullExecutor())
    model = tape.constant(np.zeros(3, dtype=np.float32))
    for size in (4, 400):  # in one operation, and in several
        gradient = tape.gradient(model, 7, 2, size)
        tape.combine((1.0, model), (-0.1, gradient))
        with pytest.raises(ValueError, match="gradient 2 of client 7 is used twice"):
            tape.combine((1.0, model), (-0.1, gradient))


def test_operations_before_there_is_an_executor_are_kept_for_it():
    tape, executor = Tape(None, window=2), NumpyExecutor(D)
    models = [tape.settle(tape.combine((2.0, tape.constant(vector(k))))) for k in range(5)]
    tape.flush()
    tape.executor = executor
    total = tape.settle(tape.combine(*((1.0, model) for model in models)))
    assert executor.operations > 0, "the first operation after it submits the window"
    np.testing.assert_allclose(tape.values([total])[0], sum(2.0 * vector(k) for k in range(5)), rtol=1e-6)
