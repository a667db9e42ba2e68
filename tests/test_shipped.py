"""The scenarios of simfl are there without a clone, and a user's own files come first."""

from pathlib import Path

import pytest

import simfl
from simfl import shipped
from simfl.errors import ScenarioError
from simfl.runs import runner
from simfl.studies.plan import load_study

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _outside_of_the_clone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["demo/adpsgd", "demo/adpsgd.yaml", "scenarios/demo/adpsgd.yaml"])
def test_a_scenario_of_simfl_is_loaded_by_its_name(name):
    assert simfl.load(name) == simfl.load(ROOT / "scenarios" / "demo" / "adpsgd.yaml")


@pytest.mark.usefixtures("without_numbers")
@pytest.mark.parametrize("name", ["devices/phones", "known/matrices", "network/satellites"])
def test_files_that_scenarios_of_simfl_name_are_there(name):
    runner.prepare(simfl.load(name))


def test_a_study_of_simfl_finds_its_base():
    name = next((ROOT / "scenarios").rglob("studies/*.yaml")).relative_to(ROOT / "scenarios")
    own, clones = load_study(name), load_study(ROOT / "scenarios" / name)
    assert own.runs == clones.runs


def test_files_of_a_user_come_first(tmp_path):
    own = tmp_path / "demo" / "adpsgd.yaml"
    own.parent.mkdir()
    own.write_text("description: mine\nalgorithm: {kind: sync_sgd}\n")
    assert simfl.load("demo/adpsgd.yaml").description == "mine"
    assert shipped.path_of(own) == own


def test_a_misspelt_name_of_a_scenario_of_simfl_gets_the_right_one():
    with pytest.raises(ScenarioError, match="found nothing there; did you mean 'demo/adpsgd'"):
        simfl.load("demo/adspgd")


@pytest.mark.parametrize("name", ["demo/adpsg", "../scenarios/demo/adpsgd.yaml", "demo", "adpsgd.yaml"])
def test_other_names_are_refused(name):
    with pytest.raises(ScenarioError, match="expected a scenario file, found"):
        simfl.load(name)


def test_files_of_data_are_looked_up_by_their_whole_path_only():
    assert shipped.path_of(Path("devices/devices.csv")) == Path("devices/devices.csv")
    assert shipped.path_of(Path("scenarios/devices/devices.csv")).is_file()
