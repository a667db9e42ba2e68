"""The world: the times of all events. It never touches a float array.

- `engine`: the clock, a SimPy environment.
- `compute`: compute times; slowdowns.
- `availability`: late joins, outages, crashes.
- `links`: messages, losses, queues; `varied`, `link_values`: links that differ; `cuts`: network partitions.
- `flows`, `fairness`: messages that share capacities fairly; `underlay`: the routers beneath the links.
- `collectives`: the messages of an all-reduce.
- `topology`: the graph of clients; `changing`: graphs that change over time.
- `steps`: values that change over time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
