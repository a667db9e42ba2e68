"""Privacy of users in secure sums: noise, account, faults."""

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest

import simfl
from simfl.accounts import check as claims
from simfl.errors import ScenarioError
from simfl.privacy.cohorts import CohortLedger, CohortPlan
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.privacy.terms import Terms
from simfl.runs.runner import prepare, resume
from simfl.scenario import from_mapping
from simfl.world.secure_sums import Bonawitz, LightSecAgg
from tests.algorithms.test_cohorts import clipped
from tests.algorithms.test_fedbuff import ETA, change
from tests.helpers import Lab, lognormal, make_problem, make_world, run_algorithm, run_until
from tests.runs.test_resumed_worlds import NoNumbers

USERS, STEPS = 6, [1, 2, 3, 1, 2, 3]


def run(kind, plan, protocol, *, norm=0.2, updates=None, **options):
    """Return problem, first and last model, algorithm, updates and sums."""
    problem, sums = make_problem(USERS, local=True, clip="update", clipping_norm=norm, noise="gaussian"), []
    with Lab(problem) as lab:
        protocol = dataclasses.replace(protocol, size=problem.model.size)
        training = dataclasses.replace(lab.training(step_size=ETA), cohorts=plan, secure_sum=protocol)
        ledger = CohortLedger(
            Terms("gaussian_cohort", 1e-5), training.sizes, training.batch_size, "shuffle", [1.0] * USERS, plan
        )
        lab.tape.releases = ledger.counted_by(ledger, [plan.noise_scale] * USERS, norm, True)
        algorithm, rows = run_algorithm(
            kind, make_world(USERS, jitter=lognormal(0.5)), lab.tape, training, updates=updates, steps=STEPS,
            prepare=lambda algorithm: setattr(algorithm.gathering, "on_sum", sums.append), **options,
        )  # fmt: skip
        model = lab.tape.values(algorithm.models())[0].astype(float)
        releases = lab.tape.releases
    return make_problem(USERS, local=True), training.initial.astype(float), model, releases, rows, sums


@pytest.mark.parametrize(("kind", "protocol", "options"), [
    ("fedavg", Bonawitz(4, 1), {"weighting": "uniform"}),
    ("fedbuff", LightSecAgg(4, 1, colluding=2), {"buffer_size": 6, "after_update": "wait", "staleness_exponent": 0}),
])  # fmt: skip
def test_the_noise_of_a_sum_is_that_of_all_its_users(kind, protocol, options):
    """Without noise the step is a loop in float64; with it, the variance is (z C)^2 n / (t - c)."""
    models = []
    for std in (0.0, 0.8):
        plan = CohortPlan(std, least=4, parts=3)
        problem, w, model, releases, rows, _ = run(kind, plan, protocol, updates=6, **options)
        models.append(model)
        assert [row[7] for row in rows][-1] == pytest.approx(std * math.sqrt(6 / 3))
        assert releases.counts == [1] * USERS
    total = sum(clipped(change(problem, w, user, 0, STEPS[user]), 0.2) for user in range(USERS))
    np.testing.assert_allclose(models[0], w + total / 6, atol=2e-6)
    noise = (models[1] - models[0]) * 6 / (0.8 * math.sqrt(2))
    assert noise.std() == pytest.approx(1.0, rel=0.1)
    assert abs(noise.mean()) < 4 / math.sqrt(noise.size)


def test_sums_of_fewer_than_t_are_not_made():
    with pytest.raises(ValueError, match="a sum of 3 updates: expected at least 4"):
        CohortPlan(1.0, least=4, parts=2).scale_of(3)
    assert CohortPlan(2.0).scale_of(1) == 2.0


def test_noise_below_the_accounted_one_is_not_certified():
    plan = CohortPlan(0.5, least=4, parts=4)
    ledger = CohortLedger(Terms("gaussian_cohort", 1e-5), np.array([9] * 6), 3, "shuffle", [1.0] * 6, plan)
    releases = ledger.counted_by(ledger, [0.5] * 6, 1.0, True)

    class Promise:
        released = False

        def __init__(self, client):
            self.client = client

    releases.count_sum([(1.0, Promise(k)) for k in range(4)], 0.5 * math.sqrt(3 / 4))
    spent = ledger.epsilon(releases)
    assert spent[0] == pytest.approx(gaussian_epsilon(1e-5, math.sqrt(4 / 3)))
    assert spent[5] == 0.0


# -- scenarios -----------------------------------------------------------------------------------


FEDAVG = {"kind": "fedavg", "weighting": "uniform", "fraction": 0.7, "secure_sum": {"threshold": 5, "dropout": 0.05}}
NEAR = {**FEDAVG, "secure_sum": {"kind": "secagg_plus", "threshold": 5, "neighbors": 6, "dropout": 0.05}}
FEDBUFF = {
    "kind": "fedbuff", "buffer_size": 6, "after_update": "wait", "staleness_exponent": 0,
    "secure_sum": {"kind": "lightsecagg", "threshold": 6, "dropout": 0.4},
}  # fmt: skip
ALGORITHMS = {"fedavg": FEDAVG, "secagg_plus": NEAR, "fedbuff": FEDBUFF, "diloco": {**FEDAVG, "kind": "diloco"}}
FAULTS = {
    "none": {},
    "crashes": {"availability": [{"clients": [0, 2], "crash": [{"at": 0.02, "back": 0.05}, {"at": 0.3, "back": 0.4}]}]},

    "churn": {
        "availability": [
            {"all": True, "random": {"up": {"kind": "exponential", "mean": 0.2}, "down": "10 ms"}},
            {"clients": [1], "crash": [{"at": 0.4, "back": "never"}]}, {"clients": [3], "offline": [[0, 0.15]]},
        ],
    },
    "server away": {"server": {"offline": [[0.02, 0.06], [0.2, 0.21]]}},
    "losses": {"links": {"latency": "1 ms", "loss": 0.2, "resend_timeout": "10 ms"}},
    "a cut": {"links": {"latency": "1 ms", "partitions": [{"groups": [[0, 1]], "from": 0.02, "until": 0.1}]}},
}  # fmt: skip


def scenario(algorithm=FEDAVG, **changes):
    privacy = {"unit": "user", "where": "secure_sum", "noise_multiplier": 2.0, "delta": 1e-3, "clipping_norm": 0.5}
    return from_mapping(
        {
            "data": "digits",
            "clients": {"count": 10, "speed": {"kind": "lognormal", "sigma": 0.4}},
            "links": {"latency": "1 ms"},
            "algorithm": {"local_steps": 2, "batch_size": 16, "step_size": 0.1, **algorithm},
            "stop": {"updates": 150},
            "evaluate": {"every": {"updates": 30}},
            **changes,
            "privacy": {**privacy, **changes.get("privacy", {})},
        }
    )


@pytest.mark.slow(but=["churn-fedavg", "crashes-fedbuff"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_user_pays_for_the_sums_that_it_is_in_and_for_no_other(fault, algorithm, tmp_path, monkeypatch):
    """The independent count: rounds of the table of updates. Too few answers cost nothing. Resumes are equal."""
    monkeypatch.setattr("simfl.runs.context.Executor", NoNumbers)
    rule = {"min_separation": 1} if algorithm == "fedavg" else None
    given = scenario(ALGORITHMS[algorithm], **FAULTS[fault], privacy={"participation": rule})
    made, events = run_until(prepare(given), math.inf, tmp_path)
    sums, updates = made.secure_sums, made.updates
    counts = Counter(made.cohorts["client"])
    shown = (sums["members"] == 0) & (sums["masked"] >= 6) & (sums["unmasking"] > 3) & (algorithm == "fedbuff")
    released = set(made.cohorts["release"])
    assert len(released) == (sums["members"] > 0).sum() + shown.sum()
    used = Counter(updates["client"])
    assert all(used[user] <= counts[user] for user in used)
    assert bool(sum(counts.values()) - sum(used.values())) == bool(shown.sum())
    assert max(updates.groupby(["round", "client"]).size()) == 1
    assert sorted(sums["members"][sums["members"] > 0]) == sorted(updates.groupby("round").size())
    assert sums["members"][sums["members"] > 0].min() >= 5
    for user, epsilon in zip(made.clients["client"], made.clients["epsilon"], strict=True):
        assert epsilon == pytest.approx(gaussian_epsilon(1e-3, math.sqrt(counts[user]) / 2.0) if counts[user] else 0.0)
    assert made.clients["dropped"].sum() >= (sums["keys"] - sums["members"]).sum()
    again = max(one.certified["local_transcript", "add_or_remove"] for one in claims.check_run(made).findings)
    assert again == pytest.approx(made.clients["epsilon"].max())
    cut, _ = run_until(prepare(given), events // 2, tmp_path)
    assert resume(cut.folder).manifest.digest == made.manifest.digest


@pytest.mark.parametrize("early", ["wait", "send_away"])
def test_aborted_buffers_do_not_count_at_the_gate(early, tmp_path, monkeypatch):
    """Users are two sums apart, whatever is aborted in between, and the run goes on to its end."""
    monkeypatch.setattr("simfl.runs.context.Executor", NoNumbers)
    algorithm = {**FEDBUFF, "buffer_size": 4, "secure_sum": {"kind": "lightsecagg", "threshold": 4, "dropout": 0.5}}
    rule = {"min_separation": 2, "at_most": 60, "early": early}
    made = simfl.run(scenario(algorithm, privacy={"participation": rule}, stop={"updates": 100}), out=tmp_path)
    assert made.status == "done"
    assert len(made.updates) == 100
    sums = made.cohorts.groupby("client")["release"]
    assert sums.agg(lambda numbers: numbers.diff().min()).min() >= 2
    assert sums.size().max() <= 60
    assert (made.secure_sums["members"] == 0).sum() > 3
    sums = made.secure_sums
    shown = (sums["members"] == 0) & (sums["unmasking"] > 2)  # T is half of the threshold
    assert made.cohorts["release"].max() + 1 == (sums["members"] > 0).sum() + shown.sum()
    assert 0 < shown.sum() < (sums["members"] == 0).sum()


def test_survivors_without_common_masks_are_not_certified(tmp_path, monkeypatch):
    monkeypatch.setattr("simfl.runs.context.Executor", NoNumbers)
    few = {**FEDAVG, "secure_sum": {"kind": "secagg_plus", "threshold": 3, "neighbors": 2, "neighbors_threshold": 1}}
    few["secure_sum"]["dropout"] = 0.15
    made = simfl.run(scenario(few, stop={"updates": 300}), out=tmp_path)
    assert made.clients["epsilon"].isna().all()
    assert "fall into parts, whose sums the server can compute" in made.manifest.extra["privacy"]
    enough = {**few, "secure_sum": {**few["secure_sum"], "neighbors": 6}}
    assert simfl.run(scenario(enough, stop={"updates": 300}), out=tmp_path).clients["epsilon"].notna().all()


def test_a_budget_stops_users_in_secure_sums(tmp_path):
    given = scenario(privacy={"epsilon": 3.0}, stop={"updates": 100_000})
    made = simfl.run(given, out=tmp_path)
    assert made.clients["epsilon"].max() <= 3.0
    assert made.manifest.reason.startswith("nothing left to happen")


def test_the_statement_says_what_the_server_sees_and_what_is_taken_for_granted():
    setup = prepare(scenario(privacy={"colluding": 2, "cohorts": "poisson", "releases": 10}))
    assert setup.training.cohorts.parts == 3
    for words in (
        "a user that takes part or adds noise only", "view of the server (sums of at least 5 noisy updates, of whom 2",
        "tell the server their noise and shares, also aborted ones that late answers may unmask",
        "simulated in time and bytes, and taken for granted", "q = 1: a secure sum is aborted if too few survive",
    ):  # fmt: skip
        assert words in setup.ledger.statement
    trusted = prepare(scenario(privacy={"where": "server"}))
    assert "the server itself sees sums of at least 5 updates, without noise" in trusted.ledger.statement
    assert trusted.training.cohorts.parts == 0


@pytest.mark.parametrize(("algorithm", "privacy", "message"), [
    ({"secure_sum": None}, {},
     "algorithm.secure_sum: expected a protocol with privacy.where: secure_sum, found null"),
    ({}, {"where": "server", "colluding": 1}, "privacy.colluding: expected 0 with where: server, found 1"),
    ({}, {"colluding": 5}, "privacy.colluding: expected below the threshold of secure sums, 5, found 5"),
    ({**FEDBUFF, "staleness_exponent": 0.5}, {}, "algorithm.staleness_exponent: expected 0 with privacy.where"),
    (FEDBUFF, {"colluding": 4}, "privacy.colluding: expected at most 3, who learn nothing together with the server"),
    (NEAR, {"colluding": 4}, "privacy.colluding: expected at most 3, who learn nothing together with the server"),
    ({"secure_sum": {"kind": "secagg_plus", "threshold": 5, "neighbors": 20}}, {"colluding": 4},
     "privacy.colluding: expected at most 3, who learn nothing together with the server"),
    ({}, {"noise": "tree", "releases": 10, "participation": {"min_separation": 1}},
     "privacy.noise: expected null with privacy.where: secure_sum, found 'tree'"),
    ({"weighting": "data"}, {}, "algorithm.weighting: expected 'uniform' with unit: user"),
])  # fmt: skip
def test_noise_that_would_not_be_there_is_refused(algorithm, privacy, message):
    with pytest.raises(ScenarioError) as caught:
        scenario(algorithm if "kind" in algorithm else {**FEDAVG, **algorithm}, privacy=privacy)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["FedAvg", "FedBuff"])
def test_a_run_ends_when_the_gate_lets_too_few_users_in(name, tmp_path):
    """Two of ten users leave: six of the others were in the last two sums, and two are no secure sum of three."""
    secure = {"kind": "lightsecagg", "threshold": 3}
    algorithm = {**FEDAVG, "fraction": 0.3, "secure_sum": secure}
    if name == "FedBuff":
        algorithm = {**FEDBUFF, "buffer_size": 3, "secure_sum": secure}
    rule = {"min_separation": 3, "early": "wait"}
    leaves = [{"clients": [0, 1], "crash": [{"at": "1 s", "back": "never"}]}]
    given = scenario(algorithm, privacy={"participation": rule}, availability=leaves, stop={"updates": 10_000})
    made = simfl.run(given, out=tmp_path)
    assert made.manifest.reason.endswith("fewer than 3 clients are left for a secure sum, as participation allows")
    assert (made.secure_sums["members"] == 0).sum() < 5


@pytest.mark.parametrize("name", ["FedAvg", "FedBuff"])
def test_each_second_of_a_client_counts_once(name, tmp_path, monkeypatch):
    """Messages come after the time for their round is over, and clients answer while they train or send."""
    monkeypatch.setattr("simfl.runs.context.Executor", NoNumbers)
    algorithm = {**FEDAVG, "secure_sum": {"threshold": 2, "timeout": "30 ms", "mask_rate": "2 MB/s"}}
    if name == "FedBuff":
        secure = {"kind": "lightsecagg", "threshold": 2, "mask_rate": "100 kB/s"}
        algorithm = {**FEDBUFF, "buffer_size": 4, "secure_sum": secure}
    links = {"latency": {"kind": "uniform", "low": 0, "high": "25 ms"}}
    made = simfl.run(scenario(algorithm, links=links, record={"timeline": True}, stop={"updates": 40}), out=tmp_path)
    table = made.timeline
    seconds = (table["end_s"] - table["start_s"]).groupby([table["client"], table["activity"]]).sum().unstack()
    columns = made.clients[["compute_s", "wait_s", "communicate_s"]]
    np.testing.assert_allclose(seconds.to_numpy(), columns.to_numpy(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(columns.sum(axis=1), made.manifest.time_s, rtol=1e-9)
