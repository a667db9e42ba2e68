"""Adaptive clipping norms of servers: against a plain loop in float64, and in whole scenarios."""

import dataclasses
import math

import numpy as np
import pytest

import simfl
from simfl.accounts.check import check_run
from simfl.algorithms.cohorts import Cohorts
from simfl.errors import ScenarioError
from simfl.privacy.adaptive import AdaptiveNorm
from simfl.privacy.cohorts import CohortLedger, CohortPlan
from simfl.privacy.noise import SAMPLERS
from simfl.privacy.terms import Terms
from simfl.reports.trace import write_trace
from simfl.scenario import from_mapping
from simfl.studies.together import groups_of
from simfl.studies.worlds import world_key
from simfl.tape.recording import NOISE_DRAWS
from tests.algorithms.test_fedbuff import ETA, change
from tests.helpers import Lab, lognormal, make_problem, make_world, run_algorithm

USERS, STEPS, MU = 6, [1, 2, 3, 1, 2, 3], 0.4

#: Algorithm -> its options, the divisor of a sum, the factor of a sum in the model, and the number of updates.
WAYS = {
    "fedavg": ({"fraction": 0.5, "weighting": "uniform", "server_step": 0.7}, 3, 0.7 / 3, 18),
    "fedavg, drawn": ({"weighting": "uniform"}, 3, 1 / 3, None),
    "fedprox": ({"fraction": 0.5, "weighting": "uniform"}, 3, 1 / 3, 18),
    "fedbuff": ({"buffer_size": 3, "server_step": 0.7}, 3, 0.7 / 3, 18),
    "fedbuff, maps beside gradients": ({"buffer_size": 3, "server_step": 0.7}, 3, 0.7 / 3, 18),  # as on a GPU
    "fedasync": ({"mixing": 0.5}, 1, None, 12),
}


def run(name, monkeypatch, z=1.0, count_noise=0.8, quantile=0.4):
    """Return the problem, the initial model, and per release: updates, the model and the norm after it."""
    options, members, _, updates = WAYS[name]
    kind = name.partition(",")[0]
    rule = AdaptiveNorm(0.5, quantile, 0.5, count_noise if z else 0.0, float(members))
    drawn = {"rate": 0.5, "releases": 8} if "drawn" in name else {}
    plan = CohortPlan(z, adaptive=rule, **drawn)
    problem = make_problem(
        USERS, local=True, clip="update", clipping_norm=math.inf, noise="gaussian", proximal=MU * (kind == "fedprox")
    )
    if "beside" in name:
        problem = dataclasses.replace(problem, optimizing=dataclasses.replace(problem.optimizing, beside=True))
    sums, released, shown = [], [], Cohorts.shown
    monkeypatch.setattr(Cohorts, "shown", lambda self, *words: (released.append(self.norm), shown(self, *words))[1])
    with Lab(problem) as lab:
        training = dataclasses.replace(lab.training(step_size=ETA), cohorts=plan)
        terms = Terms("gaussian_cohort", 1e-5)
        ledger = CohortLedger(terms, training.sizes, training.batch_size, "shuffle", [1.0] * USERS, plan)
        lab.tape.releases = ledger.counted_by(ledger, [z] * USERS, math.inf, True)
        lab.tape.releases.on_cohort = lambda number, time_s, users: sums.append(dict(users))
        models = []

        def prepare(algorithm):
            algorithm.sum.on_model = lambda model, known, factor: models.append(model)

        algorithm, rows = run_algorithm(
            kind, make_world(USERS, jitter=lognormal(0.5)), lab.tape, training, updates=updates, prepare=prepare,
            until=1e3, steps=STEPS, **options,
        )  # fmt: skip
        assert lab.tape.releases.refusal is None
        assert sum(lab.tape.releases.counts) == sum(count**2 for users in sums for count in users.values())
        assert not lab.tape.releases.others, "sum and count together cost what z costs"
        assert math.isnan(algorithm.sum.noise.std(3))
        models = lab.tape.values(models).astype(float)
        norms = lab.tape.values(released).astype(float)
    assert (norms == norms[:, :1]).all()
    return problem, training.initial.astype(float), rule, rows, sums, models, norms[:, 0]


def noises(problem, number):
    """Return the unit noise of a sum and that of its count."""
    size = problem.model.size
    draws = [np.int32(NOISE_DRAWS + 2 * number + k) for k in range(2)]
    both = [SAMPLERS["gaussian"](problem.keys.noise, np.int32(0), draw, size) for draw in draws]
    return np.asarray(both[0], float), float(both[1][0])


@pytest.mark.slow(but=["0.0-fedbuff, maps", "1.0-fedavg, drawn"])
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("z", [0.0, 1.0])
def test_a_server_is_a_plain_loop(name, z, monkeypatch):
    """Eight releases or more: models and norms, with noise and without, also of updates at stale models."""
    problem, w, rule, rows, sums, models, norms = run(name, monkeypatch, z)
    _, members, factor, _ = WAYS[name]
    kind, plain = name.partition(",")[0], make_problem(USERS, local=True)
    of_sum, norm, draws, known, lengths = rule.noise_on_sum(z), rule.start, [0] * USERS, [w], []
    updates = iter(rows)
    assert len(sums) == len(models) >= 6
    for number, users in enumerate(sums):
        noise, of_count = noises(problem, number) if z else (0.0, 0.0)
        total, inside, shares = norm * of_sum * noise, rule.count_noise * of_count, []
        for _ in range(sum(users.values())):
            _, user, _, _, stale, *_, std = next(updates)
            assert std == 0.0 or math.isnan(std)
            read = known[-1 - stale]
            moved = change(plain, read, user, draws[user], STEPS[user], MU * (kind == "fedprox"))
            draws[user] += STEPS[user]
            length = np.linalg.norm(moved)
            lengths.append(length / norm)
            weight = (1 + stale) ** -0.5 if kind == "fedbuff" else 1.0
            total = total + weight * moved * min(1.0, norm / length)
            inside += 0.5 if length <= norm else -0.5
            shares.append(0.5 * (stale + 1) ** -0.5)
        w = w + factor * total if factor else (1 - shares[0]) * w + shares[0] * (read + total)
        norm *= math.exp(-0.5 * (0.5 + inside / members - rule.quantile))
        known.append(w)
        np.testing.assert_allclose(models[number], w, atol=5e-6 * max(1.0, np.abs(w).max()))
        assert norms[number] == pytest.approx(norm, rel=1e-5)
    assert min(lengths) < 0.99, "some updates are not clipped"
    assert max(lengths) > 1.01, "some updates are clipped"


# -- scenarios -----------------------------------------------------------------------------------


def scenario(kind="fedavg", norm="adaptive", **changes):
    kinds = {
        "fedavg": {"fraction": 0.5, "weighting": "uniform"},
        "fedprox": {"fraction": 0.5, "weighting": "uniform"},
        "fedbuff": {"buffer_size": 6},
        "fedasync": {},
    }
    drawn = {"cohorts": "poisson", "releases": 10} if kind == "fedavg" else {}
    sections = {
        "name": "adaptive",
        "data": {"set": "digits"},
        "model": "softmax",
        "clients": {"count": 12, "speed": {"kind": "lognormal", "sigma": 0.4}},
        "algorithm": {
            "kind": kind, "local_steps": 2, "batch_size": 16, "step_size": 0.1, **kinds[kind]
        },
        "privacy": {
            "unit": "user", "clipping_norm": {"start": 0.05, "count_noise": 1.5} if norm == "adaptive" else norm,
            "noise_multiplier": 2.0, "delta": 1e-3, **drawn,
        },
        "stop": {"updates": 60},
        "evaluate": {"every": {"updates": 12}},
    }  # fmt: skip
    for section, values in changes.items():
        sections[section] = {**sections.get(section, {}), **values} if isinstance(values, dict) else values
    return from_mapping(sections)


@pytest.mark.usefixtures("without_numbers")
@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "fedbuff", "fedasync"])
@pytest.mark.parametrize("gated", [False, True])
def test_epsilon_is_that_of_a_fixed_norm(algorithm, gated, tmp_path):
    """Who is in which sum does not depend on the norm, and neither does what a release costs."""
    rule = {"privacy": {"participation": {"min_separation": 2}}} if gated else {}
    runs = [
        simfl.run(scenario(algorithm, norm, **rule), out=tmp_path / name)
        for name, norm in (("adaptive", "adaptive"), ("fixed", 0.5))
    ]
    for name in ("clients", "cohorts", "releases"):
        one, other = (getattr(run, name) for run in runs)
        assert one.equals(other)
    one, other = (run.metrics.drop(columns=["wall_s"]) for run in runs)
    assert one["epsilon"].tolist() == other["epsilon"].tolist()
    assert set(one.columns) - set(other.columns) == {"clipping_norm"}
    assert runs[0].updates["noise_std"].isin([0.0]).any() or algorithm == "fedasync"
    assert runs[0].updates["noise_std"].isna().any()
    write_trace(runs[0], tmp_path / "trace.json")  # where noise_std is NaN
    assert "NaN" not in (tmp_path / "trace.json").read_text()
    statement = runs[0].manifest.extra["privacy"]
    assert "the models and clipping norms that the server releases" in statement
    assert "of each sum and its count of unclipped updates together" in statement
    assert check_run(runs[0]).findings[0].certified == check_run(runs[1]).findings[0].certified


@pytest.mark.usefixtures("without_numbers")
def test_a_budget_gives_the_noise(tmp_path):
    privacy = {"noise_multiplier": None, "epsilon": 4.0}
    given = scenario("fedbuff", {"start": 0.05, "count_noise": 8.0}, privacy=privacy, stop={"updates": 120})
    made = simfl.run(given, out=tmp_path)
    assert 3.5 < made.clients["epsilon"].max() <= 4.0
    fixed = simfl.prepare(given.replace(privacy__clipping_norm=1.0))
    assert made.noise["noise_multiplier"][0] == fixed.ledger.levels[0]


@pytest.mark.slow
def test_the_table_of_evaluations_has_the_norm(tmp_path):
    """Without noise, from far below all updates, the norm is known in closed form: nobody's update is unclipped."""
    norm = {"start": 1e-6, "quantile": 0.75, "learning_rate": 0.4}
    made = simfl.run(
        scenario("fedbuff", norm, privacy={"noise_multiplier": 0.0}, evaluate={"gradients": 20}), out=tmp_path
    )
    metrics = made.metrics
    expected = 1e-6 * np.exp(0.4 * 0.75 * metrics["rounds"])
    np.testing.assert_allclose(metrics["clipping_norm"], expected, rtol=1e-5)
    assert metrics["rounds"].max() == 10
    assert metrics["gradient_norm"].notna().all()
    assert metrics["epsilon"].iloc[-1] == math.inf


@pytest.mark.slow
def test_the_norm_follows_noise(tmp_path):
    made = [
        simfl.run(
            scenario("fedasync", {"start": 0.2, "learning_rate": 0.01, "count_noise": noise}), out=tmp_path / name
        )
        for name, noise in (("much", 50.0), ("little", 1.1))
    ]
    steps = [np.diff(np.log(run.metrics["clipping_norm"])) / math.sqrt(12) for run in made]
    assert np.std(steps[0]) == pytest.approx(0.5, rel=0.8)
    assert np.abs(steps[1]).max() < 0.1


def test_runs_with_other_norms_are_played_alone():
    """As all runs with sums of a server: the account of a group is not compared."""
    scenarios = [scenario(norm={"start": start, "count_noise": 1.5}) for start in (0.05, 0.1)]
    assert len({world_key(one) for one in scenarios}) == 1
    setups = [simfl.prepare(one) for one in scenarios]
    assert list(groups_of(setups, [None, None])) == [[0], [1]]


@pytest.mark.parametrize(
    ("kind", "members", "drawn"),
    [("fedavg", 100, True), ("fedavg", 101, False), ("fedprox", 101, False), ("fedbuff", 40, False)],
)
def test_the_noise_of_the_count_is_a_twentieth_of_a_sum_by_default(kind, members, drawn):
    """Of the divisor of the sum, which is public."""
    more = {"buffer_size": 40} if kind == "fedbuff" else {"fraction": 0.5 if drawn else 0.501}
    privacy = {"clipping_norm": "adaptive", "noise_multiplier": 1.0}
    privacy |= {} if drawn else {"cohorts": "algorithm", "releases": None}
    setup = simfl.prepare(scenario(kind, clients={"count": 200}, algorithm={"batch_size": 4, **more}, privacy=privacy))
    rule = setup.training.cohorts.adaptive
    assert (rule.members, rule.count_noise) == (members, pytest.approx(members / 20))
    assert (rule.start, rule.quantile, rule.learning_rate) == (0.1, 0.5, 0.2)


@pytest.mark.parametrize(
    ("algorithm", "changes", "line"),
    [
        ("fedavg", {"clipping_norm": {"count_noise": 1.0}}, r"count_noise: expected more than 1, half of the noise"),
        ("fedavg", {"clipping_norm": {"count_noise": 0}}, r"count_noise: expected more than 1, half of the noise"),
        ("fedavg", {"clipping_norm": {"count_noise": 40}}, r"count_noise: expected at most 30, the 6 users of a sum"),
        ("fedavg", {"clipping_norm": "adaptive"}, r"count_noise: expected more than 1, half .* found 0\.3"),
        ("fedasync", {"clipping_norm": "adaptive"}, r"count_noise: expected more than 1, half .* found 0\.05"),
        ("fedbuff", {"clipping_norm": "adapt"}, r"privacy\.clipping_norm: expected adaptive, found 'adapt'"),
        ("fedbuff", {"clipping_norm": [1]}, r"clipping_norm: expected a number > 0 or adaptive, found \[1\]; write"),
        ("fedbuff", {"clipping_norm": {"quantile": 1}}, r"clipping_norm\.quantile: expected a number > 0 and < 1"),
        (
            "fedbuff",
            {"noise": {"correlated": "tree"}, "releases": 10, "participation": {}},
            r"clipping_norm: expected a number beside noise tree, found 'adaptive'; noise that is correlated",
        ),
        ("fedbuff", {"where": "secure_sum"}, r"clipping_norm: expected a number with secure sums, found 'adaptive'"),
        ("fedbuff", {"mechanism": "discrete_gaussian", "where": "secure_sum"}, r"clipping_norm: expected a number > 0"),
        (
            "fedbuff",
            {"mechanism": "gaussian_update", "unit": None, "clipping_norm": "adaptive"},
            r"clipping_norm: expected a number > 0, found 'adaptive'; only the norm of a server",
        ),
    ],
)  # fmt: skip
def test_what_has_no_account_is_refused_in_one_line(algorithm, changes, line):
    given = scenario(algorithm).given()
    privacy = {name: value for name, value in {**given["privacy"], **changes}.items() if value is not None}
    with pytest.raises(ScenarioError, match=line):
        simfl.prepare({**given, "privacy": privacy})
