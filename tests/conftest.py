"""Fixtures that several folders share, and how the programs of a session are compiled, kept and timed."""

import collections
import contextlib
import ctypes
import functools
import gc
import json
import math
import os
import shutil
import sys
import tempfile
from pathlib import Path

import jax
import jaxlib.xla_client
import numpy as np
import psutil
import pytest
import yaml
from hypothesis import settings
from jax._src import compiler  # there is no public way to add an option to every program
from threadpoolctl import ThreadpoolController

import simfl.assembly.data
import simfl.threads
from simfl.cli import app as cli
from simfl.records import Manifest, RunFolder
from simfl.records.folder import combine_digests, flags
from tests.helpers import RunWithoutNumbers

gc.disable()  # what importing and collecting tests makes is kept: searching it for garbage takes a fifth of their time

# A slow machine must not fail a test: no deadline. In CI, hypothesis draws the same examples in every session, so that
# the result does not depend on chance; elsewhere it draws new ones.
settings.register_profile("simfl", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("simfl")

simfl.assembly.data.MOST_SHARED_BYTES = 2**26  # several data sets in each worker would fill it

# Every run looks four times for libraries of linear algebra, which takes 4 ms; new ones come with imports.
_libraries = functools.lru_cache(maxsize=1)(lambda modules: ThreadpoolController())
simfl.threads.ThreadpoolController = lambda: _libraries(len(sys.modules))


#: Memory above which a worker drops its compiled programs: hundreds of shapes of tiny problems would take gigabytes.
MEMORY_BYTES = 2**30
#: It drops them again only if memory has grown by this much since.
GROWTH_BYTES = 2**27
#: Compiled programs are kept for the next session, up to this size.
CACHE_BYTES = 2 * 2**30
#: Tests fail when they take so many times their budget of processor time.
BUSY = 2.0
#: Tests of compiled arithmetic, whose programs are optimized as for users. In other tests a program runs for
#: milliseconds, and compiling it without optimization takes half the time.
OPTIMIZED = ("tape", "models", "bench", "privacy/test_noise.py")
#: Exceptions: one goes through all models, each of which has a file of its own with optimization; one compares runs.
NOT_OPTIMIZED = ("models/test_contract.py", "bench/test_verification.py")
#: Options of XLA for programs without optimization.
UNOPTIMIZED = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
HERE = Path(__file__).parent
#: Processor seconds of tests, with their names, and whether they are slow tests.
CPU = pytest.StashKey[list[tuple[float, str, bool]]]()

_left_bytes = 0
#: Whether the programs that JAX keeps are optimized.
_subject = False


def pytest_configure(config):
    """Keep compiled programs in a folder that workers, notebooks, command lines and the next session share."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        if hasattr(config, "cache"):
            folder = config.cache.mkdir("compiled")
            if sum(file.stat().st_size for file in folder.iterdir()) > CACHE_BYTES:
                shutil.rmtree(folder)
                folder.mkdir()
        else:  # -p no:cacheprovider: a folder for this session only
            folder = Path(tempfile.mkdtemp(prefix="simfl-tests-"))
            config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ |= {"JAX_COMPILATION_CACHE_DIR": str(folder), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    os.environ.setdefault("PJRT_NPROC", "1")  # a test may start JAX before simfl does
    compile_plainly()
    # Some hundred processes import simfl; without stored bytecode, each of them would compile all modules.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.fsync = lambda file: None  # files of tests need not survive a power cut
    # If a plugin has imported JAX, it has already read the environment.
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def compile_plainly():
    """Compile programs without optimization by XLA's simplest emitter of loops, in a third of the time.

    In this process the options go with every program, because a few programs are optimized. Notebooks and command lines
    take them from the environment, which XLA must read in this process before they are set.
    """
    thorough = compiler.get_compile_options

    def options(*args, **kwargs):
        compile_options = thorough(*args, **kwargs)
        if compile_options.executable_build_options.debug_options.xla_backend_optimization_level == 0:
            compile_options.env_option_overrides = [*compile_options.env_option_overrides, *UNOPTIMIZED.items()]
        return compile_options

    compiler.get_compile_options = options
    jaxlib.xla_client.CompileOptions()  # reads XLA_FLAGS, once
    flags = (f"--{name}={str(value).lower()}" for name, value in UNOPTIMIZED.items())
    os.environ["XLA_FLAGS"] = " ".join((os.environ.get("XLA_FLAGS", ""), *flags)).strip()
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"


def pytest_addoption(parser):
    parser.addoption(
        "--cpu-budget", type=float, help="what quick tests should take at most, in seconds of processor time"
    )


def pytest_collection_modifyitems(config, items):
    """Run long files first, so that the workers end at about the same time, and drop some cases from `slow`.

    `slow(but=[...])` keeps the cases whose id contains one of the words, `slow(every=n)` the first of each n cases.
    """
    items.sort(key=lambda item: item.path.parent != HERE)
    cases = collections.Counter()
    for item in items:
        marks = list(item.iter_markers("slow"))
        if not marks or not all(mark.kwargs for mark in marks):  # quick, or slow without exception
            continue
        mark, case, function = marks[0].kwargs, item.callspec.id, (item.path, item.originalname)
        taken = "every" in mark and cases[function] % mark["every"] == 0
        cases[function] += 1
        if taken or any(word in case for word in mark.get("but", ())):
            item.own_markers = [mark for mark in item.own_markers if mark.name != "slow"]


def cpu_s():
    """Return the processor seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Note the processor time of each test; workers hand it to the session that adds it up."""
    begun = cpu_s()
    try:
        return (yield)
    finally:
        noted = item.session.config.stash.setdefault(CPU, [])
        noted.append((cpu_s() - begun, item.nodeid, item.get_closest_marker("slow") is not None))


def pytest_sessionfinish(session):
    """Hand the processor times of a worker to the session that started it."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cpu"] = session.config.stash.get(CPU, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Collect the processor times of a worker."""
    node.config.stash.setdefault(CPU, []).extend(map(tuple, node.workeroutput.get("cpu", ())))


def pytest_terminal_summary(terminalreporter, config):
    """Print the processor time; above the budget, list the most expensive quick tests, and far above it, fail.

    The same tests took 654 and 997 s in one hour: others used the machine, and programs were stored or not.
    """
    spent, budget = config.stash.get(CPU, []), config.getoption("--cpu-budget")
    quick = [(seconds, name) for seconds, name, is_slow in spent if not is_slow]
    whole, total = sum(seconds for seconds, *_ in spent), sum(seconds for seconds, _ in quick)
    terminalreporter.write_line(f"{whole:.0f} s of processor time in {len(spent)} tests")
    if 0 < len(quick) < len(spent):
        terminalreporter.write_line(f"{total:.0f} s of it in {len(quick)} quick ones")
    if budget is not None and total > budget:
        line = f"expected at most {budget:g} s of processor time; make these cheaper, or mark them slow:"
        terminalreporter.write_line(line)
        for seconds, name in sorted(quick, reverse=True)[:20]:
            terminalreporter.write_line(f"{seconds:6.1f} s  {name}")
        if total > BUSY * budget:
            terminalreporter._session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect garbage again once all tests are there (see `gc.disable` above)."""
    yielded = yield
    gc.enable()
    return yielded


def pytest_collection_finish():
    """Exclude modules and tests from garbage collection, which then takes a tenth of the time.

    Every run asks whether objects are frozen. Python would count all of them each time, in 30 ms.
    """
    gc.collect()
    gc.freeze()
    gc.get_freeze_count = functools.cache(gc.get_freeze_count)


@pytest.fixture(autouse=True, scope="module")
def how_to_compile(request):
    """Optimize programs in tests of compiled arithmetic; exclude what earlier modules left from garbage collection.

    Every checkpoint collects, which takes 0.4 s beside the programs of a hundred tests.
    """
    gc.freeze()
    inside = request.path.relative_to(HERE)
    subject = any(inside.is_relative_to(name) for name in OPTIMIZED) and str(inside) not in NOT_OPTIMIZED
    jax.config.update("jax_disable_most_optimizations", not subject)
    global _subject
    if subject != _subject:  # JAX would call what it compiled the other way, with other last bits
        jax.clear_caches()
        _subject = subject


def pytest_runtest_teardown():
    """Close figures, and drop compiled programs before they fill the worker's memory; their folder keeps them."""
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")
    global _left_bytes
    if psutil.Process().memory_info().rss < max(MEMORY_BYTES, _left_bytes + GROWTH_BYTES):
        return
    jax.clear_caches()
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):  # return free memory to the system; glibc only
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    _left_bytes = psutil.Process().memory_info().rss


def write_run(
    root, *, name="demo", algorithm="adpsgd", rate=1.0, privacy=None, status="done", accuracy=True, **manifest
):
    """Write the folder of a made-up run whose accuracy approaches 0.95 at `rate` per second; return its path."""
    folder = RunFolder.create(Path(root), name)
    scenario = {"name": name, "seed": 1, "algorithm": {"kind": algorithm}, "privacy": privacy}
    folder.write_scenario(yaml.safe_dump(scenario))
    times = np.linspace(0, 10, 41)
    epsilon = math.nan if privacy is None else 2.5
    with folder.table("metrics") as table:
        for step, time_s in enumerate(times.tolist()):
            reached = 0.95 - 0.85 * math.exp(-rate * time_s)
            loss = 2 - reached
            progress = (time_s, 100 * step, 2.0 * time_s, step)
            measures = (loss, loss, reached if accuracy else math.nan, 0.1)
            table.append((*progress, *measures, 4_000_000 * step, 200 * step, epsilon * step / 40, 0.01 * step))
    with folder.table("updates") as table:
        table.extend((0.01 * count, count % 4, (count + 1) % 4, count, 3, 32, 0.4, 0.0) for count in range(50))
    with folder.table("clients") as table:
        table.extend((k, 100, 1000, 0, 8.0, 1.0, 1.0, 0.0, 10**7, epsilon, 1e-5, math.nan) for k in range(4))
    digests = folder.digests()
    values = {"wall_s": 2.0, "time_s": 10.0, "updates": 4000, "window": 64, "width": 4, **manifest}
    values["extra"] = {"xla_flags": flags(), **values.get("extra", {})}
    folder.write_manifest(
        Manifest(status, seed=1, device="cpu", digest=combine_digests(digests), tables=digests, **values)
    )
    return folder.path


@pytest.fixture
def without_numbers(request, monkeypatch):
    """Let runs compute nothing, for tests of the world, the ledger and tables; the mark `numbers` turns it off."""
    if request.node.get_closest_marker("numbers") is None:
        monkeypatch.setattr("simfl.runs.context.Executor", RunWithoutNumbers)


@pytest.fixture
def make_run(tmp_path):
    """Return a function that writes a made-up run into the test's folder."""

    def make(**options):
        return write_run(tmp_path / "results", **options)

    return make


class CommandLine:
    """Runs the command line in the test's folder; a call returns (exit code, stdout, stderr).

    The first argument may have several words: `simfl_("privacy account --steps 3", "-z", z)`.
    """

    def __init__(self, monkeypatch, capsys):
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, first="", *words):
        self.monkeypatch.setattr(sys, "argv", ["simfl", *str(first).split(), *map(str, words)])
        often = gc.get_threshold()
        with pytest.raises(SystemExit) as left:
            cli.main()
        gc.set_threshold(*often)  # a process of one command collects rarely; a worker of thousands of tests would fill
        shown = self.capsys.readouterr()
        return left.value.code, shown.out, shown.err

    def printed(self, *words):
        """Run a command that succeeds without a word on stderr, and return what it prints."""
        code, out, err = self(*words)
        assert (code, err) == (0, "")
        return out

    def result(self, *words):
        """Return the result that a command prints as JSON."""
        return json.loads(self.printed(*words, "--json"))["result"]

    def refused(self, *words):
        """Run a command that is refused in one line and prints nothing else, and return the line."""
        code, out, err = self(*words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        return err


@pytest.fixture
def simfl_(monkeypatch, tmp_path, capsys):
    """Return the command line in the test's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SIMFL_DATA", raising=False)
    return CommandLine(monkeypatch, capsys)


def made_up_strategy(strategy, size, releases, takes):
    """Return coefficients that the optimizer of strategies, which compiles for seconds, might return."""
    if strategy == "banded":
        return (tuple(0.5**k for k in range(min(size, releases))),)
    return tuple(0.998 - 0.068 * k for k in range(size)), tuple(0.05 + 0.25 * k for k in range(size))


@pytest.fixture
def made_up_strategies(monkeypatch):
    """Replace the optimizer of strategies by coefficients that it might return."""
    monkeypatch.setattr("simfl.privacy.strategies.optimized", made_up_strategy)
