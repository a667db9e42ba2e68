"""Locks never go stale: a lock is held only while its process lives."""

import os
import subprocess
import sys

import pytest

from simfl.records.locks import HeldError, held, is_held


def test_one_process_holds_a_lock_and_its_file_is_removed(tmp_path):
    path = tmp_path / "run.lock"
    assert is_held(path) is False
    with held(path, room_bytes=1000) as make_room:
        assert is_held(path) is True
        assert path.stat().st_size > 1000
        make_room()
        assert path.read_text().startswith(f"process {os.getpid()} on ")
        assert path.stat().st_size < 200
        with pytest.raises(HeldError, match=f"process {os.getpid()} on"), held(path):
            raise AssertionError("two of them")
        assert is_held(path) is True
    assert os.listdir(tmp_path) == []


def test_a_killed_process_holds_no_lock(tmp_path):
    path = tmp_path / "run.lock"
    code = "import os, sys; from simfl.records.locks import held\nwith held(__import__('pathlib').Path(sys.argv[1])):\n"
    code += "    os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
    assert path.exists()
    assert is_held(path) is False
    with held(path):
        assert is_held(path) is True


def test_without_locks_no_process_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("simfl.records.locks.fcntl", None)
    path = tmp_path / "run.lock"
    with held(path):
        assert is_held(path) is None


def test_a_lock_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError), held(tmp_path / "file" / "run.lock"):
        raise AssertionError("held")
