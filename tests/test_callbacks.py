"""Calls of the user's code during a run; other libraries are replaced and need not be installed."""

import math
import re
import sys
import types

import pandas as pd
import pytest

import simfl
from simfl.callbacks import Callback, Callbacks, MLflow, TensorBoard, WandB
from simfl.errors import ScenarioError

ROW = {"time_s": 1.5, "updates": 40.0, "test_accuracy": 0.5, "epsilon": math.nan, "wall_s": 3.0}
SCENARIO = {"algorithm": {"kind": "sync_sgd"}, "clients": {"count": 2}, "stop": {"updates": 8}}


class Listener(Callback):
    """Records all calls."""

    def __init__(self):
        self.heard = []

    def on_start(self, scenario, folder):
        self.heard.append(("start", scenario["algorithm"]["kind"], folder))

    def on_evaluation(self, metrics):
        self.heard.append(("evaluation", metrics))

    def on_end(self, run):
        self.heard.append(("end", run.status, run.folder))


@pytest.mark.usefixtures("without_numbers")
def test_callbacks_get_the_start_the_evaluations_and_the_end(tmp_path):
    listener = Listener()
    run = simfl.run({**SCENARIO, "evaluate": {"every": {"updates": 4}}}, out=tmp_path, callbacks=[listener])
    first, *middle, last = listener.heard
    assert first == ("start", "sync_sgd", run.folder)
    assert last == ("end", "done", run.folder)
    told = pd.DataFrame([metrics for _, metrics in middle])
    pd.testing.assert_frame_equal(told, run.metrics, check_dtype=False)


@pytest.mark.usefixtures("without_numbers")
@pytest.mark.parametrize("error", [OSError("no\nnetwork"), SystemExit(0), GeneratorExit()])
def test_a_callback_that_raises_is_dropped_and_changes_nothing(error, tmp_path):
    class Broken(Callback):
        def on_evaluation(self, metrics):
            raise error

    listener = Listener()
    place = f"{__file__}:{Broken.on_evaluation.__code__.co_firstlineno + 1}"
    said = {OSError: ": no network", SystemExit: ": 0"}.get(type(error), "")
    line = f"callbacks: Broken raised {type(error).__name__}{said} in {place}; it is not called again"
    with pytest.warns(UserWarning, match=re.escape(line)):
        run = simfl.run(SCENARIO, out=tmp_path, callbacks=[Broken(), listener])
    assert run.status == "done"
    assert line in run.manifest.extra["warnings"]
    assert listener.heard[-1] == ("end", "done", run.folder)
    assert run.manifest.digest == simfl.run(SCENARIO, out=tmp_path).manifest.digest


def test_an_object_without_the_methods_is_rejected(tmp_path):
    with pytest.raises(ScenarioError, match=r"callbacks: expected objects with on_start, .* found function; derive"):
        Callbacks([lambda report: None], print)


class Library(types.ModuleType):
    """Replaces a library, and records calls."""

    def __init__(self, name):
        super().__init__(name)
        self.calls = []
        self.summary = {}

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*words, **options):
            self.calls.append((name, words, options))
            return self

        return call


@pytest.fixture
def library(monkeypatch):
    def put(name):
        made_up = Library(name)
        monkeypatch.setitem(sys.modules, name, made_up)
        return made_up

    return put


def test_tensorboard_gets_curves_over_updates(library, make_run, tmp_path):
    made_up, run = library("tensorboardX"), simfl.read(make_run())
    callbacks = Callbacks([simfl.callbacks.TensorBoard(tmp_path / "logs")], pytest.fail)
    callbacks.started(run.scenario, run.folder)
    callbacks.evaluated(ROW)
    callbacks.ended(run)
    assert made_up.calls == [
        ("SummaryWriter", (str(tmp_path / "logs" / "demo" / "001"),), {}),
        ("add_scalar", ("time_s", 1.5, 40), {}),
        ("add_scalar", ("test_accuracy", 0.5, 40), {}),
        ("close", (), {}),
    ]


def test_wandb_gets_the_scenario_and_rows(library, make_run):
    made_up, run = library("wandb"), simfl.read(make_run())
    callbacks = Callbacks([WandB(project="mine")], pytest.fail)
    callbacks.started(run.scenario, run.folder)
    callbacks.evaluated(ROW)
    callbacks.ended(run)
    assert made_up.calls == [
        ("init", (), {"name": "demo-001", "config": run.scenario, "project": "mine"}),
        ("log", ({"time_s": 1.5, "test_accuracy": 0.5},), {"step": 40}),
        ("finish", (), {"exit_code": 0}),
    ]
    assert made_up.summary == {"status": "done"}


@pytest.mark.parametrize(("status", "ending"), [("done", "FINISHED"), ("failed", "FAILED")])
def test_mlflow_gets_the_scenario_by_key_path_and_rows(library, make_run, status, ending):
    made_up, run = library("mlflow"), simfl.read(make_run(status=status))
    callbacks = Callbacks([MLflow(nested=True)], pytest.fail)
    callbacks.started({"seed": 1, "algorithm": {"kind": "fedbuff", "options": {}}, "clients": [2, 3]}, run.folder)
    callbacks.evaluated(ROW)
    callbacks.ended(run)
    assert made_up.calls == [
        ("start_run", (), {"run_name": "demo-001", "nested": True}),
        ("log_params", ({"seed": 1, "algorithm.kind": "fedbuff", "clients": [2, 3]},), {}),
        ("log_metrics", ({"time_s": 1.5, "test_accuracy": 0.5},), {"step": 40}),
        ("set_tag", ("status", status), {}),
        ("end_run", (ending,), {}),
    ]


@pytest.mark.parametrize(
    ("adapter", "extra"), [(lambda: TensorBoard("logs"), "tensorboard"), (WandB, "wandb"), (MLflow, "mlflow")]
)
def test_a_missing_library_gives_one_line(adapter, extra, monkeypatch):
    for name in ("tensorboardX", "wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ScenarioError, match=rf"callbacks: expected .* pip install 'simfl\[{extra}\]'"):
        adapter()
