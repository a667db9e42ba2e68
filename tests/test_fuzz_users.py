"""Scenarios of users drawn from the schema: accounts hold, rules are kept, and bad products give lines."""

import math
import os

import numpy as np
import pytest

from simfl.accounts.check import check_run
from simfl.attacks.users import UserAudit
from simfl.errors import RunError, ScenarioError
from simfl.records import RunFolder
from simfl.runs import runner
from simfl.scenario import from_mapping
from simfl.tape.executor import choose_device
from tests.fuzz import count
from tests.fuzz_users import drawn
from tests.helpers import run_until
from tests.runs.test_resumed_worlds import NoNumbers
from tests.test_fuzz import check

#: More of them: SIMFL_FUZZ_USERS=0:5000 pytest tests/test_fuzz_users.py
FIRST, LAST = map(int, os.environ.get("SIMFL_FUZZ_USERS", "0:200").split(":"))
LOTS = 10
#: 1: a run without noise. 55, 72, 123, 178: clients of secure sums that answer while they train or send.
ONCE_FAILED = (1, 55, 72, 123, 178)
#: What a valid run may fail by: a very slow client that is away very often, and dropouts that abort all sums.
FAILS = ("absences", "sums in a row had fewer")


def kept(run, scenario) -> None:
    """Check the rules of users, from the tables alone."""
    privacy, updates = scenario.privacy, run.updates
    if privacy is None:
        return
    cohorts, clients = run.cohorts, run.clients
    users = cohorts["user"] if "user" in cohorts else cohorts["client"]
    made = cohorts.assign(user=users).groupby(["release", "user"])["updates"].sum()
    # Every update that was used is in a release, as often as it was used.
    used = updates.groupby("client").size().reindex(clients["client"], fill_value=0)
    counted = cohorts.groupby("client")["updates"].sum().reindex(clients["client"], fill_value=0)
    assert (used <= counted).all()
    if scenario.privacy.where == "server":
        assert used.tolist() == counted.tolist()
    if privacy.releases is not None and len(cohorts):
        assert cohorts["release"].max() < privacy.releases
    rule = privacy.participation
    if rule is not None and len(cohorts):
        assert made.max() == 1
        numbers = made.reset_index().groupby("user")["release"]
        apart = numbers.diff().dropna()
        assert not len(apart) or apart.min() >= rule.min_separation
        assert rule.at_most is None or numbers.size().max() <= rule.at_most
    assert ("early" in clients) == (rule is not None)
    # All clients of a user have one epsilon, at most the budget, and the tables give it again.
    epsilons = clients["epsilon"]
    if "user" in clients:
        assert (clients.groupby("user")["epsilon"].nunique(dropna=False) == 1).all()
    budget = privacy.epsilon_budget
    if budget is not None:
        limit = np.broadcast_to(np.asarray(budget, float), len(epsilons))
        assert (np.nan_to_num(epsilons.to_numpy()) <= limit * (1 + 1e-9)).all()
    statement = str(run.manifest.extra["privacy"])
    assert "\n" not in statement
    assert epsilons.isna().any() == statement.startswith("not certified")
    found = check_run(run).findings
    again = max(next(iter(one.certified.values())) for one in found)
    assert again == pytest.approx(float(np.max(epsilons.to_numpy())), rel=1e-6, nan_ok=True)
    if privacy.where == "secure_sum":
        sizes = run.secure_sums["members"]
        least = sizes[sizes > 0].min() if (sizes > 0).any() else math.inf
        assert privacy.colluding < least


def one(seed: int, folder) -> bool:
    """Draw a scenario, run it, every fourth one again with an interruption; return False if it was rejected."""
    try:
        scenario = from_mapping(drawn(seed, folder))
        setup = runner.prepare(scenario)
    except ScenarioError as refusal:
        for line in str(refusal).splitlines():
            assert "expected" in line, line
        return False
    digest, events = _digest(setup, folder, f"{seed}-0")
    if seed % 4 == 0 and digest:
        cut, _ = run_until(runner.prepare(scenario), max(1, events // 2), folder)
        assert (cut if cut.status == "done" else runner.resume(cut.folder)).manifest.digest == digest
    return True


def _digest(setup, folder, name) -> tuple[str, int]:
    """Run and check a scenario; return the digest of its tables, "" if it failed, and the number of events."""
    simulation = runner.Simulation(setup, choose_device(None))
    try:
        run = simulation.run(RunFolder.create(folder, setup.scenario.name, name))
        check(run, simulation)
        kept(run, setup.scenario)
        return run.manifest.digest, simulation.world.clock.events
    except (RunError, ScenarioError) as refusal:
        line = str(refusal)
        if "\n" in line or not any(words in line for words in FAILS):
            raise
        return "", 0
    finally:
        simulation.release()


@pytest.mark.slow(but=["0"])
@pytest.mark.parametrize("lot", range(LOTS))
def test_drawn_scenarios_of_users_keep_their_rules(lot, tmp_path, monkeypatch):
    monkeypatch.setattr("simfl.runs.context.Executor", NoNumbers)
    seeds = range(FIRST + lot, LAST, LOTS)
    assert count(seeds, one, tmp_path) >= 0.4 * len(seeds), "few are refused"


def test_scenarios_of_users_that_failed_once_pass(tmp_path, monkeypatch):
    monkeypatch.setattr("simfl.runs.context.Executor", NoNumbers)
    assert count(ONCE_FAILED, one, tmp_path) == len(ONCE_FAILED)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [59, 61, 65, 70, 72])
def test_audits_of_drawn_scenarios_pass(seed, tmp_path):
    """Secure sums with faults, discrete noise, correlated noise; in 59 and 65 the server learns some aborted sums."""
    report = UserAudit(from_mapping(drawn(seed, tmp_path))).run()
    assert report.passed
    assert report.releases > 3
    assert (report.accounted > report.releases) == (seed in (59, 65))
