"""`simfl verify`: determinism of one scenario, run in several ways."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from simfl.cli.shared import RUN_FAILED, Device, OneScenario, Overrides, Quiet, Seed, changes_of, say


def verify(
    scenario: OneScenario,
    overrides: Overrides = None,
    seed: Seed = None,
    updates: Annotated[int, Option(min=1, help="End after at most this number of updates.")] = 5_000,
    device: Device = None,
    quiet: Quiet = False,
) -> None:
    """Show that a scenario always gives the same results on this machine.

    The scenario runs unchanged, with another window, interrupted half-way and resumed from its checkpoint, and in
    another process. Tables and models must be equal, bit for bit; else the exit code is 1. Another width, device or
    version is not tried, and may change the last bits.
    """
    from simfl.bench.verification import shortened
    from simfl.bench.verification import verify as ways_of
    from simfl.cli import console
    from simfl.scenario import load
    from simfl.scenario.own_code import look_beside

    look_beside([scenario])
    short = shortened(load(scenario, changes_of(overrides, seed)), updates)
    with tempfile.TemporaryDirectory(prefix="simfl-verify-") as folder:
        ways = list(ways_of(short, Path(folder), device, (lambda name: None) if quiet else say))
    cells = {
        "way": [way.name for way in ways],
        "status": [way.status for way in ways],
        "updates": [f"{way.updates:,}" for way in ways],
        "digest": [way.digest[:16] for way in ways],
    }
    shown = console.output()
    console.show_parts(console.tables_of(cells, shown.width, text=("way", "status", "digest")), shown)
    different = {way.name: ways[0].differing(way) for way in ways if way.digest != ways[0].digest}
    for name, tables in different.items():
        say(f"{scenario}: {name}: expected the results of the first run, found other {', '.join(tables)}")
    if different:
        raise typer.Exit(RUN_FAILED)
    print(f"{scenario}: {len(ways)} ways, the same tables and models, bit for bit")
