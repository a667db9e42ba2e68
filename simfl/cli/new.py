"""`simfl new`: a scenario to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from simfl.cli.shared import write_text


def new(
    path: Annotated[Path, Argument(metavar="FILE", help="The file to write.")] = Path("scenario.yaml"),
    force: Annotated[bool, Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented scenario to start from."""
    from simfl.scenario.template import template

    write_text(path, template(), "w" if force else "x")
    print(f"{path}: edit it, then: simfl run {path}")
