"""Loads scenarios from files, texts and plain values."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path as FilePath
from typing import Any

from simfl import shipped
from simfl.errors import ScenarioError, to_path
from simfl.scenario.overrides import apply_override, parse_override
from simfl.scenario.problems import Problem, show, suggestion
from simfl.scenario.scenario import Scenario, name_from, validated
from simfl.scenario.syntax import MAX_CHARACTERS, Document, read


def load(path: str | PathLike[str] | Mapping[str, Any], overrides: Iterable[str] = ()) -> Scenario:
    """Load a scenario file, or check plain values.

    Args:
        path: a YAML file, or a mapping with its content.
        overrides: changes of the form `key.path=value`, applied in order.

    Raises:
        ScenarioError: the file cannot be read, or it or an override is not valid; one line per problem.
    """
    if isinstance(path, Mapping):
        return from_mapping(path, overrides=overrides)
    file = shipped.path_of(to_path(path, "the path of a scenario, or a mapping of what would stand in it"), short=True)
    return _load_text(file_text(file), str(path), file.stem, overrides)


def loads(text: str, name: str = "scenario", overrides: Iterable[str] = ()) -> Scenario:
    """Load a scenario from YAML text.

    `name` is the name of the text in messages, and of the scenario if the text gives none.
    """
    return _load_text(text, name, name, overrides)


def from_mapping(mapping: Mapping[str, Any], name: str = "scenario", overrides: Iterable[str] = ()) -> Scenario:
    """Return the scenario of plain values, such as those of `Scenario.resolved`."""
    return _overridden(Document(dict(mapping), {}), name, name, overrides)


def content_of(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the content of a scenario file, unchecked.

    Raises:
        ScenarioError: it cannot be read, or is not a scenario.
    """
    file = shipped.path_of(to_path(path, "the path of a scenario"), short=True)
    content: dict[str, Any] = _document(file_text(file), str(path)).content
    return content


def _load_text(text: str, source: str, stem: str, overrides: Iterable[str]) -> Scenario:
    return _overridden(_document(text, source), source, stem, overrides)


def _overridden(document: Document, source: str, stem: str, overrides: Iterable[str]) -> Scenario:
    parsed = [parse_override(override) for override in overrides]
    content = copy.deepcopy(document.content) if parsed else document.content
    for override in parsed:
        apply_override(content, override)
    content = {"name": name_from(stem), **content}
    return validated(content, source, document.positions, [override.path for override in parsed])


def _document(text: str, source: str) -> Document:
    """Read a text; reject texts that are not scenarios."""
    document = read(text, source)
    if not isinstance(document.content, dict):
        found = "an empty document" if document.content is None else show(document.content)
        raise ScenarioError(f"{source}: expected key: value pairs, found {found}; 'simfl new' writes an example")
    if "base" in document.content and "algorithm" not in document.content:
        advice = f"run it with 'simfl sweep {source}', or give the scenario that its base names"
        raise ScenarioError(f"{source}: {Problem('a scenario', 'a study', advice)}")
    return document


def file_text(file: FilePath, what: str = "scenario") -> str:
    """Return a file's text; reject binary files. `what` names it in messages."""
    try:
        if not (file.is_file() or file.is_dir()) and file.exists():
            raise ScenarioError(f"{file}: expected a {what} file, found a device or a pipe; name a file")
        with file.open("rb") as stream:
            content = stream.read(4 * MAX_CHARACTERS + 1)
    except FileNotFoundError:
        others = [other.name for other in file.parent.glob("*.y*ml")] if file.parent.is_dir() else []
        advice = suggestion(file.name, others, "") or suggestion(file.as_posix(), shipped.names_beside(file), "")
        advice = advice or "check the path, or write one with 'simfl new'"
        raise ScenarioError(f"{file}: expected a {what} file, found nothing there; {advice}") from None
    except IsADirectoryError:
        raise ScenarioError(f"{file}: expected a {what} file, found a folder; name a file in it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ScenarioError(f"{file}: expected a readable file, found an error ({reason}); check the path") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"the byte 0x{content[error.start]:02x} at position {error.start}"
        raise ScenarioError(f"{file}: expected text in UTF-8, found {found}; save it as UTF-8") from None
