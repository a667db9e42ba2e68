"""`simfl list`: the catalogues of what scenarios may name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import typer

from simfl.cli.shared import Json, aside, write_json

Catalogue = Literal["algorithms", "models", "data", "topologies", "optimizers"]
CATALOGUES: tuple[Catalogue, ...] = ("algorithms", "models", "data", "topologies", "optimizers")


def list_(
    what: Annotated[
        Catalogue | None, typer.Argument(metavar="WHAT", help="One of the five; all by default.", show_default=False)
    ] = None,
    json: Json = None,
) -> None:
    """List algorithms, models, data sets, topologies and optimisers, with one line about each."""
    listed = {catalogue: _entries(catalogue) for catalogue in (CATALOGUES if what is None else [what])}
    write_json(json, listed)
    if aside(json):
        return
    from simfl.cli import console

    screen = console.output()
    for title, entries in listed.items():
        console.show_listing(title, entries, screen)


def _entries(catalogue: Catalogue) -> Mapping[str, str]:
    """Return names with a line about each; only the catalogue that is asked for is imported."""
    if catalogue == "algorithms":
        from simfl.algorithms import ALGORITHMS

        return {kind: algorithm.summary for kind, algorithm in ALGORITHMS.items()}
    if catalogue == "models":
        from simfl.models import MODELS

        return {kind: model.summary for kind, model in MODELS.items()}
    if catalogue == "data":
        from simfl.data import DATASETS

        return {kind: loader.summary for kind, loader in DATASETS.items()}
    if catalogue == "optimizers":
        from simfl.scenario.optimizers import summaries

        return summaries()
    from simfl.world.changing import CHANGING
    from simfl.world.topology import TOPOLOGIES

    return {**TOPOLOGIES, **CHANGING}
