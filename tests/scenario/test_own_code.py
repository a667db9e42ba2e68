"""Users' modules: they are looked up beside the scenario, fail in one line, and are not run when results are read."""

import hashlib
import sys

import pytest

from simfl.accounts.check import check_run
from simfl.algorithms import Algorithm
from simfl.errors import ScenarioError
from simfl.records import RunFolder, read
from simfl.reports.page import write_report
from simfl.scenario import loads
from simfl.scenario.own_code import is_known, load_class, look_beside, make, modules_of, nothing_loaded, source_digests

FAILING = {
    "raises": ("x = 1\nraise OSError('no\\nfile')", r"raised OSError: no file in .*own_raises\.py:2; correct"),
    "exits": ("import sys\nsys.exit()", r"raised SystemExit in .*own_exits\.py:2; correct the module"),
    "generator": ("raise GeneratorExit", r"raised GeneratorExit in .*own_generator\.py:1; correct the module"),
    "divides": ("def f():\n    1 / 0\nf()", r"raised ZeroDivisionError: .* in .*own_divides\.py:2; correct"),
    "syntax": ("x = (", r"raised SyntaxError: .* in .*own_syntax\.py:1; correct the module"),
    "imports": ("import nowhere_at_all", r"\(No module named 'nowhere_at_all'\) in .*own_imports\.py:1, expected"),
    "looks": ("import nowhere_at_all", r"; looked for it in .*/test_error_of_an_\S*,? .*and what Python has"),
    "empty": ("", r"\(module 'own_empty' has no attribute 'Mine'\), expected module:name"),
    "other": ("Mine = 3", r"'own_other:Mine' is not a subclass of simfl\.algorithms\.Algorithm"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_error_of_an_imported_module_is_one_line(name, tmp_path, monkeypatch):
    text, message = FAILING[name]
    (tmp_path / f"own_{name}.py").write_text(text)
    monkeypatch.setattr(sys, "path", list(sys.path))
    look_beside([tmp_path / "s.yaml"])
    with pytest.raises(ScenarioError, match=rf"^algorithm\.kind: .*{message}") as caught:
        load_class(f"own_{name}:Mine", Algorithm, "algorithm.kind")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [":Mine", "own:", "..:x", ".own:Mine", "own mod:Mine", "\x00:Mine"])
def test_invalid_names_of_own_code_are_rejected(name):
    with pytest.raises(ScenarioError, match=r"^algorithm\.kind: cannot load"):
        load_class(name, Algorithm, "algorithm.kind")


MAKING = """import json
def make(width, depth=2):
    if width < 0:
        return json.loads('{')
    return width * depth
number = 3
"""


@pytest.fixture
def making(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "own_making", raising=False)
    (tmp_path / "own_making.py").write_text(MAKING)
    return tmp_path / "own_making.py"


def test_own_code_gets_its_options_and_is_reloaded_after_changes(making):
    assert make("own_making:make", {"width": 3}, "model.kind") == 6
    making.write_text(MAKING.replace("depth=2", "depth=5"))
    assert make("own_making:make", {"width": 3}, "model.kind") == 15


@pytest.mark.parametrize(("name", "options", "message"), [
    ("make", {"widht": 3}, r"^model\.options: 'own_making:make' takes \(width, .*, found widht .*did you mean"),
    ("make", {}, r"^model\.options: 'own_making:make' takes .*, found none \(missing a required argument: 'width'"),
    ("number", {}, r"^model\.kind: 'own_making:number' cannot be called, expected a function or a class$"),
    ("mkae", {}, r"has no attribute 'mkae'\), .*; did you mean 'make'\?$"),
    ("make", {"width": -1}, r"^model\.kind: 'own_making:make' raised JSONDecodeError: .* in .*own_making\.py:4$"),
])  # fmt: skip
def test_failure_of_own_code_is_one_line(making, name, options, message):
    with pytest.raises(ScenarioError, match=message):
        make(f"own_making:{name}", options, "model.kind")


def test_objects_from_python_cannot_be_loaded_by_name():
    with pytest.raises(
        ScenarioError, match=r"^model\.kind: 'object:Net' is an object .*again as model=\.{3} of simfl\.run"
    ):
        make("object:Net", {}, "model.kind")


def test_sources_of_own_code_are_found_without_running_them(making):
    scenario = {
        "model": {"kind": "own_making:make", "options": {"kind": "not:this"}},
        "data": {"set": "digits"},
        "algorithm": {"kind": "adpsgd", "optimizers": [{"kind": "own_nowhere:x"}, {"kind": "object:y"}]},
    }
    assert modules_of(scenario) == ["own_making", "own_nowhere"]
    making.write_text("raise AssertionError")
    before = source_digests(scenario)
    assert before == {"own_making": hashlib.sha256(b"raise AssertionError").hexdigest(), "own_nowhere": ""}
    assert not is_known(before)
    making.write_text(MAKING)
    assert source_digests(scenario) != before


def test_reading_results_loads_no_code(tmp_path, monkeypatch):
    (tmp_path / "own_marker.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with nothing_loaded(), pytest.raises(ScenarioError, match="is code beside the scenario, which is not run to look"):
        load_class("own_marker:Mine", Algorithm, "algorithm.kind")
    assert "own_marker" not in sys.modules


def test_privacy_check_runs_no_code_in_the_results(make_run, monkeypatch):
    folder = make_run(privacy={"mechanism": "gaussian"})
    scenario = "algorithm: {kind: 'own_trap:Mine'}\nprivacy: {mechanism: gaussian}\nstop: {updates: 9}\n"
    RunFolder(folder).write_scenario(loads(scenario, "demo").to_yaml())
    (folder / "own_trap.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(str(folder))
    with pytest.raises(ScenarioError, match=r"'own_trap:Mine' is code beside the scenario, which is not run to look"):
        check_run(read(folder))
    page = write_report([folder], folder / "report.html", check=check_run).read_text()
    assert "is code beside the scenario" in page
    assert "own_trap" not in sys.modules
