"""The command line: parse, call, print. Exit codes: 0 done, 1 a run failed, 2 bad input, 130 interrupted.

Everything heavy is imported by the command that needs it, so that `simfl --help` answers at once.
"""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from simfl import __version__
from simfl.cli.privacy import app as privacy_app
from simfl.cli.reproduce import reproduce
from simfl.cli.studies import compare, sweep
from simfl.errors import DataError, RunError, ScenarioError, SimflError, nearest
from simfl.scenario.own_code import look_beside

if TYPE_CHECKING:
    from simfl.records import Run
    from simfl.scenario import Scenario

RUN_FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="simfl",
    help="Simulate asynchronous, decentralised and federated learning with differential privacy, in virtual time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Data sets that can be downloaded.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(privacy_app, name="privacy")


class Device(enum.StrEnum):
    """Where to compute."""

    cpu = "cpu"
    gpu = "gpu"


class Catalogue(enum.StrEnum):
    """What can be listed."""

    algorithms = "algorithms"
    models = "models"
    data = "data"
    topologies = "topologies"


class XAxis(enum.StrEnum):
    """What a figure is drawn against."""

    time = "time"
    updates = "updates"
    epochs = "epochs"
    rounds = "rounds"
    bytes = "bytes"
    epsilon = "epsilon"


Scenarios = Annotated[list[Path], typer.Argument(metavar="SCENARIO", help="Scenario files (YAML).", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY.PATH=VALUE", help="Change a field, for example --set clients.count=32."),
]
Seed = Annotated[int | None, typer.Option("--seed", help="Another seed; short for --set seed=N.")]
ChosenDevice = Annotated[Device | None, typer.Option("--device", help="Where to compute; JAX chooses by default.")]


def main() -> NoReturn:
    """Run the command line and leave with its exit code."""
    try:
        app(prog_name="simfl")
    except (ScenarioError, DataError) as error:
        _complain(error)
        sys.exit(BAD_INPUT)
    except RunError as error:
        _complain(error)
        sys.exit(RUN_FAILED)
    sys.exit(0)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"simfl {__version__}")
        raise typer.Exit


@app.callback()
def _simfl(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None: ...


@app.command()
def run(
    scenarios: Scenarios,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of all results.")] = Path("results"),
    device: ChosenDevice = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Run scenarios one after the other, compare them in a table and a figure.

    All of them are checked, data files included, before the first one starts. Ctrl-C keeps what was measured.
    """
    loaded = _load_all(scenarios, overrides, seed, device)
    from simfl.cli import console
    from simfl.simulation import runner

    runs: list[Run] = []
    failed = False
    for number, scenario in enumerate(loaded, start=1):
        label = scenario.name if len(loaded) == 1 else f"{scenario.name} ({number}/{len(loaded)})"
        try:
            with console.progress_bar(label, quiet) as progress:
                runs.append(runner.run(scenario, out=out, device=_name(device), progress=progress))
        except RunError as error:
            failed = True
            _complain(error)
        if runs and runs[-1].status == "interrupted":
            break
    if runs:
        screen = console.output()
        console.show_runs(runs, screen)
        _draw_comparison(runs, out)
    if runs and runs[-1].status == "interrupted":
        raise typer.Exit(INTERRUPTED)
    if failed or any(run.status == "failed" for run in runs):
        raise typer.Exit(RUN_FAILED)


@app.command()
def validate(scenarios: Scenarios, overrides: Overrides = None, seed: Seed = None) -> None:
    """Check scenarios and the data files they need, without running them."""
    for path, scenario in zip(scenarios, _load_all(scenarios, overrides, seed, None), strict=True):
        print(f"{path}: valid: {scenario.algorithm.kind}, {scenario.clients.count} clients, {scenario.topology.kind}")


@app.command("list")
def list_(
    what: Annotated[
        Catalogue | None, typer.Argument(help="One of the four; all by default.", show_default=False)
    ] = None,
) -> None:
    """List algorithms, models, data sets and topologies, with one line about each."""
    from simfl.cli import console

    screen = console.output()
    for catalogue in Catalogue if what is None else [what]:
        console.show_listing(catalogue.value, _CATALOGUES[catalogue](), screen)


def _algorithms() -> dict[str, str]:
    from simfl.algorithms import ALGORITHMS

    return {kind: algorithm.summary for kind, algorithm in ALGORITHMS.items()}


def _models() -> dict[str, str]:
    from simfl.models import MODELS

    return {kind: model.summary for kind, model in MODELS.items()}


def _data() -> dict[str, str]:
    from simfl.data import DATASETS

    return DATASETS


def _topologies() -> dict[str, str]:
    from simfl.world.topology import TOPOLOGIES

    return TOPOLOGIES


_CATALOGUES: dict[Catalogue, Callable[[], dict[str, str]]] = {
    Catalogue.algorithms: _algorithms,
    Catalogue.models: _models,
    Catalogue.data: _data,
    Catalogue.topologies: _topologies,
}


@app.command()
def new(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("scenario.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a commented scenario to start from."""
    from simfl.scenario import template

    _write(path, template(), "w" if force else "x")
    print(f"{path}: edit it, then: simfl run {path}")


@app.command()
def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs.", show_default=False)],
    x: Annotated[XAxis, typer.Option("--x", help="What to draw against.")] = XAxis.time,
    y: Annotated[str, typer.Option("--y", help="A column of the metrics table.")] = "test_accuracy",
    save: Annotated[
        Path | None, typer.Option("--save", help="The figure: .png, .pdf or .svg; by default <y>-by-<x>.png here.")
    ] = None,
    clients: Annotated[
        bool, typer.Option("--clients", help="With --y epsilon and one run: what each client spent over time.")
    ] = False,
) -> None:
    """Draw runs that were made before, one curve each."""
    from simfl import plots

    _draw_without_a_screen()
    if clients:
        if y != "epsilon" or x is not XAxis.time or len(runs) != 1:
            raise ScenarioError(
                "--clients: expected one run with --y epsilon against time; draw one run after the other"
            )
        print(plots.save(plots.plot_client_epsilon(runs[0]), save or Path("client-epsilon-by-time.png")))
        return
    print(plots.save(plots.plot(runs, x=x.value, y=y), save or Path(f"{y}-by-{x.value}.png")))


@app.command()
def trace(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file; by default trace.json in the folder of the run.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Leave out what was over before, such as 10 s.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Leave out what began after this virtual time.")
    ] = None,
    clients: Annotated[
        str | None, typer.Option("--clients", metavar="LIST", help="Only these clients, such as 0-3,7.")
    ] = None,
) -> None:
    """Write a run as a timeline for the Perfetto or Chrome trace viewer, in virtual time.

    Clients have tracks of what they do where the scenario said record: {timeline: true}, links where it said
    record: {messages: true}.
    """
    from simfl import read
    from simfl.report.trace import TABLES, parse_clients, write_trace
    from simfl.scenario.units import parse_time

    opened = read(run)
    limits = {"start_s": since, "end_s": until}
    try:
        interval = {name: parse_time(_number(value)) for name, value in limits.items() if value is not None}
    except ValueError as error:
        raise ScenarioError(f"trace: --from, --until: {error}") from error
    chosen = None if clients is None else parse_clients(clients)
    written = write_trace(opened, out or opened.folder / "trace.json", clients=chosen, **interval)
    for table in written.missing:
        _say(f"{opened.folder}: no table of {table}: the trace does not show {TABLES[table]}")
    print(f"{written.path}: {written.events:,} events; open it in a trace viewer")


@app.command()
def report(
    paths: Annotated[
        list[Path], typer.Argument(metavar="SWEEP|RUN", help="Folders of a sweep or of runs.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("report.html"),
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="LABEL", help="Hold all others against these runs.")
    ] = None,
    target: Annotated[
        float | None,
        typer.Option("--target", metavar="ACCURACY", help="Whose time is compared; by default the best all reached."),
    ] = None,
) -> None:
    """Write runs or a sweep as one page: what was asked, what was found, what was spent, how to run it again.

    The page holds everything in itself: it can be mailed, printed, and read without a network.
    """
    from simfl.report import write_report

    if target is not None and not 0 < target <= 1:
        raise ScenarioError(f"--target: expected a test accuracy in (0, 1], found {target:g}; write 0.9 for 90%")
    look_beside(paths)
    print(write_report(paths, out, target=target, baseline=baseline))


@app.command()
def bench(
    cases: Annotated[
        list[str] | None,
        typer.Argument(metavar="CASE", help="Names of cases; all by default.", show_default=False),
    ] = None,
    device: ChosenDevice = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.")] = None,
) -> None:
    """Measure updates per second, against the limit that the bare kernel sets on this machine."""
    import json

    from simfl.bench.measuring import CASES, run_bench
    from simfl.cli import console

    for case in cases or []:
        if case not in CASES:
            raise ScenarioError(f"bench: expected one of {', '.join(CASES)}, found {case!r}{nearest(case, CASES)}")
    if json_path is not None and not json_path.absolute().parent.is_dir():
        raise ScenarioError(f"--json: {json_path}: there is no such folder")  # better said before minutes of work
    results: list[dict[str, Any]] = []
    failed = False
    try:
        for case in cases or CASES:
            try:
                results += run_bench([case], _name(device), lambda line: print(line, file=sys.stderr, flush=True))
            except RunError as error:  # one case that fails does not cost the others' minutes
                failed = True
                _complain(error)
    finally:
        console.show_bench(results, console.output())
        if json_path is not None:
            _write(json_path, json.dumps(results, indent=2) + "\n")
    if failed:
        raise typer.Exit(RUN_FAILED)


app.command()(sweep)
app.command()(compare)
app.command()(reproduce)


@data_app.command("list")
def data_list() -> None:
    """List the data sets that can be downloaded."""
    from simfl.cli import console
    from simfl.data.sources import SOURCES

    console.show_listing("data sets", {name: source.summary for name, source in SOURCES.items()}, console.output())


@data_app.command("fetch")
def data_fetch(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME", help="Names as in `simfl data list`.", show_default=False)
    ],
    to: Annotated[
        Path | None, typer.Option("--to", help="The folder of data sets; by default the one that SIMFL_DATA names.")
    ] = None,
) -> None:
    """Download data sets: checked, and going on where an earlier attempt broke off."""
    from simfl.cli import console
    from simfl.data.fetch import fetch
    from simfl.data.sources import SOURCES

    named = os.environ.get("SIMFL_DATA")
    if to is None and not named:
        raise ScenarioError("data fetch: expected a folder to download to; set SIMFL_DATA=FOLDER, or say --to FOLDER")
    root = to if to is not None else Path(str(named))
    for name in names:
        if name not in SOURCES:
            raise ScenarioError(
                f"data fetch: expected one of {', '.join(SOURCES)}, found {name!r}{nearest(name, SOURCES)}"
            )
    for name in names:
        with console.download_bar() as progress:
            files = fetch(name, root, progress)
        for file in files:
            print(file)
    if not named or Path(named).absolute() != root.absolute():
        print(f"scenarios find it with SIMFL_DATA={root.absolute()}")


def _load_all(
    paths: Sequence[Path], overrides: Sequence[str] | None, seed: int | None, device: Device | None
) -> list[Scenario]:
    """Load and check all scenarios; what is wrong with any of them is said at once.

    What was loaded for checking is dropped again: several scenarios with large data sets need not fit side by side.
    """
    from simfl.scenario import load
    from simfl.simulation import runner

    changes = [*(overrides or []), *([] if seed is None else [f"seed={seed}"])]
    look_beside(paths)
    scenarios: list[Scenario] = []
    problems: list[str] = []
    for path in paths:
        where = ""
        try:
            scenario = load(path, changes)
            where = f"{path}: "  # what is found from here on does not know which file it is about
            warnings = runner.prepare(scenario, _name(device)).warnings
        except (ScenarioError, DataError) as error:
            lines = [line if line.startswith("--") else where + line for line in str(error).splitlines()]
            problems += [line for line in lines if line not in problems]
        else:
            scenarios.append(scenario)
            for warning in warnings:
                _say(where + warning)
    if problems:
        raise ScenarioError("\n".join(problems))
    return scenarios


def _number(text: str) -> str | float:
    """A plain number counts seconds, as in scenarios."""
    try:
        return float(text)
    except ValueError:
        return text


def _name(device: Device | None) -> str | None:
    """The plain word: messages should not show an enumeration."""
    return None if device is None else device.value


def _write(path: Path, text: str, mode: str = "w") -> None:
    try:
        with open(path, mode, encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ScenarioError(f"{path}: there is a file already; choose another name, or --force to replace it") from None
    except OSError as error:
        raise ScenarioError(f"{path}: cannot write the file: {error.strerror}") from error


def _draw_comparison(runs: Sequence[Run], out: Path) -> None:
    """Draw accuracy (or loss, where there is none) against virtual time and print the figure's path."""
    from simfl import plots

    _draw_without_a_screen()
    y = "test_loss" if all(run.metrics["test_accuracy"].isna().all() for run in runs) else "test_accuracy"
    if len(runs) == 1:
        path = runs[0].folder / f"{y}.png"
    else:
        names = [f"{run.folder.parent.name}-{run.folder.name}" for run in runs]
        shown = names[:3] + ([f"{len(names) - 3}-more"] if len(names) > 3 else [])
        path = out / "figures" / f"{'-'.join(shown)}.png"
    print(f"figure: {plots.save(plots.plot(runs, x='time', y=y), path)}")


def _draw_without_a_screen() -> None:
    import matplotlib

    matplotlib.use("Agg")


def _complain(error: SimflError) -> None:
    _say(str(error))


def _say(text: str) -> None:
    """Write lines to stderr as they are: a terminal's width must not break a path apart."""
    sys.stderr.write(text.rstrip("\n") + "\n")
    sys.stderr.flush()
