"""Sweeps: the same results wherever they run, nothing lost, nothing repeated, and one compilation for many runs."""

import logging
import os
import random
import signal
import subprocess
import sys
import time
import types
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
import yaml

from simfl import signals
from simfl.errors import ScenarioError
from simfl.records import RunFolder
from simfl.records.locks import held
from simfl.records.models import write_models
from simfl.records.sweeps import read_sweep
from simfl.scenario import from_mapping
from simfl.scenario.study import load_study
from simfl.studies import sweep
from simfl.studies.engines import Local
from simfl.studies.running import LOCK, _alone_in, _runs_in, estimate, survey
from simfl.studies.tasks import RunTask
from tests.conftest import write_run
from tests.helpers import RunWithoutNumbers
from tests.studies import work

ROOT = Path(__file__).parents[2]
BASE = {
    "seed": 1,
    "clients": {"count": 8, "seconds_per_example": "1 ms"},
    "slowdowns": [{"clients": [2], "factor": 4}],
    "algorithm": {"kind": "adpsgd", "batch_size": 8, "step_size": 0.5},
    "stop": {"updates": 40},
    "evaluate": {"every": {"updates": 20}},
}
STEPS = {"algorithm.step_size": [0.5, 0.1]}


@pytest.fixture
def write(tmp_path):
    """A function that writes a study into the test's folder and returns its path."""

    def write_study(**study):
        path = tmp_path / "steps.yaml"
        path.write_text(yaml.safe_dump({"base": BASE, **study}, sort_keys=False))
        return path

    return write_study


@pytest.fixture(autouse=True)
def share_compiled(monkeypatch, tmp_path_factory):
    """Every process of these tests takes compiled programs from one folder: they would spend their time compiling."""
    monkeypatch.setattr("simfl.simulation.programs.FOLDER", str(tmp_path_factory.getbasetemp() / "compiled"))


def statuses(swept):
    return [run.status for run in swept.runs]


def contents(folder):
    """What a sweep says, the host's time apart."""
    return (folder / "summary.csv").read_bytes(), {
        run.folder: read_sweep(folder).open(run).manifest.digest for run in read_sweep(folder).runs
    }


class Compiled(logging.Handler):
    """Collects the names of the programs that XLA compiles."""

    def __init__(self):
        super().__init__()
        self.names = []

    def emit(self, record):
        if record.getMessage().startswith("Finished XLA compilation"):
            self.names.append(record.getMessage())


@pytest.fixture
def compiled(monkeypatch):
    handler, logger = Compiled(), logging.getLogger("jax")
    before = jax.config.jax_log_compiles
    jax.config.update("jax_log_compiles", True)
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "propagate", False)
    yield handler.names
    jax.config.update("jax_log_compiles", before)


def test_twenty_runs_that_differ_in_seed_noise_step_size_and_speeds_compile_once(write, tmp_path, compiled):
    noise = {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.0, "delta": 1e-5}
    base = {**BASE, "privacy": noise, "algorithm": {"kind": "adpsgd", "batch_size": 7, "step_size": 0.5}}
    cases = [
        {"label": "as it is"},
        {"label": "more noise", "set": {"privacy.noise_multiplier": 2.0}},
        {"label": "smaller steps", "set": {"algorithm.step_size": 0.05}},
        {"label": "slower", "set": {"slowdowns.0.factor": 20}},
        {"label": "all even", "set": {"slowdowns": []}},
    ]
    counts = []
    study = write(base=base, list=cases, seeds=4)
    swept = sweep(study, out=tmp_path, jobs=1, keep_compiled=False, tell=lambda report: counts.append(len(compiled)))
    assert statuses(swept) == ["done"] * 20
    finished = counts[-20:]
    assert finished[0] > 0, "this shape is new"
    assert finished == [finished[0]] * 20, f"compiled again: {compiled[finished[0] :]}"


def test_processes_and_a_cluster_give_the_tables_of_a_serial_sweep(write, tmp_path):
    study = write(grid=STEPS, seeds=2)
    assert statuses(sweep(study, out=tmp_path / "serial", jobs=1)) == ["done"] * 4
    expected = contents(tmp_path / "serial" / "steps")
    assert statuses(sweep(study, out=tmp_path / "local", jobs=2)) == ["done"] * 4
    assert contents(tmp_path / "local" / "steps") == expected
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster:
        swept = sweep(study, out=tmp_path / "cluster", cluster=cluster.scheduler_address)
    assert statuses(swept) == ["done"] * 4
    assert contents(tmp_path / "cluster" / "steps") == expected


def test_runs_of_one_seed_load_their_data_once(write, tmp_path, monkeypatch):
    from simfl.simulation import assembly, data

    loaded, load = [], data.load_dataset

    def count(*arguments, **options):
        loaded.append(options["streams"].seed)
        return load(*arguments, **options)

    monkeypatch.setattr(data, "load_dataset", count)
    assert statuses(sweep(write(grid=STEPS, seeds=2), out=tmp_path, jobs=1)) == ["done"] * 4
    assert loaded == [1, 1, 2]  # once for checking, which looks at one seed; then once for the runs of each seed
    assembly.assemble(load_study(write()).runs[0].scenario)
    assert loaded == [1, 1, 2, 1], "outside of a sweep a file may have changed"


def test_what_is_there_is_not_run_again(write, tmp_path):
    first = sweep(write(grid=STEPS), out=tmp_path, jobs=1)
    written = {path: path.stat().st_mtime_ns for path in first.folder.glob("*/manifest.json")}
    told = []
    changed = write(grid={"algorithm.step_size": {"new": 0.2, "old": 0.5}}, seeds=2)
    more = sweep(changed, out=tmp_path, jobs=1, tell=told.append)
    assert len(more.runs) == 4
    assert statuses(more) == ["done"] * 4
    assert sum(report.run is not None for report in told) == 3, "one was there, under another label"
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert {run.folder for run in more.runs if run.label == "old"} & {run.folder for run in first.runs}


def test_a_run_that_fails_or_diverges_stops_no_other(write, tmp_path):
    cases = [
        {"label": "fails", "set": {"algorithm": {"kind": "tests.algorithms.custom:Broken", "batch_size": 8}}},
        {"label": "refuses", "set": {"algorithm": {"kind": "tests.algorithms.custom:Mistaken"}}},
        {"label": "diverges", "set": {"algorithm.step_size": 1e38, "stop.updates": 4000}},
        {"label": "works"},
    ]
    study = write(list=cases)
    swept = sweep(study, out=tmp_path, jobs=1)
    assert statuses(swept) == ["failed", "failed", "diverged", "done"]
    reasons = [run.reason for run in swept.runs]
    assert reasons[0].startswith("tests.algorithms.custom:Broken: client ")
    assert reasons[0].endswith("ZeroDivisionError: by mistake")
    assert "custom:Mistaken: TypeError: object of type 'int' has no len()" in reasons[1]
    assert "the loss was not finite" in reasons[2]
    assert [run.label for run in swept.failed] == ["fails", "refuses"]
    assert read_sweep(swept.folder) == swept
    assert swept.table()["label"].tolist() == ["diverges", "works"]
    told = []
    again = sweep(study, out=tmp_path, jobs=1, tell=told.append)
    assert [report.run.label for report in told if report.run] == ["fails", "refuses"], "it may have been bad luck"
    assert statuses(again) == statuses(swept)


@pytest.fixture
def local(monkeypatch):
    """A function that lets two processes work through tasks of these names; nothing is simulated."""

    def work_through(*names):
        monkeypatch.setattr("simfl.studies.engines.start_worker", work.begin)
        monkeypatch.setattr("simfl.studies.engines.run_task", work.task)
        tasks = [RunTask({"name": "none"}, ".", name) for name in names]
        return {task.run_id: outcome for task, outcome in Local(2).run(tasks)}

    return work_through


def test_a_process_that_dies_costs_its_run_alone(local):
    outcomes = local("first", "dies", "second", "third")
    assert {name: outcome.status for name, outcome in outcomes.items()} == {
        "first": "done",
        "dies": "failed",
        "second": "done",
        "third": "done",
    }
    assert outcomes["dies"].reason.startswith("its process died")


def test_processes_do_not_run_the_users_script_again(local, monkeypatch, tmp_path):
    script = types.ModuleType("__main__")
    script.__file__ = str(tmp_path / "script.py")
    Path(script.__file__).write_text(f"open({str(tmp_path / 'again')!r}, 'w')")
    monkeypatch.setitem(sys.modules, "__main__", script)
    assert local("only")["only"].status == "done"
    assert not (tmp_path / "again").exists()
    assert sys.modules["__main__"] is script


def test_a_study_may_be_written_in_python(tmp_path):
    base = from_mapping(BASE, "mine")
    plan = load_study({"name": "steps", "base": base, "grid": STEPS, "seeds": [3, 4]})
    assert [(run.seed, run.settings["step_size"]) for run in plan.runs] == [
        (3, "0.5"),
        (3, "0.1"),
        (4, "0.5"),
        (4, "0.1"),
    ]
    assert plan.runs[1].scenario.digest() == base.replace(algorithm__step_size=0.1, seed=3).digest()
    with pytest.raises(ScenarioError, match=r"^study: grid\.clients\.cont\.0: expected a key of clients, found 'co"):
        load_study({"base": base, "grid": {"clients.cont": [2]}})
    with pytest.raises(ScenarioError, match=r"^study: expected a study, found a scenario; run it with simfl\.run"):
        load_study(BASE)


def test_a_process_that_served_many_runs_makes_room_for_another(local, monkeypatch):
    monkeypatch.setattr("simfl.studies.engines.RUNS_PER_PROCESS", 2)
    outcomes = local(*"abcdef")
    served = Counter(outcome.reason for outcome in outcomes.values())
    assert len(outcomes) == served.total() == 6
    assert max(served.values()) <= 2
    assert 3 <= len(served) <= 4


def test_everything_is_checked_before_anything_runs(write, tmp_path):
    study = write(grid={"algorithm.batch_size": [8, 5000]}, seeds=3)
    with pytest.raises(
        ScenarioError, match=r"steps\.yaml: \(batch_size=5000\) algorithm\.batch_size: expected at most"
    ):
        sweep(study, out=tmp_path / "results")
    assert not (tmp_path / "results").exists()
    with pytest.raises(ScenarioError, match=r"^--jobs: expected at least 1, found 0"):
        sweep(study, out=tmp_path / "results", jobs=0)
    with pytest.raises(ScenarioError, match=r"^--cluster: expected the address of a dask scheduler"):
        sweep(write(), out=tmp_path / "results", cluster="nonsense")


@pytest.mark.parametrize(("jobs", "number"), [(1, signal.SIGINT), (2, signal.SIGTERM)])
def test_a_signal_leaves_a_sweep_that_goes_on_later(write, tmp_path, monkeypatch, jobs, number):
    def press(report):
        if report.run is not None and not pressed:
            pressed.append(report.run.folder)
            signal.raise_signal(number)

    pressed = []
    if jobs == 1:
        monkeypatch.setattr("simfl.simulation.runner.Executor", RunWithoutNumbers)
    study = write(base={**BASE, "stop": {"updates": 2000}}, grid=STEPS, seeds=3)
    before = signal.getsignal(number)
    swept = sweep(study, out=tmp_path, jobs=jobs, tell=press)
    assert signal.getsignal(number) is before
    done = [run.folder for run in swept.runs if run.status == "done"]
    assert pressed[0] in done
    assert len(done) <= jobs
    assert set(statuses(swept)) <= {"done", "missing", "interrupted"}
    reasons = {run.reason for run in swept.runs if run.status == "interrupted"}
    assert reasons <= {signals.describe(number)}, "a worker says what its parent was ended by"
    told = []
    monkeypatch.setattr("simfl.simulation.runner.Executor", RunWithoutNumbers)
    swept = sweep(study, out=tmp_path, jobs=1, tell=told.append)
    assert statuses(swept) == ["done"] * 6
    assert not {report.run.folder for report in told if report.run} & set(done)


@pytest.mark.skipif(not hasattr(os, "setpgrp"), reason="signals of POSIX")
def test_a_sweep_that_was_killed_loses_at_most_the_runs_in_flight_and_repeats_none(write, tmp_path, monkeypatch):
    study = write(base={**BASE, "stop": {"updates": 3000}}, grid=STEPS, seeds=3)
    folder = tmp_path / "results" / "steps"
    command = [sys.executable, "-m", "simfl", "sweep", str(study), "--jobs", "2", "--out", str(tmp_path / "results")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert killed.stderr.readline(), "it says how every run ended"
    time.sleep(random.Random(os.getpid()).uniform(0.0, 0.3))
    killed.kill()
    killed.wait()
    killed.stderr.close()
    time.sleep(1.0)  # its processes leave with it
    plan = load_study(study)

    def finished():
        found = {}
        for run in plan.runs:
            path = folder / run.folder / "manifest.json"
            if path.exists() and yaml.safe_load(path.read_text())["status"] == "done":
                found[run.folder] = path.stat().st_mtime_ns
        return found

    there = finished()
    assert 1 <= len(there) <= 6
    touched = [path for path in folder.iterdir() if path.is_dir()]
    assert len(touched) - len(there) <= 2, "those in flight"
    told = []
    monkeypatch.setattr("simfl.simulation.runner.Executor", RunWithoutNumbers)
    swept = sweep(study, out=tmp_path / "results", jobs=1, tell=told.append)
    assert statuses(swept) == ["done"] * 6
    assert sum(report.run is not None for report in told) == 6 - len(there)
    assert {name: at for name, at in finished().items() if name in there} == there, "what was done is as it was"


def test_two_sweeps_of_one_study_do_not_mix(write, tmp_path):
    study = write()
    (tmp_path / "steps").mkdir()
    with (
        held(tmp_path / "steps" / LOCK),
        pytest.raises(ScenarioError, match=r"steps: another process is sweeping into this folder; wait until it is"),
    ):
        sweep(study, out=tmp_path)
    assert os.listdir(tmp_path / "steps") == []
    with (
        held(tmp_path / "steps" / LOCK),
        pytest.raises(ScenarioError, match=rf"steps: process {os.getpid()} on .* is sweeping into this folder"),
        _alone_in(tmp_path / "steps"),
    ):
        raise AssertionError("two of them")


@pytest.mark.parametrize("table", ["metrics", "updates", "clients"])
def test_a_damaged_run_is_made_again(write, tmp_path, table):
    plan = load_study(write(seeds=2))
    digest = plan.runs[0].scenario.digest()
    folder = write_run(tmp_path, name="steps", extra={"scenario_digest": digest})
    assert statuses(survey(plan, tmp_path)) == ["done", "missing"]
    path = RunFolder(folder).table_path(table)
    frame = pd.read_parquet(path)
    frame.iloc[2, 0] += 1
    frame.to_parquet(path)
    assert statuses(survey(plan, tmp_path)) == ["missing", "missing"]
    path.unlink()
    assert statuses(survey(plan, tmp_path)) == ["missing", "missing"]


def test_the_estimate_follows_the_runs_that_differ_in_the_seed_alone(write, tmp_path):
    runs = sweep(write(grid=STEPS, seeds=2), out=tmp_path, jobs=1).runs
    slow, fast = (
        [run.__class__(**{**run.__dict__, "wall_s": wall_s}) for run in runs if run.label == label]
        for label, wall_s in (("step_size=0.5", 8.0), ("step_size=0.1", 2.0))
    )
    assert estimate([*slow, *fast], [slow[0], fast[0]], 2) == pytest.approx((8 + 2) / 2)
    assert estimate(slow, [fast[0]], 1) == pytest.approx(8.0), "nothing is known of it, so the average"
    assert estimate([], slow, 1) is None
    assert estimate(slow, [], 1) == 0.0


def test_what_went_on_from_another_model_is_not_there(tmp_path):
    model = tmp_path / "model.npz"
    digest = write_models(model, {"weights": np.zeros(3, np.float32)})
    write_run(tmp_path, name="runs", extra={"init": {"from": str(model), "digest": digest}})
    assert len(_runs_in(tmp_path / "runs")) == 1
    write_models(model, {"weights": np.ones(3, np.float32)})
    assert not _runs_in(tmp_path / "runs")
    model.unlink()
    assert len(_runs_in(tmp_path / "runs")) == 1, "nobody can say that it was another"
