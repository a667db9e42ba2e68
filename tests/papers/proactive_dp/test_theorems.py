import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simfl.accounts.plans import gdp_central_limit_epsilon
from simfl.errors import ConditionError
from simfl.papers import moments
from simfl.papers.proactive_dp import theorems as proactive
from simfl.privacy.accounting import Release, epsilon_of

QUICK = settings(max_examples=40, deadline=None, derandomize=True)

# Tables 9, 10, 11: N, K, epsilon; then what the formulas give, see the tests.
LIBSVM = (10000, 50000, 0.0497)
MNIST = (60000, 360000, 0.1521)
CIFAR = (50000, 350000, 0.5253)
TABLES = [LIBSVM, MNIST, CIFAR]

sigmas = st.floats(1.5, 60.0)
epsilons = st.floats(1e-3, 30.0)
epochs = st.floats(0.05, 200.0)


def theorem_b4(schedule, num_examples, *, epsilon, delta, sigma, gamma=None, exact=False):
    """Return the conditions of Theorem B.4 for any rounds; raise the first that fails."""
    course = proactive.Course.of(schedule, num_examples)
    if gamma is None:
        gamma = proactive.gamma_fixed_point(sigma, epsilon, course.epochs, exact=exact)
    conditions = proactive.conditions_b4(course, epsilon, delta, sigma, gamma)
    for condition in conditions:
        condition.require("Theorem B.4")
    return conditions


LIBSVM_B4 = {"schedule": [(26, 1923)], "num_examples": 10000, "epsilon": 0.0497, "delta": 1e-4, "sigma": 19.3039}


def attempt(call, *words, **options):
    """Return (result, None), or (None, the condition that failed)."""
    try:
        return call(*words, **options), None
    except ConditionError as error:
        return None, str(error)


# --- the main equation ------------------------------------------------------------------------------------------------


def test_the_main_equation_has_the_papers_numbers():
    assert proactive.sigma_of(0.0497, 1e-4) == pytest.approx(19.30382, abs=5e-6)
    assert proactive.epsilon_of(19.3, 1e-4) == pytest.approx(0.0497198, abs=5e-8)
    assert proactive.sigma_of(1.0, 5.5e-8) == pytest.approx(5.952, abs=5e-4), "async_fl leaves the + epsilon out: 5.782"


@QUICK
@given(epsilon=st.floats(1e-6, 1e3), delta=st.sampled_from([1e-12, 1e-5, 0.1]))
def test_sigma_and_epsilon_determine_each_other(epsilon, delta):
    sigma = proactive.sigma_of(epsilon, delta)
    assert sigma > math.sqrt(2)
    assert proactive.epsilon_of(sigma, delta) == pytest.approx(epsilon, rel=1e-9)


def test_sigma_must_exceed_the_root_of_two():
    with pytest.raises(ConditionError, match=r"^condition \(35\) of Theorem B\.4: .* sigma is 1\.4; take more noise$"):
        proactive.epsilon_of(1.4, 1e-5)


# --- g, h, Gam, gamma -------------------------------------------------------------------------------------------------


def test_g_and_h_equal_their_formulas():
    assert proactive.h(6) == pytest.approx((math.sqrt(1 + (math.e / 6) ** 2) - math.e / 6) ** 2, rel=1e-14)
    assert proactive.h(6) == pytest.approx(0.415757, abs=5e-7)
    assert proactive.g(6) == pytest.approx(0.0613132, abs=5e-8)
    assert proactive.g(1.5) == proactive.h(1.5) < 1 / (1.5 * math.e)
    assert proactive.h(1e-9) == pytest.approx((1e-9 / (2 * math.e)) ** 2, rel=1e-9), "no cancellation"


@QUICK
@given(sigma=sigmas)
def test_g_keeps_u0_and_u1_below_one(sigma):
    r0 = sigma * proactive.g(sigma)
    assert r0 <= 1 / math.e * (1 + 1e-12)
    assert moments.u0(sigma, r0) < 1
    assert moments.u1(sigma, r0) <= 1 + 1e-12


@QUICK
@given(sigma=sigmas, a=st.floats(1e-6, 0.16))
def test_exact_gam_follows_from_the_moments(sigma, a):
    """Gam = 2/(1-a) + 2 R sigma a / (1-a)^2 with R at r0 = sigma a: the derivation, without the paper's error."""
    assume(a < 0.99 * proactive.largest_share(sigma, exact=True))
    assume(sigma * a < 1)
    factor = moments.third_order_factor(sigma, sigma * a)
    expected = 2 / (1 - a) + 2 * factor * sigma * a / (1 - a) ** 2
    assert proactive.gam(sigma, a, exact=True) == pytest.approx(expected, rel=1e-9)
    assert proactive.gam(sigma, a) < expected, "the paper's error makes it smaller"


def test_gam_is_2_at_0_and_infinite_at_the_end_of_its_domain():
    assert proactive.gam(6.0, 0.0) == 2.0
    for exact in (False, True):
        end = proactive.largest_share(6.0, exact=exact)
        assert proactive.gam(6.0, end * 0.999999, exact=exact) > 1e4
        assert proactive.gam(6.0, end * 1.000001, exact=exact) == math.inf
        assert proactive.gam(6.0, 0.9, exact=exact) == math.inf


@pytest.mark.parametrize(
    ("table", "one_shot", "corrected", "fixed"),
    [(LIBSVM, 3.8145, 3.8354, 3.1250), (MNIST, 5.2804, 5.3876, 3.6676), (CIFAR, 9.2247, 10.1068, 4.6245)],
)
def test_gamma_has_the_numbers_of_the_tables(table, one_shot, corrected, fixed):
    N, K, epsilon = table
    sigma, k = proactive.sigma_of(epsilon, 1 / N), K / N
    assert proactive.gamma_one_shot(sigma, epsilon, k) == pytest.approx(one_shot, abs=5e-5)
    assert proactive.gamma_one_shot(sigma, epsilon, k, exact=True) == pytest.approx(corrected, abs=5e-5)
    assert proactive.gamma_fixed_point(sigma, epsilon, k) == pytest.approx(fixed, abs=5e-5)


def test_gamma_has_the_number_of_the_self_test():
    sigma = proactive.sigma_of(0.0497, 1e-4)
    assert proactive.gamma_one_shot(sigma, 0.0497, 5) == pytest.approx(3.814471, abs=5e-7)


@QUICK
@given(sigma=sigmas, epsilon=epsilons, k=epochs, exact=st.booleans())
def test_gamma_is_the_smallest_solution(sigma, epsilon, k, exact):
    gamma = proactive.gamma_fixed_point(sigma, epsilon, k, exact=exact)
    assert gamma > 2
    assert proactive.gam(sigma, epsilon / (gamma * k), exact=exact) == pytest.approx(gamma, rel=1e-6)
    smaller = gamma * 0.999
    if epsilon / (smaller * k) < 1:
        assert proactive.gam(sigma, epsilon / (smaller * k), exact=exact) > smaller
    if epsilon / (2 * k) < proactive.largest_share(sigma, exact=exact):
        assert gamma <= proactive.gamma_one_shot(sigma, epsilon, k, exact=exact) * (1 + 1e-12)


def test_one_shot_gamma_needs_condition_33():
    with pytest.raises(ConditionError, match=r"^condition \(33\) of Theorem B\.4: .* k is 1; take more epochs, or the"):
        proactive.gamma_one_shot(6.0, 1.0, 1.0)
    gamma = proactive.gamma_fixed_point(6.0, 1.0, 1.0)
    assert gamma == pytest.approx(15.7307, rel=1e-5)
    assert 1.0 / (gamma * 1.0) < proactive.h(6.0), "the fixed point fulfills (33)"


# --- the theorems -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "message"), [
    ({"schedule": [(200, 250)]}, r"\(32\) of Theorem B\.4: T >= theta k / g\(sigma\), .* found 250, needed 262"),
    ({"schedule": [(100, 500)]}, r"\(34\) of Theorem B\.4: T >= gamma theta\^2 k\^2 / epsilon, found 500, needed 1"),
    ({"schedule": [(2, 10000), (60, 500)]}, r"\(34\)"),
    ({"sigma": 19.2}, r"\(35\) of Theorem B\.4: sigma >= .*, found 19\.2, needed 19\.3038; take more noise"),
])  # fmt: skip
def test_theorem_b4_names_the_condition_that_fails(options, message):
    with pytest.raises(ConditionError, match=rf"^condition {message}"):
        theorem_b4(**LIBSVM_B4 | options)


def test_condition_33_fails_for_a_small_gamma():
    """With the fixed point of gamma (33) always holds; with another gamma it can fail."""
    course = proactive.Course.of([(1, 10)], 10000)
    conditions = proactive.conditions_b4(course, 1.0, 1e-4, 6.0, 2.0)
    assert [condition.name for condition in conditions if not condition.holds] == ["(33)"]
    with pytest.raises(ConditionError, match=r"^condition \(33\) of Theorem B\.4: k >= epsilon / \(gamma h\(sigma\)\)"):
        conditions[1].require("Theorem B.4")


@QUICK
@given(
    schedule=st.lists(st.tuples(st.integers(1, 400), st.integers(1, 300)), min_size=1, max_size=5),
    sigma=sigmas,
    exact=st.booleans(),
    seed=st.integers(0, 9),
)
def test_the_claimed_epsilon_is_the_smallest(schedule, sigma, exact, seed):
    options = {"delta": 1e-5, "sigma": sigma, "exact": exact}
    epsilon, failed = attempt(proactive.claimed_epsilon, schedule, 10000, **options)
    if failed:
        assert failed.startswith(("condition (32) of", "conditions (33) and (34) of"))
        for tried in (0.01, 1.0, 100.0, 1e4):
            with pytest.raises(ConditionError):
                theorem_b4(schedule, 10000, epsilon=max(tried, proactive.epsilon_of(sigma, 1e-5)), **options)
        return
    theorem_b4(schedule, 10000, epsilon=epsilon, **options)
    theorem_b4(schedule, 10000, epsilon=epsilon * 1.5, **options)
    with pytest.raises(ConditionError, match=r"\((34|35)\)"):
        theorem_b4(schedule, 10000, epsilon=epsilon * 0.999, **options)
    shuffled = [schedule[i] for i in np.random.default_rng(seed).permutation(len(schedule))]
    assert proactive.claimed_epsilon(shuffled, 10000, **options) == pytest.approx(epsilon, rel=1e-12)
    # The theorem bounds the moments from above: the epsilon of the moments themselves is never larger.
    if exact:
        sizes = proactive.sizes_of(schedule)
        assert moments.explicit_moment_epsilon(sizes, 10000, sigma, 1e-5) <= epsilon * (1 + 1e-9)


def test_more_noise_may_raise_the_claim():
    """Gam grows with sigma, so (34) needs more rounds, although noise never harms privacy itself."""
    schedule = [(200, 500)]
    assert proactive.claimed_epsilon(schedule, 10000, sigma=15.0, delta=1e-4) > proactive.claimed_epsilon(
        schedule, 10000, sigma=10.0, delta=1e-4
    )


# --- plans, and the tables --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "one_shot", "fixed", "sigma"),
    [(LIBSVM, 26, 31, 19.304), (MNIST, 288, 414, 12.111), (CIFAR, 406, 811, 6.572)],
)
def test_batches_have_the_sizes_of_the_tables(table, one_shot, fixed, sigma):
    N, K, epsilon = table
    plan = proactive.plan_rounds(N, gradients=K, epsilon=epsilon, gamma="one-shot")
    assert plan.batch == one_shot
    assert plan.sigma == pytest.approx(sigma, abs=5e-4)
    assert plan.delta == 1 / N
    assert proactive.simplified_plan(N, K, epsilon=epsilon) == plan
    assert proactive.plan_rounds(N, epochs=K / N, sigma=plan.sigma, gamma="one-shot").batch == one_shot
    larger = proactive.plan_rounds(N, gradients=K, epsilon=epsilon)
    assert larger.batch == fixed
    assert larger.bound_by == "(34)"
    assert (larger.rounds, larger.gradients) == (K // fixed, K // fixed * fixed)


def test_batches_are_the_same_at_the_rounded_noise_of_the_first_table():
    for gamma, batch in (("fixed-point", 31), ("one-shot", 26)):
        assert proactive.plan_rounds(10000, gradients=50000, sigma=19.3, gamma=gamma).batch == batch


@pytest.mark.parametrize(("table", "batch"), [(LIBSVM, 198), (MNIST, 3042), (CIFAR, 7504)])
def test_the_tightness_probe_has_the_papers_sizes_and_fails_the_theorem(table, batch):
    N, K, epsilon = table
    assert proactive.tightness_probe(N, K, epsilon) == batch
    with pytest.raises(ConditionError, match=r"^condition \(3[24]\)"):
        theorem_b4([(batch, K // batch)], N, epsilon=epsilon, delta=1 / N, sigma=proactive.sigma_of(epsilon, 1 / N))


def spent(N, K, epsilon, batch):
    """Return epsilon of K gradients: central limit with fixed-size batches, exact with Poisson batches."""
    sigma, q, rounds = proactive.sigma_of(epsilon, 1 / N), batch / N, K / batch
    limit = gdp_central_limit_epsilon(1 / N, sigma, sampling_rate=q, steps=rounds, sampling="uniform")
    return limit, epsilon_of([(Release(sigma, q), round(rounds))], 1 / N, accountant="pld")


@pytest.mark.parametrize(("table", "printed", "ratio", "gdp", "exact"), [
    (LIBSVM, 0.0105, 4.7234, 0.0105, 0.01027), (MNIST, 0.0389, 3.9147, 0.0389, 0.03762),
    (CIFAR, 0.1133, 4.6372, 0.1132, 0.1071),
])  # fmt: skip
def test_the_first_column_of_the_tables_is_reproduced(table, printed, ratio, gdp, exact):
    N, K, epsilon = table
    batch = proactive.simplified_plan(N, K, epsilon=epsilon).batch
    limit, certified = spent(N, K, epsilon, batch)
    assert limit == pytest.approx(gdp, abs=5.1e-5)
    assert limit == pytest.approx(printed, rel=2e-3)
    assert epsilon / limit == pytest.approx(ratio, rel=2e-3)
    assert certified == pytest.approx(exact, rel=6e-4)
    assert 0.02 < 1 - certified / limit < 0.06, "the central limit is 2 to 6 per cent above the exact epsilon"


@pytest.mark.parametrize(("table", "at_half", "at_quarter", "printed"), [
    (LIBSVM, (0.0355, 0.0348), (0.0533, 0.0524), 0.0533),
    (MNIST, (0.1433, 0.1397), (0.2096, 0.2054), 0.2097),
    (CIFAR, (0.5625, 0.5480), (0.8239, 0.7973), 0.8239),
])  # fmt: skip
def test_the_second_column_mixes_two_settings(table, at_half, at_quarter, printed):
    """Its sample sizes are those of gamma = 1/2, its epsilon that of gamma = 1/4, twice the batch."""
    N, K, epsilon = table
    assert spent(N, K, epsilon, proactive.tightness_probe(N, K, epsilon)) == pytest.approx(at_half, abs=6e-5)
    epsilons = spent(N, K, epsilon, epsilon * N**2 / (0.25 * K))
    assert epsilons == pytest.approx(at_quarter, abs=1e-4)
    assert epsilons[0] == pytest.approx(printed, rel=2e-3)
    assert epsilons[0] > epsilon > at_half[1] or table == CIFAR, (
        "8 times fewer rounds violate epsilon, 4 times need not"
    )


@pytest.mark.parametrize("num_examples", [10000, 60000])
@pytest.mark.parametrize("k", [1, 5, 20, 50])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0])
def test_a_plans_epsilon_is_above_the_certified_one(num_examples, k, epsilon):
    """The Renyi accountant's epsilon is above the exact one, and the plan's is above it again."""
    delta = 1 / num_examples
    plan = proactive.plan_rounds(num_examples, epochs=k, epsilon=epsilon)
    theorem_b4(plan.schedule, num_examples, epsilon=epsilon, delta=delta, sigma=plan.sigma)
    poisson = epsilon_of([(Release(plan.sigma, plan.batch / num_examples), plan.rounds)], delta, accountant="renyi")
    assert 0.1 * epsilon < poisson < 0.55 * epsilon
    with pytest.raises(
        ConditionError, match=r"^condition \(3[24]\) of Theorem B\.4"
    ):  # half the rounds, twice the batch
        theorem_b4([(2 * plan.batch, plan.rounds // 2)], num_examples, epsilon=epsilon, delta=delta, sigma=plan.sigma)


@QUICK
@given(
    schedule=st.lists(st.tuples(st.integers(1, 300), st.integers(1, 3000)), min_size=1, max_size=3),
    num_examples=st.sampled_from([1000, 5000, 30000]),
    sigma=st.one_of(st.floats(1.42, 3.0), st.floats(3.0, 40.0)),
    delta=st.sampled_from([1e-8, 1e-5, 1e-2]),
)
def test_every_claim_is_above_the_exact_epsilon(schedule, num_examples, sigma, delta):
    claim, failed = attempt(proactive.claimed_epsilon, schedule, num_examples, sigma=sigma, delta=delta)
    if failed:
        assert failed.startswith("condition")
    else:  # the Renyi accountant's epsilon is above the exact one
        account = proactive.accounted(schedule, num_examples, sigma=sigma, delta=delta, accountant="renyi")
        assert account.poisson < 0.7 * claim


@pytest.mark.parametrize(("num_examples", "k", "epsilon"), [(10000, 5, 0.5), (60000, 10, 2.0)])
def test_plans_also_hold_for_batches_of_fixed_size(num_examples, k, epsilon):
    """Not covered by the theorem: without replacement, one example replaced; its slack absorbs the doubled move."""
    delta = 1 / num_examples
    plan = proactive.plan_rounds(num_examples, epochs=k, epsilon=epsilon)
    account = proactive.accounted(plan.schedule, num_examples, sigma=plan.sigma, delta=delta)
    rate = plan.batch / num_examples
    assert account.poisson == epsilon_of([(Release(plan.sigma, rate), plan.rounds)], delta)
    fixed = Release(plan.sigma, rate, "without_replacement")
    assert account.fixed_size == epsilon_of([(fixed, plan.rounds)], delta, neighbors="replace_one")
    assert account.poisson < 0.42 * epsilon
    assert 2 * account.poisson < account.fixed_size < 0.92 * epsilon


@QUICK
@given(
    num_examples=st.integers(10, 10**7),
    k=st.floats(0.01, 100),
    epsilon=st.floats(0.01, 20.0),
    delta=st.sampled_from([None, 1e-3, 1e-8]),
    gamma=st.sampled_from(["fixed-point", "one-shot"]),
    exact=st.booleans(),
)
def test_every_plan_fulfills_the_theorem(num_examples, k, epsilon, delta, gamma, exact):
    assume(k * num_examples >= 1)
    options = {"epochs": k, "delta": delta, "epsilon": epsilon, "gamma": gamma, "exact": exact}
    plan, failed = attempt(proactive.plan_rounds, num_examples, **options)
    if failed:
        assert failed.startswith("condition (3")
        return
    theorem_b4(plan.schedule, num_examples, epsilon=plan.epsilon, delta=plan.delta, sigma=plan.sigma, exact=exact)
    assert plan.asked - plan.batch < plan.gradients <= plan.asked
    assert plan.total_rounds == plan.rounds
    assert plan.epochs == pytest.approx(plan.gradients / num_examples)
    if gamma == "one-shot":
        assert plan.batch <= proactive.plan_rounds(num_examples, **options | {"gamma": "fixed-point"}).batch


@pytest.mark.parametrize(("options", "bound_by"), [
    ({"epochs": 5, "epsilon": 0.0497}, "(34)"), ({"epochs": 0.1, "epsilon": 1.0}, "(32)"),
    ({"gradients": 3, "epsilon": 1.0}, "K"),
])  # fmt: skip
def test_a_plan_names_the_condition_that_limits_its_batch(options, bound_by):
    assert proactive.plan_rounds(10000, **options).bound_by == bound_by


@pytest.mark.parametrize(("call", "message"), [
    (lambda: proactive.plan_rounds(1000, epochs=50, epsilon=0.05), r"condition \(34\) .* found 50000, needed 1"),
    (lambda: proactive.plan_rounds(40, epochs=0.1, sigma=200.0), r"condition \(3[24]\) "),
    (lambda: proactive.simplified_plan(10000, 20000, epsilon=0.05), r"condition \(7\) of Theorem 3\.1"),
    (lambda: proactive.plan_rounds(10000, epochs=1, epsilon=3.0, gamma="one-shot"), r"condition \(33\) "),
    (lambda: proactive.plan_rounds(10000, epochs=1, sigma=1.0), r"condition \(35\) "),
])  # fmt: skip
def test_a_plan_whose_condition_fails_is_an_error(call, message):
    with pytest.raises(ConditionError, match=rf"^{message}"):
        call()


@pytest.mark.parametrize(("call", "message"), [
    (lambda: proactive.plan_rounds(100, epochs=1), r"^expected exactly one of epsilon and sigma"),
    (lambda: proactive.plan_rounds(100, epochs=1, epsilon=1, sigma=5), r"^expected exactly one of epsilon and sigma"),
    (lambda: proactive.plan_rounds(100, epsilon=1), r"^expected exactly one of epochs and gradients"),
    (lambda: proactive.plan_rounds(1, epochs=1, epsilon=1), r"^num_examples: expected an integer >= 2, found 1"),
    (lambda: proactive.plan_rounds(100, epochs=1e-9, epsilon=1), r"^gradients: expected an integer >= 1, found 0"),
    (lambda: proactive.plan_rounds(100, epochs=1, epsilon=1, delta=0), r"^delta: expected a number in \(0, 1\)"),
    (lambda: proactive.plan_rounds(100, epochs=1, epsilon=1, gamma="none"), r"^gamma: expected fixed-point or one"),
    (lambda: proactive.sigma_of(0.0, 1e-5), r"^epsilon: expected a finite number > 0, found 0"),
    (lambda: proactive.gam(6.0, 1.0), r"^a: expected a share in \[0, 1\), found 1"),
    (lambda: proactive.Course.of([], 100), r"^schedule: expected at least one round"),
    (lambda: proactive.Course.of([(100, 1)], 100), r"^schedule: expected batches of 1 to 99 examples .* 100x1"),
    (lambda: proactive.tightness_probe(100, 10**6, 0.01), r"^epsilon: 0\.01 allows no batch of one example"),
])  # fmt: skip
def test_invalid_arguments_are_rejected(call, message):
    with pytest.raises(ValueError, match=message):
        call()
