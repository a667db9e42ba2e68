"""DiLoCo and asynchronous local SGD whose server adds noise: plain loops in float64, and whole scenarios."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

import simfl
from simfl.accounts.check import check_run
from simfl.attacks.audit import audit
from simfl.errors import ScenarioError
from simfl.privacy.cohorts import CohortLedger, CohortPlan
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.privacy.terms import Terms
from simfl.scenario import load
from tests.algorithms.test_cohorts import clipped, fedbuff
from tests.algorithms.test_diloco import BETA, DECAY, ETA, LR, adamw
from tests.algorithms.test_diloco import STEPS as ROUND
from tests.algorithms.test_optimizers import optimized
from tests.helpers import Lab, lognormal, make_problem, make_world, run_algorithm

USERS, NORM = 6, 0.02
ADAMW = {"kind": "adam", "weight_decay": DECAY}
SCENARIOS = Path(__file__).parents[2] / "scenarios/privacy"


def run(kind, plan, *, norm=NORM, updates=None, until=None, keep=True, **options):
    """Return the plain problem, the initial and the last model (f64), the sums, and each arrival with its model."""
    problem = make_problem(USERS, local=True, clip="update", clipping_norm=norm, noise="gaussian")
    optimizer = ADAMW if keep else {**ADAMW, "state": {"rounds": "new"}}
    problem, plans = optimized(problem, kind, optimizer=optimizer)
    sums, events = [], []

    def watch(algorithm):
        train, take = algorithm.batches.train, getattr(algorithm, "take", None)

        def trained(model, client, steps, step, *correction):
            promise = train(model, client, steps, step, *correction)
            events.append(("train", client, promise.draw))
            return promise

        def taken(update):
            events.append(("take", update.client, update.staleness))
            take(update)

        algorithm.batches.train = trained
        if take is not None:
            algorithm.take = taken

    with Lab(problem) as lab:
        training = dataclasses.replace(lab.training(step_size=ETA), cohorts=plan, **plans)
        terms = Terms("gaussian_cohort", 1e-5)
        ledger = CohortLedger(terms, training.sizes, training.batch_size, "shuffle", [1.0] * USERS, plan)
        lab.tape.releases = ledger.counted_by(ledger, [plan.noise_scale] * USERS, norm, True)
        lab.tape.releases.on_cohort = lambda number, time_s, members: sums.append(dict(members))
        algorithm, rows = run_algorithm(
            kind, make_world(USERS, jitter=lognormal(0.5)), lab.tape, training, updates=updates, until=until,
            steps=[ROUND] * USERS, prepare=watch, **options,
        )  # fmt: skip
        model = lab.tape.values(algorithm.models())[0].astype(float)
    assert algorithm.releases.refusal is None
    assert algorithm.releases.counts == [sum(members.get(user, 0) for members in sums) for user in range(USERS)]
    return make_problem(USERS, local=True), training.initial.astype(float), model, sums, events, rows


def nothing():
    return [(0.0, 0.0, 0)] * USERS


@pytest.mark.numbers
@pytest.mark.slow(but=["kept"])
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "new"])
def test_drawn_diloco_equals_a_plain_loop(keep):
    """AdamW at users, each update clipped as a whole, a fixed divisor, and Nesterov's momentum on the sum."""
    problem, x, model, sums, *_ = run(
        "diloco", CohortPlan(0.0, 0.5, 8, None), until=1e3, keep=keep, weighting="uniform", server_step=LR
    )
    assert len(sums) == 8
    assert len(set(map(len, sums))) > 2, "the number of users in a sum changes"
    initial, momentum, moments, draws, short = x, np.zeros_like(x), nothing(), [0] * USERS, 0
    for members in sums:
        total = np.zeros_like(x)
        for user in members:
            w, after = adamw(problem, x, moments[user], user, draws[user])
            short += np.linalg.norm(w - x) > NORM
            total += clipped(w - x, NORM)
            draws[user] += ROUND
            moments[user] = after if keep else (0.0, 0.0, 0)
        g = -total / (0.5 * USERS)
        momentum = BETA * momentum + g
        x = x - LR * (g + BETA * momentum)
    assert short > 0, "some updates are clipped"
    np.testing.assert_allclose(model, x, rtol=0, atol=1e-5)
    assert np.abs(x - initial).max() > 0.01


@pytest.mark.numbers
@pytest.mark.slow
@pytest.mark.parametrize("options", [{"momentum_every": 1}, {"momentum_every": 4, "staleness_exponent": 0.5}])
def test_each_update_of_asynchronous_local_sgd_is_a_cohort_of_its_own(options):
    problem, x, model, sums, events, _ = run("async_local_sgd", CohortPlan(0.0), updates=30, **options)
    assert [list(members.values()) for members in sums] == [[1]] * 30
    every, a = options["momentum_every"], options.get("staleness_exponent", 0.0)
    initial, m, total, moments, under_way, steps = x, np.zeros_like(x), np.zeros_like(x), nothing(), {}, 0
    for event, user, number in events:
        if event == "train":  # at the model that the user has just read
            w, moments[user] = adamw(problem, x, moments[user], user, number)
            under_way[user] = clipped(w - x, NORM)
            continue
        g = -under_way.pop(user) / (1 + number) ** a
        total, steps = total + g, steps + 1
        if steps % every:
            x = x - LR * g / every
        else:
            m, total = BETA * m + total / every, np.zeros_like(x)
            x = x - LR * (BETA * m + g / every)
    assert steps == 30
    np.testing.assert_allclose(model, x, rtol=0, atol=2e-5)
    assert np.abs(x - initial).max() > 0.01


@pytest.mark.numbers
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options", "factor", "step"),
    [
        ("diloco", {"fraction": 0.5, "weighting": "uniform", "server_step": LR}, LR * (1 + BETA) / 3, 3),
        ("async_local_sgd", {"momentum_every": 1}, LR * (1 + BETA), 1),
    ],
)
def test_noise_is_drawn_once_for_each_sum_whatever_states_users_keep(kind, options, factor, step):
    models = []
    for std in (0.0, 0.8):
        *_, model, _, _, rows = run(kind, CohortPlan(std), updates=step, **options)
        models.append(model)
        assert [row[7] for row in rows] == [0.0] * (step - 1) + [std]
    difference = (models[1] - models[0]) / (factor * 0.8)
    assert difference.std() == pytest.approx(1.0, rel=0.1)
    assert abs(difference.mean()) < 4 / math.sqrt(difference.size)


def test_a_kept_state_does_not_hide_an_update_without_noise(monkeypatch):
    """As in a server with a defect: an update that is computed before it is used still counts."""
    monkeypatch.setattr("simfl.algorithms.sum_noise.SumNoise.added", lambda self, model, updates: updates)
    with pytest.raises(AssertionError, match="without noise"):
        run("async_local_sgd", CohortPlan(0.8), updates=2)


# -- scenarios -----------------------------------------------------------------------------------


INDEPENDENT = {
    "unit": "user", "clipping_norm": 0.5, "noise_multiplier": 1.0, "delta": 1e-3,
    "participation": {"min_separation": 20, "at_most": 15},
}  # fmt: skip


def short(name, **changes):
    """Return a scenario of the folder, made short."""
    return load(SCENARIOS / f"{name}.yaml").replace(**changes)


@pytest.mark.usefixtures("without_numbers")
def test_an_account_is_the_number_of_sums_of_each_user(tmp_path):
    given = short("users-local-sgd", privacy=INDEPENDENT, stop__updates=600)
    made, privacy = simfl.run(given, out=tmp_path), given.privacy
    counts = made.cohorts.groupby("client").size().reindex(range(len(made.clients)), fill_value=0)
    assert counts.sum() == len(made.updates) == made.cohorts["release"].nunique() == 600
    spent = [gaussian_epsilon(privacy.delta, math.sqrt(count) / privacy.noise_multiplier) for count in counts]
    expected = [epsilon if count else 0.0 for epsilon, count in zip(spent, counts, strict=True)]
    assert made.clients["epsilon"].to_numpy() == pytest.approx(expected, rel=1e-6)
    assert made.cohorts.groupby("client")["release"].diff().dropna().min() >= 20 == privacy.participation.min_separation
    assert counts.max() <= privacy.participation.at_most
    assert check_run(made).findings[0].by_server


@pytest.mark.usefixtures("without_numbers")
def test_drawn_rounds_amplify_with_states_and_momentum(tmp_path):
    made = simfl.run(short("users-diloco", privacy__releases=20), out=tmp_path)
    assert "each of 200 enrolled users in each of 20 releases with probability 0.1" in made.manifest.extra["privacy"]
    assert made.clients["epsilon"].nunique() == 1


@pytest.mark.slow
def test_canary_users_of_asynchronous_local_sgd():
    given = short(
        "users-local-sgd", privacy=INDEPENDENT, stop__updates=300, algorithm__momentum=0.0, algorithm__step_size=0.2,
        algorithm__optimizer="sgd",
    )  # fmt: skip
    report = audit(given)
    assert report.passed
    assert report.complete


@pytest.mark.parametrize(
    ("name", "changes", "line"),
    [
        ("users-local-sgd", {"privacy": INDEPENDENT}, r"algorithm\.momentum: expected 0, found 0\.9; it comes after"),
        ("users-diloco", {}, r"algorithm\.server_optimizer: expected sgd, found another one; it comes after the noise"),
    ],
)
def test_an_audit_refuses_momentum_in_one_line(name, changes, line):
    with pytest.raises(ScenarioError, match=line):
        audit(short(name, **changes))


def test_states_of_other_algorithms_are_kept_too():
    given = fedbuff().replace(algorithm__optimizer={"kind": "adam", "state": {"rounds": "keep"}})
    assert given.algorithm.keeps_states


@pytest.mark.parametrize("kind", ["halos", "decoupled_diloco", "streaming_diloco"])
def test_servers_of_fragments_and_of_regions_are_refused_in_one_line(kind):
    given = fedbuff().given()
    with pytest.raises(ScenarioError, match=rf"privacy: expected another mechanism with '{kind}'"):
        simfl.Scenario(**{**given, "algorithm": {"kind": kind}})
