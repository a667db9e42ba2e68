"""A user's algorithm may use SimPy's conditions, interrupts, resources and stores."""

import pytest

import simfl

SCENARIO = {
    "name": "workshop",
    "data": {"set": "digits"},
    "clients": {"count": 4, "seconds_per_example": "1 ms"},
    "algorithm": {"kind": "tests.algorithms.custom:Workshop", "batch_size": 8},
    "stop": {"updates": 40},
}


@pytest.fixture(autouse=True)
def nothing_is_computed(without_numbers):
    """Compute nothing: the tests are about times."""


def run(tmp_path, **options):
    scenario = {**SCENARIO, "algorithm": {**SCENARIO["algorithm"], "options": options}}
    return simfl.run(scenario, out=tmp_path)


def test_clients_share_machines(tmp_path):
    """Four clients share two machines, and a mini-batch takes 8 ms: there are two updates every 8 ms."""
    times = run(tmp_path, machines=2, patience_s=1.0).updates["time_s"]
    assert times.to_list() == pytest.approx([0.008 * (1 + k // 2) for k in range(40)])


def test_a_client_that_is_interrupted_loses_its_mini_batch(tmp_path):
    scenario = {**SCENARIO, "slowdowns": [{"clients": [1], "factor": 20}]}
    scenario["algorithm"] = {**SCENARIO["algorithm"], "options": {"machines": 1, "patience_s": 0.05}}
    result = simfl.run(scenario, out=tmp_path)
    assert result.clients["updates"].to_list()[1] == 0
    assert len(result.updates) == 40
    # Three updates of 8 ms, then 50 ms of patience for client 1, who has the machine.
    assert result.updates["time_s"].iloc[:6].to_list() == pytest.approx([0.008, 0.066, 0.074, 0.082, 0.140, 0.148])


def test_a_run_with_simpys_tools_repeats_itself(tmp_path):
    digests = {run(tmp_path / name, machines=3, patience_s=0.02).manifest.digest for name in "ab"}
    assert len(digests) == 1
