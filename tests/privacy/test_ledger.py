import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.privacy.ledger import Ledger, poisson_gaussian_epsilon

QUICK = settings(max_examples=25, deadline=None, derandomize=True)
noises = st.floats(0.4, 8.0)
rates = st.sampled_from([0.01, 0.05, 0.2, 1.0])
releases = st.integers(1, 5000)
deltas = st.sampled_from([1e-8, 1e-6, 1e-5, 1e-3])


def ledger(sizes, *, batch_size=10, sampling="poisson", clipped=True, noise_multiplier=2.0, delta=1e-5):
    return Ledger(np.array(sizes), batch_size, sampling, clipped, noise_multiplier, delta)


@pytest.mark.parametrize(
    ("noise", "rate", "steps", "delta"),
    [(1.0, 0.01, 1000, 1e-5), (2.0, 0.2, 300, 1e-6), (0.7, 0.05, 1, 1e-5), (4.0, 1.0, 50, 1e-3)],
)
def test_epsilon_is_what_dp_accounting_says(noise, rate, steps, delta):
    accountant = rdp.RdpAccountant()
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    accountant.compose(event, steps)
    found = poisson_gaussian_epsilon(noise, rate, steps, delta)
    assert found == pytest.approx(accountant.get_epsilon(delta), rel=1e-9)
    exact = pld.PLDAccountant()  # another accountant, tight from both sides up to its discretisation
    exact.compose(event, steps)
    tight = exact.get_epsilon(delta)
    assert tight <= found * (1 + 1e-3), "an epsilon that is too small would be a false promise"
    assert found <= 1.6 * tight + 0.05


def test_one_release_of_everything_is_the_gaussian_mechanism():
    """Closed form, Balle and Wang 2018, Theorem 8: the exact epsilon cannot be larger."""
    noise, delta = 3.0, 1e-5
    epsilon = poisson_gaussian_epsilon(noise, 1.0, 1, delta)
    cdf = lambda x: 0.5 * math.erfc(-x / math.sqrt(2))  # noqa: E731
    m = 1 / noise
    exact = cdf(m / 2 - epsilon / m) - math.exp(epsilon) * cdf(-m / 2 - epsilon / m)
    assert exact <= delta
    assert exact > delta / 20


@QUICK
@given(noise=noises, rate=rates, steps=releases, delta=deltas, more=st.floats(1.05, 3.0))
def test_epsilon_moves_the_right_way(noise, rate, steps, delta, more):
    epsilon = poisson_gaussian_epsilon(noise, rate, steps, delta)
    slack = 1e-9 + 1e-9 * epsilon
    assert epsilon >= 0
    assert poisson_gaussian_epsilon(noise * more, rate, steps, delta) <= epsilon + slack
    assert poisson_gaussian_epsilon(noise, rate, math.ceil(steps * more), delta) >= epsilon - slack
    assert poisson_gaussian_epsilon(noise, rate, steps, min(0.5, delta * more)) <= epsilon + slack
    assert poisson_gaussian_epsilon(noise, min(1.0, rate * more), steps, delta) >= epsilon - slack


def test_limits():
    assert poisson_gaussian_epsilon(1.0, 0.1, 0, 1e-5) == 0.0
    assert poisson_gaussian_epsilon(0.0, 0.1, 1, 1e-5) == math.inf
    assert poisson_gaussian_epsilon(0.0, 0.1, 0, 1e-5) == 0.0, "who never released anything gave nothing away"


def test_every_client_is_charged_for_its_own_releases_at_its_own_rate():
    book = ledger([100, 50, 10, 200])
    np.testing.assert_allclose(book.rates, [0.1, 0.2, 1.0, 0.05])
    counts = [30, 30, 2, 0]
    expected = [
        poisson_gaussian_epsilon(2.0, rate, count, 1e-5) for rate, count in zip(book.rates, counts, strict=True)
    ]
    np.testing.assert_allclose(book.epsilon(counts), expected)
    assert book.epsilon(counts)[3] == 0.0
    assert book.certified
    assert "delta = 1e-05" in book.statement
    assert "adding or removing one example, local view" in book.statement


@QUICK
@given(
    sizes=st.lists(st.sampled_from([10, 40, 100]), min_size=1, max_size=8),
    data=st.data(),
    noise=st.sampled_from([0.0, 1.0, 2.0]),
)
def test_the_largest_epsilon_is_the_largest_of_all(sizes, data, noise):
    counts = data.draw(st.lists(st.integers(0, 60), min_size=len(sizes), max_size=len(sizes)))
    book = ledger(sizes, noise_multiplier=noise)
    assert book.largest(counts) == book.epsilon(counts).max()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"clipped": False, "noise_multiplier": math.nan}, "gradients are not clipped"),
        ({"sampling": "shuffle"}, "sampling shuffle is not Poisson sampling"),
        ({"sampling": "with_replacement"}, "sampling with_replacement is not Poisson sampling"),
    ],
)
def test_what_the_accountant_does_not_cover_is_never_certified(options, reason):
    book = ledger([100, 50], **options)
    assert not book.certified
    assert np.isnan(book.epsilon([3, 0])).all()
    assert math.isnan(book.largest([3, 0]))
    assert book.statement.startswith("not certified: ")
    assert reason in book.statement
