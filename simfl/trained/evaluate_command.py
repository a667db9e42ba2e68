"""`simfl evaluate`: runs' models on their own test sets or on other data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from simfl.cli.shared import Device, Json, aside, write_json


def evaluate(
    runs: Annotated[list[Path], Argument(metavar="RUN", help="Folders of runs.")],
    data: Annotated[
        str, Option(metavar="test|train|FILE", help="A part of the run's data set, or an .npz or .csv file.")
    ] = "test",
    metrics: Annotated[str, Option(metavar="macro_f1,auc", help="Further metrics, with commas.")] = "",
    label: Annotated[str | None, Option(help="The column of labels in a .csv file.")] = None,
    json: Json = None,
    device: Device = None,
) -> None:
    """Evaluate runs' models on their own test sets or on other data.

    Features are as in the files of the run's data set. Transformations fitted on the training data are applied to them.
    """
    from simfl.records import read
    from simfl.trained.predictions import Trained

    names = [name.strip() for name in metrics.split(",") if name.strip()]
    results: list[dict[str, Any]] = [
        {"run": str(path), **Trained(read(path), device).evaluate(data, names, label), "data": data} for path in runs
    ]
    write_json(json, results)
    if aside(json):
        return
    from simfl.cli import console
    from simfl.records.display import measure_label, show_count, show_measure, show_number, show_share

    cells = {
        "run": [entry["run"] for entry in results],
        "data": [data] * len(results),
        "examples": [show_count(entry["examples"]) for entry in results],
        "loss": [show_number(entry["loss"]) for entry in results],
    }
    if any(entry["accuracy"] == entry["accuracy"] for entry in results):
        cells["accuracy"] = [show_share(entry["accuracy"]) for entry in results]
    usual = {*cells, "accuracy"}
    further = [name for name in results[0] if name not in usual and all(name in entry for entry in results)]
    cells |= {measure_label(name): [show_measure(name, entry[name]) for entry in results] for name in further}
    screen = console.output()
    console.show_parts(console.tables_of(cells, screen.width, text={"run", "data"}), screen)
