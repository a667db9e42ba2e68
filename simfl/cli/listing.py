"""Read the catalogues from their sources, without importing them.

Importing the algorithms and models takes seconds, because of SimPy, JAX and networkx. Their names and summaries are
literals in their files, which take milliseconds to read. A test compares the result with the catalogues themselves.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from simfl import plugins

PACKAGE = Path(__file__).parents[1]

_CLASS = re.compile(r"^class ", re.MULTILINE)
#: The families of algorithms, in the order of `simfl list`. One of a user's package may have none of them.
FAMILIES = ("servers", "rounds", "gossip", "pairs", "low communication", "papers")
#: What an algorithm says about itself, by the word that `simfl list algorithms` has for it.
DETAILS = {"family": "family", "waits": "who_waits", "sends": "what_travels", "privacy": "what_is_private"}

_NAMES = "|".join(["kind", "summary", *DETAILS.values()])
_ATTRIBUTE = re.compile(rf"^    ({_NAMES})(?:: [\w\[\]]+)? = (\((?:\n        .*)+\n    \)|\".*\")$", re.MULTILINE)
_TEXT = r"\"(?:[^\"\\]|\\.)*\""
_LOADER = re.compile(rf"\bLoader\(\s*({_TEXT}),\s*({_TEXT})")
_FAMILY = re.compile(rf"^    ({_TEXT}): Family\(\s*({_TEXT})", re.MULTILINE)
_NAMED_FAMILY = re.compile(rf"Family\(\s*(?:summary=)?({_TEXT})(?:.|\n)*?kind=({_TEXT})")
_LINE = re.compile(rf"^    ({_TEXT}): ({_TEXT}),$", re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    """One name of a catalogue, and the plugin that adds it, or "simfl".

    `details` has what an algorithm says about itself, by the words of `DETAILS`.
    """

    summary: str
    origin: str = "simfl"
    details: Mapping[str, str] = field(default_factory=dict)

    @property
    def plain(self) -> dict[str, str]:
        """The details without the marks of Markdown."""
        return {word: text.replace("`", "") for word, text in self.details.items()}


def algorithms() -> dict[str, Entry]:
    """Return the algorithms by kind, family by family; those without one come last."""
    entries = _classes(_sources("algorithms"))
    order = {family: place for place, family in enumerate(FAMILIES)}

    def place(kind: str) -> tuple[int, str]:
        return order.get(entries[kind].details.get("family", ""), len(order)), kind

    return {kind: entries[kind] for kind in sorted(entries, key=place)}


def models() -> dict[str, Entry]:
    """Return the models by kind."""
    return _classes(_sources("models"))


def data() -> dict[str, Entry]:
    """Return the data sets by name, from the `Loader` calls."""
    return {
        _value(name): Entry(_value(summary), origin)
        for text, origin in _sources("data")
        for name, summary in _LOADER.findall(text)
    }


def topologies() -> dict[str, Entry]:
    """Return the topologies by kind; those that change by themselves come last."""
    fixed = _FAMILY.findall((PACKAGE / "world" / "topology.py").read_text(encoding="utf-8"))
    changing = (PACKAGE / "world" / "changing.py").read_text(encoding="utf-8")
    entries = {_value(name): Entry(_value(summary)) for name, summary in fixed}
    for text, origin in _attached("topologies"):
        entries |= {_value(name): Entry(_value(summary), origin) for summary, name in _NAMED_FAMILY.findall(text)}
    table = changing.partition("CHANGING: ")[2].partition("\n}")[0]
    return entries | {_value(name): Entry(_value(summary)) for name, summary in _LINE.findall(table)}


def optimizers() -> dict[str, Entry]:
    """Return the optimizers by kind: clients' first, servers' marked as such."""
    from simfl.scenario.optimizers import summaries

    return {kind: Entry(line) for kind, line in summaries().items()}


def compressors() -> dict[str, Entry]:
    """Return the compressors of messages by kind."""
    return _classes(_sources("compressors", "compression/compressors"))


def selectors() -> dict[str, Entry]:
    """Return how a server may choose clients, by kind."""
    return _classes(_sources("selectors", "selection/selectors"))


def rules() -> dict[str, Entry]:
    """Return the robust aggregation rules by kind."""
    return _classes(_sources("rules", "robust/rules"))


def attacks() -> dict[str, Entry]:
    """Return the attacks of hostile clients by kind."""
    return _classes(_sources("attacks", "robust/attacks"))


def attached() -> dict[str, Entry]:
    """Return the plugins by name, with their contents."""
    entries = {}
    for name, plugin in plugins.plugins().items():
        added = [f"simfl {words}" for words in plugin.commands]
        added += [f"simfl reproduce {study.replace('_', '-')}" for study in plugin.studies]
        entries[name] = Entry(plugin.summary + (f" ({', '.join(added)})" if added else ""), name)
    return entries


def _attached(catalogue: plugins.Catalogue) -> Iterator[tuple[str, str]]:
    """Yield each module that plugins add to a catalogue, and the plugin's name."""
    for origin, plugin in plugins.plugins().items():
        for module in getattr(plugin, catalogue):
            spec = importlib.util.find_spec(module)
            if spec is not None and spec.origin is not None:
                yield Path(spec.origin).read_text(encoding="utf-8"), origin


def _sources(catalogue: plugins.Catalogue, folder: str = "") -> Iterator[tuple[str, str]]:
    """Yield the modules of a folder (of that name by default), and plugins'."""
    for path in sorted((PACKAGE / (folder or catalogue)).glob("*.py")):
        yield path.read_text(encoding="utf-8"), "simfl"
    yield from _attached(catalogue)


def _classes(sources: Iterable[tuple[str, str]]) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for text, origin in sources:
        for body in _CLASS.split(text)[1:]:
            values = {name: _value(value) for name, value in _ATTRIBUTE.findall(body)}
            if {"kind", "summary"} <= {*values}:
                details = {word: values[name] for word, name in DETAILS.items() if name in values}
                entries[values["kind"]] = Entry(values["summary"], origin, details)
    return entries


def _value(literal: str) -> str:
    return str(ast.literal_eval(literal))
