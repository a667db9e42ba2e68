"""Compiled modules are detected, and rejected if their sources have changed."""

import copy
import dataclasses
import hashlib
import importlib
import json
import os
import pickle
import re
import runpy
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from simfl.compiled import check_compiled
from simfl.errors import SimflError
from simfl.world.compute import Constant
from simfl.world.steps import Steps

ROOT = Path(__file__).parents[1]
SOURCE = "ANSWER = 42\n"


def package(folder, told=True):
    """A package with one compiled module beside its source, and the digest of the compiled source."""
    room = folder / "simfl" / "world"
    room.mkdir(parents=True)
    (room / "engine.py").write_text(SOURCE)
    if told:
        digest = hashlib.sha256(SOURCE.encode()).hexdigest()
        (folder / "simfl" / "compiled.json").write_text(json.dumps({"sources": {"simfl/world/engine.py": digest}}))
    return folder / "simfl", {
        "simfl.world.engine": room / f"engine{EXTENSION_SUFFIXES[0]}",
        "simfl.streams": folder / "simfl" / "streams.py",
    }


def test_a_module_compiled_from_its_source_is_recognized(tmp_path):
    where, modules = package(tmp_path)
    assert check_compiled(modules, where)
    assert not check_compiled({"simfl.streams": modules["simfl.streams"]}, where)


@pytest.mark.parametrize("change", ["edited", "gone", "unknown"])
def test_a_stale_module_is_rejected(tmp_path, change):
    where, modules = package(tmp_path, told=change != "unknown")
    source = where / "world" / "engine.py"
    if change == "edited":
        source.write_text(SOURCE + "\n")
    elif change == "gone":
        source.unlink()
    with pytest.raises(SimflError, match=r"engine\..*expected engine.py to be what was compiled, found it changed"):
        check_compiled(modules, where)


#: Arguments of the frozen dataclasses in compiled modules, by class.
FROZEN = {
    "StalenessBound": (4, "drop"),
    "Constant": (2.0,),
    "Law": (Constant(1.0), 1.0),
    "Slowdown": (3.0, frozenset({1})),
    "Trace": (Steps((0.0,), (1.0,)), {0: Steps((0.0,), (2.0,))}),
    "Pace": ([1.0, 2.0], 0.5),
    "ServerModel": (1e6, None, 0.1),
}


def test_frozen_dataclasses_are_copied_pickled_and_replaced():
    """A compiled one takes no fields after it is made. This test also runs compiled (`make compiled`)."""
    hot = [
        importlib.import_module(path[:-3].replace("/", ".")) for path in runpy.run_path(str(ROOT / "setup.py"))["HOT"]
    ]
    classes = {
        name: one
        for module in hot
        for name, one in vars(module).items()
        if dataclasses.is_dataclass(one) and one.__dataclass_params__.frozen and one.__module__ == module.__name__
    }
    assert classes.keys() == FROZEN.keys()
    for name, one in classes.items():
        value = one(*FROZEN[name])
        copies = [copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value)), dataclasses.replace(value)]
        for other in copies:
            assert type(other) is one
            assert re.sub(" at 0x\\w+", "", repr(other)) == re.sub(" at 0x\\w+", "", repr(value))


def test_only_wheels_are_compiled(monkeypatch):
    setup = runpy.run_path(str(ROOT / "setup.py"))
    assert all((ROOT / path).exists() for path in setup["HOT"])
    for argv, choice in ((["editable_wheel"], "1"), (["bdist_wheel"], "0")):
        monkeypatch.setattr("sys.argv", ["setup.py", *argv])
        monkeypatch.setenv("SIMFL_COMPILE", choice)
        assert setup["extensions"](setup["reason_not_to"]()) == []


def test_a_wheel_is_built_without_a_compiler(monkeypatch, capsys):
    setup = runpy.run_path(str(ROOT / "setup.py"))
    monkeypatch.setattr("sys.argv", ["setup.py", "bdist_wheel"])
    monkeypatch.setenv("CC", "/nowhere/cc")
    monkeypatch.delenv("SIMFL_COMPILE", raising=False)
    assert setup["extensions"](setup["reason_not_to"]()) == []
    assert "not compiled, there is no C compiler" in capsys.readouterr().err


def test_a_wheel_is_built_without_mypy(monkeypatch, capsys):
    setup = runpy.run_path(str(ROOT / "setup.py"))
    monkeypatch.setattr("sys.argv", ["setup.py", "bdist_wheel"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delenv("SIMFL_COMPILE", raising=False)
    assert setup["extensions"](setup["reason_not_to"]()) == []
    assert "not compiled, there is no mypy" in capsys.readouterr().err


@pytest.mark.slow
def test_a_source_install_that_does_not_compile_says_why(tmp_path):
    """As `pip install .` does, without a package index: into a folder. `make compiled` builds one that compiles."""
    copy, target = tmp_path / "copy", tmp_path / "target"
    for name in ("simfl", "scenarios"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    options = ["--no-build-isolation", "--target", str(target), str(copy)]
    subprocess.run([*pip, *options], check=True, env={**os.environ, "SIMFL_COMPILE": "0"})
    assert not list(target.glob("simfl/tape/recording*.so"))
    code = "from simfl.cli.app import versions; print(versions()[0])"
    found = {**os.environ, "PYTHONPATH": str(target)}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=found, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip().split(", ", 1)[1] == "not compiled (SIMFL_COMPILE=0)"
    command = [sys.executable, "-m", "simfl", "validate", "demo/adpsgd", "devices/phones"]
    subprocess.run(command, cwd=tmp_path, env=found, check=True)  # with its scenarios and their files, without a clone
    assert {path.name for path in (target / "simfl" / "scenarios").iterdir()} == {
        path.name for path in (ROOT / "scenarios").iterdir() if path.name != "__pycache__"
    }
