"""Users that own several clients, in whole scenarios."""

import math

import numpy as np
import pytest

import simfl
from simfl.accounts.check import check_run
from simfl.attacks.audit import audit
from simfl.errors import ScenarioError
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.scenario import from_mapping

ALGORITHM = {"kind": "fedbuff", "buffer_size": 4, "local_steps": 2, "batch_size": 4, "step_size": 0.2}
DRAWN = {"kind": "fedavg", "fraction": 0.3, "weighting": "uniform", "local_steps": 2, "batch_size": 4, "step_size": 0.2}


def scenario(users=12, algorithm=ALGORITHM, **privacy):
    given = {"unit": "user", "noise_multiplier": 4.0, "clipping_norm": 0.5, "delta": 1e-3, **privacy}
    return from_mapping(
        {
            "name": "devices",
            "data": {"set": "digits"},
            "model": "softmax",
            "clients": {"count": 18, "users": users, "seconds_per_example": "1 ms"},
            "algorithm": algorithm,
            "privacy": {name: value for name, value in given.items() if value is not None},
            "stop": {"updates": 60},
        }
    )


def test_tables_name_users_and_the_account_is_that_of_the_tables(tmp_path):
    run = simfl.run(scenario(), out=tmp_path)
    owners = np.array([client * 12 // 18 for client in range(18)])
    assert run.clients["user"].tolist() == owners.tolist()
    assert (run.cohorts["user"] == owners[run.cohorts["client"]]).all()
    squares = (run.cohorts.groupby(["release", "user"])["updates"].sum() ** 2).groupby("user").sum()
    assert squares.max() > run.cohorts.groupby("client")["updates"].sum().max()
    counted = run.releases.groupby("client")["count"].sum()
    assert counted.tolist() == squares.reindex(owners, fill_value=0).tolist()
    assert (run.clients.groupby("user")["epsilon"].nunique() == 1).all()
    checked = check_run(run)
    assert max(next(iter(one.certified.values())) for one in checked.findings) == run.epsilon_and_delta()[0]
    assert "clients.users says which of 18 they are" in checked.assumptions["unit"]
    own = (run.cohorts["updates"] ** 2).groupby(run.cohorts["client"]).sum().reindex(range(18), fill_value=0)
    assert checked.per_client == pytest.approx([gaussian_epsilon(1e-3, math.sqrt(square) / 4.0) for square in own])
    assert (np.array(checked.per_client) <= run.clients["epsilon"] * (1 + 1e-9)).all()


def test_a_run_of_drawn_users_is_checked_from_its_tables(tmp_path):
    run = simfl.run(scenario(algorithm=DRAWN, cohorts="poisson", releases=8), out=tmp_path)
    assert "each of 12 enrolled users in each of 8 releases" in run.manifest.extra["privacy"]
    epsilons = run.clients.groupby("user")["epsilon"].first()
    single = [user for user in range(12) if (run.clients["user"] == user).sum() == 1]
    assert epsilons[single].max() < epsilons.drop(single).min(), "two clients show more"
    checked = check_run(run)
    assert max(next(iter(one.certified.values())) for one in checked.findings) == pytest.approx(epsilons.max())
    assert checked.per_client == pytest.approx([epsilons[single].max()] * 18), "as if it were the user's only client"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "privacy"),
    [
        (ALGORITHM, {}),
        (ALGORITHM, {"participation": {"min_separation": 2}}),
        (DRAWN, {"cohorts": "poisson", "releases": 8}),
    ],
)
def test_canary_users_own_all_of_their_clients(algorithm, privacy):
    report = audit(scenario(algorithm=algorithm, **privacy), canaries=12)
    assert report.passed
    assert report.users == 12


def test_planned_accounts_are_not_smaller_than_recorded_ones(tmp_path):
    for privacy in ({}, {"participation": {"min_separation": 2}}):
        given = scenario(**privacy)
        setup = simfl.prepare(given)
        planned = setup.ledger.final_epsilon(setup.kind.planned(setup))
        run = simfl.run(given, out=tmp_path)
        assert planned.max() >= 0.9 * run.clients["epsilon"].max()


@pytest.mark.parametrize(
    ("users", "privacy", "message"),
    [
        (19, {}, r"clients\.users: expected at most 18, the number of clients, found 19"),
        ([0, 1], {}, r"clients\.users: expected .*18.*"),
        ([0] * 17 + [2], {}, r"clients\.users: expected users 0, 1, 2, \.\.\. .*found none of user 1"),
        (4, {"participation": {"min_separation": 2}}, r"min_separation: expected at most 1 with sums of 4 of 4 users"),
        (9, {"noise_multiplier": None, "epsilon": 3.0}, r"privacy\.noise_multiplier: expected a noise multiplier"),
        (9, {"unit": None, "mechanism": "gaussian_update"}, r"clients\.users: expected null without privacy\.unit"),
    ],
)
def test_bad_users_give_one_line(users, privacy, message):
    with pytest.raises(ScenarioError, match=message):
        scenario(users, **privacy)
