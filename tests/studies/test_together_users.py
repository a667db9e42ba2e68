"""Runs of users that are played together are the runs alone, bit for bit, each with an account of its own."""

import random

import pytest

from simfl.accounts.check import check_run
from simfl.algorithms.secure_sums import Answers
from simfl.assembly.assemble import assemble
from simfl.assembly.data import shared_data
from simfl.errors import DataError, RunError, ScenarioError
from simfl.records import read
from simfl.runs.runner import resume
from simfl.scenario import from_mapping
from simfl.studies import sweep
from simfl.studies.together import Group, groups_of
from simfl.studies.worlds import world_key
from tests.fuzz_users import drawn
from tests.helpers import RunOfOperations
from tests.runs.test_checkpoint import scenario
from tests.studies.test_together import LEARNING, alone, changed, interrupted, played, same, same_as_whole

FEDAVG = "{kind: fedavg, fraction: 0.5, weighting: uniform, batch_size: 8, local_steps: 2, step_size: 0.3}"
FEDBUFF = "{kind: fedbuff, buffer_size: 3, batch_size: 8, local_steps: 2, step_size: 0.3}"
FEDASYNC = "{kind: fedasync, batch_size: 8, local_steps: 2, step_size: 0.3}"
DILOCO = "{kind: diloco, fraction: 0.5, batch_size: 8, local_steps: 2, step_size: 0.01, server_step: 0.3}"
LOCAL_SGD = "{kind: async_local_sgd, local_steps: 2, batch_size: 8, step_size: 0.1, server_step: 0.05}"
SECURE = "{kind: fedavg, fraction: 0.5, weighting: uniform, batch_size: 8, local_steps: 2, step_size: 0.3, "
SECURE += "secure_sum: {kind: bonawitz, threshold: 3, bits: 16, dropout: 0.05}}"
GATE = "participation: {min_separation: 2}, releases: 12"
POISSON = "cohorts: poisson, releases: 14"

#: Name -> algorithm, privacy, further sections.
USERS = {
    "fedavg": (FEDAVG, ""),
    "fedavg drawn": (FEDAVG, POISSON),
    "fedavg in groups": (FEDAVG, f"{POISSON}, groups: 2, noise: {{correlated: square_root, bands: 2}}"),
    "fedavg adaptive": (FEDAVG, f"clipping_norm: {{kind: adaptive, start: 0.2, count_noise: 1.0}}, {POISSON}"),
    "fedavg adaptive without noise": (FEDAVG, "clipping_norm: {kind: adaptive, start: 1.0}, noise_multiplier: 0.0"),
    "fedavg banded": (FEDAVG, f"{GATE}, noise: {{correlated: banded, bands: 2}}"),
    "fedbuff": (FEDBUFF, GATE),
    "fedbuff sent away": (FEDBUFF, "participation: {min_separation: 2, at_most: 4, early: send_away}"),
    "fedbuff tree": (FEDBUFF, f"{GATE}, noise: {{correlated: tree, restart_every: 5}}"),
    "fedbuff blt": (FEDBUFF, f"{GATE}, noise: {{correlated: blt, buffers: 2}}"),
    "fedbuff adaptive": (FEDBUFF, "clipping_norm: {kind: adaptive, start: 0.2, count_noise: 1.0}"),
    "fedasync": (FEDASYNC, ""),
    "fedasync tree": (FEDASYNC, "participation: {min_separation: 3}, releases: 40, noise: {correlated: tree}"),
    "diloco": (DILOCO, GATE),
    "diloco square root": (DILOCO, f"{GATE}, noise: {{correlated: square_root, bands: 2}}"),
    "async local sgd": (LOCAL_SGD, "participation: {min_separation: 2}"),
    "secure": (SECURE, "where: secure_sum, colluding: 1"),
    "secure by the server": (SECURE, ""),
    "secure discrete": (SECURE, "where: secure_sum, mechanism: discrete_gaussian, noise_multiplier: 2.0"),
    "budget": (FEDBUFF, f"epsilon: 30.0, noise_multiplier: null, {GATE}"),
}


def of_users(name, **sections):
    """Return a scenario of `USERS`."""
    algorithm, privacy = USERS[name]
    given = {"unit": "user", "noise_multiplier": "1.5", "delta": "1e-3"}
    given = [f"{key}: {value}" for key, value in given.items() if f"{key}:" not in privacy]
    return scenario(
        algorithm=algorithm,
        privacy="{" + ", ".join([*given, privacy]).rstrip(", ") + "}",
        stop="{updates: 48}",
        evaluate="{every: {updates: 12}}",
        **sections,
    )


def variants(base, factor=0.8):
    """Return a scenario and others of its world: other steps, draws, noise and norms."""
    privacy, numbers = base.resolved()["privacy"], {"algorithm.step_size": base.algorithm.step_size}
    numbers = numbers if isinstance(base.algorithm.step_size, float) else {}
    adaptive = isinstance(privacy["clipping_norm"], dict)
    named = ("start", "quantile", "learning_rate", "count_noise") if adaptive else ()
    numbers |= {f"privacy.clipping_norm.{name}": privacy["clipping_norm"][name] for name in named}
    if privacy["mechanism"] != "discrete_gaussian":
        numbers |= {"privacy.noise_multiplier": privacy["noise_multiplier"]}
        numbers |= {} if adaptive else {"privacy.clipping_norm": privacy["clipping_norm"]}
    made = [{path: factor * value} for path, value in numbers.items() if value]
    return [base, *(changed(base, changes) for changes in [LEARNING, *made])]


def compare(scenarios, results, out):
    """Check that runs of a group are the runs alone, with the same accounts."""
    compared = 0
    for number, result in results.items():
        if result is None or isinstance(result, RunError):
            continue
        other = alone(scenarios[number], out)
        same(result, other)
        assert check_run(result).findings == check_run(other).findings
        compared += 1
    return compared


#: Those that are computed: norms that adapt follow numbers, and the others are one of each kind of noise.
COMPUTED = [*(name for name in USERS if "adaptive" in name), "fedbuff tree", "diloco", "secure", "secure discrete"]


@pytest.mark.slow(but=["fedbuff tree"])
@pytest.mark.parametrize("name", USERS)
def test_runs_of_users_are_the_same_alone_and_together(name, tmp_path, monkeypatch):
    if name not in COMPUTED:
        monkeypatch.setattr("simfl.runs.context.Executor", RunOfOperations)
    scenarios = variants(of_users(name))
    assert len({world_key(each) for each in scenarios}) == 1
    results, groups, refusals = played(scenarios, tmp_path)
    assert (groups, refusals) == ([[*range(len(scenarios))]], [])
    assert compare(scenarios, results, tmp_path) == len(scenarios)
    assert len({result.manifest.digest for result in results.values()}) == len(scenarios)
    if len(scenarios) > 3 and "without noise" not in name:
        noises = {run.manifest.extra["noise"]["noise_multiplier"][0]: run for run in results.values()}
        epsilons = {run.epsilon_and_delta()[0] for run in noises.values()}
        assert len(noises) == len(epsilons) == 2, "each account is that of its own noise"


@pytest.mark.slow
def test_what_reaches_the_releases_keeps_runs_apart():
    """Budgets that end at other releases, grids of other noise, other strategies and rules."""
    adaptive = {"kind": "adaptive", "start": 0.2, "count_noise": 1.0}
    for name, path, values, apart in (
        ("budget", "privacy.epsilon", (30.0, 25.0), False),  # other noise for as many releases
        ("fedbuff", "privacy.releases", (12, 11), True),
        ("fedbuff", "privacy.participation.min_separation", (2, 1), True),
        ("fedbuff tree", "privacy.noise.restart_every", (5, 6), True),
        ("fedbuff", "privacy.noise_multiplier", (1.0, 0.0), True),
        ("secure discrete", "privacy.noise_multiplier", (2.0, 1.9), True),
        ("secure discrete", "privacy.clipping_norm", (1.0, 0.9), True),
        ("secure", "privacy.colluding", (1, 2), True),
        ("fedbuff adaptive", "privacy.clipping_norm", (adaptive, 0.2), True),
        ("fedavg drawn", "privacy.delta", (1e-3, 1e-4), False),
    ):
        pair = [changed(of_users(name), {path: value}) for value in values]
        assert parted(pair) == apart, (name, path)
    spending = {"privacy.noise_multiplier": 1.5, "privacy.releases": None}
    pair = [changed(of_users("budget"), {**spending, "privacy.epsilon": epsilon}) for epsilon in (8.0, 6.0)]
    assert len({tuple(assemble(each).training.allowances) for each in pair}) == 2
    assert parted(pair), "the budgets allow other numbers of releases"


def parted(scenarios):
    """Return whether runs are not played together."""
    with shared_data():
        setups = [assemble(each) for each in scenarios]
    keys = {world_key(each) for each in scenarios}
    return len(keys) > 1 or len(list(groups_of(setups, [None] * len(setups)))) > 1


@pytest.mark.slow
def test_budgets_of_drawn_users_that_end_at_other_releases_are_the_runs_alone(tmp_path):
    """The number of the server's releases keeps the budget: it is derived from it, and ends the run."""
    base = of_users("fedavg drawn")
    ends = {"stop.updates": 4000, "privacy.releases": None, "privacy.noise_multiplier": 6.0}
    scenarios = [changed(base, {**ends, "privacy.epsilon": epsilon}) for epsilon in (1.5, 2.0, 1.5)]
    scenarios[2] = changed(scenarios[2], {"algorithm.step_size": 0.1})
    made = [assemble(each).training.cohorts.releases for each in scenarios]
    assert made[0] == made[2] < made[1]
    results, groups, _ = played(scenarios, tmp_path)
    assert groups == [[0, 2], [1]]
    assert compare(scenarios, results, tmp_path) == 3
    assert [int(results[k].cohorts["release"].max()) + 1 for k in range(3)] == made


@pytest.mark.usefixtures("without_numbers")
def test_a_group_is_given_up_if_one_run_ends_while_a_secure_sum_is_unmasked(tmp_path, monkeypatch):
    """The account of the run that ends has the sum already, and those of the others do not."""
    scenarios = [changed(of_users("secure"), {"privacy.noise_multiplier": z}) for z in (1.0, 2.0)]
    groups, usual = [], Answers.settle

    class Kept(Group):
        def run(self, folders):
            groups.append(self)
            return super().run(folders)

    def settle(self, client, answered):
        usual(self, client, answered)
        if groups and groups[0].algorithm.budgets.owed():
            groups[0].members[0].end("diverged", "for a test")

    monkeypatch.setattr(Answers, "settle", settle)
    monkeypatch.setattr("tests.studies.test_together.Group", Kept)
    results, _, refusals = played(scenarios, tmp_path)
    assert [str(refusal) for refusal in refusals] == [
        "a run ends, and others go on, while a secure sum is being unmasked"
    ]
    assert list(results.values()) == [None, None], "they are run alone"


@pytest.mark.slow
def test_runs_that_end_while_a_secure_sum_is_unmasked_have_it_together(tmp_path):
    base = of_users("secure")
    sums = alone(base, tmp_path / "whole").secure_sums
    ends = {"stop.updates": None, "stop.time": float(sums["time_s"][3]) - 1e-6}
    scenarios = [changed(base, {**ends, "privacy.noise_multiplier": z}) for z in (1.0, 2.0)]
    results, _, refusals = played(scenarios, tmp_path)
    assert refusals == []
    assert compare(scenarios, results, tmp_path) == 2
    for run in results.values():
        assert run.cohorts["release"].nunique() == (run.secure_sums["members"] > 0).sum() + 1
        assert run.metrics["epsilon"].iloc[-1] == run.clients["epsilon"].max()


def drawn_variants(seed, folder):
    """Return a drawn scenario of users and others of its world, or nothing."""
    try:
        base = from_mapping(drawn(seed, folder))
        assemble(base)
        if base.privacy is None or world_key(base) is None or base.algorithm.step_size is None:
            return []
        return variants(base, random.Random(seed).uniform(0.5, 0.99))
    except (ScenarioError, DataError):
        return []


@pytest.mark.slow
@pytest.mark.usefixtures("without_numbers")
@pytest.mark.parametrize("lot", range(8))
def test_drawn_sweeps_of_users_are_the_same_alone_and_together(lot, tmp_path):
    compared = 0
    for seed in range(lot, 64, 8):
        scenarios = drawn_variants(seed, tmp_path)
        results, groups, _ = played(scenarios, tmp_path / str(seed))
        number = compare(scenarios, results, tmp_path / str(seed))
        compared += number * (len(groups) < len(scenarios))
    assert compared >= 8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedavg adaptive", "fedbuff tree", "diloco square root", "secure"])
@pytest.mark.parametrize("way", ["together", "alone"])
def test_a_group_of_users_that_was_interrupted_goes_on(way, name, tmp_path, monkeypatch):
    if "adaptive" not in name:
        monkeypatch.setattr("simfl.runs.context.Executor", RunOfOperations)
    study = {"name": "noises", "base": of_users(name).resolved(), "grid": {"privacy.noise_multiplier": [1.5, 1.2, 1.4]}}
    whole = sweep(study, out=tmp_path / "whole", jobs=1)
    cut, left = interrupted(study, tmp_path, monkeypatch, 120)
    assert 0 < left[0].manifest.updates < read(whole.folder / whole.runs[0].folder).manifest.updates
    if way == "alone":
        for each in left:
            resume(each.folder)
    else:
        assert [each.status for each in sweep(study, out=tmp_path, jobs=1).runs] == ["done"] * 3
    same_as_whole(cut, whole)
