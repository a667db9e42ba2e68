"""Sweeps: the same results wherever they run, nothing lost, nothing repeated, and one compilation for many runs."""

import contextlib
import inspect
import json
import logging
import os
import random
import shutil
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
from simfl.comparison.sweeps import read_sweep
from simfl.errors import RunError, ScenarioError
from simfl.records import RunFolder
from simfl.records.locks import held
from simfl.records.models import write_models
from simfl.runs.runner import run
from simfl.scenario import from_mapping
from simfl.scenario.own_code import load as load_own
from simfl.scenario.own_code import look_beside
from simfl.studies import running, sweep
from simfl.studies.engines import Local
from simfl.studies.plan import load_study
from simfl.studies.running import LOCK, estimate, survey
from simfl.studies.tasks import RunTask, _own_folder
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
#: Runs that are not played together.
WORLDS = {"algorithm.batch_size": [8, 4]}


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
    """Share one folder of compiled programs between all processes of these tests, which would else mostly compile."""
    monkeypatch.setattr("simfl.runs.programs.FOLDER", str(tmp_path_factory.getbasetemp() / "compiled"))


def statuses(swept):
    return [run.status for run in swept.runs]


def contents(folder):
    """Return the content of a sweep without host times."""
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


@pytest.mark.slow
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
    swept = sweep(
        study, out=tmp_path, jobs=1, keep_compiled=False, progress=lambda report: counts.append(len(compiled))
    )
    assert statuses(swept) == ["done"] * 20
    finished = counts[-20:]
    assert finished[0] > 0, "this shape is new"
    assert finished[:3] == [finished[0]] * 3, "the first three are played together"
    assert finished[3] <= finished[0] + 1, "the program of runs alone"
    assert finished[3:] == [finished[3]] * 17, f"compiled again: {compiled[finished[3] :]}"


@pytest.mark.slow
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
    from simfl.assembly import assemble, data

    loaded, load = [], data.load_dataset

    def count(*arguments, **options):
        loaded.append(options["streams"].seed)
        return load(*arguments, **options)

    monkeypatch.setattr(data, "load_dataset", count)
    assert statuses(sweep(write(grid=STEPS, seeds=2), out=tmp_path, jobs=1)) == ["done"] * 4
    assert loaded == [1, 1, 2]  # once for checking, which looks at one seed; then once for the runs of each seed
    assemble.assemble(load_study(write()).runs[0].scenario)
    assert loaded == [1, 1, 2, 1], "outside of a sweep a file may have changed"


def test_finished_runs_are_not_run_again(write, tmp_path):
    first = sweep(write(grid=STEPS), out=tmp_path, jobs=1)
    written = {path: path.stat().st_mtime_ns for path in first.folder.glob("*/manifest.json")}
    told = []
    changed = write(grid={"algorithm.step_size": {"new": 0.2, "old": 0.5}}, seeds=2)
    more = sweep(changed, out=tmp_path, jobs=1, progress=told.append)
    assert len(more.runs) == 4
    assert statuses(more) == ["done"] * 4
    assert sum(report.run is not None for report in told) == 3, "one was there, under another label"
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert {run.folder for run in more.runs if run.label == "old"} & {run.folder for run in first.runs}


@pytest.mark.slow
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
    assert reasons[0].startswith("client ")
    assert "ZeroDivisionError: by mistake in " in reasons[0]
    assert "custom:Mistaken: TypeError: object of type 'int' has no len()" in reasons[1]
    assert "the loss was not finite" in reasons[2]
    assert [run.label for run in swept.failed] == ["fails", "refuses"]
    assert read_sweep(swept.folder) == swept
    assert swept.table()["label"].tolist() == ["diverges", "works"]
    told = []
    again = sweep(study, out=tmp_path, jobs=1, progress=told.append)
    assert [report.run.label for report in told if report.run] == ["fails", "refuses"], "it may have been bad luck"
    assert statuses(again) == statuses(swept)


def test_a_sweep_that_loses_its_scheduler_ends_with_one_line_and_keeps_finished_runs(write, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("simfl.runs.context.Executor", RunWithoutNumbers)
    study, waited = write(grid=WORLDS), distributed.wait

    def wait(futures, **options):
        if len(futures) == 1:
            raise distributed.client.FuturesCancelledError([])
        return waited(futures[:1], **options)

    monkeypatch.setattr(distributed, "wait", wait)
    with (
        distributed.LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        pytest.raises(RunError, match=r"^--cluster: lost the connection to the scheduler at .*; 1 run is missing, .*$"),
    ):
        sweep(study, out=tmp_path, cluster=cluster.scheduler_address)
    assert statuses(read_sweep(tmp_path / "steps")) == ["done", "missing"]
    assert len((tmp_path / "steps" / "summary.csv").read_text().splitlines()) == 2
    told = []
    assert statuses(sweep(study, out=tmp_path, jobs=1, progress=told.append)) == ["done"] * 2
    assert sum(report.run is not None for report in told) == 1


def test_the_temporary_folder_of_a_killed_worker_is_removed_by_the_next_run(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("killed", "alive"):
        (tmp_path / f"simfl-run-{name}").mkdir()
        (tmp_path / f"simfl-run-{name}" / "run.lock").write_bytes(b"left")
        (tmp_path / f"simfl-run-{name}.lock").write_bytes(b"left")
    with held(tmp_path / "simfl-run-alive.lock"), _own_folder() as own:
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {"simfl-run-alive", "simfl-run-alive.lock", Path(own).name, f"{Path(own).name}.lock"}
    assert {path.name for path in tmp_path.iterdir()} == {"simfl-run-alive"}


@pytest.fixture
def local(monkeypatch):
    """A function that lets two processes work through tasks of these names; nothing is simulated."""

    def work_through(*names):
        monkeypatch.setattr("simfl.studies.engines.start_worker", work.begin)
        monkeypatch.setattr("simfl.studies.engines.run_unit", work.unit)
        tasks = [RunTask({"name": "none"}, ".", name) for name in names]
        return {task.run_id: outcome for task, outcome in Local(2).run(tasks)}

    return work_through


@pytest.mark.slow
def test_a_process_that_dies_loses_only_its_run(local):
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


@pytest.mark.slow
def test_a_process_is_replaced_after_many_runs(local, monkeypatch):
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


@pytest.mark.slow
@pytest.mark.parametrize("grid", [WORLDS, STEPS], ids=["alone", "together"])
@pytest.mark.parametrize(("jobs", "number"), [(1, signal.SIGINT), (2, signal.SIGTERM)])
def test_a_sweep_ended_by_a_signal_continues_later(write, tmp_path, monkeypatch, jobs, number, grid):
    def press(report):
        if report.run is not None and not pressed:
            pressed.append(report.run.folder)
            signal.raise_signal(number)

    pressed = []
    if jobs == 1:
        monkeypatch.setattr("simfl.runs.context.Executor", RunWithoutNumbers)
    study = write(base={**BASE, "stop": {"updates": 2000}}, grid=grid, seeds=3)
    before = signal.getsignal(number)
    swept = sweep(study, out=tmp_path, jobs=jobs, progress=press)
    assert signal.getsignal(number) is before
    done = [run.folder for run in swept.runs if run.status == "done"]
    assert pressed[0] in done
    assert len(done) <= jobs * (2 if grid is STEPS else 1)
    assert set(statuses(swept)) <= {"done", "missing", "interrupted"}
    reasons = {run.reason for run in swept.runs if run.status == "interrupted"}
    assert reasons <= {signals.describe(number)}, "a worker says what its parent was ended by"
    told = []
    monkeypatch.setattr("simfl.runs.context.Executor", RunWithoutNumbers)
    swept = sweep(study, out=tmp_path, jobs=1, progress=told.append)
    assert statuses(swept) == ["done"] * 6
    assert not {report.run.folder for report in told if report.run} & set(done)


@pytest.mark.slow
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
        times = {}
        for planned in plan.runs:
            path = folder / planned.folder / "manifest.json"
            if path.exists() and yaml.safe_load(path.read_text())["status"] == "done":
                times[planned.folder] = path.stat().st_mtime_ns
        return times

    there = finished()
    assert 1 <= len(there) <= 6
    touched = [path for path in folder.iterdir() if path.is_dir()]
    assert len(touched) - len(there) <= 4, "those in flight: two groups of two runs"
    told = []
    monkeypatch.setattr("simfl.runs.context.Executor", RunWithoutNumbers)
    swept = sweep(study, out=tmp_path / "results", jobs=1, progress=told.append)
    assert statuses(swept) == ["done"] * 6
    assert sum(report.run is not None for report in told) == 6 - len(there)
    assert {name: at for name, at in finished().items() if name in there} == there, "what was done is as it was"


def test_a_second_sweep_of_one_study_is_rejected_before_it_surveys_or_checks(write, tmp_path, monkeypatch):
    study = write()
    (tmp_path / "steps").mkdir()
    for step in ("survey", "check"):
        monkeypatch.setattr(f"simfl.studies.running.{step}", lambda *_: pytest.fail("the lock comes first"))
    with (
        held(tmp_path / "steps" / LOCK),
        pytest.raises(ScenarioError, match=rf"steps: process {os.getpid()} on .* is sweeping into this folder; wait"),
    ):
        sweep(study, out=tmp_path)
    assert os.listdir(tmp_path / "steps") == []


def test_a_sweep_that_begins_when_another_ends_repeats_none_of_its_runs(write, tmp_path, monkeypatch):
    """The second gets the lock when the first releases it, and must survey the runs only then."""
    monkeypatch.setattr("simfl.runs.context.Executor", RunWithoutNumbers)
    study, told = write(grid=STEPS), []

    @contextlib.contextmanager
    def after_the_first(path):
        monkeypatch.setattr(running, "held", held)
        assert statuses(sweep(study, out=tmp_path, jobs=1)) == ["done"] * 2
        with held(path):
            yield

    monkeypatch.setattr(running, "held", after_the_first)
    assert statuses(sweep(study, out=tmp_path, jobs=1, progress=told.append)) == ["done"] * 2
    assert [report.run for report in told if report.run] == []


def test_files_of_killed_processes_are_removed_by_the_next_sweep(write, tmp_path, monkeypatch):
    monkeypatch.setattr("simfl.runs.context.Executor", RunWithoutNumbers)
    study = write(grid=STEPS)
    folders = [tmp_path / "steps" / run.folder for run in sweep(study, out=tmp_path, jobs=1).runs]
    usual = [sorted(path.name for path in folder.iterdir()) for folder in folders]
    for name in ("run.lock", "updates.arrows", "metrics.parquet.partial", "checkpoint.npz"):
        (folders[0] / name).write_bytes(b"left")
    (folders[1] / "run.lock").write_bytes(b"left")
    sweep(study, out=tmp_path, jobs=1)
    assert [sorted(path.name for path in folder.iterdir()) for folder in folders] == usual


@pytest.mark.parametrize("table", ["metrics", "updates", "clients"])
def test_a_damaged_run_runs_again(write, tmp_path, table):
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


def test_the_estimate_follows_runs_that_differ_only_in_the_seed(write, tmp_path):
    runs = sweep(write(grid=STEPS, seeds=2), out=tmp_path, jobs=1).runs
    slow, fast = (
        [run.__class__(**{**run.__dict__, "wall_s": wall_s}) for run in runs if run.label == label]
        for label, wall_s in (("step_size=0.5", 8.0), ("step_size=0.1", 2.0))
    )
    assert estimate([*slow, *fast], [slow[0], fast[0]], 2) == pytest.approx((8 + 2) / 2)
    assert estimate(slow, [fast[0]], 1) == pytest.approx(8.0), "nothing is known of it, so the average"
    assert estimate([], slow, 1) is None
    assert estimate(slow, [], 1) == 0.0


# -- what a run depends on beside its scenario -----------------------------------------------------

OWN = {
    "mine_model": """
import jax
import jax.numpy as jnp
from mine_losses import loss

class Net:
    def init(self, key):
        return jnp.zeros((3, 2))

    def predict(self, params, x):
        return x @ params

    def losses(self, params, x, y):
        return loss(self.predict(params, x), y)
""",
    "mine_losses": """
import jax
import jax.numpy as jnp

def loss(z, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], axis=1)[:, 0]
""",
    "mine_data": """
import mine_numbers

def load():
    x = mine_numbers.draw()
    y = (x[:, 0] > 0).astype("int32")
    return x[:40], y[:40], x[40:], y[40:]
""",
    "mine_numbers": """
import numpy as np

def draw():
    return np.random.default_rng(0).normal(size=(60, 3)).astype("float32")
""",
    "mine_algorithm": """
from mine_package import parts

class Mine(parts.Base):
    pass
""",
    "mine_package/__init__": "",
    "mine_package/parts": """
from simfl.scenario.seams import Uses
from tests.algorithms.custom import Alone
from .steps import BOOST

class Base(Alone):
    uses = Uses(step="clients")

    def set_up(self, boost=BOOST):
        super().set_up(boost)
""",
    "mine_package/steps": "BOOST = 1.0\n",
    "mine_optimizer": """
import optax
from mine_rates import RATE

def make():
    return optax.adabelief(RATE)
""",
    "mine_rates": "RATE = 0.01\n",
}
OWN_BASE = {
    "data": {"set": "mine_data:load"},
    "model": {"kind": "mine_model:Net"},
    "clients": {"count": 2, "seconds_per_example": "1 ms"},
    "algorithm": {"kind": "mine_algorithm:Mine", "batch_size": 8, "optimizer": {"kind": "mine_optimizer:make"}},
    "stop": {"updates": 8},
}


@pytest.fixture(scope="module")
def swept_own(tmp_path_factory):
    """A sweep of one run whose model, data, algorithm and optimizer are a user's; its study and results."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine_package").mkdir()
    for name, text in OWN.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "steps.yaml").write_text(yaml.safe_dump({"base": OWN_BASE}, sort_keys=False))
    with forgotten():
        assert statuses(sweep(folder / "steps.yaml", out=folder / "results", jobs=1)) == ["done"]
    return folder


@contextlib.contextmanager
def forgotten():
    """Forget the imported modules of a user before and after a block, as in a new process."""

    def forget():
        sys.path[:] = known
        for name in [name for name in sys.modules if name.startswith("mine_")]:
            del sys.modules[name]

    known = list(sys.path)
    forget()
    try:
        yield
    finally:
        forget()


@pytest.mark.slow(but=["mine_package/__init__"])
@pytest.mark.parametrize("name", OWN)
def test_a_run_of_edited_own_code_is_not_reused(swept_own, tmp_path, name):
    copy = shutil.copytree(swept_own, tmp_path / "own")
    (file,) = copy.rglob(f"{name}.py")
    with forgotten():
        assert statuses(survey(load_study(copy / "steps.yaml"), copy / "results")) == ["done"]
        file.write_text(f"{OWN[name]}\n# edited\n")
        assert statuses(survey(load_study(copy / "steps.yaml"), copy / "results")) == ["missing"]
        file.write_text(OWN[name])
        assert statuses(survey(load_study(copy / "steps.yaml"), copy / "results")) == ["done"]
    if name == "mine_package/__init__":
        return  # a package needs none
    file.unlink()
    with forgotten(), pytest.raises(ScenarioError, match=r"steps\.yaml: .*cannot load 'mine_"):
        sweep(copy / "steps.yaml", out=copy / "results", jobs=1)


def test_a_run_whose_own_data_changed_without_its_module_is_not_reused(swept_own, tmp_path):
    copy = shutil.copytree(swept_own, tmp_path / "own")
    plan = load_study(copy / "steps.yaml")
    with forgotten():
        assert statuses(survey(plan, copy / "results")) == ["done"]
        drawn = sys.modules["mine_numbers"].draw
        sys.modules["mine_numbers"].draw = lambda: drawn() + 1
        assert statuses(survey(plan, copy / "results")) == ["missing"]


def test_an_edited_module_is_imported_again_with_those_that_use_it(swept_own, tmp_path):
    copy = shutil.copytree(swept_own, tmp_path / "own")
    with forgotten():
        look_beside([copy / "steps.yaml"])
        assert load_own("mine_optimizer:RATE", "algorithm.optimizer.kind") == 0.01
        (copy / "mine_rates.py").write_text("RATE = 0.123\n")
        assert load_own("mine_optimizer:RATE", "algorithm.optimizer.kind") == 0.123
        (copy / "mine_package" / "steps.py").write_text("BOOST = 3.0\n")
        mine = load_own("mine_algorithm:Mine", "algorithm.kind")
        assert inspect.signature(mine.set_up).parameters["boost"].default == 3.0


def test_a_run_with_an_object_from_python_is_never_reused(tmp_path):
    mapping = {**BASE, "name": "steps", "data": {"set": "logistic", "samples": 600, "dimension": 3}}
    with forgotten():
        made = run(mapping, model=OneLayer(), out=tmp_path)
        study = {"name": "steps", "base": from_mapping(made.scenario)}
        assert statuses(survey(load_study(study), tmp_path)) == ["missing"]
        with pytest.raises(ScenarioError, match=r"'object:OneLayer' is an object that was given from Python"):
            sweep(study, out=tmp_path, jobs=1)


class OneLayer:
    """The smallest model of a user."""

    def init(self, key):
        return jax.numpy.zeros((3, 2))

    def losses(self, params, x, y):
        return jax.numpy.square(x @ params).sum(axis=1)


def test_a_run_of_a_module_whose_source_cannot_be_read_is_never_reused(swept_own, tmp_path, monkeypatch):
    copy = shutil.copytree(swept_own, tmp_path / "own")
    (manifest,) = copy.glob("results/steps/*/manifest.json")
    monkeypatch.setattr("simfl.scenario.own_code.source_of", lambda module: None)
    plan = load_study(copy / "steps.yaml")
    unknown = dict.fromkeys(("mine_algorithm", "mine_data", "mine_model", "mine_optimizer"), "")
    values = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**values, "extra": {**values["extra"], "own_code": unknown}}))
    with forgotten():
        assert statuses(survey(plan, copy / "results")) == ["missing"]


def test_a_run_of_an_edited_file_of_the_world_is_not_reused(write, tmp_path, monkeypatch):
    monkeypatch.setattr("simfl.runs.context.Executor", RunWithoutNumbers)
    trace = tmp_path / "latency.csv"
    trace.write_text("time,value\n0,0.001\n")
    study = write(
        set={"links": {"rules": [{"all": True, "latency": {"kind": "trace", "path": str(trace), "unit": "s"}}]}}
    )
    assert statuses(sweep(study, out=tmp_path, jobs=1)) == ["done"]
    assert statuses(survey(load_study(study), tmp_path)) == ["done"]
    trace.write_text("time,value\n0,0.002\n")
    assert statuses(survey(load_study(study), tmp_path)) == ["missing"]
    trace.unlink()
    assert statuses(survey(load_study(study), tmp_path)) == ["missing"]


def test_a_run_with_another_initial_model_is_not_reused(write, tmp_path):
    model = tmp_path / "model.npz"
    digest = write_models(model, {"weights": np.zeros(3, np.float32)})
    plan = load_study(write(set={"init": {"from": str(model)}}))
    about = {"scenario_digest": plan.runs[0].scenario.digest(), "init": {"from": str(model), "digest": digest}}
    write_run(tmp_path, name="steps", extra=about)
    assert statuses(survey(plan, tmp_path)) == ["done"]
    write_models(model, {"weights": np.ones(3, np.float32)})
    assert statuses(survey(plan, tmp_path)) == ["missing"]
    model.unlink()
    assert statuses(survey(plan, tmp_path)) == ["missing"], "nothing tells that it was the same"
