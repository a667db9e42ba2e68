"""`simfl bench`: how fast simfl is on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from simfl.cli.shared import RUN_FAILED, Device, Json, aside, say, write_json
from simfl.errors import RunError, ScenarioError, nearest

#: Heading of a column -> the text of a result's cell.
Columns = Mapping[str, Callable[[Mapping[str, Any]], str]]


def bench(
    cases: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CASE", help="Names of cases; all by default. peers: other simulators.", show_default=False
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Parts of up to six cases, while a minute lasts.")] = False,
    widths: Annotated[
        bool, typer.Option("--widths", help="Each case at several numbers of operations per step, and of workers.")
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(
            "--page",
            help="Write a page to send: machine, both precisions, widths. --device gpu alone: bench-gpu.md.",
        ),
    ] = None,
    device: Device = None,
    json: Json = None,
) -> None:
    """Measure updates per second against the limit of the bare kernel."""
    from simfl.bench.cases import CASES, MODELS, QUICK, QUICK_S
    from simfl.bench.measuring import run_bench, run_sweep, run_widths
    from simfl.bench.sweeps import SWEEPS

    if widths and quick:
        raise ScenarioError("bench: expected one of --quick and --widths, found both")
    if cases == ["peers"]:
        if widths or quick:
            raise ScenarioError("bench peers: expected neither --quick nor --widths, which are for cases")
        _peers(device, json)
        return
    for case in cases or []:
        names = list(CASES) if widths else [*CASES, *SWEEPS]
        if case not in names:
            raise ScenarioError(f"bench: expected one of {', '.join(names)}, found {case!r}{nearest(case, names)}")
    for option, path in (("--json", json), ("--page", page)):
        if path is not None and not path.absolute().parent.is_dir():
            raise ScenarioError(f"{option}: {path}: there is no such folder")  # before minutes of work
    if page is None and device == "gpu" and not (cases or quick or widths or json):
        page = Path("bench-gpu.md")
    if page is not None:
        from simfl.bench.page import write_page

        if quick or widths or json is not None or not {*(cases or ())} <= {*CASES}:
            raise ScenarioError("bench --page: expected cases that are not sweeps, and no other option than --device")
        if not write_page(page, cases or MODELS, device, say):
            raise typer.Exit(RUN_FAILED)
        return
    results: list[dict[str, Any]] = []
    failed = False
    try:
        chosen = list(cases or (MODELS if widths else QUICK if quick else [*CASES, *SWEEPS]))
        for case in _while_time(chosen, QUICK_S, time.monotonic) if quick else chosen:
            try:
                if case in SWEEPS:
                    results.append(run_sweep(case, device, say, quick))
                else:
                    results += run_widths([case], device, say) if widths else run_bench([case], device, say, quick)
            except RunError as error:  # the other cases still count
                failed = True
                say(str(error))
    finally:
        write_json(json, results)
        if not aside(json):
            (show_widths if widths else show_bench)(results)
    if failed:
        raise typer.Exit(RUN_FAILED)


def _while_time(cases: Sequence[str], limit_s: float, clock: Callable[[], float]) -> Iterator[str]:
    """Yield cases until another as long as the longest would end after the limit.

    The first is always measured. Say which are left out.
    """
    begin = before = clock()
    longest = 0.0
    for at, case in enumerate(cases):
        if at and before - begin + longest > limit_s:
            say(f"left out, after {before - begin:.0f} s of {limit_s:.0f}: {', '.join(cases[at:])}")
            return
        yield case
        now = clock()
        before, longest = now, max(longest, now - before)


def _peers(device: str | None, json: Path | None) -> None:
    """Measure other simulators and simfl in turn, and print the ratios."""
    from simfl.bench.peers import run_peers
    from simfl.records.display import show_count

    results = run_peers(device, say)
    write_json(json, results)
    if not aside(json):
        columns: Columns = {
            "work": lambda one: one["work"],
            "peer": lambda one: one["peer"],
            "its updates/s": lambda one: show_count(one["peer_updates_per_s"]),
            "simfl's": lambda one: show_count(one["simfl_updates_per_s"]),
            "times": lambda one: f"{one['ratio']:.1f}",
            "by turn": lambda one: f"{min(one['ratios']):.1f}-{max(one['ratios']):.1f}",
        }
        _print_table(results, columns, {"work", "peer", "by turn"})


def show_bench(results: Sequence[Mapping[str, Any]]) -> None:
    """Print the measurements, beside the device's limits; sweeps in a table above."""
    from simfl.records.display import NOTHING, show_bytes, show_count, show_time

    sweeps = [one for one in results if "settings" in one]
    results = [one for one in results if "settings" not in one]
    if sweeps:
        _show_sweeps(sweeps)
    if not results:
        return
    print("the world is compiled" if results[0]["compiled"] else "the world is not compiled: make compiled")
    triad, gemm = (max(one[rate] for one in results) for rate in ("triad_bytes_per_s", "gemm_flops_per_s"))
    print(f"the machine: triad {triad / 1e9:.1f} GB/s, GEMM {gemm / 1e9:.0f} GFLOP/s")
    columns: Columns = {
        "case": lambda one: one["case"],
        "workers": lambda one: show_count(one["workers"]),
        "device": lambda one: str(one["device"]),
        "updates/s": lambda one: show_count(one["updates_per_s"]),
        "start": lambda one: show_time(one["start_s"]),
        "of the kernel limit": lambda one: f"{one['kernel_limit_ratio']:.2f}",
        "limit of GEMM": lambda one: f"{one['kernel_gemm_ratio']:.2f}",
        "x per call": lambda one: NOTHING if (ratio := one["per_call_ratio"]) is None else f"{ratio:.2f}",
        "of bare SimPy": lambda one: f"{one['bare_simpy_ratio']:.2f}",
        "world events/s": lambda one: show_count(one["world_events_per_s"]),
        "peak": lambda one: show_bytes(one["peak_rss_bytes"]),
    }
    _print_table(results, columns, {"case", "device"})


def _show_sweeps(results: Sequence[Mapping[str, Any]]) -> None:
    """Print the CPU time of sweeps over that of as many runs alone."""
    from simfl.records.display import show_count, show_time

    columns: Columns = {
        "case": lambda one: one["case"],
        "workers": lambda one: show_count(one["workers"]),
        "device": lambda one: str(one["device"]),
        "settings": lambda one: show_count(one["settings"]),
        "CPU alone": lambda one: show_time(one["alone_s"]),
        "together": lambda one: show_time(one["together_s"]),
        "of as many alone": lambda one: f"{one['ratio']:.2f}",
    }
    _print_table(results, columns, {"case", "device"})


def show_widths(results: Sequence[Mapping[str, Any]]) -> None:
    """Print updates per second by width, the fastest with a star."""
    from simfl.records.display import show_count

    if not results:
        return

    def column(width: str) -> Callable[[Mapping[str, Any]], str]:
        def cell(one: Mapping[str, Any]) -> str:
            rates = one["updates_per_s"]
            return show_count(rates[width]) + ("*" if rates[width] == max(rates.values()) else "")

        return cell

    columns: Columns = {
        "case": lambda one: one["case"],
        "workers": lambda one: show_count(one["workers"]),
        "auto": lambda one: show_count(one["automatic"]),
        **{width: column(width) for width in results[0]["updates_per_s"]},
    }
    print("updates per second by operations per step; * is the fastest, auto is the width of `execution.width: auto`")
    _print_table(results, columns, {"case"})


def _print_table(results: Sequence[Mapping[str, Any]], columns: Columns, text: set[str]) -> None:
    """Print a row for each result; `text` names the columns that are not numbers."""
    from simfl.cli import console

    screen = console.output()
    cells = {name: [cell(one) for one in results] for name, cell in columns.items()}
    console.show_parts(console.tables_of(cells, screen.width, text=text), screen)
