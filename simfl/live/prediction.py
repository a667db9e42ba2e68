"""A live run beside its prediction by simulation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from simfl.cli.screen import escaped
from simfl.records import Run
from simfl.records.display import NOTHING, show_bytes, show_count, show_fixed, show_number, show_share, show_time
from simfl.scenario import Scenario


@dataclass(frozen=True)
class Quantity:
    """A number of both the prediction and the measurement."""

    name: str
    unit: str  # "s", "bytes", "count", "share", or "" for none
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """The prediction's relative error, predicted / measured - 1; NaN for measured 0."""
        if self.predicted == self.measured:
            return 0.0
        return self.predicted / self.measured - 1.0 if self.measured else math.nan


def quantities(predicted: Run, measured: Run) -> list[Quantity]:
    """Return the quantities that are finite in both runs, the most important first."""
    before = dict(_values(predicted))
    return [
        Quantity(name, unit, before[name, unit], value)
        for (name, unit), value in _values(measured)
        if math.isfinite(before.get((name, unit), math.nan)) and math.isfinite(value)
    ]


def _values(run: Run) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield (name, unit) and value of every quantity of a run."""
    manifest, clients, last = run.manifest, run.clients, run.metrics.iloc[-1]
    yield ("duration", "s"), manifest.time_s
    yield ("updates", "count"), manifest.updates
    yield ("updates per second", ""), manifest.updates / manifest.time_s if manifest.time_s else math.nan
    yield ("data sent", "bytes"), float(last["bytes_sent"])
    yield ("messages", "count"), float(last["messages"])
    if run.scenario["record"]["updates"] and manifest.updates:
        staleness = run.updates["staleness"]
        yield ("mean staleness", ""), float(staleness.mean())
        yield ("largest staleness", "count"), float(staleness.max())
    yield ("computing, per client", "s"), float(clients["compute_s"].mean())
    yield ("waiting and communicating, per client", "s"), float((clients["wait_s"] + clients["communicate_s"]).mean())
    yield ("test accuracy", "share"), float(last["test_accuracy"])
    yield ("test loss", ""), float(last["test_loss"])


def notes(measured: Run, scenario: Scenario, written_clients: int) -> list[str]:
    """Return notes on the comparison, one line each.

    `scenario` is that of both runs, and `written_clients` the number of clients in its file.
    """
    about, clients = measured.manifest.extra["live"], scenario.clients.count
    lines = [
        f"predicted: virtual time of a simulation with {clients} clients. measured: wall time of {about['processes']} "
        f"processes ({clients} clients, and one that counts updates). error: predicted / measured - 1"
    ]
    if clients != written_clients:
        lines.append(f"clients: {clients} instead of the {written_clients} of the scenario, in both")
    if about["compute"] == "slept":
        lines.append(
            "computing: slept. A process computes each gradient, and then sleeps until the time that the scenario "
            "draws for the mini-batch is over. The comparison does not test how fast this machine computes: "
            "--compute real does"
        )
        if about["late_s"] > 0:
            lines.append(
                f"computing: gradients took {about['late_s']:.3g} s more, in total, than the scenario draws for them"
            )
    else:
        lines.append(
            "computing: real. The prediction takes its compute times from the scenario: simfl calibrate measures them"
        )
    return [*lines, *measured.manifest.extra["warnings"]]


def show_prediction(pairs: Sequence[Quantity], lines: Sequence[str], console: Console) -> None:
    """Print the quantities of both runs, then the notes."""
    shown = {"s": show_time, "bytes": show_bytes, "count": show_count, "share": show_share, "": show_number}
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("", style="bold", overflow="fold")
    for heading in ("predicted", "measured", "error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for pair in pairs:
        show = shown[pair.unit]
        error = NOTHING if math.isnan(pair.error) else f"{show_fixed(100 * pair.error, digits=1, sign=True)} %"
        table.add_row(pair.name, show(pair.predicted), show(pair.measured), error)
    console.print(table)
    for line in lines:
        console.print(escaped(line))
