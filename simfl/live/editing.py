"""Edits a scenario's text in place; comments, order and style are kept.

PyYAML gives the position of each value, and only changed values are replaced. New entries follow the existing entries,
in the style of the mapping that contains them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from simfl.errors import ScenarioError
from simfl.scenario.loading import loads
from simfl.scenario.overrides import parse_override
from simfl.scenario.problems import Path
from simfl.scenario.syntax import write


class _CannotEditError(Exception):
    """The text has no single place for the change: an alias, a merge, a longer list."""


def edited(text: str, overrides: Iterable[str], name: str = "scenario") -> str | None:
    """Return the text with `key.path=value` changes; None if not possible in place.

    Args:
        text: YAML of a valid scenario.
        overrides: applied in order.
        name: of the text in messages.

    Raises:
        ScenarioError: an override is malformed, or the changed scenario is not valid.
    """
    changes = list(overrides)
    expected, edited_text = loads(text, name, changes), text
    try:
        for change in map(parse_override, changes):
            edited_text = _edited(edited_text, change.path, change.value)
        return edited_text if loads(edited_text, name) == expected else None
    except (_CannotEditError, ScenarioError):
        return None


def _edited(text: str, path: Path, value: Any) -> str:
    holder: yaml.Node = yaml.compose(text, Loader=yaml.SafeLoader)  # type: ignore[assignment]
    colon = 0  # position after the colon of the innermost key so far
    for depth, part in enumerate(path):
        if _is_nothing(holder) and depth:
            return _put(text, colon, holder, _nested(path[depth:], value))
        if isinstance(holder, yaml.MappingNode):
            entry = next(((k, v) for k, v in holder.value if k.value == str(part)), None)
            if entry is None:
                return _inserted(text, holder, path[depth:], value)
            key, inner = entry
            colon = text.index(":", key.end_mark.index) + 1
        elif isinstance(holder, yaml.SequenceNode) and isinstance(part, int) and part < len(holder.value):
            inner = holder.value[part]
            colon = inner.start_mark.index
        else:
            raise _CannotEditError
        if not colon <= inner.start_mark.index <= _end(text, holder):
            raise _CannotEditError  # an alias, whose value is elsewhere
        holder = inner
    return _put(text, colon, holder, value)


def _put(text: str, colon: int, node: yaml.Node, value: Any) -> str:
    """Write a value in place of a node."""
    begin, end = node.start_mark.index, _end(text, node)
    if begin == end:  # a key without a value
        begin = end = colon
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        if isinstance(node, yaml.MappingNode) and isinstance(value, dict) and value:
            lines = (f"{key}: {_flow(inner)}" for key, inner in value.items())
            return text[:begin] + ("\n" + " " * node.start_mark.column).join(lines) + text[end:]
        begin = colon
    space = "" if text[:begin].endswith((" ", "\n", "[", "{")) or begin == 0 else " "
    return text[:begin] + space + _flow(value) + text[end:]


def _inserted(text: str, holder: yaml.MappingNode, path: Path, value: Any) -> str:
    """Write a new entry at the end of a mapping."""
    key, inner = str(path[0]), _nested(path[1:], value)
    if holder.flow_style:
        at = _end(text, holder.value[-1][1]) if holder.value else holder.start_mark.index + 1
        return text[:at] + (", " if holder.value else "") + f"{key}: {_flow(inner)}" + text[at:]
    indent, end = " " * holder.value[0][0].start_mark.column, _end(text, holder)
    at = text.find("\n", end)
    before, after = (text, "") if at < 0 else (text[:at], text[at:])
    entry = f"{key}: {_flow(inner)}"
    if isinstance(inner, dict) and inner:
        entry = f"{key}:" + "".join(f"\n{indent}  {name}: {_flow(what)}" for name, what in inner.items())
    return f"{before}\n{indent}{entry}{after}" + ("" if after else "\n")


def _nested(path: Path, value: Any) -> Any:
    for part in reversed(path):
        if isinstance(part, int):
            raise _CannotEditError
        value = {part: value}
    return value


def _is_nothing(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value in ("", "~", "null")


def _end(text: str, node: yaml.Node) -> int:
    """Return the end of a node's text, without the lines after a block."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(text, last[1] if isinstance(last, tuple) else last)
    begin, end = node.start_mark.index, node.end_mark.index
    return begin + len(text[begin:end].rstrip())


def _flow(value: Any) -> str:
    """Return a value on one line that is valid anywhere in a document."""
    return write({"v": value}, one_line=True).strip()[len("{v: ") : -1]
