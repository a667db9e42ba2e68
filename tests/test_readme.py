import re
import tomllib
from pathlib import Path

import pytest
import yaml

import simfl
from simfl.cli.app import command
from simfl.papers.asynchrony.tuning import ENTRIES, WORLDS
from simfl.records import SCHEMAS, common_accuracy
from simfl.scenario import loads

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LOOKING = (ROOT / "docs" / "looking.md").read_text(encoding="utf-8")


def test_the_scenario_in_the_readme_is_valid_and_the_page_short():
    (scenario,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert loads(scenario).name == "one-slow-learner"
    assert f"has {len([*(ROOT / 'scenarios').glob('*/*.yaml')])} of\nthem" in README
    assert len(README.splitlines()) <= 150


def test_the_page_of_scenarios_has_a_row_for_each_folder():
    page = (ROOT / "scenarios" / "README.md").read_text(encoding="utf-8")
    folders = {path.name for path in (ROOT / "scenarios").iterdir() if path.is_dir()}
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.M)) == folders
    assert all((ROOT / "scenarios" / link).exists() for link in re.findall(r"\]\(([^)]+)\)", page))


def test_the_commands_in_the_readme_exist():
    blocks = "\n".join(README.split("```")[1::2])
    commands = set(re.findall(r"^simfl (\w+)", blocks, re.MULTILINE))
    assert {"new", "run", "plot"} <= commands <= set(command().commands)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_columns_on_the_page_are_those_of_the_tables(name):
    (columns,) = re.findall(rf"^\| `{name}` \|.*\| (.*) \|$", LOOKING, re.MULTILINE)
    assert re.sub(r" \([^)]*\)", "", columns).split(", ") == SCHEMAS[name].names


@pytest.mark.slow
def test_the_python_in_the_readme_runs(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(code.replace('"epochs": 5', '"epochs": 1'), "README.md", "exec"), names)
    assert names["run"].folder == Path("results/scenario/001")
    assert names["swept"].metrics["count"].unique().tolist() == [8, 16]
    assert len(names["ax"].lines) == 1


def test_the_error_in_the_readme_is_what_simfl_says(simfl_, tmp_path):
    ((option, message),) = re.findall(r'^\$ simfl run my.yaml --set (\S+="[^"]*")\n(.*)$', README, re.MULTILINE)
    (tmp_path / "my.yaml").write_text("algorithm: adpsgd\n")
    assert simfl_("run", "my.yaml", "--set", option.replace('"', "")) == (2, "", message + "\n")


def test_the_updates_of_the_demo_in_the_readme_are_those_of_its_runs(tmp_path, without_numbers):
    (told,) = re.findall(r"^updates +│ ([\d,]+) +│ ([\d,]+)$", README, re.MULTILINE)
    scenarios = ROOT / "scenarios" / "demo"
    runs = [simfl.run(scenarios / name, out=tmp_path) for name in ("adpsgd.yaml", "sync.yaml")]
    assert tuple(f"{run.manifest.updates:,}" for run in runs) == told


@pytest.mark.slow
def test_the_accuracies_of_the_demo_in_the_readme_are_those_of_its_runs(tmp_path):
    runs = [simfl.run(ROOT / "scenarios" / "demo" / name, out=tmp_path) for name in ("adpsgd.yaml", "sync.yaml")]
    (*written, target) = map(
        float,
        re.search(r"test accuracy +│ (\S+)% +│ (\S+)%\s+time to (\S+)%", README).groups(),
    )
    ends = [100 * run.metrics["test_accuracy"].iloc[-1] for run in runs]
    assert written == pytest.approx(ends, abs=1), "rounding is a matter of the machine"
    assert target == pytest.approx(100 * common_accuracy(runs), abs=1)


def test_numbers_that_the_first_pages_give_are_counted():
    pages = {
        name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("for_comparing", "asynchrony")
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (jax,) = re.findall(r"^jax==(.*)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in README
    assert f"with JAX {jax};" in README
    (ten,) = re.findall(r"^## Ten commands\n\n```\n(.*?)```", README, re.DOTALL | re.MULTILINE)
    assert len([line for line in ten.splitlines() if line.startswith("simfl ")]) == 10
    told = f"{len(ENTRIES)} algorithms in four worlds"
    assert (len(WORLDS), told in pages["for_comparing"]) == (4, True), told
    assert f"four worlds, {len(ENTRIES)} algorithms" in pages["asynchrony"]
    question = yaml.safe_load((ROOT / "simfl" / "scenario" / "question.yaml").read_text(encoding="utf-8"))
    assert (len(question["grid"]["algorithm"]), question["seeds"]) == (4, 5)
    assert "a study of four algorithms" in pages["for_comparing"]
    assert "five seeds" in pages["for_comparing"]


def test_the_version_is_the_same_wherever_it_stands():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (in_bibtex,) = re.findall(r"version = \{(.*?)\}", README)
    (newest, *_) = re.findall(r"^## (\d\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    recipe = yaml.safe_load((ROOT / "packaging" / "recipe.yaml").read_text(encoding="utf-8"))
    versions = {citation["version"], project["version"], in_bibtex, newest, recipe["context"]["version"]}
    assert versions == {simfl.__version__}
    assert citation["title"] in README.replace("\n", " ")


def test_every_work_that_the_paper_cites_is_in_its_bibliography():
    paper, entries = ((ROOT / "paper" / f"paper.{end}").read_text(encoding="utf-8") for end in ("md", "bib"))
    assert set(re.findall(r"\[@(\w+)\]", paper)) == set(re.findall(r"^@\w+\{(\w+),", entries, re.MULTILINE))
    assert len(paper.split()) <= 1300


def test_the_recipe_of_conda_requires_what_a_run_requires():
    renamed = {"matplotlib-base": "matplotlib", "mypy_extensions": "mypy-extensions"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = yaml.safe_load((ROOT / "packaging" / "recipe.yaml").read_text(encoding="utf-8"))
    python, *run = (line.partition(" ") for line in recipe["requirements"]["run"])
    assert python[2] == project["requires-python"]
    assert {renamed.get(name, name) + bounds for name, _, bounds in run} == {*map(str.lower, project["dependencies"])}


def test_the_image_has_no_more_than_simfl():
    lines = (ROOT / "packaging" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 15
    assert {line.split(" ")[0] for line in lines if line[:1].isalpha()} <= {
        "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD"
    }  # fmt: skip
    assert "USER 1000" in lines, "not root"
    assert "ENV HOME=/tmp" in lines, "a user of the host has no home in the image"
    assert all("--no-cache-dir" in line for line in lines if "pip " in line and line.startswith("RUN"))
