import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.errors import ConditionError
from simfl.papers.proactive_dp.planning import _round_down, plan, planned_rounds, rehearse
from simfl.papers.proactive_dp.utility import accuracy_of, train_clipped
from simfl.privacy.accounting import Release, epsilon_of
from tests.papers.proactive_dp.test_utility import KEY, batches, made_up, task

MNIST = {"num_examples": 60_000, "epochs": 6}


def flat(sigma, **options):
    """Return a graph that allows exactly sigma."""
    return made_up([(1.0, 0.9)], sigmas=(1.5, sigma), **options)


def test_the_plan_for_the_papers_mnist_case_has_its_epsilon():
    # Table 10: sigma 12.1107 at epsilon 0.1521, delta 1/N; the fixed point of gamma allows 414 instead of 288.
    training_plan = plan(flat(12.1107), target_loss=0.1, **MNIST)
    assert training_plan.noise_multiplier == 12.11
    assert training_plan.bound == "grid_ends"
    assert training_plan.claimed_epsilon == pytest.approx(2 * math.log(60_000) / (12.11**2 - 2), rel=1e-12)
    assert training_plan.claimed_epsilon == pytest.approx(0.1521, abs=5e-5)
    assert (training_plan.batch_size, training_plan.rounds) == (414, 869)
    assert training_plan.gamma == pytest.approx(3.6676, abs=2e-4)
    assert training_plan.delta == 1 / 60_000
    assert training_plan.epochs == pytest.approx(6, rel=2e-3)
    release = Release(12.11, 414 / 60_000)
    assert training_plan.certified_epsilon == epsilon_of([(release, 869)], 1 / 60_000)
    assert training_plan.certified_epsilon == pytest.approx(
        epsilon_of([(release, 869)], 1 / 60_000, accountant="pld"), rel=1e-3
    )
    assert 0.2 < training_plan.certified_epsilon / training_plan.claimed_epsilon < 0.413


def test_the_clipping_norm_that_allows_most_noise_is_taken():
    curves = [(1.0, 0.8, 0.7), (1.0, 0.95, 0.7), (1.0, 1.0, 1.0)]
    training_plan = plan(made_up(curves, accuracies=(0.9, 0.88, 0.5)), target_loss=0.1, **MNIST)
    assert training_plan.clipping_norm == 2.0  # the third is too inaccurate from the start
    assert training_plan.reference == 0.9
    assert training_plan.expected_accuracy == pytest.approx(0.81, rel=1e-12)
    assert training_plan.noise_multiplier == pytest.approx(2 + (0.95 - 0.81 / 0.88) / 0.125, rel=1e-3)


def test_at_equal_noise_the_better_accuracy_is_taken():
    training_plan = plan(made_up([(1.0, 1.0, 0.95), (1.0, 1.0, 0.99)]), target_loss=0.1, **MNIST)
    assert (training_plan.clipping_norm, training_plan.noise_multiplier, training_plan.bound) == (2.0, 4.0, "grid_ends")


def test_a_loss_that_every_point_exceeds_is_an_error():
    with pytest.raises(
        ConditionError, match=r"accuracy of at least 0.81 \(the best without noise is 0.9\), found 0.72 at"
    ):
        plan(made_up([(0.8, 0.7, 0.6)]), target_loss=0.1, **MNIST)


def test_a_client_with_too_few_examples_is_an_error():
    with pytest.raises(ConditionError, match=r"Theorem B\.4"):
        plan(flat(12.0), target_loss=0.1, num_examples=300, epochs=20)


def test_rounds_are_those_of_the_theorem_or_nan_without_a_plan():
    few, many, none, impossible = planned_rounds([4.0, 8.0, 40.0, 1.4], num_examples=15_000, epochs=5, delta=1 / 15_000)
    assert few == plan(flat(4.0), target_loss=0.1, num_examples=15_000, epochs=5).rounds
    assert few < many < none
    assert math.isnan(impossible)  # sigma^2 <= 2


@given(st.floats(1e-3, 1e5))
def test_noise_is_rounded_down(value):
    rounded = _round_down(value)
    assert value * (1 - 1.001e-3) <= rounded <= value * (1 + 1e-8)
    assert float(f"{rounded:.4g}") == rounded == _round_down(rounded)


def test_a_rehearsal_brackets_the_accuracy():
    training_plan = plan(flat(4.0), target_loss=0.1, num_examples=15_000, epochs=5)
    rows, steps = batches(80), np.full(80, 2.0)
    rehearsed = rehearse(task(), rows, steps, training_plan, num_clients=4, draws=5, key=KEY)
    assert rehearsed.accuracy == pytest.approx(accuracy_of(task(), train_clipped(task(), rows, steps, 1.0)), rel=1e-6)
    assert rehearsed.all <= rehearsed.last <= rehearsed.accuracy + 0.01
