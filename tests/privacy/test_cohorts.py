"""Users in the cohorts of a server: the account against dp-accounting, and against an independent count of who was
in which sum, for every algorithm, draw and fault."""

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from simfl.algorithms.staleness import StalenessBound
from simfl.privacy.adaptive import AdaptiveNorm
from simfl.privacy.cohorts import CohortLedger, CohortPlan, CohortTally, Gate
from simfl.privacy.releases import Releases
from simfl.privacy.terms import Terms
from simfl.tape import Tape
from tests.helpers import NullExecutor, make_training, run_algorithm, uses_of
from tests.privacy.test_product import FAULTS, gaussian, world_of

DELTA, USERS, BATCH = 1e-5, 12, 8


def ledger_of(plan, *, users=USERS, level=2.0, **terms):
    return CohortLedger(
        Terms("gaussian_cohort", DELTA, **terms), np.full(users, 20), BATCH, "shuffle", [level] * users, plan
    )


def releases_of(cohorts, users=USERS, counts=None):
    return Releases(list(counts or [cohorts] * users), cohorts=cohorts)


# -- the account ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "rate", "count"), [(1.0, 0.05, 200), (2.0, 0.3, 40), (0.6, 0.01, 100)])
def test_drawn_cohorts_cost_as_much_as_in_dp_accounting(level, rate, count):
    """By Renyi divergences to 1e-3 during a run, by privacy loss distributions at its end."""
    ledger = ledger_of(CohortPlan(level, rate, count, None), level=level)
    event = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(level)), count)
    renyi, tight = RdpAccountant().compose(event), PLDAccountant().compose(event)
    drawn = releases_of(count, counts=[0, *[count] * (USERS - 1)])
    during, final = ledger.epsilon(drawn), ledger.final_epsilon(drawn)
    assert (during == during[0]).all(), "a user that was never drawn has the epsilon of all"
    assert during[0] <= renyi.get_epsilon(DELTA) * (1 + 1e-3)
    assert final == pytest.approx(tight.get_epsilon(DELTA), rel=1e-3)
    assert ledger.kinds(drawn) == [(user, BATCH, rate, level, count) for user in range(USERS)]


def test_the_noise_of_federated_language_models_has_its_published_epsilon():
    """McMahan et al. 2018, section 3: K = 763,430, q K = 5,000, z = 1, 5,000 rounds: (4.634, 1e-9), by moments."""
    plan = CohortPlan(1.0, 5000 / 763_430, 5000, None)
    terms = Terms("gaussian_cohort", 1e-9, accountant="renyi")
    ledger = CohortLedger(terms, np.full(3, 20), BATCH, "shuffle", [1.0] * 3, plan)
    assert 0.85 * 4.634 <= ledger.final_epsilon(releases_of(5000, 3))[0] <= 4.634


@pytest.mark.parametrize("neighbors", ["add_or_remove", "replace_one"])
def test_users_that_come_on_their_own_are_accounted_in_full(neighbors):
    ledger = ledger_of(CohortPlan(2.0), neighbors=neighbors)
    counts = list(range(USERS))
    spent = ledger.final_epsilon(releases_of(40, counts=counts))
    moved = 1 if neighbors == "add_or_remove" else 2
    assert spent == pytest.approx([gaussian(moved * math.sqrt(count) / 2.0) for count in counts], rel=1e-3)
    assert "q = 1: the algorithm chooses who is in a cohort" in ledger.statement


@pytest.mark.parametrize(("changed", "terms", "made", "reason"), [
    ({}, {}, 39, "39 of 40 releases were made"),
    ({}, {}, 41, "41 of 40 releases were made"),
    ({}, {"neighbors": "replace_one"}, 40, "draws amplify under neighbors: add_or_remove only"),
    ({}, {"amplification": False}, 40, "amplification: false"),
    ({"unamplified": "it rains"}, {}, 40, "it rains"),
    ({"rate": None}, {}, 40, "the algorithm chooses who is in a cohort"),
    ({"releases": None}, {}, 40, "the algorithm chooses who is in a cohort"),
])  # fmt: skip
def test_without_its_conditions_a_draw_does_not_amplify(changed, terms, made, reason):
    ledger = ledger_of(dataclasses.replace(CohortPlan(2.0, 0.1, 40, None), **changed), **terms)
    releases = releases_of(made, counts=[7] * USERS)
    moved = 2 if terms.get("neighbors") == "replace_one" else 1
    assert f"(q = 1: {reason}" in ledger.statement_of(releases)
    assert ledger.final_epsilon(releases) == pytest.approx(gaussian(moved * math.sqrt(7) / 2.0), rel=1e-3)


def test_the_statement_names_what_the_adversary_does_not_see():
    ledger = ledger_of(CohortPlan(2.0, 0.1, 40, None))
    made = ledger.statement_of(releases_of(40))
    for words in ("per user", "without their times and the names of users", "with probability 0.1", "adds nothing"):
        assert words in made
    assert "their times, and who takes part when" in ledger.statement_of(releases_of(39))


# -- an independent count ------------------------------------------------------------------------


class Watched(Tape):
    """Takes down which updates are in which sum, and each operation with a client's data."""

    def __init__(self, **options):
        super().__init__(NullExecutor(), **options)
        self.made, self.sums, self.used, self.noises = {}, [], Counter(), []

    def train(self, *arguments, **options):
        promise = super().train(*arguments, **options)
        self.made[id(promise)] = promise
        return promise

    def noise(self, model, noise_scale):
        self.noises.append(super().noise(model, noise_scale))
        return self.noises[-1]

    def noised(self, model, terms, noise_scale, counted=None, correlated=None):
        made = super().noised(model, terms, noise_scale, counted, correlated)
        assert all(abs(weight) <= 1.0 and update.noise_scale == 0.0 for weight, update in terms)
        self.sums.append((Counter(update.client for _, update in terms), noise_scale))
        self.used.update(id(update) for _, update in terms)
        return made

    def _record(self, rows, coefs, gradient, *rest):
        if id(gradient) in self.made:
            assert self.used[id(gradient)] == 1, "an update that the server uses is in one sum with noise"
        else:
            assert gradient in self.noises
        return super()._record(rows, coefs, gradient, *rest)


ADAPTIVE = AdaptiveNorm(0.1, 0.5, 0.2, 2.0, 6.0)
#: Ways of algorithms whose server adds noise to sums.
WAYS = {
    "fedavg": ("fedavg", {"fraction": 0.5}, {}),
    "fedavg, drawn": ("fedavg", {}, {"rate": 0.4}),
    "fedavg, late": ("fedavg", {"fraction": 0.5, "deadline": 0.02}, {}),
    "fedprox": ("fedprox", {"fraction": 0.5, "deadline": 0.02}, {}),
    "fedbuff": ("fedbuff", {"buffer_size": 3}, {}),
    "fedbuff, waiting": ("fedbuff", {"buffer_size": 3, "after_update": "wait"}, {}),
    "fedbuff, few at a time": ("fedbuff", {"buffer_size": 3, "concurrency": 4}, {}),
    "fedbuff, dropping": ("fedbuff", {"buffer_size": 3, "staleness": StalenessBound(1, "drop")}, {}),
    "fadas": ("fadas", {"buffer_size": 3}, {}),
    "fedasync": ("fedasync", {}, {}),
    "fedavg, adaptive": ("fedavg", {}, {"rate": 0.4, "adaptive": ADAPTIVE}),
    "fedbuff, adaptive": ("fedbuff", {"buffer_size": 3}, {"adaptive": ADAPTIVE}),
    "fedasync, adaptive": ("fedasync", {}, {"adaptive": ADAPTIVE}),
    "diloco, adaptive": ("diloco", {"fraction": 0.5}, {"adaptive": ADAPTIVE}),
    "async_local_sgd, adaptive": ("async_local_sgd", {}, {"adaptive": ADAPTIVE}),
    "diloco": ("diloco", {"fraction": 0.5}, {}),
    "diloco, drawn": ("diloco", {}, {"rate": 0.4}),
    "async_local_sgd": ("async_local_sgd", {}, {}),
    "async_local_sgd, waiting": ("async_local_sgd", {"grace": 0.02, "staleness_exponent": 0.5}, {}),
}
#: Their names; quick tests leave out what is nearly the same.
SLOW = ("diloco", "fadas", "async_local_sgd")
NAMED = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in WAYS]


def run(name, fault, *, level=2.0, allowances=None, releases=None, until=3.0, ledger_type=None, **changed):
    """Return the tape of a run, the ledger, the table of cohorts, and the algorithm."""
    kind, options, planned = WAYS[name]
    plan = CohortPlan(level, **{"releases": releases, **planned, **changed})
    ledger = (ledger_type or CohortLedger)(
        Terms("gaussian_cohort", DELTA), np.full(USERS, 20), BATCH, "shuffle", [level] * USERS, plan
    )
    speeds = [0.2, *[1.0] * (USERS - 1)]
    training = dataclasses.replace(
        make_training([20] * USERS, noise_std=level), cohorts=plan, allowances=allowances, noise_scale=[level] * USERS
    )
    world = world_of(fault, USERS, speeds)
    tape = Watched(window=100, max_batch=BATCH, local=True, corrected=uses_of(kind).gradient == "corrected")
    tape.releases = ledger.counted_by(ledger, [level] * USERS, 1.0, True, lambda: world.clock.now)
    assert isinstance(tape.releases, CohortTally)
    rows = []
    tape.releases.on_cohort = lambda number, time_s, members: rows.append((number, time_s, dict(members)))
    uniform = {"weighting": "uniform"} if kind.startswith("fedp") or kind == "fedavg" else {}
    algorithm, _ = run_algorithm(kind, world, tape, training, until=until, steps=[2] * USERS, **uniform, **options)
    return tape, ledger, rows, algorithm


#: Of 12 clients: five users with 1, 2, 2, 3 and 4; clients of a user are not neighbors.
OWNERS = (0, 1, 2, 3, 4, 1, 2, 3, 4, 3, 4, 4)
#: Nine users, of which three have two clients: enough for sums that are two apart.
PAIRS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2)


def squares_of(sums, user, owners=OWNERS):
    """Return what a user's updates on all of its clients cost, and their number in each sum."""
    counts = [sum(members[client] for client in range(USERS) if owners[client] == user) for members, _ in sums]
    return sum(count**2 for count in counts), counts


@pytest.mark.slow(every=7)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("owners", [range(USERS), OWNERS], ids=["a client each", "several clients"])
@pytest.mark.parametrize("name", NAMED)
def test_the_account_has_every_user_of_every_sum(name, owners, fault):
    """All clients of a user count as one."""
    tape, ledger, rows, algorithm = run(name, fault, users=None if owners is not OWNERS else OWNERS)
    releases = algorithm.releases
    assert len(tape.sums) == releases.cohorts == algorithm.admission.number >= 10
    assert [members for *_, members in rows] == [dict(members) for members, _ in tape.sums], "tables name clients"
    adaptive = ledger.plan.adaptive
    expected = 2.0 if adaptive is None else adaptive.noise_on_sum(2.0)
    assert all(scale == expected for _, scale in tape.sums), "of which the account has 2"
    assert len(tape.noises) == (1 if adaptive is None else 2) * len(tape.sums)
    assert releases.refusal is None
    spent, most = ledger.final_epsilon(releases), 0
    for client, user in enumerate(owners):
        squares, counts = squares_of(tape.sums, user, owners)
        assert releases.total(client) == squares
        assert spent[client] == pytest.approx(gaussian(math.sqrt(squares) / 2.0), rel=1e-3)
        most = max(most, *counts)
    assert most > 1 or owners is not OWNERS or name.startswith(("fedasync", "async")), "several times in a sum"
    assert sum(algorithm.client_updates) == sum(sum(members.values()) for members, _ in tape.sums)


@pytest.mark.parametrize("name", NAMED)
def test_budgets_and_the_number_of_releases_hold(name):
    for fault in FAULTS:
        for owners, budget, users in ((range(USERS), 6, None), (OWNERS, 9, OWNERS)):
            tape, _, _, algorithm = run(name, fault, allowances=[budget] * USERS, users=users)
            assert max(squares_of(tape.sums, user, owners)[0] for user in owners) <= budget
            assert algorithm.budgets.spent_s
        tape, _, _, algorithm = run(name, fault, releases=9, until=10.0)
        assert len(tape.sums) == 9
        assert algorithm.ending == "the server has made its 9 releases"


def test_a_draw_does_not_depend_on_who_was_drawn_before():
    """Each user of each release with probability q, also those of rounds without anybody."""
    tape, ledger, _, algorithm = run("fedavg, drawn", "none", releases=400, until=100.0, rate=0.1, unamplified=None)
    drawn = np.array([[members[user] for user in range(USERS)] for members, _ in tape.sums])
    assert drawn.shape == (400, USERS)
    assert abs(drawn.mean() - 0.1) < 4 * math.sqrt(0.09 / drawn.size)
    assert (drawn.sum(axis=1) == 0).any(), "a cohort without users is a release too"
    together = np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]
    assert abs(together) < 4 / math.sqrt(drawn.size)
    assert ledger.amplifies(algorithm.releases)
    assert algorithm.releases.total(0) == drawn[:, 0].sum(), "users are still counted one by one"


def test_an_update_that_is_used_without_noise_ends_the_account(monkeypatch):
    """As in an algorithm with a defect: the server leaves the noise out."""
    monkeypatch.setattr("simfl.algorithms.sum_noise.SumNoise.added", lambda self, model, updates: updates)
    monkeypatch.setattr(Watched, "_record", Tape._record)
    _, ledger, _, algorithm = run("fedbuff", "none")
    assert "without noise" in algorithm.releases.refusal
    assert np.isnan(ledger.final_epsilon(algorithm.releases)).all()


# -- participation ---------------------------------------------------------------------------------

GATES = {
    "once": Gate(),
    "apart": Gate(2),
    "apart, sent away": Gate(2, waits=False),
    "three times": Gate(2, 3),
    "three times, sent away": Gate(1, 3, waits=False),
}


@pytest.mark.slow(every=7)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("owners", [range(USERS), PAIRS], ids=["a client each", "two clients"])
@pytest.mark.parametrize("name", NAMED)
def test_the_server_enforces_participation_whatever_clocks_and_faults_do(name, owners, gate):
    """One client of a user at a time."""
    rule, users = GATES[gate], sorted(set(owners))
    for fault in FAULTS:
        tape, ledger, _, algorithm = run(
            name, fault, gate=rule, until=2.0, users=None if owners is not PAIRS else PAIRS
        )
        counts = [squares_of(tape.sums, user, owners)[1] for user in users]
        assert max(map(max, counts)) == 1
        made = [np.flatnonzero(one) for one in counts]
        assert sum(map(len, made)) > 20
        assert min((int(np.diff(numbers).min()) for numbers in made if len(numbers) > 1), default=9) >= rule.separation
        most = max(map(len, made))
        if rule.at_most is not None:
            assert most <= rule.at_most
            assert owners is PAIRS or (most == rule.at_most and algorithm.budgets.spent_s)
        assert [algorithm.releases.total(client) for client in range(USERS)] == [len(made[user]) for user in owners]
        early = algorithm.client_early
        assert not any(early) or not rule.waits or owners is PAIRS
        assert sum(early) <= sum(algorithm.client_dropped)
        assert ledger.final_epsilon(algorithm.releases).max() <= gaussian(math.sqrt(most) / 2.0) * 1.001


@pytest.mark.parametrize("waits", [True, False])
def test_a_fast_user_waits_or_is_sent_away(waits):
    """User 0 is five times as fast; both ways it is in every second buffer at most."""
    tape, _, _, algorithm = run("fedbuff", "none", gate=Gate(2, waits=waits), until=1.0)
    assert len(tape.sums) > 20
    assert bool(algorithm.client_early[0]) is not waits
    assert (algorithm.times.waited_s(0) > 0.5) is waits
    free, _, _, _ = run("fedbuff", "none", until=1.0)
    assert max(members[0] for members, _ in free.sums) > 1, "without a gate it is in one buffer several times"


def test_a_buffer_is_released_if_all_others_wait_at_the_gate():
    """Users that left cannot fill a buffer: the sum of those who are there is made, divided as always."""
    tape, _, _, algorithm = run("fedbuff", "churn", gate=Gate(4), until=1.0)
    sizes = [sum(members.values()) for members, _ in tape.sums]
    assert max(sizes) == 3
    assert algorithm.admission.number == len(sizes) > 10


@pytest.mark.slow
def test_a_drawn_user_takes_part_with_all_its_clients():
    """A user of m clients moves the sum by m C: releases with noise z / m at rate q, as in dp-accounting."""
    tape, ledger, _, algorithm = run(
        "fedavg, drawn", "none", releases=200, until=100.0, rate=0.2, unamplified=None, users=OWNERS
    )
    drawn = []
    for user in sorted(set(OWNERS)):
        _, counts = squares_of(tape.sums, user)
        assert set(counts) == {0, OWNERS.count(user)}
        drawn.append([count > 0 for count in counts])
    assert abs(np.mean(drawn) - 0.2) < 4 * math.sqrt(0.16 / np.size(drawn))
    spent = ledger.final_epsilon(algorithm.releases)
    for count in set(map(OWNERS.count, OWNERS)):
        event = dp_event.PoissonSampledDpEvent(0.2, dp_event.GaussianDpEvent(2.0 / count))
        tight = PLDAccountant().compose(dp_event.SelfComposedDpEvent(event, 200)).get_epsilon(DELTA)
        own = [spent[client] for client, user in enumerate(OWNERS) if OWNERS.count(user) == count]
        assert own == pytest.approx([tight] * len(own), rel=1e-3)
    assert "each of 5 enrolled users in each of 200 releases" in ledger.statement_of(algorithm.releases)
