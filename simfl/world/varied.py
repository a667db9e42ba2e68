"""Links that differ from one another: by client, pair, region or direction, drawn or measured, and in time."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import get_args

from simfl.streams import Streams
from simfl.world.compute import Constant, Draws
from simfl.world.link_values import (
    Base,
    Capacity,
    Changing,
    Drawn,
    Layer,
    Lookup,
    Quantity,
    Value,
    ever,
    finish_s,
    mean_of,
    settled,
)
from simfl.world.links import KEPT_LINKS, Carrier, LinkModel, Message, Network, Queues, Values


@dataclass(frozen=True)
class VariedLinks(LinkModel):
    """Links that are as those of `LinkModel` where no layer says otherwise.

    Attributes:
        layers: later ones win.
    """

    layers: tuple[Layer, ...] = ()

    def values(self, streams: Streams, num_clients: int) -> Values:
        """Look everything up once."""
        return VariedValues(self, streams, num_clients)

    def carrier(self, network: Network) -> Carrier:
        """Queues of links of which each has its own bandwidth."""
        return VariedQueues(network)


@dataclass(frozen=True, slots=True)
class Known:
    """What a link is like.

    Attributes:
        latency, loss: numbers, or what has them at any time.
        bandwidth: of the link.
        paces: its bandwidth and its source's uplink, where both are numbers for good.
    """

    latency: float | Changing
    loss: float | Changing
    bandwidth: Capacity
    paces: tuple[float | None, float | None] | None


class VariedValues(Values):
    """What each link is like, found in the layers when it is asked for first.

    Args:
        links: the links.
        streams: the run's streams.
        num_clients: K.
    """

    def __init__(self, links: VariedLinks, streams: Streams, num_clients: int) -> None:
        super().__init__(links, streams)
        self._num_clients = num_clients
        self._base = Base(_base(links), num_clients)
        self._lookup = Lookup((self._base, *links.layers), streams, num_clients)
        self._losing = Draws(streams, "loss", lambda g, n: g.random(n))
        #: What links are like, of those that were asked for last: drawn values follow again from seed and ends.
        self.known: dict[tuple[int, int], Known] = {}
        self._uplinks: dict[int, Capacity] = {}
        self._downlinks: dict[int, Capacity] = {}
        quantities: tuple[Quantity, ...] = get_args(Quantity)
        self._said = {quantity for quantity in quantities if any(layer.says(quantity) for layer in links.layers)}
        self.latency_s = self._latency
        self.lost = self._is_lost if links.loss or "loss" in self._said else None

    @property
    def free(self) -> bool:
        """Links that differ cost something."""
        return False

    @property
    def repeats(self) -> bool:
        """Whether no layer says anything that is drawn for each message, or changes."""
        constant = isinstance(self._links.latency, Constant | None) and self.lost is None
        return constant and not self._links.startup and self._lookup.constant

    def add_node(self, node: int, uplink: float | None, downlink: float | None) -> None:
        """Take the node's own capacities for its base, which layers may change."""
        own: dict[Quantity, float | None] = {"uplink": uplink, "downlink": downlink}
        self._base.nodes[node] = {name: float(pace) for name, pace in own.items() if pace is not None}

    def bandwidth(self, source: int, target: int) -> Capacity:
        """Look it up; one that is drawn for each message is drawn here."""
        found = self.bandwidth_of(source, target)
        return found if found is None or isinstance(found, float) else settled(found)

    def bandwidth_of(self, source: int, target: int) -> Capacity:
        """Look it up, without drawing what is drawn for each message."""
        return self.of(source, target).bandwidth

    def of(self, source: int, target: int) -> Known:
        """Return all that is known of a link."""
        found = self.known.get((source, target))
        return self.look_up(source, target) if found is None else found

    def look_up(self, source: int, target: int) -> Known:
        """Find out, and keep, what a link is like."""
        of_link = self._lookup.of_link
        latency, loss = of_link("latency", source, target), of_link("loss", source, target)
        bandwidth, uplink = of_link("bandwidth", source, target), self.uplink(source)
        numbers = all(capacity is None or isinstance(capacity, float) for capacity in (bandwidth, uplink))
        found = Known(
            0.0 if latency is None else latency,
            0.0 if loss is None else loss,
            bandwidth,
            (bandwidth, uplink) if numbers else None,  # type: ignore[arg-type]
        )
        if len(self.known) >= KEPT_LINKS:
            self.known.clear()
        self.known[source, target] = found
        return found

    def uplink(self, node: int) -> Capacity:
        """Look it up."""
        try:
            return self._uplinks[node]
        except KeyError:
            found = self._uplinks[node] = self._lookup.of_node("uplink", node)
            return found

    def downlink(self, node: int) -> Capacity:
        """Look it up."""
        try:
            return self._downlinks[node]
        except KeyError:
            found = self._downlinks[node] = self._lookup.of_node("downlink", node)
            return found

    def next_change(self, time: float) -> float:
        """Ask all layers."""
        return self._lookup.next_change(time)

    def ever(self, quantity: Quantity, source: int, target: int, until: float = math.inf) -> Collection[float | None]:
        """Look it up, where a layer says something about it."""
        if quantity not in self._said and max(source, target) < self._num_clients:
            value = self._base.values.get(quantity)
            return (value if value is None or isinstance(value, float) else self.mean_latency_s(source, target, 0.0),)
        if quantity in ("uplink", "downlink"):
            part = self._lookup.of_node(quantity, source if quantity == "uplink" else target)
        else:
            part = self._lookup.of_link(quantity, source, target)
        return ever(part, until)

    def mean_latency_s(self, source: int, target: int, time: float) -> float:
        """Take the mean of what holds."""
        return mean_of(self.of(source, target).latency, time) or 0.0

    def mean_loss(self, source: int, target: int, time: float) -> float:
        """Take the mean of what holds."""
        return mean_of(self.of(source, target).loss, time) or 0.0

    def _latency(self, source: int, target: int, time: float) -> float:
        found = (self.known.get((source, target)) or self.look_up(source, target)).latency
        return found if found.__class__ is float else found.at(time) or 0.0  # type: ignore[union-attr]

    def _is_lost(self, source: int, target: int, time: float) -> bool:
        chance = (self.known.get((source, target)) or self.look_up(source, target)).loss
        if chance.__class__ is not float:
            chance = chance.at(time)  # type: ignore[union-attr, assignment]
        return bool(chance) and self._losing.next(source) < chance  # type: ignore[operator]


def _base(links: VariedLinks) -> dict[Quantity, Value]:
    """Return what holds where no layer says anything."""
    found: dict[Quantity, Value] = {"loss": float(links.loss)}
    if links.latency is not None:
        each = Drawn(links.latency, "message", "latency")
        found["latency"] = float(links.latency.value) if isinstance(links.latency, Constant) else each
    capacities: dict[Quantity, float | None] = {
        "bandwidth": links.bandwidth, "uplink": links.uplink, "downlink": links.downlink,
    }  # fmt: skip
    return found | {name: float(pace) for name, pace in capacities.items() if pace is not None}


class VariedQueues(Queues):
    """Queues whose capacities differ, and may change while a message passes.

    Args:
        network: whose messages are carried.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        assert isinstance(network.values, VariedValues), "links and their values are of a kind"
        self._values, self._known = network.values, network.values.known
        self._queue = super().carry

    def carry(self, message: Message, now: float, paces: tuple[float | None, float | None] | None = None) -> None:
        """Take the next free time of the link and the uplink, as long as it takes at the paces of each time."""
        link = message.source, message.target
        paces = (self._known.get(link) or self._values.look_up(*link)).paces
        if paces is not None:
            self._queue(message, now, paces)
            return
        network, values = self.network, self._values
        source, size, begin = message.source, message.size, now
        bandwidth, uplink = values.bandwidth(source, message.target), values.uplink(source)
        if bandwidth is not None:
            self._forget_idle(now)
            begin = max(begin, self._link_free.get((source, message.target), 0.0))
        if uplink is not None:
            begin = max(begin, self._uplink_free.get(source, 0.0))
            self._uplink_free[source] = finish_s(size, begin, uplink)
        end = finish_s(size, begin, bandwidth, uplink)
        message.paced_s = end - begin
        if bandwidth is not None:
            self._link_free[source, message.target] = end
        network.sent(message, begin, end, network.launch(message, begin))

    def reach(self, message: Message) -> None:
        """Queue for the target's downlink, which bytes that came at a slower pace have passed already."""
        downlink = self._values.downlink(message.target)
        if downlink.__class__ is float:
            self._pass(message, downlink)
            return
        if downlink is None:
            self.network.arrive(message)
            return
        now = self.clock.now
        begin = max(now - message.paced_s, self._downlink_free.get(message.target, 0.0))
        end = self._downlink_free[message.target] = max(finish_s(message.size, begin, downlink), now)
        self.clock.tell_at(end, self.network.arrive, message)

    def paced_s(self, source: int, target: int, size: int) -> float:
        """The slowest on the way paces them at any time."""
        values, now = self.network.values, self.clock.now
        ways = values.bandwidth(source, target), values.uplink(source), values.downlink(target)
        if all(way is None or isinstance(way, float) for way in ways):
            return finish_s(size, 0.0, *ways)
        return finish_s(size, now, *ways) - now
