"""`simfl bench`: how fast simfl is on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from simfl.cli.shared import RUN_FAILED, Device, Json, aside, say, write_json
from simfl.errors import RunError, ScenarioError, nearest


def bench(
    cases: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CASE", help="Names of cases; all by default. peers: other simulators beside.", show_default=False
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The five cases that matter, in about a minute.")] = False,
    widths: Annotated[
        bool, typer.Option("--widths", help="Each case at several numbers of operations per step, and of workers.")
    ] = False,
    device: Device = None,
    json: Json = None,
) -> None:
    """Measure updates per second against the limit of the bare kernel."""
    from simfl.bench.cases import CASES, MODELS, QUICK
    from simfl.bench.measuring import run_bench, run_widths

    if widths and quick:
        raise ScenarioError("bench: expected one of --quick and --widths, found both")
    if cases == ["peers"]:
        if widths or quick:
            raise ScenarioError("bench peers: expected neither --quick nor --widths, which are for cases")
        _peers(device, json)
        return
    for case in cases or []:
        if case not in CASES:
            raise ScenarioError(f"bench: expected one of {', '.join(CASES)}, found {case!r}{nearest(case, CASES)}")
    if json is not None and not json.absolute().parent.is_dir():
        raise ScenarioError(f"--json: {json}: there is no such folder")  # better said before minutes of work
    results: list[dict[str, Any]] = []
    failed = False
    try:
        for case in cases or (MODELS if widths else QUICK if quick else CASES):
            try:
                results += run_widths([case], device, say) if widths else run_bench([case], device, say, quick)
            except RunError as error:  # one case that fails does not cost the others' minutes
                failed = True
                say(str(error))
    finally:
        write_json(json, results)
        if not aside(json):
            (show_widths if widths else show_bench)(results)
    if failed:
        raise typer.Exit(RUN_FAILED)


def _peers(device: str | None, json: Path | None) -> None:
    """Measure other simulators and simfl in turn, and print the ratios."""
    from simfl.bench.peers import run_peers
    from simfl.cli import console
    from simfl.records.display import show_count

    results = run_peers(device, say)
    write_json(json, results)
    if aside(json):
        return
    cells = {
        "work": [result["work"] for result in results],
        "peer": [result["peer"] for result in results],
        "its updates/s": [show_count(result["peer_updates_per_s"]) for result in results],
        "simfl's": [show_count(result["simfl_updates_per_s"]) for result in results],
        "times": [f"{result['ratio']:.1f}" for result in results],
        "by turn": [f"{min(result['ratios']):.1f}-{max(result['ratios']):.1f}" for result in results],
    }
    screen = console.output()
    console.show_parts(console.tables_of(cells, screen.width, text={"work", "peer", "by turn"}), screen)


def show_bench(results: Sequence[Mapping[str, Any]]) -> None:
    """Print the measurements, beside the device's limits."""
    from simfl.cli import console
    from simfl.records.display import NOTHING, show_bytes, show_count

    def ratio(value: float | None) -> str:
        return NOTHING if value is None else f"{value:.2f}"

    rows = [
        {
            "case": str(result["case"]),
            "workers": show_count(result["workers"]),
            "device": str(result["device"]),
            "updates/s": show_count(result["updates_per_s"]),
            "of the kernel limit": ratio(result["kernel_limit_ratio"]),
            "x per call": ratio(result["per_call_ratio"]),
            "of bare SimPy": ratio(result["bare_simpy_ratio"]),
            "world events/s": NOTHING if (rate := result["world_events_per_s"]) is None else show_count(rate),
            "peak": show_bytes(result["peak_rss_bytes"]),
        }
        for result in results
    ]
    if rows:
        screen = console.output()
        cells = {name: [row[name] for row in rows] for name in rows[0]}
        print("the world is compiled" if results[0]["compiled"] else "the world is not compiled: make compiled")
        console.show_parts(console.tables_of(cells, screen.width, text={"case", "device"}), screen)


def show_widths(results: Sequence[Mapping[str, Any]]) -> None:
    """Print updates per second by width, the fastest with a star."""
    from simfl.cli import console
    from simfl.records.display import show_count

    if not results:
        return
    rates = [result["updates_per_s"] for result in results]
    tried = sorted({width for own in rates for width in own}, key=int)
    cells = {
        "case": [str(result["case"]) for result in results],
        "workers": [show_count(result["workers"]) for result in results],
        "auto": [show_count(result["automatic"]) for result in results],
        **{
            width: [show_count(own[width]) + ("*" if own[width] == max(own.values()) else "") for own in rates]
            for width in tried
        },
    }
    print("updates per second by operations per step; * is the fastest, auto is what `execution.width: auto` has")
    screen = console.output()
    console.show_parts(console.tables_of(cells, screen.width, text={"case"}), screen)
