"""Output and options that the privacy commands share.

`simfl privacy --help` reads all command modules, so they import nothing heavy at their top, only this module. Each has
one function `command`, which calls the library and ends with `present`. The library rejects a wrong argument with a
`ValueError`, which `one_line_errors` turns into one line on stderr (exit code 2).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import pkgutil
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from typer import Option

from simfl.cli.shared import to_json
from simfl.errors import ScenarioError

Command = TypeVar("Command", bound=Callable[..., Any])

#: A label with symbol, the value, and a note: unit, convention or reason.
Row = tuple[str, Any, str]

NOTHING = "–"
_NARROWEST_LABEL = 30
_NARROWEST_NOTE = 20
_TONES = {r"\bclaim(ed|s)?\b": "yellow", r"\bnot certified\b": "bold yellow", r"(?<!not )\bcertified\b": "green"}

#: Arguments of a library function by name; see `OptionsOf`.
Arguments = dict[str, Any]

Neighbors = Literal["add_or_remove", "replace_one"]
Accountant = Literal["tightest", "renyi", "pld"]
Sampling = Literal["poisson", "without_replacement", "one_pass", "none"]

AsJson = Annotated[bool, Option("--json", help="Print one JSON object instead of a table.")]
Epsilon = Annotated[float, Option("--epsilon", help="The target epsilon > 0.")]
Delta = Annotated[float, Option("--delta", help="Delta in (0, 1).")]
Steps = Annotated[int, Option("--steps", help="T, number of releases.")]
SamplingRate = Annotated[float, Option("--sampling-rate", help="q in (0, 1], fraction of the examples in a batch.")]
ChosenNeighbors = Annotated[
    Neighbors,
    Option("--neighbors", help="Neighboring data sets: one example more or less, or one replaced by another."),
]
ChosenAccountant = Annotated[
    Accountant, Option("--accountant", help="Privacy-loss distributions (pld), Renyi, or the smaller of both.")
]
ChosenSampling = Annotated[Sampling, Option("--sampling", help="How the examples of one release are drawn.")]

#: The values of options in words.
IN_WORDS = {
    "add_or_remove": "neighbors: one example more or less",
    "replace_one": "neighbors: one example replaced by another",
    "poisson": "Poisson sampling: each example enters independently with probability q",
    "without_replacement": "fixed-size batches, drawn anew for each release, no example twice in one",
    "one_pass": "one pass: every example enters exactly one release",
    "none": "every example enters every release",
    "tightest": "the smallest epsilon that an accountant proves",
    "renyi": "Renyi accountant",
    "pld": "accountant of privacy-loss distributions",
}


def sentence(words: str) -> str:
    """Return words with a capital letter."""
    return words[:1].upper() + words[1:]


def one_line_errors(name: str, function: Command) -> Command:
    """Return the command with errors of arguments as bad input: one line, code 2.

    `name` is the command's, for the message; the signature stays as Typer reads it.
    """

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # infinite on the way to a bound
                return function(*arguments, **options)
        except ValueError as error:
            raise ScenarioError(f"privacy {name}: {error}") from error
        except MemoryError as error:
            expected = "expected a computation that fits into memory, found a larger one"
            raise ScenarioError(f"privacy {name}: {expected}; take smaller arguments") from error
        except ArithmeticError as error:
            raise ScenarioError(
                f"privacy {name}: expected arguments that keep every step between 1e-308 and 1e308, found others "
                f"({type(error).__name__}); take less extreme ones"
            ) from error

    return call  # type: ignore[return-value]  # functools.wraps keeps the signature, which the type cannot express


@dataclasses.dataclass(frozen=True)
class OptionsOf:
    """Stands in a command's signature for the options of a library function.

    `claim: Annotated[Arguments, OptionsOf("simfl.papers.adp2sgd.theory:theorem2")]` gives the command an option for
    each argument of `theorem2`, with its type, its default and the help of its docstring. `claim` gets their values.
    Groups may share an option.

    `function` is the module:name of a function, dataclass or method, imported when the command is called. `rename` maps
    its names of arguments to those of options; `leave_out` are arguments without an option. `defaults` and `helps`
    replace those of the function; an option whose default is None may be left out. `panel` is the heading above the
    options in the help.
    """

    function: str
    rename: Mapping[str, str] = dataclasses.field(default_factory=dict)
    leave_out: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    helps: Mapping[str, str] = dataclasses.field(default_factory=dict)
    panel: str | None = None

    def parameters(self) -> dict[str, inspect.Parameter]:
        """Return argument -> parameter that Typer makes an option of."""
        function = pkgutil.resolve_name(self.function)
        helps = {**argument_helps(inspect.getdoc(function) or ""), **self.helps}
        types = get_type_hints(function)
        options = {}
        for argument, parameter in inspect.signature(function).parameters.items():
            if argument == "self" or argument in self.leave_out:
                continue
            default = self.defaults.get(argument, parameter.default)
            kind = types[argument] | None if default is None else types[argument]
            option = Option(
                "--" + self.rename.get(argument, argument).replace("_", "-"),
                help=helps[argument],
                show_default=default is not None and default is not parameter.empty,
                rich_help_panel=self.panel,
            )
            options[argument] = inspect.Parameter(
                self.rename.get(argument, argument),
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[kind, option],
            )
        return options


def argument_helps(docstring: str) -> dict[str, str]:
    """Return the descriptions in a docstring's Args or Attributes."""
    section = re.search(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)+)", docstring, re.MULTILINE)
    entries = re.findall(r"^    (\w[\w, ]*): ((?:.*)(?:\n {5,}.*)*)", section[1] if section else "", re.MULTILINE)
    texts = {names: re.sub(r"\s+", " ", text).replace("`", "") for names, text in entries}
    for names, text in texts.items():
        if not re.match(r"\S+(,| [-<>=]| in )", text):  # a symbol at the beginning keeps its case
            texts[names] = sentence(text)
    return {name: text for names, text in texts.items() for name in names.split(", ")}


def with_options(command: Command) -> Command:
    """Return the command with the options that its groups of arguments stand for."""
    hints = get_type_hints(command, include_extras=True)
    parameters: dict[str, inspect.Parameter] = {}
    groups: dict[str, dict[str, str]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        group = next((part for part in getattr(hints[name], "__metadata__", ()) if isinstance(part, OptionsOf)), None)
        if group is None:
            parameters[name] = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
            continue
        options = group.parameters()
        groups[name] = {argument: option.name for argument, option in options.items()}
        for option in options.values():
            parameters.setdefault(option.name, option)

    def call(**given: Any) -> Any:
        taken = {option for names in groups.values() for option in names.values()}
        arguments = {
            group: {argument: given[option] for argument, option in names.items()} for group, names in groups.items()
        }
        return command(**arguments, **{name: value for name, value in given.items() if name not in taken})

    functools.update_wrapper(call, command)
    call.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    call.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    del call.__wrapped__  # type: ignore[attr-defined]  # else its signature would replace ours
    return call  # type: ignore[return-value]


def assumed(assumptions: Mapping[str, str]) -> list[str]:
    """Return a note: where the assumptions of an account are; none without any."""
    names = ", ".join(assumptions)
    return [f"This epsilon makes assumptions about {names}: --json prints them."] if assumptions else []


def present(
    title: str,
    rows: Sequence[Row | str] = (),
    *,
    cells: Mapping[str, list[str]] | None = None,
    notes: Sequence[str] = (),
    result: Any = None,
    as_json: bool = False,
) -> None:
    """Print a result for a reader, or as one JSON object for a program.

    The JSON object has `title`, `result` (a dataclass, a mapping, a list or a number; by default the rows, label to
    value) and `notes`. JSON has no infinite numbers: they become the strings "inf" and "-inf", and NaN becomes null.

    `title` names the result, with its paper or theorem. A row is (label with symbol, value, note); a plain string
    begins a section. Values are numbers, truth values, words, or None. `cells` are columns of a table, by heading; the
    first one names its rows. Notes say units and conventions, and whether a
    number is a paper's claim ("claim") or proven by an accountant ("certified"); these words are colored. `notes` are
    sentences below the table: assumptions, warnings, what to do.
    """
    if as_json:
        if result is None:
            result = {row[0]: row[1] for row in rows if not isinstance(row, str)}
        content = {"title": title, "result": to_json(result), "notes": list(notes)}
        print(json.dumps(content, indent=2, ensure_ascii=False))
        return
    from rich.cells import cell_len
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from simfl.cli import console

    screen = console.output()
    screen.print(Text(title, "bold"))
    sections: list[tuple[str, list[tuple[str, str, str]]]] = [("", [])]
    for row in rows:
        if isinstance(row, str):
            sections.append((row, []))
        else:
            sections[-1][1].append((row[0], show(row[1]), row[2]))
    entries = [entry for _, section in sections for entry in section]
    longest = 2 + max((cell_len(entry[0]) for entry in entries), default=0)
    label_width = min(max(_NARROWEST_LABEL, screen.width // 3), longest)
    value_width = max((cell_len(entry[1]) for entry in entries), default=0)
    beside = screen.width - label_width - value_width - 4 >= _NARROWEST_NOTE  # else notes stand below
    for heading, section in sections:  # each a table with the same columns: a heading may be longer than a column
        if heading:
            screen.print()
            screen.print(Text(heading, "bold"))
        tone = "dim" if screen.is_terminal else ""
        for part in [section] if beside else [[entry] for entry in section]:
            table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
            table.add_column(width=label_width)
            table.add_column(width=value_width, justify="right", no_wrap=True, style="cyan")
            table.add_column(style=tone)
            for label, value, note in part:
                table.add_row(Padding(Text(label), (0, 0, 0, 2)), Text(value), _toned(note) if beside else "")
            if part:
                screen.print(table)
            if not beside and part[0][2]:
                screen.print(Padding(_toned(part[0][2]), (0, 0, 0, 6)), style=tone)
    if cells is not None:
        console.show_parts(console.tables_of(cells, screen.width, text={next(iter(cells))}), screen)
    if notes:
        screen.print()
    listing = Table.grid(padding=(0, 1, 0, 0))
    for note in notes:
        listing.add_row(Text("-"), _toned(note))
    screen.print(listing)


def show(value: Any) -> str:
    """Write a value with at most six digits: 58,594; 0.0174464; 1e-5; yes; ∞."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value.is_integer() and 1e3 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    digits, e, exponent = f"{value:.6g}".partition("e")
    return f"{digits}e{int(exponent)}" if e else digits


def _toned(note: str) -> Any:
    from rich.text import Text

    text = Text(note)
    for pattern, tone in _TONES.items():
        text.highlight_regex(pattern, tone)
    return text
