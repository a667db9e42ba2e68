"""The pages in docs/ say what is so."""

import re
import runpy
from pathlib import Path

import pytest
from typer.main import get_command

from simfl.algorithms import ALGORITHMS
from simfl.cli.app import app
from simfl.reproduction import PAPERS
from simfl.scenario import Scenario
from simfl.scenario.fields import DISCRIMINATORS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")])


def test_the_reference_of_fields_is_up_to_date():
    written = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))
    assert written["TARGET"].read_text(encoding="utf-8") == written["reference"](), "run docs/make_reference.py"


def test_the_reference_mentions_every_field_that_has_a_schema():
    page = (ROOT / "docs" / "scenario.md").read_text(encoding="utf-8")
    schema = Scenario.model_json_schema()
    fields = {key for part in [schema, *schema["$defs"].values()] for key in part["properties"]}
    assert len(fields) > 80
    told = set(re.findall(r"\*\*(\w+)\*\*", page)) | set(re.findall(r"^#+ .*?(\w+)$", page, re.MULTILINE))
    assert fields - told <= set(DISCRIMINATORS)


def test_the_verdicts_are_those_of_the_tables():
    written = runpy.run_path(str(ROOT / "docs" / "make_reproduction.py"))
    assert written["TARGET"].read_text(encoding="utf-8") == written["page"](), "run docs/make_reproduction.py"
    for name in PAPERS:
        claims = written["claims_of"](name)
        assert claims, f"no verdicts on {name} in results/reference/"
        page = (ROOT / "docs" / f"reproduction-{name}.md").read_text(encoding="utf-8")
        for claim in claims:
            assert f"| {claim['claim']} | **{claim['words']}** |" in page
            figure = ROOT / "docs" / "figures" / "reproduction" / name / f"{claim['figure']}.png"
            assert not claim["figure"] or figure.exists()


def test_every_algorithm_is_in_the_catalogue():
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    catalogue = page.partition("## What an update")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", catalogue, re.MULTILINE)) == set(ALGORITHMS)


def command_of(words):
    """Return the command that words of a command line name, and the words after it."""
    command, rest = get_command(app), list(words)
    while rest and hasattr(command, "list_commands") and rest[0] in command.list_commands(None):
        command = command.resolve_command(None, [rest.pop(0)])[1]
    return command, rest


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page):
    text = re.sub(r"\\\\\n", " ", page.read_text(encoding="utf-8"))
    blocks = "\n".join(re.findall(r"```(?:sh|bash)?\n(.*?)```", text, re.DOTALL))
    for line in [*re.findall(r"^(?:\$ )?simfl (.*)$", blocks, re.MULTILINE), *re.findall(r"`simfl ([^`]*)`", text)]:
        command, rest = command_of(line.split(" #")[0].split())
        assert not (command.name == "simfl" and rest and re.fullmatch(r"[a-z]\w*", rest[0])), f"no such command: {line}"
        options = {name for parameter in command.params for name in parameter.opts} | {"--help", "-h"}
        told = {word.split("=")[0].rstrip(",.") for word in rest if re.match(r"--?[a-z]", word)}
        assert told <= options, f"simfl {line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        file, _, anchor = target.partition("#")
        if "://" in target:
            continue
        linked = page.parent / file if file else page
        assert linked.exists(), target
        headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, target
