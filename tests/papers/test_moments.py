import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simfl.errors import ConditionError
from simfl.papers import moments
from simfl.privacy.accounting import Release, epsilon_of

QUICK = settings(max_examples=40, deadline=None, derandomize=True)

# Example 3 of async_fl: linearly increasing batches.
INCREASING = [16 + math.ceil(1.32163 * i) for i in range(183)]
EXAMPLE = {"sizes": INCREASING, "num_examples": 10000, "sigma": 8.0}


def test_u0_u1_and_r_match_the_lemmas_values():
    r0 = 1 / math.e
    assert moments.u0(8.0, r0) == pytest.approx(0.4495546831835495, rel=1e-14)
    assert moments.u1(8.0, r0) == pytest.approx(0.15275204077456322, rel=1e-14)
    assert r0 * moments.third_order_factor(8.0, r0) == pytest.approx(5.7460446671, rel=1e-10)


def test_size_moments_are_the_sums_of_the_definition():
    N, sizes = 100, [3, 5, 0, 20]
    used = [s for s in sizes if s > 0]
    computed = moments.size_moments(sizes, N)
    assert (computed.rounds, computed.gradients, computed.largest_rate) == (3, 28, 0.2)
    for j, value in ((1, computed.first), (2, computed.second), (3, computed.third)):
        assert value == pytest.approx(sum(s**j / (N * (N - s) ** (j - 1)) for s in used) / 3, rel=1e-14)


@pytest.mark.parametrize("sizes", [[], [0, 0], [-1, 2], [10, 100], [[1, 2]]])
def test_invalid_sizes_are_rejected(sizes):
    with pytest.raises(ValueError, match=r"^sizes: expected"):
        moments.size_moments(sizes, 100)


def test_largest_order_respects_the_lemma_and_its_proof():
    assert moments.largest_order(8.0, 0.0258) == 64, "sigma^2 counts where the logarithm is above 1"
    assert moments.largest_order(8.0, 0.0258, strict=True) == 25
    assert moments.largest_order(8.0, 0.06) == math.floor(64 * math.log(1 / 0.48))
    assert moments.largest_order(8.0, 1 / (math.e * 64), strict=True) == 64, "q <= 1/(e sigma^2) closes the gap"
    assert moments.largest_order(0.9, 0.01) == 0
    assert moments.largest_order(8.0, 0.2) == 0
    for q, sigma in ((0.0258, 8.0), (0.001, 30.0), (0.01, 2.0)):
        order = moments.largest_order(sigma, q, strict=True)
        assert order / sigma**2 <= math.log(1 / (q * order))
        assert (order + 1) / sigma**2 > min(1.0, math.log(1 / (q * (order + 1))))


def test_explicit_moment_accountant_matches_example_3():
    account = moments.explicit_moments(**EXAMPLE, delta=5.5e-8)
    assert account.epsilon == pytest.approx(0.396774, rel=1e-5)
    assert (account.order, account.largest_order) == (64, 64)
    assert moments.explicit_moment_epsilon(**EXAMPLE, delta=5.5e-8) == account.epsilon
    closed = moments.explicit_moments(**EXAMPLE, delta=5.5e-8, strict=True)
    assert closed.epsilon == pytest.approx(0.700715, rel=1e-5)
    assert closed.largest_order == 25


def test_the_accountant_certifies_less_than_half_of_the_explicit_epsilon():
    composition = [(Release(8.0, s / 10000), INCREASING.count(s)) for s in sorted(set(INCREASING))]
    certified = epsilon_of(composition, 5.5e-8, accountant="renyi")
    assert certified < moments.explicit_moment_epsilon(**EXAMPLE, delta=5.5e-8) / 2
    assert certified > 0.1144, "the exact one is 0.1145"


@QUICK
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=40),
    sigma=st.floats(1.6, 12.0),
    delta=st.sampled_from([1e-8, 1e-5, 1e-3]),
    repeat=st.integers(1, 50),
)
def test_explicit_epsilon_is_at_most_every_other_bound_of_the_lemma(sizes, sigma, delta, repeat):
    N = 5000
    r0 = sigma * max(sizes) / N
    assume(moments.u0(sigma, r0) < 1 and moments.u1(sigma, r0) < 1 and r0 <= 1 / math.e)
    sizes = sizes * repeat
    computed = moments.explicit_moment_epsilon(sizes, N, sigma, delta)
    assert computed <= moments.explicit_moment_epsilon(sizes, N, sigma, delta, strict=True)
    assert computed <= moments.explicit_moment_epsilon([*sizes, 60], N, sigma, delta) + 1e-12
    # What Theorem 3's closed form proves at lambda = floor(sigma^2 - 1) the explicit one proves too.
    m, factor = moments.size_moments(sizes, N), moments.third_order_factor(sigma, r0)
    closed = 2 * m.rounds * (m.second + factor * sigma * m.third)
    assert computed <= max(closed, 2 * math.log(1 / delta) / math.floor(sigma**2 - 1)) * (1 + 1e-12)


@pytest.mark.parametrize(("call", "condition"), [
    (lambda: moments.explicit_moment_epsilon([2000], 10000, 8.0, 1e-5), "r0 < 1"),
    (lambda: moments.explicit_moment_epsilon([4500], 10000, 2.0, 1e-5), "u0 < 1"),
    (lambda: moments.explicit_moment_epsilon([1], 10**7, 0.9, 1e-5), "1 <= lambda"),
    (lambda: moments.third_order_factor(1.2, 0.3), "u0 < 1"),
    (lambda: moments.third_order_factor(2.0, 0.22), "u1 < 1"),
    (lambda: moments.third_order_factor(0.5, 0.6), "u0 < 1"),
])  # fmt: skip
def test_a_violated_condition_is_named(call, condition):
    with pytest.raises(ConditionError, match=rf"^condition ({condition})"):
        call()


@pytest.mark.parametrize("call", [
    lambda: moments.explicit_moment_epsilon([1], 10, 0.0, 1e-5),
    lambda: moments.explicit_moment_epsilon([1], 10, math.nan, 1e-5),
    lambda: moments.explicit_moment_epsilon([1], 10, 2.0, 1.0),
])  # fmt: skip
def test_wrong_arguments_are_rejected(call):
    with pytest.raises(ValueError, match=r"expected"):
        call()
