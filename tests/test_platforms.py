"""Scenarios, data and results from other systems: ends of lines, marks, spaces and umlauts, no locks and no SIGHUP."""

import ast
import math
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import simfl
from simfl import signals
from simfl.bench import measuring
from simfl.errors import ScenarioError
from simfl.live import launching
from simfl.records import locks

ROOT = Path(__file__).parents[1]
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


@pytest.mark.slow
def test_a_run_and_its_figure_with_an_ascii_locale_and_no_home(tmp_path):
    folder = tmp_path / "Läufe mit Leerzeichen"
    folder.mkdir()
    home = tmp_path / "file"  # no folder can be made in it, not even by root
    home.touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "XDG_"))}
    environment |= {"LC_ALL": "C", "HOME": str(home), "PYTHONPATH": str(ROOT)}
    for arguments in (
        ("new", "prüf lauf.yaml"),
        ("run", "prüf lauf.yaml", "--set", "stop={updates: 8}", "--set", "evaluate={every: {updates: 8}}"),
        ("plot", "results/prüf-lauf/001", "--save", "bild ü.png"),
    ):
        command = [sys.executable, "-m", "simfl", *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        assert "ü" in done.stdout.decode()
    assert (folder / "bild ü.png").stat().st_size
    assert not home.stat().st_size


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


def test_a_system_without_fifos_has_no_live_runs_and_without_resources_no_peak(monkeypatch):
    monkeypatch.delattr(os, "mkfifo")
    with pytest.raises(ScenarioError, match="expected Linux or macOS"):
        launching.check_mpi()
    monkeypatch.setitem(sys.modules, "resource", None)
    assert math.isnan(measuring._peak_bytes())


#: Modules and attributes that Windows lacks.
MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "termios"}
NAMES = {"SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "fork", "geteuid", "getpgid", "getuid", "killpg", "mkfifo"}
NAMES |= {"pthread_sigmask", "register_at_fork", "sched_getaffinity", "setpgrp", "setsid", "sysconf"}


def unguarded(tree):
    """Yield the lines that use what Windows lacks, outside of functions that ask whether it is there."""
    asked = {node.args[1].value for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) > 1
             and isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr")
             and isinstance(node.args[1], ast.Constant)}  # fmt: skip
    tried = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.Try) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in tried:
            names = [getattr(node, "module", None), *(alias.name for alias in node.names)]
            yield from (node.lineno for name in names if name in MODULES)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("os", "signal"):
            yield from [node.lineno] * (node.attr in NAMES - asked)


def test_what_windows_lacks_is_asked_for_before_it_is_used():
    package, lacking = Path(simfl.__file__).parent, re.compile(rf"\b({'|'.join(MODULES | NAMES)})\b")
    texts = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    trees = {path: ast.parse(text) for path, text in texts.items() if lacking.search(text)}
    assert not {f"{path.relative_to(package)}:{line}" for path, tree in trees.items() for line in unguarded(tree)}
    assert [*unguarded(ast.parse("import fcntl\nos.fork()\nif hasattr(os, 'getuid'):\n    os.getuid()"))] == [1, 2]


def imports(path):
    """Yield the packages that a file imports, other than Python's and its neighbors."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = (
            {alias.name for alias in node.names}
            if isinstance(node, ast.Import)
            else {getattr(node, "module", "") or "simfl"}
        )
        yield from {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"simfl", "tests"}


def test_the_workflow_of_platforms_installs_what_its_tests_need():
    workflow = (ROOT / ".github" / "workflows" / "platforms.yml").read_text(encoding="utf-8")
    (installed,) = re.findall(r"pip install -c constraints.txt \. (.*)", workflow)
    (paths,) = re.findall(r"pytest (tests/.*) -m", workflow)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    present = {re.split(r"[><=]", line)[0].lower() for line in settings["project"]["dependencies"]} | {
        *installed.split()
    }
    named = [ROOT / path for path in (*paths.split(), "tests/conftest.py", "tests/helpers.py")]
    files = [file for path in named for file in (path.rglob("*.py") if path.is_dir() else [path])]
    packages = {"jaxlib": "jax", "sklearn": "scikit-learn", "yaml": "pyyaml"}
    needed = {packages.get(name, name) for file in files for name in imports(file)}
    needed |= {"pytest-xdist"} if "--dist" in settings["tool"]["pytest"]["ini_options"]["addopts"] else set()
    assert needed <= present
