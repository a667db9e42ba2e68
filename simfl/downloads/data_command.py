"""`simfl data`: data sets that can be downloaded."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from simfl.cli.shared import Command, Group, say
from simfl.errors import ScenarioError, nearest

app = typer.Typer(cls=Group, help="Data sets that can be downloaded.", no_args_is_help=True)


@app.command("list", cls=Command)
def list_() -> None:
    """List the data sets that can be downloaded."""
    from simfl.cli import screen
    from simfl.downloads.sources import SOURCES

    screen.show_listing("data sets", {name: source.summary for name, source in SOURCES.items()}, screen.output())


@app.command(cls=Command)
def fetch(
    names: Annotated[list[str], Argument(metavar="NAME", help="Names as in `simfl data list`.")],
    to: Annotated[Path | None, Option(help="The folder of data sets; SIMFL_DATA by default.")] = None,
) -> None:
    """Download and check data sets; continue interrupted downloads."""
    from simfl.downloads import fetch as downloads
    from simfl.downloads.sources import SOURCES

    named = os.environ.get("SIMFL_DATA")
    if to is None and not named:
        raise ScenarioError("data fetch: expected a folder to download to; set SIMFL_DATA=FOLDER, or give --to FOLDER")
    root = to if to is not None else Path(str(named))
    for name in names:
        if name not in SOURCES:
            expected = f"expected one of {', '.join(SOURCES)}, found {name!r}"
            raise ScenarioError(f"data fetch: {expected}{nearest(name, SOURCES)}")
    for name in names:
        trusted: list[str] = []
        with download_bar() as progress:
            files = downloads.fetch(SOURCES[name], root, progress, tell=trusted.append)
        for line in trusted:
            say(line)
        for file in files:
            print(file)
    if not named or Path(named).absolute() != root.absolute():
        print(f"scenarios find it with SIMFL_DATA={root.absolute()}")


@contextlib.contextmanager
def download_bar() -> Iterator[Callable[[str, int, int | None], None] | None]:
    """Show a progress bar of downloads; yields None if stderr is not a terminal."""
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = bars.BarColumn(), bars.DownloadColumn(), bars.TransferSpeedColumn(), bars.TimeRemainingColumn()
    with bars.Progress(bars.TextColumn("{task.description}"), *columns, console=console) as bar:
        tasks: dict[str, bars.TaskID] = {}

        def report(name: str, received: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=received, total=total)

        yield report
