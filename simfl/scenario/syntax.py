"""YAML of scenarios: YAML 1.2's core schema, with the position of every key.

PyYAML's own loader follows YAML 1.1, in which `1e-4` is a text, `on` is true and `1:30` is 90. It keeps the last of two
equal keys, and builds whatever an alias or a tag names. This module reads `1e-4` as a number, and rejects repeated keys
and all tags but those of the core schema. It limits size, depth and the expansion of aliases.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from simfl.errors import ScenarioError
from simfl.scenario.problems import Path, show, spell

MAX_CHARACTERS = 4 * 2**20
MAX_VALUES = 500_000
MAX_DEPTH = 50
#: Texts of at most so many characters are kept with what they say: a study loads its files for every run.
_CACHED = 10_000

_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_RESOLVERS = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Composes nodes by the rules of YAML 1.2; `_Builder` makes the values."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (PyYAML's own registry, filled below)


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes text that `read` and YAML 1.1 readers read alike, with quotes if needed."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write equal lists out, without anchors."""
        return True


for _name, _pattern, _first in _RESOLVERS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), list(_first))


def write(values: Any, one_line: bool = False) -> str:
    """Return plain values as YAML; short lists and mappings are on one line."""
    text: str = yaml.dump(
        values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=True if one_line else None,
        width=2**31 - 1 if one_line else 120,
    )  # fmt: skip
    return text


@dataclass(frozen=True)
class Document:
    """The content of a YAML text.

    Args:
        content: a mapping with texts as keys, a list, a text, a number, a boolean or None.
        positions: line and column, from 1, of every key and list item, by key path.
    """

    content: Any
    positions: dict[Path, tuple[int, int]]


def read(text: str, source: str) -> Document:
    """Read a YAML text with one document; `source` is its name in messages.

    Raises:
        ScenarioError: it is malformed, hostile or too large.
    """
    if len(text) > MAX_CHARACTERS:
        raise ScenarioError(
            f"{source}: expected at most {MAX_CHARACTERS:,} characters, found {len(text):,}; "
            "keep long lists in data files"
        )
    if len(text) > _CACHED:
        return _parsed.__wrapped__(text, source)
    document = _parsed(text, source)
    return Document(copy.deepcopy(document.content), document.positions)


@functools.lru_cache(maxsize=512)
def _parsed(text: str, source: str) -> Document:
    try:
        text.encode()
        _check_events(text, source)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except UnicodeEncodeError as error:
        raise ScenarioError(
            f"{source}: expected text, found bytes that are not text at character {error.start}"
        ) from None
    except yaml.reader.ReaderError as error:
        character = error.character if isinstance(error.character, int) else ord(str(error.character)[:1] or "\0")
        raise ScenarioError(
            f"{source}: expected text, found the control character 0x{character:02x}; remove it or write it "
            "as an escape"
        ) from None
    except yaml.MarkedYAMLError as error:
        raise _malformed(text, source, error) from None
    builder = _Builder(source)
    if node is None:
        return Document(None, {})
    builder.count(node)
    return Document(builder.build(node, ()), builder.positions)


def _check_events(text: str, source: str) -> None:
    """Reject deep nesting, on which libyaml's recursive composer would crash."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                where = _place(source, event.start_mark)
                raise ScenarioError(f"{where}: expected at most {MAX_DEPTH} levels, found more; nest less")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                where = _place(source, event.start_mark)
                raise ScenarioError(f"{where}: expected one YAML document, found a second; put each in its own file")


def _place(source: str, mark: Any) -> str:
    return f"{source}:{mark.line + 1}:{mark.column + 1}" if mark is not None else source


def _malformed(text: str, source: str, error: yaml.MarkedYAMLError) -> ScenarioError:
    mark = error.problem_mark or error.context_mark
    where = _place(source, mark)
    line = (text.splitlines()[mark.line : mark.line + 1] or [""])[0] if mark is not None else ""
    if mark is not None and line[mark.column : mark.column + 1] == "\t":
        return ScenarioError(f"{where}: expected spaces, found a tab; indent with spaces")
    problem = " ".join(str(error.problem or error.context).split())
    if mark is not None and "cannot start any token" in problem:
        found = show(line[mark.column : mark.column + 1])
        return ScenarioError(f"{where}: expected a YAML value, found {found}; put the value in quotes")
    if isinstance(error, yaml.composer.ComposerError) and "undefined alias" in problem:
        return ScenarioError(
            f"{where}: expected the name of an anchor, found an unknown alias; define it with & before"
        )
    return ScenarioError(
        f"{where}: expected well-formed YAML, found an error ({problem}); check quotes, brackets, colons "
        "and indentation"
    )


class _Builder:
    """Turns nodes into plain values, counting repeated aliases."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.positions: dict[Path, tuple[int, int]] = {}
        self._values: dict[int, int] = {}
        self._open: set[int] = set()

    def count(self, node: yaml.Node) -> int:
        """Return the number of values of a node, aliases counted once per use."""
        if id(node) not in self._values:
            self._values[id(node)] = 1  # ends the recursion for an alias to its own container; `build` rejects it
            inner = [value for _, value in node.value] if isinstance(node, yaml.MappingNode) else node.value
            values = 1 if isinstance(node, yaml.ScalarNode) else 1 + sum(map(self.count, inner))
            if values > MAX_VALUES:
                expected = f"at most {MAX_VALUES:,} values with aliases expanded"
                raise self._error(node, expected, "more", "use fewer aliases")
            self._values[id(node)] = values
        return self._values[id(node)]

    def build(self, node: yaml.Node, path: Path) -> Any:
        """Return the value of the node at `path`."""
        self.positions.setdefault(path, (node.start_mark.line + 1, node.start_mark.column + 1))
        name = str(node.tag).removeprefix(_TAG)
        if isinstance(node, yaml.ScalarNode) and name in ("str", "int", "float", "bool", "null", "merge"):
            return _scalar(name, node.value)
        with self._within(node):
            if isinstance(node, yaml.SequenceNode) and name == "seq":
                return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
            if isinstance(node, yaml.MappingNode) and name == "map":
                return {key: self.build(value, (*path, key)) for key, value in self._entries(node, path)}
        found = f"the tag {show(str(node.tag).replace(_TAG, '!!'))}"
        raise self._error(node, "plain YAML", found, "remove the tag")

    @contextlib.contextmanager
    def _within(self, node: yaml.Node) -> Iterator[None]:
        if id(node) in self._open:
            raise self._error(node, "values", "an alias to what contains it", "write the value out")
        if len(self._open) == MAX_DEPTH:
            raise self._error(node, f"at most {MAX_DEPTH} levels with aliases expanded", "more", "nest less")
        self._open.add(id(node))
        yield
        self._open.discard(id(node))

    def _entries(self, node: yaml.MappingNode, path: Path) -> Iterator[tuple[str, yaml.Node]]:
        """Yield a mapping's entries, then new keys of merged mappings (`<<`)."""
        seen: dict[str, int] = {}
        merged: list[yaml.MappingNode] = []
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                merged += self._merged(value_node)
                continue
            if not isinstance(key_node, yaml.ScalarNode) or not key_node.value:
                found = "nothing" if isinstance(key_node, yaml.ScalarNode) else "a list or mapping"
                raise self._error(key_node, "a word as key", found, "write key: value")
            key, line = key_node.value, key_node.start_mark.line + 1
            if key in seen:
                raise ScenarioError(
                    f"{_place(self.source, key_node.start_mark)}: {spell((*path, key))}: expected each key once, "
                    f"found it again (first on line {seen[key]}); remove one"
                )
            seen[key] = line
            self.positions[(*path, key)] = (line, key_node.start_mark.column + 1)
            yield key, value_node
        for other in merged:
            with self._within(other):
                for key, value_node in self._entries(other, path):
                    if key not in seen:
                        seen[key] = node.start_mark.line + 1
                        yield key, value_node

    def _merged(self, node: yaml.Node) -> list[yaml.MappingNode]:
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not all(isinstance(other, yaml.MappingNode) for other in nodes):
            raise self._error(node, "a mapping to merge", "something else", "write <<: *anchor of a mapping")
        return list(nodes)

    def _error(self, node: yaml.Node, expected: str, found: str, advice: str) -> ScenarioError:
        return ScenarioError(f"{_place(self.source, node.start_mark)}: expected {expected}, found {found}; {advice}")


def _scalar(name: str, text: str) -> Any:
    """Return a scalar's value; text that does not fit its tag remains text."""
    try:
        if name == "int":
            return int(text, 0 if text[:2].lower() in ("0x", "0o") else 10)
        if name == "float":
            return float(text.replace(".inf", "inf").replace(".nan", "nan") if text[-1:].isalpha() else text)
    except ValueError:
        return text
    if name == "bool" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    return None if name == "null" else text
