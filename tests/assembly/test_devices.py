"""Devices, speed traces and availability, from files."""

import dataclasses
import json
import math

import numpy as np
import pytest

from simfl.assembly.assemble import assemble
from simfl.assembly.devices import capacities_of, devices_of, pace_of, speed_trace, usual_batch_s
from simfl.assembly.forecast import forecast
from simfl.assembly.world import availability, build_world, speeds
from simfl.errors import DataError, ScenarioError
from simfl.scenario import from_mapping
from simfl.streams import Streams
from simfl.world.availability import Outage
from simfl.world.compute import Compute, Trace
from simfl.world.link_values import LinkModel, Values
from simfl.world.steps import Steps

DEVICES = """name,seconds_per_example,seconds_per_batch,memory,uplink,share
phone,2 ms,0.02,1 GB,8 Mbit/s,3

laptop,1e-4,,,,1
"""


def scenario_of(count=8, **sections):
    mapping = {"clients": {"count": count}, "algorithm": {"kind": "sync_sgd", "batch_size": 10}, **sections}
    return from_mapping(mapping)


def write(folder, name, text):
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_devices_have_their_own_uplinks_and_downlinks(tmp_path):
    text = "name,seconds_per_example,uplink,downlink\none,1,8 bit/s,16 bit/s\n"
    (device,) = devices_of(scenario_of(1, clients={"count": 1, "devices": write(tmp_path, "d.csv", text)}), Streams(0))
    bare = dataclasses.replace(device, uplink=None, downlink=None)
    rule = capacities_of([bare, device, dataclasses.replace(device, uplink=None)])
    own = Values(LinkModel(rules=(rule,)), Streams(0), 4)
    assert [own.of_node("uplink", k) for k in range(4)] == [None, 1.0, None, None]
    assert [own.of_node("downlink", k) for k in range(4)] == [None, 2.0, 2.0, None]
    assert capacities_of([bare, bare]) is None


def test_speed_factor_is_that_of_the_start_of_a_batch():
    trace = Trace(Steps((1.0, 2.0), (3.0, 0.5)), {1: Steps((0.5,), (10.0,))})
    compute = Compute(1.0, [1.0, 1.0], Streams(0), trace=trace)
    assert [compute.duration(0, 1, now) for now in (0.0, 0.999, 1.0, 1.5, 2.0, 99.0)] == [1.0, 1.0, 3.0, 3.0, 0.5, 0.5]
    assert [compute.duration(1, 1, now) for now in (0.0, 0.5, 9.0)] == [1.0, 10.0, 10.0]
    again = Compute(1.0, [1.0], Streams(0), trace=Trace(Steps((1.0, 2.0), (3.0, 0.5), every_s=3.0)))
    assert [again.duration(0, 1, now) for now in (0.5, 1.5, 2.5, 3.5, 4.5, 5.5)] == [1.0, 3.0, 0.5, 0.5, 3.0, 0.5]
    assert trace.largest == 10.0


def test_devices_are_drawn_by_their_shares_and_have_their_own_times(tmp_path):
    path = write(tmp_path, "devices.csv", DEVICES)
    scenario = scenario_of(4000, clients={"count": 4000, "devices": path})
    drawn = devices_of(scenario, Streams(0))
    phones = np.array([device.name == "phone" for device in drawn])
    assert phones.mean() == pytest.approx(0.75, abs=5 * math.sqrt(0.75 * 0.25 / 4000))
    phone, laptop = drawn[int(np.argmax(phones))], drawn[int(np.argmin(phones))]
    assert (phone.seconds_per_example, phone.seconds_per_batch, phone.memory) == (2e-3, 0.02, 1e9)
    assert (phone.uplink, phone.downlink, phone.line) == (1e6, None, 2)
    assert (laptop.seconds_per_batch, laptop.memory, laptop.uplink, laptop.line) == (0.0, math.inf, None, 4)
    assert devices_of(scenario, Streams(0)) == drawn
    assert devices_of(scenario, Streams(1)) != drawn
    pace = pace_of(scenario, drawn, [99])
    assert pace.seconds_per_example == [device.seconds_per_example for device in drawn]
    share = phones.mean()
    assert usual_batch_s(scenario, drawn, [99]) == pytest.approx(share * 0.04 + (1 - share) * 1e-3)
    assert devices_of(scenario_of(), Streams(0)) is None


def test_world_has_the_devices(tmp_path):
    path = write(tmp_path, "devices.csv", DEVICES)
    clients = {"count": 8, "devices": path, "speed": 2.0}
    algorithm = {"kind": "gossip_learning", "batch_size": 10}
    setup = assemble(scenario_of(clients=clients, algorithm=algorithm, links={"latency": "0 s", "bandwidth": None}))
    world = build_world(setup)
    for k, device in enumerate(setup.devices):
        expected = 2 * (device.seconds_per_batch + 10 * device.seconds_per_example)
        assert world.compute.duration(k, 10, 0.0) == pytest.approx(expected)
        assert world.network.values.uplinks[k] == device.uplink
    assert not world.network.free
    usual_s = usual_batch_s(setup.scenario, setup.devices, setup.sizes.tolist())
    assert (setup.options["period_s"], forecast(setup).batch_s) == (usual_s, usual_s)


def test_devices_too_small_for_the_model_are_rejected(tmp_path):
    path = write(tmp_path, "devices.csv", "name,seconds_per_example,memory\nwatch,1,10 kB\n")
    with pytest.raises(DataError) as raised:
        assemble(scenario_of(clients={"count": 4, "devices": path}, algorithm={"kind": "sync_sgd", "batch_size": 64}))
    needed = 4 * (2 * 650 + 64 * 64)
    assert str(raised.value).startswith(
        f"clients.devices: {path}:2: memory: expected at least {needed / 1000:.4g} kB for the model, its gradient and "
        "a mini-batch, found 10 kB (watch); lower"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "found no file .*, expected a CSV file with the columns name, seconds_per_example"),
        ("", "found an empty file; add name"),
        ("name,seconds_per_example\n", "expected at least one line below the header, found none"),
        ("name,seconds_per_exampel\na,1\n", "found name, seconds_per_exampel; add seconds_per_example"),
        ("name,seconds_per_example,ram\na,1,2\n", "found 'ram' too"),
        ("name,name,seconds_per_example\na,b,1\n", "found 'name' twice"),
        ("name,seconds_per_example\na,1,2\n", ":2: expected 2 values, found 3"),
        ("name,seconds_per_example\na,1\na,2\n", ":3: name: expected a name of its own for each device, found 'a'"),
        ("name,seconds_per_example\na,0\n", ":2: seconds_per_example: expected a number > 0, found '0'"),
        ("name,seconds_per_example\na,soon\n", ":2: seconds_per_example: expected a time like '10 ms', found 'soon'"),
        ("name,seconds_per_example\na,inf\n", ":2: seconds_per_example: expected a finite time, found 'inf'"),
        ("name,seconds_per_example,uplink\na,1,5\n", ":2: uplink: expected a bandwidth like '100 Mbit/s', found '5'"),
        ("name,seconds_per_example,share\na,1,0\n", "expected a share > 0 of at least one device, found none"),
        ("name,seconds_per_example,share\na,1,-1\n", ":2: share: expected a number >= 0, found '-1'"),
    ],
)
def test_invalid_file_of_devices_is_rejected(text, said, tmp_path):
    path = tmp_path / "devices.csv" if text is None else write(tmp_path, "devices.csv", text)
    with pytest.raises(DataError, match=rf"^clients\.devices: .*{said}") as raised:
        devices_of(scenario_of(clients={"count": 4, "devices": str(path)}), Streams(0))
    assert "\n" not in str(raised.value)


def test_each_line_of_a_trace_is_read(tmp_path):
    path = write(tmp_path, "speeds.csv", "time,client,factor\n1 s,all,2\n2,3,7\n3 s,all,4\n4,3,1\n")
    trace = speed_trace(scenario_of(clients={"count": 4, "trace": {"path": path, "every": "1 min"}}))
    assert [trace.factor(0, t) for t in (0, 1, 2, 3, 5, 59.9, 60, 61)] == [1, 2, 2, 4, 4, 4, 4, 2]
    assert [trace.factor(3, t) for t in (0, 1, 2, 3, 5, 60, 62)] == [1, 2, 7, 4, 1, 1, 7]
    assert speed_trace(scenario_of()) is None
    without = write(tmp_path, "all.csv", "time,factor\n0,3\n")
    assert speed_trace(scenario_of(clients={"count": 4, "trace": {"path": without}})).factor(2, 9.0) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,client,factor\n2,all,1\n1,all,2\n", ":3: time: expected a time not before that of the line above, 2 s"),
        ("time,client,factor\n1,4,1\n", ":2: client: expected all, or a client below clients.count, which is 4"),
        ("time,client,factor\n1,all,0\n", ":2: factor: expected a number > 0, found '0'"),
        ("time,client,factor\n1,all,inf\n", ":2: factor: expected a number > 0, found 'inf'"),
        ("time,client,factor\n60,all,1\n", r":2: time: expected a time before clients\.trace\.every, which is 10 s"),
    ],
)
def test_invalid_trace_is_rejected(text, said, tmp_path):
    path = write(tmp_path, "speeds.csv", text)
    with pytest.raises(DataError, match=rf"^clients\.trace\.path: .*{said}"):
        speed_trace(scenario_of(clients={"count": 4, "trace": {"path": path, "every": "10 s"}}))


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        ({"clients": {"count": 4, "speed": {"kind": "trace", "path": "{}", "column": "b"}}}, "a,b\n1,2,3\n"),
        ({"clients": {"count": 4, "devices": "{}"}}, "name,seconds_per_example\nphone,1,2\n"),
        ({"clients": {"count": 4, "trace": {"path": "{}"}}}, "time,factor\n0,1,2\n"),
        ({"availability": [{"all": True, "trace": {"path": "{}"}}]}, "client,from,to\n0,1,2,3\n"),
        ({"topology": {"kind": "contacts", "path": "{}"}}, "from,until,a,b\n0,1,0,1,2\n"),
        ({"regions": {"names": ["a"], "path": "{}"}}, "client,region\n0,a,a\n"),
        ({"regions": {"names": ["a"], "counts": [4], "latency": {"kind": "csv", "path": "{}"}}}, "name,a\na,1 s,2\n"),
        ({"links": {"rules": [{"all": True, "latency": {"kind": "trace", "path": "{}"}}]}}, "time,value\n0,1 s,2\n"),
        ({"data": {"set": "table", "path": "{}"}}, "a,target\n1,2,0\n"),
    ],
)
def test_a_header_shorter_than_its_rows_is_refused_in_every_csv_file(sections, text, tmp_path):
    path = tmp_path / "file.csv"
    header, row = text.splitlines()
    path.write_text("\ufeff" + header + "\n\n" + row + "\n", encoding="utf-8")
    count = header.count(",") + 1
    filled = json.loads(json.dumps(sections).replace("{}", str(path)))
    expected = rf"{path}:3: expected {count} values, found {count + 1}; the header in line 1 has {count} names"
    with pytest.raises(DataError, match=expected):
        build_world(assemble(scenario_of(4, algorithm="adpsgd", **filled)))


def test_speeds_are_drawn_from_a_column_of_a_file(tmp_path):
    path = write(tmp_path, "speeds.csv", "model,factor\nphone,2.5\n\n'tablet,1e1\n")
    speed = {"kind": "trace", "path": path, "column": "factor"}
    assert {*speeds(scenario_of(40, clients={"count": 40, "speed": speed}), Streams(0))} == {2.5, 10.0}
    for value in ("0", "inf", "nan", "", "fast"):
        write(tmp_path, "speeds.csv", f"model,factor\nphone,{value}\n")
        with pytest.raises(DataError, match=rf"speeds\.csv:2: factor: expected a number > 0, found '{value}'"):
            speeds(scenario_of(clients={"count": 8, "speed": speed}), Streams(0))


def there(scenario, client, times):
    presence = availability(scenario, Streams(scenario.seed))
    return [presence.online(client, time) for time in times]


def test_clients_are_online_at_the_times_of_the_file(tmp_path):
    path = write(tmp_path, "hours.csv", "client,from,to\n0,1,2\n0,3,4\n1,0,\n2,0,10 s\n")
    rule = {"clients": [0, 1, 2], "trace": {"path": path}}
    once = scenario_of(availability=[rule])
    assert there(once, 0, (0.0, 1.0, 1.9, 2.0, 3.5, 4.0, 99.0)) == [False, True, True, False, True, False, False]
    presence = availability(once, Streams(0))
    assert presence.gone(0, 4.0)
    assert presence.outages(1, 99.0) == presence.outages(5, 99.0) == []
    assert presence.joins_s(0) == 1.0
    again = scenario_of(availability=[{**rule, "every": "10 s"}])
    assert there(again, 0, (10.0, 11.0, 12.0, 23.0, 24.0, 1001.5)) == [False, True, False, True, False, True]
    assert availability(again, Streams(0)).outages(2, 99.0) == []
    assert availability(again, Streams(0)).outages(0, 13.0) == [
        Outage(0.0, 1.0), Outage(2.0, 3.0), Outage(4.0, 11.0), Outage(12.0, 13.0)
    ]  # fmt: skip


def test_clients_can_draw_their_times(tmp_path):
    path = write(tmp_path, "hours.csv", "client,from,to\nearly,0,1\nlate,5,6\n")
    scenario = scenario_of(400, availability=[{"all": True, "trace": {"path": path, "draw": True}}])
    presence = availability(scenario, Streams(3))
    early = np.array([presence.online(k, 0.5) for k in range(400)])
    assert 140 < early.sum() < 260
    assert all(presence.online(k, 5.5) != early[k] for k in range(400))
    some = scenario_of(400, availability=[{"clients": [7, 9], "trace": {"path": path, "draw": True}}])
    alone = availability(some, Streams(3))
    assert [alone.online(k, 0.5) for k in (7, 9)] == [early[7], early[9]]


def test_fedscale_times_repeat_after_finish_time(tmp_path):
    lives = {
        "0": {"duration": 5, "active": [1, 4], "inactive": [2, 5], "finish_time": 6, "model": "A"},
        "1": {"active": [0], "inactive": [], "finish_time": 8},
        "2": {"active": [], "inactive": [], "finish_time": 8},
        "3": {"active": [2], "inactive": [90], "finish_time": 4},
        "4": {"active": [0, 7], "inactive": [1, 9], "finish_time": 4},  # times after the end are not used
    }
    path = write(tmp_path, "trace.json", json.dumps(lives))
    scenario = scenario_of(availability=[{"clients": [0, 1, 2, 3, 4], "trace": {"path": path, "layout": "fedscale"}}])
    assert there(scenario, 0, (0, 1, 2, 4.5, 5, 6, 7, 8, 10.5)) == [0, 1, 0, 1, 0, 0, 1, 0, 1]
    presence = availability(scenario, Streams(0))
    assert presence.outages(1, 99.0) == []
    assert presence.gone(2, 0.0)
    assert there(scenario, 3, (1, 2, 3.9, 4, 6)) == [0, 1, 1, 0, 1]
    assert there(scenario, 4, (0.5, 2, 4.5, 8.5)) == [1, 0, 1, 1]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "a.csv",
            "client,from,to\n0,1,3\n0,2,4\n",
            ":3: from: expected a time not before the end of the client's last",
        ),
        ("a.csv", "client,from,to\n0,3,2\n", ":2: to: expected a time after 'from', which is 3 s, or nothing for ever"),
        ("a.csv", "client,from,to\n0,3,12\n", ":2: to: expected a time up to 'every', which is 10 s, found '12'"),
        ("a.csv", "client,from,to\n5,1,2\n", "expected times of client 0, found none"),
        ("a.json", "[1]", "found a list of 1|found \\[1\\]"),
        ("a.json", "{", "found a file that is none"),
        ("a.json", '{"0": 3}', "client 0: expected active, inactive and finish_time, found 3"),
        ("a.json", '{"0": {"active": [1], "inactive": [2]}}', "finish_time: expected seconds > 0, found nothing"),
        ("a.json", '{"0": {"active": [-1], "inactive": [2], "finish_time": 9}}', "active: expected a list of seconds"),
        ("a.json", '{"0": {"active": [1], "inactive": [2, 3], "finish_time": 9}}', "as many inactive as active times"),
        ("a.json", '{"0": {"active": [1, 2], "inactive": [3, 4], "finish_time": 9}}', "in turn that go on in time"),
    ],
)
def test_invalid_times_are_rejected(name, text, said, tmp_path):
    path = write(tmp_path, name, text)
    rule = {"all": True, "trace": {"path": path, "layout": "fedscale" if name.endswith("json") else "plain"}}
    if name.endswith("csv"):
        rule["every"] = "10 s"
    with pytest.raises((DataError, ScenarioError), match=rf"^availability\.0\.trace\.path: .*({said})"):
        assemble(scenario_of(availability=[rule]))
