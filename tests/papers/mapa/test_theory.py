import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.errors import ConditionError
from simfl.papers.mapa.theory import (
    AsynchronousProblem,
    audp_sensitivity,
    audp_step_size,
    clipping_norm,
    coefficient,
    failure_probability,
    initial_sensitivity,
    noise_second_moment,
    printed_epsilon,
    radius_only_delta,
    stage_steps,
    stages,
    theorem2,
    total,
)
from simfl.privacy.noise import SAMPLERS
from simfl.streams import Streams

#: The defaults of the paper's Figure 9, with the published code's f(x_1) - f* = 50.
PAPER = AsynchronousProblem(
    sampling_std=30.0, batch_size=12, smoothness=10.0, staleness=5, initial_gap=50.0, dimension=7850
)
INITIAL = initial_sensitivity(30.0, 12, 1e-3)

problems = st.builds(
    AsynchronousProblem,
    sampling_std=st.floats(0.1, 100.0),
    batch_size=st.integers(1, 256),
    smoothness=st.floats(0.1, 100.0),
    staleness=st.integers(0, 200),
    initial_gap=st.floats(0.1, 1000.0),
    dimension=st.integers(1, 100_000),
)
moments = st.sampled_from(["paper", "exact"])


# -- noise ------------------------------------------------------------------------------------------


def test_second_moments_match_the_formulas():
    assert noise_second_moment(0.5, 0.1, 7850, "paper") == pytest.approx(2 * 25.0, rel=1e-12)
    assert noise_second_moment(0.5, 0.1, 7850) == pytest.approx(7850 * 7851 * 25.0, rel=1e-12)
    assert noise_second_moment(0.5, 0.1, 1) == noise_second_moment(0.5, 0.1, 1, "paper")
    assert PAPER.variance(INITIAL, 0.1) == pytest.approx(75.0 + 2 * (INITIAL / 0.1) ** 2, rel=1e-12)


@pytest.mark.parametrize(("name", "second_moment"), [("laplace_l2", "exact"), ("laplace_l2_radius_only", "paper")])
def test_each_second_moment_belongs_to_a_sampler(name, second_moment):
    import jax
    import jax.numpy as jnp

    d, key = 6, jnp.asarray(Streams(0).key("noise"))
    draw = jax.jit(jax.vmap(lambda i: SAMPLERS[name](key, jnp.int32(0), i, d)))
    squared_norms = (np.asarray(draw(np.arange(40_000)), np.float64) ** 2).sum(axis=1)
    expected = noise_second_moment(1.0, 1.0, d, second_moment)
    assert squared_norms.mean() == pytest.approx(
        expected, abs=4.5 * squared_norms.std() / math.sqrt(len(squared_norms))
    )


def test_delta_of_the_published_sampler_is_exact_to_six_digits():
    assert radius_only_delta(2, 0.1) == pytest.approx(0.0922037, abs=5e-8)
    assert radius_only_delta(10, 1.0) == pytest.approx(0.7647104, abs=5e-8)
    assert radius_only_delta(784, 0.1) == pytest.approx(0.8198822, abs=5e-8)
    assert radius_only_delta(10**6, 0.01) == pytest.approx(0.9857762, abs=5e-8)
    deltas = [radius_only_delta(d, nominal) for d in (2, 10, 256, 784, 7850) for nominal in (0.1, 1.0)]
    by_draws = [0.093, 0.356, 0.262, 0.767, 0.681, 0.995, 0.821, 0.9997, 0.979, 1.000]  # of the formula sheet
    assert deltas == pytest.approx(by_draws, abs=0.003)


@pytest.mark.parametrize(
    ("d", "nominal", "epsilon"), [(2, 1.0, 1.0), (2, 20.0, 5.0), (3, 5.0, 5.0), (10, 1.0, 3.0), (40, 0.3, 0.3)]
)
def test_the_integral_agrees_with_drawn_privacy_losses(d, nominal, epsilon):
    generator, count = np.random.default_rng(0), 100_000
    r = generator.exponential(size=count)
    cosine = 1 - 2 * generator.beta((d - 1) / 2, (d - 1) / 2, size=count)
    other = np.sqrt(r**2 - 2 * r * nominal * cosine + nominal**2)
    loss = (d - 1) * np.log(other / r) + other - r
    drawn = np.maximum(0.0, -np.expm1(epsilon - loss))
    delta = radius_only_delta(d, nominal, epsilon)
    assert delta == pytest.approx(drawn.mean(), abs=4.5 * drawn.std() / math.sqrt(count))


def test_in_one_dimension_the_published_sampler_is_laplace():
    assert radius_only_delta(1, 0.7) == 0.0
    p, rest = 1 - math.exp(-0.25) / 2, math.exp(-0.75) / 2  # above x = 0.5, of Laplace at 0.5 + 0.25 and at -0.25
    assert radius_only_delta(1, 1.0, 0.5) == pytest.approx(p - math.exp(0.5) * rest, rel=1e-12)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(d=st.integers(2, 10**6), nominal=st.floats(0.001, 30.0), factor=st.floats(0.0, 3.0))
def test_no_epsilon_repairs_the_published_sampler(d, nominal, factor):
    delta = radius_only_delta(d, nominal, factor * nominal)
    assert 0.0 < delta <= 1.0
    assert radius_only_delta(d + 1, nominal, factor * nominal) >= delta - 1e-8
    assert radius_only_delta(d, nominal, factor * nominal + 1.0) <= delta + 1e-8


# -- the sensitivity to begin with --------------------------------------------------------------------


def test_theorem_3_has_the_papers_numbers():
    assert pytest.approx(223.578838, abs=5e-7) == INITIAL
    assert clipping_norm(INITIAL, 12) == pytest.approx(1341.473, abs=5e-4)
    assert failure_probability(INITIAL, 30.0, 12) == pytest.approx(1e-3, rel=1e-9)
    assert failure_probability(5.0, 30.0, 12) == 1.0  # 2 sigma / b
    assert failure_probability(4.0, 30.0, 12) == 1.0
    assert audp_sensitivity(4.0, 12) == pytest.approx(8 / 12, rel=1e-12)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(sigma=st.floats(0.01, 100.0), b=st.integers(1, 1000), log_delta=st.floats(-25.0, -0.01))
def test_failure_probability_inverts_theorem_3(sigma, b, log_delta):
    delta = math.exp(log_delta)
    sensitivity = initial_sensitivity(sigma, b, delta)
    assert failure_probability(sensitivity, sigma, b) == pytest.approx(delta, rel=1e-9)


# -- stages -------------------------------------------------------------------------------------------

TABLE = [
    # dS, clipping norm, Delta_b, P, gamma, T_s, Table 2's rule
    (223.578838, 1341.473, 9997574.37, 7.407463, 0.00112500, 1, 526.98),
    (111.789419, 670.737, 2499449.84, 7.407630, 0.00112497, 2, 263.49),
    (55.894710, 335.368, 624918.71, 7.408297, 0.00112487, 7, 131.75),
    (27.947355, 167.684, 156285.93, 7.410964, 0.00112446, 26, 65.89),
    (13.973677, 83.842, 39127.73, 7.421633, 0.00112285, 102, 32.97),
]


def test_stages_match_the_table():
    computed = stages(PAPER, 0.1, initial=INITIAL, count=5)
    for stage, row in zip(computed, TABLE, strict=True):
        assert stage.sensitivity == pytest.approx(row[0], abs=5e-7)
        assert stage.clipping_norm == pytest.approx(row[1], abs=5e-4)
        assert stage.variance == pytest.approx(row[2], abs=5e-3)
        assert stage.coefficient == pytest.approx(row[3], abs=5e-7)
        assert stage.step_size == pytest.approx(row[4], abs=1e-8)
        assert stage.steps == row[5]
        assert stage.table2_sensitivity == pytest.approx(row[6], abs=5e-3)
    assert [stage.first_step for stage in computed] == [1, 2, 4, 11, 37]
    assert [stage.number for stage in computed] == [1, 2, 3, 4, 5]
    # two numbers that the sheet rounds differently stay within one unit of its last digit
    assert computed[0].step_size == pytest.approx(0.0011249916, abs=5e-11)


def test_the_recipe_is_vacuous_in_high_dimension():
    (first,) = stages(PAPER, 0.1, initial=INITIAL, count=1, second_moment="exact")
    assert first.coefficient == pytest.approx(2.28e8, rel=2e-3)
    assert first.steps == pytest.approx(1.2e7, rel=2e-2)
    for sensitivity in (1e-3, 1.0, 1e3):
        p = coefficient(PAPER, PAPER.variance(sensitivity, 0.1, "exact"), sensitivity, 0.5)
        assert p >= 8 * 7850 * 7851 / (6 * 144 * 0.01 * 0.25)


def test_stages_cover_the_steps_of_a_run():
    computed = stages(PAPER, 0.1, initial=INITIAL, steps=138)
    assert [stage.steps for stage in computed] == [1, 2, 7, 26, 102]
    assert len(stages(PAPER, 0.1, initial=INITIAL, steps=139)) == 6
    assert len(stages(PAPER, 0.1, initial=INITIAL, steps=15_000)) == 9


def test_table_2s_rule_makes_the_sensitivity_grow():
    computed = stages(PAPER, 0.1, initial=INITIAL, count=3, rule="table2")
    assert [stage.sensitivity for stage in computed] == pytest.approx([223.578838, 526.982352, 1242.110154], abs=5e-7)
    # with P of the first dS
    assert computed[1].coefficient == pytest.approx(
        8 * computed[1].variance / (6 * (12 * INITIAL * 0.5) ** 2), rel=1e-12
    )


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    problem=problems,
    epsilon=st.floats(0.01, 10.0),
    theta=st.floats(0.05, 0.95),
    second_moment=moments,
    initial=st.floats(0.1, 100.0),
)
def test_stages_satisfy_theorem_4(problem, epsilon, theta, second_moment, initial):
    for stage in stages(problem, epsilon, initial=initial, theta=theta, count=3, second_moment=second_moment):
        assert stage.coefficient >= 1.0
        # Theorem 4 after T_s steps, 2 (f(x_1) - f*)/(T gamma) + 2 Delta_b L gamma, is what the next dS is made from
        bound = 2 * problem.initial_gap / (stage.steps * stage.step_size)
        bound += 2 * stage.variance * problem.smoothness * stage.step_size
        assert math.sqrt(bound) <= stage.gradient_bound * (1 + 1e-9)
        if stage.coefficient > 1.0:  # text and Algorithm 1 agree
            assert stage.text_sensitivity == pytest.approx(theta * stage.sensitivity, rel=1e-9)
        else:
            assert stage.text_sensitivity <= theta * stage.sensitivity * (1 + 1e-9)


def test_text_and_algorithm_1_agree_where_p_is_above_1():
    one, two = (stages(PAPER, 0.1, initial=INITIAL, count=4, rule=rule) for rule in ("algorithm1", "text"))
    for a, b in zip(one, two, strict=True):
        assert a.sensitivity == pytest.approx(b.sensitivity, rel=1e-9)
    quiet = replace(PAPER, sampling_std=1.0, batch_size=100)  # P = 1: the text's rule falls faster
    a, b = (stages(quiet, 10.0, initial=10.0, count=2, rule=rule)[1] for rule in ("algorithm1", "text"))
    assert b.sensitivity < 0.5 * a.sensitivity


# -- step sizes ---------------------------------------------------------------------------------------


def test_step_sizes_match_10_and_11():
    assert audp_step_size(PAPER, 99.0, 1) == pytest.approx(0.0142857, abs=5e-8)
    assert audp_step_size(PAPER, 99.0, 4) == pytest.approx(1 / (60 + 20), rel=1e-12)
    assert audp_step_size(PAPER, 99.0, 4, without_logarithm=True) == pytest.approx(1 / (370 + 20), rel=1e-12)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(problem=problems, variance=st.floats(0.0, 1e6), step=st.integers(1, 10**6))
def test_remark_2_holds_with_its_sign_corrected(problem, variance, step):
    """(11) satisfies gamma_t - L gamma_t² - L (tau+1)² gamma_t² >= 0; the paper prints <= 0."""
    gamma = audp_step_size(problem, variance, step, without_logarithm=True)
    squares = problem.smoothness * (1 + (problem.staleness + 1) ** 2) * gamma**2
    assert gamma - squares >= -1e-12 * gamma
    assert 0 < gamma <= audp_step_size(problem, variance, step) < 1 / problem.smoothness


# -- convergence --------------------------------------------------------------------------------------


def test_theorem_2_matches_a_calculation_by_hand():
    theorem = theorem2(PAPER, 99.0, radius=50.0, gradient_bound=4.0, steps=10_000)
    assert theorem.delay == pytest.approx(50 * 4 * 5 / 1e4, rel=1e-12)
    growth = 10 * (99 + 16) / 200 * 36 / 1e4
    assert theorem.drift == pytest.approx(growth * (1 + math.log(1e4)), rel=1e-12)
    assert theorem.rest == pytest.approx(((4 + 2500) * 10 + 2500 * 70) / 200, rel=1e-12)
    assert theorem.bound == pytest.approx(theorem.delay + theorem.drift + theorem.rest, rel=1e-12)
    assert theorem.bound - theorem.claimed == pytest.approx(growth, rel=1e-6)


def test_the_sum_in_theorem_2_needs_1_plus_ln_t():
    """sum_t gamma_t² <= (1 + ln T)/(Delta_b + 1); with ln T it fails, at T = 1 first of all."""
    steps = np.arange(1, 1001)
    squares = np.cumsum(1 / (100.0 * steps))
    assert (squares <= (1 + np.log(steps)) / 100.0 + 1e-15).all()
    assert (squares > np.log(steps) / 100.0).all()


# -- privacy ------------------------------------------------------------------------------------------


def test_total_has_the_papers_and_the_exact_numbers():
    totals = total(0.1, 3000, sampling_rate=12 / 12_000)
    assert totals.basic == pytest.approx(300.0, rel=1e-12)
    assert totals.amplified == pytest.approx(1.05165388e-4, rel=1e-8)
    assert totals.amplified_basic == pytest.approx(0.315496164, rel=1e-8)
    assert totals.advanced == pytest.approx(57.8338843, rel=1e-8)
    assert totals.amplified_advanced == pytest.approx(0.0276733886, rel=1e-8)
    assert totals.certified == pytest.approx(37.5446469, rel=1e-8)
    assert totals.amplified_certified == pytest.approx(0.0146766561, rel=1e-8)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(epsilon=st.floats(0.01, 3.0), releases=st.integers(0, 500), q=st.floats(0.001, 1.0))
def test_totals_are_ordered(epsilon, releases, q):
    totals = total(epsilon, releases, sampling_rate=q)
    assert totals.amplified <= epsilon * (1 + 1e-12)
    assert totals.certified <= min(totals.basic, totals.advanced) * (1 + 1e-12)
    assert totals.amplified_certified <= min(totals.amplified_basic, totals.amplified_advanced) * (1 + 1e-12)
    assert totals.amplified_certified <= totals.certified * (1 + 1e-9)


# -- wrong arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "message"), [
    (lambda: replace(PAPER, batch_size=0), "batch_size: expected an integer >= 1, found 0"),
    (lambda: replace(PAPER, dimension=0), "dimension: expected an integer >= 1, found 0"),
    (lambda: replace(PAPER, smoothness=0.0), "smoothness: expected a finite number > 0, found 0"),
    (lambda: replace(PAPER, staleness=-1), "staleness: expected a finite number >= 0, found -1"),
    (lambda: replace(PAPER, sampling_std=math.nan), "sampling_std: expected a finite number >= 0, found nan"),
    (lambda: PAPER.variance(1.0, 0.0), "epsilon: expected a finite number > 0, found 0"),
    (lambda: PAPER.variance(1.0, 0.1, "some"), "second_moment: expected paper or exact, found 'some'"),
    (lambda: initial_sensitivity(30.0, 12, 1.0), r"failure_probability: expected a number in \(0, 1\), found 1"),
    (lambda: coefficient(PAPER, 9.0, 1.0, 1.0), r"theta: expected a number in \(0, 1\), found 1"),
    (lambda: stages(PAPER, 0.1, initial=1.0), "expected either steps or count"),
    (lambda: stages(PAPER, 0.1, initial=1.0, steps=5, count=5), "expected either steps or count"),
    (lambda: stages(PAPER, 0.1, initial=1.0, steps=0), "steps: expected an integer >= 1, found 0"),
    (lambda: stages(PAPER, 0.1, initial=0.0, count=1), "sensitivity: expected a finite number > 0, found 0"),
    (lambda: stages(PAPER, 0.1, initial=1.0, count=1, rule="some"), "rule: expected algorithm1, text or table2"),
    (lambda: audp_step_size(PAPER, 9.0, 0), "step: expected an integer >= 1, found 0"),
    (lambda: radius_only_delta(2, 400.0), "nominal_epsilon: expected a number from 1e-09 to 300, found 400"),
    (lambda: radius_only_delta(2, 1.0, -1.0), "epsilon: expected a number from 0 to 300, found -1"),
])  # fmt: skip
def test_wrong_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_stage_of_infinite_length_is_a_violated_condition():
    with pytest.raises(ConditionError, match=r"\(15\) asks for T_s = inf updates"):
        stage_steps(PAPER, 1.0, 1e200)


def test_one_example_turns_a_clipped_mean_round():
    """Two batches that differ in one example: clipped as a whole, the means differ by b dS; clipped each, by dS."""
    b, sensitivity = 12, 0.5
    norm = clipping_norm(sensitivity, b)

    def clip(vector):
        return vector / max(1.0, np.linalg.norm(vector) / norm)

    shared = np.full((b - 1, 1), 1e-9)
    batches = [np.vstack([shared, [[sign * 1e6]]]) for sign in (1, -1)]
    whole = [clip(batch.mean(axis=0)) for batch in batches]
    each = [np.mean([clip(one) for one in batch], axis=0) for batch in batches]
    assert np.linalg.norm(whole[0] - whole[1]) == pytest.approx(b * sensitivity)
    assert np.linalg.norm(each[0] - each[1]) == pytest.approx(sensitivity)
    # The loss of a release is the distance over the noise's scale dS/epsilon.
    assert printed_epsilon(0.1, b) == pytest.approx(b * sensitivity / (sensitivity / 0.1)) == pytest.approx(1.2)
