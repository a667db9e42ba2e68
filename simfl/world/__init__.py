"""The world: what happens when. It never touches a float array.

- `engine`: the clock (SimPy).
- `compute`: how long a client computes; slowdowns.
- `availability`: late joins, outages, crashes.
- `links`: messages.
- `topology`: who is linked with whom; `changing`: where that changes.
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
    """Everything that decides what happens when."""

    clock: Clock
    compute: Compute
    availability: Availability
    network: Network
    topology: Topology
    streams: Streams
    server: ServerModel = field(default_factory=ServerModel)
    #: What the graph is at each time where it changes; `topology` then has the links that are known beforehand.
    changing: Changing | None = None

    @property
    def num_clients(self) -> int:
        """Number of clients, K."""
        return self.topology.num_clients

    def neighbors(self) -> Callable[[int], Sequence[int]]:
        """Return what gives a client's neighbors of now."""
        changing, clock = self.changing, self.clock
        if changing is None:
            return [self.topology.neighbors(client) for client in range(self.num_clients)].__getitem__
        return lambda client: changing.neighbors(client, clock.now)


__all__ = ["Availability", "Changing", "Clock", "Compute", "Network", "ServerModel", "Topology", "World"]
