"""`simfl sweep`: the runs of a study that are missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from simfl.cli.shared import CheckpointEvery, Device, Quiet, Results, overrides_option, say
from simfl.comparison.terminal import show_comparison
from simfl.runs import CHECKPOINT_EVERY
from simfl.studies.terminal import Jobs, exit_after, sweep_progress

if TYPE_CHECKING:
    from simfl.comparison.sweeps import Sweep


def sweep(
    study: Annotated[Path, Argument(metavar="STUDY", help="A study (YAML).")],
    overrides: Annotated[
        list[str] | None, overrides_option("Change a field in every run, before grid and list.")
    ] = None,
    seeds: Annotated[int | None, Option(help="Another number of seeds.")] = None,
    jobs: Jobs = None,
    cluster: Annotated[str | None, Option(metavar="ADDRESS", help="Run on the dask cluster of this scheduler.")] = None,
    out: Results = Path("results"),
    device: Device = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the missing runs, and exit.")] = False,
    compile_anew: Annotated[
        bool, Option("--no-keep-compiled", help="Do not share compiled programs in a folder of the results.")
    ] = False,
    checkpoint_every: CheckpointEvery = CHECKPOINT_EVERY,
    quiet: Quiet = False,
) -> None:
    """Run the missing combinations of a study's settings and seeds.

    Everything is checked before the first run starts. Ctrl-C ends the current runs; the same command continues later,
    from the last checkpoints.
    """
    from simfl.comparison.comparing import compare_groups
    from simfl.comparison.sweeps import open_groups
    from simfl.comparison.tuning import tuning_lines
    from simfl.studies.plan import load_study
    from simfl.studies.running import survey
    from simfl.studies.running import sweep as run_sweep
    from simfl.studies.tuning import tuning_plan

    plan = load_study(study, overrides or (), seeds)
    if dry_run:
        _show_plan(survey(plan, out))
        for line in tuning_plan(plan):
            print(line)
        return
    with sweep_progress(plan.study.name, quiet) as tell:
        swept = run_sweep(
            plan,
            out=out,
            jobs=jobs,
            cluster=cluster,
            device=device,
            keep_compiled=not compile_anew,
            checkpoint_every=checkpoint_every,
            surveyed=_show_plan,
            progress=tell,
        )
    for line in tuning_lines(swept.folder):
        print(line)
    if swept.finished:
        groups, baseline = open_groups([swept.folder], say)
        show_comparison(compare_groups(groups, swept.study["compare"]["target"], baseline))
    for run in swept.runs:
        if run.status == "diverged":
            say(f"{run.label}, seed {run.seeds}: diverged: {run.reason}")
    print(f"results: {swept.folder} ({len(swept.finished)} of {len(swept.runs)} runs, summary.csv)")
    exit_after(swept.runs)


def _show_plan(state: Sweep) -> None:
    """Print the number of runs, those already done, and the estimated time."""
    from simfl.records.display import show_about
    from simfl.studies.running import estimate

    sizes = {name: len(labels) for name, labels in state.axes.items()} | {"seed": len({run.seed for run in state.runs})}
    if learning := {run.learning_seed for run in state.runs} - {None}:
        sizes["learning seed"] = len(learning)
    parts = " x ".join(f"{name} ({size})" for name, size in sizes.items())
    total = len(state.runs)
    print(f"{state.name}: {total} run{'s' * (total > 1)}: {parts}")
    if state.finished:
        print(f"{len(state.finished)} finished before, {total - len(state.finished)} to go")
    if left := [run for run in state.runs if not run.finished]:
        remaining = estimate(state.runs, left, 1)
        estimated = "" if remaining is None else f"about {show_about(remaining)} on one core, by the finished runs"
        print(f"time: {estimated or 'unknown before the first run has finished'}")
    sys.stdout.flush()
