import re
from pathlib import Path

import pytest
from typer.main import get_command

from simfl.cli import app
from simfl.records import SCHEMAS
from simfl.scenario import loads

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_scenario_in_the_readme_is_valid():
    (text,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert loads(text).name == "one-slow-learner"


def test_the_commands_in_the_readme_exist():
    blocks = "\n".join(README.split("```")[1::2])
    commands = set(re.findall(r"^simfl (\w+)", blocks, re.MULTILINE))
    assert {"new", "run", "plot"} <= commands <= set(get_command(app).commands)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_columns_in_the_readme_are_those_of_the_tables(name):
    (columns,) = re.findall(rf"^\| `{name}` \|.*\| (.*) \|$", README, re.MULTILINE)
    assert re.sub(r" \([^)]*\)", "", columns).split(", ") == SCHEMAS[name].names
