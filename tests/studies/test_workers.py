"""Workers: forked from one nursery, they see what spawned ones would see."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from simfl.studies.tasks import IMPORTS
from simfl.studies.workers import Workers
from tests.studies import work

ROOT = Path(__file__).parents[2]
linux = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux")


@contextlib.contextmanager
def started(count, imports=(), arguments=()):
    """Start workers; end them after the block."""
    workers = Workers(work.begin_with, arguments, imports)
    try:
        yield workers, workers.start(count)
    finally:
        workers.end()
        assert not any(process.is_alive() for process in workers._processes)


def ask(workers, each, function, *arguments):
    """Return what a function returns in each of several workers."""
    for worker in each:
        workers.send(worker, function, *arguments)
    return [worker.recv() for worker in each]


def test_a_worker_that_python_starts_ends_without_a_word(tmp_path):
    script = tmp_path / "start.py"
    script.write_text(
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from multiprocessing import get_context\n"
        "from simfl.studies.tasks import start_worker\n"
        "if __name__ == '__main__':\n"
        "    context = get_context('spawn')\n"
        "    stop = context.Value('i', 0, lock=False)\n"
        "    with ProcessPoolExecutor(1, context, start_worker, (stop,)) as pool:\n"
        "        print(pool.submit(abs, -1).result())\n",
        encoding="utf-8",
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert (ended.stdout, ended.stderr) == ("1\n", "")


def test_workers_see_the_environment_and_the_files_of_the_moment_they_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))
    (tmp_path / "mine").mkdir()
    for value in ("first", "second, which is longer"):
        monkeypatch.setenv("SIMFL_DATA", value)
        (tmp_path / "mine" / "own_value.py").write_text(f"def value():\n    return {value!r}\n")
        with started(2, arguments=("these", 1)) as (workers, both):
            answers = ask(workers, both, work.seen, "SIMFL_DATA")
            assert ask(workers, both, work.called, "own_value", "value") == [value] * 2
            one, other = ask(workers, both, work.random_numbers)
        for parent, folder, path, variables, begun in answers:
            assert (parent == os.getpid()) is (sys.platform != "linux")
            assert (Path(folder), variables, begun) == (tmp_path, [value], [("these", 1)])
            assert path[0] == sys.path[0]
        assert not set(one) & set(other), "no two processes draw the same"


@pytest.mark.slow
def test_what_jax_reads_while_it_is_imported_is_that_of_the_moment(monkeypatch):
    for value, kind in (("1", "float64"), ("0", "float32")):
        monkeypatch.setenv("JAX_ENABLE_X64", value)
        with started(2, IMPORTS) as (workers, both):
            assert ask(workers, both, work.computed) == [kind] * 2


@linux
@pytest.mark.slow
@pytest.mark.parametrize(("imports", "forked"), [(IMPORTS, 2), (("tests.studies.computes",), 0)])
def test_a_nursery_that_has_devices_does_not_fork(imports, forked):
    with started(2, imports) as (workers, both):
        assert ask(workers, both, work.computed) == ["float32"] * 2, "they compute in any case"
        nursery = psutil.Process(workers._processes[0].pid)
        assert sum(child.cmdline() == nursery.cmdline() for child in nursery.children()) == forked


def test_a_worker_that_exits_is_told_from_one_that_answers():
    with started(2) as (workers, (one, other)):
        workers.send(one, os._exit, 3)
        workers.send(other, work.seen)
        assert workers.ready([one])
        for _ in range(2):
            with pytest.raises((EOFError, OSError)):
                one.recv()
            workers.send(one, work.seen)
        assert other.recv()
        workers.dismiss(one)


KILLED = """
import sys, time
from simfl.studies.workers import Workers
from tests.studies import work
workers = Workers(work.begin_with)
both = workers.start(2)
print("started", flush=True)
for worker in both:
    workers.send(worker, work.seen)
    worker.recv()
workers.send(both[0], time.sleep, 600)
print("begun", flush=True)
time.sleep(600)
"""


@linux
def test_all_processes_leave_with_a_parent_that_is_killed():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", KILLED], env=environment, stdout=subprocess.PIPE) as parent:
        for line in (b"started\n", b"begun\n"):
            assert parent.stdout.readline() == line, "Ctrl-C at the terminal ends no worker, not even a new one"
            children = psutil.Process(parent.pid).children(recursive=True)
            for child in children:
                child.send_signal(signal.SIGINT)
        assert len(children) == 4, "what looks after resources, the nursery and two workers"
        time.sleep(0.1)
        parent.kill()
        parent.wait()
        assert not psutil.wait_procs(children, timeout=10)[1]
