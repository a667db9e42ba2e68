"""Runs whose lanes several devices share: in a process of its own, in which XLA makes two devices of the CPU."""

import json
import os
import subprocess
import sys

import pytest

from simfl import ScenarioError, run
from simfl.scenario import from_mapping

PRIVACY = {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.0}
PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np
from simfl.scenario import from_mapping
from simfl.simulation.runner import resume
from simfl.simulation.verification import _run

given, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
found = {}
for name, parts in given.items():
    for devices in (1, 2):
        parts["execution"] = {"width": 4, "devices": devices}
        run, events = _run(from_mapping(parts), folder / name / str(devices), "cpu")
        found[name, devices] = run.manifest.digest, run.metrics.train_loss.to_numpy()
    if name == "private":
        cut, _ = _run(from_mapping(parts), folder / name / "cut", "cpu", events // 2)
        status = cut.manifest.status
        found[name, "resumed"] = resume(cut.folder).manifest.digest, status
print(json.dumps([[*key, digest, np.asarray(rest).tolist()] for key, (digest, rest) in found.items()]))
"""


def scenario(model, **sections):
    return {
        "name": "shared",
        "clients": {"count": 8},
        "data": {"set": "digits"},
        "model": {"kind": model},
        "algorithm": {"kind": "adpsgd", "batch_size": 8},
        "stop": {"updates": 120},
        "evaluate": {"every": {"updates": 60}},
        **sections,
    }


def test_two_devices_give_the_tables_of_one_and_resume(tmp_path):
    """Bit for bit with softmax regression; a perceptron's products of matrices depend on the lanes in the last bits."""
    given = {"private": scenario("softmax", privacy=PRIVACY), "mlp": scenario("mlp")}
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    command = [sys.executable, "-c", PROGRAM, json.dumps(given), str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {(name, way): (digest, rest) for name, way, digest, rest in json.loads(done.stdout.splitlines()[-1])}
    assert found["private", 1] == found["private", 2]
    assert found["private", "resumed"][1] == "interrupted"
    assert found["private", "resumed"][0] == found["private", 2][0]
    assert found["mlp", 1][1] == pytest.approx(found["mlp", 2][1], rel=1e-4)


def test_more_devices_than_there_are_and_lanes_that_cannot_be_shared_are_refused_in_one_line(tmp_path):
    with pytest.raises(ScenarioError, match=r"^execution\.devices: expected at most \d+, the cpu devices .* found 999"):
        run(scenario("softmax", execution={"devices": 999}), out=tmp_path, device="cpu")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ScenarioError, match=r"execution\.width: expected a multiple of the 2 devices, found 3"):
        from_mapping(scenario("softmax", execution={"devices": 2, "width": 3}))
