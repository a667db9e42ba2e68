import functools
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse, special, stats

from simfl.attacks.statistics import default_guesses, epsilon_lower_bound, guess, judge, p_value, profile_p_value
from simfl.privacy.accounting import Release, epsilon_of

QUICK = settings(max_examples=60, deadline=None)


@st.composite
def counts(draw, most=300):
    canaries = draw(st.integers(1, most))
    guesses = draw(st.integers(0, canaries))
    return draw(st.integers(0, guesses)), guesses, canaries


# -- the published numbers, closed forms ---------------------------------------------------------


@pytest.mark.parametrize(
    ("correct", "guesses", "canaries", "delta", "printed"),
    [(75, 100, 1000, 1e-4, 0.673), (1439, 1510, 100_000, 1e-5, 2.675)],
)
def test_lower_bound_equals_that_of_the_paper(correct, guesses, canaries, delta, printed):
    """Steinke et al. 2023, Appendix D and section 7 (Figure 11), arXiv v1."""
    assert epsilon_lower_bound(correct, guesses, canaries, delta, 0.95) == pytest.approx(printed, abs=1e-3)


@QUICK
@given(count=counts(), epsilon=st.floats(0, 6))
def test_without_delta_the_p_value_is_a_binomial_tail(count, epsilon):
    correct, guesses, canaries = count
    expected = stats.binom.sf(correct - 1, guesses, special.expit(epsilon))
    value = p_value(correct, guesses, canaries, epsilon, 0.0)
    assert value == pytest.approx(expected if expected <= 0.5 else 1.0, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(("guesses", "confidence"), [(2, 0.7), (20, 0.95), (400, 0.99)])
def test_lower_bound_has_a_closed_form_if_all_guesses_are_right(guesses, confidence):
    """(e^epsilon / (1 + e^epsilon))^r = beta has a closed form."""
    root = (1 - confidence) ** (1 / guesses)
    expected = max(0.0, math.log(root / (1 - root)))
    assert epsilon_lower_bound(guesses, guesses, 500, 0.0, confidence) == pytest.approx(expected, rel=1e-6)


@QUICK
@given(count=counts(), epsilon=st.floats(0.01, 6), delta=st.sampled_from([0.0, 1e-6, 1e-4, 1e-2]))
def test_p_value_is_monotone_in_each_argument(count, epsilon, delta):
    correct, guesses, canaries = count
    p = p_value(correct, guesses, canaries, epsilon, delta)
    assert 0.0 <= p <= 1.0
    slack = 1e-12
    if correct:
        assert p_value(correct - 1, guesses, canaries, epsilon, delta) >= p - slack
    assert p_value(correct, guesses, canaries + 50, epsilon, delta) >= p - slack
    assert p_value(correct, guesses, canaries, epsilon, min(1.0, 2 * delta)) >= p - slack
    if 2 * canaries * delta <= 1:  # else the published bound is loose, and not monotone
        assert p_value(correct, guesses, canaries, epsilon * 1.2, delta) >= p - slack


@QUICK
@given(count=counts(), delta=st.sampled_from([0.0, 1e-5, 1e-3]), confidence=st.sampled_from([0.6, 0.95, 0.999]))
def test_lower_bound_is_where_the_p_value_crosses_the_level(count, delta, confidence):
    correct, guesses, canaries = count
    bound = epsilon_lower_bound(correct, guesses, canaries, delta, confidence)
    assert bound >= 0.0
    assert p_value(correct, guesses, canaries, bound * (1 + 1e-6) + 1e-9, delta) >= (1 - confidence) * (1 - 1e-6)
    if bound > 0.0:
        assert p_value(correct, guesses, canaries, bound * (1 - 1e-6), delta) < 1 - confidence
        assert epsilon_lower_bound(correct, guesses, canaries, delta, (1 + confidence) / 2) <= bound
        assert epsilon_lower_bound(correct, guesses, canaries, delta * 3, confidence) <= bound + 1e-9


def test_an_infinite_epsilon_and_no_right_guess_are_never_refuted():
    assert p_value(100, 100, 100, math.inf, 1e-5) == 1.0
    assert p_value(0, 100, 100, 0.0, 0.0) == 1.0
    assert p_value(0, 0, 10, 1.0, 1e-5) == 1.0
    assert profile_p_value(100, 100, 100, [(math.inf, 1e-5)]) == 1.0


# -- the delta term against a brute-force search over what may dominate -----------------------------


@pytest.mark.parametrize("epsilon", [0.2, 0.6, 1.0])
@pytest.mark.parametrize(("correct", "guesses", "canaries", "delta"), [(40, 50, 200, 1e-4), (28, 30, 60, 1e-3)])
def test_delta_term_is_the_best_way_to_spend_a_mean(correct, guesses, canaries, delta, epsilon):
    """The largest P[W + F >= v] over all laws of F >= 0 with mean 2 m delta, as a linear program."""
    failures = np.arange(guesses + 1)
    reached = stats.binom.sf(correct - 1 - failures, guesses, special.expit(epsilon))
    solution = optimize.linprog(
        -reached, A_ub=[failures], b_ub=[2 * canaries * delta], A_eq=[np.ones(guesses + 1)], b_eq=[1.0]
    )
    assert p_value(correct, guesses, canaries, epsilon, delta) == pytest.approx(-solution.fun, rel=1e-6)


def test_delta_term_equals_simulated_failures():
    """W + F drawn: F = i with probability 2 m delta / i, at the best i."""
    correct, guesses, canaries, epsilon, delta = 85, 100, 1000, 1.0, 1e-4
    generator, trials = np.random.default_rng(0), 400_000
    w = generator.binomial(guesses, special.expit(epsilon), trials)
    largest = 0.0
    for i in range(1, 40):
        failed = generator.random(trials) < 2 * canaries * delta / i
        largest = max(largest, float(np.mean(w + i * failed >= correct)))
    assert p_value(correct, guesses, canaries, epsilon, delta) == pytest.approx(largest, rel=0.06)
    assert largest > 2 * np.mean(w >= correct)


# -- both tests against the worst of all mechanisms ------------------------------------------------


@functools.cache
def worst_mechanism(canaries, guesses, points):
    """Return [P(v or more right)] for v = 0..r, each maximised over all mechanisms with the given (epsilon, delta).

    A mechanism from coins {-1, 1}^m to guesses with r entries other than 0 is a stochastic matrix, privacy is
    linear: for neighbors s, s' and every point, sum_t (M[s, t] - e^epsilon M[s', t])_+ <= delta.
    """
    coins = list(itertools.product((-1, 1), repeat=canaries))
    outputs = [t for t in itertools.product((-1, 0, 1), repeat=canaries) if np.count_nonzero(t) == guesses]
    size = len(coins) * len(outputs)
    at = {s: k * len(outputs) for k, s in enumerate(coins)}
    pairs = [(s, (*s[:i], -s[i], *s[i + 1 :])) for s in coins for i in range(canaries)]
    slacks = len(pairs) * len(points) * len(outputs)
    rows, columns, values, bounds = [], [], [], []
    slack = size
    for (s, other), (epsilon, delta) in itertools.product(pairs, points):
        for t in range(len(outputs)):
            row = len(bounds)
            rows += [row] * 3
            columns += [at[s] + t, at[other] + t, slack + t]
            values += [1.0, -math.exp(epsilon), -1.0]
            bounds.append(0.0)
        rows += [len(bounds)] * len(outputs)
        columns += range(slack, slack + len(outputs))
        values += [1.0] * len(outputs)
        bounds.append(delta)
        slack += len(outputs)
    inequality = sparse.csr_matrix((values, (rows, columns)), shape=(len(bounds), size + slacks))
    whole = sparse.kron(sparse.eye(len(coins)), np.ones((1, len(outputs))))
    equality = sparse.hstack([whole, sparse.csr_matrix((len(coins), slacks))])
    right = np.array([[sum(a == b for a, b in zip(s, t, strict=True)) for t in outputs] for s in coins])
    tails = [1.0]
    for correct in range(1, guesses + 1):
        gain = np.concatenate(((right >= correct).ravel() / len(coins), np.zeros(slacks)))
        solution = optimize.linprog(-gain, A_ub=inequality, b_ub=bounds, A_eq=equality, b_eq=np.ones(len(coins)))
        assert solution.success
        tails.append(-solution.fun)
    return tails


@pytest.mark.parametrize(("canaries", "guesses"), [(1, 1), (2, 1), (2, 2), (3, 2), (3, 3)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.05), (0.5, 0.0), (0.5, 0.01), (1.0, 0.05), (2.0, 0.1)])
def test_no_private_mechanism_beats_the_bounds(canaries, guesses, epsilon, delta):
    for correct, worst in enumerate(worst_mechanism(canaries, guesses, ((epsilon, delta),))):
        assert worst <= p_value(correct, guesses, canaries, epsilon, delta) + 1e-7
        assert worst <= profile_p_value(correct, guesses, canaries, [(epsilon, delta)]) + 1e-5


def test_no_mechanism_with_a_whole_curve_beats_the_profile_test():
    points = ((0.0, 0.3), (0.5, 0.15), (1.5, 0.02))
    for canaries, guesses in ((2, 2), (3, 2), (3, 3)):
        for correct, worst in enumerate(worst_mechanism(canaries, guesses, points)):
            value = profile_p_value(correct, guesses, canaries, points)
            assert worst <= value + 1e-5
            assert value <= min(profile_p_value(correct, guesses, canaries, [point]) for point in points) + 1e-9


@pytest.mark.parametrize("canaries", [1, 2, 3])
def test_randomized_response_attains_the_pure_bound(canaries):
    for correct, worst in enumerate(worst_mechanism(canaries, canaries, ((0.7, 0.0),))):
        assert worst == pytest.approx(stats.binom.sf(correct - 1, canaries, special.expit(0.7)), rel=1e-6)
        if worst <= 0.5:
            assert worst == pytest.approx(p_value(correct, canaries, canaries, 0.7, 0.0), rel=1e-6)


def worst_by_count(correct, guesses, canaries, epsilon, delta):
    """Return P[v or more right], maximised over mechanisms that treat all coins alike, for many canaries.

    A random set of r canaries is guessed; p_k is the probability of k right. Flipping a coin among the r turns k
    right guesses into k - 1 or k + 1, so that privacy is linear in p again.
    """
    k = np.arange(guesses)
    up, down = (k + 1) / guesses, (guesses - k) / guesses  # share of p_{k+1}, p_k in which this coin decides
    rows = np.zeros((2 * guesses + 1, 3 * guesses + 1))
    rows[k, k + 1], rows[k, k] = up, -math.exp(epsilon) * down
    rows[guesses + k, k], rows[guesses + k, k + 1] = down, -math.exp(epsilon) * up
    rows[np.arange(2 * guesses), guesses + 1 + np.arange(2 * guesses)] = -1.0
    rows[-1, guesses + 1 :] = 1.0
    limits = np.append(np.zeros(2 * guesses), delta * canaries / guesses)
    whole = np.append(np.ones(guesses + 1), np.zeros(2 * guesses))[None]
    gain = np.append(np.arange(guesses + 1) >= correct, np.zeros(2 * guesses))
    return -optimize.linprog(-gain, A_ub=rows, b_ub=limits, A_eq=whole, b_eq=[1.0]).fun


@pytest.mark.parametrize(("guesses", "canaries"), [(5, 5), (20, 200), (60, 120)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-3), (0.5, 1e-4), (1.5, 1e-2)])
def test_no_mechanism_with_many_canaries_beats_the_bounds(guesses, canaries, epsilon, delta):
    for correct in np.unique(np.linspace(guesses // 2, guesses, 7).astype(int)).tolist():
        worst = worst_by_count(correct, guesses, canaries, epsilon, delta)
        assert worst <= p_value(correct, guesses, canaries, epsilon, delta) + 1e-7
        assert worst <= profile_p_value(correct, guesses, canaries, [(epsilon, delta)]) + 1e-5


def test_the_formula_of_the_paper_fails_without_evidence():
    """Wrong on both of two canaries: a private mechanism can avoid this more often than W + F implies."""
    worst = worst_mechanism(2, 2, ((2.0, 0.1),))[1]
    a0 = (1 - 0.1 * (2 + math.exp(2))) / (1 + math.exp(2) * (2 + math.exp(2)))  # a1 = e^2 a0 + 0.1, a2 = e^2 a1
    assert worst == pytest.approx(1 - a0, rel=1e-6)
    assert worst == pytest.approx(worst_by_count(1, 2, 2, 2.0, 0.1), rel=1e-6)
    both_wrong = (1 - special.expit(2.0)) ** 2
    assert worst > 1 - both_wrong + 2 * 2 * 0.1 * both_wrong
    assert p_value(1, 2, 2, 2.0, 0.1) == 1.0


# -- Gaussian mechanisms ------------------------------------------------------------------------------


@functools.cache
def gaussian_profile(mu):
    """The certified curve of one Gaussian release of sensitivity 1 and noise 1/mu."""
    deltas = np.geomspace(1e-7, 0.9, 30)
    return tuple((epsilon_of([(Release(1 / mu), 1)], float(delta)), float(delta)) for delta in deltas)


def gaussian_audit(mu, canaries, seed, guesses=None, claimed=None, delta=1e-5):
    """Audit m Gaussian releases of one coin each, of noise 1/mu."""
    generator = np.random.default_rng(seed)
    included = generator.random(canaries) < 0.5
    scores = included + generator.standard_normal(canaries) / mu
    numbers = guesses or [default_guesses(canaries)]
    return judge(scores, included, numbers, delta=delta, profile=gaussian_profile(claimed or mu))


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_a_gaussian_is_not_refuted_and_its_bound_is_below_its_epsilon(mu):
    exact = epsilon_of([(Release(1 / mu), 1)], 1e-5)
    verdicts = [gaussian_audit(mu, 1000, seed) for seed in range(40)]
    assert sum(verdict.p_value < 0.05 for verdict in verdicts) <= 5  # 2 expected at most; 6 or more: 1.4 %
    assert sum(verdict.lower_bound > exact for verdict in verdicts) == 0
    assert np.median([verdict.lower_bound for verdict in verdicts]) > 0.3 * exact


def test_bounds_hold_at_the_limit_of_privacy():
    """Randomized response with failures, at the epsilon and delta it has: wrong in 5 % of audits at most."""
    epsilon, delta, canaries, guesses = 1.0, 1e-3, 200, 60
    generator = np.random.default_rng(1)
    above = refuted = 0
    for _ in range(300):
        included = generator.random(canaries) < 0.5
        revealed = generator.random(canaries) < delta
        honest = generator.random(canaries) < special.expit(epsilon)
        said = np.where(revealed | honest, included, ~included)
        scores = np.where(said, 1.0, -1.0) * np.where(revealed, 2.0, 1.0)
        verdict = judge(scores, included, [guesses], delta=delta, profile=[(epsilon, delta)])
        above += verdict.lower_bound > epsilon
        refuted += verdict.p_value < 0.05
    assert above <= 22  # 15 expected at most; 23 or more: 3 %
    assert refuted <= 22


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_half_the_noise_is_refuted_by_the_curve(mu):
    p_values = [gaussian_audit(mu, 2000, seed, claimed=mu / 2).p_value for seed in range(10)]
    assert np.median(p_values) < 0.02
    assert sum(p < 0.05 for p in p_values) >= 8


@pytest.mark.parametrize("correct", [70, 80, 90, 100])
@pytest.mark.parametrize("delta", [1e-6, 1e-4, 1e-3])
@pytest.mark.parametrize("mu", [0.25, 1.0])
def test_the_curve_refutes_what_one_of_its_points_refutes(correct, delta, mu):
    """So that a lower bound above the certified epsilon comes with a refutation."""
    epsilon = epsilon_of([(Release(1 / mu), 1)], delta)
    profile = [*gaussian_profile(mu), (epsilon, delta)]
    one = p_value(correct, 100, 1000, epsilon, delta)
    assert profile_p_value(correct, 100, 1000, profile) <= one * (1 + 1e-4)


# -- guesses ------------------------------------------------------------------------------------------


def test_guesses_are_on_the_extreme_scores():
    scores = np.array([0.3, -2.0, 5.0, 0.1, 0.0, -0.5, 4.0])
    np.testing.assert_array_equal(guess(scores, 4), [0, -1, 1, 0, 0, -1, 1])
    np.testing.assert_array_equal(guess(scores, 5), [1, -1, 1, 0, 0, -1, 1])
    np.testing.assert_array_equal(guess(scores, 0), np.zeros(7))
    assert np.count_nonzero(guess(scores, 7)) == 7
    assert guess(scores, 1).tolist() == [0, 0, 1, 0, 0, 0, 0]


@QUICK
@given(canaries=st.integers(1, 10**6))
def test_default_guesses_are_near_an_eighth_of_the_canaries(canaries):
    guesses = default_guesses(canaries)
    assert 1 <= guesses <= canaries
    assert guesses == pytest.approx(max(canaries / 8, min(canaries / 2, 100)), abs=1.01)


def test_several_numbers_of_guesses_share_the_error():
    generator = np.random.default_rng(3)
    included = generator.random(400) < 0.5
    scores = 2.0 * included + generator.standard_normal(400)
    profile = gaussian_profile(1.0)
    numbers = [20, 50, 100, 200]
    alone = [judge(scores, included, [n], delta=1e-5, profile=profile, confidence=1 - 0.05 / 4) for n in numbers]
    together = judge(scores, included, numbers, delta=1e-5, profile=profile, confidence=0.95)
    assert together.lower_bound == max(verdict.lower_bound for verdict in alone)
    assert together.p_value == pytest.approx(min(1.0, 4 * min(verdict.p_value for verdict in alone)))
    assert together.guesses in numbers
    assert together.canaries == 400


def test_right_guesses_are_counted():
    included = np.array([True, True, False, False])
    assert judge(np.array([3.0, 2.0, -1.0, -2.0]), included, [4], delta=0.0).correct == 4
    assert judge(np.array([-3.0, 2.0, -1.0, 5.0]), included, [2], delta=0.0).correct == 0
    assert judge(np.array([-3.0, 2.0, -1.0, 5.0]), included, [2], delta=0.0).p_value == 1.0


@pytest.mark.parametrize(("arguments", "message"), [
    ((5, 4, 10, 1.0, 0.0), "correct: expected an integer from 0 to 4"),
    ((1, 11, 10, 1.0, 0.0), "guesses: expected an integer from 0 to 10, the canaries, found 11"),
    ((0, 0, 0, 1.0, 0.0), "canaries: expected an integer >= 1"),
    ((1, 4, 10, -1.0, 0.0), "epsilon: expected a number >= 0"),
    ((1, 4, 10, math.nan, 0.0), "epsilon: expected a number >= 0"),
    ((1, 4, 10, 1.0, 2.0), r"delta: expected a number in \[0, 1\]"),
])  # fmt: skip
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        p_value(*arguments)


def test_wrong_profiles_and_confidences_are_refused():
    with pytest.raises(ValueError, match="confidence: expected a number between 0 and 1"):
        epsilon_lower_bound(1, 4, 10, 0.0, 1.0)
    with pytest.raises(ValueError, match="profile: expected pairs"):
        profile_p_value(1, 4, 10, [(1.0, -1e-5)])
    with pytest.raises(ValueError, match="guess_numbers: expected one number"):
        judge(np.zeros(4), np.zeros(4, bool), [], delta=0.0)
