"""What clients did when, as intervals: the table `timeline`, where a scenario records it.

Algorithms keep no intervals, only sums; the recorder listens to what they keep. It takes the place of `compute` and of
the clients' `times` on the one algorithm object that it is given, so a run without it pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import simpy

from simfl.algorithms import Algorithm
from simfl.records.tables import ACTIVITIES
from simfl.world.availability import Availability, Outcome

COMPUTE, LOST, WAIT, COMMUNICATE, OFFLINE = range(len(ACTIVITIES))

#: A row of the table: client, start_s, end_s, number of the activity.
TimelineRow = tuple[int, float, float, int]


class _WatchedTimes:
    """A client's sums of seconds, in the place of `Times`; a sum that grows is an interval that ends now."""

    def __init__(self, ended: Callable[[float, int], None]) -> None:
        self.compute_s = 0.0
        self._ended = ended
        self._wait_s = self._communicate_s = 0.0

    @property
    def wait_s(self) -> float:
        return self._wait_s

    @wait_s.setter
    def wait_s(self, seconds: float) -> None:
        self._ended(seconds - self._wait_s, WAIT)
        self._wait_s = seconds

    @property
    def communicate_s(self) -> float:
        return self._communicate_s

    @communicate_s.setter
    def communicate_s(self, seconds: float) -> None:
        self._ended(seconds - self._communicate_s, COMMUNICATE)
        self._communicate_s = seconds


class Timeline:
    """Record the intervals of a run's clients. Those of one client do not overlap.

    Waiting and communicating are told when they are over, by their lengths: where a client did both since it last
    computed, the lengths are exact, and what was told first stands last. What is under way at the end of the run and
    not computing is left out.

    Args:
        algorithm: before its start; from here on its `compute` and `times` are watched.
        write: given a `TimelineRow` for each interval, for each client in order of time but for the exception above.
    """

    def __init__(self, algorithm: Algorithm, write: Callable[[TimelineRow], None]) -> None:
        self._clock = algorithm.clock
        self._availability: Availability = algorithm.world.availability
        self._write = write
        count = algorithm.num_clients
        #: The computation under way: where it ends depends on when the run does.
        self._open: list[list[TimelineRow]] = [[] for _ in range(count)]
        #: Up to where each client's time is told, where the last interval begins, and where the one before it ends.
        self._told = [(0.0, 0.0, 0.0)] * count
        compute, times = algorithm.compute, algorithm.times

        def watched(client: int, examples: int | None = None) -> simpy.Event:
            before, now = times[client].compute_s, self._clock.now
            event = compute(client, examples)
            self._computes(client, now, times[client].compute_s - before, event.value is not Outcome.DONE)
            return event

        algorithm.compute = watched  # type: ignore[method-assign]
        times[:] = [_WatchedTimes(self._ending(client)) for client in range(count)]  # type: ignore[misc]

    def close(self) -> None:
        """Write what is under way now, at the end of the run, and when clients were away."""
        now = self._clock.now
        for client in range(len(self._open)):
            self._settle(client, now)
            for outage in self._availability.outages(client, now):
                self._write((client, outage.start_s, min(outage.end_s, now), OFFLINE))

    def _ending(self, client: int) -> Callable[[float, int], None]:
        return lambda seconds, activity: self._ended(client, seconds, activity)

    def _computes(self, client: int, now: float, seconds: float, lost: bool) -> None:
        """The client begins to compute for so long, apart from when it is away."""
        self._settle(client, now)
        activity = LOST if lost else COMPUTE
        self._open[client] = [(client, *piece, activity) for piece in self._present_from(client, now, seconds)]

    def _settle(self, client: int, now: float) -> None:
        """Write what the client has computed by now."""
        for _, start, end, activity in self._open[client]:
            if start < now:
                end = min(end, now)
                self._write((client, start, end, activity))
                self._told[client] = (end, start, self._told[client][0])
        self._open[client] = []

    def _ended(self, client: int, seconds: float, activity: int) -> None:
        """Something that took so long, apart from when the client was away, ends now."""
        now = self._clock.now
        self._settle(client, now)
        told, last, before = self._told[client]
        # Where something else ended now, too, this stands before it.
        floor, until = (told, now) if told < now else (before, last)
        first = until
        for start, end in self._present_before(client, until, seconds):
            start = max(start, floor)
            if start < end:
                self._write((client, start, end, activity))
                first = start
        self._told[client] = (now, first, floor)

    def _present_from(self, client: int, time: float, seconds: float) -> Iterator[tuple[float, float]]:
        """Yield the intervals, from `time` on, in which the client is there, until they add up to `seconds`."""
        while seconds > 0.0:
            away = next((o for o in self._availability.outages(client, time + seconds) if o.end_s > time), None)
            if away is None:
                yield time, time + seconds
                return
            if away.start_s > time:
                yield time, away.start_s
                seconds -= away.start_s - time
            time = away.end_s

    def _present_before(self, client: int, time: float, seconds: float) -> Iterator[tuple[float, float]]:
        """Yield the intervals, from `time` back, in which the client was there, until they add up to `seconds`."""
        for away in reversed(self._availability.outages(client, time)):
            if seconds <= time - away.end_s:
                break
            if away.end_s < time:
                yield away.end_s, time
                seconds -= time - away.end_s
            time = min(time, away.start_s)
        if seconds > 0.0:
            yield time - seconds, time
