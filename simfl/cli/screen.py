"""The terminal: a console for results, and listings. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from simfl.errors import printable


def output() -> Console:
    """Return a console for results, without wrapping without a terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=240)


def show_listing(title: str, entries: Mapping[str, str], console: Console, width: int = 0) -> None:
    """Print names, in a column of at least `width`, with one line about each."""
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True, min_width=width)
    table.add_column()
    for name, summary in entries.items():
        table.add_row(escaped(f"  {name}"), escaped(summary))
    console.print(table)


def show_details(
    title: str, entries: Mapping[str, str], details: Mapping[str, Mapping[str, str]], console: Console
) -> None:
    """Print names, each with one line about it and labeled lines below."""
    console.print(Text(title, "bold"))
    for name, summary in entries.items():
        console.print(escaped(f"  {name}", "cyan"))
        console.print(Padding(escaped(summary), (0, 0, 0, 4), expand=False))
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        for label, text in details[name].items():
            table.add_row(f"    {label}", escaped(text))
        console.print(table)


def escaped(text: str, style: str = "") -> Text:
    """Return a text with control characters escaped, since results may be foreign."""
    return Text(printable(text), style)
