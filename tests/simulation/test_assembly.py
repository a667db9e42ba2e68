"""What is refused before a run because no run of it would end."""

import pytest

from simfl.errors import ScenarioError
from simfl.scenario import from_mapping
from simfl.simulation.assembly import assemble


def ready(**sections):
    mapping = {"data": {"set": "digits"}, "clients": {"count": 4}, "algorithm": {"kind": "adpsgd"}}
    return assemble(from_mapping({**mapping, "stop": {"updates": 8}, **sections}))


def test_times_beyond_all_measure_are_refused():
    rule = {"clients": [0], "factor": 1e9}
    assert ready(slowdowns=[rule]).warnings == ready().warnings, "a billion times slower is slow, and no more"
    with pytest.raises(
        ScenarioError, match=r"^slowdowns: expected mini-batches of at most 1e\+12 s, found one of inf s"
    ):
        ready(slowdowns=[{**rule, "factor": 1e250}, {**rule, "factor": 1e250}])
    with pytest.raises(ScenarioError, match=r"^clients\.speed: expected mini-batches of at most 1e\+12 s"):
        ready(clients={"count": 4, "speed": {"kind": "list", "values": [1, 1, 1e15, 1]}})
