"""`simfl compare`: existing runs and sweeps as a table and figures."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

from typer import Option

from simfl.cli.shared import Json, aside, say, write_json, write_text
from simfl.comparison.terminal import Baseline, RunsOrSweeps, Target, show_comparison
from simfl.errors import ScenarioError

FORMATS = ("png", "pdf", "svg")


def compare(
    paths: RunsOrSweeps,
    baseline: Baseline = None,
    target: Target = None,
    csv: Annotated[Path | None, Option(metavar="FILE|-", help="Also write all columns as CSV, unrounded.")] = None,
    json: Json = None,
    latex: Annotated[Path | None, Option(metavar="FILE|-", help="Also write means and intervals as LaTeX.")] = None,
    out: Annotated[Path | None, Option(metavar="DIR", help="Also draw the figures into this folder.")] = None,
    formats: Annotated[str, Option(metavar="png,pdf,svg", help="Formats of the figures, with commas.")] = "png",
) -> None:
    """Compare runs by group: means, 95% intervals, and the cost of an accuracy."""
    from simfl.comparison.comparing import compare_groups, label_meant
    from simfl.comparison.readable import to_latex
    from simfl.comparison.sweeps import is_sweep, open_groups, read_sweep
    from simfl.comparison.tuning import tuning_lines
    from simfl.plots.groups import shown_labels

    endings = [ending.strip().removeprefix(".") for ending in formats.split(",")]
    for ending in endings:
        if ending not in FORMATS:
            raise ScenarioError(f"--formats: expected some of {', '.join(FORMATS)}, found {ending!r}")
    groups, usual = open_groups(paths, say)
    axes, column = ("time",), "test_accuracy"
    if len(paths) == 1 and is_sweep(paths[0]):
        defaults = read_sweep(paths[0]).study["compare"]
        target = defaults["target"] if target is None else target
        axes, column = tuple(defaults["x"]), str(defaults["y"])
    usual = usual if baseline is None else label_meant(baseline, groups, shown_labels(groups))
    table = compare_groups(groups, target, usual)
    silent = aside(csv) or aside(json) or aside(latex)
    if not silent:
        for line in itertools.chain(*map(tuning_lines, map(Path, paths))):
            print(line)
        show_comparison(table)
    if csv is not None:
        write_text(csv, table.to_csv(index=False), parents=True)
    if latex is not None:
        write_text(latex, to_latex(table), parents=True)
    write_json(json, table.to_dict("records"))
    if out is not None:
        from simfl import plots
        from simfl.plots.study import draw_study

        plots.without_a_screen()
        for path in draw_study(groups, table, out, axes=axes, y=column, endings=endings):
            if not silent:
                print(path)
