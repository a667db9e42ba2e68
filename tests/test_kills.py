"""Runs that are killed, as docs/check_kills.py does a hundred times, resume to equal tables."""

import json
import random
import shutil
import subprocess
import sys
import time

import pytest

from simfl.records import read
from simfl.runs import checkpoint, intervals
from simfl.runs.runner import prepare, resume, run
from simfl.scenario.study import load_study
from simfl.studies import sweep
from tests.runs.test_checkpoint import equal, scenario
from tests.test_reproducibility import prepared


@pytest.mark.slow(but=["adpsgd"])
@pytest.mark.parametrize("kind", ["async_fl", "fedbuff", "gossip_learning", "sync_sgd"])
def test_a_copy_of_the_folder_at_any_moment_can_be_resumed(kind, tmp_path, monkeypatch):
    """A copy of the folder during the run is equal to the folder after a kill."""
    taken, chosen = 0, random.Random(kind).randint(1, 4)
    take = checkpoint.CheckpointManager.take

    def copied(manager):
        nonlocal taken
        take(manager)
        taken += 1
        if taken <= chosen:
            shutil.copytree(manager.path.parent, tmp_path / "left", dirs_exist_ok=True)

    monkeypatch.setattr(checkpoint, "REST", 0)
    monkeypatch.setattr(checkpoint.CheckpointManager, "take", copied)
    whole = run(prepared(kind, private=True, window="auto"), out=tmp_path, checkpoint_every=1e-3)
    assert taken
    resumed = resume(tmp_path / "left", checkpoint_every="never")
    assert resumed.manifest.extra["resumed"] == 1
    assert equal(resumed, whole)


@pytest.mark.slow
def test_a_killed_process_can_be_resumed(tmp_path):
    text = scenario(stop="{updates: 3000}").to_yaml()
    (tmp_path / "run.yaml").write_text(text)
    code = "import sys, simfl; simfl.run(sys.argv[1], out=sys.argv[2], checkpoint_every=0.05)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "run.yaml"), str(tmp_path)]) as child:
        folder, deadline = tmp_path / "run" / "001", time.monotonic() + 120
        while not (folder / intervals.FILE).exists() and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)
        child.kill()
    assert equal(resume(folder), run(prepare(scenario(stop="{updates: 3000}")), out=tmp_path))


#: What sweeps are drawn from: algorithms, and changes that reach models alone.
DRAWN = (
    ("{kind: adpsgd, batch_size: 8, step_size: 0.2, optimizer: {kind: momentum}}", "algorithm.optimizer.momentum"),
    ("{kind: fedbuff, batch_size: 8, local_steps: 2, buffer_size: 2, server_step: 0.8}", "algorithm.server_step"),
    (
        "{kind: async_sgd, batch_size: 8, step_size: 0.2, server_optimizer: {kind: yogi}}",
        "algorithm.server_optimizer.tau",
    ),
    ("{kind: gossip_learning, batch_size: 8, step_size: 0.3}", "algorithm.step_size"),
)
SWEEP = """
import sys, simfl, simfl.runs.together as together
together.REST = 0
simfl.sweep(sys.argv[1], out=sys.argv[2], jobs=1, checkpoint_every=0.03)
"""


def drawn_study(generator, folder):
    """Write a study of one world, drawn at random; return its path."""
    algorithm, path = generator.choice(DRAWN)
    update = "_update" if "local_steps" in algorithm else ""
    noise = f"{{mechanism: gaussian{update}, noise_multiplier: 0.5}}" if generator.random() < 0.6 else "null"
    base = scenario(algorithm=algorithm, privacy=noise, stop="{updates: 2500}", evaluate="{every: {updates: 100}}")
    values = sorted(generator.uniform(0.1, 0.9) for _ in range(generator.randint(2, 4)))
    study = {"name": "drawn", "base": base.resolved(), "grid": {path: values}}
    if noise != "null":
        study["grid"]["privacy.noise_multiplier"] = [0.5, round(generator.uniform(0.6, 2.0), 3)]
    (folder / "drawn.yaml").write_text(json.dumps(study))
    return folder / "drawn.yaml"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_drawn_sweep_killed_in_the_middle_of_a_group_goes_on_as_alone(seed, tmp_path):
    generator = random.Random(seed)
    study, folder = drawn_study(generator, tmp_path), tmp_path / "drawn"
    plan = load_study(study)
    kills = 0

    def taken():
        return {path: path.stat().st_mtime_ns for path in folder.glob(f"*/{checkpoint.FILE}")}

    for _ in range(3):
        before, deadline = taken(), time.monotonic() + 120
        with subprocess.Popen([sys.executable, "-c", SWEEP, str(study), str(tmp_path)]) as child:
            while child.poll() is None and time.monotonic() < deadline and len(taken().items() - before.items()) < 2:
                time.sleep(0.01)
            time.sleep(generator.uniform(0.0, 0.2))
            kills += child.poll() is None
            child.kill()
    assert kills, "some group was killed in the middle"
    swept = sweep(study, out=tmp_path, jobs=1)
    assert [each.status for each in swept.runs] == ["done"] * len(plan.runs)
    assert not list(folder.glob(f"*/{checkpoint.FILE}"))
    assert any(read(folder / each.folder).manifest.extra.get("resumed") for each in swept.runs)
    for each, planned in zip(swept.runs, plan.runs, strict=True):
        assert equal(read(folder / each.folder), run(prepare(planned.scenario), out=tmp_path / "alone"))
