"""The table `timeline`: what each client did, as intervals of time.

Algorithms keep sums of seconds and no intervals. A `Timeline` is the `observer` of an algorithm and turns what it is
told into intervals.
"""

from __future__ import annotations

from collections.abc import Callable

from simfl.algorithms import Algorithm
from simfl.records.tables import ACTIVITIES
from simfl.world.availability import Availability

COMPUTE, LOST, WAIT, COMMUNICATE, OFFLINE = range(len(ACTIVITIES))

#: A row of the table: client, start_s, end_s, number of the activity.
TimelineRow = tuple[int, float, float, int]


class Timeline:
    """Records the intervals of clients, which partition each client's time.

    Communicating is told when it is over, by its length. What is neither that, nor computing, nor being away, is
    waiting; a message under way at the end of the run counts as that, as in the table of clients.

    Args:
        algorithm: before its start; the timeline becomes its observer.
        write: given a `TimelineRow` for each interval, for each client in order of time, those away aside.
    """

    def __init__(self, algorithm: Algorithm, write: Callable[[TimelineRow], None]) -> None:
        self._clock = algorithm.clock
        self._availability: Availability = algorithm.world.availability
        self._write = write
        count = algorithm.num_clients
        #: The computation under way: where it ends depends on when the run does.
        self._open: list[list[TimelineRow]] = [[] for _ in range(count)]
        #: Up to where each client's time is told.
        self._told = [0.0] * count
        algorithm.observer = self

    def close(self) -> None:
        """Write the current intervals at the end of the run, and offline intervals."""
        now = self._clock.now
        for client in range(len(self._open)):
            self._settle(client)
            self._waits(client, now)
            for outage in self._availability.outages(client, now):
                self._write((client, outage.start_s, min(outage.end_s, now), OFFLINE))

    def computes(self, client: int, until: float, lost: bool) -> None:
        """The client begins to compute, until then unless the run ends before."""
        self._settle(client)
        self._waits(client, self._clock.now)
        activity = LOST if lost else COMPUTE
        pieces = self._availability.present(client, self._clock.now, until)
        self._open[client] = [(client, start, end, activity) for start, end in pieces]

    def _settle(self, client: int) -> None:
        """Write what the client has computed up to now."""
        now = self._clock.now
        for _, start, end, activity in self._open[client]:
            if start < now:
                self._told[client] = min(end, now)
                self._write((client, start, self._told[client], activity))
        self._open[client] = []

    def _waits(self, client: int, until: float) -> None:
        """Write that the client has waited since its last interval."""
        for start, end in self._availability.present(client, self._told[client], until):
            self._write((client, start, end, WAIT))
        self._told[client] = until

    def communicated(self, client: int, seconds: float) -> None:
        """Write a communication that ends now, and the wait before it."""
        self._settle(client)
        pieces, taken = self._availability.present(client, self._told[client], self._clock.now), []
        while pieces and seconds > 0.0:
            start, end = pieces.pop()
            begin = max(start, end - seconds)
            taken.append((client, begin, end, COMMUNICATE))
            seconds = 0.0 if begin > start else seconds - (end - begin)  # no residue of rounding reaches further back
        if taken:
            self._waits(client, taken[-1][1])
            for row in reversed(taken):
                self._write(row)
            self._told[client] = self._clock.now
