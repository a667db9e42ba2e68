"""Runs of one world that are played together are the runs alone, bit for bit."""

import contextlib
import functools
import random
import shutil
import signal

import pytest
from pydantic import BaseModel

from simfl.algorithms import ALGORITHMS
from simfl.assembly import memory
from simfl.assembly.assemble import assemble
from simfl.assembly.data import shared_data
from simfl.each import DisagreementError
from simfl.errors import DataError, RunError, ScenarioError
from simfl.records import RunFolder, read
from simfl.runs import checkpoint
from simfl.runs.runner import resume, run
from simfl.scenario import from_mapping
from simfl.scenario.fields import ARITHMETIC
from simfl.studies import sweep
from simfl.studies.together import Group, groups_of
from simfl.studies.worlds import world_key
from simfl.tape import ahead
from simfl.tape.executor import choose_device
from simfl.world import engine
from tests.fuzz import drawn
from tests.helpers import RunOfOperations, optimized
from tests.runs.test_checkpoint import scenario
from tests.test_reproducibility import COMPUTED, prepared

#: Changes of a scenario that its world does not see.
STEPS = ({"algorithm.step_size": 0.3}, {"algorithm.step_size": {"kind": "inverse", "initial": 0.2, "beta": 0.01}})
LEARNING = {"learning_seed": 77}
NOISE = ({"privacy.noise_multiplier": 0.9}, {"privacy.clipping_norm": 0.3})
#: Algorithms whose runs are not played together: they count releases in a way of their own, or have such options.
APART = {"async_fl", "deep_q_sgd", "mapa", "privsgp_vr", "random_walk_sgd", "without_replacement_sgd"}

#: Algorithms that ask for losses of models: their groups are given up, and the runs run alone.
DECIDES = {"deep_q_sgd"}


def changed(given, changes):
    """Return a scenario with other values at key paths."""
    content = given.resolved()
    for path, value in changes.items():
        *sections, name = path.split(".")
        functools.reduce(dict.get, sections, content)[name] = value
    return from_mapping(content)


def variants(given):
    """Return a scenario and others of its world."""
    made, content = [given], given.resolved()
    if assemble(given).training.sampling != "poisson":
        made.append(changed(given, LEARNING))
    for changes in (*STEPS, *NOISE):
        section, name = next(iter(changes)).split(".")
        if (content[section] or {}).get(name) is not None:
            made.append(changed(given, changes))
    for path, value in marked(given):
        with contextlib.suppress(ScenarioError):  # an option of other kinds
            made.append(changed(given, {path: value}))
    return made


def marked(section, path=()):
    """Yield the key paths of numbers that reach models alone, each with another value."""
    for name, field in type(section).model_fields.items():
        value, at = getattr(section, name), (*path, name)
        if ARITHMETIC in field.metadata and value:
            yield ".".join(at), 0.9 * value
        elif isinstance(value, BaseModel):
            yield from marked(value, at)


def played(scenarios, out, **options):
    """Play scenarios together; return the runs by number, the groups, and why some were given up."""
    results, groups, refusals = {}, [], []
    with shared_data():
        setups = [assemble(each) for each in scenarios]
    for numbers in groups_of(setups, [None] * len(setups)):
        groups.append(numbers)
        group = Group([setups[number] for number in numbers], choose_device("cpu"), **options)
        try:
            results |= zip(numbers, group.run([RunFolder.create(out, "group", str(k)) for k in numbers]), strict=True)
        finally:
            group.release()
        refusals += [] if group.refusal is None else [group.refusal]
    return results, groups, refusals


def same(one, other):
    """Check that two runs have the same content, but for host times."""
    first, second = one.manifest, other.manifest
    assert (first.status, first.reason) == (second.status, second.reason)
    assert first.tables == second.tables
    assert first.digest == second.digest
    assert first.extra == second.extra, "models, warnings, what privacy means"
    assert (first.time_s, first.updates, first.window, first.width) == (
        second.time_s, second.updates, second.window, second.width
    )  # fmt: skip
    names = {path.name for path in one.folder.iterdir()}
    assert names == {path.name for path in other.folder.iterdir()}
    for name in names - {"manifest.json", "metrics.parquet"}:
        assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes(), name


def alone(each, out):
    return run(assemble(each), out=out, device="cpu", progress=False)


@pytest.mark.slow(but=["fedbuff-plain"])
@pytest.mark.parametrize("private", [True, False], ids=["private", "plain"])
@pytest.mark.parametrize("kind", sorted(ALGORITHMS))
def test_runs_of_every_algorithm_are_the_same_alone_and_together(kind, private, tmp_path, monkeypatch):
    if kind not in COMPUTED:
        monkeypatch.setattr("simfl.runs.context.Executor", RunOfOperations)
    setup = prepared(kind, private=private, window="auto")
    if setup is None:
        return
    scenarios = variants(setup.scenario)
    assert len({world_key(each) for each in scenarios}) == 1
    results, groups, refusals = played(scenarios, tmp_path)
    assert bool(refusals) == (kind in DECIDES)
    assert len(groups) == 1 or kind in APART
    compared = [number for number, result in results.items() if result is not None]
    for number in random.Random(f"{kind} {private}").sample(compared, min(3, len(compared))):
        same(results[number], alone(scenarios[number], tmp_path))


OPTIMIZED = {
    "momentum": "{kind: adpsgd, batch_size: 8, step_size: 0.1, optimizer: {kind: momentum, weight_decay: 0.01}}",
    "nesterov": "{kind: adpsgd, batch_size: 8, step_size: 0.1, optimizer: {kind: nesterov, state: {average: true}}}",
    "adam": "{kind: adpsgd, batch_size: 8, optimizer: {kind: adam, weight_decay: 0.01, clip_norm: 1.0}}",
    "clipped": "{kind: adpsgd, batch_size: 8, step_size: 0.1, optimizer: {kind: momentum, clip_norm: 0.5}}",
    "adam in rounds": "{kind: fedavg, batch_size: 8, local_steps: 2, optimizer: {kind: adam, weight_decay: 0.01}}",
    "kept": "{kind: fedbuff, batch_size: 8, local_steps: 2, buffer_size: 2, optimizer: {kind: adam, "
    "state: {rounds: keep}}}",
    **{
        f"server's {kind}": f"{{kind: async_sgd, batch_size: 8, server_optimizer: {{kind: {kind}}}}}"
        for kind in ("momentum", "nesterov", "adam", "yogi", "adagrad")
    },
    "two": "{kind: fedbuff, batch_size: 8, local_steps: 2, buffer_size: 2, optimizer: {kind: momentum}, "
    "server_optimizer: {kind: adam}}",
    "steps of a paper": "{kind: async_sgd, batch_size: 8, step_size: null}",
    "delays": "{kind: async_sgd, batch_size: 8, step_size: 0.5, delay_limit: 1.0}",
    "hinge": "{kind: fedasync, batch_size: 8, local_steps: 2, weighting: hinge, free_staleness: 1}",
    "noise": "{kind: adpsgd, batch_size: 8, step_size: 0.1, gradient_noise: 0.1}",
}


@pytest.mark.slow(but=["two"])
@pytest.mark.parametrize("name", OPTIMIZED)
def test_constants_of_optimizers_and_algorithms_are_numbers_of_a_group(name, tmp_path):
    first = scenario(algorithm=OPTIMIZED[name], stop="{updates: 48}", evaluate="{every: {updates: 24}}")
    constants = dict(marked(first))
    scenarios = [first, *(changed(first, {path: value}) for path, value in constants.items())]
    assert len(scenarios) > 1
    results, groups, refusals = played(scenarios, tmp_path)
    assert (groups, refusals) == ([[*range(len(scenarios))]], [])
    for number, result in results.items():
        same(result, alone(scenarios[number], tmp_path))
    digests = [results[number].manifest.digest for number in range(len(scenarios))]
    assert len({*digests}) > 1
    for path, digest in zip(constants, digests[1:], strict=True):
        if "optimizer." in path and not path.endswith(".eps"):  # an epsilon of 1e-8 is too small to be seen
            assert digest != digests[0], path


@pytest.mark.slow
def test_runs_from_other_initial_models_and_with_other_mixing_of_messages_are_a_group(tmp_path):
    base = scenario(compression="{kind: top_k, share: 0.2, gamma: 0.4}", algorithm=OPTIMIZED["momentum"])
    begun = alone(changed(base, {"learning_seed": 3}), tmp_path / "begun")
    start = {"init": {"from": str(begun.folder / "model.npz")}}
    scenarios = [base, changed(base, start), changed(base, {"compression.gamma": 0.3})]
    results, groups, refusals = played(scenarios, tmp_path)
    assert (groups, refusals) == ([[0, 1, 2]], [])
    for number, result in results.items():
        same(result, alone(scenarios[number], tmp_path))
    assert len({result.manifest.digest for result in results.values()}) == 3


def test_a_constant_of_zero_keeps_runs_apart():
    """Without momentum there are no velocities, without a penalty there is no pull: other operations."""
    base = scenario(algorithm=OPTIMIZED["momentum"])
    keys = [world_key(changed(base, {f"algorithm.optimizer.{name}": 0.0})) for name in ("momentum", "weight_decay")]
    assert len({world_key(base), *keys}) == 3
    assert world_key(changed(base, {"algorithm.optimizer.momentum": 0.5})) == world_key(base)


@pytest.mark.slow
def test_learning_seeds_share_a_world_unless_they_draw_sizes_of_batches(tmp_path):
    base = {
        "model": "{kind: mlp, hidden: [4]}",
        "privacy": "{mechanism: gaussian, noise_multiplier: 0.5}",
        "algorithm": "{kind: adpsgd, batch_size: 8, step_size: 0.5, exchange: messages, sampling: without_replacement}",
    }
    first = scenario(**base)
    scenarios = [first, *(changed(first, {"learning_seed": seed}) for seed in (1, 2)), changed(first, STEPS[0])]
    results, groups, refusals = played(scenarios, tmp_path)
    assert (groups, refusals) == ([[0, 1, 2, 3]], [])
    for number, result in results.items():
        same(result, alone(scenarios[number], tmp_path))
    assert len({result.manifest.digest for result in results.values()}) == 4
    assert results[0].manifest.tables["messages"] == results[1].manifest.tables["messages"]
    poisson = scenario(**base | {"algorithm": base["algorithm"].replace("without_replacement", "poisson")})
    setups = [assemble(each) for each in (poisson, changed(poisson, {"learning_seed": 1}))]
    assert list(groups_of(setups, [None, None])) == [[0], [1]]


GAUSSIAN = "gaussian, noise_multiplier: 0.7"
LAPLACE = "laplace_l2, epsilon_per_release: 1.0, neighbors: replace_one"
MLP = "{kind: mlp, hidden: [20]}"


@pytest.mark.slow
@pytest.mark.parametrize(  # all pairs of two of the three
    ("cache", "mechanism", "model"),
    [
        (ahead.CACHE_BYTES, GAUSSIAN, "softmax"),
        (ahead.CACHE_BYTES, LAPLACE, MLP),
        (0, GAUSSIAN, MLP),
        (0, LAPLACE, "softmax"),
    ],
    ids=["positions-gaussian-softmax", "positions-laplace-mlp", "examples-gaussian-mlp", "examples-laplace-softmax"],
)
def test_what_settings_draw_alike_has_the_same_bits_in_optimized_programs(
    cache, mechanism, model, tmp_path, monkeypatch
):
    """A group draws mini-batches and unit noise in a program of its own; a run alone draws them within its step.

    Examples that are not in the cache are taken once for all settings.
    """
    monkeypatch.setattr(ahead, "CACHE_BYTES", cache)
    first = scenario(
        model=model,
        privacy=f"{{mechanism: {mechanism}}}",
        algorithm="{kind: adpsgd, batch_size: 8, step_size: 0.5, exchange: messages}",
    )
    scenarios = [first, *(changed(first, changes) for changes in STEPS)]
    with optimized():
        results, groups, _ = played(scenarios, tmp_path)
        assert groups == [[0, 1, 2]]
        for number, result in results.items():
            same(result, alone(scenarios[number], tmp_path))


@pytest.mark.parametrize("other", [0.4, 0.0])
def test_a_standard_deviation_of_noise_reaches_models_alone(other, tmp_path):
    scenarios = [scenario(privacy=f"{{mechanism: gaussian_unclipped, noise_std: {std}}}") for std in (0.1, other)]
    assert len(set(map(world_key, scenarios))) == 1
    results, groups, refusals = played(scenarios, tmp_path)
    assert (groups, refusals) == ([[0, 1]] if other else [[0], [1]], []), "without noise, less is recorded"
    for number, result in results.items():
        same(result, alone(scenarios[number], tmp_path))


def test_one_that_diverges_leaves_and_the_others_go_on(tmp_path):
    scenarios = [scenario(algorithm=f"{{kind: adpsgd, batch_size: 8, step_size: {step}}}") for step in (0.5, 1e38, 0.1)]
    results, groups, refusals = played(scenarios, tmp_path)
    assert (groups, refusals) == ([[0, 1, 2]], [])
    assert [results[k].status for k in range(3)] == ["done", "diverged", "done"]
    assert results[1].manifest.updates < results[0].manifest.updates
    for number, result in results.items():
        same(result, alone(scenarios[number], tmp_path))


def test_runs_that_do_not_agree_are_given_up_and_run_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("simfl.algorithms.adpsgd.ADPSGD._average", lambda self, me, peer: float(self.step_size()))
    base = scenario(algorithm="{kind: adpsgd, batch_size: 8, exchange: atomic}").resolved()
    _, groups, refusals = played([from_mapping(base), changed(from_mapping(base), STEPS[0])], tmp_path)
    assert groups == [[0, 1]]
    assert isinstance(refusals[0], DisagreementError)
    swept = sweep({"name": "steps", "base": base, "grid": {"algorithm.step_size": [0.5, 0.1]}}, out=tmp_path, jobs=1)
    assert [each.status for each in swept.runs] == ["done", "done"]


def test_what_may_reach_the_world_keeps_runs_apart():
    base = scenario(privacy="{mechanism: gaussian, noise_multiplier: 1.0}")
    key = world_key(base)
    assert key is not None
    for changes in (*STEPS, *NOISE, LEARNING):
        assert world_key(changed(base, changes)) == key, changes
    for section in ("links: {latency: 4 ms}", "stop: {updates: 121}", "evaluate: {every: {updates: 21}}"):
        name, _, text = section.partition(": ")
        assert world_key(scenario(privacy="{mechanism: gaussian, noise_multiplier: 1.0}", **{name: text})) != key
    assert world_key(changed(base, {"algorithm.batch_size": 4})) != key
    assert world_key(scenario(stop="{updates: 120, accuracy: 0.5}")) is None
    assert world_key(scenario(algorithm="{kind: 'tests.algorithms.custom:Alone', batch_size: 8}")) is None


@pytest.mark.slow
def test_budgets_that_allow_other_numbers_of_releases_keep_runs_apart(tmp_path):
    privacy = "{{mechanism: laplace_l2, neighbors: replace_one, epsilon: 8.0, epsilon_per_release: {}}}"
    scenarios = [scenario(privacy=privacy.format(level), stop="{updates: 60}") for level in (2.0, 3.0, 2.0)]
    scenarios[2] = changed(scenarios[2], STEPS[0])
    assert len({world_key(each) for each in scenarios}) == 1
    results, groups, _ = played(scenarios, tmp_path)
    assert groups == [[0, 2], [1]]
    for number, result in results.items():
        same(result, alone(scenarios[number], tmp_path))


def drawn_variants(seed, folder):
    """Return a drawn scenario and others of its world, or nothing."""
    generator = random.Random(seed)
    try:
        base = from_mapping(drawn(seed, folder))
        assemble(base)
        if world_key(base) is None or base.algorithm.step_size is None:
            return []
        steps = [changed(base, {"algorithm.step_size": generator.uniform(0.01, 1.0)}) for _ in range(2)]
        return [base, *steps, changed(steps[0], LEARNING)]
    except (ScenarioError, DataError):
        return []


@pytest.mark.slow
@pytest.mark.usefixtures("without_numbers")
@pytest.mark.parametrize("lot", range(4))
def test_drawn_sweeps_are_the_same_alone_and_together(lot, tmp_path):
    groups = 0
    for seed in range(lot, 48, 4):
        scenarios = drawn_variants(seed, tmp_path)
        results = played(scenarios, tmp_path / str(seed))[0]
        groups += len(results) > 1
        for number, result in results.items():
            if result is None or isinstance(result, RunError):
                continue
            same(result, alone(scenarios[number], tmp_path / str(seed)))
    assert groups >= 4


def sweep_of(updates, **changes):
    base = scenario(stop=f"{{updates: {updates}}}", **changes).resolved()
    return {"name": "steps", "base": base, "grid": {"algorithm.step_size": [0.5, 0.2, 0.1]}}


def interrupted(study, out, monkeypatch, events):
    """Interrupt a sweep of one group of three runs after some events; return the sweep and its runs."""
    take, happened = engine.heappop, 0

    def watched(queue):
        nonlocal happened
        happened += 1
        if happened == events:
            signal.raise_signal(signal.SIGINT)
        return take(queue)

    with monkeypatch.context() as patched:
        patched.setattr(engine, "heappop", watched)
        cut = sweep(study, out=out, jobs=1)
    assert [each.status for each in cut.runs] == ["interrupted"] * 3
    return cut, [read(cut.folder / each.folder) for each in cut.runs]


def same_as_whole(cut, whole):
    """Check that the runs of a sweep that was resumed are those of one that was not interrupted."""
    for each, before in zip(cut.runs, whole.runs, strict=True):
        one, other = read(cut.folder / each.folder), read(whole.folder / before.folder)
        assert one.manifest.extra.pop("resumed") == 1
        same(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["together", "alone"])
def test_a_group_that_was_interrupted_in_the_middle_goes_on(way, tmp_path, monkeypatch):
    privacy = {"privacy": "{mechanism: gaussian, noise_multiplier: 0.5}"}
    whole = sweep(sweep_of(120, **privacy), out=tmp_path / "whole", jobs=1)
    cut, left = interrupted(sweep_of(120, **privacy), tmp_path, monkeypatch, 150)
    assert 0 < left[0].manifest.updates < 120
    if way == "alone":
        for each in left:
            resume(each.folder)
    else:
        played_at = []
        monkeypatch.setattr(
            "simfl.studies.together.Group._play",
            lambda group, until, play=Group._play: (play(group, until), played_at.append(group._since[0].position))[0],
        )
        assert [each.status for each in sweep(sweep_of(120, **privacy), out=tmp_path, jobs=1).runs] == ["done"] * 3
        assert len(played_at) == 1, "they went on together"
    same_as_whole(cut, whole)


def test_runs_that_do_not_fit_together_run_alone(tmp_path, monkeypatch, without_numbers):
    setup = assemble(scenario())
    needs, groups = [memory.memory_of(setup, settings).total for settings in (2, 3)], []
    monkeypatch.setattr(memory, "available_bytes", lambda: sum(needs) / 2 - memory.memory_of(setup).loaded)
    monkeypatch.setattr("simfl.studies.together.Group", lambda *given: groups.append(given))
    assert [run.status for run in sweep(sweep_of(40), out=tmp_path, jobs=1).runs] == ["done"] * 3
    assert not groups


@pytest.mark.slow
def test_a_copy_of_a_group_at_any_moment_can_be_resumed(tmp_path, monkeypatch):
    """A copy of the folders during a group is what a kill leaves: checkpoints of one or of two moments."""
    take, moments = checkpoint.CheckpointManager.take, []

    def copied(manager):
        take(manager)
        moments.append(manager.path.parent.parent)
        shutil.copytree(moments[-1], tmp_path / "left" / str(len(moments)) / "steps")

    monkeypatch.setattr(checkpoint, "REST", 0)
    monkeypatch.setattr("simfl.studies.together.REST", 0)
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint.CheckpointManager, "take", copied)
        whole = sweep(sweep_of(400), out=tmp_path, jobs=1, checkpoint_every=0.02)
    assert len(moments) >= 3
    for number in random.Random(5).sample(range(1, len(moments) + 1), min(4, len(moments))):
        left = tmp_path / "left" / str(number)
        again = sweep(sweep_of(400), out=left, jobs=1)
        assert [each.status for each in again.runs] == ["done"] * 3
        for each in whole.runs:
            one, other = read(left / "steps" / each.folder), read(whole.folder / each.folder)
            one.manifest.extra.pop("resumed", None)
            same(one, other)
