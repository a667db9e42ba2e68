import itertools

import pytest

from simfl.assembly.links import links_of
from simfl.errors import DataError
from simfl.scenario import from_mapping
from simfl.streams import Streams
from simfl.world import Topology
from simfl.world.link_values import Chain, Listed, Rule, Values
from simfl.world.topology import build_topology

PAIR = Topology("pair", ((1,), (0,)))


def scenario_of(count=2, algorithm="fedavg", **sections):
    return from_mapping({"algorithm": algorithm, "clients": {"count": count}, **sections})


def model_of(topology=PAIR, **sections):
    return links_of(scenario_of(**sections), Streams(0), topology)


def trace_of(tmp_path, text, **more):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    rule = {"all": True, "uplink": {"kind": "trace", "path": str(path), "unit": "Mbit/s", **more}}
    return model_of(links={"rules": [rule]})


def test_links_without_rules_are_equal():
    assert not model_of().rules
    assert not model_of(regions={"names": ["here"], "counts": [2]}).rules
    assert model_of(links={"rules": [{"all": True, "loss": 0.1}]}).rules


def test_a_trace_has_steps_of_each_client(tmp_path):
    (rule,) = trace_of(tmp_path, "time,client,value\n0,0,8\n10 s,0,16\n5,1,80 Mbit/s\n").rules
    traced = rule.values["uplink"]
    assert isinstance(traced, Listed)
    assert {key: (steps.times, steps.values) for key, steps in traced.values.items()} == {
        0: ((0.0, 10.0), (1e6, 2e6)),
        1: ((5.0,), (1e7,)),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,value\n2,8\n1,8\n", r":3: time: expected a time after 2 s, .* found '1'; sort the trace by time"),
        ("time,value\n1,-8\n", r":2: value: expected a bandwidth > 0, found '-8'"),
        ("time,client,value\n1,7,8\n", r":2: client: expected a client below clients.count, which is 2, or server"),
        ("time,source,value\n1,0,8\n", "expected client, or source and target, or none of them, found source"),
        ("when,value\n1,8\n", "links.rules.0.uplink.path: .* add time"),
    ],
)
def test_a_wrong_trace_is_one_line(tmp_path, text, message):
    with pytest.raises(DataError, match=message) as caught:
        trace_of(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_period_shorter_than_a_trace_is_rejected(tmp_path):
    with pytest.raises(DataError, match=r"uplink.every: expected more than 5 s, the last time of .*, found 3 s"):
        trace_of(tmp_path, "time,value\n0,1\n5,2\n", every="3 s")


def test_a_matrix_of_round_trips_in_a_file_is_halved(tmp_path):
    path = tmp_path / "rtt.csv"
    path.write_text("from,a,b\nb,30,\na,2,40\n")
    table = {"kind": "csv", "path": str(path), "unit": "ms", "round_trips": True}
    model = model_of(regions={"names": ["a", "b"], "counts": [1, 1], "latency": table})
    lookup = Values(model, Streams(0), 2)
    assert [lookup.of_link("latency", *link) for link in ((0, 1), (1, 0))] == [0.020, 0.015]
    path.write_text("from,a,b\nb,30,\na,2,40\nb,3,\n")
    with pytest.raises(DataError, match=r":4: from: expected one row for each region; line 2 has it, found 'b'"):
        model_of(regions={"names": ["a", "b"], "counts": [1, 1], "latency": table})
    path.write_text("from,a,b\na,2,40\n")
    with pytest.raises(DataError, match=r"regions.latency.path: .*: expected a row for region 'b', found a; add it"):
        model_of(regions={"names": ["a", "b"], "counts": [1, 1], "latency": table})


def test_edges_of_a_file_have_their_own_values(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("source,target,latency,loss\n0,1,20 ms,\n1,2,,0.25\n")
    topology = build_topology("edge_list", 3, Streams(0).generator("topology"), path=path)
    assert not topology.unread
    model = model_of(topology, count=3, algorithm="adpsgd", links={"latency": "1 ms"})
    values = model.values(Streams(0), 3)
    assert [values.mean_latency_s(*link, 0.0) for link in ((0, 1), (1, 0), (1, 2))] == [0.020, 0.020, 0.001]
    assert [values.mean_loss(*link, 0.0) for link in ((0, 1), (2, 1))] == [0.0, 0.25]
    path.write_text("source,target,latency\n0,1,soon\n1,2,\n")
    topology = build_topology("edge_list", 3, Streams(0).generator("topology"), path=path)
    with pytest.raises(DataError, match=r"topology.path: .*:2: link 0 - 1: latency: expected a time .*, found 'soon'"):
        model_of(topology, count=3, algorithm="adpsgd")


COUNT = 4
PAIRS = set(itertools.permutations(range(COUNT + 1), 2))


def slow(time=0.0, **rule):
    """Return the pairs that a rule makes slow at a time; the server is the last node."""
    links = {"latency": 0, "bandwidth": None, "rules": [{"latency": 1, **rule}]}
    values = links_of(scenario_of(COUNT, links=links), Streams(0), PAIR).values(Streams(0), COUNT)
    return {pair for pair in PAIRS if values.mean_latency_s(*pair, time)}


def test_rule_applies_to_its_links_and_direction():
    assert slow(all=True) == PAIRS
    assert slow(clients=[0]) == {pair for pair in PAIRS if 0 in pair}
    assert slow(clients=[0, "server"], direction="out") == {pair for pair in PAIRS if pair[0] in (0, COUNT)}
    assert slow(clients=[0], direction="in") == {pair for pair in PAIRS if pair[1] == 0}
    assert slow(between=[0, [1, 2]]) == {(0, 1), (0, 2), (1, 0), (2, 0)}
    assert slow(between=[0, ["server", 2]], direction="out") == {(0, COUNT), (0, 2)}
    assert slow(between=[0, [1, 2]], direction="in") == {(1, 0), (2, 0)}
    half = slow(fraction=0.5)
    assert len(half) == len(PAIRS) - 3 * 2, "all but those among the other two and the server"


def test_rule_applies_in_its_times():
    times = (0.5, 1.5, 2.5, 4.5, 7.5)
    assert [bool(slow(time, all=True, **{"from": 1, "until": 2})) for time in times] == [False, True] + [False] * 3
    assert [bool(slow(time, all=True, until=1)) for time in times] == [True] + [False] * 4
    assert [bool(slow(time, all=True, **{"from": 2})) for time in times] == [False, False, True, True, True]
    again = {"from": 1, "until": 2, "every": 3}
    assert [bool(slow(time, all=True, **again)) for time in times] == [False, True, False, True, True]


def test_rules_override_capacities_of_devices():
    def uplinks(**links):
        own = Rule({"uplink": Listed({0: 5.0})})
        scenario = scenario_of(links={"uplink": "8 bit/s", **links})
        values = links_of(scenario, Streams(0), PAIR, own).values(Streams(0), 2)
        return [values.uplinks[0], values.uplinks[1]]

    assert uplinks() == [5.0, 1.0]
    assert uplinks(rules=[{"all": True, "uplink": "16 bit/s"}]) == [2.0, 2.0]


def test_bursts_of_losses_and_frequency_of_draws_are_built():
    bursts = {"kind": "gilbert_elliott", "good": 9, "bad": 0.5, "loss_good": 0.01, "loss_bad": 0.9, "drawn": "client"}
    law = {"kind": "uniform", "low": "8 bit/s", "high": "16 bit/s"}
    first, second = model_of(
        links={"rules": [{"all": True, "loss": bursts}, {"all": True, "bandwidth": law, "uplink": law}]}
    ).rules
    assert first.values == {"loss": Chain(9.0, 0.5, 0.01, 0.9, "client", "loss-0")}
    assert {name: (value.how, value.purpose) for name, value in second.values.items()} == {
        "bandwidth": ("link", "bandwidth-1"), "uplink": ("client", "uplink-1"),
    }  # fmt: skip
