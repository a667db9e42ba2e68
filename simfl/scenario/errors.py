"""Pydantic's errors as lines that a user can act on.

Each line reads `file: key.path: expected X, found Y; what to do`, in the order of the file. Lines have neither
pydantic's wording nor the inner names of unions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from simfl.scenario.fields import DISCRIMINATORS, Config, kind_of, members_of
from simfl.scenario.overrides import SOURCE
from simfl.scenario.problems import InvalidValueError, Path, Problem, one_of, show, spell, suggestion

MAX_LINES = 10


def problems_of(error: ValidationError, root: type[Config], document: object) -> list[Problem]:
    """Return pydantic's errors as problems with paths into the document.

    Args:
        error: from the validation of `document` against `root`.
        root: the class of the whole document.
        document: the plain values.
    """
    problems = []
    for entry in error.errors(include_url=False):
        spot = _Spot(root, entry["loc"])
        raised = entry.get("ctx", {}).get("error")
        new = raised.problems if isinstance(raised, InvalidValueError) else (_translate(dict(entry), spot),)
        problems += [problem.below(spot.path) for problem in new]
    return [_in_document(problem, document) for problem in problems]


def lines(
    problems: Iterable[Problem], source: str, positions: Mapping[Path, tuple[int, int]], overridden: Sequence[Path] = ()
) -> list[str]:
    """Return one line per problem, in the file's order, at most `MAX_LINES`.

    Args:
        problems: of the file.
        source: the name of the file.
        positions: of the keys in the file.
        overridden: key paths that were set from the command line.
    """
    placed = []
    for problem in problems:
        by_override = _from_override(problem.at, positions, overridden)
        nearest = next(problem.at[:n] for n in range(len(problem.at), -1, -1) if problem.at[:n] in positions or n == 0)
        where = f"{SOURCE if by_override else source}: {spell(problem.at)}: " if problem.at else f"{source}: "
        placed.append(((by_override, positions.get(nearest, (0, 0))), where + str(problem)))
    return first_lines(list(dict.fromkeys(line for _, line in sorted(placed, key=lambda item: item[0]))), source)


def first_lines(written: list[str], source: str) -> list[str]:
    """Return at most `MAX_LINES` lines, and a line that counts the others."""
    more = len(written) - MAX_LINES
    rest = [f"{source}: expected no more problems, found {more} more; fix these first"] if more > 0 else []
    return [*written[:MAX_LINES], *rest]


def _from_override(at: Path, positions: Mapping[Path, tuple[int, int]], overridden: Sequence[Path]) -> bool:
    """Return whether an override set a path, or all of it that is in the document."""
    words = tuple(map(str, at))
    paths = [tuple(map(str, path)) for path in overridden]
    whole = bool(words) and at not in positions
    return any(words[: len(path)] == path or (whole and path[: len(words)] == words) for path in paths)


def _in_document(problem: Problem, document: object) -> Problem:
    """Cut a path where a short form ends it: `step_size: -1` has no key `value`."""
    node = document
    for depth, part in enumerate(problem.at):
        if isinstance(node, Mapping):
            if part not in node:
                break
            node = node[part]
        elif isinstance(node, list | tuple) and isinstance(part, int) and part < len(node):
            node = node[part]
        else:
            return replace(problem, at=problem.at[:depth])
    return problem


class _Spot:
    """The place of an error in the schema.

    Attributes:
        path: the key path in the document.
        owner: the section that has the last key of the path.
        siblings: the variants of `owner`, and itself.
    """

    def __init__(self, root: type[Config], loc: tuple[int | str, ...]) -> None:
        self.path: Path = ()
        self.owner = root
        self.siblings: tuple[type[Config], ...] = ()
        inner: tuple[type[Config], ...] = (root,)
        section: type[Config] | None = root
        for part in loc:
            member = next((member for member in inner if f"<{member.__name__}>" == part), None)
            if member is not None:
                section = member
                continue
            self.path += (part,)
            if section is not None and isinstance(part, str):
                self.owner, self.siblings = section, inner
                inner = members_of(_annotation(section, part))
                section = inner[0] if len(inner) == 1 else None

    def section(self) -> type[Config] | None:
        """Return the section at the path, if only one is possible."""
        inner = members_of(_annotation(self.owner, str(self.path[-1]))) if self.path else (self.owner,)
        return inner[0] if len(inner) == 1 else None

    def key(self) -> str | None:
        """Return the key that names the owner's variant."""
        return next((key for key in DISCRIMINATORS if key in self.owner.model_fields), None)


def _field(owner: type[Config], key: str) -> FieldInfo | None:
    return next((field for name, field in owner.model_fields.items() if (field.alias or name) == key), None)


def _annotation(owner: type[Config], key: str) -> Any:
    return field.annotation if (field := _field(owner, key)) is not None else None


def _translate(entry: dict[str, Any], spot: _Spot) -> Problem:
    """Return the message of one of pydantic's errors."""
    kind, found = str(entry["type"]), show(entry["input"])
    if kind == "extra_forbidden":
        return _unknown_key(spot)
    if kind == "missing":
        return _missing(spot)
    if kind == "literal_error":
        valid = re.findall(r"'([^']*)'", entry["ctx"]["expected"])
        return Problem(one_of(valid), found, suggestion(entry["input"], valid, "choose one of them"))
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        section = spot.section()
        keys = f" ({', '.join(section.keys())})" if section else ""
        advice = f"write key: value pairs{keys}" if entry["input"] is not None else "fill it in or remove it"
        return Problem("a mapping", found, advice)
    if kind in ("tuple_type", "too_short"):
        return Problem("a list" if kind == "tuple_type" else "a list that is not empty", found, "write it as [ ... ]")
    if kind == "bool_type":
        return Problem("true or false", found, "write true or false")
    if kind == "string_type":
        return Problem("a text", found, "put it in quotes")
    return Problem("a valid value", found, "see the reference of scenarios")


def _unknown_key(spot: _Spot) -> Problem:
    key, valid = str(spot.path[-1]), spot.owner.keys()
    if advice := spot.owner.removed.get(key):
        return Problem(f"a key of {spell(spot.path[:-1])}", f"{show(key)}, which was removed", advice)
    by = spot.key() if len(spot.siblings) > 1 else None
    if by is None:
        where = spell(spot.path[:-1]) or f"a {spot.owner.__name__.lower()}"
    else:
        named = [member for member in spot.siblings if not member.model_fields[by].is_required()]
        where = f"{by} {kind_of(spot.owner, by)}" if spot.owner in named else f"an external {by}"
        others = [kind_of(member, by) for member in named if key in member.keys()]  # noqa: SIM118 (a method)
        valid = [name for name in valid if name != by]
        if others:
            advice = f"remove it, or choose {by} {one_of(others)}"
            return Problem(f"a key of {where}{_listed(valid)}", show(key), advice)
    advice = suggestion(key, valid, "")
    return Problem(f"a key of {where}{'' if advice else _listed(valid)}", show(key), advice or "remove it")


def _listed(keys: list[str]) -> str:
    return f" ({', '.join(keys)})" if keys else ", which takes none"


def _missing(spot: _Spot) -> Problem:
    key = str(spot.path[-1])
    field = _field(spot.owner, key)
    meaning = f" ({field.description})" if field is not None and field.description else ""
    example = f": {field.examples[0]}" if field is not None and field.examples else ""
    return Problem(f"a value{meaning}", "nothing", f"add {key}{example}")
