"""Real processes: mpirun, mpi4py, the folder of a live run, and the command line."""

import importlib.util
import json
import os
import signal
import sys
import threading
import time

import pytest

from simfl import signals
from simfl.assembly.assemble import assemble
from simfl.comparison.sweeps import open_groups
from simfl.errors import ScenarioError
from simfl.live import launching, support
from simfl.records import read
from simfl.runs.runner import run
from simfl.scenario import from_mapping

pytestmark = pytest.mark.slow

MISSING = importlib.util.find_spec("mpi4py") is None
needs_mpi = pytest.mark.skipif(MISSING, reason="mpi4py is not installed: pip install 'simfl[mpi]'")


def scenario(**changes):
    return from_mapping(
        {
            "name": "live",
            "seed": 1,
            "data": {"set": "digits"},
            "model": {"kind": "softmax"},
            "clients": {"count": 2, "seconds_per_example": 1e-3},
            "algorithm": {"kind": "adpsgd", "batch_size": 32, "step_size": 0.4},
            "stop": {"updates": 12},
            "evaluate": {"every": {"updates": 4}},
            **changes,
        }
    )


@needs_mpi
def test_processes_run_two_scenarios_and_write_the_tables_of_simulated_runs(tmp_path):
    """Two processes only, because starting one takes seconds. Tests with threads cover more."""
    one = {"count": 1, "seconds_per_example": 1e-3}
    served = {"kind": "fedasync", "batch_size": 32, "local_steps": 1}
    scenarios = (
        scenario(clients=one, algorithm=served),
        scenario(clients=one, algorithm={"kind": "sync_sgd"}, stop={"time": 0.3}, evaluate={"every": {"time": 0.1}}),
    )
    jobs = [
        {"kind": "run", "scenario": one.to_yaml(), "compute": mode, "out": str(tmp_path), "processes": 2}
        for one, mode in zip(scenarios, ("slept", "real"), strict=True)
    ]
    served, alone = map(read, launching.launch(jobs, 2))
    assert served.status == alone.status == "done"
    assert len(served.updates) == served.manifest.updates == served.clients["updates"].sum() == 12
    assert served.manifest.extra["live"]["compute"] == "slept"
    assert served.manifest.time_s >= 0.99 * 12 * 0.032
    assert served.metrics["updates"].tolist() == [0, 4, 8, 12]
    assert served.metrics["train_loss"].iloc[-1] < served.metrics["train_loss"].iloc[0]
    assert served.metrics["bytes_sent"].iloc[-1] >= 2 * served.clients["bytes"].sum() - 3000 > 0
    assert alone.metrics["time_s"].tolist() == pytest.approx([0, 0.1, 0.2, 0.3])
    assert set(alone.model) == set(served.model)
    groups, _ = open_groups([served.folder, simulated(scenarios[0], tmp_path)])
    assert [group.settings for group in groups] == [{"run": "live"}, {"run": "simulated"}]


def simulated(scenario, root):
    return run(scenario, out=root).folder


PROCESSES = """\
import pathlib, sys, time
jobs = pathlib.Path(sys.argv[-1])
if {begins}:
    jobs.with_suffix(launching.BEGUN).touch()
    pathlib.Path("{ready}").touch()
    while not jobs.with_suffix(launching.STOP).exists():
        time.sleep(0.01)
    time.sleep(0.1)  # what was recorded is written
    jobs.with_suffix(launching.DONE).write_text('["folder"]')
else:
    pathlib.Path("{ready}").touch()
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("begins", [True, False])
def test_ctrl_c_lets_a_run_write_its_tables_and_ends_other_processes_at_once(begins, number, tmp_path, monkeypatch):
    program, ready = tmp_path / "mpirun", tmp_path / "ready"
    text = PROCESSES.format(begins=begins, ready=ready)
    for name in ("BEGUN", "STOP", "DONE"):
        text = text.replace(f"launching.{name}", repr(getattr(launching, name)))
    program.write_text(f"#!{sys.executable}\n{text}")
    program.chmod(0o700)
    monkeypatch.setattr(launching, "check_mpi", lambda: str(program))

    def press():
        while not ready.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    presses = threading.Thread(target=press)
    presses.start()
    begun = time.monotonic()
    if begins:
        assert launching.launch([{}], 2) == ["folder"]
    else:
        said = "interrupted by the user" if number == signal.SIGINT else "ended by SIGTERM"
        with pytest.raises(launching.NothingToKeepError, match=f"live: {said} before anything could be written"):
            launching.launch([{}], 2)
        assert time.monotonic() - begun < 50
    presses.join()
    assert signals.exit_code() == 128 + number


def test_only_the_first_process_of_mpirun_prints(simfl_, tmp_path, monkeypatch):
    (tmp_path / "a.yaml").write_text(json.dumps({"algorithm": "adpsgd", "clients": {"count": 2}}))
    monkeypatch.setattr(launching, "check_mpi", lambda: "mpirun")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    for rank, said in (
        ("0", "a.yaml: expected 3 processes, one for each of clients.count and one that counts updates, found 2\n"),
        ("1", ""),
    ):
        monkeypatch.setenv("OMPI_COMM_WORLD_RANK", rank)
        assert simfl_("live", "a.yaml")[::2] == (2, said)


def test_missing_mpi_is_an_error_of_one_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ScenarioError, match=r"live: found no mpi4py; install it: pip install 'simfl\[mpi\]'$"):
        launching.check_mpi()


@pytest.mark.parametrize(("changes", "problem"), [
    ({"algorithm": {"kind": "sgp"}}, "algorithm.kind: live: expected one of sync_sgd, .*, found sgp; use"),
    ({"algorithm": {"kind": "adpsgd", "exchange": "atomic"}}, "algorithm.exchange: live: expected messages"),
    ({"algorithm": {"kind": "fedasync", "concurrency": 1}}, "algorithm.concurrency: live: expected null"),
    ({"algorithm": {"kind": "adpsgd", "optimizer": "adam"}}, "algorithm.optimizer: live: expected sgd"),
    ({"algorithm": {"kind": "fedasync", "optimizer": "momentum"}}, "algorithm.optimizer: live: expected sgd"),
    ({"privacy": {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.0}}, "privacy: live"),
    ({"links": {"partitions": [{"groups": [[0]], "until": 1.0}]}}, "links.partitions: live"),
    ({"costs": {"busy_watts": 3.0}}, "costs: live: expected null, found prices"),
    ({"server": {"offline": [[0.1, 0.2]]}, "algorithm": {"kind": "fedasync"}}, "server.offline: live"),
    ({"stop": {"updates": 10, "accuracy": 0.9}}, "stop.accuracy: live"),
    ({"availability": [{"clients": [1], "join": 1.0}]},
     "availability: live: expected clients that come back, found 1"),
])  # fmt: skip
def test_scenarios_that_cannot_run_live_are_rejected(changes, problem):
    with pytest.raises(ScenarioError, match=problem):
        support.check(assemble(scenario(**changes)))


def test_ignored_parts_of_a_scenario_are_listed():
    def told(**sections):
        return [line.split(":")[0] for line in support.left_out(assemble(scenario(**sections)))]

    free = {"latency": 0.0, "bandwidth": None}
    assert told(links={"latency": 0.1}, record={"messages": True}) == ["links", "record.messages"]
    assert told(links={**free, "rules": [{"all": True, "loss": 0.1}]}) == ["links"]
    assert told(links=free, underlay={"kind": "star"}, server={"downlink": "1 Gbit/s"}) == ["links", "server"]
    assert told(links=free) == []


def test_errors_of_the_command_are_one_line(simfl_, tmp_path, monkeypatch):
    (tmp_path / "a.yaml").write_text(json.dumps({"algorithm": {"kind": "sgp"}, "stop": {"updates": 1}}))
    assert simfl_("live", "a.yaml", "--compute", "dreamt")[::2] == (
        2,
        "--compute: expected slept or real, found 'dreamt'\n",
    )
    monkeypatch.setattr(launching, "check_mpi", lambda: "mpirun")
    code, _, errors = simfl_("live", "a.yaml", "-n", "3", "--set", "data.set=digits")
    assert code == 2
    assert errors.startswith("algorithm.kind: live: expected one of")
