import ast
import itertools
import math
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.errors import ConditionError
from simfl.papers.async_fl import sizes as sequences
from simfl.papers.async_fl.sizes import (
    ConstantSizes,
    DelaySizes,
    OverLogSizes,
    PolynomialSizes,
    RoundSteps,
    ShiftedPowerSizes,
    StronglyConvexRecipe,
    ceiling,
    gate_delay,
    largest_delay,
)

QUICK = settings(max_examples=40, deadline=None, derandomize=True)

EXAMPLES = [
    ConstantSizes(16),
    PolynomialSizes(50, 0.25),
    PolynomialSizes(1.5, 1.0, b=3, start=0),
    OverLogSizes(50),
    ShiftedPowerSizes(1.3216327772, 12.10623728),
    DelaySizes(1.5, lambda z: 2.0, 3, 1),
    StronglyConvexRecipe(1.0, 1.0, 5800).sizes,
]


def one(z):
    return 1.0


def root_like(z):
    return max(1.0, z**0.3)


def logarithm(z):
    return max(8.0, 4.0 * math.log(max(z, 1.0)))


# -- sizes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("power", "rounds"), [(0.0, 400), (0.25, 144), (0.5, 71), (0.75, 42), (1.0, 28)])
def test_powers_need_the_rounds_of_figure_3(power, rounds):
    """Sizes 50 i^c from i = 1, until 20,000 gradients."""
    assert PolynomialSizes(50, power).rounds_for(20000) == rounds


def test_i_over_log_needs_the_rounds_of_figure_3():
    sizes = OverLogSizes(50)
    assert sizes.rounds_for(20000) == 51
    assert sizes.first(3) == [145, 137, 145], "it falls once, then it grows"


def test_constant_sizes_need_the_rounds_of_table_3():
    """20,000 iterations of 5 clients; the paper cuts 20000 / (5 * 700) = 5.7 to 6 rounds."""
    assert [ConstantSizes(5 * s).rounds_for(20000) for s in (50, 100, 200, 500, 700, 1000)] == [80, 40, 20, 8, 6, 4]


def test_first_size_of_example_3_is_exact():
    """Example 3: s_0 = 16 exactly, though N q m is 16.000000000000004 or the like in floating point."""
    q = 0.00013216327772100012
    m = 16 / (10000 * q)
    sizes = ShiftedPowerSizes(10000 * q, m)
    assert sizes.first(4) == [16, 18, 19, 20]
    assert [sizes.size(i) for i in range(183)] == [16 + math.ceil(10000 * q * i) for i in range(183)]
    assert sizes.rounds_for(25000) == 183
    assert sizes.total(183) == 25027


@pytest.mark.parametrize("sizes", EXAMPLES, ids=lambda s: type(s).__name__)
def test_totals_are_sums_and_rounds_invert_them(sizes):
    assert sizes.total(0) == 0
    assert list(itertools.accumulate(sizes.first(60))) == [sizes.total(i) for i in range(1, 61)]
    for gradients in (0, 1, sizes.total(7), sizes.total(7) + 1, 2500, 2500.5):
        rounds = sizes.rounds_for(gradients)
        assert sizes.total(rounds) >= gradients
        assert rounds == 0 or sizes.total(rounds - 1) < gradients


@pytest.mark.parametrize("sizes", EXAMPLES, ids=lambda s: type(s).__name__)
def test_earlier_calls_change_nothing(sizes):
    assert sizes.size(40) == sizes.first(41)[-1]
    if not isinstance(sizes, DelaySizes):
        fresh = pickle.loads(pickle.dumps(sizes))
        assert fresh == sizes
        assert hash(fresh) == hash(sizes)
    assert "_totals" not in repr(sizes)


def test_constant_sizes_need_no_table():
    sizes = ConstantSizes(7)
    assert sizes.total(10**15) == 7 * 10**15
    assert sizes.rounds_for(7 * 10**15 + 1) == 10**15 + 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [(16.000000000000004, 16), (15.999999999999996, 16), (16.0001, 17), (0.0, 0), (1e6 + 1e-3, 1_000_001), (1e-9, 1)],
)
def test_ceiling_ignores_only_the_last_bits(value, expected):
    assert ceiling(value) == expected


@pytest.mark.parametrize(("make", "message"), [
    (lambda: ConstantSizes(0), r"s: expected an integer >= 1, found 0"),
    (lambda: ConstantSizes(1.5), r"s: expected an integer >= 1, found 1.5"),
    (lambda: PolynomialSizes(50, start=0), r"at least 1 example in every round, found 0 in round 0"),
    (lambda: PolynomialSizes(-1), r"a: expected a finite number >= 0, found -1"),
    (lambda: PolynomialSizes(1, math.nan), r"c: expected a finite number >= 0, found nan"),
    (lambda: OverLogSizes(1, start=1), r"start: expected an integer >= 2, found 1"),
    (lambda: ShiftedPowerSizes(0.0, 1.0), r"s: expected a finite number > 0, found 0"),
    (lambda: ShiftedPowerSizes(1.0, 0.0), r"at least 1 example in every round"),
    (lambda: ConstantSizes(1).size(-1), r"i: expected an integer >= 0, found -1"),
    (lambda: PolynomialSizes(1).rounds_for(math.inf), r"gradients: expected a finite number >= 0, found inf"),
    (lambda: ConstantSizes(1).rounds_for(-1), r"gradients: expected a finite number >= 0, found -1"),
    (lambda: StronglyConvexRecipe(1.0, 2.0, 100), r"strong_convexity: expected a number in \(0, L = 1\]"),
    (lambda: gate_delay(ConstantSizes(1), 2, 1), r"i: expected an integer >= 2, found 1"),
])  # fmt: skip
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# -- Lemma 1, condition (3), Theorem 5 -------------------------------------------------------


def violated(sizes, d, rounds):
    """The first round in which a model may lack more than tau allows, (3): tau(s_0 + ... + s_i) >= s_(i-d) + ... ."""
    lacks = ((i, gate_delay(sizes, d, i)) for i in range(d + 1, rounds))
    return next((i for i, most in lacks if sizes.delay(sizes.total(i + 1)) < most), None)


@QUICK
@given(
    m=st.integers(0, 5000),
    d=st.integers(0, 6),
    g=st.sampled_from([1.5, 2.0, 2.5, 4.0]),
    gam=st.sampled_from([one, root_like, logarithm]),
)
def test_sizes_of_lemma_1_satisfy_condition_3(m, d, g, gam):
    """The lemma's own claim; root_like needs 0.3 <= (g - 1) / g, the logarithm 1/2 <= (g - 1) / g."""
    if (gam is root_like and g < 1 / 0.7) or (gam is logarithm and g < 2):
        with pytest.raises(ConditionError, match=r"gam\(z\) >= z gam'\(z\) g/\(g-1\) of Lemma 1"):
            DelaySizes(g, gam, m, d)
        return
    sizes = DelaySizes(g, gam, m, d)
    assert violated(sizes, d, 400) is None
    values = sizes.first(400)
    assert values == sorted(values)
    delays = [sizes.delay(t) for t in range(0, 100_000, 500)]
    assert delays == sorted(delays)


@pytest.mark.parametrize("d", [0, 1, 2, 5])
@pytest.mark.parametrize("m", [40, 100, 1000, 5800, 30000])
def test_sizes_of_theorem_5_satisfy_condition_3(m, d):
    recipe = StronglyConvexRecipe(1.0, 1.0, m, d)
    assert violated(recipe.sizes, d, 3000) is None
    for i in (0, 1, 77):
        x = m + i + 1
        assert recipe.sizes.size(i) == math.ceil(x / (16 * (d + 1) ** 2) / math.log(x / (2 * (d + 1))))


def test_theorem_5_agrees_with_its_formulas_written_out():
    """m = 5800, d = 1, L = mu = 1."""
    recipe = StronglyConvexRecipe(1.0, 1.0, 5800, 1)
    assert [recipe.sizes.size(i) for i in (0, 100, 1000, 10000)] == [13, 13, 15, 30]
    assert recipe.sizes.offset == 72.0
    assert recipe.sizes.shift == 5801**2 / 4
    assert recipe.steps(0) == pytest.approx(0.01378727, rel=1e-6)
    assert recipe.steps(10) == pytest.approx(0.01199552, rel=1e-6)
    for i in (0, 1, 10, 500):  # written out as in the theorem
        before = sum(recipe.sizes.first(i))
        x = 5801**2 / 4 + before
        assert recipe.steps(i) == pytest.approx(12 / (before + 2 * 72 + math.sqrt(x / math.log(x))), rel=1e-12)


def test_theorem_5_sizes_and_steps_have_their_orders():
    """Sizes of order i / ln i, steps of order ln i / i^2."""
    recipe = StronglyConvexRecipe(1.0, 1.0, 20, 1)
    sizes = [recipe.sizes.size(10**k) * math.log(10**k) / 10**k for k in (6, 9, 12)]
    assert max(sizes) / min(sizes) < 1.1
    steps = [recipe.steps(i) * i**2 / math.log(i) for i in (4000, 16000, 64000)]
    assert steps == sorted(steps)
    assert max(steps) / min(steps) < 1.25
    assert max(steps) < 12 * 32 * 4, "the limit 12 / mu * 32 (d + 1)^2"


@pytest.mark.parametrize(
    ("d", "with_the_papers_m", "needed"), [(0, 25, 6463), (1, 13, 28373), (2, 9, 67121)], ids=lambda v: str(v)
)
def test_s0_of_50_needs_a_larger_m_than_the_paper_says(d, with_the_papers_m, needed):
    """The paper: "s_0 = 50 corresponds to m = 2 (d + 1) 1450"."""
    assert StronglyConvexRecipe(1.0, 1.0, 2900 * (d + 1), d).sizes.size(0) == with_the_papers_m
    assert StronglyConvexRecipe(1.0, 1.0, needed, d).sizes.size(0) == 50
    assert StronglyConvexRecipe(1.0, 1.0, needed + 1, d).sizes.size(0) == 51


def test_delays_of_theorem_5_stay_below_equation_14():
    """tau of Theorem 5 is below equation (14) once t >= M0 and M1 has become small beside it."""
    recipe = StronglyConvexRecipe(1.0, 1.0, 100, 1)
    for t in (1e7, 1e9, 1e12):
        assert recipe.sizes.delay(t) <= largest_delay(t)
    assert largest_delay(math.e) == 0.0
    assert largest_delay(math.e**2) == pytest.approx(math.e / 2)


def test_t_minus_tau_increases_from_the_start():
    recipe = StronglyConvexRecipe(1.0, 1.0, 30, 1)
    left = [t - recipe.sizes.delay(t) for t in range(5000)]
    assert left == sorted(left)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: DelaySizes(1.0, one, 0, 1), r"condition g > 1 of Lemma 1: g is 1"),
    (lambda: DelaySizes(2.0, lambda z: 4 * math.log(z) if z else 0.0, 0, 1), r"gam\(z\) >= 1 .* violated at z = 0"),
    (lambda: DelaySizes(2.0, lambda z: 2 - z / (1 + z), 0, 1), r"gam not decreasing of Lemma 1"),
    (lambda: DelaySizes(2.0, lambda z: 1 + z, 0, 1), r"gam\(z\) >= z gam'\(z\) g/\(g-1\)"),
    (lambda: DelaySizes(2.0, lambda z: math.inf, 0, 1), r"gam\(z\) finite"),
    (lambda: DelaySizes(2.0, one, 9, 1, m0=24.0), r"condition M0 >= .* M0 is 24, expected at least 25"),
    (lambda: DelaySizes(2.0, one, 0, 3, m1=3.5), r"condition M1 >= d \+ 1 .* M1 is 3.5, d \+ 1 is 4"),
    (lambda: StronglyConvexRecipe(1.0, 1.0, 9, 1), r"condition m \+ 1 >= 2 e \(d \+ 1\).* take m >= 10"),
])  # fmt: skip
def test_violated_conditions_are_named(make, message):
    with pytest.raises(ConditionError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_the_smallest_m_of_theorem_5_is_allowed():
    for d in (0, 1, 4):
        least = math.ceil(2 * math.e * (d + 1)) - 1
        assert StronglyConvexRecipe(1.0, 1.0, least, d).sizes.size(0) == 1


# -- step sizes ------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [0.5, 1.0])
@pytest.mark.parametrize(("m", "d"), [(20, 1), (1000, 2), (5800, 1)])
def test_round_steps_of_lemma_2_are_steps_per_iteration(m, d, q):
    """a0 <= alpha_t <= a1 <= 3 a0 at every iteration of every round."""
    sizes = StronglyConvexRecipe(1.0, 1.0, m, d).sizes

    def offset(t):
        return 2 * sizes.delay(t)

    steps = RoundSteps(sizes, offset, 12.0, q)
    largest = 12 * max(3, 1 + (m + 2) / (m + 1)) ** q
    for i in (0, 1, 2, 10, 300):
        for t in (sizes.total(i), sizes.total(i + 1) - 1):
            alpha = steps(i) * (t + offset(t)) ** q
            assert 12.0 * (1 - 1e-12) <= alpha <= largest
    assert largest <= 36.0
    assert all(later <= before for before, later in itertools.pairwise([steps(i) for i in range(50)]))


def test_lemma_2_checks_its_assumptions():
    sizes = DelaySizes(1.5, one, 30, 0)
    with pytest.raises(ConditionError, match=r"condition E_t >= 1 of Lemma 2: E_0 is 0\.5"):
        RoundSteps(sizes, lambda t: 0.5, 1.0)
    with pytest.raises(ConditionError, match=rf"s_0 - 1 <= E_0 of Lemma 2: s_0 is {sizes.size(0)}, E_0 is 2"):
        RoundSteps(sizes, lambda t: 2.0, 1.0)
    steps = RoundSteps(sizes, lambda t: 200.0 + 5 * t, 1.0)
    assert steps(0) == 1 / 200
    with pytest.raises(ConditionError, match=r"Ebar_i <= 2 Ebar_\(i-1\) of Lemma 2: in round 0 E goes from 200 to"):
        steps(1)
    with pytest.raises(ConditionError, match=r"Ebar_\(i-1\) <= Ebar_i"):
        RoundSteps(sizes, lambda t: 500.0 - t, 1.0)(1)


def test_module_imports_only_errors_and_checks():
    tree = ast.parse(Path(sequences.__file__).read_text())
    simfl = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and "simfl" in node.module}
    assert simfl == {"simfl.errors", "simfl.privacy"}, "of privacy only the checks"
