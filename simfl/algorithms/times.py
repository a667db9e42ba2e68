"""Seconds that clients spend online computing, communicating and waiting.

waited = online - computed - communicated
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Protocol

from mypy_extensions import mypyc_attr

from simfl.compiled import Integer, Number
from simfl.world.availability import Availability
from simfl.world.engine import Clock


class Observer(Protocol):
    """Receives the intervals that are counted in `Times`."""

    def computes(self, client: int, until: Number, lost: bool) -> None:
        """Note a computation from now to `until`; if `lost`, its result is destroyed."""

    def stopped(self, client: int) -> None:
        """Note that the computation in progress ends now, without a result."""

    def communicated(self, client: int, seconds: Number) -> None:
        """Note that the client communicated during the last `seconds`."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Times:
    """The times of each client so far, in seconds of virtual time."""

    def __init__(self, clock: Clock, availability: Availability, num_clients: int) -> None:
        self._clock, self._availability = clock, availability
        self._trivial: bool = availability.trivial
        #: Receives the intervals; may be set before the start.
        self.observer: Observer | None = None
        self._compute_s, self._communicate_s = (array("d", bytes(8 * num_clients)) for _ in range(2))
        #: Time at which each client's current computation ends: it is done, or the client crashes or leaves.
        self.busy_until = array("d", bytes(8 * num_clients))

    def computes(self, client: Integer, seconds: Number, until: Number, lost: bool) -> None:
        """Count a computation of `seconds` online; if `lost`, its result is destroyed."""
        self._compute_s[client] += seconds
        self.busy_until[client] = until
        if self.observer is not None:
            self.observer.computes(client, until, lost=lost)

    def stopped(self, client: Integer) -> None:
        """End the time of the client's computation now: its process is interrupted."""
        self._compute_s[client] = self.computed_s(client)
        self.busy_until[client] = self._clock.now
        if self.observer is not None:
            self.observer.stopped(client)

    def communicated(self, client: Integer, seconds: Number) -> None:
        """Count that the client communicated during the last `seconds`."""
        before = self._communicate_s[client]
        self._communicate_s[client] = after = before + seconds
        if self.observer is not None:
            self.observer.communicated(client, after - before)  # intervals add up to the counter exactly

    def begun_s(self, client: Integer) -> Number:
        """Return the seconds of all computations, including the rest of the current one."""
        return self._compute_s[client]

    def computed_s(self, client: Integer) -> Number:
        """Return the seconds of computation up to now, including lost and current work."""
        now, until = self._clock.now, self.busy_until[client]
        ahead = self.present_s(client, now, until) if until > now else 0.0
        return self._compute_s[client] - ahead

    def communicated_s(self, client: Integer) -> Number:
        """Return the seconds of communication up to now."""
        return self._communicate_s[client]

    def waited_s(self, client: Integer) -> Number:
        """Return the seconds online without computing or communicating.

        A message still in flight counts as waiting.
        """
        now = self._clock.now
        waited = self.present_s(client, 0.0, now) - self.computed_s(client) - self._communicate_s[client]
        return waited if waited > 1e-11 * now else 0.0  # less is a rounding error

    def present_s(self, client: Integer, start: Number, end: Number) -> Number:
        """Return the seconds of [start, end] in which the client is online."""
        if self._trivial:
            return end - start
        away_s = self._availability.offline_s
        return max(0.0, end - start - (away_s(client, end) - away_s(client, start)))


class Exchanges:
    """Seconds of exchanges with a server, less the time that a client waits there.

    Args:
        clock, times: those of the clients.
        spent_s: returns how many of the last seconds of a client were not counted before; None if all were.
    """

    def __init__(self, clock: Clock, times: Times, spent_s: Callable[[int, Number], Number | None]) -> None:
        self._clock, self._times, self._spent_s = clock, times, spent_s
        self._waited_s: dict[int, Number] = {}

    def communicated(self, client: Integer, seconds: Number) -> None:
        """Count that the client communicated during the last `seconds`: each second once."""
        spent_s = self._spent_s(client, seconds)
        if spent_s is not None:
            self._times.communicated(client, spent_s)

    def ended(self, client: Integer, since: Number) -> None:
        """Count a client's time since sending as communication, less its wait."""
        now = self._clock.now
        if now == since:
            return
        spent = self._times.present_s(client, since, now)
        waited = min(self._waited_s.pop(client, 0.0), spent) if self._waited_s else 0.0
        self.communicated(client, spent - waited)

    def waited(self, client: Integer, since: Number) -> None:
        """Note that a client waited at the server until now."""
        waited = self._times.present_s(client, since, self._clock.now)
        if waited > 0.0:
            self._waited_s[client] = self._waited_s.get(client, 0.0) + waited
