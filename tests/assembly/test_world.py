"""Mean times of mini-batches over a run, from speeds, slowdowns and traces."""

import numpy as np
import pytest

import simfl
from simfl.assembly.world import batch_times_s
from simfl.streams import Streams

BATCH_S = 32e-4
SIZES = [64] * 4
SECTIONS = {
    "data": {"set": "linear", "samples": 256, "dimension": 4}, "model": "linear",
    "algorithm": {"kind": "swift"}, "topology": "ring", "links": {"latency": "100 us"},
}  # fmt: skip


def made(clients=None, slowdowns=(), stop=None, **algorithm):
    """Return a scenario of four clients; a mini-batch takes 3.2 ms at speed 1."""
    clients = {"count": 4, "seconds_per_example": "100 us", **(clients or {})}
    given = {**SECTIONS, "clients": clients, "slowdowns": list(slowdowns), "stop": stop or {"time": "4 s"}}
    return simfl.load({**given, "algorithm": {**SECTIONS["algorithm"], **algorithm}})


def trace(folder, *rows):
    """Write a trace of factors; return the field that names it."""
    (folder / "trace.csv").write_text("\n".join(["time,client,factor", *rows]))
    return {"trace": {"path": str(folder / "trace.csv")}}


SLOW = {"factor": 3, "clients": [1, 2]}


@pytest.mark.parametrize("kind", ["swift", "a2cid2"])
def test_weights_of_a_slow_client_do_not_depend_on_how_the_scenario_makes_it_slow(kind, tmp_path):
    listed = {"speed": {"kind": "list", "values": [1, 3, 3, 1]}}
    ways = [made(listed, kind=kind), made(slowdowns=[SLOW], kind=kind)]
    ways.append(made(trace(tmp_path, "0 s,1,3", "0 s,2,3"), kind=kind))
    by_speed, by_rule, by_trace = (simfl.prepare(way).options["gradient_s"] for way in ways)
    assert by_speed == by_rule == by_trace == pytest.approx([BATCH_S, 3 * BATCH_S, 3 * BATCH_S, BATCH_S])


def test_steps_by_speed_count_slowdowns():
    local = {"kind": "async_local_sgd", "steps": "by_speed", "local_steps": 9}
    for way in ({"clients": {"speed": {"kind": "list", "values": [1, 3, 3, 1]}}}, {"slowdowns": [SLOW]}):
        assert simfl.prepare(made(**way, **local)).options["steps"] == [9, 3, 3, 9]


@pytest.mark.parametrize(
    ("stop", "slow_s"),
    [({"time": "4 s"}, 1.0), ({"time": "1 s"}, 1.0), ({"time": "800 ms"}, 0.8), ({"updates": 4000}, None)],
)
def test_a_slowdown_counts_for_its_part_of_the_run(stop, slow_s):
    """Client 1 makes a fifth of the steps in the first second; 4 clients make 312.5 steps a second each."""
    scenario = made(slowdowns=[{"factor": 5, "clients": [1], "until": "1 s"}], stop=stop)
    end_s = scenario.stop.time or (4000 + 250) / 1250
    steps = (end_s - (slow_s or 1.0) * 0.8) / BATCH_S
    found = batch_times_s(scenario, Streams(1), SIZES, scenario.stop.updates or np.inf)
    assert found == pytest.approx([BATCH_S, end_s / steps, BATCH_S, BATCH_S])


def test_mean_times_are_those_of_a_run(tmp_path, without_numbers):
    """Rules that overlap, a draw of two clients for each iteration, and a trace that repeats."""
    clients = {
        "speed": {"kind": "list", "values": [1, 2, 1, 0.5]}, "jitter": {"kind": "lognormal", "sigma": 0.4},
        **trace(tmp_path, "0 s,all,1", "0 s,3,1.5", "500 ms,3,4", "1 s,all,2"),
    }  # fmt: skip
    clients["trace"]["every"] = "2 s"
    rules = [
        SLOW,
        {"factor": 4, "random": 2, "from": "1 s"},
        {"factor": 2, "clients": [0], "from": "2 s", "until": "3 s"},
    ]
    scenario = made(clients, rules, {"time": "16 s"})
    run = simfl.run(scenario, out=tmp_path)
    updates = run.updates.groupby("client").size().to_numpy()
    assert batch_times_s(scenario, Streams(scenario.seed), SIZES) == pytest.approx(16.0 / updates, rel=0.05)
