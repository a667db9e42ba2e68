import math

import mpmath
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simfl.privacy.gaussian import analytic_std, gaussian_delta, gaussian_epsilon

QUICK = settings(max_examples=60, deadline=None)
MNIST_DELTA = 1 / 60000**2  # of without_replacement

epsilons = st.floats(1e-4, 60.0)
mus = st.floats(1e-6, 20.0)
deltas = st.floats(-60.0, -0.5).map(math.exp)


def delta_in_many_digits(epsilon, mu):
    """The definition, in 400 digits, so that cancellation does not matter."""
    with mpmath.workdps(400):
        epsilon, mu = mpmath.mpf(epsilon), mpmath.mpf(mu)
        phi = lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2  # noqa: E731
        return phi(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * phi(-mu / 2 - epsilon / mu)


@QUICK
@given(epsilon=st.one_of(st.just(0.0), epsilons), mu=mus)
def test_delta_is_exact_to_nine_digits_even_where_its_terms_cancel(epsilon, mu):
    exact = delta_in_many_digits(epsilon, mu)
    assume(exact > 1e-300)
    assert gaussian_delta(epsilon, mu) == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "mu"),
    [(1e-9, 1e-8), (0.0, 1e-12), (1e-3, 1e-4), (0.1, 0.01), (3.0, 0.999), (3.0, 1.001), (600.0, 30.0)],
)
def test_delta_is_exact_at_the_edges(epsilon, mu):
    assert gaussian_delta(epsilon, mu) == pytest.approx(float(delta_in_many_digits(epsilon, mu)), rel=1e-9)


@QUICK
@given(delta=deltas, mu=mus)
def test_epsilon_inverts_delta(delta, mu):
    epsilon = gaussian_epsilon(delta, mu)
    if epsilon == 0.0:
        assert gaussian_delta(0.0, mu) <= delta
    else:
        assert gaussian_delta(epsilon, mu) == pytest.approx(delta, rel=1e-9)


@QUICK
@given(epsilon=epsilons, delta=deltas, sensitivity=st.floats(1e-3, 1e3))
def test_analytic_noise_exactly_suffices(epsilon, delta, sensitivity):
    std = analytic_std(epsilon, delta, sensitivity)
    assert gaussian_epsilon(delta, sensitivity / std) == pytest.approx(epsilon, rel=1e-9)
    assert std == pytest.approx(sensitivity * analytic_std(epsilon, delta), rel=1e-12)


@QUICK
@given(epsilon=epsilons, delta=deltas, mu=mus, more=st.floats(1.01, 5.0))
def test_delta_epsilon_and_noise_are_monotone(epsilon, delta, mu, more):
    assert gaussian_delta(epsilon, mu * more) >= gaussian_delta(epsilon, mu)
    assert gaussian_delta(epsilon * more, mu) <= gaussian_delta(epsilon, mu)
    assert gaussian_epsilon(delta, mu * more) >= gaussian_epsilon(delta, mu)
    assert analytic_std(epsilon * more, delta) < analytic_std(epsilon, delta)


def test_delta_at_epsilon_zero_is_the_total_variation():
    assert gaussian_delta(0.0, 0.3) == pytest.approx(math.erf(0.3 / math.sqrt(8)), rel=1e-12)
    assert analytic_std(0.0, math.erf(0.3 / math.sqrt(8))) == pytest.approx(1 / 0.3, rel=1e-9)


def test_the_closed_forms_have_their_limits():
    assert gaussian_epsilon(1e-5, 0.0) == gaussian_delta(1.0, 0.0) == 0.0
    assert gaussian_epsilon(1e-5, math.inf) == math.inf
    assert gaussian_delta(1.0, math.inf) == 1.0
    assert gaussian_delta(math.inf, 1.0) == gaussian_delta(math.inf, math.inf) == 0.0
    assert gaussian_delta(1e300, 1e-9) == gaussian_delta(1e300, 1e100) == gaussian_delta(39.0, 1.0) == 0.0
    assert 0.0 < gaussian_delta(38.5, 1.0) < 1e-300
    assert gaussian_delta(1e-3, 1e3) == pytest.approx(1.0)
    assert analytic_std(1.0, 1e-5, 0.0) == 0.0


def test_closed_forms_have_the_numbers_of_the_theory_page():
    assert analytic_std(1.0, MNIST_DELTA) == pytest.approx(5.705038, abs=5e-7)
    assert analytic_std(10.0, 1e-5) == pytest.approx(0.49989, abs=5e-6)


def test_composition_equals_numerical_composition():
    one = privacy_loss_distribution.from_gaussian_mechanism(3.0, value_discretization_interval=1e-4)
    several = one.self_compose(7).get_epsilon_for_delta(1e-6)
    assert gaussian_epsilon(1e-6, math.sqrt(7) / 3.0) == pytest.approx(several, rel=1e-3)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: gaussian_delta(-1.0, 1.0), r"^epsilon: expected a number >= 0, found -1$"),
    (lambda: gaussian_delta(1.0, -1.0), r"^mu: expected"),
    (lambda: gaussian_epsilon(0.0, 1.0), r"^delta: expected a number in \(0, 1\), found 0$"),
    (lambda: gaussian_epsilon(math.nan, 1.0), r"^delta: "),
    (lambda: analytic_std(1.0, 1.0), r"^delta: "),
    (lambda: analytic_std(1.0, 1e-5, -1.0), r"^sensitivity: "),
])  # fmt: skip
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
