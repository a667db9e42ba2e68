"""Compiled modules are detected, and rejected if their sources have changed."""

import hashlib
import json
import runpy
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from simfl.compiled import check_compiled
from simfl.errors import SimflError

ROOT = Path(__file__).parents[1]
SOURCE = "ANSWER = 42\n"


def package(folder, told=True):
    """A package with one compiled module beside its source, and the digest of the compiled source."""
    room = folder / "simfl" / "world"
    room.mkdir(parents=True)
    (room / "engine.py").write_text(SOURCE)
    if told:
        digest = hashlib.sha256(SOURCE.encode()).hexdigest()
        (folder / "simfl" / "compiled.json").write_text(json.dumps({"simfl/world/engine.py": digest}))
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


def test_only_wheels_are_compiled(monkeypatch):
    setup = runpy.run_path(str(ROOT / "setup.py"))
    assert all((ROOT / path).exists() for path in setup["HOT"])
    for argv, choice in ((["editable_wheel"], "always"), (["bdist_wheel"], "never")):
        monkeypatch.setattr("sys.argv", ["setup.py", *argv])
        monkeypatch.setenv("SIMFL_COMPILED", choice)
        assert setup["extensions"]() == []


def test_a_wheel_is_built_without_a_compiler(monkeypatch, capsys):
    setup = runpy.run_path(str(ROOT / "setup.py"))
    monkeypatch.setattr("sys.argv", ["setup.py", "bdist_wheel"])
    monkeypatch.setenv("CC", "/nowhere/cc")
    monkeypatch.delenv("SIMFL_COMPILED", raising=False)
    assert setup["extensions"]() == []
    assert "not compiled, there is no C compiler" in capsys.readouterr().err
