"""Step sizes of central and asynchronous SGD that follow from theory."""

import math

import pytest

from simfl.assembly.kinds.served import RadiusSteps


def test_step_sizes_equal_those_of_table_2():
    """L = 10, tau = 5, sigma = 30, R = 50, b = 12; the third update."""
    spread = 30 / (50 * math.sqrt(12))
    assert RadiusSteps(10.0, 36.0, spread)(2, 0, 0.0) == pytest.approx(1 / (360 + 2 * spread), rel=1e-12)
    assert RadiusSteps(10.0, 1.0, spread)(2, 0, 0.0) == pytest.approx(1 / (10 + 2 * spread), rel=1e-12)
