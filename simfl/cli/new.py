"""`simfl new`: a scenario to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from simfl.cli.shared import write_text


def new(
    path: Annotated[
        Path | None, Argument(metavar="FILE", help="The file to write: scenario.yaml, or question.yaml.")
    ] = None,
    question: Annotated[
        bool, Option("--question", help="A study instead: which algorithm for my data, model and clients?")
    ] = False,
    force: Annotated[bool, Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented scenario to start from."""
    from simfl.scenario.template import template

    path = path or Path("question.yaml" if question else "scenario.yaml")
    write_text(path, template("question" if question else "template"), "w" if force else "x")
    then = f"simfl sweep {path}, and: simfl report results/{path.stem}" if question else f"simfl run {path}"
    print(f"{path}: edit it, then: {then}")
