"""Delivery times are SimGrid's, as docs/check_simgrid.py finds over many networks; here over a few small ones."""

import runpy
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def check():
    module = runpy.run_path(str(ROOT / "docs" / "check_simgrid.py"))
    if not module["has_simgrid"]():
        pytest.skip(f"{module['PYTHON']} has no bindings of SimGrid: apt-get install python3-simgrid")
    return module


@pytest.mark.parametrize("sharing", ["fair", "by_latency"])
def test_times_of_the_same_fluid_model_agree(check, sharing):
    kinds = set()
    for case in check["cases"](8, seed=1, hosts=16, messages=100):
        kinds.add((case.kind, case.pattern))
        here = check["simulated"](case, sharing)
        np.testing.assert_allclose(check["by_simgrid"](case, sharing), here, rtol=check["TOLERANCE"])
    assert len(kinds) == 8


def test_cases_match_their_descriptions(check):
    for case in check["cases"](12, seed=2):
        times = [message[0] for message in case.messages]
        assert times == sorted(times)
        assert 10 <= len(case.messages) <= 2000
        assert all(source != target for _, source, target, _ in case.messages)
        assert {node for _, *ends, _ in case.messages for node in ends} <= set(range(case.hosts))
