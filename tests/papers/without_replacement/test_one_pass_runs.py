"""The without-replacement algorithms from scenario to tables: one seed twice, what is recorded, how a run ends."""

import math

import numpy as np
import pytest

from simfl.accounts.check import check
from simfl.privacy.gaussian import analytic_std, gaussian_epsilon
from simfl.runs.runner import prepare, run
from simfl.scenario import loads

pytestmark = pytest.mark.usefixtures("without_numbers")

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


def scenario(kind, **changes):
    return loads(TEXT.format(**filled(kind, **changes)), "one_pass")


def certified(finding):
    return finding.certified["local_transcript", "replace_one"]


def filled(kind, *, seed=1, window="auto", privacy=SOUND, partition="iid"):
    """Return the values of the fields that the scenario's text leaves open."""
    return {
        "algorithm": ALGORITHMS[kind], "seed": seed, "window": window, "privacy": privacy, "partition": partition,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.numbers
@pytest.mark.parametrize("kind", ALGORITHMS)
def test_one_seed_gives_the_same_tables_for_every_window(kind, tmp_path):
    first, short = (run(scenario(kind, window=window), out=tmp_path) for window in ("auto", 37))
    assert first.manifest.digest == short.manifest.digest
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
    setup = prepare(scenario(kind))
    for checked in (check(setup, first), check(setup)):
        accounts = {client: certified(finding) for finding in checked.findings for client in finding.clients}
        np.testing.assert_allclose([accounts[k] for k in range(4)], first.clients["epsilon"], rtol=0.05)
        largest = max(accounts.values())
        assert math.isnan(largest) if kind == "deep_q" else largest == first.clients["epsilon"].max()
        assert checked.statement == first.manifest.extra["privacy"]
    shares = first.updates["round"].ge(0).mean()
    assert shares == 1.0 if "deep" not in ALGORITHMS[kind] else 0.2 < shares < 0.8


def test_a_claim_has_the_delta_of_the_ledger_where_the_scenario_leaves_it_open():
    claimed = "{mechanism: one_pass_gaussian, epsilon: 3, budget: per_task, claim: {epsilon: 3}}"
    checked = check(prepare(scenario("token", privacy=claimed)))
    assert checked.delta == pytest.approx(1438**-2)
    assert checked.understated
    level = analytic_std(3.0, checked.delta, 2.0)
    ten_tasks = gaussian_epsilon(checked.delta, 2.0 * math.sqrt(10) / level)
    assert checked.findings[0].account == pytest.approx(ten_tasks)
    timed = loads(TEXT.replace("{{epochs: 50}}", "{{time: 1 s}}").format(**filled("token")), "timed")
    assert certified(check(prepare(timed)).findings[0]) == pytest.approx(300.0, rel=1e-6), "all data, in the end"


def test_a_run_that_did_not_record_how_often_an_example_is_used_is_not_certified(tmp_path):
    made = run(scenario("token"), out=tmp_path)
    (made.folder / "uses.parquet").unlink()
    checked = check(prepare(scenario("token")), made)
    assert "did not record how often an example is in a release" in checked.statement
    assert all(math.isnan(certified(finding)) for finding in checked.findings)


@pytest.mark.numbers
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
