"""Gradients with one clipping norm each, and noise on some parameters only, equal NumPy."""

import dataclasses

import numpy as np
import pytest

from simfl.models import build_model
from simfl.tape import executor
from simfl.tape.problem import Noise
from tests.helpers import Lab, batch_examples, make_problem, replace_data, softmax_gradient


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 4])
def test_each_gradient_is_clipped_to_its_own_norm(width):
    problem = make_problem(4, sampling="without_replacement", clipping_norm=1.0, own_clipping=True)
    norms = [0.01, 0.1, 0.5, 1.0, 3.0, np.inf]
    with Lab(problem, width=width) as lab:
        start = lab.training().initial
        model = lab.tape.constant(start)
        moved = [
            lab.tape.combine((1.0, lab.tape.gradient(model, k % 4, k, 8, 0.0, norm))) for k, norm in enumerate(norms)
        ]
        values = lab.tape.values(moved)
    for k, norm in enumerate(norms):
        rows = batch_examples(problem, k % 4, k, 8)
        expected = softmax_gradient(start, problem.data.train_x[rows], problem.data.train_y[rows], norm)
        np.testing.assert_allclose(values[k], expected, atol=2e-6)
        assert np.linalg.norm(values[k]) <= 8 * norm * (1 + 1e-5)


def test_a_batch_that_takes_several_operations_keeps_its_norm():
    problem = make_problem(2, sampling="poisson", clipping_norm=1.0, own_clipping=True)
    with Lab(problem) as lab:
        start = lab.training().initial
        model = lab.tape.constant(start)
        whole = lab.tape.values([lab.tape.combine((1.0, lab.tape.gradient(model, 0, 0, 50, 0.0, 0.05)))])[0]
    rows = batch_examples(problem, 0, 0, 50)
    expected = softmax_gradient(start, problem.data.train_x[rows], problem.data.train_y[rows], 0.05)
    np.testing.assert_allclose(whole, expected, atol=1e-5)


@pytest.mark.parametrize("clip", ["example", "update"])
def test_examples_whose_gradient_is_not_finite_are_released_as_zero_and_counted(clip):
    """The mechanism's contribution of such an example, or of the sum that it is in, is exactly zero."""
    plain = make_problem(4, sampling="without_replacement", clipping_norm=1.0, own_clipping=True, clip=clip)
    rows = [batch_examples(plain, k, k, 8) for k in range(4)]
    x = plain.data.train_x.copy()
    x[rows[1][:3]] *= np.float32(1e20)
    problem = replace_data(plain, train_x=x)
    with Lab(problem) as lab:
        start = lab.training().initial
        model = lab.tape.constant(start)
        moved = [lab.tape.combine((1.0, lab.tape.gradient(model, k, k, 8, 0.0, 0.05))) for k in range(4)]
        values = lab.tape.values(moved)
        assert lab.executor.zeroed() == (3 if clip == "example" else 1)
    if clip == "update":
        assert not values[1].any()
    else:
        expected = softmax_gradient(start, x[rows[1][3:]], problem.data.train_y[rows[1][3:]], 0.05)
        np.testing.assert_allclose(values[1], expected, atol=2e-6)
    assert (np.linalg.norm(values, axis=1) <= 8 * 0.05 * (1 + 1e-5)).all()


@pytest.mark.slow
@pytest.mark.parametrize(("clip", "own"), [("update", False), ("update", True), ("example", True)])
def test_idle_lanes_do_not_change_values(clip, own):
    """Bound and norm of an idle lane are 0; 0/0 in the spare row would reach each model that reads it with weight 0."""
    problem = make_problem(4, sampling="without_replacement", clipping_norm=0.05, own_clipping=own, clip=clip)
    curved = build_model("quadratic", input_shape=(64,), num_classes=0)  # clipped by the general rule
    for tried in (problem, dataclasses.replace(problem, model=curved)):
        with Lab(tried) as lab:
            model = lab.tape.constant(lab.training().initial)
            for draw in range(3):
                norm = (0.0, 0.05) if own else ()
                model = lab.tape.combine((1.0, model), (1.0, lab.tape.gradient(model, 0, draw, 8, *norm)))
                values = lab.tape.values([model])
        assert np.isfinite(values).all()


@pytest.mark.slow
def test_noise_can_be_limited_to_the_first_parameters():
    quiet = make_problem(2)
    noisy = dataclasses.replace(make_problem(2), noise=Noise("laplace_l2", first=100))
    totals = []
    for problem in (quiet, noisy):
        with Lab(problem) as lab:
            model = lab.tape.constant(lab.training().initial)
            totals.append(lab.tape.values([lab.tape.combine((1.0, lab.tape.gradient(model, 0, 0, 8, 2.0)))])[0])
    np.testing.assert_array_equal(totals[0][100:], totals[1][100:])
    noise = (totals[1] - totals[0])[:100]
    assert np.linalg.norm(noise) == pytest.approx(2.0 * 100, rel=0.5), "E||x|| = d for the law in 100 dimensions"


def test_a_tape_has_one_kind_of_gradients():
    with Lab(make_problem(2)) as lab:
        model = lab.tape.constant(lab.training().initial)
        with pytest.raises(ValueError, match="clipping_norm: expected None"):
            lab.tape.gradient(model, 0, 0, 8, 0.0, 1.0)


@pytest.mark.parametrize("most", [1, 20, 2**31 - 1])
def test_counts_of_several_windows_are_added_before_they_overflow(monkeypatch, most):
    monkeypatch.setattr(executor, "MOST_COUNTED", most)
    plain = make_problem(4, sampling="without_replacement", clipping_norm=1.0, own_clipping=True, clip="example")
    problem = replace_data(plain, train_x=np.full_like(plain.data.train_x, 1e30))
    with Lab(problem) as lab:
        model = lab.tape.constant(lab.training().initial)
        for draw in range(5):
            model = lab.tape.combine((1.0, model), (1.0, lab.tape.gradient(model, 0, draw, 8, 0.0, 0.05)))
            lab.tape.flush()
        assert lab.executor.zeroed() == 40
        lab.tape.values([lab.tape.combine((1.0, lab.tape.gradient(model, 1, 0, 8, 0.0, 0.05)))])
        assert lab.executor.zeroed() == 48
