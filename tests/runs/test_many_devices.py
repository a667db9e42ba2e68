"""Runs whose steps several cores compute, and runs whose lanes several devices share."""

import pytest
from jaxlib import xla_client

from simfl import ScenarioError, resume, run
from simfl.assembly.data import shared_data
from simfl.bench.verification import _run
from simfl.records import RunFolder
from simfl.runs import context
from simfl.runs.runner import prepare
from simfl.scenario import from_mapping
from simfl.studies.together import Group, groups_of
from simfl.tape import ahead, cores, executor
from simfl.tape.ahead import Ahead
from simfl.tape.equations import worth_a_core
from simfl.tape.executor import Executor, choose_device
from simfl.threads import idle_cores, share_cores
from tests.helpers import optimized

PRIVACY = {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.0}
LENET = {"model": {"kind": "lenet5"}, "stop": {"updates": 24}}
RESNET = {"model": {"kind": "resnet", "channels": [8, 8]}, "stop": {"updates": 16}, "clients": {"count": 4}}
TEXT = {"data": {"set": "text", "length": 16}, "model": {"kind": "transformer"}, "stop": {"updates": 24}}
LOCAL = (
    {"algorithm": {"kind": "diloco", "batch_size": 8, "local_steps": 3}},
    {"algorithm": {"kind": "scaffold", "batch_size": 8, "local_steps": 3}},
    {"algorithm": {"kind": "decentralized_sgd", "batch_size": 8}, "compression": {"kind": "top_k", "share": 0.1}},
)


def scenario(**sections):
    return {
        "name": "shared",
        "clients": {"count": 8},
        "data": {"set": "digits"},
        "model": {"kind": "softmax"},
        "algorithm": {"kind": "adpsgd", "batch_size": 8},
        "stop": {"updates": 120},
        "evaluate": {"every": {"updates": 60}},
        **sections,
    }


def shared_by(devices, parts, folder, events=None):
    parts = {**parts, "execution": {**parts.get("execution", {}), "width": 4, "devices": devices}}
    return _run(from_mapping(parts), folder / str(devices), "cpu", *([] if events is None else [events]))


def digest_of(finished):
    manifest = finished.manifest
    return manifest.digest, manifest.extra["models"]


@pytest.mark.slow
@pytest.mark.parametrize("sections", [{"privacy": PRIVACY}, {"model": {"kind": "mlp"}}], ids=["softmax", "mlp"])
def test_small_models_on_two_cores_have_the_tables_of_one_program(tmp_path, sections):
    one, two = (shared_by(devices, scenario(**sections), tmp_path)[0] for devices in (1, 2))
    assert digest_of(one) == digest_of(two)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sections", [LENET, RESNET, TEXT, *LOCAL], ids=["lenet5", "resnet", "transformer", "diloco", "scaffold", "choco"]
)
def test_models_worth_a_core_have_the_same_tables_on_any_number_of_cores(tmp_path, monkeypatch, sections):
    monkeypatch.setattr(context, "worth_a_core", lambda problem: True)
    one, two = (shared_by(devices, scenario(**sections), tmp_path)[0] for devices in (1, 2))
    assert digest_of(one) == digest_of(two)


@pytest.mark.slow
def test_settings_of_a_group_on_two_cores_have_the_tables_of_runs_alone_on_one(tmp_path):
    changes = [{}, {"privacy.noise_multiplier": 0.5}, {"algorithm.step_size": 0.05}]
    parts = scenario(privacy=PRIVACY, evaluate={"every": {"updates": 60}, "clients": True})
    with shared_data():
        execution = {"width": 4, "devices": 2}
        setups = [prepare(from_mapping({**parts, "execution": execution}).replace(change)) for change in changes]
    assert [*groups_of(setups, [None] * 3)] == [[0, 1, 2]]
    group = Group(setups, choose_device("cpu"))
    try:
        together = group.run([RunFolder.create(tmp_path, "group", str(at)) for at in range(3)])
    finally:
        group.session.executor.close()
    assert group.session.executor._cores.count == 2
    for at, change in enumerate(changes):
        alone, _ = shared_by(1, from_mapping(parts).replace(change).resolved(), tmp_path / str(at))
        assert digest_of(together[at]) == digest_of(alone)


@pytest.mark.slow
def test_without_the_private_interface_of_jax_a_run_on_two_cores_uses_one(tmp_path, monkeypatch):
    two, _ = shared_by(2, scenario(), tmp_path)
    cores._core.cache_clear()
    monkeypatch.delattr(xla_client, "make_cpu_client")
    counts = []
    monkeypatch.setattr(executor, "Cores", lambda count: counts.append(cores.Cores(count)) or counts[-1])
    one, _ = shared_by(2, scenario(), tmp_path / "one")
    assert [made.count for made in counts] == [1]
    assert digest_of(one) == digest_of(two)


@pytest.mark.slow
def test_two_devices_that_share_the_lanes_of_a_step_give_the_tables_of_one(tmp_path, monkeypatch):
    """As GPUs do."""
    one, _ = shared_by(1, scenario(privacy=PRIVACY), tmp_path)
    client = xla_client.make_cpu_client(asynchronous=False, num_devices=2)  # JAX divides a CPU once in a process
    monkeypatch.setattr(executor, "choose_devices", lambda device, count: client.devices())

    def on_two(problem, *, width, cores, devices, **others):
        return Executor(problem, width=2 * width, devices=2, **others)

    monkeypatch.setattr(context, "Executor", on_two)
    two, _ = shared_by(1, scenario(privacy=PRIVACY), tmp_path / "two")
    assert digest_of(one) == digest_of(two)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["softmax", {"kind": "mlp", "hidden": [8]}], ids=["softmax", "mlp"])
def test_tables_are_the_same_if_mini_batches_and_noise_are_drawn_within_steps_before_or_beside_them(
    tmp_path, monkeypatch, model
):
    """Examples that do not fit into the cache are taken before, and on another core if one is idle."""
    drawn, draw = [], Ahead._draw
    monkeypatch.setattr(Ahead, "_draw", lambda self, *given: drawn.append(given) or draw(self, *given))
    digests = []
    with optimized():
        for bytes_of_cache, cores in ((ahead.CACHE_BYTES, 2), (0, 1), (0, 2)):
            monkeypatch.setattr(ahead, "CACHE_BYTES", bytes_of_cache)
            monkeypatch.setattr(context, "idle_cores", lambda cores=cores: cores)
            private = scenario(privacy=PRIVACY, model=model)
            folder = tmp_path / f"{bytes_of_cache}-{cores}"
            digests.append(digest_of(run(from_mapping(private), out=folder, device="cpu")))
            assert bool(drawn) == (bytes_of_cache == 0 and cores == 2)
    assert digests[0] == digests[1] == digests[2]


@pytest.mark.parametrize("devices", ["auto", 2])
def test_a_run_resumes_on_another_number_of_cores_if_the_model_decides_how_it_is_divided(
    tmp_path, monkeypatch, devices
):
    monkeypatch.setattr(context, "worth_a_core", lambda problem: True)
    monkeypatch.setattr(context, "idle_cores", lambda: 2)
    whole, events = shared_by(devices, scenario(), tmp_path)
    cut, _ = shared_by(devices, scenario(), tmp_path / "cut", events // 2)
    assert cut.manifest.status == "interrupted"
    monkeypatch.setattr(context, "idle_cores", lambda: 1)
    assert digest_of(resume(cut.folder)) == digest_of(whole)


def test_a_small_model_is_one_program_unless_a_number_of_devices_is_given():
    divisions = {
        devices: context.Session(
            prepare(scenario(execution={"devices": devices, "width": 4})), choose_device("cpu")
        ).division
        for devices in ("auto", 1, 2)
    }
    assert divisions == {"auto": "4", 1: "4", 2: "4, each step by itself"}


def test_the_work_of_a_mini_batch_decides_what_is_worth_a_core():
    small, large = (
        prepare(scenario(model={"kind": "lenet5"}, algorithm={"kind": "adpsgd", "batch_size": size})).problem
        for size in (1, 64)
    )
    assert not worth_a_core(small)
    assert not worth_a_core(prepare(scenario(model={"kind": "mlp"})).problem)
    assert worth_a_core(large)


def test_processes_of_a_sweep_share_the_cores():
    all_of_them = idle_cores()
    try:
        share_cores(2 * all_of_them)
        assert idle_cores() == 1
    finally:
        share_cores(1)
    assert idle_cores() == all_of_them


def test_too_many_devices_are_rejected_in_one_line(tmp_path):
    with pytest.raises(ScenarioError, match=r"^execution\.devices: expected at most 64 on the cpu of .*, found 999$"):
        run(scenario(execution={"devices": 999}), out=tmp_path, device="cpu")
    assert not list(tmp_path.iterdir())
