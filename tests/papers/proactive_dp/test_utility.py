import functools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from simfl.models import build_model
from simfl.papers.proactive_dp import utility
from simfl.papers.proactive_dp.utility import (
    READINGS,
    Task,
    UtilityGraph,
    accuracy_of,
    check_grid,
    draw_batches,
    frontier,
    noise_factors,
    perturbed_accuracies,
    train_clipped,
    utility_graph,
)
from simfl.streams import Streams
from tests.helpers import digits, softmax_gradient

KEY = Streams(0).key("test")
SIGMAS = (1.0, 2.0, 4.0)


@functools.cache
def task(l2=0.0, scale=1.0, intercept=True):
    (train_x, train_y), (test_x, test_y) = digits()
    model = build_model("softmax", input_shape=(64,), num_classes=10, l2=l2, intercept=intercept)
    return Task(model, scale * train_x, train_y, scale * test_x, test_y, np.zeros(model.size, np.float32)).on_device()


def batches(rounds, size=32):
    return draw_batches(400, size, rounds, np.random.default_rng(1))


def made_up(ratios, *, accuracies=None, sigmas=SIGMAS, unclipped=0.9):
    ratios = tuple(tuple(curve) for curve in ratios)
    return UtilityGraph(
        clipping_norms=tuple(float(i + 1) for i in range(len(ratios))),
        noise_multipliers=sigmas,
        noise_factors=(1.0,) * len(sigmas),
        accuracies=accuracies or (0.9,) * len(ratios),
        unclipped_accuracy=unclipped,
        ratios=ratios,
        lows=ratios,
        highs=ratios,
        draws=1,
        gradients=100,
    )


# --- training ---------------------------------------------------------------------------------------------------------


def test_every_pass_uses_every_example_once():
    drawn = draw_batches(12, 5, 7, np.random.default_rng(0))
    assert drawn.shape == (7, 5)
    flat = drawn.ravel()
    for first in (0, 12):
        assert sorted(flat[first : first + 12].tolist()) == list(range(12))
    with pytest.raises(ValueError, match="examples: expected an integer >= 1, found 0"):
        draw_batches(0, 5, 7, np.random.default_rng(0))


@pytest.mark.parametrize("clipping_norm", [0.3, math.inf])
def test_training_equals_a_numpy_loop(clipping_norm):
    problem, rows = task(l2=0.01), batches(4, size=8)
    steps = 0.5 / (1 + 0.1 * 8 * np.arange(4))
    params = np.zeros(650)
    x, y = np.asarray(problem.train_x), np.asarray(problem.train_y)
    for batch, eta in zip(rows, steps, strict=True):
        total = softmax_gradient(params, x[batch], y[batch], clipping_norm)
        params = params - eta * (total / 8 + 0.01 * params)
    np.testing.assert_allclose(train_clipped(problem, rows, steps, clipping_norm), params, rtol=2e-5, atol=2e-6)


def test_training_rejects_invalid_arguments():
    with pytest.raises(ValueError, match="clipping_norm: expected a number > 0, found 0"):
        train_clipped(task(), batches(2), np.ones(2), 0.0)
    with pytest.raises(ValueError, match="one per round, 2, found 3"):
        train_clipped(task(), batches(2), np.ones(3), 1.0)


# --- accuracy with noise ----------------------------------------------------------------------------------------------


def test_the_mean_accuracy_equals_its_closed_form():
    # One feature, one test example of either class: sign(w + n) decides, so the accuracy is Phi(w / std).
    model = build_model("logistic", input_shape=(1,), num_classes=2, intercept=False)
    x, y = np.array([[1.0], [-1.0]], np.float32), np.array([1, 0], np.int32)
    one = Task(model, x, y, x, y, np.zeros(1, np.float32)).on_device()
    stds = np.array([0.0, 0.5, 1.0, 3.0])
    accuracies = perturbed_accuracies(one, np.ones(1, np.float32), stds, 4000, KEY).mean(axis=1)
    expected = np.array([1.0, *ndtr(1.0 / stds[1:])])
    np.testing.assert_allclose(accuracies, expected, atol=4 * 0.5 / math.sqrt(4000))


def test_draws_do_not_depend_on_how_many_are_evaluated_in_parallel(monkeypatch):
    params = train_clipped(task(), batches(20), np.full(20, 0.5), 1.0)
    stds, reports = np.array([0.0, 0.02, math.nan, 0.2]), []
    whole = perturbed_accuracies(task(), params, stds, 7, KEY)
    monkeypatch.setattr(utility, "_MEMORY", 2 * (650 + 22 * 100))
    np.testing.assert_array_equal(perturbed_accuracies(task(), params, stds, 7, KEY, reports.append), whole)
    assert reports == sorted(reports)
    assert reports[-1] == 1.0
    np.testing.assert_allclose(whole[0], accuracy_of(task(), params), rtol=1e-6)
    assert np.isnan(whole[2]).all()
    assert whole[3].mean() < whole[1].mean() < whole[0, 0]
    assert whole[3].std() > 0.0


def test_convolutions_are_evaluated_one_at_a_time():
    model = build_model("lenet5", input_shape=(16, 16), num_classes=10)
    x = np.zeros((3, 16, 16), np.float32)
    small = Task(model, x, np.zeros(3, np.int32), x, np.zeros(3, np.int32), np.zeros(model.size, np.float32))
    values = perturbed_accuracies(small.on_device(), small.initial, np.array([0.0]), 3, KEY)
    np.testing.assert_array_equal(values, 1.0)  # of equal logits the first class is taken


def test_a_regression_has_no_accuracy():
    model = build_model("linear", input_shape=(2,), num_classes=0)
    x, y = np.zeros((3, 2), np.float32), np.zeros(3, np.float32)
    with pytest.raises(ValueError, match="model linear has no accuracy"):
        accuracy_of(Task(model, x, y, x, y, np.zeros(3, np.float32)).on_device(), np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="draws: expected an integer >= 1, found 0"):
        perturbed_accuracies(task(), task().initial, np.ones(1), 0, KEY)


# --- the factor a -----------------------------------------------------------------------------------------------------


def test_factors_equal_the_noise_of_simulated_rounds_in_the_mean_model():
    generator, n, size, rounds, sigma = np.random.default_rng(2), 4, 20, 50, 3.0
    steps = 0.5 / (1 + 0.01 * size * np.arange(rounds))
    model = np.zeros(20_000)
    for eta in steps:
        model += eta / size * sigma * generator.standard_normal((n, 20_000)).mean(axis=0)
    options = {"steps": steps, "batch_size": size, "num_clients": n, "rounds": [rounds]}
    assert noise_factors("all", **options)[0] * sigma == pytest.approx(model.std(), rel=0.02)
    assert noise_factors("last", **options)[0] == pytest.approx(steps[-1] / size / 2, rel=1e-14)
    assert noise_factors("figure", **options) == (1.0,)


def test_more_rounds_of_smaller_batches_leave_more_noise():
    options = {"steps": np.full(10, 0.3), "batch_size": 10, "num_clients": 9}
    factors = noise_factors("all", rounds=[1, 4, math.nan], **options)
    np.testing.assert_allclose(factors, [0.01, 0.02, math.nan], rtol=1e-14)
    with pytest.raises(ValueError, match="reading: expected one of all, last, figure, found 'first'"):
        noise_factors("first", rounds=[1], **options)


# --- the graph --------------------------------------------------------------------------------------------------------


@functools.cache
def graph(reading="all", scale=1.0):
    # Features and clipping norms r times larger, steps r^2 times smaller: the same models, divided by r.
    rounds, steps = 60, np.full(60, 1.0 / scale**2)
    factors = noise_factors(reading, steps=steps, batch_size=32, num_clients=1, rounds=[rounds] * 3)
    return utility_graph(
        task(scale=scale, intercept=False),
        batches(rounds),
        steps,
        clipping_norms=(0.5 * scale, 0.1 * scale),
        noise_multipliers=SIGMAS,
        noise_factors=factors,
        draws=12,
        key=KEY,
    )


def test_a_graph_has_the_accuracies_of_models_with_noise():
    utility = graph()
    assert utility.clipping_norms == (0.1, 0.5)
    assert utility.gradients == 60 * 32
    assert utility.reference == max(*utility.accuracies, utility.unclipped_accuracy) > 0.8
    rows = utility.rows()
    assert [row[:2] for row in rows] == [(norm, sigma) for norm in (0.1, 0.5) for sigma in SIGMAS]
    for row in rows:
        assert row.ratio_low <= row.ratio <= row.ratio_high
        assert row.accuracy == pytest.approx(row.ratio * row.accuracy_without_noise)
    same = task(intercept=False)
    params = train_clipped(same, batches(60), np.full(60, 1.0), 0.5)
    last = perturbed_accuracies(same, params, np.array([0.5 * 4.0 * rows[-1].noise_factor]), 12, KEY)
    assert rows[-1].accuracy == pytest.approx(last.mean(), rel=1e-6)
    assert rows[-1].accuracy_without_noise == pytest.approx(accuracy_of(same, params), rel=1e-6)
    assert rows[-1].ratio < 0.6 < 0.8 < rows[3].ratio


def test_only_the_reading_of_the_papers_figures_depends_on_the_unit_of_features():
    for reading in READINGS:
        same = np.allclose(graph(reading, 4.0).ratios, graph(reading).ratios, atol=0.02)
        assert same == (reading != "figure")
    sixteenth = [sigma / 16 for sigma in SIGMAS]
    fine = utility_graph(
        task(scale=4.0, intercept=False),
        batches(60),
        np.full(60, 1.0 / 16),
        clipping_norms=[2.0],
        noise_multipliers=sixteenth,
        draws=12,
        key=KEY,
    )
    np.testing.assert_allclose(fine.ratios[0], graph("figure").ratios[1], atol=0.02)


def test_a_sigma_without_a_plan_is_left_out():
    utility = utility_graph(
        task(), batches(5), np.ones(5), clipping_norms=[1.0], noise_multipliers=[1.0, 2.0],
        noise_factors=[0.1, math.nan], draws=2, key=KEY,
    )  # fmt: skip
    assert np.isfinite(utility.ratios[0][0])
    assert math.isnan(utility.ratios[0][1])
    assert [point.noise_multiplier for point in frontier(utility, 0.99)] == [1.0]


@pytest.mark.parametrize("values", [[], [1.0, 1.0], [0.0], [math.nan], [-1.0], [math.inf]])
def test_a_grid_holds_different_positive_numbers(values):
    with pytest.raises(ValueError, match=r"sigmas: expected one or more different numbers > 0"):
        check_grid("sigmas", values)


def test_noise_multipliers_must_increase():
    with pytest.raises(ValueError, match="noise multipliers: expected an increasing order"):
        utility_graph(task(), batches(1), np.ones(1), clipping_norms=[1], noise_multipliers=[2, 1], key=KEY)


# --- the frontier -----------------------------------------------------------------------------------------------------


def test_the_frontier_is_interpolated_and_marks_the_ends_of_the_grid():
    points = frontier(made_up([(1.0, 0.8, 0.7), (1.0, 0.95, 0.9), (0.89, 0.8, 0.7), (0.95, 0.85, 0.95)]), 0.1)
    assert [point.bound for point in points] == ["interpolated", "grid_ends", "below_grid", "interpolated"]
    np.testing.assert_allclose([point.noise_multiplier for point in points], [1.5, 4.0, 1.0, 1.5], rtol=1e-12)
    np.testing.assert_allclose([point.ratio for point in points], [0.9, 0.9, 0.89, 0.9], rtol=1e-12)
    np.testing.assert_allclose(points[0].accuracy, 0.81, rtol=1e-12)


def test_a_sigma_at_the_end_of_the_grid_is_shown_as_a_bound():
    points = frontier(made_up([(1.0, 0.8, 0.7), (1.0, 0.95, 0.9), (0.89, 0.8, 0.7)]), 0.1)
    assert [point.show() for point in points] == ["1.5", "≥ 4", "< 1"]


def test_a_loss_against_the_reference_includes_the_cost_of_clipping():
    curves = [(1.0, 0.8, 0.7)] * 3
    utility = made_up(curves, accuracies=(0.9, 0.85, 0.7), unclipped=0.88)
    points = frontier(utility, 0.1, against="reference")
    assert [point.bound for point in points] == ["interpolated", "interpolated", "below_grid"]
    np.testing.assert_allclose([point.accuracy for point in points[:2]], 0.81, rtol=1e-12)
    np.testing.assert_allclose(points[1].noise_multiplier, 1.0 + (1.0 - 0.81 / 0.85) / 0.2, rtol=1e-12)


def test_the_frontier_is_empty_without_a_plan():
    assert frontier(made_up([(math.nan,) * 3]), 0.1) == ()
    with pytest.raises(ValueError, match=r"target_loss: expected a number in \(0, 1\), found 1"):
        frontier(made_up([(1.0, 0.8, 0.7)]), 1.0)


@given(
    drops=st.lists(st.floats(0.0, 0.4), min_size=3, max_size=3),
    losses=st.tuples(st.floats(0.01, 0.98), st.floats(0.01, 0.98)),
)
def test_more_loss_allows_more_noise(drops, losses):
    utility = made_up([1.0 - np.cumsum(drops)])
    less, more = (frontier(utility, loss)[0] for loss in sorted(losses))
    assert more.noise_multiplier >= less.noise_multiplier - 1e-12
    for point, loss in ((less, min(losses)), (more, max(losses))):
        if point.bound != "below_grid":
            assert np.interp(point.noise_multiplier, SIGMAS, utility.ratios[0]) >= 1.0 - loss - 1e-9
