"""`simfl trace`: a run as a timeline for a trace viewer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from simfl.cli.shared import OneRun, say
from simfl.errors import ScenarioError


def trace(
    run: OneRun,
    out: Annotated[
        Path | None, Option("--out", "-o", help="The file; by default trace.json in the folder of the run.")
    ] = None,
    since: Annotated[
        str | None, Option("--from", metavar="TIME", help="Omit what ended before this time, such as 10 s.")
    ] = None,
    until: Annotated[str | None, Option(metavar="TIME", help="Omit what began after this virtual time.")] = None,
    clients: Annotated[str | None, Option(metavar="LIST", help="Only these clients, such as 0-3,7.")] = None,
) -> None:
    """Write a run as a timeline for Perfetto (https://ui.perfetto.dev).

    Clients have tracks if the scenario has record: {timeline: true}, links if it has record: {messages: true}.
    """
    from simfl.records import read
    from simfl.records.results import UNFINISHED
    from simfl.reports.trace import TABLES, parse_clients, write_trace
    from simfl.scenario.units import parse_time

    opened = read(run)
    if opened.status in UNFINISHED:
        say(f"{run}: {opened.status}: the trace ends with the last rows that were written")
    limits = {"start_s": since, "end_s": until}
    try:
        interval = {name: parse_time(_seconds(value)) for name, value in limits.items() if value is not None}
    except ValueError as error:
        raise ScenarioError(f"trace: --from, --until: {error}") from error
    selected = None if clients is None else parse_clients(clients)
    written = write_trace(opened, out or opened.folder / "trace.json", clients=selected, **interval)
    for table in written.missing:
        say(f"{opened.folder}: no table of {table}: the trace does not show {TABLES[table]}")
    print(f"{written.path}: {written.events:,} events; open it at https://ui.perfetto.dev or in chrome://tracing")


def _seconds(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
