"""Killed processes of a live run: the message, and the end of the others; without MPI."""

import os
import signal
import subprocess
import sys

import pytest

from simfl.errors import RunError
from simfl.live import launching

#: What Open MPI 5 writes when a rank is killed.
KILLED = """\
--------------------------------------------------------------------------
prterun noticed that process rank {rank} with PID 1234 on node vm exited on
signal {number} ({words}).
--------------------------------------------------------------------------
"""
JOBS = [{"kind": "run", "processes": 3}]


@pytest.mark.parametrize(("errors", "code", "message"), [
    (KILLED.format(rank=1, number=9, words="Killed"), 137, "rank 1 (client 1) was ended by SIGKILL; mpirun ended"),
    (KILLED.format(rank=2, number=11, words="Fault"), 139, "rank 2 (the coordinator) was ended by SIGSEGV; mpirun"),
    ("", -9, "mpirun was ended by SIGKILL"),
    ("simfl live: process 0: ValueError: x\n-----\n", 1, "the processes ended: process 0: ValueError: x"),
    ("There are not enough slots\n------\n", 1, "the processes ended: There are not enough slots"),
    ("------\n", 3, "the processes ended: mpirun exited with code 3"),
])  # fmt: skip
def test_the_message_names_the_process_and_its_signal(errors, code, message):
    assert launching.why_ended(errors, code, JOBS).startswith(message)


def test_a_rank_of_a_measurement_is_not_called_a_client():
    errors = KILLED.format(rank=1, number=9, words="Killed")
    assert launching.why_ended(errors, 137, [{"kind": "links", "processes": 2}]).startswith("rank 1 was ended by")


def fake_mpirun(path, text):
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o700)
    return str(path)


def test_launch_names_the_rank_that_was_killed(tmp_path, monkeypatch):
    errors = KILLED.format(rank=0, number=9, words="Killed")
    program = fake_mpirun(tmp_path / "mpirun", f"import sys\nsys.stderr.write({errors!r})\nsys.exit(137)")
    monkeypatch.setattr(launching, "check_mpi", lambda: program)
    with pytest.raises(RunError, match=r"^live: rank 0 \(client 0\) was ended by SIGKILL; mpirun ended the others$"):
        launching.launch(JOBS, 3)


RANK = """\
import os, pathlib, sys
from simfl.live.signs import end_with_parent
print(os.environ["TMPDIR"], flush=True)
os.write({ready}, b"x")
end_with_parent(pathlib.Path(sys.argv[-1]))
"""
PARENT = """\
from simfl.live import launching
launching.check_mpi = lambda: {program!r}
launching.launch([{{}}], 1)
"""


def test_ranks_end_and_their_folder_is_deleted_when_their_parent_is_killed(tmp_path):
    """A rank opens the FIFO `held` for writing, so that reading it ends when the rank has ended."""
    held, ready = tmp_path / "held", tmp_path / "ready"
    os.mkfifo(held)
    os.mkfifo(ready)
    text = RANK.format(ready="os.open('" + str(ready) + "', os.O_WRONLY)")
    text = text.replace("import os,", "import os; held = os.open('" + str(held) + "', os.O_WRONLY)\nimport", 1)
    program = fake_mpirun(tmp_path / "mpirun", text)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(program=program)], env={**os.environ, "TMPDIR": str(temporary)}
    )
    with open(held, "rb") as rank, open(ready, "rb") as began:
        assert began.read(1) == b"x"
        assert [path.name.startswith("simfl-live-") for path in temporary.iterdir()] == [True]
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert rank.read() == b"", "the rank ends"
    assert list(temporary.iterdir()) == []
