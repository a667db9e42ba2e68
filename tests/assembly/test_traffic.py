"""Warnings about messages before a run hold for the actual links."""

import pytest

from simfl.assembly import traffic
from simfl.assembly.assemble import assemble
from simfl.assembly.traffic import cost_of, overloads
from simfl.scenario import from_mapping

FREE = {"latency": 0, "bandwidth": None}
#: Two racks with one client each.
RACKS = {"kind": "star", "switches": 2, "latency": 0, "bandwidth": None}


def ready(**sections):
    """Four clients on a ring; a logistic model of 21 parameters: messages of 84 bytes."""
    said = {
        "data": {"set": "logistic", "samples": 64},
        "model": "logistic",
        "clients": {"count": 4},
        "algorithm": {"kind": "adpsgd", "exchange": "atomic", "batch_size": 4},
        "topology": "ring",
        "stop": {"updates": 8},
    }
    return assemble(from_mapping(said | sections))


def written(path, text):
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("sections", "cost"),
    [
        ({}, "a latency"),
        ({"links": {"latency": {"kind": "exponential", "mean": "1 ms"}, "bandwidth": None}}, "a latency"),
        ({"links": {"latency": 0}}, "a bandwidth"),
        ({"links": {**FREE, "uplink": "1 Mbit/s"}}, "a bandwidth"),
        ({"links": {**FREE, "downlink": "1 Mbit/s"}}, "a bandwidth"),
        ({"links": {**FREE, "loss": 0.1}}, "losses"),
        ({"links": FREE}, None),
        ({"links": {**FREE, "startup": "tcp"}}, None),  # round trips without latency
        ({"links": {**FREE, "rules": [{"between": [0, 1], "latency": "1 ms"}]}}, "a latency"),
        ({"links": {**FREE, "rules": [{"between": [0, 2], "latency": "1 ms"}]}}, None),  # no neighbors
        ({"links": {**FREE, "rules": [{"all": True, "loss": 0.1, "from": 5}]}}, "losses"),
        ({"links": {**FREE, "rules": [{"all": True, "loss": 0.1, "from": 5}]}, "stop": {"time": 4}}, None),
        ({"links": {"rules": [{"all": True, "latency": 0}], "bandwidth": None}}, None),
        ({"links": {**FREE, "rules": [{"all": True, "uplink": {"kind": "lognormal", "mean": "1 Mbit/s", "sigma": 1}}]}},
         "a bandwidth"),
        ({"links": FREE, "regions": {"names": ["a", "b"], "counts": [2, 2], "latency": [[0, 1], [0, 0]]}}, "a latency"),
        ({"links": FREE, "regions": {"names": ["a", "b"], "counts": [4, 0], "latency": [[0, 1], [0, 0]]}}, None),
        ({"links": FREE, "underlay": RACKS}, None),
        ({"links": FREE, "underlay": RACKS | {"latency": "1 us"}}, "a network beneath"),
        ({"links": FREE, "underlay": RACKS | {"bandwidth": "1 Gbit/s"}}, "a network beneath"),
        ({"links": FREE, "underlay": RACKS | {"switches": 1, "latency": "1 us"}}, None),  # all at one switch
    ],
)  # fmt: skip
def test_atomic_exchanges_over_costly_links_get_a_warning(sections, cost):
    setup = ready(**sections)
    assert cost_of(setup) == cost
    said = [line.split(";")[0] for line in setup.warnings if line.startswith("algorithm.exchange")]
    assert said == ([f"algorithm.exchange: atomic averages in no time, although links have {cost}"] if cost else [])


def test_exchanges_by_messages_get_no_warning():
    assert not [line for line in ready(algorithm={"kind": "adpsgd", "batch_size": 4}).warnings if "exchange" in line]


def test_links_of_devices_and_files_have_a_cost(tmp_path):
    path = written(tmp_path / "devices.csv", "name,seconds_per_example,uplink\nphone,1 ms,1 Mbit/s\n")
    assert cost_of(ready(links=FREE, clients={"count": 4, "devices": path})) == "a bandwidth"
    for row, cost in (("0,1,0", None), ("0,1,5 ms", "a latency")):
        edges = written(tmp_path / "edges.csv", f"source,target,latency\n{row}\n1,2,0\n2,3,0\n")
        assert cost_of(ready(links=FREE, topology={"kind": "edge_list", "path": edges})) == cost


def test_trace_from_the_beginning_replaces_the_base_value(tmp_path):
    for first, cost in ((0, None), (1, "a latency")):
        trace = {"kind": "trace", "path": written(tmp_path / "ways.csv", f"time,value\n{first},0\n")}
        assert cost_of(ready(links={"bandwidth": None, "rules": [{"all": True, "latency": trace}]})) == cost


def gossip(**sections):
    sections = {"algorithm": {"kind": "gossip_learning", "batch_size": 4}, **sections}
    setup = ready(**sections)
    assert setup.training.model_bytes == 84
    return {name: pytest.approx(seconds) for name, seconds in overloads(setup, 1e-9)}


def test_overloads_name_the_narrowest_of_each_kind():
    slow = {"clients": [2], "uplink": "672 bit/s"}  # 84 bytes a second
    assert gossip(links={**FREE, "rules": [slow]}) == {"the uplink of client 2": 1.0}
    assert gossip(links={**FREE, "loss": 0.5, "rules": [slow]}) == {"the uplink of client 2": 2.0}
    assert gossip(links={**FREE, "loss": 0.5, "downlink": "672 bit/s"}) == {
        "links.downlink": 1.0
    }  # lost messages do not reach it
    again = {"between": [2, [1, 3]], "direction": "out", "loss": 0.75}
    assert gossip(links={**FREE, "rules": [slow, again]}) == {"the uplink of client 2": 4.0}
    assert gossip(links={**FREE, "rules": [{"between": [0, 1], "direction": "out", "bandwidth": "672 bit/s"}]}) == {
        "the link 0 - 1": 0.5  # one of two neighbors
    }
    assert gossip(links={**FREE, "overhead": 84, "downlink": "672 bit/s"}) == {"links.downlink": 2.0}
    inner = gossip(topology="star", links={**FREE, "rules": [{"all": True, "downlink": "672 bit/s"}]})
    assert inner == {"the downlink of client 0": 3.0}  # all messages of the other three


def test_overloads_count_all_vectors_of_a_message():
    tracking = {"kind": "corrected_gossip", "method": "tracking", "batch_size": 4}
    one = {**tracking, "method": "extra"}
    for narrow in ({"uplink": "672 bit/s"}, {"rules": [{"clients": [2], "uplink": "672 bit/s"}]}):
        links = {**FREE, "overhead": 84, **narrow}
        assert list(gossip(algorithm=one, links=links).values()) == [2.0]
        assert list(gossip(algorithm=tracking, links=links).values()) == [3.0]


def test_edges_of_the_underlay_carry_all_messages_over_them():
    """Clients 0 and 2 at one switch, 1 and 3 at the other: on a ring all messages cross the core."""
    loads = gossip(links=FREE, underlay=RACKS | {"bandwidth": "672 bit/s"})
    assert list(loads.values()) == [2.0]
    assert all(" - " in name and name.endswith("of the underlay") for name in loads)


def test_links_that_are_wide_at_some_time_are_not_overloaded(tmp_path):
    def rules(**window):
        return {"links": {**FREE, "rules": [{"all": True, "uplink": "672 bit/s", **window}]}}

    assert gossip(**rules()) == {"the uplink of client 0": 1.0}
    assert gossip(**rules(until=5)) == {}
    wide = written(tmp_path / "wide.csv", "time,value\n0,672 bit/s\n5,1344 bit/s\n")
    trace = {"links": {**FREE, "rules": [{"all": True, "uplink": {"kind": "trace", "path": wide}}]}}
    assert gossip(**trace) == {"the uplink of client 0": 0.5}
    assert gossip(**trace, stop={"time": 4}) == {"the uplink of client 0": 1.0}


def test_only_uplinks_are_checked_in_large_or_changing_graphs(tmp_path, monkeypatch):
    narrow = {**FREE, "uplink": "672 bit/s", "bandwidth": "672 bit/s"}
    assert gossip(links=narrow) == {"links.uplink": 1.0, "links.bandwidth": 0.5}
    with monkeypatch.context() as patch:
        patch.setattr(traffic, "MOST_LINKS", 7)
        assert gossip(links=narrow) == {"links.uplink": 1.0}
    sampled = {"kind": "peer_sampling", "peers": 2, "redraw_every": 1}
    assert gossip(links=narrow, topology=sampled) == {"links.uplink": 1.0}
    plan = written(tmp_path / "plan.csv", "from,until,a,b\n0,5,0,1\n0,5,1,2\n0,5,2,3\n")
    assert gossip(links=narrow, topology={"kind": "contacts", "path": plan}) == {}
