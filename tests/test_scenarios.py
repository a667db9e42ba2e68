"""Every scenario that comes with simfl: it loads, fits its data, and runs, shortened."""

import contextlib
import math
import os
import random
from pathlib import Path

import pytest

import simfl
from simfl.assembly.data import shared_data
from simfl.scenario import loads
from simfl.scenario.checks import KNOWN_OPTIMA
from simfl.studies.plan import load_study
from simfl.studies.worlds import world_key
from tests.helpers import RunWithoutNumbers, optimized
from tests.studies.test_together import alone, played, same, variants

FOLDER = Path(__file__).parents[1] / "scenarios"
PATHS = sorted(path for path in FOLDER.rglob("*.yaml") if path.parent.name != "studies")
STUDIES = sorted(FOLDER.rglob("studies/*.yaml"))
UPDATES = 32
SHORT = [f"stop={{updates: {UPDATES}}}", f"evaluate={{every: {{updates: {UPDATES}}}}}"]
#: Narrow steps are compiled sooner; convolutions are never batched, and slow without optimization.
NARROW = "execution={width: 2}"
CONVOLUTIONAL = ("lenet5", "cnn", "resnet", "vgg", "mobilenet")
LARGE = ("resnet", "vgg", "mobilenet")  # minutes of compilation and evaluation on a CPU: prepared, but not run


@pytest.fixture(autouse=True, scope="module")
def load_data_once():
    """Share a data set: loading it and reducing its dimension takes longer than most of these runs."""
    with shared_data():
        yield


def _rounds(path):
    """Return the change that makes rounds of local steps short."""
    steps = getattr(simfl.load(path).algorithm, "local_steps", None)
    return ["algorithm.local_steps=2"] if steps is not None and steps > 2 else []


def _name(path):
    return str(path.relative_to(FOLDER).with_suffix(""))


def _needs_its_data(scenario):
    if scenario.data.set not in ("digits", "text", *KNOWN_OPTIMA):
        root = os.environ.get("SIMFL_DATA")
        if not root or not (Path(root) / scenario.data.set).is_dir():
            pytest.skip(f"SIMFL_DATA names no folder with {scenario.data.set} in it")
        if scenario.data.set == "libsvm" and not [*(Path(root) / "libsvm").glob(f"{scenario.data.path}*")]:
            pytest.skip(f"SIMFL_DATA has no {scenario.data.path}")


def test_the_folder_has_scenarios():
    assert {"demo/adpsgd", "demo/sync", "adp2sgd/case2-adpsgd"} <= set(map(_name, PATHS))


@pytest.mark.parametrize("path", PATHS, ids=_name)
def test_a_scenario_loads_and_is_the_same_after_a_round_trip(path):
    scenario = simfl.load(path)
    assert loads(scenario.to_yaml()).digest() == scenario.digest()
    assert scenario.description
    assert scenario.name == _name(path).replace("/", "-")  # so that no two write into one folder of results


def _kinds(path):
    """Return the kinds that determine a scenario's arithmetic, without its world and its numbers."""
    scenario = simfl.load(path)
    model, privacy = scenario.model.kind, None if scenario.privacy is None else scenario.privacy.mechanism
    if scenario.model.tokens:  # loops over time are compiled once: tests/models has their gradients
        return {(model,)}
    if model in CONVOLUTIONAL:  # they take seconds, whichever algorithm asks for their gradients
        return {(model, privacy)}
    return {scenario.algorithm.kind, (model, privacy)}


def _at_once(scenario):
    """Return how many updates a server applies together: runs end with whole rounds and steps."""
    algorithm = scenario.algorithm
    if hasattr(algorithm, "fraction"):
        return max(1, round(algorithm.fraction * scenario.clients.count))
    names = ("gradients_per_step", "wait_for", "buffer_size")
    return next((getattr(algorithm, name) for name in names if hasattr(algorithm, name)), 1)


KINDS = {path: _kinds(path) for path in PATHS}
#: One scenario with each algorithm, and one with each model and mechanism, computes; the others run without numbers.
COMPUTED, _left = [], set().union(*KINDS.values())
while _left:
    COMPUTED.append(max(PATHS, key=lambda path: len(KINDS[path] & _left)))
    _left -= KINDS[COMPUTED[-1]]
#: In groups, one of each model and of each mechanism computes: tests/studies/test_together.py has every algorithm.
GROUPED = {
    pair[part]: path
    for path in reversed(COMPUTED)
    for pair in KINDS[path]
    for part in (0, 1)
    if isinstance(pair, tuple) and pair[0] not in CONVOLUTIONAL and len(pair) > 1
}


@pytest.mark.slow(but=["demo/adpsgd"])
@pytest.mark.parametrize("path", sorted({*GROUPED.values()}), ids=_name)
def test_a_shortened_scenario_is_the_same_alone_and_in_a_group(path, tmp_path):
    scenario = simfl.load(path, [*SHORT, *_rounds(path)])
    _needs_its_data(scenario)
    if scenario.model.kind not in CONVOLUTIONAL:
        scenario = simfl.load(path, [*SHORT, *_rounds(path), NARROW])
    if world_key(scenario) is None:
        pytest.skip("numbers may reach its world")
    scenarios = variants(scenario)
    results, _, _ = played(scenarios, tmp_path)
    compared = [number for number, result in results.items() if result is not None]
    for number in random.Random(str(path.stem)).sample(compared, min(2, len(compared))):
        if isinstance(results[number], Exception):
            raise results[number]
        same(results[number], alone(scenarios[number], tmp_path))


@pytest.mark.slow(
    but=["demo/adpsgd", "rivals/fedbuff-private", "geo/", "async_fl/increasing-a9a-plain", "privacy/pairwise"]
)
@pytest.mark.parametrize("path", PATHS, ids=_name)
def test_a_shortened_scenario_runs(path, tmp_path, monkeypatch):
    if path not in COMPUTED:
        monkeypatch.setattr("simfl.runs.context.Executor", RunWithoutNumbers)
    scenario = simfl.load(path, SHORT)
    short = [*SHORT, *_rounds(path), *(["algorithm.accumulate=2"] if hasattr(scenario.algorithm, "accumulate") else [])]
    _needs_its_data(scenario)
    convolutional = scenario.model.kind in CONVOLUTIONAL
    if not convolutional:
        scenario = simfl.load(path, [*short, NARROW])
    setup = simfl.prepare(scenario)
    assert setup.problem.data.train_x.shape[1:] == setup.dataset.input_shape
    if scenario.model.kind in LARGE:
        return
    with optimized() if convolutional else contextlib.nullcontext():
        run = simfl.run(setup, out=tmp_path)
    assert run.status == "done"
    if scenario.algorithm.kind in ("mindflayer", "fedat", "favas"):  # as many as clients complete in whole steps
        trials = getattr(scenario.algorithm, "trials", 1)
        assert UPDATES <= run.manifest.updates < UPDATES + scenario.clients.count * trials
    elif getattr(scenario.privacy, "cohorts", None) == "poisson" or getattr(scenario.algorithm, "secure_sum", None):
        # whole rounds of users that are drawn, or survive
        assert UPDATES <= run.manifest.updates < UPDATES + scenario.clients.count
    else:
        assert run.manifest.updates == math.ceil(UPDATES / _at_once(scenario)) * _at_once(scenario)
    assert run.clients["updates"].sum() == run.manifest.updates == len(run.updates)
    noisy = scenario.privacy is not None or scenario.algorithm.kind == "multi_walk"  # few steps, on one client's data
    assert run.metrics["test_loss"].iloc[-1] < run.metrics["test_loss"].iloc[0] or noisy
    mechanisms = (
        "gaussian",
        "gaussian_update",
        "gaussian_cohort",
        "discrete_gaussian",
        "laplace_l2",
        "one_pass_gaussian",
    )
    certified = scenario.privacy is not None and scenario.privacy.mechanism in mechanisms
    certified = certified and scenario.algorithm.sampling != "with_replacement"
    if scenario.algorithm.kind == "deep_q_sgd":  # what it decides shows private losses, unless a coin decides
        certified = certified and scenario.algorithm.explore_to == 1.0
    assert run.metrics["epsilon"].notna().all() == certified


@pytest.mark.parametrize("path", [path for path in PATHS if f"-{path.stem}".endswith("-sync")], ids=_name)
def test_a_pair_differs_only_in_the_algorithm(path):
    sync = simfl.load(path).resolved()
    adpsgd = simfl.load(path.with_stem(path.stem.removesuffix("sync") + "adpsgd")).resolved()
    for scenario in (sync, adpsgd):
        del scenario["name"], scenario["description"]
        for key in ("kind", "exchange", "pairing", "all_reduce", "staleness_bound"):
            scenario["algorithm"].pop(key, None)
    assert sync == adpsgd


@pytest.mark.parametrize("path", STUDIES, ids=_name)
def test_a_study_can_be_planned(path):
    plan = load_study(path)
    assert plan.study.description
    assert len(plan.runs) > 1
