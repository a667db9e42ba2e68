"""`simfl reproduce`: parse, call, print."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simfl.errors import ScenarioError

if TYPE_CHECKING:
    from simfl.reproduction import Outcome, Paper

RUN_FAILED, INTERRUPTED = 1, 130


def reproduce(
    papers: Annotated[
        list[str] | None, typer.Argument(metavar="PAPER", help="Names as --list shows them; all by default.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Minutes instead of up to an hour: fewer settings.")] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", help="Runs at a time; by default as many as there are cores.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of all results.")] = Path("results"),
    device: Annotated[str | None, typer.Option("--device", help="cpu or gpu; JAX chooses by default.")] = None,
    scenarios: Annotated[
        Path | None, typer.Option("--scenarios", help="The papers' scenarios, where simfl is not run from a clone.")
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show what can be reproduced, and leave.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show how many runs there are, and leave.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing until the end.")] = False,
) -> None:
    """Run the study of a paper and judge its claims: numbers beside the paper's, figures, a verdict for each claim.

    Ctrl-C ends the runs under way; the same command goes on later.
    """
    if device not in (None, "cpu", "gpu"):
        raise ScenarioError(f"--device: expected cpu or gpu, found {device!r}")
    if jobs is not None and jobs < 1:
        raise ScenarioError(f"--jobs: expected at least 1, found {jobs}; leave it out for as many as there are cores")
    from simfl.cli import console
    from simfl.cli.study_console import sweep_progress
    from simfl.reproduction import PAPERS, find_paper
    from simfl.reproduction import reproduce as run_study
    from simfl.reproduction.running import plan_of, scenarios_folder

    if show_list:
        console.show_listing("papers", PAPERS, console.output())
        return
    chosen = [find_paper(name) for name in dict.fromkeys(papers or PAPERS)]
    check_data(chosen)
    if dry_run:
        for paper in chosen:
            plan, _ = plan_of(paper, quick, scenarios_folder(scenarios))
            print(f"{paper.name}: {len(plan.runs)} runs, about {paper.minutes[not quick]} minutes on two cores")
        return
    outcomes = []
    for paper in chosen:
        with sweep_progress(paper.name, quiet) as tell:
            outcome = run_study(
                paper, quick=quick, out=out, jobs=jobs, device=device, scenarios=scenarios, tell=tell
            )  # fmt: skip
        show_verdicts(outcome)
        outcomes.append(outcome)
        if any(run.status == "missing" for run in outcome.swept.runs):
            break  # Ctrl-C is for all of them
    leave(outcomes)


def check_data(papers: Sequence[Paper]) -> None:
    """Find out that data is missing before anything runs.

    Raises:
        ScenarioError: one line for every data set that is not there.
    """
    from simfl.simulation.data import data_root

    root = data_root()
    wanted = dict.fromkeys(name for paper in papers for name in paper.data)
    missing = [name for name in wanted if root is None or (not any(root.glob(f"{name}*")) and not any(
        root.glob(f"*/{name}*")))]  # fmt: skip
    if missing:
        place = "SIMFL_DATA is not set" if root is None else f"SIMFL_DATA is {root}"
        raise ScenarioError(
            f"reproduce: expected the data sets {', '.join(missing)}, found none ({place}); "
            f"simfl data fetch {' '.join(missing)}"
        )


def show_verdicts(outcome: Outcome) -> None:
    """Print the claims with their verdicts, and where the page is."""
    from rich.table import Table
    from rich.text import Text

    from simfl.cli.console import output
    from simfl.reproduction import Verdict

    colors = {Verdict.REPRODUCED: "green", Verdict.PARTLY: "yellow", Verdict.NOT_REPRODUCED: "red"}
    table = Table(show_edge=False, pad_edge=False, title=outcome.paper.title, title_justify="left")
    table.add_column("claim", overflow="fold", ratio=3)
    table.add_column("verdict", overflow="fold", min_width=10)
    table.add_column("measured", overflow="fold", ratio=4)
    for claim in outcome.claims:
        table.add_row(
            Text(claim.text), Text(str(claim.verdict), colors.get(claim.verdict, "dim")), Text(claim.evidence)
        )
    output().print(table)
    print(f"page: {outcome.page}")


def leave(outcomes: Sequence[Outcome]) -> None:
    """Say which runs are missing, and leave with the exit code that belongs to it."""
    runs = [run for outcome in outcomes for run in outcome.swept.runs]
    for run in runs:
        if run.status == "failed":
            _say(f"{run.label}, seed {run.seed}: failed: {run.reason}")
    failed = sum(run.status == "failed" for run in runs)
    missing = sum(run.status == "missing" for run in runs)
    if failed:
        _say(f"{failed} of {len(runs)} runs failed; the same command tries them again")
        raise typer.Exit(RUN_FAILED)
    if missing:
        _say(f"{missing} of {len(runs)} runs are missing; the same command goes on with them")
        raise typer.Exit(INTERRUPTED)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
