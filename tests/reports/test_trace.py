"""Traces are in the trace event format and have the values of the tables."""

import json
from collections import Counter, defaultdict

import pytest

from simfl.errors import DataError, ScenarioError
from simfl.records import ACTIVITIES, read
from simfl.reports.trace import CLIENTS, LINKS, RUN, parse_clients, write_trace
from tests.runs.test_timeline import run

pytestmark = pytest.mark.usefixtures("without_numbers")

#: What every event of a phase must have, and what it may have besides.
FIELDS = {
    "M": ({"name", "pid", "tid", "args"}, set()),
    "C": ({"name", "pid", "tid", "ts", "args"}, set()),
    "X": ({"name", "cat", "pid", "tid", "ts", "dur"}, {"args", "cname"}),
    "i": ({"name", "cat", "pid", "tid", "ts", "s", "args"}, set()),
    "s": ({"name", "cat", "id", "pid", "tid", "ts"}, set()),
    "t": ({"name", "cat", "id", "pid", "tid", "ts"}, set()),
    "f": ({"name", "cat", "id", "pid", "tid", "ts", "bp"}, set()),
}


def ns(microseconds):
    return round(microseconds * 1000)


def opened(path):
    """Check the format of a trace and return its events."""
    trace = json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert set(trace) == {"displayTimeUnit", "otherData", "traceEvents"}
    events = trace["traceEvents"]
    named, used = set(), set()
    slices, flows = defaultdict(list), defaultdict(list)
    for event in events:
        needed, allowed = FIELDS[event["ph"]]
        assert needed <= set(event) - {"ph"} <= needed | allowed, event
        assert type(event["pid"]) is int
        assert type(event["tid"]) is int
        track = event["pid"], event["tid"]
        if event["ph"] == "M":
            named |= {track} if event["name"] == "thread_name" else set()
        else:
            used |= {track} if event["ph"] != "C" else set()
            assert event["ts"] >= 0
            assert event["ts"] == pytest.approx(ns(event["ts"]) / 1000, rel=1e-12)
        if event["ph"] == "X":
            assert event["dur"] > 0
            slices[track].append((ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])))
        elif event["ph"] in "stf":
            flows[event["id"]].append(event)
    assert used <= named  # no track without a name
    for track, own in slices.items():  # slices of a track lie inside or beside each other
        stack = []
        for start, end in sorted(own, key=lambda piece: (piece[0], -piece[1])):
            while stack and stack[-1] <= start:
                stack.pop()
            assert not stack or end <= stack[-1], (track, start, end)
            stack.append(end)
    starts = {track: dict(own) for track, own in slices.items()}
    for own in flows.values():  # an arrow begins, goes on and ends in slices, forward in time
        phases = "".join(event["ph"] for event in own)
        assert phases in {"sf", "stf"}
        assert [event["ts"] for event in own] == sorted(event["ts"] for event in own)
        for event in own:
            assert ns(event["ts"]) in starts[event["pid"], event["tid"]]
    return events


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return run(tmp_path_factory.mktemp("runs"), "messages")


def test_the_trace_has_the_values_of_the_tables(made, tmp_path):
    written = write_trace(made, tmp_path / "trace.json")
    events = opened(written.path)
    assert written.missing == ()
    assert written.events == len(events)
    assert not list(tmp_path.glob("*.partial"))
    shown = Counter((e["ph"], e.get("cat")) for e in events)
    assert shown["i", "update"] == len(made.updates)
    assert shown["s", "message"] == shown["t", "message"] == shown["f", "message"] == len(made.messages)
    assert [e["args"]["staleness"] for e in events if e["ph"] == "i"] == made.updates["staleness"].tolist()
    for number, name in enumerate(ACTIVITIES):
        own = made.timeline[made.timeline["activity"] == number]
        told = sum(e["dur"] for e in events if e["ph"] == "X" and e["name"] == name and e["cat"] == "activity")
        assert told == pytest.approx(1e6 * (own["end_s"] - own["start_s"]).sum(), rel=1e-6)
    on_links = [e for e in events if e["ph"] == "X" and e["pid"] == LINKS]
    assert [e["args"]["bytes"] for e in on_links] == made.messages["bytes"].tolist()
    assert on_links[0]["dur"] == pytest.approx(
        1e6 * (made.messages["delivered_s"] - made.messages["sent_s"]).iloc[0], abs=1e-3
    )
    counters = [e for e in events if e["ph"] == "C" and e["name"] == "test accuracy"]
    assert [e["args"]["value"] for e in counters] == made.metrics["test_accuracy"].tolist()
    assert {e["pid"] for e in counters} == {RUN}


@pytest.mark.parametrize("algorithm", ["sync", "gossip", "server", "rounds"])
def test_every_way_to_communicate_can_be_shown(algorithm, tmp_path):
    events = opened(write_trace(run(tmp_path, algorithm), tmp_path / "trace.json").path)
    tracks = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {f"client {k}" for k in range(4)} <= tracks
    if algorithm in {"server", "rounds"}:
        assert {"server", "client 0 to server", "server to client 0"} <= tracks


def test_a_trace_can_be_limited_to_times_and_clients(made, tmp_path):
    written = write_trace(made, tmp_path / "trace.json", start_s=0.2, end_s=0.4, clients=[0, 2])
    events = opened(written.path)
    assert {e["tid"] for e in events if e["pid"] == CLIENTS and e["ph"] == "i"} == {1, 3}
    for event in events:
        if event["ph"] in "XiC" and event.get("dur") != 0.001:  # whole messages: their ends may lie outside
            assert event["ts"] <= 4e5
            assert event["ts"] + event.get("dur", 0.0) >= 2e5
    messages = made.messages
    touching = messages[(messages["sent_s"] <= 0.4) & (messages["delivered_s"] >= 0.2)]
    expected = touching["source"].isin([0, 2]) | touching["target"].isin([0, 2])
    assert sum(e["ph"] == "f" for e in events) == expected.sum() > 0


def test_missing_tables_are_reported(make_run, simfl_):
    folder = make_run()
    code, out, err = simfl_("trace", folder, "-o", "t.json", "--clients", "0,2-3", "--from", "100 ms")
    assert code == 0
    assert "t.json: " in out
    assert f"{folder}: no table of timeline: the trace does not show what clients do; record it with " in err
    assert "--set record.timeline=true" in err
    assert "--set record.messages=true" in err
    folder.joinpath("updates.parquet").unlink()
    with pytest.raises(DataError, match=r"nothing to trace; run it again with --set record\.timeline=true"):
        write_trace(read(folder), folder / "trace.json")


def test_bad_input_is_rejected(make_run, simfl_):
    folder = make_run()
    for words, complaint in (
        (["--clients", "1-"], "trace: --clients: expected numbers and ranges such as 0-3,7, found '1-'\n"),
        (["--clients", "9"], "trace: clients: expected numbers from 0 to 3, found 9\n"),
        (["--from", "3", "--until", "2 s"], "trace: expected a begin before the end, found 3 s and 2 s\n"),
        (["-o", "no/such/t.json"], "no/such/t.json: cannot write the trace: No such file or directory\n"),
        (["-o", "."], ".: cannot write the trace: Is a directory\n"),
    ):
        assert simfl_("trace", folder, *words)[::2] == (2, complaint)
    assert simfl_("trace", folder, "--until", "2 parsecs")[0] == 2
    with pytest.raises(ScenarioError, match="ranges"):
        parse_clients("")
    assert parse_clients("3, 0-1,1") == [0, 1, 3]
