import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.privacy.accounting import Release, epsilon_of
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.privacy.pure import advanced_epsilon, amplified_epsilon, composed_epsilon

epsilons = st.floats(1e-4, 3.0)
counts = st.integers(1, 60)
deltas = st.floats(1e-12, 0.5)


def by_hand(epsilon, releases, total):
    """delta of randomized responses, summed over the number of right answers in plain numbers."""
    p = 1 / (1 + math.exp(-epsilon))
    one = [math.comb(releases, j) * p**j * (1 - p) ** (releases - j) for j in range(releases + 1)]
    other = one[::-1]
    return math.fsum(max(0.0, a - math.exp(total) * b) for a, b in zip(one, other, strict=True))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(epsilon=epsilons, releases=counts, delta=deltas)
def test_composed_epsilon_is_the_smallest_valid_one(epsilon, releases, delta):
    composed = composed_epsilon(epsilon, releases, delta)
    assert 0.0 <= composed <= min(releases * epsilon, advanced_epsilon(epsilon, releases, delta)) * (1 + 1e-12)
    assert by_hand(epsilon, releases, composed) <= delta * (1 + 1e-7) + 1e-14
    if composed > 1e-6:
        assert by_hand(epsilon, releases, composed * (1 - 1e-6)) > delta * (1 - 1e-7) - 1e-14
    assert composed_epsilon(epsilon, releases + 1, delta) >= composed - 1e-12


def test_composed_epsilon_has_known_values():
    assert composed_epsilon(0.3, 1, 0.1) == pytest.approx(
        math.log((1 / (1 + math.exp(-0.3)) - 0.1) * (1 + math.exp(0.3)))
    )
    assert composed_epsilon(0.1, 3000, 1e-5) == pytest.approx(37.5446469, rel=1e-8)
    assert composed_epsilon(1.0, 5000, 1e-5) == pytest.approx(2573.998072, rel=1e-8)
    assert advanced_epsilon(0.1, 3000, 1e-5) == pytest.approx(57.8338843, rel=1e-8)
    # many releases of small epsilon together approach a Gaussian of mu = eps sqrt(T)
    gaussian = gaussian_epsilon(1e-5, 1e-4 * math.sqrt(100_000))
    assert composed_epsilon(1e-4, 100_000, 1e-5) == pytest.approx(gaussian, rel=2e-3)
    assert composed_epsilon(0.3, 7, 0.4) == 0.0
    assert composed_epsilon(0.0, 7, 0.4) == composed_epsilon(0.3, 0, 0.4) == 0.0


@pytest.mark.parametrize(("epsilon", "releases"), [(0.1, 3000), (8.65e-4, 5000), (1.0, 400)])
def test_the_accountants_are_not_below_what_randomized_responses_attain(epsilon, releases):
    release = Release(math.nan, sampling="none", pure_epsilon=epsilon)
    computed = epsilon_of([(release, releases)], 1e-5, neighbors="replace_one")
    exact = composed_epsilon(epsilon, releases, 1e-5)
    assert exact * (1 - 1e-9) <= computed <= 1.2 * exact


def test_sampling_reduces_epsilon():
    assert amplified_epsilon(0.1, 0.001) == pytest.approx(1.05165388e-4, rel=1e-8)
    assert amplified_epsilon(1e-9, 0.5) == pytest.approx(5e-10, rel=1e-8)
    assert amplified_epsilon(2.0, 1.0) == 2.0
    assert amplified_epsilon(200.0, 1e-6) == pytest.approx(200.0 - 6 * math.log(10), rel=1e-12)
    assert amplified_epsilon(800.0, 0.5) == pytest.approx(800 + math.log(0.5), rel=1e-12)
    assert advanced_epsilon(800.0, 2, 0.1) == math.inf
    assert advanced_epsilon(800.0, 0, 0.1) == 0.0


@pytest.mark.parametrize(("call", "message"), [
    (lambda: amplified_epsilon(0.1, 0.0), r"sampling_rate: expected a number in \(0, 1\], found 0"),
    (lambda: amplified_epsilon(-0.1, 0.5), "epsilon: expected a finite number >= 0, found -0.1"),
    (lambda: composed_epsilon(math.inf, 3, 0.1), "epsilon: expected a finite number >= 0, found inf"),
    (lambda: composed_epsilon(0.1, -1, 0.1), "releases: expected an integer >= 0, found -1"),
    (lambda: composed_epsilon(0.1, 3, 0.0), r"delta: expected a number in \(0, 1\), found 0"),
])  # fmt: skip
def test_wrong_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("epsilon", "releases"), [(1e-4, 10**9), (1e-7, 2**31), (1e-3, 10**7), (0.05, 10**6), (0.5, 2**31), (1e-6, 2**45)]
)
def test_billions_of_releases_are_a_gaussian_or_less_than_azumas_bound(epsilon, releases):
    begin = time.process_time()
    composed = composed_epsilon(epsilon, releases, 1e-5)
    assert time.process_time() - begin < 2
    # a loss of +-eps has mean m = eps tanh(eps/2) and variance eps^2 - m^2: for that many, the normal law
    mean = epsilon * math.tanh(epsilon / 2)
    std = math.sqrt((epsilon**2 - mean**2) * releases)
    if releases <= 2**36:
        normal = gaussian_epsilon(1e-5, std) - std**2 / 2 + mean * releases
        assert composed == pytest.approx(normal, rel=1e-3)
    assert composed <= mean * releases + epsilon * math.sqrt(2 * releases * math.log(1e5))
