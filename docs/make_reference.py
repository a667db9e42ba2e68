"""Write the reference of all fields of a scenario, docs/scenario*.md, from the schema.

    python docs/make_reference.py

It also writes the tables of docs/algorithms.md, from what the algorithms say about themselves. A test compares the
pages with what this script writes, so they always describe the current schema and algorithms.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import Strict, TypeAdapter, WithJsonSchema
from pydantic.fields import FieldInfo

from simfl.cli import listing
from simfl.scenario import Scenario
from simfl.scenario.algorithms.local_rounds import LocalStepsConfig
from simfl.scenario.fields import DISCRIMINATORS, ByKind, Config, Short, Within, members_of

FOLDER = Path(__file__).parent

GENERATED = "<!-- Written by docs/make_reference.py from the schema; edit simfl/scenario/ and run it again. -->"

INTRODUCTION = f"""\
# The fields of a scenario

{GENERATED}

This page lists the fields of the run itself and says where all others are described. A scenario is one YAML document.
Only `algorithm` is required; every other field has a default. An unknown field or an impossible value is reported in
one line before anything runs.

```sh
simfl new my.yaml                            # write a commented scenario to start from
simfl schema > simfl.schema.json             # a JSON Schema: editors complete and check YAML with it
simfl validate my.yaml                       # check a scenario and the data files that it needs
simfl run my.yaml --set clients.count=32     # change a field from the command line
```

- **Times** have a unit: ns, us, ms, s, min, h or d, as in `10 ms`. A plain number is in seconds.
- **Bandwidths** have a unit: bit/s or B/s with a prefix, as in `100 Mbit/s` or `1 GB/s`. A plain number is refused.
- **A single word** stands for the mapping that starts with it: `topology: ring` is `topology: {{kind: ring}}`.
- **Clients** are numbered from 0.
- `= value` after a field's name is its default.
- An **epoch** is one pass over the training examples of all clients. An **update** is one mini-batch of one client.
- **Files** are looked up in the current folder. A bare name of a data file is looked up in the folder `SIMFL_DATA`.
"""

#: Page -> its title, what it opens with, and its sections. Sections that no page names are on the first page.
PAGES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "scenario-data": (
        "Data and models",
        "The data set, how it is divided over the clients, and the model that they train.",
        ("data", "model", "init"),
    ),
    "scenario-clients": (
        "Clients and the server",
        "How fast clients compute, when they are slow (stragglers), when they leave, crash or come back (churn), and "
        "which of them a server chooses.",
        ("clients", "slowdowns", "server", "availability", "selection"),
    ),
    "scenario-network": (
        "The network",
        "Who is connected to whom, the latency, bandwidth, loss and partitions of each link, and compressed messages.",
        ("topology", "regions", "links", "underlay", "compression"),
    ),
    "scenario-algorithm": ("The algorithm", "Every algorithm with its options.", ("algorithm",)),
    "scenario-steps": (
        "Steps",
        "Step sizes and their schedules, optimizers, bounds on staleness, and the sizes of rounds of `async_fl`.",
        (
            "algorithm.step_size",
            "algorithm.optimizer",
            "algorithm.server_optimizer",
            "algorithm.staleness_bound",
            "algorithm.sizes",
            "algorithm.gate",
        ),
    ),
    "scenario-robust": (
        "Hostile clients",
        "Robust rules that combine models, and hostile clients (attackers) with what they send.",
        ("aggregation", "attackers"),
    ),
    "scenario-privacy": ("Privacy", "Clipping, noise, and what the reported epsilon refers to.", ("privacy",)),
}
FIRST = "scenario"

#: Stand before and after the tables of docs/algorithms.md.
TABLES = ("<!-- tables: written by docs/make_reference.py from simfl/algorithms/ -->\n", "<!-- end of the tables -->\n")
#: Words that the text before the tables explains once for all algorithms.
USUAL = (
    ("no client waits; with `after_update: wait`, clients wait for the server's step", "none; see `after_update`"),
    ("no client waits", "none"),
    ("the server waits for all selected clients, or until a `deadline`", "the server"),
    ("the server waits for all selected clients; with a `deadline`, a slow client makes fewer steps", "the server"),
    ("; with `delays: cyclic`, updates wait for their turn", "; see `delays`"),
    ("; with `late: stop`, also to clients that should start again", ""),
    ("the model to clients, their changes to the server", "changes up, model down"),
    ("gradients to the server, the model to clients", "gradients up, model down"),
)


def algorithms() -> str:
    """Return docs/algorithms.md with its tables, which link to the sections `kind` of the pages algorithms-*.md."""
    places = {
        kind: path.name
        for path in sorted(FOLDER.glob("algorithms-*.md"))
        for kind in re.findall(r"^## `(\w+)`$", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    lines, family = [], None
    for kind, entry in listing.algorithms().items():
        if entry.details["family"] != family:
            family = entry.details["family"]
            lines += ["", f"**{family.capitalize()}**", ""]
            lines += [
                "| kind | who waits for whom | what messages contain |",
                "| --- | --- | --- |",
            ]
        cells = [f"[`{kind}`]({places[kind]}#{kind})", *(entry.details[word] for word in ("waits", "sends"))]
        for words, short in USUAL:
            cells = [cell.replace(words, short).strip() for cell in cells]
        lines.append(f"| {' | '.join(cells)} |")
    before, _, rest = (FOLDER / "algorithms.md").read_text(encoding="utf-8").partition(TABLES[0])
    return f"{before}{TABLES[0]}{chr(10).join(lines)}\n\n{TABLES[1]}{rest.partition(TABLES[1])[2]}"


def pages() -> dict[str, str]:
    """Return the text of all pages by name."""
    written = Writer().scenario()
    table = [f"| `{'`, `'.join(keys)}` | [{title}]({name}.md) |" for name, (title, _, keys) in PAGES.items()]
    overview = ["## All sections", "", "| section | page |", "| --- | --- |", *table, ""]
    texts = {FIRST: [INTRODUCTION, *overview, *written[FIRST]]}
    for name, (title, opening, _) in PAGES.items():
        texts[name] = [
            f"# Scenario: {title.lower()}",
            "",
            GENERATED,
            "",
            f"{opening} See also [all sections]({FIRST}.md).",
            *written[name],
        ]
    return {**{name: "\n".join(lines) + "\n" for name, lines in texts.items()}, "algorithms": algorithms()}


def page_of(path: str) -> str:
    """Return the page that describes a field, by its path or by that of a section around it."""
    places = {key: name for name, (_, _, keys) in PAGES.items() for key in keys}
    while path and path not in places:
        path = path.rpartition(".")[0]
    return places.get(path, FIRST)


class Writer:
    """Writes sections in the order of the schema; one that several fields share is written once and linked to."""

    def __init__(self) -> None:
        self._written: dict[tuple[type[Config], ...], str] = {}
        self._lines: dict[str, list[str]] = {FIRST: [], **{name: [] for name in PAGES}}
        self._described: dict[str, str] = {}
        self._left_out: list[str] = []

    def scenario(self) -> dict[str, list[str]]:
        """Return the lines of all sections by page."""
        plain = [(key, field) for key, field in _fields(Scenario) if not members_of(field.annotation)]
        self._lines[FIRST] += ["## The run itself\n", *self._bullets(plain)]
        for key, field in _fields(Scenario):
            if (key, field) not in plain:
                self._write(key, field, level=2)
        text = "\n".join(line for lines in self._lines.values() for line in lines)
        if lost := [words for words in self._left_out if words not in text]:
            raise ValueError(f"fields whose sections do not describe them: {lost}")
        return self._lines

    def _write(self, path: str, field: FieldInfo, level: int) -> None:
        """Write the section of a field whose value is a mapping, and those of the fields in it, each on its page."""
        self._lines[page_of(path)] += self._section(path, field, level)
        for member in members_of(field.annotation):
            for name, inner in _fields(member):
                if (nested := members_of(inner.annotation)) and self._place(nested) is None:
                    at = f"{path}.{name}"
                    self._write(at, inner, level=3 if page_of(at) == page_of(path) else 2)

    def _section(self, path: str, field: FieldInfo, level: int) -> Iterator[str]:
        """Yield the section of a field whose value is a mapping."""
        members = members_of(field.annotation)
        self._written[members] = path
        yield f"\n{'#' * level} {path}\n"
        key = _key_of(members)
        about = [_sentence(field.description or "") if _describes(field) else _summary(members[0])]
        if isinstance(choice := _marker(field), ByKind) and choice.scalar:
            about.append(f"A plain {'time' if choice.quantities else 'number'} is short for `{key}: {choice.scalar}`.")
        about += [f"A plain {'time' if mark.text else 'number'} is short for `{mark.key}`." for mark in _shorts(field)]
        if "." not in path and (default := _default(field)) not in (" = `{}`", " = `null`", " = `[]`"):
            about.append(f"Default{default.replace(' =', '')}." if default else "Required.")
        yield " ".join(about) + "\n"
        if key is None:
            yield from self._bullets(_fields(members[0]), path)
        else:
            yield from self._variants(members, key, path)

    def _variants(self, members: Sequence[type[Config]], key: str, path: str) -> Iterator[str]:
        """Yield what the variants share, then each with what it has alone."""
        openings = _openings_of(field for member in members for field in _fields(member))
        owners: dict[tuple[str, str], list[str]] = {}
        for member in members:
            for name, field in _fields(member):
                if name != key:
                    owners.setdefault((name, self._meaning(name, path, field, openings)), []).append(_tag(member, key))
        if rounds := [_tag(member, key) for member in members if issubclass(member, LocalStepsConfig)]:
            yield f"Kinds *with local steps* are `{'`, `'.join(rounds)}`.\n"
        shared: dict[tuple[str, ...], list[tuple[str, str]]] = {}
        for (name, meaning), tags in owners.items():
            if len(tags) > 1:
                shared.setdefault(tuple(tags), []).append((name, meaning))
        for some, fields in shared.items():
            which = _which(some, [_tag(member, key) for member in members], rounds)
            if which and len(fields) > 1:
                yield f"- {which[0].upper()}{which[1:]}:"
            for name, meaning in fields:
                start = "  - " if which and len(fields) > 1 else "- "
                yield f"{start}**{name}**{f' ({which})' if which and len(fields) == 1 else ''}{meaning}"
        for member in members:
            tag = _tag(member, key)
            own = [f"  - **{name}**{meaning}" for (name, meaning), tags in owners.items() if tags == [tag]]
            text = "\n".join([f"- `{key}: {tag}`: {_summary(member)}", *own])
            earlier = self._described.setdefault(text, path)  # another section has this variant, word by word
            repeats = earlier != path and own and "see below" not in text
            yield f"- `{key}: {tag}`: as in {self._link(path, earlier, earlier)}" if repeats else text

    def _bullets(self, fields: Sequence[tuple[str, FieldInfo]], path: str = "") -> Iterator[str]:
        openings = _openings_of(fields)
        for name, field in fields:
            yield f"- **{name}**{self._meaning(name, path, field, openings)}"

    def _meaning(self, name: str, section: str, field: FieldInfo, openings: Openings) -> str:
        """Return what follows a field's name; if it opens a section, only that describes it."""
        members = members_of(field.annotation)
        if not members:
            parts = [field.description or "", self._plain(field)]
        else:
            place, opening = self._place(members), openings[members]
            first = ".".join(filter(None, (section, opening[0])))
            link = self._link(section, first, place)
            several = "list of mappings" if _is_tuple(field.annotation) else ""
            if isinstance(mark := _marker(field), ByKind) and mark.number is not None:
                several = f"{mark.number.expected('number')}, or mapping"
            value = f"*{several}*, {link}" if several else link
            if place is None and opening == (name, field.description) and _describes(field):
                self._left_out.append(_sentence(field.description or ""))
                parts = [value]
            else:
                parts = [field.description or "", value]
        required = ", required" if field.is_required() else ""
        return f"{_default(field)}: {'; '.join(filter(None, parts))}{required}"

    def _plain(self, field: FieldInfo) -> str:
        """Return what a plain value may be, where neither description nor default say so."""
        about = f" {field.description} "
        choices = [str(choice) for choice in _choices(field.annotation) if choice is not None]
        if choices and all(re.search(rf"\W{re.escape(choice)}\W", about) for choice in choices):
            return "*list*" if _is_tuple(field.annotation) else ""
        text = _describe(field.annotation, field.metadata)
        text = text.removesuffix(" or null") if field.default is None else text
        if text in ("text", "mapping") or (text == "true or false" and field.default is not None):
            return ""
        return f"*{text.replace(' and <', ', <')}*"

    def _link(self, section: str, first: str, place: str | None) -> str:
        """Return a link from a section to the one that describes a field: below, or `place`."""
        page = page_of(place or first)
        if page == page_of(section or first):
            return "see below" if place is None else f"[{place}](#{_anchor(place)})"
        return f"[{place or first}]({page}.md#{_anchor(place or first)})"

    def _place(self, members: tuple[type[Config], ...]) -> str | None:
        """Return the section in which all of these are described already."""
        return next((path for known, path in self._written.items() if set(members) <= set(known)), None)


#: The fields that open sections: (name, description) by what the section describes.
Openings = dict[tuple[type[Config], ...], tuple[str, str | None]]


def _openings_of(fields: Iterable[tuple[str, FieldInfo]]) -> Openings:
    """Return the fields that open sections: the first of those that share one."""
    openings: Openings = {}
    for name, field in fields:
        members = members_of(field.annotation)
        earlier = (opening for known, opening in openings.items() if members and set(members) <= set(known))
        openings[members] = next(earlier, (name, field.description))
    return openings


def _which(tags: Sequence[str], every: Sequence[str], rounds: Sequence[str]) -> str:
    """Return in the fewest words which variants have a field; "" if all have it."""
    others = [tag for tag in every if tag not in tags]
    if not others:
        return ""
    ways = [f"with {', '.join(tags)}", f"not with {', '.join(others)}"]
    if rounds:
        for start, some, joint in (("with local steps", tags, "and with"), ("not with local steps", others, "or")):
            fewer, more = [tag for tag in rounds if tag not in some], [tag for tag in some if tag not in rounds]
            words = [start, f"but not {', '.join(fewer)}" * bool(fewer), f"{joint} {', '.join(more)}" * bool(more)]
            if not (start.startswith("not") and fewer):
                ways.append(", ".join(filter(None, words)))
    return min(ways, key=lambda way: len(way.split()))


def _key_of(members: Sequence[type[Config]]) -> str | None:
    """Return the field that chooses a variant."""
    return next((key for key in DISCRIMINATORS if key in members[0].model_fields), None)


def _describes(field: FieldInfo) -> bool:
    """Return whether the section of a field opens with its description: it has variants, or says what null means."""
    return _key_of(members_of(field.annotation)) is not None or type(None) in get_args(field.annotation)


def _choices(annotation: Any) -> list[Any]:
    """Return the words of a `Literal`, or null."""
    if get_origin(annotation) in (Union, types.UnionType, Annotated):
        parts = get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation)
        kinds = [_choices(part) if part is not type(None) else [None] for part in parts]
        return [one for part in kinds for one in part] if all(kinds) else []
    if get_origin(annotation) is tuple:
        return _choices(get_args(annotation)[0])
    return [*get_args(annotation)] if get_origin(annotation) is Literal else []


def _fields(section: type[Config]) -> list[tuple[str, FieldInfo]]:
    return [(field.alias or name, field) for name, field in section.model_fields.items()]


def _tag(member: type[Config], key: str) -> str:
    """Return the word that chooses a variant."""
    field = member.model_fields[key]
    if field.is_required():
        return " or ".join(map(str, field.examples or ["my_module:MyClass"]))
    return str(field.default)


def _summary(section: type[Config]) -> str:
    return " ".join(inspect.getdoc(section).split()) if section.__doc__ else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _anchor(heading: str) -> str:
    return "".join(letter for letter in heading.lower() if letter.isalnum() or letter in "-_")


def _shorts(field: FieldInfo) -> list[Short]:
    return [mark for mark in field.metadata if isinstance(mark, Short)]


def _marker(field: FieldInfo) -> Any:
    """Return the mark that makes a union one by kind, wherever in the type it stands."""

    def marks(annotation: Any) -> Iterator[Any]:
        for inner in get_args(annotation):
            if isinstance(inner, ByKind):
                yield inner
            else:
                yield from marks(inner)

    return next((mark for mark in [*field.metadata, *marks(field.annotation)] if isinstance(mark, ByKind)), None)


def _is_tuple(annotation: Any) -> bool:
    return get_origin(annotation) is tuple or any(_is_tuple(inner) for inner in get_args(annotation))


def _describe(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """Return what a plain value may be: "integer >= 1", "time > 0", "list of numbers"."""
    for mark in metadata:
        if isinstance(mark, WithJsonSchema):
            schema = mark.json_schema or {}
            return _of_schema(schema)
        if isinstance(mark, Within):
            return mark.expected("integer" if annotation is int else "number").replace(str(2**64), "2^64")
        if isinstance(mark, Strict):
            return "true or false"
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _describe(inner[0], inner[1:])
    if origin is Literal:
        inner = tuple(map(str, inner))
        return " or ".join([", ".join(inner[:-1]), inner[-1]] if len(inner) > 1 else inner)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if part is type(None) else _describe(part) for part in inner)
    if origin is tuple:
        if inner[-1] is Ellipsis:
            return f"list, each {_describe(inner[0])}"
        return f"pair [{', '.join(map(_describe, inner))}]"
    return {str: "text", dict: "mapping", float: "number", int: "integer"}[origin or annotation]


_SIGNS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def _of_schema(schema: Mapping[str, Any]) -> str:
    """Return what a JSON schema allows, in words: "number > 0, or a list, each number > 0"."""
    if "format" in schema:
        return str(schema["format"])
    if "anyOf" in schema:
        plain = [part for part in schema["anyOf"] if part.get("type") != "array"]
        lists = [part for part in schema["anyOf"] if part.get("type") == "array"]
        return ", or a ".join([" or ".join(map(_of_schema, plain)), *map(_of_schema, lists)])
    if "const" in schema or "enum" in schema:
        return " or ".join(map(str, schema.get("enum", [schema.get("const")])))
    if schema["type"] == "array":
        return f"list, each {_of_schema(schema['items'])}"
    bounds = [f"{sign} {schema[key]:g}" for key, sign in _SIGNS.items() if key in schema]
    return " ".join([str(schema["type"]), " and ".join(bounds)]).strip()


def _default(field: FieldInfo) -> str:
    """Return " = `16`", or "" without a default."""
    if field.is_required():
        return ""
    value: Any = field.default
    if isinstance(value, Config) and getattr(value, "kind", None) == "constant":
        return f" = `{_yaml(value.model_dump()['value'])}`"
    if isinstance(value, Config):
        chosen = [getattr(value, key) for key in DISCRIMINATORS if key in type(value).model_fields]
        return f" = `{chosen[0] if chosen else _yaml(value.model_dump(by_alias=True, exclude_unset=True))}`"
    whole = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    return "" if value == "" else f" = `{_yaml(TypeAdapter(whole).dump_python(value))}`"


def _yaml(plain: Any) -> str:
    """Return a plain value as it is written in a scenario."""
    if plain is None or isinstance(plain, bool):
        return {None: "null", True: "true", False: "false"}[plain]
    if isinstance(plain, list | tuple):
        return f"[{', '.join(map(_yaml, plain))}]"
    if isinstance(plain, dict):
        return "{" + ", ".join(f"{key}: {_yaml(item)}" for key, item in plain.items()) + "}"
    return f"{plain:g}" if isinstance(plain, float) else str(plain)


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / f"{name}.md").write_text(text, encoding="utf-8")
        print(FOLDER / f"{name}.md")
