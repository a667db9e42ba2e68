"""Intervals of clients' time: they add up to the sums in the table of clients, and change nothing else."""

import numpy as np
import pytest

import simfl
from simfl.records import ACTIVITIES
from simfl.scenario import loads

pytestmark = pytest.mark.usefixtures("without_numbers")

BASE = """
name: timeline
seed: 3
data: {{set: digits}}
clients: {{count: 4, seconds_per_example: 1 ms, speed: {{kind: list, values: [1, 1.5, 2, 1]}},
  jitter: {{kind: lognormal, sigma: 0.3}}}}
topology: complete
links: {{latency: 5 ms, bandwidth: 1 Mbit/s}}
algorithm: {algorithm}
availability:
  - {{clients: [1], offline: [[0.1 s, 0.3 s], [0.7 s, 0.75 s]]}}
  - {{clients: [2], crash: [{{at: 0.42 s, back: 0.6 s}}]}}
  - {{clients: [3], crash: [{{at: 0.9 s, back: never}}]}}
stop: {{time: 1.21 s}}
evaluate: {{every: {{time: 1 s}}}}
record: {{messages: true, timeline: {timeline}}}
"""

ALGORITHMS = {
    "federated": "{kind: fedavg, batch_size: 16, local_steps: 2, deadline: 60 ms}",
    "proximal": "{kind: fedprox, batch_size: 16, local_steps: 3, deadline: 60 ms}",
    "broadcasts": "{kind: async_fl, sizes: 64}",
    "sync": "{kind: sync_sgd, batch_size: 16}",
    "atomic": "{kind: adpsgd, batch_size: 16, exchange: atomic}",
    "messages": "{kind: adpsgd, batch_size: 16}",
    "gossip": "{kind: decentralized_sgd, batch_size: 16}",
    "server": "{kind: async_sgd, batch_size: 16, staleness_bound: {bound: 1, policy: wait}}",
    "rounds": "{kind: fedbuff, batch_size: 16, local_steps: 3, buffer_size: 2}",
}


def run(tmp_path, algorithm, timeline="true"):
    return simfl.run(loads(BASE.format(algorithm=ALGORITHMS[algorithm], timeline=timeline), "t"), out=tmp_path)


@pytest.mark.slow(but=["gossip"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_intervals_add_up_to_the_sums(tmp_path, algorithm):
    made = run(tmp_path, algorithm)
    table, clients = made.timeline, made.clients.set_index("client")
    assert (table["start_s"] < table["end_s"]).all()
    assert table["end_s"].max() <= made.manifest.time_s
    seconds = (table["end_s"] - table["start_s"]).groupby([table["client"], table["activity"]]).sum()
    for client in range(4):
        own = {ACTIVITIES[activity]: value for activity, value in seconds[client].items()}
        sums = clients.loc[client]
        assert own.get("compute", 0) + own.get("lost", 0) == pytest.approx(sums["compute_s"], rel=1e-9)
        for activity in ("wait", "communicate", "offline"):
            assert own.get(activity, 0.0) == pytest.approx(sums[f"{activity}_s"], rel=1e-9, abs=1e-9), activity
        assert sum(own.values()) == pytest.approx(made.manifest.time_s, rel=1e-9), "all of its time"
    for client, own in table.sort_values(["start_s", "end_s"]).groupby("client"):
        assert (own["start_s"].to_numpy()[1:] >= own["end_s"].to_numpy()[:-1]).all(), client


def test_random_outages_end_at_a_permanent_crash(tmp_path):
    """By rounding, a computation seems to last 1e-17 s longer than the crash; no interval begins there."""
    base = BASE.format(algorithm=ALGORITHMS["atomic"], timeline="true")
    churn = (
        "  - {all: true, random: {up: {kind: exponential, mean: 50 ms}, down: {kind: exponential, mean: 10 ms}}}\nstop"
    )
    made = simfl.run(loads(base.replace("stop", churn, 1), "t"), out=tmp_path)
    seconds = (made.timeline["end_s"] - made.timeline["start_s"]).groupby(made.timeline["client"]).sum()
    assert seconds.to_numpy() == pytest.approx([made.manifest.time_s] * 4)


def test_computation_lost_in_a_crash_is_an_activity_of_its_own(tmp_path):
    table = run(tmp_path, "atomic").timeline
    lost = table[table["activity"] == ACTIVITIES.index("lost")]
    # Client 2 crashes, and client 3 leaves half-way.
    assert lost["client"].tolist() == [2, 3]
    assert lost["end_s"].to_numpy() == pytest.approx([0.42, 0.9], rel=1e-12)


def test_recording_a_timeline_changes_nothing_else(tmp_path):
    watched, plain = (run(tmp_path, "messages", timeline) for timeline in ("true", "false"))
    tables = dict(watched.manifest.tables)
    del tables["timeline"]
    assert tables == plain.manifest.tables
    with pytest.raises(simfl.DataError, match=r"no table of timeline; set record\.timeline: true"):
        _ = plain.timeline
    assert np.isfinite(watched.timeline.to_numpy()).all()
