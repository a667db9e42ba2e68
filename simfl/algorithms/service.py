"""A server's node: it processes messages one by one, and none while offline."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any

import simpy

from simfl.compiled import Integer, Number
from simfl.world import World
from simfl.world.availability import DONE


class Service:
    """The outages and queues of servers.

    Args:
        world: has the clock, outages and the time for each message.
        server: the node that is meant where none is named.
    """

    def __init__(self, world: World, server: int) -> None:
        self._world, self._clock, self._server = world, world.clock, server
        self._trivial: bool = world.availability.trivial
        #: When each server is done with the messages that it has.
        self._free_s: dict[int, Number] = {}

    def when_up(self, call: Callable[[], None], server: Integer | None = None) -> None:
        """Call an action of a server now or when it is back, if it ever is."""
        if self._trivial:
            call()
            return
        back_s = self._world.availability.back_s(self._server if server is None else server, self._clock.now)
        if back_s == self._clock.now:
            call()
        elif not math.isinf(back_s):
            self._clock.call_at(back_s, call)

    def until_up(self) -> Generator[simpy.Event, Any, bool]:
        """Wait until the server is online; returns false if it has left permanently."""
        return self._trivial or (yield from self._world.until_back(self._server))

    def process(self, receive: Callable[[], None], server: Integer | None = None) -> None:
        """Process a server's messages one by one, each for `seconds_per_update`."""
        seconds = self._world.server.seconds_per_update
        if not seconds:
            receive()
            return
        server = self._server if server is None else server
        begin_s = max(self._clock.now, self._free_s.get(server, 0.0))
        self._free_s[server], outcome = self._world.availability.finish(server, begin_s, seconds)
        if outcome is DONE:
            self._clock.call_at(self._free_s[server], receive)
