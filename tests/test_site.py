"""The site is built without a warning, and its tutorial says what is so."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from simfl.cli.app import app
from simfl.scenario import load, loads

ROOT = Path(__file__).parents[1]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
COMMANDS = "\n".join(
    block for page in (ROOT / "docs").glob("*.md") for block in page.read_text(encoding="utf-8").split("```")[1::2]
)


def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    pages = {path.parent.name for path in (tmp_path / "site").glob("*/index.html")}
    assert pages >= {path.stem for path in (ROOT / "docs").glob("*.md") if path.stem != "index"} | {"contributing"}
    # It works without a network: nothing but links leads elsewhere.
    for path in (tmp_path / "site").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r'<(?:script|img|iframe)[^>]*src="(?:https?:)?//|<link[^>]*href="(?:https?:)?//', text)


def test_the_tutorial_has_the_files_that_it_names():
    scenario, study = re.findall(r"```yaml\n(.*?)```", TUTORIAL, re.DOTALL)
    folder = ROOT / "scenarios" / "tutorial"
    assert loads(scenario).digest() == load(folder / "hospitals.yaml").digest()
    assert yaml.safe_load(study) == yaml.safe_load((folder / "studies" / "waiting.yaml").read_text(encoding="utf-8"))
    for path in re.findall(r"scenarios/[\w/-]+\.yaml", TUTORIAL):
        assert (ROOT / path).exists(), path


def test_changes_in_the_tutorial_are_valid():
    changes = re.findall(r'--set ("[^"]+"|\S+)', TUTORIAL)
    assert len(changes) >= 5
    for change in changes:
        path, _, value = change.strip('"').partition("=")
        load(ROOT / "scenarios" / "tutorial" / "hospitals.yaml", [f"{path}={value.strip(chr(34))}"])


def test_commands_in_the_pages_exist():
    groups = get_command(app).commands
    for name, second in re.findall(r"^simfl ([\w-]+)(?: ([\w-]+))?", COMMANDS, re.MULTILINE):
        assert name in groups, name
        if hasattr(groups[name], "list_commands"):
            assert second in groups[name].list_commands(None) or not second or second.startswith("--"), (
                f"{name} {second}"
            )


def test_the_example_of_an_own_algorithm_is_valid(simfl_):
    code, out, err = simfl_("validate", ROOT / "notebooks" / "own_algorithm" / "frugal.yaml")
    assert (code, err) == (0, "")
    assert "my_gossip:FrugalGossip" in out
