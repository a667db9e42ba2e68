import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.errors import ConditionError
from simfl.privacy.calibration import least_noise, releases_within


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    budget=st.floats(0.0, 1e4),
    slope=st.floats(1e-3, 10.0),
    start=st.floats(0.0, 2.0),
    power=st.floats(0.4, 1.0),
    most=st.integers(0, 2**31),
    first=st.integers(1, 10**6),
)
def test_the_largest_number_of_releases_is_found_in_few_evaluations(budget, slope, start, power, most, first):
    looks = []

    def spent(count):
        looks.append(count)
        return start + slope * count**power

    releases = releases_within(spent, budget, most, first)
    assert len(looks) == len(set(looks)) <= 40
    assert 0 <= releases <= most
    assert releases == 0 or spent(releases) <= budget
    assert releases == most or spent(releases + 1) > budget
    looks.clear()
    nearly = releases_within(spent, budget, most, first, close=0.99)
    assert nearly <= releases
    assert nearly == releases or spent(nearly) >= 0.99 * budget
    assert len(looks) <= 30


def test_an_unreachable_epsilon_is_refused():
    with pytest.raises(ConditionError, match="expected a noise multiplier of at most 1e"):
        least_noise(lambda z, by: 5.0, 1.0, "renyi")
