"""Transformations on the tape, and their states as rows, equal NumPy and optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from simfl.tape import Tape
from simfl.tape.maps import Given
from simfl.tape.optimizers import Transformation, adaptive, state_rows, transformation_of
from tests.helpers import NumpyExecutor

D = 3


def halved(gradient, base, state, updates, step_size):
    """Return a step and a state that depends on all steps: (base - step * (g + s_0), [s_0 / 2 + g, s_1 + updates])."""
    return base - step_size * (gradient + state[0]), [0.5 * state[0] + gradient, state[1] + updates]


def halved_rows(rows, given):
    """Return `halved` as a function of models, as `Tape.transform` records it: its base is a sum of up to four rows."""
    *coefs, step_size = given.scalars.tolist()
    base = sum(coef * row for coef, row in zip(coefs, rows[1:5], strict=True))
    model, state = halved(rows[0], base, rows[5:], given.draw, step_size)
    return [model, *state]


@pytest.mark.parametrize("serial", [False, True])
@pytest.mark.parametrize("window", [5, 64, 1000])
def test_transformations_equal_numpy_at_any_window(serial, window):
    """Record four chains of transformations that are averaged at times, with a bank that is as small as possible."""
    executor = NumpyExecutor(D, lambda params, *_: params + 1.0, width=3, capacity=4)
    tape = Tape(executor, window=window, optimizer=halved_rows, serial_steps=serial, maps_beside=not serial)
    generator = np.random.default_rng(0)
    models = [tape.constant(np.full(D, k)) for k in range(4)]
    zero = tape.constant(np.zeros(D))
    states = [(zero, zero)] * 4
    values, kept = [np.full(D, float(k)) for k in range(4)], [np.zeros((2, D))] * 4
    for count in range(60):
        k, other = generator.choice(4, 2, replace=False).tolist()
        if count % 3 == 0:
            models[k] = models[other] = tape.combine((0.5, models[k]), (0.5, models[other]))
            values[k] = values[other] = 0.5 * (values[k] + values[other])
        gradient = tape.combine((0.25, tape.gradient(models[k], k, count, 4)))
        models[k], states[k] = tape.transform(gradient, models[k], states[k], count, 0.1)
        values[k], kept[k] = halved(0.25 * (values[k] + 1.0), values[k], kept[k], count, 0.1)
        if count % 7 == 0:
            states[k] = (tape.combine((0.5, states[k][0]), (0.5, states[other][0])), states[k][1])
            kept[k] = [0.5 * (kept[k][0] + kept[other][0]), kept[k][1]]
    del gradient, zero
    rows = tape.values([*models, *(row for state in states for row in state)])
    np.testing.assert_allclose(rows[:4], values, atol=1e-5)
    np.testing.assert_allclose(rows[4:], np.concatenate(kept), atol=1e-4)
    assert executor.peak <= 24, "living rows: four models, eight of states, and those of current operations"


def test_independent_chains_share_lanes_and_serial_steps_add_no_depth():
    steps = {}
    for serial in (False, True):
        executor = NumpyExecutor(D, width=8)
        tape = Tape(executor, window=1000, optimizer=halved_rows, serial_steps=serial, maps_beside=not serial)
        zero = tape.constant(np.zeros(D))
        chains = [tape.transform(zero, zero, (zero, zero), 0, 0.1) for _ in range(8)]
        model, states = chains[0]
        for count in range(10):
            model, states = tape.transform(zero, model, states, count, 0.1)
        tape.flush()
        steps[serial] = executor.steps
    assert steps == {False: 11, True: 1}


def step_of(rows):
    """Return the function (gradient, model, state, updates, eta) -> [model, *state] of a rule, its state in rows."""

    def step(gradient, model, packed, count, eta):
        given = Given(jnp.stack([jnp.float32(1.0), jnp.float32(eta)]), None, None, count, None)
        return rows([gradient, model, *packed], given)

    return step


def chain_of(*parts):
    made = optax.chain(*parts)
    return Transformation(object(), lambda constants: made)


WHOLE = (jnp.array([7, 4_000_000_000], jnp.uint32), jnp.int32(-5), jnp.array([True, False]), jnp.int8(-3))


def whole_after(state):
    words, below, flags, small = state
    return words * jnp.uint32(2_654_435_761), below * 3, ~flags, small + jnp.int8(1)


RULES = {
    "adam": chain_of(optax.scale_by_adam(), optax.scale(-0.1)),
    "steps that are gathered": chain_of(optax.MultiSteps(optax.adam(0.1), 3).gradient_transformation()),
    "steps that are not finite": chain_of(optax.apply_if_finite(optax.adam(0.1), 2)),
    "a schedule": chain_of(optax.trace(0.9), optax.scale_by_schedule(optax.cosine_decay_schedule(-1.0, 10))),
    "whole numbers": chain_of(
        optax.GradientTransformation(lambda params: WHOLE, lambda g, state, params: (g, whole_after(state)))
    ),
    "nothing": transformation_of("plain", clip_norm=1.0),
}


@pytest.mark.slow(but=["nothing"])
@pytest.mark.parametrize("name", RULES)
def test_a_state_kept_in_rows_equals_that_of_optax(name):
    """Eight updates with the state in rows equal those of optax; one gradient is not finite."""
    rule = RULES[name]
    rows = state_rows(rule, D)
    gradients = np.random.default_rng(1).standard_normal((8, D)).astype(np.float32)
    if name == "steps that are not finite":
        gradients[3] = np.nan
    params = jnp.ones(D)
    state, packed = rule.init(params), rows.begin(np.ones(D, np.float32))
    assert packed.shape == (rows.rows, D)
    mine = params
    step, update = jax.jit(step_of(rows)), jax.jit(rule.update)
    for count, gradient in enumerate(gradients):
        added, state = update(gradient, state, params)
        params = params + 0.5 * added
        mine, *packed = step(gradient, mine, packed, count, 0.5)
        np.testing.assert_allclose(mine, params, rtol=1e-6)
    back = rows.unpack(packed, len(gradients))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-6), back, state)


def test_a_counter_that_counts_every_step_takes_no_row():
    rows = {name: (state_rows(rule, D).reals, state_rows(rule, D).wholes) for name, rule in RULES.items()}
    assert rows["adam"] == (2, 0)
    assert rows["a schedule"] == (1, 0)
    assert rows["nothing"] == (0, 0)
    assert rows["steps that are not finite"][1] > 0
    assert rows["steps that are gathered"][1] > 0


@pytest.mark.parametrize("kind", ["adam", "yogi", "adagrad"])
def test_adaptive_steps_of_a_server_are_those_of_the_listing(kind):
    """Reddi et al. 2021, Algorithm 2, in float64."""
    beta1, beta2, tau, eta = 0.9, 0.99, 1e-2, 0.1
    rule = transformation_of(kind, core=adaptive(kind, beta1, beta2, tau))
    rows = state_rows(rule, D)
    packed, model = rows.begin(np.zeros(D, np.float32)), jnp.zeros(D)
    x, m, v = np.zeros(D), np.zeros(D), np.full(D, tau**2)
    for count, change in enumerate(np.random.default_rng(2).standard_normal((30, D))):
        m = beta1 * m + (1 - beta1) * change
        if kind == "adam":
            v = beta2 * v + (1 - beta2) * change**2
        elif kind == "yogi":
            v = v - (1 - beta2) * change**2 * np.sign(v - change**2)
        else:
            v = v + change**2
        x = x + eta * m / (np.sqrt(v) + tau)
        model, *packed = step_of(rows)(jnp.float32(-change), model, packed, count, eta)
    np.testing.assert_allclose(model, x, rtol=1e-4)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (optax.GradientTransformation(lambda p: (), lambda g, s, p: (g[:1], s)), "updates of the shape"),
        (optax.GradientTransformation(lambda p: 0.0, lambda g, s, p: (g, (s, s))), "keeps its shapes"),
        (optax.GradientTransformation(lambda p: jax.random.key(0), lambda g, s, p: (g, s)), "numbers of at most 32"),
    ],
)
def test_invalid_transformations_are_refused(made, said):
    with pytest.raises(TypeError, match=said):
        state_rows(Transformation(object(), lambda constants: made), D)
