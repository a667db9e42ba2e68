"""Aborted secure sums that the server learns all the same: late answers, and shares of colluding users.

The reckoning knows the tables of messages and sums only. It lets every client that ever gets the request of the last
round answer, as a real client does, and counts the sums that the server can compute in the end.
"""

import itertools
import math
from collections import Counter

import pytest

import simfl
from simfl.accounts import check as claims
from simfl.algorithms import secure_sums
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.runs.runner import prepare, resume
from simfl.scenario import from_mapping
from tests.helpers import run_until
from tests.runs.test_resumed_worlds import NoNumbers
from tests.world.test_secure_sums import learns

pytestmark = pytest.mark.usefixtures("without_numbers")
DELTA, Z = 1e-3, 2.0
PROTOCOLS = {
    "bonawitz": {"kind": "bonawitz", "threshold": 12},
    "secagg_plus": {"kind": "secagg_plus", "threshold": 12, "neighbors": 10, "neighbors_threshold": 5},
    "lightsecagg": {"kind": "lightsecagg", "threshold": 12, "colluding": 6},
}
#: Exponential latencies of 50 ms, and rounds of messages that last 130 ms.
LATE = {"latency": {"kind": "exponential", "mean": "50 ms"}}


def scenario(secure, kind="fedavg", **changes):
    algorithm = {"local_steps": 1, "batch_size": 8, "step_size": 0.1, "kind": kind, "secure_sum": secure}
    if kind == "fedbuff":
        algorithm |= {"buffer_size": 20, "after_update": "wait", "staleness_exponent": 0}
    else:
        algorithm |= {"fraction": 0.8, "weighting": "uniform"}
    privacy = {"unit": "user", "where": "secure_sum", "noise_multiplier": Z, "delta": DELTA, "clipping_norm": 0.5}
    return from_mapping(
        {
            "data": "digits",
            "clients": {"count": 30},
            "links": LATE,
            "stop": {"updates": 150},
            "record": {"messages": True},
            "evaluate": {"every": {"time": "100 s"}},
            **changes,
            "algorithm": {**algorithm, **changes.get("algorithm", {})},
            "privacy": {**privacy, **changes.get("privacy", {})},
        }
    )


def last_rounds(run):
    """Yield each sum, the clients that get the request of its last round, and those of them that answer."""
    protocol, messages = prepare(from_mapping(run.scenario)).training.secure_sum, run.messages
    server = messages["target"].max()
    requests = messages[(messages["source"] == server) & (messages["bytes"] == 0)]
    for row in run.secure_sums.itertuples():
        now = requests[(requests["sent_s"] > row.began_s - 1e-12) & (requests["sent_s"] <= row.time_s)]
        answers = messages[
            (messages["target"] == server)
            & (messages["bytes"] == protocol.steps(row.keys)[3].up)
            & (messages["sent_s"] >= now["delivered_s"].min())
            & (messages["sent_s"] <= row.time_s)
        ]
        yield row, {*now["target"]}, {*now["target"]} & {*answers["source"]}


def reckoned(run, circles, colluding=0):
    """Return the largest number of sums of a user that the server knows, and the number of those that were aborted."""
    secure, buffered = run.scenario["algorithm"]["secure_sum"], run.scenario["algorithm"]["kind"] == "fedbuff"
    protocol, messages = prepare(from_mapping(run.scenario)).training.secure_sum, run.messages
    vectors = messages[(messages["target"] == 30) & (messages["bytes"] == protocol.vector_bytes)]
    known, aborted = Counter(), 0
    for row, there, answered in last_rounds(run):
        answered = answered if secure["dropout"] else there
        members = {*vectors["source"][20 * row.sum : 20 * (row.sum + 1)]} if buffered else there
        if len(members) < protocol.threshold:
            is_known = False
        elif secure["kind"] == "lightsecagg":
            is_known = len(answered) > secure["colluding"]
        elif secure["kind"] == "bonawitz":
            is_known = len(answered) + colluding >= protocol.threshold
        else:
            circle = circles[row.sum]
            told = map(set, itertools.combinations(circle, colluding))
            is_known = bool(row.members) or any(learns(protocol, circle, members, answered, some) for some in told)
        assert is_known or not row.members
        known.update(members if is_known else ())
        aborted += is_known and not row.members
    return max(known.values()), aborted


@pytest.fixture
def circles(monkeypatch):
    """Keep the circles of sums."""
    kept, usual = [], secure_sums.circle_of

    def circle(clients, generator):
        kept.append(usual(clients, generator))
        return kept[-1]

    monkeypatch.setattr(secure_sums, "circle_of", circle)
    return kept


def spent(releases):
    return gaussian_epsilon(DELTA, math.sqrt(releases) / Z)


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [("bonawitz", "fedavg"), ("secagg_plus", "fedavg"), ("lightsecagg", "fedavg"), ("lightsecagg", "fedbuff")],
)
def test_late_answers_make_an_aborted_sum_a_release(protocol, kind, circles, tmp_path):
    secure = {**PROTOCOLS[protocol], "timeout": "130 ms"}
    if kind == "fedbuff":
        secure |= {"timeout": "220 ms", "threshold": 18}
    run = simfl.run(scenario(secure, kind), out=tmp_path)
    most, aborted = reckoned(run, circles)
    assert aborted > 5
    assert Counter(run.cohorts["client"]).most_common(1)[0][1] == most
    assert run.clients["epsilon"].max() == pytest.approx(spent(most))
    if protocol == "bonawitz":  # the numbers of docs/secure_sums.md
        sums, made = run.secure_sums["members"], run.updates["client"].value_counts().max()
        assert (len(sums), (sums == 0).sum(), aborted) == (51, 40, 21)
        assert (round(spent(most), 2), round(spent(made), 2)) == (8.79, 5.59)


@pytest.mark.parametrize(("protocol", "colluding"), [("bonawitz", 4), ("secagg_plus", 2)])
def test_shares_of_colluding_users_make_an_aborted_sum_a_release(protocol, colluding, circles, tmp_path):
    """No timeout, so that all answers are in time; clients drop out."""
    secure = {**PROTOCOLS[protocol], "threshold": 20, "dropout": 0.13}
    algorithm, links = {"fraction": 1.0}, {"latency": "1 ms"}
    given = scenario(secure, algorithm=algorithm, links=links, privacy={"colluding": colluding})
    run = simfl.run(given, out=tmp_path)
    without, _ = reckoned(run, circles)
    most, _ = reckoned(run, circles, colluding)
    claimed = Counter(run.cohorts["client"]).most_common(1)[0][1]
    assert without < most <= claimed
    assert claimed == most or protocol == "secagg_plus"
    assert run.clients["epsilon"].max() == pytest.approx(spent(claimed))
    trusting = simfl.run(given.replace({"privacy.colluding": 0}), out=tmp_path)
    assert Counter(trusting.cohorts["client"]).most_common(1)[0][1] == without


@pytest.mark.parametrize(("protocol", "kind"), [("bonawitz", "fedavg"), ("lightsecagg", "fedbuff")])
def test_a_sum_that_is_unmasked_when_the_run_ends_is_a_release(protocol, kind, tmp_path):
    """The answers reach the server after the end: the last evaluation, the tables and a check count the sum."""
    whole = simfl.run(scenario(PROTOCOLS[protocol], kind), out=tmp_path)
    sums, number = whole.secure_sums, 3
    there = [there for _, there, _ in last_rounds(whole)][number]
    requests = whole.messages[whole.messages["bytes"] == 0]
    asked_s = requests["sent_s"][requests["sent_s"] <= sums["time_s"][number]].max()
    for moment, more in ((asked_s - 1e-6, 0), (asked_s + 1e-6, 1), (sums["time_s"][number] - 1e-6, 1)):
        run = simfl.run(scenario(PROTOCOLS[protocol], kind, stop={"time": moment}), out=tmp_path)
        assert len(run.secure_sums) == number
        assert run.cohorts["release"].nunique() == (run.secure_sums["members"] > 0).sum() + more
        last = run.cohorts[run.cohorts["release"] == number]
        assert {*last["time_s"]} == ({run.manifest.time_s} if more else set())
        assert kind == "fedbuff" or {*last["client"]} == (there if more else set())
        assert run.metrics["epsilon"].iloc[-1] == run.clients["epsilon"].max()
        assert run.clients["epsilon"].max() == pytest.approx(spent(run.cohorts["client"].value_counts().max()))
        again = max(one.certified["local_transcript", "add_or_remove"] for one in claims.check_run(run).findings)
        assert again == pytest.approx(run.clients["epsilon"].max())
        trusted = {"privacy": {"where": "server"}, "stop": {"time": moment}}
        run = simfl.run(scenario(PROTOCOLS[protocol], kind, **trusted), out=tmp_path)
        assert run.cohorts["release"].nunique() == (run.secure_sums["members"] > 0).sum(), "models, not sums"


@pytest.mark.parametrize(("protocol", "kind"), [("secagg_plus", "fedavg"), ("lightsecagg", "fedbuff")])
def test_a_run_that_is_interrupted_while_a_sum_is_unmasked_goes_on_to_equal_tables(
    protocol, kind, tmp_path, monkeypatch
):
    """The tables of the interrupted run have the sum; those of the whole run have it when it is made, and once."""
    monkeypatch.setattr("simfl.runs.context.Executor", NoNumbers)
    given = scenario(PROTOCOLS[protocol], kind, stop={"updates": 60}, record={"messages": False})
    whole, events = run_until(prepare(given), math.inf, tmp_path)
    early = 0
    for part in range(60, 100, 13):
        cut, _ = run_until(prepare(given), events * part // 100, tmp_path)
        time_s, sums = cut.manifest.time_s, whole.cohorts.groupby("release")["time_s"].first()
        releases = cut.cohorts["release"].nunique()
        assert releases - (sums <= time_s).sum() in (0, 1)
        early += releases - (sums <= time_s).sum()
        assert resume(cut.folder).manifest.digest == whole.manifest.digest
    assert early


def test_releases_of_aborted_sums_spend_budgets_and_count_at_the_gate(tmp_path):
    """A user is in as many sums as its budget allows, known ones that were aborted among them."""
    secure = {**PROTOCOLS["bonawitz"], "timeout": "130 ms"}
    budget = {"epsilon": 3.0, "participation": {"min_separation": 1}}
    ends = {"stop": {"updates": 10_000}, "record": {"messages": False}}
    run = simfl.run(scenario(secure, privacy=budget, **ends), out=tmp_path)
    assert run.clients["epsilon"].max() <= 3.0
    assert run.cohorts["client"].value_counts().max() == max(n for n in range(1, 30) if spent(n) <= 3.0)
    most = {"participation": {"min_separation": 1, "at_most": 5}, "releases": 7}
    run = simfl.run(scenario(secure, privacy=most, **ends), out=tmp_path)
    assert run.cohorts["client"].value_counts().max() <= 5
    assert run.cohorts["release"].nunique() == 7
    assert (run.secure_sums["members"] > 0).sum() < 7
    assert "the server has made its 7 releases" in run.manifest.reason
