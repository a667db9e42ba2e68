"""What commands that compare share: options, and a table of groups of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

if TYPE_CHECKING:
    import pandas as pd


def _check_target(target: str | None) -> str | None:
    if target is not None:
        from simfl.comparison.targets import as_target

        as_target(target)
    return target


RunsOrSweeps = Annotated[list[Path], Argument(metavar="RUN|SWEEP", help="Folders of runs or of sweeps.")]
Baseline = Annotated[str | None, Option("--baseline", metavar="LABEL", help="Compare with these runs, seed by seed.")]
Target = Annotated[
    str | None,
    Option(
        "--target",
        metavar="ACCURACY|METRIC=VALUE",
        callback=_check_target,
        help="The goal: a test accuracy, or another metric, such as test_loss=0.3 (or 'METRIC<=VALUE'); by default the "
        "best accuracy that all reached.",
    ),
]


def show_comparison(table: pd.DataFrame) -> None:
    """Print a comparison of groups: mean ± half of the 95% interval over seeds."""
    from simfl.cli.console import output, show_parts, tables_of
    from simfl.cli.screen import escaped
    from simfl.comparison.comparing import explain
    from simfl.comparison.readable import cells_of

    console = output()
    show_parts(tables_of(cells_of(table), console.width, text={""}), console)
    for line in explain(table):
        console.print(escaped(line, "dim"))
