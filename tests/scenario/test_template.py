"""The scenario that `simfl new` writes is valid, and so is every option in its comments."""

import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from simfl.cli.app import app
from simfl.scenario import loads
from simfl.scenario.template import template
from simfl.studies.plan import load_study

OPTION = re.compile(r"( *)#([a-z_]+): ")


def _options(name: str = "template") -> list[int]:
    return [number for number, line in enumerate(template(name).splitlines()) if OPTION.match(line)]


def _with_option(number: int, name: str = "template") -> str:
    """Return the template with one option, in place of the line or block above with the same key."""
    lines = template(name).splitlines()
    match = OPTION.match(lines[number])
    assert match
    indent, key = match.groups()
    begin = 0
    if indent:
        begin = max(other for other in range(number) if lines[other][:1].isalpha())  # the section it is in
    taken = [other for other in range(begin, number) if lines[other].startswith(f"{indent}{key}:")]
    if taken:
        end = taken[0] + 1
        while lines[end].startswith(f"{indent}  "):
            end += 1
        lines[taken[0] : end] = [""] * (end - taken[0])
    lines[number] = lines[number].replace("#", "", 1)
    return "\n".join(lines) + "\n"


def test_the_template_is_a_scenario_that_names_its_units() -> None:
    scenario = loads(template(), "new")
    assert scenario.name == "new"
    assert scenario.warnings() == ()
    assert "ns, us, ms, s, min, h, d" in template()
    assert max(map(len, template().splitlines())) <= 120


def test_the_template_has_options_of_every_section() -> None:
    offered = {OPTION.match(template().splitlines()[number])[2] for number in _options()}  # type: ignore[index]
    assert len(_options()) >= 50
    assert offered >= {"name", "partition", "speed", "slowdowns", "topology", "latency", "availability", "step_size"}
    assert offered >= {"privacy", "stop", "evaluate", "execution", "record", "model", "exchange", "pairing"}


@pytest.mark.parametrize("number", _options(), ids=[template().splitlines()[n].strip()[:40] for n in _options()])
def test_every_commented_option_is_valid_without_its_sign(number: int) -> None:
    assert loads(_with_option(number), "new") != loads(template(), "new")


def test_the_question_is_a_study_of_four_tuned_algorithms_and_a_straggler(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    result = CliRunner().invoke(app, ["new", "--question", str(file)])
    assert f"simfl sweep {file}, and: simfl report results/mine" in result.output
    planner = load_study(file).tuning
    assert planner is not None
    plan = planner.chosen([{"algorithm.step_size": 0.3}] * 4)
    assert len(plan.runs) == 4 * 5
    assert {run.seed for run in plan.runs}.isdisjoint(planner.tuning_seeds)
    assert plan.runs[0].scenario.slowdowns[0].factor == 10
    assert max(map(len, template("question").splitlines())) <= 120


@pytest.mark.parametrize("number", _options("question"))
def test_every_option_of_the_question_is_valid_without_its_sign(number: int) -> None:
    content = yaml.safe_load(_with_option(number, "question"))
    assert content != yaml.safe_load(template("question"))
    assert load_study(content).runs
