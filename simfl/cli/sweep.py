"""`simfl sweep` and `simfl compare`: parse, call, print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simfl.errors import ScenarioError

if TYPE_CHECKING:
    from simfl.records.sweeps import Sweep

RUN_FAILED, INTERRUPTED = 1, 130
FORMATS = ("png", "pdf", "svg")


def sweep(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="A study (YAML).", show_default=False)],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY.PATH=VALUE", help="Change a field in every run, before grid and list."),
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", help="Another number of seeds.")] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", help="Runs at a time; by default as many as there are cores.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="ADDRESS", help="Run on the dask cluster of this scheduler.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of all results.")] = Path("results"),
    device: Annotated[str | None, typer.Option("--device", help="cpu or gpu; JAX chooses by default.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, and leave.")] = False,
    keep_compiled: Annotated[
        bool, typer.Option("--keep-compiled/--no-keep-compiled", help="Share compiled programs through a folder.")
    ] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing until the end.")] = False,
) -> None:
    """Run a study: every combination of its settings and seeds, those that are missing.

    Everything is checked before the first run starts. Ctrl-C ends the runs under way; the same command goes on later.
    """
    if device not in (None, "cpu", "gpu"):
        raise ScenarioError(f"--device: expected cpu or gpu, found {device!r}")
    from simfl.cli import study_console as console
    from simfl.scenario.study import load_study
    from simfl.studies.running import survey
    from simfl.studies.running import sweep as run_sweep

    plan = load_study(study, overrides or (), seeds)
    before = survey(plan, out)
    console.show_plan(plan, before)
    if dry_run:
        return
    with console.sweep_progress(plan.study.name, quiet) as tell:
        swept = run_sweep(
            plan, out=out, jobs=jobs, cluster=cluster, device=device, keep_compiled=keep_compiled, tell=tell
        )
    if swept.finished:
        _show(swept)
    _leave(swept)


def _show(swept: Sweep) -> None:
    from simfl.cli import study_console as console
    from simfl.records.comparison import compare_groups
    from simfl.records.sweeps import open_groups

    groups, baseline = open_groups([swept.folder])
    known = {group.label for group in groups} | {value for group in groups for value in group.settings.values()}
    target = swept.study["compare"]["target"]
    # A sweep that was broken off early may lack its baseline: it is no reason not to show the rest.
    console.show_comparison(compare_groups(groups, target, baseline if baseline in known else None))


def _leave(swept: Sweep) -> None:
    """Say what is missing, and leave with the exit code that belongs to it."""
    for run in swept.runs:
        if run.status in {"failed", "diverged"}:
            _say(f"{run.label}, seed {run.seed}: {run.status}: {run.reason}")
    missing = sum(not run.finished for run in swept.runs)
    print(f"results: {swept.folder} ({len(swept.finished)} of {len(swept.runs)} runs, summary.csv)")
    if swept.failed:
        _say(f"{len(swept.failed)} of {len(swept.runs)} runs failed; the same command tries them again")
        raise typer.Exit(RUN_FAILED)
    if missing:
        _say(f"{missing} of {len(swept.runs)} runs are missing; the same command goes on with them")
        raise typer.Exit(INTERRUPTED)


def compare(
    paths: Annotated[
        list[Path], typer.Argument(metavar="RUN|SWEEP", help="Folders of runs or of sweeps.", show_default=False)
    ],
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="LABEL", help="Compare with these runs, seed by seed.")
    ] = None,
    target: Annotated[
        float | None,
        typer.Option("--target", metavar="ACCURACY", help="Whose cost is compared; by default the best all reached."),
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Also write the table as CSV.")] = None,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the table as JSON.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Also draw the figures into this folder.")
    ] = None,
    formats: Annotated[
        str, typer.Option("--formats", metavar="png,pdf,svg", help="How figures are written, several with commas.")
    ] = "png",
) -> None:
    """Compare runs, grouped by what differs: means and 95% intervals over seeds, and what an accuracy costs."""
    from simfl.cli import study_console as console
    from simfl.records.comparison import compare_groups
    from simfl.records.sweeps import is_sweep, open_groups, read_sweep

    if target is not None and not 0 < target <= 1:
        raise ScenarioError(f"--target: expected a test accuracy in (0, 1], found {target:g}; write 0.9 for 90%")
    endings = [ending.strip().removeprefix(".") for ending in formats.split(",")]
    for ending in endings:
        if ending not in FORMATS:
            raise ScenarioError(f"--formats: expected some of {', '.join(FORMATS)}, found {ending!r}")
    groups, usual = open_groups(paths)
    axes, column = ("time",), "test_accuracy"
    if len(paths) == 1 and is_sweep(paths[0]):
        wanted = read_sweep(paths[0]).study["compare"]
        target = wanted["target"] if target is None else target
        axes, column = tuple(wanted["x"]), str(wanted["y"])
    if baseline is None and usual is not None:
        known = {group.label for group in groups} | {value for group in groups for value in group.settings.values()}
        baseline = usual if usual in known else None  # a sweep that is not finished may lack it
    table = compare_groups(groups, target, baseline)
    console.show_comparison(table)
    if csv is not None:
        _write(csv, table.to_csv(index=False))
    if json is not None:
        _write(json, table.to_json(orient="records", indent=1, double_precision=15, force_ascii=False) + "\n")
    if out is not None:
        import matplotlib

        matplotlib.use("Agg")
        from simfl.plots.study import draw_study

        for path in draw_study(groups, table, out, axes=axes, y=column, endings=endings):
            print(path)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{path}: cannot write the file: {error.strerror}") from error


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
