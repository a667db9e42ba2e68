"""Functions of models on the tape equal NumPy at any window, and are followed in accounts of networks."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simfl.accounts.knowledge import KnowledgeTape, Listener
from simfl.errors import RunError
from simfl.tape import Tape
from tests.helpers import Lab, NumpyExecutor, make_problem

D = 3


def both(rows, given):
    """Return the sum of two models times a scalar, and their elementwise maximum."""
    larger = np.maximum if isinstance(rows[0], np.ndarray) else jnp.maximum
    return [given.scalars[0] * (rows[0] + rows[1]), larger(rows[0], rows[1])]


def sign(rows, given):
    return np.sign(rows[0]) if isinstance(rows[0], np.ndarray) else jnp.sign(rows[0])


def largest(rows, given):
    """Return the elementwise maximum of the models that are present."""
    xp = np if isinstance(rows, np.ndarray) else jnp
    return xp.where(given.present[:, None], rows, -xp.inf).max(axis=0)


def noisy(rows, given):
    return rows[0] + jax.random.normal(given.key, rows[0].shape)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("window", [5, 64, 1000])
def test_functions_equal_numpy_at_any_window(beside, window):
    """Record chains of gradients, averages, serial sums and functions, with a bank that is as small as possible."""
    executor = NumpyExecutor(D, lambda params, *_: params + 1.0, width=3, capacity=4)
    tape = Tape(executor, window=window, maps_beside=beside)
    generator = np.random.default_rng(0)
    models, values = [tape.constant(np.full(D, k)) for k in range(6)], [np.full(D, float(k)) for k in range(6)]
    for count in range(120):
        k, other, third = generator.choice(6, 3, replace=False).tolist()
        kind = count % 6
        if kind == 0:
            models[k] = tape.combine((0.5, models[k]), (0.5, models[other]))
            values[k] = 0.5 * (values[k] + values[other])
        elif kind == 1:
            models[k] = tape.apply((1.0, models[k]), (-0.1, tape.gradient(models[other], k, count, 4)))
            values[k] = values[k] - 0.1 * (values[other] + 1.0)
        elif kind == 2:
            models[k], models[other] = tape.map(both, [models[k], models[other]], scalars=[0.3], outputs=2)
            values[k], values[other] = 0.3 * (values[k] + values[other]), np.maximum(values[k], values[other])
        elif kind == 3:
            (models[k],) = tape.map(sign, [tape.combine((0.5, models[k]), (-0.25, models[third]))])
            values[k] = np.sign(0.5 * values[k] - 0.25 * values[third])
        elif kind == 4:
            chosen = [k, other, third, *range(6)][: 1 + count % 5]
            (models[k],) = tape.map(largest, [models[j] for j in chosen], pads=True)
            values[k] = np.max([values[j] for j in chosen], axis=0)
        else:
            models[k] = tape.combine((0.9, models[k]), (-0.1, tape.gradient(models[k], k, count, 4)))
            values[k] = 0.9 * values[k] - 0.1 * (values[k] + 1.0)
    np.testing.assert_allclose(tape.values(models), values, atol=1e-4)
    assert executor.peak <= 24


def test_a_chain_of_serial_functions_adds_no_depth():
    steps = {}
    for beside in (False, True):
        executor = NumpyExecutor(D, width=8)
        tape = Tape(executor, window=1000, maps_beside=beside)
        model = tape.constant(np.ones(D))
        for _ in range(10):
            (model,) = tape.map(sign, [model])
        tape.flush()
        steps[beside] = executor.steps
    assert steps == {False: 1, True: 10}


def play(beside, window, width):
    """Return the models after some rounds of gradients and functions on the real executor."""
    problem = make_problem(4)
    if beside:
        problem = replace(problem, optimizing=replace(problem.optimizing, beside=True))
    with Lab(problem, window=window, width=width) as lab:
        tape = lab.tape
        models = [tape.constant(np.full(problem.model.size, 0.01 * k, np.float32)) for k in range(4)]
        for draw in range(6):
            for k in range(4):
                stepped = tape.combine((1.0, models[k]), (-0.05, tape.gradient(models[k], k, draw, 8)))
                (stepped,) = tape.map(noisy, [stepped], client=k)
                models[k], models[k - 1] = tape.map(both, [stepped, models[k - 1]], scalars=[0.5], outputs=2)
            (models[0],) = tape.map(largest, models[: 2 + draw % 3], pads=True)
            models[1] = tape.apply((0.5, models[1]), (0.5, models[2]))
        return tape.values(models)


@pytest.mark.slow
def test_results_do_not_depend_on_the_window_and_functions_beside_gradients_equal_serial_ones():
    serial, beside = play(False, 1000, 4), play(True, 1000, 4)
    np.testing.assert_array_equal(serial, play(False, 7, 4))
    np.testing.assert_array_equal(beside, play(True, 7, 4))
    np.testing.assert_allclose(serial, beside, rtol=2e-5, atol=2e-5)


@pytest.mark.slow
def test_random_numbers_are_named_by_seed_client_and_call():
    problem = make_problem(2)
    with Lab(problem) as lab:
        zero = lab.tape.constant(np.zeros(problem.model.size, np.float32))
        made = [lab.tape.map(noisy, [zero], client=client)[0] for client in (0, 1, 0)]
        values = lab.tape.values(made)
    key = jax.random.wrap_key_data(problem.keys.maps, impl="threefry2x32")
    for (client, draw), value in zip([(0, 0), (1, 0), (0, 1)], values, strict=True):
        own = jax.random.fold_in(jax.random.fold_in(key, client), draw)
        np.testing.assert_allclose(value, jax.random.normal(own, value.shape), rtol=1e-6)


def test_a_wrong_call_is_named():
    tape = Tape(NumpyExecutor(D))
    model = tape.constant(np.zeros(D))
    with pytest.raises(ValueError, match=r"map: expected models of the tape, at least one, found \[\]"):
        tape.map(sign, [])
    with pytest.raises(ValueError, match="map: expected models of the tape"):
        tape.map(sign, [tape.gradient(model, 0, 0, 4)])
    with pytest.raises(ValueError, match="map: outputs: expected an integer >= 1, found 0"):
        tape.map(sign, [model], outputs=0)
    for _ in range(64):
        tape.map(lambda rows, given: rows[0], [model])
    with pytest.raises(ValueError, match=r"map: expected at most 64 functions .* give the same object at every call"):
        tape.map(lambda rows, given: rows[0], [model])


def test_a_result_of_another_shape_is_named():
    def short(rows, given):
        return rows[0][:2]

    lab = Lab(make_problem(2))
    made = lab.tape.map(short, [lab.tape.constant(np.zeros(650, np.float32))])
    expected = r"map: .*short: expected 1 x float32\[650\], found float32\[2\]"
    with pytest.raises(RunError, match=expected):
        lab.tape.values(made)
    with pytest.raises(RunError, match=expected):
        lab.executor.close()


# -- accounts of networks ----------------------------------------------------------------------


def test_an_observer_of_a_result_is_charged_with_what_the_function_read():
    tape = KnowledgeTape()
    known = tape.knowledge
    listener = Listener(known, lambda: 0.0)
    model = tape.constant(np.zeros(D))
    own, other = (tape.combine((1.0, tape.gradient(model, client, 0, 8, 2.0))) for client in (0, 1))
    (mixed,) = tape.map(largest, [own, other], pads=True)
    listener.sent(0, 2, tape.combine((0.5, mixed), (0.25, own)), lambda: None)()
    a, b = known.matrices([sight.row for sight in known.messages])
    np.testing.assert_array_equal(a, [[0.25, 0.0], [1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_array_equal(b, [[0.5, 0.0], [2.0, 0.0], [0.0, 2.0]])
    assert known.num_messages == 1
    assert all(sight.came_s == 0.0 for sight in known.messages)


def test_a_row_that_reached_an_observer_is_not_charged_again():
    tape = KnowledgeTape()
    known = tape.knowledge
    listener = Listener(known, lambda: 0.0)
    model = tape.constant(np.zeros(D))
    own = tape.combine((1.0, tape.gradient(model, 0, 0, 8, 2.0)))
    (small,) = tape.map(sign, [own])
    lost = listener.sent(0, 1, small, lambda: None)
    del lost  # it never arrives
    for _ in range(3):
        listener.sent(0, 1, small, lambda: None)()
    rows = [sight.row for sight in known.messages]
    charge = own.rows[0].number
    assert rows.count(charge) == 2, "with the lost message and with the first that arrived"


def test_a_gradient_at_a_result_counts_what_the_function_read_among_the_reads():
    tape = KnowledgeTape()
    model = tape.constant(np.zeros(D))
    own = tape.combine((1.0, tape.gradient(model, 0, 0, 8, 2.0)))
    (small,) = tape.map(sign, [own])
    tape.gradient(small, 1, 0, 8, 2.0)
    assert {one.row for one in tape.knowledge.reads if one.client == 1} == {small.rows[0].number, own.rows[0].number}
