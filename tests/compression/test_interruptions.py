"""Compressed runs are the same at any window, and resume with their memories, those in flight included."""

import math
import random

import pytest

from simfl.runs import checkpoint, intervals
from simfl.runs.runner import prepare, resume, run
from simfl.scenario import loads
from tests.helpers import RunOfOperations, run_until
from tests.runs.test_checkpoint import equal

SCENARIO = """
data: {set: logistic, samples: 120}
model: logistic
clients: {count: 5, seconds_per_example: 1 ms, jitter: {kind: lognormal, sigma: 0.4}}
links: {latency: {kind: exponential, mean: 6 ms}, bandwidth: 1 Mbit/s, loss: 0.1, resend_timeout: 5 ms}
availability:
  - {clients: [1], crash: [{at: 30 ms, back: 60 ms}]}
  - {clients: [2], offline: [[25 ms, 50 ms]]}
  - {clients: [4], join: 20 ms}
stop: {updates: 60}
evaluate: {every: {updates: 30}}
record: {messages: true, client_models: true}
"""
#: Algorithms with their compression. Memories: estimates of neighbors, errors, and both ways of a server.
WAYS = {
    "choco": ("decentralized_sgd", "{kind: qsgd, gamma: 0.3}"),
    "deep_squeeze": ("decentralized_sgd", "{kind: random_k, share: 0.3, scheme: deep_squeeze, gamma: 0.1}"),
    "ecd": ("decentralized_sgd", "{kind: qsgd, levels: 64, scheme: ecd}"),
    "pairs": ("adpsgd, pairing: everyone", "{kind: random_k, share: 0.3, gamma: 0.3}"),
    "gossip": ("gossip_learning", "{kind: sign, gamma: 0.3}"),
    "pairs that squeeze": ("adpsgd", "{kind: random_k, share: 0.3, scheme: deep_squeeze, gamma: 0.2}"),
    "overlap": ("sgp, overlap: 2", "{kind: sign, scheme: deep_squeeze, gamma: 0.2}"),
    "dcd": ("decentralized_sgd", "{kind: sign, scheme: dcd}"),
    "push-sum": ("sgp", "{kind: top_k, share: 0.3, gamma: 0.3}"),
    "error_feedback": ("fedbuff, buffer_size: 2", "{kind: random_k, share: 0.3, downlink: true}"),
    "ef21": ("async_sgd", "{kind: qsgd, scheme: ef21, downlink: true}"),
}
#: Those that are computed: gossip, pairs and a server. test_schemes.py and its neighbors have the numbers of all.
COMPUTED = ("choco", "pairs", "error_feedback")
TIMES = 6


def scenario(name, window="auto"):
    algorithm, compression = WAYS[name]
    changes = [f"algorithm={{kind: {algorithm}, batch_size: 4}}", f"compression={compression}"]
    changes += [f"execution.window={window}"]
    if name != "error_feedback":  # noise in windows
        changes += ["privacy={mechanism: gaussian, noise_multiplier: 0.5, accountant: renyi}"]
    return loads(SCENARIO, name, overrides=changes)


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_a_run_at_another_window_or_interrupted_at_moments_ends_with_the_same_tables_and_models(
    name, tmp_path, monkeypatch
):
    """Each interruption leaves a checkpoint in the folder, from which the next run goes on."""
    if name not in COMPUTED:
        monkeypatch.setattr("simfl.runs.context.Executor", RunOfOperations)
    whole, events = run_until(prepare(scenario(name)), math.inf, tmp_path)
    assert equal(run(scenario(name, window=7), out=tmp_path), whole)
    moments = sorted(random.Random(name).sample(range(5, events - 1), TIMES))
    cut, _ = run_until(prepare(scenario(name)), moments[0], tmp_path)
    stopped_s = [cut.manifest.time_s]
    for event in moments[1:]:
        since = checkpoint.read(cut.folder / intervals.FILE)
        cut, _ = run_until(prepare(scenario(name)), event, tmp_path, since=since, folder=cut.folder)
        assert cut.status == "interrupted"
        stopped_s.append(cut.manifest.time_s)
    resumed = resume(cut.folder)
    assert equal(resumed, whole)
    assert resumed.manifest.extra["resumed"] == TIMES
    sent_s, came_s = (whole.messages[column].to_numpy() for column in ("sent_s", "delivered_s"))
    flying = [((sent_s < now) & (now < came_s)).any() for now in stopped_s]
    assert sum(flying) > TIMES / 2, "messages were in flight"
