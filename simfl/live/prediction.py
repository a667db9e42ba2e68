"""A live run beside its prediction by simulation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from simfl.records import Run
from simfl.scenario import Scenario


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A number that the prediction and the measurement both have.

    Attributes:
        name: what it is.
        unit: "s", "bytes", "count", "share", or "" for a number without a unit.
        predicted, measured: its values.
    """

    name: str
    unit: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """The prediction's relative error, predicted / measured - 1; NaN for 0."""
        if self.predicted == self.measured:
            return 0.0
        return self.predicted / self.measured - 1.0 if self.measured else math.nan


def quantities(predicted: Run, measured: Run) -> list[Quantity]:
    """Return the quantities of both runs, the most important first."""
    values = [dict(_values(run)) for run in (predicted, measured)]
    return [
        Quantity(name, unit, values[0][name, unit], value)
        for (name, unit), value in values[1].items()
        if math.isfinite(values[0].get((name, unit), math.nan)) and math.isfinite(value)
    ]


def _values(run: Run) -> Iterator[tuple[tuple[str, str], float]]:
    """Give (name, unit) and value of every quantity of a run."""
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

    Args:
        measured: the live run.
        scenario: what both ran.
        written_clients: how many clients the scenario's file has.
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
    lines += measured.manifest.extra["warnings"]
    return lines
