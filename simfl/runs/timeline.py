"""The table `timeline`: what each client did, as intervals of time.

Algorithms keep sums of seconds and no intervals: a `Timeline` observes an algorithm and derives the intervals.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from simfl.algorithms import Algorithm
from simfl.records.tables import ACTIVITIES
from simfl.world.availability import Availability

COMPUTE, LOST, WAIT, COMMUNICATE, OFFLINE = range(len(ACTIVITIES))

#: A row of the table: client, start_s, end_s, number of the activity.
TimelineRow = tuple[int, float, float, int]


class Timeline:
    """Records the intervals of clients, which partition each client's time.

    A communication is reported when it is over, by its length. Time without communicating, computing or being offline
    is waiting; a message in flight at the end of the run counts as waiting, as in the table of clients.

    The timeline becomes the observer of an algorithm that has not started. `write` is called with a `TimelineRow` for
    each interval; rows of a client come in order of time, offline ones last.
    """

    def __init__(self, algorithm: Algorithm, write: Callable[[TimelineRow], None]) -> None:
        self._clock = algorithm.clock
        self._availability: Availability = algorithm.world.availability
        self._write = write
        count = algorithm.num_clients
        self._always = [self._availability.always_online(client) for client in range(count)]
        #: The computation under way. Its end depends on the end of the run.
        self._open: list[list[TimelineRow]] = [[] for _ in range(count)]
        #: The time up to which each client's intervals are written.
        self._written_s = [0.0] * count
        algorithm.times.observer = self

    def close(self, write: Callable[[TimelineRow], None] | None = None) -> None:
        """Write the current intervals at the end of the run, and offline intervals.

        With `write` they go there, and the timeline goes on as if it had not been asked.
        """
        now = self._clock.now
        last = self
        if write is not None:
            last = copy.copy(self)
            last._write, last._open, last._written_s = write, list(self._open), list(self._written_s)
        for client in range(len(last._open)):
            last._settle(client)
            last._waits(client, now)
            for outage in last._availability.outages(client, now):
                last._write((client, outage.start_s, min(outage.end_s, now), OFFLINE))

    def computes(self, client: int, until: float, lost: bool) -> None:
        """Record that the client computes until `until`, unless the run ends before."""
        now, activity = self._clock.now, LOST if lost else COMPUTE
        self._settle(client)
        self._waits(client, now)
        if self._always[client]:  # without lists of pieces, for most rows of a run
            self._open[client] = [(client, now, until, activity)]
        else:
            pieces = self._availability.present(client, now, until)
            self._open[client] = [(client, start, end, activity) for start, end in pieces]

    def stopped(self, client: int) -> None:
        """Record that the computation in progress ends now and is lost."""
        self._open[client] = [(client, start, end, LOST) for _, start, end, _ in self._open[client]]
        self._settle(client)

    def _settle(self, client: int) -> None:
        if not (rows := self._open[client]):
            return
        now = self._clock.now
        for row in rows:
            _, start, end, activity = row
            if start < now:
                self._written_s[client] = min(end, now)
                self._write(row if end <= now else (client, start, now, activity))
        self._open[client] = []

    def _waits(self, client: int, until: float) -> None:
        if (since := self._written_s[client]) >= until:
            return
        for start, end in self._availability.present(client, since, until):
            self._write((client, start, end, WAIT))
        self._written_s[client] = until

    def communicated(self, client: int, seconds: float) -> None:
        """Write a communication that ends now, and the wait before it."""
        self._settle(client)
        pieces, taken = self._availability.present(client, self._written_s[client], self._clock.now), []
        while pieces and seconds > 0.0:
            start, end = pieces.pop()
            begin = max(start, end - seconds)
            taken.append((client, begin, end, COMMUNICATE))
            seconds = 0.0 if begin > start else seconds - (end - begin)  # no residue of rounding reaches further back
        if taken:
            self._waits(client, taken[-1][1])
            for row in reversed(taken):
                self._write(row)
            self._written_s[client] = self._clock.now
