"""`simfl reproduce`: the study of a paper, and verdicts on its claims."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from simfl.cli.shared import Device, Quiet, Results, say
from simfl.errors import ScenarioError
from simfl.studies.terminal import Jobs, exit_after, sweep_progress

if TYPE_CHECKING:
    from simfl.reproduction.papers import Paper
    from simfl.reproduction.reading import Reproduction


def reproduce(
    papers: Annotated[
        list[str] | None, Argument(metavar="PAPER", help="Names as --list shows them; all by default.")
    ] = None,
    cifar: Annotated[bool, Option("--cifar", help="Studies on CIFAR-10, with the hours of the full scale.")] = False,
    quick: Annotated[bool, Option("--quick", help="Fewer settings: minutes instead of up to two hours.")] = False,
    only: Annotated[
        str, Option(metavar="REGEX", help='Only experiments whose "part, setting", as tables name them, matches.')
    ] = "",
    seeds: Annotated[int | None, Option(min=1, help="Seeds of each experiment; by default the study's.")] = None,
    jobs: Jobs = None,
    out: Results = Path("results"),
    device: Device = None,
    scenarios: Annotated[Path | None, Option(help="The papers' scenarios; needed without a clone of simfl.")] = None,
    show_list: Annotated[bool, Option("--list", help="List the papers, and exit.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the number of runs, and exit.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run a paper's study, judge its claims, and compare its numbers.

    Ctrl-C ends the current runs; the same command continues later.
    """
    from simfl.cli import screen
    from simfl.reproduction.reading import argument_of
    from simfl.reproduction.reproducing import PAPERS, find_paper, part_of, plan_of, scenarios_folder, with_the_data
    from simfl.reproduction.reproducing import reproduce as run_study

    if show_list:
        named = {argument_of(name): text for name, text in PAPERS.items()}
        screen.show_listing("papers", named, screen.output())
        return
    names = papers or [name.removesuffix("_cifar") for name in PAPERS if name.endswith("_cifar") == cifar]
    selected = [find_paper(name + "-cifar" * cifar) for name in dict.fromkeys(names)]
    if only or seeds:
        selected = [part_of(paper, quick, only, seeds) for paper in selected]
    absent = {paper.name: missing_data(paper) for paper in selected}
    if quick:
        selected = [with_the_data(paper, absent[paper.name], scenarios_folder(scenarios, paper)) for paper in selected]
    refuse(dict.fromkeys(name for paper in selected if not paper.missing for name in absent[paper.name]))
    for paper in selected:
        if paper.missing:
            names_of = ", ".join(paper.missing)
            say(f"{argument_of(paper.name)}: without {names_of}, which is missing; {how_to_fetch(paper.missing)}")
    if dry_run:
        for paper in selected:
            plan, _ = plan_of(paper, quick, scenarios_folder(scenarios, paper))
            minutes = f"about {paper.minutes[not quick]} minutes on two cores"
            print(f"{argument_of(paper.name)}: {len(plan.runs)} runs, {minutes}")
        return
    outcomes: list[Reproduction] = []
    options: dict[str, Any] = {"quick": quick, "out": out, "jobs": jobs, "device": device, "scenarios": scenarios}
    for paper in selected:
        with sweep_progress(argument_of(paper.name), quiet) as tell:
            outcomes.append(run_study(paper, tell=tell, **options))
        show_verdicts(outcomes[-1])
        for line in paper.scale() if paper.scale is not None else ():
            print(line)
        if any(run.status == "missing" for run in outcomes[-1].swept.runs):
            break  # Ctrl-C ends all studies
    exit_after(run for outcome in outcomes for run in outcome.swept.runs)


def missing_data(paper: Paper) -> list[str]:
    """Return the data sets of a study that are not in the folder of data sets."""
    from simfl.assembly.data import data_root

    root = data_root()
    return [name for name in paper.data if root is None or not any([*root.glob(f"{name}*"), *root.glob(f"*/{name}*")])]


def how_to_fetch(names: Iterable[str]) -> str:
    """Return the commands that download data sets."""
    from simfl.assembly.data import data_root

    return "set SIMFL_DATA=FOLDER, then " * (data_root() is None) + f"simfl data fetch {' '.join(names)}"


def refuse(missing: Iterable[str]) -> None:
    """Raise a `ScenarioError` that names missing data sets, if there are any."""
    from simfl.assembly.data import data_root

    if names := list(missing):
        place = "SIMFL_DATA is not set" if data_root() is None else f"SIMFL_DATA is {data_root()}"
        expected = f"expected the data sets {', '.join(names)}, found none ({place})"
        raise ScenarioError(f"reproduce: {expected}; {how_to_fetch(names)}")


def show_verdicts(outcome: Reproduction) -> None:
    """Print the claims with their verdicts, and the path of the page."""
    from rich.table import Table
    from rich.text import Text

    from simfl.cli.screen import output
    from simfl.reproduction.evidence import Verdict

    colors = {
        Verdict.REPRODUCED: "green",
        Verdict.MOSTLY: "green",
        Verdict.MIXED: "yellow",
        Verdict.NOT_REPRODUCED: "red",
    }
    table = Table(show_edge=False, pad_edge=False, title=outcome.paper.title, title_justify="left")
    table.add_column("claim", overflow="fold", ratio=3)
    table.add_column("verdict", overflow="fold", min_width=10)
    table.add_column("measured", overflow="fold", ratio=4)
    for claim in outcome.claims:
        table.add_row(Text(claim.text), Text(claim.words, colors.get(claim.verdict, "dim")), Text(claim.evidence))
    output().print(table)
    print(f"page: {outcome.page}")
