"""Scenarios whose runs would never end are rejected before they run."""

import math

import numpy as np
import pytest

from simfl.assembly.assemble import assemble
from simfl.assembly.world import build_world
from simfl.errors import ScenarioError
from simfl.runs.runner import run
from simfl.scenario import from_mapping
from tests.helpers import RunWithoutNumbers


def ready(**sections):
    mapping = {"data": {"set": "digits"}, "clients": {"count": 4}, "algorithm": {"kind": "adpsgd"}}
    return assemble(from_mapping({**mapping, "stop": {"updates": 8}, **sections}))


def test_too_long_times_are_rejected():
    rule = {"clients": [0], "factor": 1e9}
    assert ready(slowdowns=[rule]).warnings == ready().warnings, "a billion times slower is slow, and no more"
    with pytest.raises(
        ScenarioError, match=r"^slowdowns: expected mini-batches of at most 1e\+12 s, found one of inf s"
    ):
        ready(slowdowns=[{**rule, "factor": 1e250}, {**rule, "factor": 1e250}])
    with pytest.raises(ScenarioError, match=r"^clients\.speed: expected mini-batches of at most 1e\+12 s"):
        ready(clients={"count": 4, "speed": {"kind": "list", "values": [1, 1, 1e15, 1]}})


def test_world_has_partitions_and_outages_of_the_server():
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


def test_too_many_messages_in_flight_are_rejected():
    gossip = {"kind": "gossip_learning", "batch_size": 8, "period": "100 ms"}
    far = {"latency": "1000000 s"}
    with pytest.raises(ScenarioError, match=r"^algorithm\.period: expected at most 1,000,000 models under way"):
        ready(algorithm=gossip, links=far, topology="ring")
    ready(
        algorithm=gossip, links=far, topology="ring", stop={"time": 10.0}
    )  # the run ends before too many are in flight


def test_messages_faster_than_links_get_a_warning(tmp_path, monkeypatch):
    """A softmax model of the digits has 650 parameters: 2.6 kB take 20.8 ms at 1 Mbit/s."""
    gossip = {"kind": "gossip_learning", "batch_size": 8}

    def warned(period, **links):
        return ready(algorithm={**gossip, "period": period}, links=links, topology="ring").warnings

    usual = warned("1 s", uplink="1 Mbit/s")
    assert warned("20.9 ms", uplink="1 Mbit/s") == warned("10.5 ms", bandwidth="1 Mbit/s") == usual
    (line,) = [line for line in warned("20.7 ms", uplink="1 Mbit/s") if line not in usual]
    assert line == (
        "algorithm.period: a model every 20.7 ms is more than links.uplink carries, one every 20.8 ms: messages queue "
        "without bound and come ever later; lengthen the period or widen the links"
    )
    assert any("links.bandwidth carries" in line for line in warned("10.3 ms", bandwidth="1 Mbit/s")), "two neighbors"
    assert any("links.downlink carries" in line for line in warned("20.7 ms", downlink="1 Mbit/s"))
    assert any("links.uplink carries" in line for line in warned("41 ms", uplink="1 Mbit/s", loss=0.5))
    monkeypatch.setattr("simfl.runs.context.Executor", RunWithoutNumbers)
    setup = ready(algorithm={**gossip, "period": "1 ms"}, links={"uplink": "1 Mbit/s"}, stop={"time": 1.0})
    (said,) = [line for line in run(setup, out=tmp_path).manifest.extra["warnings"] if line.startswith("links:")]
    assert said.startswith("links: saturated at the end: ")


def test_classes_that_no_client_has_are_said_to_be_left_out():
    few = ready(clients={"count": 3}, data={"partition": {"kind": "by_label", "labels_per_client": 2}})
    (line,) = [warning for warning in few.warnings if warning.startswith("data.partition")]
    held = np.unique(few.dataset.train_y[few.partition.indices])
    left_out = sorted({*range(10)} - {*held.tolist()})
    assert len(left_out) == 4
    count = int(np.isin(few.dataset.train_y, left_out).sum())
    names = ", ".join(map(str, left_out))
    assert line == (
        f"data.partition: no client has an example of 4 of 10 classes ({names}): {count} of "
        f"{len(few.dataset.train_y):,} training examples are left out; for all classes, let clients.count times "
        "labels_per_client be at least 10"
    )
    enough = ready(clients={"count": 5}, data={"partition": {"kind": "by_label", "labels_per_client": 2}})
    assert enough.warnings == ready().warnings


def test_listed_sizes_that_leave_out_a_class_are_said_to():
    few = {"kind": "dirichlet", "alpha": 0.001, "sizes": {"kind": "listed", "values": [40, 40]}}
    setup = ready(clients={"count": 2}, data={"partition": few})
    (line,) = [warning for warning in setup.warnings if warning.startswith("data.partition")]
    classes = 10 - len(np.unique(setup.dataset.train_y[setup.partition.indices]))
    assert classes >= 7
    assert f"no client has an example of {classes} of 10 classes" in line
    assert "labels_per_client" not in line


@pytest.mark.slow
def test_too_many_absences_during_one_computation_are_bad_input(tmp_path, without_numbers):
    often = {"all": True, "offline": [["0 s", "1 us"]], "every": "3 us"}
    slow = {"count": 4, "seconds_per_example": "1 s"}
    with pytest.raises(
        ScenarioError,
        match=r"^availability\.0\.every: expected at most 131,072 absences .*, which takes up to 32 s, found one every",
    ):
        ready(clients=slow, availability=[often])
    ready(clients={"count": 4}, availability=[{**often, "offline": [["0 s", "1 ms"]], "every": "3 ms"}])
    drawn = {"all": True, "random": {"up": "1 us", "down": "1 us"}}
    setup = ready(clients=slow, availability=[drawn])
    with pytest.raises(ScenarioError, match=r"^availability\.random: expected at most 131072 absences of a client"):
        run(setup, out=tmp_path)
