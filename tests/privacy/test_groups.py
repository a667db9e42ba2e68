"""Users who are drawn from groups in turn, under noise in bands: the account against jax_privacy, against samples of
the whole mechanism, and against a count of who was in which sum."""

import dataclasses
import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

import simfl
from simfl.accounts.check import check_run
from simfl.assembly.forecast import forecast
from simfl.attacks.audit import audit
from simfl.errors import ScenarioError
from simfl.privacy.cohorts import CohortLedger, CohortPlan, Gate
from simfl.privacy.correlated_cohorts import CorrelatedCohortLedger
from simfl.privacy.releases import Releases
from simfl.privacy.strategies import Banded, Blt, Tree, square_root
from simfl.privacy.terms import Terms
from tests.algorithms.test_cohorts import scenario
from tests.privacy.test_cohorts import DELTA, USERS, run
from tests.privacy.test_product import FAULTS, gaussian
from tests.privacy.test_strategies import encoder

THREE = tuple(user % 3 for user in range(USERS))


def ledger_of(plan, level, users=4, delta=DELTA, **terms):
    made = CohortLedger if plan.strategy is None else CorrelatedCohortLedger
    return made(Terms("gaussian_cohort", delta, **terms), np.full(users, 20), 8, "shuffle", [level] * users, plan)


def plan_of(groups, releases, rate, strategy=None, level=1.0, users=4, **changed):
    owned = tuple(user % groups for user in range(users))
    plan = CohortPlan(level, rate, releases, None, Gate(groups), strategy=strategy, groups=owned)
    return dataclasses.replace(plan, **changed)


@pytest.mark.slow(but=["4-4-100-0.2-2.0"])
@pytest.mark.parametrize(
    ("groups", "bands", "releases", "rate", "level"),
    [(4, 4, 100, 0.2, 2.0), (4, 2, 101, 0.2, 2.0), (10, 10, 1000, 0.05, 1.0), (3, 1, 30, 0.5, 3.0)],
)
def test_the_account_is_that_of_jax_privacy(groups, bands, releases, rate, level):
    """Its noise multiplier is for columns of norm one, so it is z / |c| here."""
    accounting = pytest.importorskip("jax_privacy.experimental.accounting")
    strategy = square_root(bands) if bands > 1 else None
    column = math.sqrt(sum(c**2 for c in strategy.coefficients)) if bands > 1 else 1.0
    ledger = ledger_of(plan_of(groups, releases, rate, strategy, level, users=20), level, users=20)
    event = accounting.amplified_bandmf_event(level / column, releases, num_bands=groups, sampling_prob=rate)
    theirs = PLDAccountant().compose(event).get_epsilon(DELTA)
    made = Releases([3] * 20, cohorts=releases)
    assert ledger.amplifies(made)
    assert ledger.final_epsilon(made) == pytest.approx([theirs] * 20, rel=1e-3)
    assert ledger.epsilon(made)[0] == pytest.approx(theirs, rel=0.2), "by Renyi divergences during a run"
    assert ledger.epsilon(made)[0] >= theirs * (1 - 1e-3)


@pytest.mark.slow(but=["coefficients0-0"])
@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.parametrize("coefficients", [(1.0, 0.5), (1.0, 1.0), (1.0,)])
def test_epsilon_holds_for_samples_of_the_whole_mechanism(coefficients, group):
    """All patterns of draws of a user in four releases, (C x + z N) with and without it, both ways round.

    A user of group 0 has the largest loss, so the bound is attained; the last block of group 1 is cut off.
    """
    releases, groups, rate, level, delta = 4, 2, 0.4, 1.3, 0.02
    strategy = Banded(coefficients)
    matrix = encoder(strategy, releases)
    plan = plan_of(groups, releases, rate, strategy, level)
    epsilon = ledger_of(plan, level, delta=delta).final_epsilon(Releases([2] * 4, cohorts=releases))[0]
    turns = [n for n in range(releases) if n % groups == group]
    patterns = [[i >> k & 1 for k in range(len(turns))] for i in range(2 ** len(turns))]
    chances = np.array([np.prod([rate if one else 1 - rate for one in pattern]) for pattern in patterns])
    moves = np.array([matrix[:, turns] @ pattern for pattern in patterns]) / level  # in deviations of the noise
    rng = np.random.default_rng(3)
    count = 400_000

    def ratio(sample):  # of densities, with the user over without it
        return np.exp(sample @ moves.T - 0.5 * np.square(moves).sum(axis=1)) @ chances

    without = rng.standard_normal((count, releases))
    there = without + moves[rng.choice(len(patterns), count, p=chances)]
    added = np.mean(np.maximum(0.0, 1.0 - math.exp(epsilon) / ratio(there)))
    removed = np.mean(np.maximum(0.0, 1.0 - math.exp(epsilon) * ratio(without)))
    assert max(added, removed) <= delta * 1.03
    if group == 0:
        assert max(added, removed) >= delta * 0.97, "the account is exact"


@pytest.mark.parametrize(("strategy", "groups", "terms", "made", "reason"), [
    (square_root(4), 3, {}, 24, "noise is correlated over releases, so none can be considered alone"),
    (Tree(), 3, {}, 24, "noise is correlated over releases"),
    (Blt((0.9,), (0.4,)), 3, {}, 24, "noise is correlated over releases"),
    (square_root(3), 1, {}, 24, "noise is correlated over releases"),
    (square_root(3), 3, {}, 23, "23 of 24 releases were made"),
    (square_root(3), 3, {"neighbors": "replace_one"}, 24, "draws amplify under neighbors: add_or_remove only"),
    (square_root(3), 3, {"amplification": False}, 24, "amplification: false"),
])  # fmt: skip
def test_in_other_cases_releases_count_in_full(strategy, groups, terms, made, reason):
    plan = plan_of(groups, 24, 0.3, strategy, gate=Gate(max(3, groups)))
    ledger, releases = ledger_of(plan, 2.0, **terms), Releases([5] * 4, cohorts=made)
    assert not ledger.amplifies(releases)
    assert f"(q = 1: {reason}" in ledger.statement_of(releases)
    assert ledger.final_epsilon(releases)[0] == pytest.approx(gaussian(ledger.mu(5, 2.0)), rel=1e-6)


@pytest.mark.parametrize("name", ["fedavg, drawn", "diloco, drawn"])
@pytest.mark.parametrize("fault", FAULTS)
def test_only_the_group_on_turn_is_drawn_whatever_faults_do(name, fault):
    strategy = square_root(3)
    options = {"groups": THREE, "gate": Gate(3), "rate": 0.5, "strategy": strategy, "releases": 24}
    unamplified = None if fault == "none" else "availability"
    tape, ledger, _, algorithm = run(
        name, fault, until=20.0, ledger_type=CorrelatedCohortLedger, unamplified=unamplified, **options
    )
    releases = algorithm.releases
    assert releases.refusal is None
    assert len(tape.sums) == releases.cohorts == 24
    for number, (members, _) in enumerate(tape.sums):
        assert all(THREE[user] == number % 3 for user in members)
    counts = np.array([[members[user] for user in range(USERS)] for members, _ in tape.sums])
    assert counts.max() == 1
    spent = ledger.final_epsilon(releases)
    if fault != "none":
        matrix = encoder(strategy, 24)
        shown = [gaussian(float(np.linalg.norm(matrix @ counts[:, user])) / 2.0) for user in range(USERS)]
        assert (spent >= np.array(shown) * (1 - 1e-6)).all()
        return
    assert abs(counts.sum() / (24 * USERS / 3) - 0.5) < 4 * math.sqrt(0.25 / (24 * USERS / 3))
    level = 2.0 / math.sqrt(sum(c**2 for c in strategy.coefficients))
    event = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.5, dp_event.GaussianDpEvent(level)), 8)
    assert spent == pytest.approx([PLDAccountant().compose(event).get_epsilon(DELTA)] * USERS, rel=1e-3)


def test_a_draw_out_of_turn_ends_the_account(monkeypatch):
    """As in a server with a defect: the gate and the count of releases notice."""
    monkeypatch.setattr(CohortPlan, "has_turn", lambda self, user, number: True)
    monkeypatch.setattr("simfl.algorithms.admission.Participation.opens", lambda self, client: 0)
    options = {"groups": THREE, "gate": Gate(3), "rate": 0.5, "strategy": square_root(3), "releases": 24}
    _, ledger, _, algorithm = run("fedavg, drawn", "none", ledger_type=CorrelatedCohortLedger, **options)
    assert "in releases" in algorithm.releases.refusal
    assert np.isnan(ledger.final_epsilon(algorithm.releases)).all()


# -- scenarios -----------------------------------------------------------------------------------

BANDS = {"groups": 2, "releases": 21, "noise": {"correlated": "square_root", "bands": 2}}


def grouped(privacy=None, **changes):
    """Return a scenario of ten users in two groups, with q = 0.4 from all and 0.8 from a group."""
    return scenario(privacy={**BANDS, **(privacy or {})}, **changes)


@pytest.mark.usefixtures("without_numbers")
def test_a_run_is_amplified_in_blocks(tmp_path):
    made = simfl.run(grouped(), out=tmp_path)
    for words in (
        "of one of 2 groups in every release of 21 that is the group's turn, with probability 0.8",
        "noise correlated in bands",
        "without their times and the names of users",
    ):
        assert words in made.manifest.extra["privacy"]
    level = 2.0 / math.sqrt(1.25)
    event = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.8, dp_event.GaussianDpEvent(level)), 11)
    theirs = PLDAccountant().compose(event).get_epsilon(1e-3)
    assert made.clients["epsilon"].to_numpy() == pytest.approx([theirs] * 10, rel=1e-3)
    assert {*made.cohorts.groupby("client")["release"].agg(lambda numbers: (numbers % 2).nunique())} == {1}
    assert {*made.releases["count"]} == {11}
    found = check_run(made).findings
    assert max(next(iter(one.certified.values())) for one in found) == pytest.approx(made.epsilon_and_delta()[0])


@pytest.mark.usefixtures("without_numbers")
@pytest.mark.parametrize("changes", [{"stop": {"updates": 30}}, {"server": {"offline": [[0.01, 0.02]]}}])
def test_without_the_conditions_of_secret_draws_a_run_counts_in_full(changes, tmp_path):
    made = simfl.run(grouped(**changes), out=tmp_path)
    assert "(q = 1: " in made.manifest.extra["privacy"]
    assert "at least 2 releases apart" in made.manifest.extra["privacy"]
    assert made.clients["epsilon"].nunique() > 1
    found = check_run(made).findings
    assert max(next(iter(one.certified.values())) for one in found) == pytest.approx(made.epsilon_and_delta()[0])


@pytest.mark.slow
@pytest.mark.usefixtures("without_numbers")
def test_noise_in_bands_follows_from_a_budget(tmp_path):
    given = grouped({"epsilon": 3.0, "noise_multiplier": None}, stop={"updates": 210})
    made = simfl.run(given, out=tmp_path)
    assert 0.99 * 3.0 <= made.clients["epsilon"].max() <= 3.0
    assert forecast(simfl.prepare(given)).epsilon == pytest.approx(made.clients["epsilon"].max())


@pytest.mark.usefixtures("without_numbers")
def test_groups_are_those_of_users_with_several_clients(tmp_path):
    made = simfl.run(grouped(clients={"count": 14, "users": 10}), out=tmp_path)
    assert made.clients["epsilon"].nunique() == 1, "one client of a user is in a sum"
    assert made.cohorts.groupby(["release", "user"]).size().max() == 1


@pytest.mark.parametrize(("privacy", "line"), [
    ({"groups": 3}, r"privacy\.groups: expected at most 2, found 3"),
    ({"groups": 20}, r"privacy\.groups: expected at most 10, the number of users, found 20"),
    ({"cohorts": "algorithm"}, r"privacy\.groups: expected null with cohorts: algorithm, found 2"),
    ({"participation": {"min_separation": 2}}, r"privacy\.groups: expected null beside participation, found 2"),
    ({"noise": {"correlated": "square_root", "bands": 3}},
     r"privacy\.groups: expected at least noise\.bands, 3, found 2"),
])  # fmt: skip
def test_groups_that_cannot_be_are_refused_in_one_line(privacy, line):
    with pytest.raises(ScenarioError, match=line):
        grouped(privacy)


def test_an_audit_refuses_groups_in_one_line():
    with pytest.raises(ScenarioError, match=r"privacy\.groups: expected null, found 2; an audit"):
        audit(grouped({"noise": None}))
