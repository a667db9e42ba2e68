"""`simfl schema`, with which editors check scenarios."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from simfl.scenario import load
from simfl.scenario.syntax import read
from simfl.scenario.template import template

SCENARIOS = Path(__file__).parents[2] / "scenarios"
FILES = sorted(path for path in SCENARIOS.rglob("*.yaml") if path.parent.name != "studies")


@pytest.fixture(scope="module")
def validator():
    import contextlib
    import io

    from simfl.cli.schema import schema

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        schema()
    document = json.loads(printed.getvalue())
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


@pytest.mark.slow(every=20)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_schema_accepts_every_scenario_as_written_and_as_resolved(validator, path):
    validator.validate(read(path.read_text(encoding="utf-8"), path.name).content)
    validator.validate(load(path).resolved())


def test_schema_accepts_the_scenario_of_simfl_new_which_names_it(validator):
    first, rest = template().split("\n", 1)
    assert first == "# yaml-language-server: $schema=simfl.schema.json"
    validator.validate(read(rest, "new").content)


@pytest.mark.parametrize("text", [
    "{}",
    "{algorithm: adpsgd, linkz: {}}",
    "{algorithm: {kind: adpsgd, stepsize: 1}}",
    "{algorithm: nonsense}",
    "{algorithm: adpsgd, clients: -1}",
    "{algorithm: adpsgd, topology: {kind: regular, degre: 3}}",
    "{algorithm: adpsgd, topology: {degree: 3}}",
    "{algorithm: adpsgd, data: {set: mnist, options: {}}}",
])  # fmt: skip
def test_schema_rejects_typos(validator, text):
    assert not validator.is_valid(yaml.safe_load(text))
