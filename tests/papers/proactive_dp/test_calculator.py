import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.errors import ConditionError
from simfl.papers.proactive_dp import theorems as proactive
from simfl.papers.proactive_dp.calculator import Calculator, Stop

QUICK = settings(max_examples=30, deadline=None, derandomize=True)


def libsvm(budget=1.0, sigma=None, done=(), **options):
    return Calculator(10000, 1e-4, budget, sigma, done, **options)


def feasible(calculator, gradients):
    """Return every batch size that the theorem accepts, tried one by one."""
    sizes = []
    for batch in range(1, min(gradients, calculator.num_examples - 1) + 1):
        try:
            calculator.try_batch(batch, gradients)
        except ConditionError:
            continue
        sizes.append(batch)
    return sizes


# --- the numbers of the formula sheet ---------------------------------------------------------------------------------


def test_a_batch_size_without_given_noise_has_the_numbers_of_the_formula_sheet():
    plan = libsvm().try_batch(26, 50000)
    assert plan.gamma == pytest.approx(3.01914, abs=5e-6)
    assert plan.epsilon == pytest.approx(0.0392677, abs=5e-8)
    assert plan.sigma == pytest.approx(21.7050, abs=5e-5)
    assert (plan.rounds, plan.last_batch, plan.gradients) == (1923, 2, 50000)
    assert plan.schedule == ((26, 1923), (2, 1))
    assert plan.theta == pytest.approx(26 * 1924 / 50000)


def test_a_batch_size_with_given_noise_has_the_numbers_of_the_formula_sheet():
    plan = libsvm(sigma=19.3).try_batch(26, 50000)
    assert plan.gamma == pytest.approx(3.12522, abs=5e-6)
    assert plan.epsilon == pytest.approx(0.0497198, abs=5e-8)
    assert plan.sigma == 19.3


def test_the_largest_batch_of_the_first_table_is_31():
    plan = libsvm(budget=proactive.epsilon_of(19.3, 1e-4), sigma=19.3).next_plan(50000)
    assert (plan.batch, plan.bound_by) == (31, "(34)")
    assert plan.total_rounds == math.ceil(50000 / 31)


def test_complete_schedules_need_smaller_batches_than_the_closed_form():
    """With 811 the last round of 350000 gradients is small, so theta > 1, and (34) fails by 2e-4."""
    sigma = proactive.sigma_of(0.5253, 2e-5)
    calculator = Calculator(50000, 2e-5, 0.5253, sigma)
    assert proactive.plan_rounds(50000, gradients=350000, sigma=sigma).batch == 811
    assert calculator.next_plan(350000).batch == 809
    with pytest.raises(ConditionError, match=r"^condition \(34\) of Theorem B\.4: 432 rounds of 7 epochs together"):
        calculator.try_batch(811, 350000)


# --- the search -------------------------------------------------------------------------------------------------------


@QUICK
@given(
    num_examples=st.integers(20, 400),
    gradients=st.integers(1, 250),
    budget=st.floats(0.05, 100.0),
    noise=st.floats(1.0, 4.0),
    done=st.lists(st.tuples(st.integers(1, 19), st.integers(1, 30)), max_size=2),
    delta=st.sampled_from([1e-2, 1e-4]),
    exact=st.booleans(),
)
def test_the_largest_batch_is_found(num_examples, gradients, budget, noise, done, delta, exact):
    sigma = noise * proactive.sigma_of(budget, delta)
    calculator = Calculator(num_examples, delta, budget, sigma, tuple(done), exact)
    plan = calculator.next_plan(gradients)
    sizes = feasible(calculator, gradients)
    if sizes:
        assert plan.batch == max(sizes)
    else:
        assert isinstance(plan, Stop)


@settings(QUICK, max_examples=8)
@given(
    num_examples=st.integers(20, 200),
    gradients=st.integers(1, 60),
    budget=st.floats(0.05, 300.0),
    delta=st.sampled_from([1e-2, 1e-4]),
)
def test_the_largest_batch_is_found_without_given_noise(num_examples, gradients, budget, delta):
    calculator = Calculator(num_examples, delta, budget)
    plan = calculator.next_plan(gradients)
    sizes = feasible(calculator, gradients)
    assert (plan.batch if sizes else None) == (max(sizes) if sizes else None)


def test_valid_sizes_have_gaps():
    """ceil(K'/s') jumps: the paper's scan, which stops before the first failure, would return 76."""
    calculator = Calculator(1000, 1e-3, 4.77, proactive.sigma_of(4.77, 1e-3))
    assert feasible(calculator, 100) == [*range(1, 77), 100]
    assert calculator.next_plan(100).batch == 100


def test_after_large_batches_small_ones_fail_first():
    """theta = max s_i / mean s_i: the paper's scan begins at 1, fails, and would stop the client."""
    calculator = Calculator(10000, 1e-4, 0.6, proactive.sigma_of(0.5, 1e-4), ((200, 100),))
    with pytest.raises(ConditionError, match=r"^condition \(3[24]\)"):
        calculator.try_batch(1, 20000)
    plan = calculator.next_plan(20000)
    assert plan.batch > 100


def test_a_large_problem_is_planned_without_trying_every_size():
    """Millions of candidate sizes; the test would take minutes if they were tried one by one."""
    plan = Calculator(10**7, 1e-7, 1.0).next_plan(10**7)
    assert plan.batch == 613281
    with pytest.raises(ConditionError):
        Calculator(10**7, 1e-7, 1.0).try_batch(613282, 10**7)


@QUICK
@given(
    num_examples=st.integers(100, 10**6),
    epochs=st.floats(0.1, 50.0),
    budget=st.floats(0.05, 20.0),
    noise=st.one_of(st.none(), st.floats(1.0, 3.0)),
    before=st.integers(0, 500),
    exact=st.booleans(),
)
def test_every_plan_fulfills_the_theorem(num_examples, epochs, budget, noise, before, exact):
    delta = 1 / num_examples
    sigma = None if noise is None else noise * proactive.sigma_of(budget, delta)
    done = ((max(1, num_examples // 1000), before),) if before and sigma is not None else ()
    calculator = Calculator(num_examples, delta, budget, sigma, done, exact)
    plan = calculator.next_plan(math.ceil(epochs * num_examples))
    if isinstance(plan, Stop):
        assert plan.reason.startswith(f"condition {plan.condition} of Theorem B.4: ")
        assert plan.reason.endswith("stop participating")
        return
    assert plan.epsilon <= budget * (1 + 1e-9)
    course = proactive.Course.of(plan.schedule, num_examples)
    gamma = proactive.gamma_fixed_point(plan.sigma, plan.epsilon, course.epochs, exact=exact)
    assert gamma == pytest.approx(plan.gamma, rel=1e-9)
    claimed = proactive.claimed_epsilon(plan.schedule, num_examples, sigma=plan.sigma, delta=delta, exact=exact)
    assert claimed == pytest.approx(plan.epsilon, rel=1e-6), "the plan has the claimed epsilon of its rounds"


# --- the feedback loop ------------------------------------------------------------------------------------------------


def after(calculator, plan):
    """Return the calculator after a plan has run."""
    return dataclasses.replace(calculator, sigma=plan.sigma, done=plan.schedule)


def test_earlier_rounds_are_accounted_with_the_lower_noise():
    first = libsvm(budget=0.5, sigma=19.3)
    plan = first.next_plan(50000)
    lower = dataclasses.replace(after(first, plan), sigma=10.0)
    more = lower.next_plan(10000)
    assert more.sigma == 10.0
    assert more.done == plan.schedule
    assert more.total_rounds == plan.total_rounds + math.ceil(10000 / more.batch)
    assert more.epochs == 6.0
    assert more.epsilon <= 0.5


def test_plans_stop_at_the_budget():
    calculator = libsvm(budget=0.5, sigma=19.3)
    calculator = after(calculator, calculator.next_plan(50000))
    stop = dataclasses.replace(calculator, sigma=5.0).next_plan(10000)
    assert isinstance(stop, Stop)
    assert stop.condition == "(35)"
    assert stop.reason == (
        "condition (35) of Theorem B.4: within epsilon 0.5 sigma must be at least 6.23229, and it is 5; "
        "stop participating"
    )
    assert dataclasses.replace(calculator, sigma=1.2).next_plan(10000).condition == "(35)"
    exhausted = libsvm(budget=0.5, sigma=7.0, done=((30, 10000),)).next_plan(10**6)
    assert exhausted.condition == "(34)"
    assert "the budget is 0.5" in exhausted.reason
    assert libsvm(budget=2.0, sigma=5.0, done=((900, 1),)).next_plan(10).condition == "(32)"
    assert libsvm(budget=1e-3).next_plan(10**6).condition == "(34)"


@pytest.mark.parametrize(("call", "message"), [
    (lambda: libsvm(done=((26, 10),)), r"^sigma: expected the noise multiplier of the rounds that were done"),
    (lambda: libsvm(budget=0.0), r"^budget: expected a finite number > 0"),
    (lambda: libsvm(sigma=-1.0), r"^sigma: expected a finite number > 0"),
    (lambda: Calculator(100, 2.0, 1.0), r"^delta: expected a number in \(0, 1\)"),
    (lambda: libsvm(sigma=5.0, done=((10000, 1),)), r"^schedule: expected batches of 1 to 9999 examples"),
    (lambda: libsvm().next_plan(0), r"^gradients: expected an integer >= 1, found 0"),
    (lambda: libsvm().try_batch(11, 10), r"^batch: expected an integer from 1 to 10, found 11"),
])  # fmt: skip
def test_invalid_arguments_are_rejected(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_calculator_is_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        libsvm().sigma = 3.0
