"""The without-replacement algorithms from scenario to tables: one seed twice, what is recorded, how a run ends."""

import numpy as np
import pytest

from simfl.scenario import loads
from simfl.simulation.runner import prepare, run

TEXT = """
name: one_pass
seed: {seed}
data: {{set: digits, normalize: unit_sphere_with_constant, partition: {{kind: {partition}}}}}
model: {{kind: one_vs_all, intercept: false}}
clients: {{count: 4, seconds_per_example: 1 ms, jitter: {{kind: lognormal, sigma: 0.4}}}}
links: {{latency: 2 ms, bandwidth: 1 Mbit/s, loss: 0.1, resend_timeout: 5 ms}}
availability:
  - {{clients: [1], crash: [{{at: 60 ms, back: 120 ms}}]}}
  - {{clients: [2], offline: [[50 ms, 90 ms]]}}
algorithm: {{kind: {algorithm}, batch_size: 20}}
privacy: {privacy}
stop: {{epochs: 50}}
evaluate: {{every: {{epochs: 0.5}}, clients: true}}
execution: {{window: {window}}}
"""
ALGORITHMS = {
    "token": "without_replacement_sgd, step_size: 0.5",
    "race": "without_replacement_sgd, step_size: 0.5, contention: race",
    "walk": "random_walk_sgd, visits: 2",
    "deep_q": "deep_q_sgd, step_size: 0.5",
    "coin": "deep_q_sgd, step_size: 0.5, explore_to: 1",
}
SOUND = "{mechanism: one_pass_gaussian, epsilon: 300}"


def scenario(kind, *, seed=1, window="auto", privacy=SOUND, partition="iid"):
    text = TEXT.format(algorithm=ALGORITHMS[kind], seed=seed, window=window, privacy=privacy, partition=partition)
    return loads(text, "one_pass")


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_one_seed_gives_the_same_tables_whatever_the_window(kind, tmp_path):
    first, again, short = (run(scenario(kind, window=window), out=tmp_path) for window in ("auto", "auto", 37))
    assert first.manifest.digest == again.manifest.digest == short.manifest.digest
    visits = 2 if kind == "walk" else 1
    plural = "s" if visits > 1 else ""
    assert first.status == "done"
    assert first.manifest.reason == f"nothing left to happen: every client has used its data {visits} time{plural}"
    sizes = first.clients["samples"]
    assert first.clients["updates"].tolist() == (10 * (visits * sizes // 20)).tolist()
    metrics = first.metrics
    # 359 or 360 examples make 17 or 18 batches: up to a twentieth of an epoch is left over.
    assert metrics["epochs"].iloc[-1] == pytest.approx(visits, rel=0.06)
    assert metrics["test_accuracy"].iloc[-1] > (0.3 if kind != "deep_q" else 0.1)  # 18 batches teach a network little
    own = first.client_metrics
    assert len(own) == len(metrics) * (4 if "deep" in ALGORITHMS[kind] else 1)
    if kind == "deep_q":
        assert metrics["epsilon"].isna().all()
        assert "not certified: the network decides" in first.manifest.extra["privacy"]
    else:
        assert metrics["epsilon"].iloc[0] == 0.0
        assert metrics["epsilon"].iloc[-1] == pytest.approx(300.0, rel=1e-6)
        # Where 20 divides the 360 examples of a client, no batch straddles two passes.
        bound = np.where((sizes % 20 == 0) & (visits > 1), 0.6 * 300.0, 300.0)
        assert (first.clients["epsilon"] <= bound * (1 + 1e-6)).all()
        assert metrics["epsilon"].is_monotonic_increasing
    shares = first.updates["round"].ge(0).mean()
    assert shares == 1.0 if "deep" not in ALGORITHMS[kind] else 0.2 < shares < 0.8


def test_without_privacy_they_are_the_papers_noiseless_curves(tmp_path):
    noisy, plain = (run(scenario("token", privacy=privacy), out=tmp_path) for privacy in ("one_pass_gaussian", "null"))
    assert plain.metrics["test_accuracy"].iloc[-1] > noisy.metrics["test_accuracy"].iloc[-1] + 0.05
    same = ["time_s", "client", "peer", "round", "staleness", "step_size"]
    assert plain.updates[same].equals(noisy.updates[same]), "noise changes nothing about what happens when"


def test_nodes_that_draw_from_one_set_share_the_budget():
    text = scenario("token", partition="resample, size: 1000").to_yaml()
    setup = prepare(loads(text, "one_pass"))
    assert setup.ledger.holders == 4
    alone = prepare(scenario("token"))
    assert alone.ledger.holders == 1
    # The budget is joint: four times as many releases, and delta = 1/n² of more examples.
    assert setup.training.noise_std[0] > 1.9 * alone.training.noise_std[0]
    assert not any("resample" in line for line in setup.warnings), "this ledger counts all holders"
