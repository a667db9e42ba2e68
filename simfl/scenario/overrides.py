"""Overrides from the command line: `key.path=value`, list items by number."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from simfl.errors import ScenarioError
from simfl.scenario.problems import InvalidValueError, Path, Problem, invalid, show, spell
from simfl.scenario.syntax import read

SOURCE = "--set"
"""The source of overrides, for messages."""


@dataclass(frozen=True)
class Override:
    """A change: the new value at a key path."""

    path: Path
    value: Any


def parse_override(text: str) -> Override:
    """Return the change of `key.path=value`; the value is read as YAML.

    Raises:
        ScenarioError: there is no key, no `=`, or the value is not YAML.
    """
    key, equals, value = text.partition("=")
    try:
        path = path_of(key.strip() if equals else "")
    except InvalidValueError:
        problem = Problem("key.path=value", show(text), "write for example seed=3")
        raise ScenarioError(f"{SOURCE}: {problem}") from None
    return Override(path, read(value, f"{SOURCE}: {spell(path)}").content)


def path_of(key: str) -> Path:
    """Return a key path, such as ("clients", "count") for `clients.count`.

    Raises:
        InvalidValueError: a part of it is empty, or has spaces around it.
    """
    parts = key.split(".")
    if not all(part and part == part.strip() for part in parts):
        raise invalid("a key path", show(key), "write for example algorithm.step_size")
    return tuple(int(part) if part.isascii() and part.isdigit() and len(part) < 10 else part for part in parts)


def apply_overrides(mapping: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Return a copy of `mapping` with the overrides applied in order.

    Missing mappings and lists on the path are created; a list grows by one item at its end.

    Raises:
        ScenarioError: an override is malformed, or its path contains a value that is neither a mapping nor a list.
    """
    result = copy.deepcopy(dict(mapping))
    for override in overrides:
        apply_override(result, parse_override(override))
    return result


def apply_override(mapping: dict[str, Any], override: Override, source: str = SOURCE) -> None:
    """Apply one override in place; `source` is its origin in messages."""
    holder: Any = mapping
    for depth, part in enumerate(override.path[:-1], start=1):
        inner = _item(holder, part, override.path, depth, source)
        if inner is None:
            inner = [] if isinstance(override.path[depth], int) else {}
            _put(holder, part, inner)
        holder = inner
    _item(holder, override.path[-1], override.path, len(override.path), source)
    _put(holder, override.path[-1], override.value)


def _item(holder: Any, part: str | int, path: Path, depth: int, source: str) -> Any:
    """Return the item at `part`, None if missing; reject an impossible part."""
    if isinstance(holder, dict):
        return holder.get(str(part))
    above = spell(path[: depth - 1])
    if not isinstance(holder, list):
        advice = f"set {above} as a whole, as in {above}={{...}}"
        problem = Problem(f"a mapping or list at {above}", show(holder), advice)
    elif not isinstance(part, int):
        problem = Problem(f"a number, because {above} is a list", show(part), f"write {above}.0 for its first item")
    elif part > len(holder):
        problem = Problem(f"at most {len(holder)}, because {above} has {len(holder)} items", str(part), "count from 0")
    else:
        return holder[part] if part < len(holder) else None
    raise ScenarioError(f"{source}: {spell(path)}: {problem}")


def _put(holder: Any, part: str | int, value: Any) -> None:
    if isinstance(holder, dict):
        holder[str(part)] = value
    elif part == len(holder):
        holder.append(value)
    else:
        holder[part] = value
