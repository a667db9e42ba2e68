"""The world: the times of all events. It never touches a float array.

- `engine`: the clock, a SimPy environment; `slots`: its later events.
- `compute`: compute times; slowdowns.
- `availability`: late joins, outages, crashes.
- `links`: messages, losses, queues; `link_values`: what links are like, by rules; `cuts`: network partitions.
- `flows`, `fairness`: messages that share capacities fairly; `underlay`: the routers beneath the links.
- `collectives`: the messages of an all-reduce.
- `topology`: the graph of clients; `changing`: graphs that change over time.
- `steps`: values that change over time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

from simfl.streams import Streams
from simfl.world.availability import Availability
from simfl.world.changing import Changing
from simfl.world.compute import Compute
from simfl.world.engine import Clock
from simfl.world.links import Network, ServerModel
from simfl.world.topology import Topology


@dataclass
class World:
    """Everything that decides the times of events."""

    clock: Clock
    compute: Compute
    availability: Availability
    network: Network
    topology: Topology
    streams: Streams
    server: ServerModel = field(default_factory=ServerModel)
    #: The graph at each time, if it changes; `topology` then has the links that are known before the run.
    changing: Changing | None = None

    def joined(self, client: int) -> simpy.Event:
        """Return an event at the time the client joins the run, if it ever does."""
        joins_s = self.availability.joins_s(client)
        return self.clock.event() if math.isinf(joins_s) else self.clock.timeout(joins_s)

    def meets_s(self, client: int, nodes: Sequence[int]) -> float:
        """Return when the client is next online and can reach `nodes`; inf for never."""
        time, before = self.clock.now, -1.0
        while before < time < math.inf:
            before = time
            time = self.network.joined_s(nodes, self.availability.back_s(client, time))
        return time

    def until_back(self, client: int) -> Generator[simpy.Event, Any, bool]:
        """Wait until the client is online; returns false if it has left permanently.

        Another client's message or departure may wake a client while it is offline.
        """
        while (back_s := self.availability.back_s(client, self.clock.now)) > self.clock.now:
            if math.isinf(back_s):
                return False
            yield self.clock.timeout(back_s - self.clock.now)
        return True

    @property
    def num_clients(self) -> int:
        """Number of clients, K."""
        return self.topology.num_clients

    def neighbors(self) -> Callable[[int], Sequence[int]]:
        """Return a function from a client to its present neighbors."""
        changing, clock = self.changing, self.clock
        if changing is None:
            return tuple(self.topology.adjacency).__getitem__
        return lambda client: changing.neighbors(client, clock.now)


__all__ = ["Availability", "Changing", "Clock", "Compute", "Network", "ServerModel", "Topology", "World"]
