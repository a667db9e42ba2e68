"""Files of a run that was killed, got a signal, or filled the disk: all written rows, and the reason."""

import _thread
import json
import os
import resource
import shutil
import signal
import threading

import pandas as pd
import pytest

from simfl.errors import RunError, ScenarioError
from simfl.records import RunFolder, read
from simfl.records.folder import KILLED
from simfl.runs import runner
from simfl.runs.runner import run
from tests.runs.test_runner import ended, scenario

pytestmark = pytest.mark.usefixtures("without_numbers")

NOISY = "{mechanism: gaussian, clipping_norm: 1.0, noise_multiplier: 1.0, delta: 1.0e-5}"
RECORDS = {"privacy": NOISY, "record": "{messages: true, timeline: true}", "evaluate": "{every: {updates: 20}}"}


@pytest.fixture(autouse=True)
def flush_always(monkeypatch):
    monkeypatch.setattr("simfl.runs.recorder.FLUSH_S", 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adpsgd", "async_sgd"])
def test_a_killed_run_reads_up_to_its_last_flush(kind, tmp_path):
    """A copy of the folder at any moment is equal to the files after kill -9."""
    left = []

    def keep(progress):
        left.append(tmp_path / f"left-{len(left)}")
        shutil.copytree(tmp_path / "run" / "001", left[-1])
        while_it_runs = read(tmp_path / "run" / "001")
        assert while_it_runs.status == "running"

    sections = {**RECORDS, "stop": "{updates: 200}"}
    whole = run(scenario(kind, **sections), out=tmp_path, progress=keep)
    assert len(left) > 5
    grown = 0
    for folder in left:
        result = read(folder)
        assert ended(result) == ("killed", KILLED)
        for name in ("metrics", "updates", "messages", "timeline", "client_epsilon"):
            if not RunFolder(folder).stream_path(name).exists():
                continue
            part, all_rows = getattr(result, name), getattr(whole, name)
            changing = [column for column in ("epsilon",) if column in part.columns]
            pd.testing.assert_frame_equal(
                part.drop(columns=changing), all_rows.iloc[: len(part)].drop(columns=changing)
            )
            if changing:
                assert (part["epsilon"] >= all_rows["epsilon"].iloc[: len(part)] - 1e-12).all(), "an upper bound"
        if len(result.metrics):
            assert result.manifest.updates == result.metrics["updates"].iloc[-1] >= grown
            grown = result.manifest.updates
    assert grown >= 150
    assert not any(path.suffix in (".arrows", ".lock", ".partial") for path in whole.folder.iterdir())


@pytest.mark.parametrize(
    ("number", "reason"), [(signal.SIGTERM, "ended by SIGTERM"), (signal.SIGINT, "interrupted by the user")]
)
def test_a_signal_ends_a_run_cleanly_even_if_it_is_sent_twice(number, reason, tmp_path):
    sent = []

    def told(progress):
        if progress.updates >= 100 and not sent:  # the last report may come much later, on a busy machine
            sent.append(number)
            signal.raise_signal(number)
            signal.raise_signal(number)

    before = signal.getsignal(number)
    result = run(scenario(stop="{updates: 100000}"), out=tmp_path, progress=told)
    assert ended(result) == ("interrupted", reason)
    assert len(result.updates) == result.manifest.updates == result.metrics["updates"].iloc[-1] < 100_000
    assert result.manifest.tables == RunFolder(result.folder).digests()
    assert signal.getsignal(number) is before


def test_a_later_second_signal_ends_a_run_at_once_and_keeps_its_tables(tmp_path, monkeypatch):
    monkeypatch.setattr("simfl.runs.reporting.SAME_SIGNAL_S", 0.0)

    def press(progress):
        if progress.updates >= 100:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    result = run(scenario(stop="{updates: 100000}"), out=tmp_path, progress=press)
    assert ended(result) == ("interrupted", "interrupted a second time")
    assert len(result.updates) == result.manifest.updates
    assert result.clients["updates"].sum() == len(result.updates)


def test_signals_while_tables_are_written_change_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("simfl.runs.reporting.SAME_SIGNAL_S", 0.0)
    close = runner.RunFolder.digests

    def press(folder):
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        return close(folder)

    monkeypatch.setattr(runner.RunFolder, "digests", press)
    assert ended(run(scenario(), out=tmp_path)) == ("done", "updates")
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    assert all(timer.finished.is_set() for timer in timers if timer.function is _thread.interrupt_main)


def test_a_full_disk_keeps_small_tables_and_is_reported(tmp_path):
    """Limit files to 40 kB: messages need more, all other tables less."""
    wanted = scenario(
        "async_sgd",
        record="{updates: false, messages: true}",
        stop="{updates: 20000}",
        evaluate="{every: {updates: 2000}}",
    )
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, before[1]))
    try:
        with pytest.raises(RunError, match=r"messages\.parquet: cannot write the table: File too large; what was"):
            run(wanted, out=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    result = read(tmp_path / "run" / "001")
    assert result.status == "failed"
    assert "File too large" in result.manifest.reason
    assert len(result.messages) > 1000
    assert result.metrics["updates"].is_monotonic_increasing
    assert result.clients["updates"].sum() == result.manifest.updates > 100
    assert "messages" not in result.manifest.tables


def test_disk_space_is_reserved_for_the_end(tmp_path):
    sizes = []

    def look(progress):
        sizes.append((tmp_path / "run" / "001" / "run.lock").stat().st_size)

    run(scenario(), out=tmp_path, progress=look)
    assert sizes[0] > 2**19
    assert not (tmp_path / "run" / "001" / "run.lock").exists()


def test_a_folder_that_vanishes_gives_one_line(tmp_path):
    def remove(progress):
        if progress.updates >= 40:
            shutil.rmtree(tmp_path / "run", ignore_errors=True)

    with pytest.raises(RunError, match=r"run/001/model\.npz: cannot write the model: its folder is gone"):
        run(scenario(), out=tmp_path, progress=remove)


def test_a_folder_is_locked_by_one_run_at_a_time(tmp_path):
    def begin_another(progress):
        with pytest.raises(ScenarioError, match=rf"run/mine: process {os.getpid()} on .* is writing this run; wait"):
            run(scenario(), out=tmp_path, run_id="mine")

    first = run(scenario(), out=tmp_path, run_id="mine", progress=begin_another)
    assert first.status == "done"
    (first.folder / "timeline.arrows").write_bytes(b"of an earlier run")
    again = run(scenario(), out=tmp_path, run_id="mine")
    assert again.manifest.digest == first.manifest.digest
    assert not (first.folder / "timeline.arrows").exists()


def test_a_run_of_a_dead_process_is_not_running(make_run):
    folder = make_run(status="running")
    assert read(folder).status == "killed"
    assert json.loads((folder / "manifest.json").read_text())["status"] == "running"
