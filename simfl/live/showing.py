"""Show a prediction beside a measurement on the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from simfl.cli.screen import escaped
from simfl.live.prediction import Quantity
from simfl.records.display import NOTHING, show_bytes, show_count, show_fixed, show_number, show_share, show_time


def show_prediction(quantities: Sequence[Quantity], notes: Sequence[str], console: Console) -> None:
    """Print the prediction beside the live run, with notes on both."""
    shown = {"s": show_time, "bytes": show_bytes, "count": show_count, "share": show_share, "": show_number}
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("", style="bold", overflow="fold")
    for heading in ("predicted", "measured", "error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in quantities:
        show = shown[one.unit]
        error = NOTHING if math.isnan(one.error) else f"{show_fixed(100 * one.error, digits=1, sign=True)} %"
        table.add_row(one.name, show(one.predicted), show(one.measured), error)
    console.print(table)
    for line in notes:
        console.print(escaped(line))
