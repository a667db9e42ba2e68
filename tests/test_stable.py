"""What 1.0 promises is what tests/stable.json has recorded: a change of it is a decision (docs/stability.md).

python tests/test_stable.py     # records the present names, schema, tables and plugin door
"""

import dataclasses
import hashlib
import inspect
import json
from pathlib import Path

import pytest

import simfl
from simfl import experimental
from simfl.cli.app import command
from simfl.plugins import GROUP, Plugin
from simfl.records import SCHEMAS
from simfl.records.folder import Manifest
from simfl.records.tables import UNDIGESTED
from simfl.scenario import Scenario
from simfl.version import __version__

RECORDED = Path(__file__).with_name("stable.json")
PAGE = (Path(__file__).parents[1] / "docs" / "stability.md").read_text(encoding="utf-8")
#: Words of a schema for readers; they may change.
ABOUT = ("description", "examples", "title")


PARTS = ("names", "experimental", "commands", "plugin door", "manifest", "tables", "keys", "hash of the schema")


def fields_of(thing):
    return {field.name: str(field.type) for field in dataclasses.fields(thing)}


def parameters_of(name):
    """Return the parameters of a public function, "" for a class or a text."""
    value = getattr(simfl, name)
    return ", ".join(inspect.signature(value).parameters) if inspect.isfunction(value) else ""


def without_words(part):
    if isinstance(part, dict):
        names = "properties" in part  # a key may be called description
        kept = {key: value for key, value in part.items() if key not in ABOUT or not isinstance(value, str | list)}
        return {
            key: {name: without_words(one) for name, one in value.items()} if key in ("properties", "$defs") and names
            else without_words(value)
            for key, value in kept.items()
        }  # fmt: skip
    return [without_words(one) for one in part] if isinstance(part, list) else part


def present():
    """Return what is promised, as plain values."""
    schema = Scenario.model_json_schema(by_alias=True)
    sections = {"Scenario": schema, **schema["$defs"]}
    text = json.dumps(without_words(schema), sort_keys=True)
    commands = command().commands
    return {
        "names": {name: parameters_of(name) for name in sorted(simfl.__all__)},
        "experimental": sorted(experimental.__all__),
        "commands": {name: " ".join(sorted(getattr(commands[name], "commands", ()))) for name in sorted(commands)},
        "plugin door": {"group": GROUP, **fields_of(Plugin)},
        "manifest": fields_of(Manifest),
        "tables": {
            name: {field.name: str(field.type) for field in table} for name, table in (SCHEMAS | UNDIGESTED).items()
        },
        "keys": {name: " ".join(section.get("properties", {})) for name, section in sorted(sections.items())},
        "hash of the schema": hashlib.sha256(text.encode()).hexdigest(),
    }


def gone(before, now, path=""):
    """Yield what was recorded and is not there now."""
    for key, value in before.items():
        if key not in now:
            yield f"{path}{key}"
        elif isinstance(value, dict):
            yield from gone(value, now[key], f"{path}{key}: ")
        elif path.startswith(("keys: ", "names: ", "commands: ")):
            words = [set(text.replace(",", " ").split()) for text in (value, now[key])]
            yield from (f"{path}{key}: {word}" for word in sorted(words[0] - words[1]))
        elif value != now[key] and key != "hash of the schema":
            yield f"{path}{key}: {value}"


@pytest.mark.parametrize("part", PARTS)
def test_what_is_promised_is_what_was_recorded(part):
    before, now = json.loads(RECORDED.read_text(encoding="utf-8")), present()
    lost = [] if part in ("experimental", "hash of the schema") else sorted(gone({part: before[part]}, now))
    assert not lost, (
        f"simfl {__version__} promised these until 2.0 (docs/stability.md): {lost}. Keep them: a key that has another "
        "name goes into `renamed` of its section, and into `removed` after two minor versions. If the decision is to "
        "break the promise, say so in CHANGELOG.md and record it: python tests/test_stable.py"
    )
    assert now[part] == before[part], (
        "something was added, or the type or default of a key changed. Additions are fine; another default or a "
        "narrower type needs a line in CHANGELOG.md. Then record it: python tests/test_stable.py"
    )


def test_the_page_on_stability_names_what_is_promised():
    assert set(simfl.__all__) - {"__version__"} <= set(PAGE.replace("`", " ").replace(",", " ").split())
    assert all(f"`{name}`" in PAGE for name in experimental.__all__)
    assert GROUP in PAGE


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(present(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
