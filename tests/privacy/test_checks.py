import math

import numpy as np
import pytest

from simfl.privacy import checks


@pytest.mark.parametrize(("check", "wrong", "message"), [
    (checks.positive, 0.0, "x: expected a finite number > 0, found 0"),
    (checks.positive, math.inf, "x: expected a finite number > 0, found inf"),
    (lambda x: checks.at_least(1.0, x=x), 0.5, "x: expected a finite number >= 1, found 0.5"),
    (checks.not_negative, -0.1, "x: expected a number >= 0, found -0.1"),
    (checks.open_unit, 1.0, "x: expected a number in (0, 1), found 1"),
    (checks.unit, 1.5, "x: expected a number in [0, 1], found 1.5"),
    (lambda x: checks.whole(2, x=x), 1, "x: expected an integer >= 2, found 1"),
    (lambda x: checks.whole(0, x=x), True, "x: expected an integer >= 0, found True"),
    (lambda x: checks.whole(0, 5, x=x), 6, "x: expected an integer from 0 to 5, found 6"),
    (lambda x: checks.whole(0, x=x), 1.5, "x: expected an integer >= 0, found 1.5"),
])  # fmt: skip
def test_each_check_names_the_wrong_value_and_refuses_nan(check, wrong, message):
    with pytest.raises(ValueError, match=r"^x: ") as error:
        check(x=wrong)
    assert str(error.value) == message
    with pytest.raises(ValueError, match=r"found nan$"):
        check(x=math.nan)


def test_right_values_pass_and_the_first_wrong_one_is_named():
    checks.whole(0, 2**40, steps=np.int64(3), batch=2**40)
    checks.not_negative(mu=math.inf)
    checks.one_of(("a", "b", "c"), word="b")
    with pytest.raises(ValueError, match=r"^word: expected a, b or c, found 'd'$"):
        checks.one_of(("a", "b", "c"), word="d")
    with pytest.raises(ValueError, match=r"^second: "):
        checks.positive(first=1.0, second=-1.0, third=-2.0)
