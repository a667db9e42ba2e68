"""What is refused before a run because no run of it would end."""

import math

import pytest

from simfl.errors import ScenarioError
from simfl.scenario import from_mapping
from simfl.simulation.assembly import assemble
from simfl.simulation.world import build_world


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


def test_partitions_and_outages_of_the_server_come_into_the_world():
    rules = [{"groups": [["server", 0], [3]], "from": 1, "until": 2}, {"fraction": 0.5, "from": 3}]
    world = build_world(
        ready(
            algorithm={"kind": "async_sgd"},
            links={"partitions": rules},
            server={"offline": [["1 s", "2 s"], ["5 s", "never"]]},
        )
    )
    joined_s, server = world.network.joined_s, world.network.add_node()
    assert [joined_s(pair, 1.5) for pair in ((server, 0), (server, 3), (0, 1), (1, 2))] == [1.5, 2.0, 2.0, 1.5]
    apart = [client for client in range(1, 4) if math.isinf(joined_s((0, client), 4.0))]
    assert len(apart) == 2, "two of the four are on either side"
    there = [world.availability.online(server, time) for time in (0.5, 1.5, 3.0, 6.0)]
    assert there == [True, False, True, False]
    assert [world.availability.online(client, 1.5) for client in range(4)] == [True] * 4
