"""Numbers of several settings: the bits of each alone, and no answer where settings do not agree."""

import itertools
import math
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.each import DisagreementError, Each, array_of, each_of, number, of_each, of_setting

FLOATS = st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, math.inf])
OTHERS = FLOATS | st.integers(-5, 5) | FLOATS.map(np.float64)
OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def bits(value):
    return type(value), np.float64(value).tobytes()


def outcome(function, *arguments):
    """Return the result of a function, or the class of its error."""
    with np.errstate(all="ignore"):
        try:
            return function(*arguments)
        except (ZeroDivisionError, OverflowError) as error:
            return type(error)


@given(st.lists(FLOATS, min_size=2, max_size=4), st.lists(OTHERS, min_size=1, max_size=4), st.booleans())
def test_a_result_is_that_of_each_setting_alone(values, others, is_first):
    ours = Each(values)
    for function, other in itertools.product(OPERATORS, [*others, *others]):  # the second time it is remembered
        pairs = [(value, other) if is_first else (other, value) for value in values]
        expected = [outcome(function, *pair) for pair in pairs]
        found = outcome(function, *((ours, other) if is_first else (other, ours)))
        if any(isinstance(one, type) for one in expected):
            assert found in expected
        else:
            assert [bits(of_setting(found, k)) for k in range(len(values))] == list(map(bits, expected))


@given(st.lists(FLOATS, min_size=2, max_size=4), OTHERS)
def test_a_comparison_is_answered_if_all_settings_agree(values, other):
    for function in COMPARISONS:
        expected = {bool(function(value, other)) for value in values}
        for _ in range(2):
            if len(expected) > 1:
                with pytest.raises(DisagreementError):
                    function(Each(values), other)
            else:
                assert function(Each(values), other) in expected


def test_two_of_them_meet_value_by_value():
    one, other = Each([1.0, 2.0]), Each([3.0, 5.0])
    assert (one + other).values == (4.0, 7.0)
    assert (other / one).values == (3.0, 2.5)
    assert one < other
    assert one == one
    assert sum([one, other]).values == (4.0, 7.0)
    assert min(one, 9.0) is one
    assert (-one).values == (-1.0, -2.0)
    assert abs(-one).values == (1.0, 2.0)
    assert (one**2).values == (1.0, 4.0)
    assert one


@pytest.mark.parametrize(
    "need",
    [
        float, int, bool, round, hash, math.sqrt, math.floor, range, np.float32, "{:g}".format,
        lambda x: x > 0.5, lambda x: {x: 1}, lambda x: [1, 2][x], lambda x: np.array([x], dtype=float),
        lambda x: x * np.ones(3), lambda x: np.ones(3) * x, lambda x: x in [0.0], lambda x: np.sqrt(x),
    ],
)  # fmt: skip
def test_what_needs_one_number_is_refused(need):
    with pytest.raises((DisagreementError, TypeError)):
        need(Each([0.0, 1.0]))


def test_equal_numbers_are_one_plain_number():
    assert each_of([0.5, 0.5]) == 0.5
    assert type(each_of([0.5, 0.5])) is float
    assert type(each_of([0.0, -0.0])) is Each, "zeros have signs"
    assert each_of([0.0]) == 0.0, "one setting has plain numbers"
    assert type(each_of([1, 1.0])) is Each, "an integer stays one"
    assert type(number(3)) is float


def test_an_array_knows_where_settings_differ():
    array, varied = array_of([1.0, Each([2.0, 3.0]), 4.0, Each([0.1, 0.2])], np.float32)
    assert array.tolist() == [1.0, 0.0, 4.0, 0.0]
    assert varied.into(array, 1).tolist() == [1.0, 3.0, 4.0, float(np.float32(0.2))]
    assert array_of([1.0, 2], np.float64)[1] is None


def test_a_function_of_numbers_is_taken_for_each_setting():
    assert of_each(min, 2.0, 1.0) == 1.0
    assert of_each(min, Each([1.0, 3.0]), 2.0).values == (1.0, 2.0)
    assert of_each(min, Each([1.0, 3.0]), Each([0.5, 0.5])) == 0.5
