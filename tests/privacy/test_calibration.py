import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.errors import ConditionError
from simfl.privacy.accounting import Release, epsilon_of
from simfl.privacy.calibration import least_noise, noise_multiplier_for, releases_within
from simfl.privacy.gaussian import analytic_std


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


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    budget=st.floats(0.0, 1e4),
    slope=st.floats(1e-3, 10.0),
    start=st.floats(0.0, 2.0),
    power=st.floats(0.4, 1.0),
    most=st.integers(0, 2**31),
    first=st.integers(1, 10**6),
)
def test_the_largest_number_of_releases_is_found_in_few_evaluations(budget, slope, start, power, most, first):
    looks = []

    def spent(count):
        looks.append(count)
        return start + slope * count**power

    releases = releases_within(spent, budget, most, first)
    assert len(looks) == len(set(looks)) <= 40
    assert 0 <= releases <= most
    assert releases == 0 or spent(releases) <= budget
    assert releases == most or spent(releases + 1) > budget
    looks.clear()
    nearly = releases_within(spent, budget, most, first, close=0.99)
    assert nearly <= releases
    assert nearly == releases or spent(nearly) >= 0.99 * budget
    assert len(looks) <= 30


def test_an_unreachable_epsilon_is_refused():
    with pytest.raises(ConditionError, match="expected a noise multiplier of at most 1e"):
        least_noise(lambda z, by: 5.0, 1.0, "renyi")


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
