import pytest

from simfl.errors import ScenarioError
from simfl.papers.proactive_dp.graphs import parse_grid


def test_grids_are_numbers_with_commas():
    assert parse_grid("--clipping-norms", "1, 0.5,2") == (0.5, 1.0, 2.0)
    with pytest.raises(ScenarioError, match="--clipping-norms: expected numbers with commas between them, found '1;2'"):
        parse_grid("--clipping-norms", "1;2")
    with pytest.raises(ValueError, match="--clipping-norms: expected one or more different numbers > 0, found 1, 1"):
        parse_grid("--clipping-norms", "1,1")
