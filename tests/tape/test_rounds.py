"""Rounds of local steps, each one operation, equal their steps written out in NumPy."""

import numpy as np
import pytest

from tests.helpers import Lab, batch_gradient, make_problem

D = 650
ETA = 0.3


def model_values(seed=3):
    return 0.1 * np.random.default_rng(seed).standard_normal(D)


def train(problem, start, client, draw, steps, *, beta=0.0, t=0.0, dt=0.0, power=1.0, proximal=0.0, l2=0.0):
    """Return the change that a round makes, f64 [D]."""
    w = start.copy()
    for h in range(steps):
        gradient = batch_gradient(problem, w, client, draw + h, problem.batches.size) / problem.batches.size
        gradient = gradient + l2 * w + proximal * (w - start)
        w = w - ETA / (1 + beta * (t + dt * h) ** power) * gradient
    return w - start


@pytest.mark.slow(but=["0"])
@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("sampling", ["shuffle", "without_replacement", "with_replacement"])
def test_a_round_equals_its_steps_written_out(width, sampling):
    problem = make_problem(sampling=sampling, local=True)
    start = model_values()
    with Lab(problem, width=width) as lab:
        model = lab.tape.constant(start)
        rounds = [(k, 3 * k, 1 + 2 * k) for k in range(6)]
        changes = [
            lab.tape.combine((1.0, lab.tape.train(model, k, draw, steps, 8, (ETA, 0.0, 0.0, 0.0))))
            for k, draw, steps in rounds
        ]
        moved = [lab.tape.combine((1.0, model), (0.5, changes[2])), lab.tape.apply((1.0, model), (1.0, changes[1]))]
        values = lab.tape.values([*changes, *moved])
    expected = [train(problem, start, k, draw, steps) for k, draw, steps in rounds]
    np.testing.assert_allclose(values[:6], expected, atol=2e-6)
    np.testing.assert_allclose(values[6:], [start + 0.5 * expected[2], start + expected[1]], atol=2e-6)


@pytest.mark.slow(but=["options2-extra2"])
@pytest.mark.parametrize(
    ("options", "extra"),
    [
        ({"beta": 0.4, "t": 3.0, "dt": 2.0}, {}),
        ({"beta": 0.4, "t": 3.0, "dt": 2.0, "power": 0.5}, {"power": 0.5}),
        ({"proximal": 0.7}, {"proximal": 0.7}),
        ({"l2": 0.2}, {}),
    ],
)
def test_decay_proximal_term_and_penalty_equal_numpy(options, extra):
    problem = make_problem(local=True, l2=options.get("l2", 0.0), **extra)
    start = model_values()
    step = (ETA, options.get("beta", 0.0), options.get("t", 0.0), options.get("dt", 0.0))
    with Lab(problem) as lab:
        change = lab.tape.combine((1.0, lab.tape.train(lab.tape.constant(start), 1, 2, 9, 8, step)))
        value = lab.tape.values([change])[0]
    np.testing.assert_allclose(value, train(problem, start, 1, 2, 9, **options), atol=3e-6)


@pytest.mark.slow
def test_a_change_is_clipped_as_a_whole_and_noised_once():
    start = model_values()
    step = (ETA, 0.0, 0.0, 0.0)
    plain = train(make_problem(local=True), start, 0, 0, 12)
    norm = 0.25 * np.linalg.norm(plain)
    problem = make_problem(local=True, clip="update", clipping_norm=norm, noise="gaussian")
    with Lab(problem) as lab:
        model = lab.tape.constant(start)
        changes = [lab.tape.combine((1.0, lab.tape.train(model, 0, 0, 12, 8, step, std))) for std in (0.0, 0.5)]
        quiet, noisy = lab.tape.values(changes).astype(float)
    np.testing.assert_allclose(quiet, 0.25 * plain, atol=1e-6)
    assert (noisy - quiet).std() == pytest.approx(0.5, rel=0.1)


def test_each_example_is_clipped_in_every_step():
    problem = make_problem(local=True, clipping_norm=0.05)
    start = model_values()
    with Lab(problem) as lab:
        model = lab.tape.constant(start)
        change = lab.tape.combine((1.0, lab.tape.train(model, 2, 0, 5, 8, (ETA, 0.0, 0.0, 0.0))))
        value = lab.tape.values([change])[0]
    np.testing.assert_allclose(value, train(problem, start, 2, 0, 5), atol=2e-6)
    assert np.linalg.norm(value) <= 5 * ETA * 0.05 * (1 + 1e-5)


@pytest.mark.parametrize("width", [1, 4])
def test_a_change_that_overflows_is_released_as_noise_only(width):
    """Client 0 takes a huge step. 0 times infinity would be NaN in its lane, and after it is done, in other lanes."""
    problem = make_problem(local=True, clip="update", clipping_norm=0.1, noise="gaussian")
    start = model_values()
    with Lab(problem, width=width) as lab:
        model = lab.tape.constant(start)
        step, huge = (ETA, 0.0, 0.0, 0.0), (3e38, 0.0, 0.0, 0.0)
        rounds = [(0, 12, huge, 0.0), (0, 12, huge, 0.5), (1, 12, step, 0.0), (2, 1, step, 0.0)]
        made = [
            lab.tape.combine((1.0, lab.tape.train(model, k, 0, steps, 8, how, std))) for k, steps, how, std in rounds
        ]
        broken, noise, *sound = lab.tape.values(made).astype(float)
        assert lab.executor.zeroed() == 2
    assert not broken.any()
    assert noise.std() == pytest.approx(0.5, rel=0.1)
    np.testing.assert_allclose(np.linalg.norm(sound, axis=1), 0.1, rtol=1e-4)
