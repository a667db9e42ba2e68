"""Scenarios, data and results from other systems: ends of lines, marks, spaces and umlauts, no locks and no SIGHUP."""

import signal
from pathlib import Path

import pytest

import simfl
from simfl import signals
from simfl.records import locks

TEXT = "algorithm: adpsgd\nclients: {count: 4, devices: '%s'}\nstop: {updates: 8}\n"
DEVICES = "name,seconds_per_example\nslow,200 us\nfast,100 us\n"


@pytest.mark.usefixtures("without_numbers")
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["unix", "windows"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "marked"])
def test_a_run_with_spaces_and_umlauts_and_any_ends_of_lines(end, mark, tmp_path, monkeypatch):
    folder = tmp_path / "Läufe mit Leerzeichen" / "größe 1"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    for name, text in (("geräte 1.csv", DEVICES), ("prüf lauf.yaml", TEXT % "geräte 1.csv")):
        Path(name).write_bytes((mark + text).replace("\n", end).encode())
    run = simfl.run("prüf lauf.yaml")
    assert run.folder == Path("results/prüf-lauf/001")
    assert simfl.read(folder / run.folder).updates.equals(run.updates)
    assert simfl.load("prüf lauf.yaml").digest() == simfl.load(Path("prüf lauf.yaml").resolve()).digest()


def test_a_system_without_locks_writes_and_removes_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    with locks.held(tmp_path / "lock"):
        assert locks.is_held(tmp_path / "lock") is None
    assert not (tmp_path / "lock").exists()


def test_a_system_without_sighup_handles_the_other_signals(monkeypatch):
    monkeypatch.delattr(signal, "SIGHUP")
    caught = []
    with signals.handled(caught.append):
        signal.raise_signal(signal.SIGTERM)
    assert caught == [signal.SIGTERM]
