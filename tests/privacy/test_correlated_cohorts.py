"""Noise correlated over a server's releases: the account against an independent count of who was in which release, for
every algorithm, strategy, participation and fault; and against a search over patterns."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

from simfl.privacy.cohorts import CohortPlan, Gate
from simfl.privacy.correlated_cohorts import CorrelatedCohortLedger
from simfl.privacy.in_time import Participation
from simfl.privacy.ledger import NOT_CERTIFIED
from simfl.privacy.releases import Releases
from simfl.privacy.strategies import Blt, Tree, square_root
from simfl.privacy.terms import Terms
from tests.privacy.test_cohorts import DELTA, NAMED, PAIRS, USERS, WAYS, run, squares_of
from tests.privacy.test_product import FAULTS, gaussian
from tests.privacy.test_strategies import encoder

STRATEGIES = {
    "tree": Tree(),
    "restarts": Tree(restart=7, efficient=False),
    "bands": square_root(3),
    "blt": Blt((0.9,), (0.4,)),
}
GATES = {
    "once": Gate(),
    "apart": Gate(3),
    "apart, sent away": Gate(3, waits=False),
    "apart, four times": Gate(3, 4),
}
MADE = 24


def correlated(name, fault, strategy, gate, **options):
    plan = {"strategy": strategy, "gate": gate, "releases": MADE, "ledger_type": CorrelatedCohortLedger}
    return run(name, fault, **{**plan, **options})


@pytest.mark.slow(every=7)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("owners", [range(USERS), PAIRS], ids=["a client each", "two clients"])
@pytest.mark.parametrize("name", NAMED)
def test_the_account_is_not_below_what_each_users_releases_show(name, owners, gate):
    """sens(C) over the releases that each user was really in; with no help of the ledger or the tally.

    A user is in a release with one client at most, so its releases are those of all of its clients. Each strategy meets
    each fault at two of the four gates.
    """
    some = ["bands" if name.startswith("fed") else "tree"] if owners is PAIRS else STRATEGIES
    for turn, strategy in enumerate(map(STRATEGIES.get, some), [*GATES].index(gate)):
        matrix = encoder(strategy, MADE)
        gram = np.abs(matrix.T @ matrix)
        for fault in FAULTS[turn % 2 :: 2]:
            users = {"users": PAIRS} if owners is PAIRS else {}
            tape, ledger, rows, algorithm = correlated(name, fault, strategy, GATES[gate], until=10.0, **users)
            releases = algorithm.releases
            assert releases.refusal is None
            assert len(tape.sums) == releases.cohorts <= MADE
            assert [members for *_, members in rows] == [dict(members) for members, _ in tape.sums]
            spent = ledger.final_epsilon(releases)
            for client, user in enumerate(owners):
                squares, counts = squares_of(tape.sums, user, owners)
                assert squares == sum(counts) == releases.total(client)
                numbers = np.flatnonzero(counts)
                shown = gaussian(math.sqrt(gram[np.ix_(numbers, numbers)].sum()) / 2.0)
                assert spent[client] >= shown * (1 - 1e-6)
                assert spent[client] == spent[user], "the clients of a user have one epsilon"
            assert len(tape.noises) >= len(tape.sums), "every release has new noise"


def test_sensitivity_of_a_user_is_the_largest_over_all_patterns_of_its_clients():
    """By trying all: which of two clients is in which of eight releases, at least two apart."""
    for strategy in STRATEGIES.values():
        plan = CohortPlan(2.0, None, 8, gate=Gate(2, 3), strategy=strategy, users=(0, 0, 1))
        ledger = CorrelatedCohortLedger(Terms("gaussian_cohort", DELTA), np.full(3, 20), 8, "shuffle", [2.0] * 3, plan)
        matrix, worst = encoder(strategy, 8), np.zeros(4)
        for pattern in itertools.product((None, 0, 1), repeat=8):
            numbers = [number for number, client in enumerate(pattern) if client is not None]
            if len(numbers) > 3 or (len(numbers) > 1 and min(np.diff(numbers)) < 2):
                continue
            gram = np.abs(matrix.T @ matrix)[np.ix_(numbers, numbers)]
            worst[len(numbers)] = max(worst[len(numbers)], gram.sum())
        for count in (1, 2, 3):
            made = Releases([count, count, 0], cohorts=8)
            assert ledger.final_epsilon(made)[1] == pytest.approx(gaussian(math.sqrt(worst[count]) / 2.0), rel=1e-5)


@pytest.mark.parametrize("neighbors", ["add_or_remove", "replace_one"])
def test_epsilon_is_that_of_one_gaussian_release(neighbors):
    moved = 1.0 if neighbors == "add_or_remove" else 2.0
    for strategy in STRATEGIES.values():
        plan = CohortPlan(2.0, None, 64, gate=Gate(5, 6), strategy=strategy)
        terms = Terms("gaussian_cohort", DELTA, neighbors=neighbors)
        ledger = CorrelatedCohortLedger(terms, np.full(3, 20), 8, "shuffle", [2.0] * 3, plan)
        made = Releases([0, 1, 6], cohorts=64)
        spent = ledger.final_epsilon(made)
        assert spent[0] == 0.0
        for user, count in ((1, 1), (2, 6)):
            mu = moved * strategy.sensitivity(64, Participation(5, count)) / 2.0
            assert spent[user] == pytest.approx(gaussian(mu), rel=1e-6)
            assert ledger.epsilon_after(user, count, "pld") == spent[user]
        assert "at least 5 releases apart and in at most 6" in ledger.statement
        assert ledger.compositions(made)[0] == ()
    if neighbors == "add_or_remove":
        theirs = PLDAccountant().compose(dp_event.GaussianDpEvent(1 / mu)).get_epsilon(DELTA)
        assert spent[2] == pytest.approx(theirs, rel=1e-3)


def test_budgets_hold_and_releases_end():
    for name in WAYS:
        ledger = correlated(name, "none", Tree(), Gate(2))[1]
        budget = ledger.epsilon_after(0, 2, "pld") * 1.0001
        allowed = ledger.allowances([budget] * USERS)
        assert allowed == [2] * USERS
        assert ledger.allowances([1e6])[0] >= MADE
        tape, ledger, _, algorithm = correlated(name, "churn", Tree(), Gate(2), allowances=allowed, until=10.0)
        spent = ledger.final_epsilon(algorithm.releases)
        assert spent.max() <= budget
        made = np.array([[members[user] for user in range(USERS)] for members, _ in tape.sums])
        assert made.sum(axis=0).max() == 2


# -- defects --------------------------------------------------------------------------------------


def plan_of(**changed):
    return dataclasses.replace(CohortPlan(2.0, None, 9, gate=Gate(3, 3), strategy=Tree()), **changed)


#: Clients 0 and 2 belong to one user.
TWO = plan_of(users=(0, 1, 0, 2))


class Promised:
    def __init__(self, user):
        self.client, self.noise_scale, self.released, self.expected, self.own_norm = user, 0.0, False, 0, None


def counted(sums, scale=2.0, weight=1.0, plan=None):
    plan = plan or plan_of()
    ledger = CorrelatedCohortLedger(Terms("gaussian_cohort", DELTA), np.full(4, 20), 8, "shuffle", [2.0] * 4, plan)
    tally = ledger.counted_by(ledger, [2.0] * 4, 1.0, True)
    for members in sums:
        tally.count_sum([(weight, Promised(user)) for user in members], scale)
    return ledger, tally


@pytest.mark.parametrize(("sums", "options", "reason"), [
    ([[0], [1], [0]], {}, "user 0 is in releases 0 and 2"),
    ([[0, 1, 0]], {}, "user 0 is 2 times in release 0"),
    ([[0, 2]], {"plan": TWO}, "user 0 is 2 times in release 0"),
    ([[0], [1], [2]], {"plan": TWO}, "user 0 is in releases 0 and 2"),
    ([[0], [], [], [0], [], [], [0], [], [], [0]], {}, "user 0 is in more than 3 releases"),
    ([[]] * 10, {}, "more than 9 releases"),
    ([[0]], {"scale": 1.0}, "is not the scenario's"),
    ([[0]], {"weight": 1.5}, "weight above 1"),
    ([[0]], {"scale": 0.0}, "no noise"),
    ([[]], {"scale": 1.0}, "less noise"),
])  # fmt: skip
def test_what_the_account_does_not_cover_ends_it(sums, options, reason):
    ledger, tally = counted(sums, **options)
    assert reason in tally.refusal
    assert np.isnan(ledger.final_epsilon(tally)).all()
    assert ledger.statement_of(tally).startswith(NOT_CERTIFIED)


def test_the_rules_of_the_gate_do_not_end_the_account():
    ledger, tally = counted([[0, 1], [2], [3], [0], [1], [], [0, 3]])
    assert tally.refusal is None
    assert tally.counts == [3, 2, 1, 2]
    assert (np.diff(ledger.final_epsilon(tally)[[2, 1, 0]]) > 0).all()


def test_a_gate_that_does_not_hold_users_back_is_noticed(monkeypatch):
    monkeypatch.setattr("simfl.algorithms.admission.Participation.opens", lambda self, user: 0)
    _, ledger, _, algorithm = correlated("fedbuff", "none", Tree(), Gate(3))
    assert "in releases" in algorithm.releases.refusal
    assert np.isnan(ledger.final_epsilon(algorithm.releases)).all()
