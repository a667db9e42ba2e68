"""Runs that are killed, as docs/check_kills.py does a hundred times, resume to equal tables."""

import random
import shutil
import subprocess
import sys
import time

import pytest

from simfl.runs import checkpoint, intervals
from simfl.runs.runner import prepare, resume, run
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
