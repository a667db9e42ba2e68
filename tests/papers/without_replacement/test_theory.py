import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.accounts.plans import classic_limit
from simfl.errors import ConditionError
from simfl.papers.without_replacement.theory import (
    SAMPLING_CONSTANT,
    LossConstants,
    algorithm1_noise,
    dp_sgd_noise,
    logistic_constants,
    theorem3,
    theorem4,
    theorem6,
)
from simfl.privacy.accounting import Release, epsilon_of

QUICK = settings(max_examples=50, deadline=None)
DELTA = 1 / 60000**2
MNIST = {"examples": 60000, "batch_size": 50, "steps": 1200}
both = pytest.mark.parametrize("calibration", ["classic", "analytic"])


# -- losses ----------------------------------------------------------------------------------


def test_the_logistic_loss_has_its_constants():
    assert logistic_constants() == LossConstants(1.0, 1.0, 0.0)
    assert logistic_constants(0.1, 5.0) == LossConstants(1.5, 1.1, 0.1)
    assert logistic_constants(1e-4) == LossConstants(2.0, 1.0001, 1e-4), "the paper's R = 1/lambda makes L = 2"


# -- Algorithm 1 and the baseline ------------------------------------------------------------


def test_algorithm_1_has_the_numbers_of_the_theory_page():
    classic = algorithm1_noise(1.0, DELTA, batch_size=50)
    assert classic.noise_std == pytest.approx(0.266697, abs=5e-7)
    assert classic.scaled(0.1) == pytest.approx(0.0266697, abs=5e-8)
    assert classic.exact_epsilon == pytest.approx(0.84992, abs=5e-6)
    assert (classic.proven, classic.claim_holds) == (False, True), "its theorem ends below 1, the noise is enough"
    analytic = algorithm1_noise(1.0, DELTA, batch_size=50, calibration="analytic")
    assert analytic.noise_std == pytest.approx(0.228202, abs=5e-7)
    assert analytic.exact_epsilon == pytest.approx(1.0, rel=1e-9)
    assert (analytic.proven, analytic.claim_holds) == (True, True)
    strongly = algorithm1_noise(1.0, DELTA, batch_size=50, lipschitz=logistic_constants(1e-4).lipschitz)
    assert strongly.noise_std == pytest.approx(2 * classic.noise_std)


def test_the_baseline_has_the_number_of_the_theory_page():
    noise = dp_sgd_noise(1.0, DELTA, batch_size=50)
    assert noise.noise_std == pytest.approx(1.380921, abs=5e-7)
    assert (noise.step_epsilon, noise.step_delta) == (0.2, DELTA / 5)
    assert noise.exact_epsilon < 0.5, "five Gaussians amount to much less than the sum of their epsilons"
    assert dp_sgd_noise(1.0, DELTA, batch_size=50, visits=1) == algorithm1_noise(1.0, DELTA, batch_size=50)


@both
def test_the_multiplier_means_the_same_to_the_accountant(calibration):
    one = algorithm1_noise(2.0, 1e-5, batch_size=20, lipschitz=3.0, calibration=calibration)
    release = Release(one.noise_multiplier, 20 / 1000, "one_pass")
    assert epsilon_of([(release, 50)], 1e-5, neighbors="replace_one") == pytest.approx(one.exact_epsilon, rel=1e-6)
    five = dp_sgd_noise(2.0, 1e-5, batch_size=20, calibration=calibration)
    visits = [(Release(five.noise_multiplier, 1.0, "none"), 5)]
    assert epsilon_of(visits, 1e-5, neighbors="replace_one") == pytest.approx(five.exact_epsilon, rel=1e-6)


@pytest.mark.parametrize("delta", [1e-3, 1e-5, DELTA])
def test_the_classical_claim_ends_at_its_limit(delta):
    limit = classic_limit(delta)
    assert algorithm1_noise(0.99 * limit, delta, batch_size=50).claim_holds
    assert not algorithm1_noise(1.01 * limit, delta, batch_size=50).claim_holds
    assert algorithm1_noise(1.01 * limit, delta, batch_size=50, calibration="analytic").claim_holds


def test_a_joint_release_of_several_models_costs_more_than_one():
    noise = algorithm1_noise(1.0, DELTA, batch_size=50)
    assert noise.joint(models=10) == pytest.approx(2.852, abs=5e-4)
    assert noise.joint() == pytest.approx(noise.exact_epsilon)
    three = dp_sgd_noise(1.0, DELTA, batch_size=50, visits=3)
    assert three.joint(models=2) > three.joint() == pytest.approx(three.exact_epsilon)


def test_records_at_several_nodes_cost_as_many_copies():
    # Section C: each of 20 nodes draws all 60000 examples; n is 1.2 million, and delta = 1/n².
    noise = algorithm1_noise(1.0, 1 / (20 * 60000) ** 2, batch_size=50)
    assert noise.joint(copies=20) == pytest.approx(4.18, abs=5e-3)
    assert noise.joint(models=5, copies=4) == pytest.approx(noise.joint(copies=20))


# -- Algorithm 2 -----------------------------------------------------------------------------


# -- convergence -----------------------------------------------------------------------------


def test_theorem_3_has_the_numbers_of_the_theory_page():
    std = algorithm1_noise(1.0, DELTA, batch_size=50).noise_std
    arguments = {**MNIST, "step_size": 0.1, "noise_std": std}
    assert theorem3(**arguments, dimension=50, as_printed=True).bound == pytest.approx(0.212617, abs=5e-7)
    theorem = theorem3(**arguments, dimension=50)
    assert theorem.bound == pytest.approx(0.386879, abs=5e-7)
    assert theorem.noise == pytest.approx(50 * 4 * math.log(1.25 / DELTA) * 0.1 / 50**2)
    assert theorem.bound == pytest.approx(theorem.start + theorem.gradients + theorem.noise + theorem.sampling)


def test_theorem_3_without_noise_by_hand():
    theorem = theorem3(
        examples=100,
        batch_size=4,
        steps=16,
        step_size=0.5,
        noise_std=0.0,
        radius=2.0,
        gradient_bound=3.0,
        lipschitz=5.0,
    )
    assert (theorem.start, theorem.gradients, theorem.noise) == (4 / 16, 9 / 4, 0.0)
    sampling = 2 * SAMPLING_CONSTANT * 2 * 5 / 3 * (8 / 100 + 2 / (10 + 6))
    assert theorem.sampling == pytest.approx(sampling)
    assert pytest.approx(2 + 12 * math.sqrt(2)) == SAMPLING_CONSTANT


def test_theorem_4_by_hand():
    theorem = theorem4(
        examples=100, batch_size=5, steps=20, noise_std=0.3, strong_convexity=0.5, dimension=7, gradient_bound=2.0
    )
    log = math.log(20) + 1
    assert theorem.gradients == pytest.approx(2 * 4 * log / (0.5 * 20))
    assert theorem.noise == pytest.approx(7 * 0.09 * log / (0.5 * 20))
    assert theorem.sampling == pytest.approx(
        2 * SAMPLING_CONSTANT**2 * 4 / (0.5 * 20) * (0.3 + 0.04 + 0.22 * math.log(100 / 5))
    )
    noise = algorithm1_noise(1.0, 1e-5, batch_size=5, lipschitz=2.0)
    printed = theorem4(
        examples=100,
        batch_size=5,
        steps=20,
        noise_std=noise.noise_std,
        strong_convexity=0.5,
        dimension=7,
        as_printed=True,
    )
    assert printed.noise == pytest.approx(8 * math.log(1.25e5) * 4 * log / (25 * 0.5 * 20))


def test_theorem_6_is_theorem_3_with_fewer_noisy_steps():
    arguments = {**MNIST, "step_size": 0.1, "noise_std": 0.27, "dimension": 50}
    every, third = (theorem6(**arguments, nodes=10, global_steps=steps) for steps in (1200, 400))
    one = theorem3(**arguments)
    assert every.noise == pytest.approx(one.noise)
    assert third.noise == pytest.approx(one.noise / 3)
    assert every.sampling == one.sampling
    assert every.start == pytest.approx(11 / 2 * one.start)
    assert every.gradients == pytest.approx(2 * one.gradients)
    printed = theorem6(**arguments, nodes=10, global_steps=400, as_printed=True)
    assert printed.noise == pytest.approx(third.noise * 1200 / 50), "without d and without 1/T"


@QUICK
@given(steps=st.integers(1, 1200), noise=st.floats(0.0, 5.0), more=st.floats(1.01, 4.0))
def test_more_noise_or_parameters_never_help(steps, noise, more):
    arguments = {"examples": 60000, "batch_size": 50, "steps": steps}
    for bound in (
        lambda **changed: theorem3(**arguments, step_size=0.1, **changed),
        lambda **changed: theorem4(**arguments, strong_convexity=0.1, **changed),
        lambda **changed: theorem6(**arguments, step_size=0.1, nodes=5, global_steps=steps / 2, **changed),
    ):
        base = bound(noise_std=noise, dimension=10).bound
        assert bound(noise_std=noise * more, dimension=10).bound >= base
        assert bound(noise_std=noise, dimension=20).bound >= base
        assert bound(noise_std=0.0, dimension=10).noise == 0.0


def test_bounds_are_for_one_pass():
    message = r"^Theorem 3: condition of one pass: 1201 steps of 50 examples need 60050, found 60000; take at most 1200"
    with pytest.raises(ConditionError, match=message):
        theorem3(**{**MNIST, "steps": 1201}, step_size=0.1, noise_std=0.0)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: logistic_constants(-0.1), r"^l2: expected a finite number >= 0, found -0\.1$"),
    (lambda: logistic_constants(0.1, 0.0), r"^radius: "),
    (lambda: algorithm1_noise(0.0, 1e-5, batch_size=5), r"^epsilon: expected a finite number > 0, found 0$"),
    (lambda: algorithm1_noise(1.0, 2.0, batch_size=5), r"^delta: "),
    (lambda: algorithm1_noise(1.0, 1e-5, batch_size=0), r"^batch_size: "),
    (lambda: algorithm1_noise(1.0, 1e-5, batch_size=5, lipschitz=0.0), r"^lipschitz: "),
    (lambda: algorithm1_noise(1.0, 1e-5, batch_size=5, calibration="no"), r"^calibration: expected classic or"),
    (lambda: algorithm1_noise(1.0, 1e-5, batch_size=5).scaled(0.0), r"^step_size: "),
    (lambda: algorithm1_noise(1.0, 1e-5, batch_size=5).joint(models=0),
     r"^models: expected an integer >= 1, found 0"),
    (lambda: dp_sgd_noise(1.0, 1e-5, batch_size=5, visits=0), r"^visits: "),
    (lambda: theorem3(**MNIST, step_size=0.0, noise_std=0.0), r"^step_size: "),
    (lambda: theorem3(**MNIST, step_size=0.1, noise_std=-1.0), r"^noise_std: "),
    (lambda: theorem3(**MNIST, step_size=0.1, noise_std=0.0, dimension=0), r"^dimension: "),
    (lambda: theorem4(**MNIST, noise_std=0.0, strong_convexity=0.0), r"^strong_convexity: .*; use Theorem 3$"),
    (lambda: theorem6(**MNIST, step_size=0.1, noise_std=0.0, nodes=0, global_steps=1),
     r"^nodes: expected an integer >= 1"),
    (lambda: theorem6(**MNIST, step_size=0.1, noise_std=0.0, nodes=1, global_steps=1201),
     r"^global_steps: expected a number from 0 to 1200"),
])  # fmt: skip
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
