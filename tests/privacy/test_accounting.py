import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from dp_accounting.pld import privacy_loss_mechanism as mechanism
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from simfl.errors import ConditionError
from simfl.privacy.accounting import (
    Pair,
    Release,
    RenyiTable,
    delta_of,
    epsilon_of,
    hockey_sticks,
    integer_renyi,
    pairs_of,
    refusal,
    renyi_to_epsilon,
    replaced_renyi,
)
from simfl.privacy.gaussian import gaussian_epsilon

QUICK = settings(max_examples=25, deadline=None, derandomize=True)
noises = st.floats(0.5, 8.0)
rates = st.sampled_from([0.01, 0.05, 0.2, 1.0])
steps = st.integers(1, 5000)
deltas = st.sampled_from([1e-8, 1e-6, 1e-5, 1e-3])
REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE


def renyi(noise, rate, count, delta):
    return epsilon_of([(Release(noise, rate), count)], delta, accountant="renyi")


@pytest.mark.parametrize(
    ("noise", "rate", "count", "delta"),
    [(1.0, 0.01, 1000, 1e-5), (2.0, 0.2, 300, 1e-6), (0.7, 0.05, 1, 1e-5), (4.0, 1.0, 50, 1e-3)],
)
def test_epsilon_equals_that_of_dp_accounting(noise, rate, count, delta):
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    by_renyi = rdp.RdpAccountant()
    by_renyi.compose(event, count)
    assert renyi(noise, rate, count, delta) == pytest.approx(by_renyi.get_epsilon(delta), rel=1e-9)
    exact = pld.PLDAccountant(value_discretization_interval=1e-4)
    exact.compose(event, count)
    epsilon = epsilon_of([(Release(noise, rate), count)], delta)
    assert epsilon == pytest.approx(exact.get_epsilon(delta), rel=2e-3)
    assert epsilon <= by_renyi.get_epsilon(delta)


def test_many_compositions_at_once_agree_with_the_library():
    noises, counts = [0.7, 1.3, 6.0], np.array([40, 400, 5000])
    table = RenyiTable()
    pairs = [pairs_of([(Release(z, 0.02), 1)], "add_or_remove")[0][0] for z in noises]
    epsilons = renyi_to_epsilon(table.orders, counts[:, None] * table.divergences(pairs), 1e-6)
    for z, count, epsilon in zip(noises, counts, epsilons, strict=True):
        accountant = rdp.RdpAccountant()
        accountant.compose(dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(z)), int(count))
        assert epsilon == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-9)


def test_closed_form_at_integer_orders_equals_the_library():
    z, q = np.array([0.6, 1.1, 5.0, 2.0]), np.array([0.3, 0.004, 0.05, 1.0])
    computed = integer_renyi(z, q)
    orders = RenyiTable(closed_form=True).orders
    for row, noise, rate in zip(computed, z, q, strict=True):
        accountant = rdp.RdpAccountant(orders.astype(int).tolist())
        accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise)))
        np.testing.assert_allclose(row, accountant.rdp, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("count", [1, 7, 400])
@pytest.mark.parametrize(("neighbors", "sensitivity"), [("add_or_remove", 1.0), ("replace_one", 2.0)])
def test_unsampled_gaussians_compose_to_one_gaussian(count, neighbors, sensitivity):
    """Gaussian DP (Dong, Roth and Su 2019): mu^2 adds up; delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)."""
    delta = 1e-6
    epsilon = epsilon_of([(Release(9.0, sampling="none"), count)], delta, neighbors=neighbors)
    mu = sensitivity * math.sqrt(count) / 9.0
    cdf = lambda x: 0.5 * math.erfc(-x / math.sqrt(2))  # noqa: E731
    exact = cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * cdf(-mu / 2 - epsilon / mu)
    assert exact == pytest.approx(delta, rel=1e-6)
    assert delta_of([(Release(9.0, sampling="none"), count)], epsilon, neighbors=neighbors) == pytest.approx(delta)


def test_replacing_one_example_doubles_the_sensitivity():
    """dp-accounting doubles the sensitivity itself in PLD and not in RDP: our code must double it exactly once."""
    plain = epsilon_of([(Release(2.0, 0.1), 50)], 1e-5)
    for accountant in ("renyi", "pld"):
        replaced = epsilon_of([(Release(4.0, 1.0), 50)], 1e-5, neighbors="replace_one", accountant=accountant)
        moved = epsilon_of([(Release(2.0, 1.0), 50)], 1e-5, accountant=accountant)
        assert replaced == pytest.approx(moved, rel=2e-3)
    poisson = epsilon_of([(Release(4.0, 0.1), 50)], 1e-5, neighbors="replace_one")
    fixed = epsilon_of([(Release(4.0, 0.1, "without_replacement"), 50)], 1e-5, neighbors="replace_one")
    assert poisson < plain < fixed, "the Poisson pair of doubled sensitivity does not bound more than one release"
    accountant = pld.PLDAccountant(REPLACE, value_discretization_interval=1e-4)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(4.0)), 50)
    assert poisson == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def test_batches_of_fixed_size_attain_the_doubled_pair():
    """All other gradients equal -C: one example among n, drawn with probability q, moves the sum by 2C.

    Then the sum is N(-B C, s^2) with probability 1-q, and N(-B C + 2 C, s^2) with q: the density ratio can be
    integrated, and no certified epsilon may lie below it.
    """
    z, q, delta = 3.0, 0.2, 1e-3
    epsilon = epsilon_of([(Release(z, q, "without_replacement"), 1)], delta, neighbors="replace_one")
    x = np.linspace(-40, 60, 400_001)
    density = lambda mean: np.exp(-0.5 * ((x - mean) / z) ** 2) / (z * math.sqrt(2 * math.pi))  # noqa: E731
    mixed, alone = (1 - q) * density(0.0) + q * density(2.0), density(0.0)
    excess = lambda p, r: float(np.maximum(p - math.exp(epsilon) * r, 0).sum() * (x[1] - x[0]))  # noqa: E731
    assert max(excess(mixed, alone), excess(alone, mixed)) == pytest.approx(delta, rel=2e-2)


@pytest.mark.parametrize(("z", "q"), [(0.8, 0.001), (2.0, 0.02), (5.0, 1.0), (1.0, 0.9), (0.1, 0.3)])
def test_loss_distribution_of_one_release_equals_the_library(z, q):
    """For pairs of dp-accounting; its bins lose digits at negative losses, ours do not."""
    eps = np.array([0.0, 1e-4, 0.01, 0.1, 1.0, 8.0])
    for adjacency, deltas in zip(
        (mechanism.AdjacencyType.REMOVE, mechanism.AdjacencyType.ADD, mechanism.AdjacencyType.REPLACE),
        (*hockey_sticks(Pair(z, q), eps), *hockey_sticks(Pair(z, q, True), eps)),
        strict=True,
    ):
        loss = mechanism.GaussianPrivacyLoss(z, sampling_prob=q, adjacency_type=adjacency)
        np.testing.assert_allclose(deltas, loss.get_delta_for_epsilon(eps.tolist()), rtol=1e-9, atol=1e-15)


def composed_delta(z, q, count, epsilon, width, up):
    """Delta of batches of fixed size, by a histogram of losses of its own and one Fourier transform.

    Loss l > 0 has the law of ln(M/N) under M = (1-q) N(0) + q N(2), -l that times e^-l, and the rest is at 0: the
    mirror image makes the same delta(-eps). Rounded up or down it is a bound from above or below.
    """
    s, edges = z / 2, np.linspace(0.5, 1.0 + 8.5 * z / 2, 200_001)
    cdf = special.ndtr
    mass = np.diff((1 - q) * cdf(edges / s) + q * cdf((edges - 1) / s))
    loss = np.log1p(q * np.expm1((edges - 0.5) / s**2))
    middles = 0.5 * (loss[1:] + loss[:-1])
    rounded = np.ceil if up else np.floor
    places = int(2 ** np.ceil(np.log2(3 * max(epsilon + 2, loss[-1]) / width)))
    pmf, rest = np.zeros(places), 1.0
    for sign, weight, ends in ((1, mass, loss[1:] if up else loss[:-1]), (-1, mass * np.exp(-middles), loss)):
        at = rounded(sign * (ends if sign > 0 else ends[:-1] if up else ends[1:]) / width).astype(int)
        np.add.at(pmf, at % places, weight)
        rest -= weight.sum()
    pmf[0] += rest
    whole = np.fft.irfft(np.fft.rfft(pmf) ** count, places)
    losses = np.arange(places) * width
    losses[places // 2 :] -= places * width
    above = losses > epsilon
    return float(whole[above] @ -np.expm1(epsilon - losses[above]))


def poisson_delta(kinds, epsilon, width, up):
    """Delta of Poisson batches of several kinds under add_or_remove, by a histogram of losses of its own.

    The loss at x is l = ln((1 - q) + q exp((x - 1/2) / z^2)): under the mixture the example is removed; under N(0),
    with -l, it is added. Losses rounded up or down give a bound from above or below.
    """
    worst = 0.0
    for added in (False, True):
        places, spectrum = 2**17, 1.0
        for z, q, count in kinds:
            edges = np.linspace(-9.0 * z, 1.0 + 9.0 * z, 400_001)
            loss = np.log1p(q * np.expm1((edges - 0.5) / z**2)) * (-1 if added else 1)
            under = special.ndtr(edges / z)
            mass = np.diff(under if added else (1 - q) * under + q * special.ndtr((edges - 1) / z))
            ends = loss[1:] if up != added else loss[:-1]
            at = (np.ceil if up else np.floor)(ends / width).astype(int)
            pmf = np.bincount(at % places, mass, places)
            spectrum = spectrum * np.fft.rfft(pmf) ** count
        whole = np.fft.irfft(spectrum, places)
        losses = np.arange(places) * width
        losses[places // 2 :] -= places * width
        above = losses > epsilon
        worst = max(worst, float(whole[above] @ -np.expm1(epsilon - losses[above])))
    return worst


@pytest.mark.parametrize("kinds", [
    [(1.0, 0.02, 100)],
    [(2.0, 0.1, 60)],
    [(3.0, 1.0, 5)],
    [(1.5, 0.05, 40), (2.5, 0.2, 20)],
    [(0.8, 0.01, 30), (4.0, 1.0, 3), (2.0, 0.3, 10)],
])  # fmt: skip
def test_poisson_batches_compose_as_in_a_convolution(kinds):
    releases = [(Release(z, q), count) for z, q, count in kinds]
    epsilon = epsilon_of(releases, 1e-5, neighbors="add_or_remove", accountant="pld")
    low, high = (poisson_delta(kinds, epsilon, 2e-4, up) for up in (False, True))
    assert low <= 1e-5 <= high * 1.01, "between the losses rounded down and up"
    assert high < 1.15 * low


@pytest.mark.slow
@pytest.mark.parametrize(("z", "q", "count", "expected"), [(2.0, 0.02, 500, 3.252), (4.0, 0.1, 50, 1.7615)])
def test_batches_of_fixed_size_compose_as_their_mirrored_pair(z, q, count, expected):
    releases = [(Release(z, q, "without_replacement"), count)]
    epsilon = epsilon_of(releases, 1e-5, neighbors="replace_one", accountant="pld")
    assert epsilon == pytest.approx(expected, abs=1e-3)
    low, high = (composed_delta(z, q, count, epsilon, 1e-5, up) for up in (False, True))
    assert low <= 1e-5 <= high, "between the values rounded down and up"
    assert high < 1.02 * low
    by_renyi = epsilon_of(releases, 1e-5, neighbors="replace_one", accountant="renyi")
    assert epsilon < by_renyi < 1.15 * epsilon
    assert delta_of(releases, epsilon, neighbors="replace_one") == pytest.approx(1e-5, rel=1e-3)


@pytest.mark.parametrize(("z", "q"), [(1.0, 0.01), (2.0, 0.3), (6.0, 1e-4), (0.6, 0.05)])
def test_divergences_of_replaced_examples_equal_integrals(z, q):
    """By their definition (Poisson), and by Sason and Verdu's integral over hockey sticks (batches of fixed size)."""
    s, orders = z / 2, np.array([1.5, 3.0, 12.0])

    def excess(alpha, noise, log_p, log_q):  # sum of Q (r^alpha - 1 - alpha (r - 1)), r = P/Q
        x, step = np.linspace(-12 * noise - 1, alpha + 12 * noise + 1, 400_001, retstep=True)
        above, below = log_p(x), log_q(x)
        parts = np.exp(alpha * above + (1 - alpha) * below) - np.exp(below) - alpha * (np.exp(above) - np.exp(below))
        return step * float(parts.sum()) / (noise * math.sqrt(2 * math.pi))

    def mixed(noise, mean):
        rest, drawn = math.log1p(-q), math.log(q)
        return lambda x: np.logaddexp(rest - 0.5 * (x / noise) ** 2, drawn - 0.5 * ((x - mean) / noise) ** 2)

    def sticks(u):  # M[x > t] - e^u N[x > t] less N[x < t'] - e^u M[x < t']
        t = s * s * np.log((np.expm1(u) + q) / q) + 0.5
        one = q * special.ndtr((1 - t) / s) - (np.expm1(u) + q) * special.ndtr(-t / s)
        left = np.maximum(np.expm1(-u) + q, 1e-300)
        t = s * s * np.log(left / q) + 0.5
        other = special.ndtr(t / s) * (1 - np.exp(u) * (1 - q)) - np.exp(u) * q * special.ndtr((t - 1) / s)
        return one - np.maximum(other, 0.0)

    poisson = replaced_renyi(Pair(z, q, True), orders)
    fixed = replaced_renyi(Pair(z, q, True, fixed=True), orders)
    u = np.geomspace(1e-6 * q, 40.0, 100_001)
    for alpha, drawn, one in zip(orders.tolist(), poisson, fixed, strict=True):
        surplus = excess(alpha, z, mixed(z, 1.0), mixed(z, -1.0))
        assert drawn == pytest.approx(math.log1p(surplus) / (alpha - 1), rel=1e-6)
        plain = excess(alpha, s, mixed(s, 1.0), lambda x: -0.5 * (x / s) ** 2)
        more = alpha * (alpha - 1) * np.trapezoid(np.exp(-alpha * u) * sticks(u), u)
        assert one == pytest.approx(math.log1p(plain + more) / (alpha - 1), rel=1e-5)
        assert drawn < math.log1p(plain) / (alpha - 1) < one


def test_hundreds_of_kinds_use_the_mirrored_pair_too():
    kinds = [(Release(2.0, rate, "without_replacement"), 5) for rate in np.linspace(0.01, 0.03, 40).tolist()]
    epsilon = epsilon_of(kinds, 1e-5, neighbors="replace_one", accountant="renyi")
    ends = [
        epsilon_of([(Release(2.0, rate, "without_replacement"), 200)], 1e-5, neighbors="replace_one", accountant="pld")
        for rate in (0.01, 0.03)
    ]
    assert ends[0] < epsilon < 1.2 * ends[1]


@pytest.mark.slow
@QUICK
@given(noise=noises, rate=rates, count=steps, delta=deltas, more=st.floats(1.05, 3.0))
def test_epsilon_is_monotone_in_each_argument(noise, rate, count, delta, more):
    epsilon = renyi(noise, rate, count, delta)
    slack = 1e-9 + 1e-9 * epsilon
    assert epsilon >= 0
    assert renyi(noise * more, rate, count, delta) <= epsilon + slack
    assert renyi(noise, rate, math.ceil(count * more), delta) >= epsilon - slack
    assert renyi(noise, rate, count, min(0.5, delta * more)) <= epsilon + slack
    assert renyi(noise, min(1.0, rate * more), count, delta) >= epsilon - slack


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["add_or_remove", "replace_one"])
@settings(max_examples=4, deadline=None, derandomize=True)
@given(
    noise=st.floats(1.0, 8.0), rate=st.sampled_from([0.02, 0.3]), count=st.integers(1, 300), more=st.floats(1.1, 2.0)
)
def test_tightest_epsilon_is_monotone_too(neighbors, noise, rate, count, more):
    def tightest(noise, rate, count, delta):
        return epsilon_of([(Release(noise, rate), count)], delta, neighbors=neighbors)

    epsilon = tightest(noise, rate, count, 1e-5)
    slack = 2e-3 * epsilon + 1e-3  # the width of the bins
    assert epsilon <= epsilon_of([(Release(noise, rate), count)], 1e-5, neighbors=neighbors, accountant="renyi")
    assert tightest(noise * more, rate, count, 1e-5) <= epsilon + slack
    assert tightest(noise, rate, math.ceil(count * more), 1e-5) >= epsilon - slack
    assert tightest(noise, rate, count, 1e-6) >= epsilon - slack
    assert tightest(noise, rate * more, count, 1e-5) >= epsilon - slack


@pytest.mark.slow
def test_changing_noise_and_batches_are_composed_below_their_worst_case():
    mixed = [(Release(2.0, 0.01), 300), (Release(1.0, 0.05), 3)]
    epsilon = epsilon_of(mixed, 1e-5)
    worst = epsilon_of([(Release(1.0, 0.05), 303)], 1e-5)
    assert max(epsilon_of([part], 1e-5) for part in mixed) < epsilon < 0.5 * worst
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    for release, count in mixed:
        event = dp_accounting.GaussianDpEvent(release.noise_multiplier)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(release.sampling_rate, event), count)
    assert epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def test_one_pass_costs_as_much_as_its_most_expensive_release():
    one = epsilon_of([(Release(5.0, 0.1, "none"), 1)], 1e-5, neighbors="replace_one")
    assert epsilon_of([(Release(5.0, 0.1, "one_pass"), 1000)], 1e-5, neighbors="replace_one") == one
    mixed = [(Release(5.0, 0.1, "one_pass"), 10), (Release(9.0, 0.1, "one_pass"), 10)]
    assert epsilon_of(mixed, 1e-5, neighbors="replace_one") == one
    pure = [(Release(0.0, 1.0, "one_pass", 0.3), 10), (Release(0.0, 1.0, "one_pass", 0.7), 5)]
    assert epsilon_of(pure, 1e-5, neighbors="replace_one") == pytest.approx(0.7, abs=1e-3)


def test_pure_releases_of_two_kinds_cost_at_most_their_sum():
    releases = [(Release(0.0, 1.0, "none", 0.5), 1), (Release(0.0, 1.0, "none", 0.2), 1)]
    assert epsilon_of(releases, 1e-9, accountant="renyi") == pytest.approx(0.7, rel=1e-12)


def test_pure_mechanisms_compose_and_amplify():
    assert epsilon_of([(Release(0.0, sampling="none", pure_epsilon=0.5), 1)], 1e-9) == pytest.approx(0.5, abs=1e-4)
    amplified = epsilon_of([(Release(0.0, 0.1, pure_epsilon=1.0), 1)], 1e-9)
    assert amplified == pytest.approx(math.log(1 + 0.1 * (math.e - 1)), abs=1e-4)
    many = epsilon_of([(Release(0.0, 0.01, pure_epsilon=1.0), 2000)], 1e-5)
    basic = 2000 * math.log(1 + 0.01 * (math.e - 1))
    advanced = math.log(1 + 0.01 * (math.e - 1)) * math.sqrt(2 * 2000 * math.log(1e5)) + basic * 0.0172
    assert many < min(basic, advanced)


@pytest.mark.slow(but=["0.05-0.0001"])
@pytest.mark.parametrize(("z", "q"), [(0.8, 0.001), (3.0, 0.1), (0.05, 1e-4)])
def test_epsilon_never_decreases_with_more_releases(z, q):
    """Bins change their width with the epsilon that is near: a budget relies on it."""
    epsilons = [
        epsilon_of([(Release(z, q), count)], 1e-5) for count in (1, 2, 3, 5, 8, 30, 100, 1000, 10**4, 10**6, 10**9)
    ]
    assert epsilons == sorted(epsilons)


KINDS = [
    ("add_or_remove", "poisson", 1.0),
    ("replace_one", "poisson", 2.0),
    ("replace_one", "without_replacement", 2.0),
]


@pytest.mark.slow(every=3)
@pytest.mark.parametrize(("neighbors", "sampling", "moved"), KINDS)
@pytest.mark.parametrize("z", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("q", [0.5, 0.9, 0.9999])
@pytest.mark.parametrize("count", [30, 3000, 100_000])
def test_the_tightest_epsilon_is_at_most_every_other_that_is_proven(z, q, count, neighbors, sampling, moved):
    """Sampling never costs more than none, whose epsilon is exact; above 300 no loss distribution is computed."""
    composition, drawn = [(Release(z, q, sampling), count)], {"neighbors": neighbors}
    epsilon = epsilon_of(composition, 1e-5, **drawn)
    unsampled = gaussian_epsilon(1e-5, moved * math.sqrt(count) / z)
    assert epsilon <= min((1 + 1e-12) * unsampled, epsilon_of(composition, 1e-5, accountant="renyi", **drawn))
    if unsampled > 300.0:
        assert epsilon <= epsilon_of(composition, 1e-5, accountant="pld", **drawn)
        assert delta_of(composition, unsampled, **drawn) <= 1.0001e-5


def test_unsampled_bounds_hold_for_several_kinds_and_pure_releases():
    mixed = [(Release(1.0, 0.999), 2000), (Release(0.5, 0.99), 500)]
    assert epsilon_of(mixed, 1e-5) <= (1 + 1e-12) * gaussian_epsilon(1e-5, math.sqrt(2000 + 500 / 0.25))
    pure = [(Release(0.0, 1.0, "none", 2.0), 3)]
    together = epsilon_of(mixed + pure, 1e-5)
    assert epsilon_of(mixed, 1e-5) < together <= epsilon_of(mixed, 1e-5) + 6.0 + 1e-9
    assert delta_of(mixed + pure, together) <= 1.0001e-5


def test_epsilon_is_zero_without_releases_and_infinite_without_noise():
    assert epsilon_of([(Release(1.0, 0.1), 0)], 1e-5) == 0.0
    assert epsilon_of([], 1e-5) == 0.0
    assert epsilon_of([(Release(0.0, 0.1), 1)], 1e-5) == math.inf
    assert epsilon_of([(Release(0.0, 0.1), 0)], 1e-5) == 0.0, "without releases nothing is revealed"
    assert delta_of([], 1.0) == 0.0
    assert delta_of([(Release(0.0, 0.1), 1)], 1.0) == 1.0


def test_delta_is_the_inverse_of_epsilon():
    composition = [(Release(2.0, 0.05), 500)]
    epsilon = epsilon_of(composition, 1e-5, accountant="pld")
    assert delta_of(composition, epsilon) == pytest.approx(1e-5, rel=2e-2)


@pytest.mark.parametrize("sampling", ["without_replacement", "one_pass"])
def test_fixed_batches_are_refused_under_add_or_remove(sampling):
    assert refusal(sampling, "replace_one") is None
    with pytest.raises(ConditionError, match=f"sampling {sampling} has no epsilon under neighbors: add_or_remove"):
        epsilon_of([(Release(2.0, 0.1, sampling), 1)], 1e-5)


def test_with_replacement_is_always_refused():
    assert "several times" in refusal("with_replacement", "replace_one")
    assert refusal("poisson", "add_or_remove") is None


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Release(1.0, 1.5), r"sampling_rate: expected a number in \[0, 1\], found 1.5"),
    (lambda: Release(-1.0), "noise_multiplier: expected a number >= 0, found -1"),
    (lambda: Release(0.0, pure_epsilon=-1.0), "pure_epsilon: expected a number >= 0"),
    (lambda: epsilon_of([], 0.0), r"delta: expected a number in \(0, 1\), found 0"),
    (lambda: epsilon_of([], 0.1, accountant="gdp"), "accountant: expected tightest, renyi or pld, found 'gdp'"),
    (lambda: epsilon_of([], 0.1, neighbors="x"), "neighbors: expected add_or_remove or replace_one, found 'x'"),
    (lambda: epsilon_of([(Release(1.0), -1)], 0.1), "releases: expected an integer >= 0, found -1"),
    (lambda: delta_of([], -1.0), "epsilon: expected a number >= 0"),
])  # fmt: skip
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
