"""Checkpoints: their times, their content, and the rejected ones. That resumed runs are equal for every
algorithm is tested in tests/test_reproducibility.py."""

import dataclasses
import itertools
import math
import shutil
import sys

import numpy as np
import pytest

from simfl.errors import DataError, RunError, ScenarioError
from simfl.records import read
from simfl.runs import checkpoint
from simfl.runs.evaluations import Evaluations
from simfl.runs.intervals import parse_interval
from simfl.runs.runner import prepare, resume, run
from simfl.scenario import loads
from simfl.studies.tasks import RunTask, run_task
from simfl.tape.executor import Executor, choose_device
from tests.helpers import run_until

OWN = """
from tests.algorithms.custom import Alone

from moment_of_a_user import MOMENT

class Mine(Alone):
    moment = MOMENT
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run that was interrupted after 100 events, and an equal one that was not."""
    out = tmp_path_factory.mktemp("checkpoints")
    whole, events = run_until(prepare(scenario()), math.inf, out)
    cut, _ = run_until(prepare(scenario()), 100, out)
    assert cut.status == "interrupted"
    assert events > 150
    return whole, cut


@pytest.fixture
def cut(made, tmp_path):
    """A copy of the interrupted run."""
    return shutil.copytree(made[1].folder, tmp_path / "run" / "001")


def scenario(**sections):
    defaults = {
        "data": "{set: digits}",
        "clients": "{count: 8, seconds_per_example: 1 ms, jitter: {kind: lognormal, sigma: 0.3}}",
        "links": "{latency: 3 ms, bandwidth: 10 Mbit/s}",
        "stop": "{updates: 120}",
        "evaluate": "{every: {updates: 20}, clients: true}",
        "algorithm": "{kind: adpsgd, batch_size: 8, step_size: 0.5, exchange: messages}",
        "record": "{messages: true, timeline: true}",
    }
    return loads("\n".join(f"{key}: {value}" for key, value in {**defaults, **sections}.items()), "run")


def equal(one, other):
    return one.manifest.digest == other.manifest.digest and (
        one.manifest.extra["models"] == other.manifest.extra["models"]
    )


# -- going on --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_killed_several_times_ends_with_the_same_tables(made, cut, tmp_path):
    """A kill leaves the folder's files as they are; every later checkpoint is taken in a resumed run."""
    for event in (120, 121, 150):
        since = checkpoint.read(cut / "checkpoint.npz")
        again, _ = run_until(prepare(scenario()), event, tmp_path, since=since, folder=cut)
        assert again.status == "interrupted"
        assert checkpoint.read(cut / "checkpoint.npz").position.events == event
    resumed = resume(cut)
    assert equal(resumed, made[0])
    assert resumed.manifest.extra["resumed"] == 4
    assert resumed.metrics["wall_s"].is_monotonic_increasing


def test_a_run_interrupted_during_replay_loses_nothing(made, cut, tmp_path):
    since = checkpoint.read(cut / "checkpoint.npz")
    again, events = run_until(prepare(scenario()), 60, tmp_path, since=since, folder=cut)
    assert (again.status, events) == ("interrupted", 60)
    assert checkpoint.read(cut / "checkpoint.npz").position.events == 100, "the old one"
    assert equal(resume(cut), made[0])


@pytest.mark.slow
def test_a_resumed_run_ends_at_the_same_target_or_divergence(tmp_path):
    target = "{updates: 400, accuracy: 0.5}"
    for options in ({"stop": target}, {"algorithm": "{kind: adpsgd, batch_size: 8, step_size: 1.0e+38}"}):
        whole, events = run_until(prepare(scenario(**options)), math.inf, tmp_path)
        cut, _ = run_until(prepare(scenario(**options)), events - 20, tmp_path)
        resumed = resume(cut.folder)
        assert equal(resumed, whole)
        assert (resumed.status, resumed.manifest.reason) == (whole.status, whole.manifest.reason)
    assert resumed.status == "diverged"


def test_no_checkpoint_is_taken_between_the_error_of_a_process_and_the_end_of_the_run(made, tmp_path, monkeypatch):
    """An error ends a process at once and the run at a later event; a checkpoint that is due between would lack
    what the process did not do."""
    take, count = Evaluations.take, itertools.count(1)

    def fill_the_disk(self):
        number = next(count)
        self._context.world.clock.paused = number >= 3  # checkpoints are due after the third and the fourth
        if number == 4:
            raise RunError("the disk is full")
        take(self)

    monkeypatch.setattr(Evaluations, "take", fill_the_disk)
    with pytest.raises(RunError, match="the disk is full"):
        run(scenario(), out=tmp_path, checkpoint_every=1e6)
    monkeypatch.undo()
    folder = tmp_path / "run" / "001"
    assert checkpoint.read(folder / "checkpoint.npz").position.updates == 40
    assert equal(resume(folder), made[0])


def test_a_checkpoint_without_an_answer_that_a_replay_needs_is_rejected(made, cut, monkeypatch):
    whole = checkpoint._evaluations
    monkeypatch.setattr(checkpoint, "_evaluations", lambda arrays, count: whole(arrays, count - 1))
    with pytest.raises(RunError, match=r"differs from the checkpoint: expected \d evaluations, found more; .* run it"):
        resume(cut)
    task = RunTask(made[0].scenario, str(cut.parents[1]), "001")
    assert run_task(task).status == "done", "it starts again"
    assert equal(read(cut), made[0])


def test_gradients_zeroed_before_a_checkpoint_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(Executor, "zeroed", lambda self: 5)
    cut, _ = run_until(prepare(scenario()), 30, tmp_path)
    since = checkpoint.read(cut.folder / "checkpoint.npz")
    assert since.record.zeroed == 5
    again, _ = run_until(prepare(scenario()), 60, tmp_path, since=since, folder=cut.folder)
    assert checkpoint.read(again.folder / "checkpoint.npz").record.zeroed == 10, "five more"


def test_a_replay_that_differs_from_the_checkpoint_is_rejected(cut, tmp_path):
    since = checkpoint.read(cut / "checkpoint.npz")
    slower = prepare(scenario(slowdowns="[{clients: [2], factor: 3}]"))
    with pytest.raises(
        RunError, match=r"differs from the checkpoint: expected time_s .*, found .* run it again from its"
    ):
        run_until(slower, math.inf, tmp_path, since=since, folder=cut)
    assert (cut / "checkpoint.npz").exists()


# -- when ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_checkpoints_are_taken_on_time_and_removed_at_the_end(tmp_path, monkeypatch):
    taken = []
    original = checkpoint.CheckpointManager.take
    monkeypatch.setattr(
        checkpoint.CheckpointManager, "take", lambda self: (original(self), taken.append(self.path.stat().st_size))
    )
    monkeypatch.setattr(checkpoint, "REST", 0)
    whole = run(scenario(stop="{updates: 600}"), out=tmp_path, checkpoint_every="never")
    assert not taken
    result = run(scenario(stop="{updates: 600}"), out=tmp_path, checkpoint_every="30 ms")
    assert taken
    assert equal(result, whole), "nobody sees when they were taken"
    assert not (result.folder / "checkpoint.npz").exists()
    assert "resumed" not in result.manifest.extra


@pytest.mark.slow
def test_a_full_disk_loses_the_checkpoint_but_not_the_run(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "_write", full)
    monkeypatch.setattr(checkpoint, "REST", 0)
    with pytest.warns(UserWarning, match=r"cannot write the checkpoint: No space left on device; the run goes on"):
        result = run(scenario(stop="{updates: 600}"), out=tmp_path, checkpoint_every=0.02)
    assert result.status == "done"
    assert len(result.manifest.extra["warnings"]) == 1 + len(prepare(scenario()).warnings)


def test_checkpoint_size_depends_on_living_models_only(made):
    models = checkpoint.read(made[1].folder / "checkpoint.npz").names
    assert 8 <= len(models) <= 8 * 4
    size = (made[1].folder / "checkpoint.npz").stat().st_size
    assert size < len(models) * 2600 + 10_000


@pytest.mark.parametrize(("given", "seconds"), [("5 min", 300.0), (2.5, 2.5), ("never", None), (None, None)])
def test_intervals_are_parsed_to_seconds(given, seconds):
    assert parse_interval(given) == seconds


@pytest.mark.parametrize("given", ["5 mins or so", 0, -1.0, "soon", "inf s", True])
def test_invalid_intervals_are_rejected(given):
    with pytest.raises(ScenarioError, match=r"^--checkpoint-every: expected a .*found"):
        parse_interval(given)


# -- rejected inputs -------------------------------------------------------------------------------


def test_a_finished_run_has_nothing_to_resume(made):
    with pytest.raises(DataError, match=r"001: expected a run that was killed or interrupted, found one that is done$"):
        resume(made[0].folder)


def test_without_a_checkpoint_the_message_says_to_run_again(cut):
    (cut / "checkpoint.npz").unlink()
    with pytest.raises(DataError, match=r"expected a checkpoint in it, found none; .*simfl run .*scenario\.yaml$"):
        resume(cut)


def test_a_truncated_or_changed_file_is_rejected(cut):
    path = cut / "checkpoint.npz"
    content = path.read_bytes()
    generator = np.random.default_rng(0)
    for _ in range(40):
        path.write_bytes(content[: generator.integers(len(content))])
        with pytest.raises(DataError, match="expected a whole checkpoint, found a damaged one"):
            checkpoint.read(path)
    names = content.index(b"values.npy")
    for at in (names + 200, names + 2000, content.index(b'"events"') + 10):
        broken = bytearray(content)
        broken[at] ^= 0x10
        path.write_bytes(broken)
        with pytest.raises(DataError, match="a damaged one"):
            checkpoint.read(path)


def test_resume_rejects_any_changed_input_except_the_window(made, cut, monkeypatch):
    text = scenario().to_yaml()

    def refused(change, match):
        with pytest.raises(DataError, match=match):
            resume(cut, scenario=loads(text.replace(*change)))

    refused(("width: auto", "width: 2"), r"expected the width of the checkpoint, 4, found 2; restore it, or run it")
    refused(("sigma: 0.3", "sigma: 0.4"), r"expected the scenario of the checkpoint, it has changed; restore")
    original = checkpoint.versions
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "versions", lambda: {**original(), "jaxlib": "0.0.1"})
        with pytest.raises(DataError, match=r"expected the version of jaxlib of the checkpoint, .*, found 0\.0\.1;"):
            resume(cut)
    with monkeypatch.context() as patch:
        patch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
        with pytest.raises(DataError, match=r"expected the XLA_FLAGS of the checkpoint, .*restore it, or run it again"):
            resume(cut)
    changed = prepare(scenario())
    x = changed.dataset.train_x.copy()
    x[17, 3] += 1e-6
    changed.dataset = dataclasses.replace(changed.dataset, train_x=x)
    since = checkpoint.read(cut / "checkpoint.npz")
    fingerprint = checkpoint.fingerprint(changed, choose_device("cpu"), "4")
    with pytest.raises(DataError, match="expected the data of the checkpoint, it has changed"):
        since.check(fingerprint)
    again = resume(cut, scenario=loads(text.replace("window: auto", "window: 16")))
    assert equal(again, made[0])
    assert again.manifest.window == 16


@pytest.mark.slow
def test_resume_imports_a_users_algorithm_and_rejects_a_changed_one(tmp_path, monkeypatch):
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "own_of_a_user.py").write_text(OWN)
    (beside / "moment_of_a_user.py").write_text("MOMENT = 3")
    monkeypatch.setattr(sys, "path", [*sys.path, str(beside)])
    own = {"algorithm": "{kind: 'own_of_a_user:Mine', batch_size: 8, step_size: 0.5}", "record": "{updates: true}"}
    whole, events = run_until(prepare(scenario(**own)), math.inf, tmp_path / "results")
    cut, _ = run_until(prepare(scenario(**own)), events // 2, tmp_path / "results")
    later = shutil.copytree(cut.folder, tmp_path / "results" / "run" / "later")
    sys.path.remove(str(beside))
    del sys.modules["own_of_a_user"]
    assert equal(resume(cut.folder), whole), "it lies where it lay"
    for name, text in {"own_of_a_user": OWN + "# edited", "moment_of_a_user": "MOMENT = 34"}.items():
        whole_text = (beside / f"{name}.py").read_text()
        (beside / f"{name}.py").write_text(text)
        with pytest.raises(DataError, match="expected the source of the user's own modules of the checkpoint, it"):
            resume(later)
        (beside / f"{name}.py").write_text(whole_text)
    since = checkpoint.read(later / "checkpoint.npz")
    monkeypatch.setattr("simfl.scenario.own_code.source_of", lambda module: None)
    unknown = checkpoint.fingerprint(prepare(scenario(**own)), choose_device("cpu"), 4)
    since.print = unknown
    with pytest.raises(DataError, match="source of the user's own modules of the checkpoint, unknown, found unknown"):
        since.check(unknown)


# -- where it is asked for -------------------------------------------------------------------------


def test_resume_command_continues_a_run_or_says_why_not(made, cut, simfl_, tmp_path):
    code, shown, _ = simfl_("resume", cut, "--quiet")
    assert code == 0
    assert "test_accuracy.png" in shown
    assert equal(read(cut), made[0])
    code, _, said = simfl_("resume", cut)
    assert (code, said.count("\n")) == (2, 1)
    assert "found one that is done" in said
    code, _, said = simfl_("resume", tmp_path / "nowhere")
    assert (code, said.count("\n")) == (2, 1)
    code, _, said = simfl_("run", "no.yaml", "--checkpoint-every", "soon")
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("--checkpoint-every: expected a time")


def test_a_sweep_resumes_a_started_run_if_it_is_the_same(made, cut):
    task = RunTask(scenario().resolved(), str(cut.parents[1]), "001", "cpu", checkpoint_s=300.0)
    other = shutil.copytree(cut, cut.parent / "002")
    damaged = shutil.copytree(cut, cut.parent / "003")
    assert run_task(task).status == "done"
    assert read(cut).manifest.extra["resumed"] == 1
    assert equal(read(cut), made[0])
    slower = scenario(clients="{count: 8, seconds_per_example: 2 ms}")
    assert run_task(dataclasses.replace(task, scenario=slower.resolved(), run_id="002")).status == "done"
    assert read(other).scenario == slower.resolved()
    (damaged / "checkpoint.npz").write_bytes(b"torn")
    assert run_task(dataclasses.replace(task, run_id="003")).status == "done"
    for folder in (other, damaged):
        assert "resumed" not in read(folder).manifest.extra
