"""Noise that a server adds to sums of users' updates: against a plain loop, and in whole scenarios."""

import dataclasses
import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

import simfl
from simfl.accounts import check as claims
from simfl.accounts.network import network
from simfl.assembly.forecast import forecast
from simfl.attacks.membership import infer_membership
from simfl.errors import ScenarioError
from simfl.privacy.cohorts import CohortLedger, CohortPlan
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.privacy.terms import Terms
from simfl.scenario import from_mapping
from simfl.world.availability import Outage
from tests.algorithms.test_fedbuff import ETA, change
from tests.helpers import Lab, lognormal, make_problem, make_world, run_algorithm

USERS, STEPS = 6, [1, 2, 3, 1, 2, 3]


def run(kind, plan, *, norm=0.2, updates=None, until=None, outages=None, **options):
    """Return the initial and the last model (f64), the algorithm, its updates and its sums."""
    problem = make_problem(USERS, local=True, clip="update", clipping_norm=norm, noise="gaussian")
    rows = []
    with Lab(problem) as lab:
        training = dataclasses.replace(lab.training(step_size=ETA), cohorts=plan)
        terms = Terms("gaussian_cohort", 1e-5)
        ledger = CohortLedger(terms, training.sizes, training.batch_size, "shuffle", [1.0] * USERS, plan)
        lab.tape.releases = ledger.counted_by(ledger, [plan.noise_scale] * USERS, norm, True)
        lab.tape.releases.on_cohort = lambda number, time_s, members: rows.append(dict(members))
        world = make_world(USERS, outages=outages, jitter=lognormal(0.5))
        algorithm, updates = run_algorithm(
            kind, world, lab.tape, training, updates=updates, until=until, steps=STEPS, **options
        )
        model = lab.tape.values(algorithm.models())[0].astype(float)
    plain = make_problem(USERS, local=True)  # of which `change` clips nothing
    return plain, training.initial.astype(float), model, algorithm, updates, rows


def clipped(moved, norm):
    return moved * min(1.0, norm / np.linalg.norm(moved))


@pytest.mark.parametrize("norm", [0.2, 1e6])
def test_fedavg_divides_a_sum_by_a_fixed_number(norm):
    """Without noise it is a plain loop in float64; the divisor is q K, whoever was drawn."""
    plan = CohortPlan(0.0, 0.5, 12, None)
    problem, w, model, algorithm, _, cohorts = run("fedavg", plan, norm=norm, until=1e3, weighting="uniform")
    assert len(cohorts) == 12 == algorithm.admission.number
    assert len(set(map(len, cohorts))) > 2, "the number of users in a cohort changes"
    draws = [0] * USERS
    for members in cohorts:
        total = np.zeros_like(w)
        for user in members:
            total += clipped(change(problem, w, user, draws[user], STEPS[user]), norm)
            draws[user] += STEPS[user]
        w = w + total / (0.5 * USERS)
    np.testing.assert_allclose(model, w, atol=2e-6)


def test_a_cohort_without_users_releases_noise():
    plan = CohortPlan(0.6, 1e-9, 25, None)
    _, w, model, _, updates, cohorts = run("fedavg", plan, until=10.0, weighting="uniform")
    assert not updates
    assert cohorts == [{}] * 25
    std = 0.6 / (1e-9 * USERS) * math.sqrt(25)
    assert (model - w).std() == pytest.approx(std, rel=0.1)


@pytest.mark.parametrize(
    ("kind", "options", "factor", "step"),
    [
        ("fedavg", {"fraction": 0.5, "weighting": "uniform", "server_step": 0.7}, 0.7 / 3, 3),
        ("fedbuff", {"buffer_size": 3, "server_step": 0.7, "after_update": "wait"}, 0.7 / 3, 3),
        ("fedasync", {"mixing": 0.5}, 0.5, 1),
    ],
)
def test_noise_is_drawn_once_for_each_sum(kind, options, factor, step):
    """The first step differs by factor * z C * noise of unit scale, whose deviation is known."""
    models = []
    for std in (0.0, 0.8):
        *_, model, _, updates, _ = run(kind, CohortPlan(std), updates=step, **options)
        models.append(model)
        assert [row[7] for row in updates] == [0.0] * (step - 1) + [std]
    difference = (models[1] - models[0]) / (factor * 0.8)
    assert difference.std() == pytest.approx(1.0, rel=0.1)
    assert abs(difference.mean()) < 4 / math.sqrt(difference.size)


def test_a_buffer_that_stays_incomplete_has_the_same_divisor():
    """If the last users leave, a smaller divisor would show how many updates there were."""
    options = {"buffer_size": 4, "after_update": "wait", "staleness_exponent": 0.0}
    outages = {user: [Outage(0.002, math.inf)] for user in range(3)}
    problem, w, model, *_, cohorts = run("fedbuff", CohortPlan(0.0), updates=3, outages=outages, **options)
    assert cohorts == [dict.fromkeys(range(3, 6), 1)]
    total = sum(clipped(change(problem, w, user, 0, STEPS[user]), 0.2) for user in cohorts[0])
    np.testing.assert_allclose(model, w + total / 4, atol=2e-6)


# -- scenarios -----------------------------------------------------------------------------------


def scenario(**changes):
    sections = {
        "data": {"set": "digits"},
        "clients": {"count": 10, "speed": {"kind": "lognormal", "sigma": 0.4}},
        "algorithm": {
            "kind": "fedavg", "fraction": 0.4, "weighting": "uniform", "local_steps": 2, "batch_size": 16,
            "step_size": 0.1,
        },
        "privacy": {
            "unit": "user", "where": "server", "mechanism": "gaussian", "clipping_norm": 0.5, "noise_multiplier": 2.0,
            "delta": 1e-3, "cohorts": "poisson", "releases": 20,
        },
        "stop": {"updates": 1000},
        "evaluate": {"every": {"updates": 20}},
    }  # fmt: skip
    for section, values in changes.items():
        sections[section] = {**sections.get(section, {}), **values} if isinstance(values, dict) else values
    return from_mapping(sections)


def fedbuff(**changes):
    given = scenario().given()
    algorithm = {"kind": "fedbuff", "buffer_size": 3, "local_steps": 2, "batch_size": 16, "step_size": 0.1}
    privacy = {**given["privacy"], "cohorts": "algorithm", "releases": None}
    return from_mapping({**given, "algorithm": algorithm, "privacy": privacy, **changes})


@pytest.mark.usefixtures("without_numbers")
def test_a_run_that_makes_all_its_releases_is_amplified(tmp_path):
    made = simfl.run(scenario(), out=tmp_path)
    assert made.manifest.reason == "the server has made its 20 releases"
    assert "each of 10 enrolled users in each of 20 releases with probability 0.4" in made.manifest.extra["privacy"]
    assert made.clients["epsilon"].nunique() == 1
    assert made.cohorts["release"].max() <= 19
    assert (made.cohorts["updates"] == 1).all()
    assert made.cohorts.groupby("client").size().tolist() == made.clients["updates"].tolist()
    assert set(made.releases["sampling_rate"]) == {0.4}
    epsilon = made.clients["epsilon"].iloc[0]
    in_full = gaussian_epsilon(1e-3, math.sqrt(made.clients["updates"].max()) / 2.0)
    assert epsilon < 0.8 * in_full
    for finding in (claims.check_run(made).findings[0], claims.check(simfl.prepare(scenario())).findings[0]):
        assert finding.certified["local_transcript", "add_or_remove"] == pytest.approx(epsilon, rel=1e-9)
    assert made.metrics["epsilon"].is_monotonic_increasing


@pytest.mark.usefixtures("without_numbers")
@pytest.mark.parametrize("kind", ["fedavg", "fedbuff", "fedasync"])
def test_a_run_ends_with_the_last_release(tmp_path, kind):
    """Users who are away for a day come back to a server that has nothing to do: the run does not wait for them."""
    away = [{"clients": [0, 1], "offline": [["100 ms", "1 d"]]}]
    algorithm = {"kind": kind, "local_steps": 2, "batch_size": 16, "step_size": 0.1}
    if kind == "fedbuff":
        algorithm["buffer_size"] = 3
    if kind == "fedavg":
        algorithm |= {"fraction": 0.4, "weighting": "uniform"}
    given = scenario().given()
    privacy = {**given["privacy"], "cohorts": "algorithm", "releases": 40}
    made = simfl.run(
        from_mapping({**given, "algorithm": algorithm, "privacy": privacy, "availability": away}), out=tmp_path
    )
    assert made.manifest.reason == "the server has made its 40 releases"
    assert made.cohorts["release"].max() == 39
    assert made.metrics["time_s"].iloc[-1] == made.updates["time_s"].iloc[-1] == made.cohorts["time_s"].max() < 1e4


@pytest.mark.usefixtures("without_numbers")
def test_a_run_that_ends_before_its_last_release_is_accounted_in_full(tmp_path):
    made = simfl.run(scenario(stop={"updates": 30}), out=tmp_path)
    assert "q = 1: " in made.manifest.extra["privacy"]
    assert "of 20 releases were made, and when a run ends" in made.manifest.extra["privacy"]
    expected = [gaussian_epsilon(1e-3, math.sqrt(count) / 2.0) for count in made.clients["updates"]]
    assert made.clients["epsilon"].to_numpy() == pytest.approx(expected, rel=1e-6)
    again = claims.check_run(made).findings[0].certified["local_transcript", "add_or_remove"]
    assert again == pytest.approx(max(expected), rel=1e-6)


@pytest.mark.usefixtures("without_numbers")
def test_buffers_are_cohorts_whose_users_were_fast(tmp_path):
    made = simfl.run(fedbuff(stop={"updates": 90}), out=tmp_path)
    shares = made.cohorts.pivot_table(index="release", columns="client", values="updates", fill_value=0)
    squares = (shares**2).sum().reindex(range(10), fill_value=0)
    expected = [gaussian_epsilon(1e-3, math.sqrt(square) / 2.0) for square in squares]
    assert made.clients["epsilon"].to_numpy() == pytest.approx(expected, rel=1e-6)
    assert "q = 1: users are in a cohort because they were fast" in made.manifest.extra["privacy"]
    assert claims.check_run(made).findings[0].by_server


@pytest.mark.usefixtures("without_numbers")
def test_a_budget_gives_the_noise_and_ends_users(tmp_path):
    made = simfl.run(
        fedbuff(
            privacy={"unit": "user", "clipping_norm": 0.5, "epsilon": 4.0, "delta": 1e-3}, stop={"updates": 100}
        ),
        out=tmp_path,
    )  # fmt: skip
    assert 3.5 < made.clients["epsilon"].max() <= 4.0
    assert made.clients["exhausted_s"].notna().any()


@pytest.mark.usefixtures("without_numbers")
@pytest.mark.parametrize("early", ["wait", "send_away"])
def test_participation_is_enforced_and_counted_in_tables(early, tmp_path):
    rule = {"min_separation": 2, "at_most": 6, "early": early}
    privacy = {"unit": "user", "clipping_norm": 0.5, "noise_multiplier": 2.0, "delta": 1e-3, "participation": rule}
    speed = {"kind": "list", "values": [0.1, *[1.0] * 9]}
    made = simfl.run(
        fedbuff(clients={"count": 10, "speed": speed}, privacy=privacy, stop={"updates": 500}), out=tmp_path
    )
    assert (made.cohorts["updates"] == 1).all()
    numbers = made.cohorts.groupby("client")["release"]
    assert numbers.diff().dropna().min() >= 2
    assert numbers.size().tolist() == [6] * 10 == made.releases["count"].tolist()
    assert "has spent its privacy budget" in made.manifest.reason or "every client" in made.manifest.reason
    assert (made.clients["early"] > 0).any() == (early == "send_away")
    assert (made.clients["early"] <= made.clients["dropped"]).all()
    assert made.clients["epsilon"].max() == pytest.approx(gaussian_epsilon(1e-3, math.sqrt(6) / 2.0), rel=1e-6)
    assert "unit" in made.manifest.extra["assumptions"]
    assert claims.check_run(made).assumptions == made.manifest.extra["assumptions"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"privacy": {"cohorts": "algorithm"}}, "a cohort of a fixed number of users"),
        ({"availability": [{"clients": [1], "offline": [[0.1, 0.2]]}]}, "availability, outages or cuts decide"),
        ({"server": {"offline": [[0.1, 0.2]]}}, "availability, outages or cuts decide"),
        ({"algorithm": {"deadline": 0.5}}, "a deadline"),
        ({"algorithm": {"step_size": {"kind": "inverse_sqrt", "initial": 0.1, "beta": 0.1}}}, "the step size depends"),
        ({"privacy": {"releases": None}}, "privacy.releases: null"),
        ({"privacy": {"neighbors": "replace_one"}}, "draws amplify under neighbors"),
        ({"privacy": {"amplification": False}}, "amplification: false"),
        ({"privacy": {"participation": {}}}, "by privacy.participation, who may be in a cohort"),
    ],
)
def test_the_reason_for_accounting_in_full_is_given(changes, reason):
    ledger = simfl.prepare(scenario(**changes)).ledger
    assert f"(q = 1: {reason}" in ledger.statement


@pytest.mark.parametrize("kind", ["fedavg", "fedprox", "diloco"])
def test_users_count_alike_by_default(kind):
    content = {"algorithm": {"kind": kind}, "privacy": {"unit": "user", "noise_multiplier": 1.0}}
    users = from_mapping(content)
    assert users.algorithm.weighting == "uniform"
    assert users.resolved()["algorithm"]["weighting"] == "uniform"
    assert from_mapping(users.resolved()).digest() == users.digest()
    assert "weighting" not in users.given()["algorithm"]
    examples = from_mapping({"algorithm": {"kind": kind}})
    assert users.replace(privacy=None).algorithm.weighting == examples.algorithm.weighting
    assert examples.replace(privacy=content["privacy"]).algorithm.weighting == "uniform"


def test_other_algorithms_and_their_own_noise_are_refused_in_one_line():
    given = fedbuff().given()
    with pytest.raises(ScenarioError, match=r"algorithm\.noise: expected client with unit: user, found 'server'"):
        from_mapping({**given, "algorithm": {**given["algorithm"], "noise": "server"}})
    with pytest.raises(ScenarioError, match=r"privacy\.cohorts: expected 'algorithm' with 'fedbuff', found 'poisson'"):
        from_mapping({**given, "privacy": {**given["privacy"], "cohorts": "poisson"}})
    for kind in ("sync_sgd", "adpsgd", "ca2fl", "ace", "halos"):
        with pytest.raises(ScenarioError, match=rf"privacy: expected another mechanism with '{kind}'"):
            from_mapping({**given, "algorithm": {"kind": kind}})


def test_accounts_of_messages_refuse_it_in_one_line():
    with pytest.raises(ScenarioError, match=r"privacy\.unit: expected noise that clients add"):
        network(fedbuff())
    with pytest.raises(ScenarioError, match=r"privacy\.unit: expected noise that clients add"):
        infer_membership(fedbuff())


# -- budgets of drawn users ------------------------------------------------------------------------


def drawn(epsilon=2.0, releases=20, users=10, fraction=0.4, **changes):
    """Return a scenario of drawn users with a budget; its stop does not end it."""
    privacy = {"noise_multiplier": None, "epsilon": epsilon, "releases": releases, **changes.pop("privacy", {})}
    return scenario(
        clients={"count": users, **changes.pop("clients", {})},
        algorithm={"fraction": fraction},
        privacy=privacy,
        stop=changes.pop("stop", {"updates": users * 400}),
        **changes,
    )


def spent(level, rate, count):
    """Return epsilon by dp-accounting's privacy loss distributions."""
    event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(level))
    return PLDAccountant().compose(dp_event.SelfComposedDpEvent(event, count)).get_epsilon(1e-3)


@pytest.mark.slow(but=["8.0-5"])
@pytest.mark.usefixtures("without_numbers")
@pytest.mark.parametrize(("epsilon", "releases", "fraction"), [(2.0, 20, 0.4), (0.5, 300, 0.1), (8.0, 5, 0.7)])
def test_drawn_releases_spend_a_budget_from_which_the_noise_follows(epsilon, releases, fraction, tmp_path):
    given = drawn(epsilon, releases, fraction=fraction)
    made = simfl.run(given, out=tmp_path)
    assert f"in each of {releases} releases with probability {fraction:g}" in made.manifest.extra["privacy"]
    assert made.clients["epsilon"].nunique() == 1
    assert 0.99 * epsilon <= made.clients["epsilon"].iloc[0] <= epsilon
    assert spent(simfl.prepare(given).ledger.levels[0], fraction, releases) == pytest.approx(epsilon, rel=0.01)
    assert made.clients["exhausted_s"].isna().all(), "no user is left out, which would show who was drawn"


@pytest.mark.usefixtures("without_numbers")
def test_the_server_ends_drawn_releases_at_a_budget(tmp_path):
    given = drawn(2.0, None, privacy={"noise_multiplier": 2.0})
    made = simfl.run(given, out=tmp_path)
    last = simfl.prepare(given).protection.cohorts.releases
    assert made.manifest.reason.endswith(f"the server has made its {last} releases")
    epsilon = made.clients["epsilon"].iloc[0]
    assert 0.98 * 2.0 <= epsilon <= 2.0 < spent(2.0, 0.4, math.ceil(1.02 * last))
    assert epsilon == pytest.approx(spent(2.0, 0.4, last), rel=1e-3)
    assert check_run_of(made) == pytest.approx(epsilon, rel=1e-9)
    fewer = simfl.prepare(drawn(2.0, 7, privacy={"noise_multiplier": 2.0})).protection.cohorts
    assert fewer.releases == 7, "a smaller number of releases stays"


def check_run_of(run):
    return max(next(iter(one.certified.values())) for one in claims.check_run(run).findings)


@pytest.mark.usefixtures("without_numbers")
@pytest.mark.parametrize("noise", [None, 2.0])
def test_a_budget_without_amplification_is_that_of_releases_in_full(noise, tmp_path):
    away = [{"clients": [1], "offline": [[0.1, 0.2]]}]
    made = simfl.run(drawn(4.0, 40, privacy={"noise_multiplier": noise}, availability=away), out=tmp_path)
    assert "(q = 1: availability" in made.manifest.extra["privacy"]
    assert 3.0 < made.clients["epsilon"].max() <= 4.0
    assert made.clients["exhausted_s"].notna().any()


@pytest.mark.slow
@pytest.mark.usefixtures("without_numbers")
def test_a_budget_is_that_of_the_user_with_the_most_clients(tmp_path):
    made = simfl.run(drawn(3.0, 20, users=12, clients={"users": [0, 0, 0, 1, 1, *range(2, 9)]}), out=tmp_path)
    epsilons = made.clients.groupby("user")["epsilon"].first()
    assert 0.99 * 3.0 <= epsilons[0] <= 3.0
    assert epsilons[0] > epsilons[1] > epsilons[2]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"stop": {"updates": 199}}, r"stop\.updates: expected at least 200, the most in 20 releases of 10 clients"),
        ({"stop": {"updates": 200, "time": 3.0}}, r"stop\.time: expected null with privacy\.epsilon and cohorts"),
        ({"stop": {"updates": 200, "accuracy": 0.9}}, r"stop\.accuracy: expected null with privacy\.epsilon"),
        ({"stop": {"epochs": 90}}, r"stop\.epochs: expected null with privacy\.epsilon and cohorts: poisson, found 90"),
        ({"releases": None}, r"privacy\.releases: expected a number beside epsilon with cohorts: poisson, found null"),
        (
            {"epsilon": 1e-4, "privacy": {"noise_multiplier": 0.5}},
            r"privacy\.epsilon: expected a budget for one release or more, found 0\.0001",
        ),
    ],
)
def test_what_could_end_drawn_releases_before_their_number_is_refused(changes, line):
    with pytest.raises(ScenarioError, match=line):
        simfl.prepare(drawn(**changes))


def test_a_forecast_names_the_limit_of_drawn_releases():
    calibrated, given = drawn(2.0, 20), drawn(2.0, None, privacy={"noise_multiplier": 2.0})
    first, second = forecast(simfl.prepare(calibrated)), forecast(simfl.prepare(given))
    assert first.limit == "20 releases of the server; the noise is the least that keeps the budget of 2 until then"
    assert first.epsilon == pytest.approx(2.0, rel=0.01)
    last = simfl.prepare(given).protection.cohorts.releases
    assert second.limit == f"the budget of 2, after {last} releases of the server"
