"""Messages as flows that share uplinks, links, edges and downlinks fairly.

A message first waits for its latency: that of its link and of the edges beneath. Then its bytes flow at one rate
through all capacities on its way: the source's uplink, the link, each edge of the underlay in its direction, the
target's downlink. It arrives with its last byte. This is SimGrid's fluid model, without its corrections for TCP. With
rates by latency, the weight of a message in sharing is one over its latency: of two TCP flows, the one with half the
round trip has twice the rate (Mathis et al. 1997, https://doi.org/10.1145/263932.264023; SimGrid does so, too).

A lost message uses capacity like any other until its end. A partition ends the flows that it separates when it begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simfl.world.cuts import Cut
from simfl.world.fairness import FairShare, Flow, Resource
from simfl.world.link_values import Resolved, finish_s
from simfl.world.links import Carrier, Message, Network
from simfl.world.steps import Changing
from simfl.world.underlay import Underlay

#: With rates by latency, shorter latencies count as this one: 1 us.
_SHORTEST_S = 1e-6
#: A shared capacity: ("up", node), ("down", node), (source, target), or the number of an edge.
_Place = tuple[str, int] | tuple[int, int] | int


@dataclass(slots=True, eq=False)
class _Trip:
    """A send attempt; it has no flow while it waits for its latency."""

    message: Message
    begin_s: float
    lost: bool
    weight: float = 1.0
    cut: Cut | None = None
    flow: Flow | None = None
    over: bool = False


class Flows(Carrier):
    """Max-min fair sharing.

    Args:
        underlay: the network beneath; None: links do not share capacity with each other.
        by_latency: whether rates are proportional to one over the latency, instead of equal.
    """

    def __init__(self, network: Network, underlay: Underlay | None = None, by_latency: bool = False) -> None:
        super().__init__(network)
        self._underlay, self._by_latency = underlay, by_latency
        self.costs = self.shares = underlay is not None
        self._share = FairShare()
        self._resources: dict[_Place, Resource] = {}
        #: Capacities that change, of resources in use.
        self._changing: dict[Resource, Changing] = {}
        self._change_s = math.inf  # the time of the earliest scheduled change
        self._cut: dict[Cut, dict[_Trip, None]] = {}
        self._wake_s = math.inf  # the time of the earliest pending call
        self._looking = False

    def carry(self, message: Message, now: float) -> None:
        """Begin the flow after the latency."""
        latency_s = self.network.launch(message, now)
        wait_s = (latency_s or 0.0) + self.beneath_s(message.source, message.target)
        trip, begin = _Trip(message, now, latency_s is None, self._weight(wait_s)), now + wait_s
        if self.network.links.cuts and not trip.lost:
            self._expect_cut(trip)
        if begin > now:
            self.clock.call_at(begin, lambda: self._begin(trip))
        else:
            self._begin(trip)

    def paced_s(self, source: int, target: int, size: int) -> float:
        """Return the seconds that `size` bytes take at each time's smallest capacity."""
        capacities = [capacity for _, capacity in self._way(source, target)]
        begin = 0.0 if all(isinstance(capacity, float) for capacity in capacities) else self.clock.now
        return finish_s(size, begin, *capacities) - begin

    def beneath_s(self, source: int, target: int) -> float:
        """Return the latency of the edges beneath."""
        return 0.0 if self._underlay is None else self._underlay.path(source, target).latency_s

    def simultaneous_s(
        self, pairs: Sequence[tuple[int, int]], size: int, lost_s: Sequence[float], latency_s: Sequence[float]
    ) -> list[float]:
        """Return the seconds of simultaneous messages on an idle network."""
        share, resources = FairShare(), dict[_Place, Resource]()
        waits = [latency + self.beneath_s(*pair) for pair, latency in zip(pairs, latency_s, strict=True)]
        starts = [lost + wait for lost, wait in zip(lost_s, waits, strict=True)]
        order = sorted(range(len(pairs)), key=lambda i: starts[i])
        ends, begun = [0.0] * len(pairs), 0
        while begun < len(pairs) or len(share):
            now = starts[order[begun]] if begun < len(pairs) else math.inf
            now = min(now, share.next_s)
            for flow in share.advance(now):
                ends[flow.payload] = now
            while begun < len(pairs) and starts[order[begun]] == now:
                number = order[begun]
                way = [
                    resources.setdefault(place, Resource(self._now(capacity)))
                    for place, capacity in self._way(*pairs[number])
                ]
                share.begin(now, way, size, weight=self._weight(waits[number]), payload=number)
                begun += 1
        return ends

    def backlog_s(self) -> float:
        """Return how long the busiest resource needs for the bytes of its flows."""
        now = self.clock.now
        return max((self._share.backlog_s(resource, now) for resource in self._resources.values()), default=0.0)

    def _weight(self, latency_s: float) -> float:
        return 1.0 / max(latency_s, _SHORTEST_S) if self._by_latency else 1.0

    def _way(self, source: int, target: int) -> Iterator[tuple[_Place, float | Changing]]:
        """Yield the finite capacities that a message crosses, bytes per second."""
        values = self.network.values
        ends: tuple[tuple[_Place, Resolved], ...] = (
            (("up", source), values.uplinks[source]),
            ((source, target), values.bandwidth(source, target)),
            (("down", target), values.downlinks[target]),
        )
        for place, capacity in ends:
            if capacity is not None:
                yield place, capacity
        if self._underlay is not None:
            for edge in self._underlay.path(source, target).edges:
                if (bandwidth := self._underlay.bandwidths[edge]) < math.inf:
                    yield edge, bandwidth

    def _now(self, capacity: float | Changing) -> float:
        if isinstance(capacity, float):
            return capacity
        return math.inf if (pace := capacity.at(self.clock.now)) is None else pace

    def _begin(self, trip: _Trip) -> None:
        if trip.over:
            return
        message, now = trip.message, self.clock.now
        way = [self._resource(*crossed) for crossed in self._way(message.source, message.target)]
        trip.flow = self._share.begin(now, way, message.size, weight=trip.weight, payload=trip)
        self._look()

    def _resource(self, place: _Place, capacity: float | Changing) -> Resource:
        """Return the shared resource of a place."""
        resource = self._resources.get(place)
        if isinstance(capacity, float):
            if resource is None or resource.capacity != capacity:
                resource = self._resources[place] = Resource(capacity)
        elif resource is None or self._changing.get(resource) != capacity:
            resource = self._resources[place] = Resource(self._now(capacity))
            self._changing[resource] = capacity
            self._await_change(capacity)
        return resource

    def _await_change(self, capacity: Changing) -> None:
        time = capacity.next_change(self.clock.now)
        if time < self._change_s:
            self._change_s = time
            self.clock.call_at(time, self._change)

    def _change(self) -> None:
        """Set the capacities that change to their current values."""
        now, self._change_s = self.clock.now, math.inf
        for resource, capacity in list(self._changing.items()):
            if resource.flows:
                self._share.set_capacity(resource, self._now(capacity), now)
                self._await_change(capacity)
            else:
                del self._changing[resource]
        self._look()

    def _look(self) -> None:
        """Set the alarm for the end of the next flow."""
        if not self._looking:
            self._looking = True
            self.clock.call_at(self.clock.now, self._set_alarm)

    def _set_alarm(self) -> None:
        self._looking = False
        next_s = self._share.next_s
        if next_s < self._wake_s:
            self._wake_s = next_s
            self.clock.call_at(next_s, self._wake)

    def _wake(self) -> None:
        """Deliver the flows that have ended."""
        now = self.clock.now
        if now + 4.0 * math.ulp(now) >= self._wake_s:  # the clock adds durations, and so may be off by rounding
            now, self._wake_s = max(now, self._wake_s), math.inf
        for flow in self._share.advance(now):
            trip: _Trip = flow.payload
            message = trip.message
            self._end(trip)
            self.network.sent(message, trip.begin_s, self.clock.now, None if trip.lost else 0.0)
        self._look()

    def _end(self, trip: _Trip) -> None:
        trip.over = True
        if trip.cut is not None:
            del self._cut[trip.cut][trip]
        link = trip.message.source, trip.message.target
        resource = self._resources.get(link)
        if resource is not None and not resource.flows:  # idle links are dropped: there may be many
            del self._resources[link]

    def _expect_cut(self, trip: _Trip) -> None:
        """Register the next partition between a message's ends, which destroys it."""
        cut = self.network.hit((trip.message.source, trip.message.target), trip.begin_s, math.inf)
        if cut is None:
            return
        if cut not in self._cut:
            self._cut[cut] = {}
            self.clock.call_at(cut.start_s, lambda: self._sever(cut))
        trip.cut = cut
        self._cut[cut][trip] = None

    def _sever(self, cut: Cut) -> None:
        now = self.clock.now
        for trip in list(self._cut[cut]):
            if trip.flow is not None:
                self._share.abort(trip.flow, now)
            self._end(trip)
            self.network.lose(trip.message, now, cut.end_s)
        del self._cut[cut]
        self._look()
