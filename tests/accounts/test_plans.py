import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simfl.accounts.plans import (
    assumptions_of_releases,
    classic_limit,
    classic_std,
    gdp_central_limit_epsilon,
    gdp_central_limit_mu,
    noise_multiplier_for,
)
from simfl.errors import ConditionError, ScenarioError
from simfl.privacy.accounting import Release, epsilon_of
from simfl.privacy.gaussian import analytic_std, gaussian_delta, gaussian_epsilon

QUICK = settings(max_examples=60, deadline=None)
MNIST_DELTA = 1 / 60000**2  # of without_replacement
deltas = st.floats(-60.0, -0.5).map(math.exp)


def test_the_classical_formula_gives_too_little_noise_at_a_large_epsilon():
    assert classic_std(1.0, MNIST_DELTA, beyond=True) == pytest.approx(6.667435, abs=5e-7)
    assert classic_std(10.0, 1e-5, beyond=True) == pytest.approx(0.48448, abs=5e-6)
    assert classic_std(10.0, 1e-5, beyond=True) < analytic_std(10.0, 1e-5)


def test_classical_noise_has_the_exact_delta_of_its_multiplier():
    mu = 1 / classic_std(1.0, MNIST_DELTA, beyond=True)
    assert gaussian_epsilon(MNIST_DELTA, mu) == pytest.approx(0.84992, abs=5e-6)
    assert gaussian_delta(1.0, mu) == pytest.approx(4.6e-13, abs=5e-15)


@pytest.mark.parametrize(("delta", "limit"), [(1e-3, 7.463), (1e-5, 8.420), (1e-6, 8.782), (MNIST_DELTA, 9.752)])
def test_classical_noise_suffices_exactly_up_to_its_limit(delta, limit):
    assert classic_limit(delta) == pytest.approx(limit, abs=5e-4)
    for epsilon, enough in ((0.999 * limit, True), (1.001 * limit, False)):
        assert (classic_std(epsilon, delta, beyond=True) >= analytic_std(epsilon, delta)) is enough


@QUICK
@given(epsilon=st.floats(1e-3, 0.999), delta=deltas)
def test_classical_noise_exceeds_exact_noise_where_its_theorem_holds(epsilon, delta):
    assume(delta < 0.5)
    assert classic_std(epsilon, delta) >= analytic_std(epsilon, delta)


def test_classical_noise_is_refused_at_epsilon_one():
    with pytest.raises(
        ConditionError, match=r"condition epsilon < 1 of its theorem: epsilon is 1; use analytic"
    ) as refused:
        classic_std(1.0, 1e-5)
    assert isinstance(refused.value, ScenarioError)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("z", "rate", "steps", "delta", "uniform"), [
    (19.3038, 0.0026, 1923, 1e-4, 0.0105), (12.1107, 0.0048, 1250, 1 / 60000, 0.0389),
    (6.5723, 0.00812, 862, 2e-5, 0.1132),
])  # fmt: skip
def test_central_limit_has_the_numbers_of_the_theory_page(z, rate, steps, delta, uniform):
    epsilon = gdp_central_limit_epsilon(delta, z, sampling_rate=rate, steps=steps, sampling="uniform")
    assert epsilon == pytest.approx(uniform, abs=5e-5)
    # 2 to 6 per cent above the exact Poisson epsilon; its Poisson form is below it, so it is not a bound.
    assert gdp_central_limit_epsilon(delta, z, sampling_rate=rate, steps=steps) < uniform


def test_central_limit_without_sampling_is_near_composition():
    z, steps = 40.0, 9
    assert gdp_central_limit_mu(z, 1.0, steps) == pytest.approx(math.sqrt(steps) / z, rel=1e-3)
    for sampling in ("poisson", "uniform"):  # with much noise both approach q sqrt(T) / z
        assert gdp_central_limit_mu(1e5, 0.5, 4, sampling) == pytest.approx(0.5 * 2 / 1e5, rel=1e-4)
    assert gdp_central_limit_mu(0.01, 0.5, 1) == math.inf
    assert gdp_central_limit_mu(1.0, 0.0, 10) == 0.0


@pytest.mark.slow(but=["8.0-3-1.0-none-add_or_remove-renyi"])
@pytest.mark.parametrize("accountant", ["renyi", "tightest"])
@pytest.mark.parametrize(("epsilon", "steps", "rate", "sampling", "neighbors"), [
    (2.0, 1000, 0.01, "poisson", "add_or_remove"),
    (0.3, 50, 0.2, "without_replacement", "replace_one"),
    (8.0, 3, 1.0, "none", "add_or_remove"),
])  # fmt: skip
def test_calibrated_noise_is_the_least_that_suffices(accountant, epsilon, steps, rate, sampling, neighbors):
    z = noise_multiplier_for(
        epsilon, 1e-5, steps=steps, sampling_rate=rate, sampling=sampling, neighbors=neighbors, accountant=accountant
    )

    def spent(z):
        return epsilon_of([(Release(z, rate, sampling), steps)], 1e-5, neighbors=neighbors, accountant=accountant)

    assert epsilon * (1 - 1e-3) < spent(z) <= epsilon
    assert spent(0.999 * z) > epsilon


def test_the_tightest_accountant_needs_the_least_noise():
    multipliers = [
        noise_multiplier_for(1.0, 1e-5, steps=500, sampling_rate=0.02, accountant=a) for a in ("tightest", "renyi")
    ]
    assert multipliers[0] < 0.99 * multipliers[1]


@pytest.mark.parametrize("rate", [0.3, 0.9, 0.9999])
def test_the_tightest_noise_is_at_most_that_of_every_accountant(rate):
    """Above an epsilon of 300 accountants agree, and two searches may end apart by their tolerance."""
    tightest, *others = (
        noise_multiplier_for(1000.0, 1e-5, steps=100, sampling_rate=rate, accountant=a)
        for a in ("tightest", "renyi", "pld")
    )
    assert tightest <= min(others)


@pytest.mark.parametrize(
    ("options", "message"), [({"epsilon": 0.0}, "epsilon: expected"), ({"steps": 0}, "steps: expected")]
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        noise_multiplier_for(**{"epsilon": 1.0, "delta": 1e-5, "steps": 1, **options})


def test_a_single_release_has_the_noise_of_the_closed_form():
    multiplier = noise_multiplier_for(1.0, 1e-5, sampling_rate=1.0, steps=1, sampling="none", neighbors="add_or_remove")
    assert analytic_std(1.0, 1e-5, 1.0) <= multiplier * (1 + 1e-9)
    assert multiplier == pytest.approx(analytic_std(1.0, 1e-5, 1.0), rel=2e-3)


def test_a_number_of_releases_assumes_a_draw_only_where_it_amplifies():
    assert assumptions_of_releases("add_or_remove", "poisson", 0.1)["draws"].startswith("drawn anew")
    assert assumptions_of_releases("replace_one", "poisson", 1.0)["draws"] == "none is secret"


@pytest.mark.parametrize(("call", "message"), [
    (lambda: classic_std(0.0, 1e-5), r"^epsilon: expected a finite number > 0, found 0$"),
    (lambda: classic_limit(0.7), r"^delta: expected a number between 0 and 0\.5"),
    (lambda: gdp_central_limit_mu(0.0, 0.1, 1), r"^noise_multiplier: "),
    (lambda: gdp_central_limit_mu(1.0, 1.1, 1), r"^sampling_rate: "),
    (lambda: gdp_central_limit_mu(1.0, 0.1, -1), r"^steps: "),
    (lambda: gdp_central_limit_mu(1.0, 0.1, 1, "all"), r"^sampling: expected poisson or uniform, found 'all'$"),
])  # fmt: skip
def test_arguments_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
