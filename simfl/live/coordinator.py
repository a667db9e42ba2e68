"""The coordinator: counts updates, requests snapshots, ends the run.

It is also the server of FedAsync.

Marks are as in a simulated run: evaluations every given number of updates, epochs or seconds, and an end. A mark after
a number of updates reaches the clients one message later than in a simulated run, and so do their snapshots.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.algorithms.fedasync import staleness_weight
from simfl.algorithms.training import Training
from simfl.live.transport import Transport, Vector
from simfl.live.workers import MODEL, REQUEST, ROW, SNAPSHOT, STOP, UPDATE
from simfl.scenario import Scenario

#: Polling interval for requests to end the run, in seconds.
POLL_S = 0.2


@dataclass(frozen=True)
class Row:
    """A row of the table of updates; clients leave the staleness to `with_staleness`."""

    time_s: float
    client: int
    peer: int
    round_num: int
    read_s: float
    size: int
    step_size: float
    staleness: int = -1


@dataclass(frozen=True)
class Mark:
    """A moment at which models are evaluated, and the number of updates until then."""

    time_s: float
    updates: int


class Coordinator:
    """Counts updates, and ends the run.

    Args:
        scenario: the scenario of the run.
        training: the plain values of local training.
        transport: its links; clients have the ranks 0..K-1.
        begin: when the run begins, by the transport's clock.
        together: the updates that are counted together, such as those of a round of SYNC.
        interrupted: says whether the user has asked to end the run.
    """

    def __init__(
        self,
        scenario: Scenario,
        training: Training,
        transport: Transport,
        begin: float,
        together: int = 1,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self.scenario, self.training, self.transport, self.begin = scenario, training, transport, begin
        self.count, self.together, self.interrupted = scenario.clients.count, together, interrupted
        self.rows: list[Row] = []
        self.marks = [Mark(0.0, 0)]
        self.status, self.reason = "running", ""
        self._per_update = training.update_examples or training.batch_size
        self._total = float(training.sizes.sum())
        stop, every = scenario.stop, scenario.evaluate.every
        ends = [float(stop.updates)] if stop.updates is not None else []
        ends += [self._updates_in(stop.epochs)] if stop.epochs is not None else []
        self.last = math.ceil(min(ends) - 1e-9) if ends else math.inf
        self._why = "updates" if stop.updates is not None and self.last == stop.updates else "epochs"
        self._every = every.updates or (self._updates_in(every.epochs) if every.epochs else math.inf)
        self._number = 0
        self._over = False
        transport.handlers[ROW] = self._on_row

    def _updates_in(self, epochs: float) -> float:
        return epochs * self._total / self._per_update

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return self.transport.clock.monotonic() - self.begin

    @property
    def final(self) -> list[Row]:
        """The run's updates in order of time: whole rounds, none after the end."""
        stop_s = self.scenario.stop.time or math.inf
        rows = sorted((row for row in self.rows if row.time_s <= stop_s), key=lambda row: row.time_s)
        most = len(rows) if math.isinf(self.last) else -(-int(self.last) // self.together) * self.together
        rows = rows[: most if len(rows) >= most else len(rows) // self.together * self.together]
        return rows if rows and rows[0].staleness >= 0 else with_staleness(rows)

    def run(self) -> None:
        """Count updates until the run is over, and stop all clients."""
        stop_s, every_s = self.scenario.stop.time or math.inf, self.scenario.evaluate.every.time or math.inf
        self.transport.wait(lambda: False, self.begin)
        while True:
            next_s = every_s * (self._number + 1)
            if self.transport.wait(lambda: self._over, self.begin + min(stop_s, next_s, self.now + POLL_S)):
                return
            if self.now >= stop_s:
                self._end("done", "time")
            elif self.interrupted():
                self._end("interrupted", "interrupted by the user")
            elif self.now >= next_s:
                self._number += 1
                self._mark(every_s * self._number)

    def _on_row(self, source: int, numbers: NDArray[np.float64], vector: Vector) -> None:
        time_s, peer, round_num, read_s, size, step_size = numbers[:6].tolist()
        self._count(Row(time_s, source, int(peer), int(round_num), read_s, int(size), step_size))

    def _count(self, row: Row) -> None:
        self.rows.append(row)
        updates = len(self.rows)
        if self._over or updates % self.together:
            return
        if updates >= self.last:
            self._end("done", self._why)
        elif updates >= self._every * (self._number + 1):
            self._number = math.floor(updates / self._every + 1e-9)
            self._mark(row.time_s)

    def _mark(self, time_s: float) -> None:
        self.marks.append(Mark(time_s, len(self.rows)))
        self._take_snapshot()

    def _take_snapshot(self) -> None:
        for client in range(self.count):
            self.transport.send(client, SNAPSHOT)

    def _end(self, status: str, reason: str) -> None:
        self._over, self.status, self.reason = True, status, reason
        for client in range(self.count):
            self.transport.send(client, STOP)


class Server(Coordinator):
    """FedAsync's server; it takes snapshots of its own model."""

    def __init__(self, *arguments: Any, options: dict[str, Any], **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.mixing = float(options["mixing"])
        names = ("weighting", "exponent", "slope", "free_staleness")
        self.weighting = staleness_weight(*(options[name] for name in names))
        self.model: Vector = self.training.initial
        self.version = 0
        #: The model that each client trains from, and when it was read.
        self._given: dict[int, Vector] = dict.fromkeys(range(self.count), self.model)
        self._read_s = dict.fromkeys(range(self.count), 0.0)
        self.snapshots = [self.model]
        self.transport.handlers |= {UPDATE: self._on_update, REQUEST: self._on_request}

    def _on_request(self, source: int, numbers: NDArray[np.float64], vector: Vector) -> None:
        self._given[source], self._read_s[source] = self.model, self.now
        self.transport.send(source, MODEL, (self.version,), self.model)

    def _on_update(self, source: int, numbers: NDArray[np.float64], vector: Vector) -> None:
        """w <- (1 - alpha_t) w + alpha_t (w_read + change)."""
        if self._over:
            return
        staleness = self.version - int(numbers[0])
        share = np.float32(self.mixing * self.weighting(staleness))
        self.model = (np.float32(1.0) - share) * self.model + share * (self._given[source] + vector)
        self.version += 1
        read_s, size = self._read_s[source], round(self._per_update)
        self._on_request(source, numbers, vector)
        self._count(Row(self.now, source, -1, -1, read_s, size, float(numbers[1]), staleness))

    def _take_snapshot(self) -> None:
        self.snapshots.append(self.model)

    def _end(self, status: str, reason: str) -> None:
        self._take_snapshot()
        super()._end(status, reason)


def with_staleness(rows: list[Row]) -> list[Row]:
    """Return rows in order of time with the staleness of each, as in a simulated run.

    Staleness is the number of updates of all clients that were applied after the client read the model of its gradient
    and before it applied this update. It is 0 for algorithms with rounds.
    """
    times = np.array([row.time_s for row in rows])
    before = np.searchsorted(times, [row.read_s for row in rows], side="right")
    return [
        dataclasses.replace(row, staleness=0 if row.round_num >= 0 else max(0, index - int(before[index])))
        for index, row in enumerate(rows)
    ]
