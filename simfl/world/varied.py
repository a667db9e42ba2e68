"""Links that differ by client, pair, region or direction, and in time."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from simfl.streams import Streams
from simfl.world.compute import Constant, Draws
from simfl.world.link_values import Capacity, Drawn, Key, Listed, Lookup, Quantity, Rule, Value, ever, finish_s, mean_of
from simfl.world.links import KEPT_LINKS, Carrier, LinkModel, Message, Network, Queues, Values
from simfl.world.steps import Changing


@dataclass(frozen=True)
class VariedLinks(LinkModel):
    """Links that behave as `LinkModel` says unless a rule says otherwise.

    Attributes:
        rules: later ones win.
    """

    rules: tuple[Rule, ...] = ()

    def values(self, streams: Streams, num_clients: int) -> Values:
        """Return values that are looked up once per link."""
        return VariedValues(self, streams, num_clients)

    def carrier(self, network: Network) -> Carrier:
        """Return queues of links whose bandwidths may differ."""
        return VariedQueues(network)

    def base_rules(self, num_clients: int) -> tuple[Rule, Rule]:
        """Return the values of all links, and those of all clients."""
        of_links: dict[Quantity, Value] = {"loss": float(self.loss)}
        if isinstance(self.latency, Constant):
            of_links["latency"] = float(self.latency.value)
        elif self.latency is not None:
            of_links["latency"] = Drawn(self.latency, "message", "latency")
        if self.bandwidth is not None:
            of_links["bandwidth"] = float(self.bandwidth)
        capacities: dict[Quantity, float | None] = {"uplink": self.uplink, "downlink": self.downlink}
        of_clients = {quantity: float(pace) for quantity, pace in capacities.items() if pace is not None}
        return Rule(of_links), Rule(of_clients, nodes=range(num_clients))


class LinkState(NamedTuple):
    """The values of one link.

    Attributes:
        latency, loss: constants, or values that depend on the time.
        bandwidth: of the link.
        paces: its bandwidth and its source's uplink, if neither depends on the time; otherwise None.
    """

    latency: float | Changing
    loss: float | Changing
    bandwidth: Capacity
    paces: tuple[float | None, float | None] | None


class VariedValues(Values):
    """The values of links that differ, looked up in the rules on first use."""

    def __init__(self, links: VariedLinks, streams: Streams, num_clients: int) -> None:
        super().__init__(links, streams)
        self._num_clients = num_clients
        self._base = links.base_rules(num_clients)
        #: Uplinks and downlinks of servers, by node.
        self._of_servers: dict[Quantity, dict[Key, float]] = {"uplink": {}, "downlink": {}}
        servers = Rule({quantity: Listed(paces) for quantity, paces in self._of_servers.items()})
        self._lookup = Lookup((*self._base, servers, *links.rules), streams, num_clients)
        self._losing = Draws(streams, "loss", lambda g, n: g.random(n))
        #: Values of links that were used recently; dropped ones are looked up again, with the same draws.
        self.states: dict[tuple[int, int], LinkState] = {}
        self._uplink = functools.cache(functools.partial(self._lookup.of_node, "uplink"))
        self._downlink = functools.cache(functools.partial(self._lookup.of_node, "downlink"))
        self._varied = {quantity for rule in links.rules for quantity in rule.values}
        self.latency_s = self._latency
        self.lost = self._is_lost if links.loss or "loss" in self._varied else None

    @property
    def free(self) -> bool:
        """Whether messages take no time: never, because links that differ take time."""
        return False

    @property
    def repeats(self) -> bool:
        """Whether no value is drawn per message or changes."""
        return self.lost is None and not self._links.startup and self._lookup.constant

    def add_node(self, node: int, uplink: float | None, downlink: float | None) -> None:
        """Add a server's capacities, which rules may change."""
        for paces, pace in zip(self._of_servers.values(), (uplink, downlink), strict=True):
            if pace is not None:
                paces[node] = float(pace)

    def bandwidth(self, source: int, target: int) -> Capacity:
        """Return the bandwidth of a link, drawn now if it is drawn per message."""
        bandwidth = self.of(source, target).bandwidth
        return bandwidth if bandwidth is None or isinstance(bandwidth, float) else bandwidth.settled()

    def of(self, source: int, target: int) -> LinkState:
        """Return the values of a link."""
        return self.states.get((source, target)) or self.look_up(source, target)

    def look_up(self, source: int, target: int) -> LinkState:
        """Look up the values of a link in the rules, and keep them."""
        of_link = self._lookup.of_link
        latency, loss = of_link("latency", source, target), of_link("loss", source, target)
        bandwidth, uplink = of_link("bandwidth", source, target), self.uplink(source)
        constant = isinstance(bandwidth, float | None) and isinstance(uplink, float | None)
        state = LinkState(
            0.0 if latency is None else latency,
            0.0 if loss is None else loss,
            bandwidth,
            (bandwidth, uplink) if constant else None,  # type: ignore[arg-type]
        )
        if len(self.states) >= KEPT_LINKS:
            self.states.clear()
        self.states[source, target] = state
        return state

    def uplink(self, node: int) -> Capacity:
        """Return the uplink of a node."""
        return self._uplink(node)

    def downlink(self, node: int) -> Capacity:
        """Return the downlink of a node."""
        return self._downlink(node)

    def ever(self, quantity: Quantity, source: int, target: int, until: float = math.inf) -> Collection[float | None]:
        """Return all values in a run; see `Values.ever`."""
        if quantity not in self._varied and max(source, target) < self._num_clients:  # the same for all clients
            value = next((rule.values[quantity] for rule in self._base if quantity in rule.values), None)
            return (value if isinstance(value, float | None) else self.mean_latency_s(source, target, 0.0),)
        if quantity in ("uplink", "downlink"):
            return ever(self._lookup.of_node(quantity, source if quantity == "uplink" else target), until)
        return ever(self._lookup.of_link(quantity, source, target), until)

    def mean_latency_s(self, source: int, target: int, time: float) -> float:
        """Return the mean latency of messages at a time."""
        return mean_of(self.of(source, target).latency, time) or 0.0

    def mean_loss(self, source: int, target: int, time: float) -> float:
        """Return the mean loss of messages at a time."""
        return mean_of(self.of(source, target).loss, time) or 0.0

    def _latency(self, source: int, target: int, time: float) -> float:
        latency = (self.states.get((source, target)) or self.look_up(source, target)).latency
        return latency if latency.__class__ is float else latency.at(time) or 0.0  # type: ignore[union-attr]

    def _is_lost(self, source: int, target: int, time: float) -> bool:
        chance = (self.states.get((source, target)) or self.look_up(source, target)).loss
        if chance.__class__ is not float:
            chance = chance.at(time)  # type: ignore[union-attr, assignment]
        return bool(chance) and self._losing.next(source) < chance  # type: ignore[operator]


class VariedQueues(Queues):
    """Queues whose capacities differ, and may change while a message passes."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        assert isinstance(network.values, VariedValues), "VariedLinks makes both"
        self._values, self._states = network.values, network.values.states
        self._queue = super().carry

    def carry(self, message: Message, now: float, paces: tuple[float | None, float | None] | None = None) -> None:
        """Send when link and uplink are free, at the pace that they have at each time."""
        link = message.source, message.target
        paces = (self._states.get(link) or self._values.look_up(*link)).paces
        if paces is not None:
            self._queue(message, now, paces)
            return
        network, values = self.network, self._values
        source, size, begin = message.source, message.size, now
        bandwidth, uplink = values.bandwidth(source, message.target), values.uplink(source)
        if bandwidth is not None:
            self._forget_idle(now)
            begin = max(begin, self._link_free.get(link, 0.0))
        if uplink is not None:
            begin = max(begin, self._uplink_free.get(source, 0.0))
            self._uplink_free[source] = finish_s(size, begin, uplink)
        end = finish_s(size, begin, bandwidth, uplink)
        message.paced_s = end - begin
        if bandwidth is not None:
            self._link_free[link] = end
        network.sent(message, begin, end, network.launch(message, begin))

    def reach(self, message: Message) -> None:
        """Queue for the downlink, less the bytes that have passed it on the way."""
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
        """Return the seconds that `size` bytes take at each time's smallest capacity."""
        values = self.network.values
        capacities = values.bandwidth(source, target), values.uplink(source), values.downlink(target)
        begin = 0.0 if all(isinstance(capacity, float | None) for capacity in capacities) else self.clock.now
        return finish_s(size, begin, *capacities) - begin
