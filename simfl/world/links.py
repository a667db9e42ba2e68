"""Messages between clients: how long they take, what is lost, who queues behind whom.

delivery time = queueing + bytes / bandwidth + latency, with resends of what is lost

A message is a call at its time of delivery, not a process: one event in the heap. Of every attempt to send one becomes
something: it is delivered, it is lost (and sent again, unless the sender was to learn that it could not arrive), or it
is under way. What meets a network partition:

- A message that is to begin while its two ends do not reach each other waits for the end of the partition.
- One that is under way when a partition begins is lost; it is sent again after the timeout, or at the partition's end.
- Where the sender wants to know that the target is away (`refused`), it learns so after the timeout, in both cases.

How the bytes get there, and who waits for whom on the way, is a `Carrier`'s matter: `Queues`, one message behind the
other, is the one that is used unless a world has another.

A server that is away sends nothing, and what comes to it waits for its return. What waits for somebody who does not
come back, or for the end of a partition that has none, is `stuck`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mypy_extensions import mypyc_attr

from simfl.compiled import Integer
from simfl.streams import Streams
from simfl.world.availability import Availability
from simfl.world.compute import Constant, Draws, Sampler
from simfl.world.cuts import Cut, Cuts
from simfl.world.engine import Clock
from simfl.world.link_values import Capacity, Quantity, mean_of_sampler

#: Links of which something is kept that could be found anew, or says nothing more: where pairs are many, most of them
#: are idle.
KEPT_LINKS = 2**19


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(frozen=True)
class LinkModel:
    """How every link behaves. Another kind of link is a subclass with `losses` or `latencies` of its own.

    Links that differ from one another are `simfl.world.varied.VariedLinks`.

    Attributes:
        latency: sampler of seconds.
        bandwidth: bytes per second of a link; None is infinite.
        loss: probability that a message is lost, 0 <= loss < 1; it is then sent again.
        resend_timeout_s: after a loss, the sender waits this long before it sends again.
        fifo: a message never overtakes an earlier one on the same link in the same direction.
        uplink, downlink: bytes per second that all messages out of (into) one node share, or None.
        overhead: bytes that the protocol adds to each message.
        startup: what a message after a pause waits for, or None.
        cuts: who does not reach whom, and when.
    """

    latency: Sampler | None = None
    bandwidth: float | None = None
    loss: float = 0.0
    resend_timeout_s: float = 0.1
    fifo: bool = False
    uplink: float | None = None
    downlink: float | None = None
    overhead: int = 0
    startup: TcpStartup | None = None
    cuts: Cuts = field(default_factory=Cuts)

    def losses(self, streams: Streams) -> Callable[[int, int, float], bool] | None:
        """Return what says of an attempt from source to target that begins at a time, whether it is lost; None: never.

        Args:
            streams: the run's streams.
        """
        if not self.loss:
            return None
        chance, draws = self.loss, Draws(streams, "loss", lambda g, n: g.random(n))
        return lambda source, target, time: draws.next(source) < chance

    def latencies(self, streams: Streams) -> Callable[[int, int, float], float] | None:
        """Return what says how many seconds a message from source to target that begins at a time travels; None: 0.

        Args:
            streams: the run's streams.
        """
        if self.latency is None:
            return None
        draws = Draws(streams, "latency", self.latency)
        return lambda source, target, time: draws.next(source)

    def values(self, streams: Streams, num_clients: int) -> Values:
        """Return what says what each link is like in a run."""
        del num_clients
        return Values(self, streams)

    def carrier(self, network: Network) -> Carrier:
        """Return what carries the messages."""
        return Queues(network)


@dataclass(frozen=True)
class TcpStartup:
    """What a connection costs before it runs at full speed: after a pause it is opened anew, and starts slowly.

    A message that is sent after a pause waits for the round trips of the connection. Then a window w of bytes is sent,
    and its acknowledgement awaited, before the next window of twice the size is; while w is less than what the link
    carries in a round trip R, each costs R - w / bandwidth of idle time. For a message of S bytes

        wait = round_trips R + sum_{i < n - 1} max(0, R - 2^i w / bandwidth),   n = ceil(lg(1 + S / w)),

    the static model of Kurose and Ross, "Computer Networking", section on latency modelling of TCP, of a fluid; the
    windows are those of RFC 5681 (https://www.rfc-editor.org/rfc/rfc5681) and, by default, RFC 6928. What is sent
    without a pause goes on with the window that the messages before it have reached: one byte more for each of theirs.
    Losses have a timeout of their own.

    Attributes:
        window: bytes, > 0.
        pause_s: the connection is opened anew after so long without a message.
        round_trips: until the first byte may be sent; 0 where connections are kept open.
    """

    window: int = 14_600
    pause_s: float = 1.0
    round_trips: float = 1.0

    def wait_s(self, size: Integer, round_trip_s: float, bandwidth: float | None, window: float) -> float:
        """Return for how long a message's acknowledgements are awaited before its last window is sent.

        Args:
            size: bytes.
            round_trip_s: R.
            bandwidth: bytes per second; None is infinite.
            window: w, that of the first byte.
        """
        waited, left = 0.0, float(size) - window
        while left > 0.0:
            waited += max(0.0, round_trip_s - (window / bandwidth if bandwidth else 0.0))
            window *= 2.0
            left -= window
        return waited


@dataclass(frozen=True)
class ServerModel:
    """What a server can take.

    Attributes:
        uplink, downlink: bytes per second that all messages out of (into) the server share, or None.
        seconds_per_update: time it works on each update that arrives; updates wait for one another.
    """

    uplink: float | None = None
    downlink: float | None = None
    seconds_per_update: float = 0.0

    @property
    def free(self) -> bool:
        """Whether nothing waits at the server."""
        return not (self.uplink or self.downlink or self.seconds_per_update)


class Traffic:
    """What a client sent: bytes and messages, resends included."""

    __slots__ = ("messages", "sent_bytes")

    def __init__(self) -> None:
        self.sent_bytes: Integer = 0
        self.messages: Integer = 0


class Message:
    """A message on its way.

    Attributes:
        source, target: nodes.
        size: bytes.
        deliver: called when it arrives; None: given up.
        refused: called where it cannot, or None.
        sent_s: when it was sent.
        number: counts those of its link, for links that keep their order.
        resends: how often it was sent again.
        paced_s: how long the slowest on its way needed for it.
        started: whether it has waited for its connection.
    """

    __slots__ = ("deliver", "number", "paced_s", "refused", "resends", "sent_s", "size", "source", "started", "target")

    def __init__(
        self,
        source: Integer,
        target: Integer,
        size: Integer,
        deliver: Callable[[], None] | None,
        refused: Callable[[], None] | None,
        sent_s: float,
    ) -> None:
        self.source = source
        self.target = target
        self.size = size
        self.deliver = deliver
        self.refused = refused
        self.sent_s = sent_s
        self.number = self.resends = 0
        self.paced_s = 0.0
        self.started = False


@mypyc_attr(allow_interpreted_subclasses=True)
class Carrier(ABC):
    """How the bytes of messages get from source to target, and which of them wait for others.

    The network says when an attempt to send may begin (`carry`). The carrier says when its last byte has left
    (`Network.sent`), and, once it has reached the target's end of the link, when it is there (`Network.arrive`).
    Of each attempt it calls `Network.launch` once, when its first byte leaves: whether it gets lost, and how long it
    travels, is drawn there.

    Attributes:
        costs: whether something takes time here that the behaviour of links says nothing about.
        shares: whether messages between different pairs of nodes may meet on the way.

    Args:
        network: whose messages are carried.
    """

    costs = False
    shares = False

    def __init__(self, network: Network) -> None:
        self.network = network
        self.clock = network.clock

    @abstractmethod
    def carry(self, message: Message, now: float) -> None:
        """Begin an attempt to send a message now."""

    def reach(self, message: Message) -> None:
        """The message has reached the target's end of the link."""
        self.network.arrive(message)

    @abstractmethod
    def paced_s(self, source: Integer, target: Integer, size: Integer) -> float:
        """Return how long `size` bytes take if nothing else is sent, without latency."""

    def beneath_s(self, source: Integer, target: Integer) -> float:
        """Return what the way adds to the latency of the link."""
        return 0.0

    def together_s(
        self, pairs: Sequence[tuple[int, int]], size: Integer, lost_s: Sequence[float], latency_s: Sequence[float]
    ) -> list[float]:
        """Return how long messages of `size` bytes take that are sent side by side where nothing else is.

        Args:
            pairs: source and target of each; nobody is the source of two, or the target of two.
            size: bytes of each.
            lost_s: time that attempts took before which got lost, of each.
            latency_s: of the link, of each.
        """
        delays = zip(pairs, lost_s, latency_s, strict=True)
        return [lost + self.paced_s(source, target, size) + latency for (source, target), lost, latency in delays]

    @abstractmethod
    def backlog_s(self) -> float:
        """Return for how long the busiest of all that carry has something to send."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Queues(Carrier):
    """One message after the other: each waits for its link, the source's uplink, and at the end for the downlink."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        links = network.links
        self._bandwidth, self._uplink, self._downlink = links.bandwidth, links.uplink, links.downlink
        self._uplinks, self._downlinks = network.values.uplinks, network.values.downlinks
        self._uplink_free: dict[int, float] = {}
        self._downlink_free: dict[int, float] = {}
        self._link_free: dict[tuple[int, int], float] = {}
        self._most_links = KEPT_LINKS

    def carry(self, message: Message, now: float, paces: tuple[float | None, float | None] | None = None) -> None:
        """Take the next free time of the link and the uplink; `paces`: theirs, where they are not everybody's."""
        source, network = message.source, self.network
        if paces is None:
            bandwidth, uplink = self._bandwidth, self._uplinks.get(source, self._uplink)
        else:
            bandwidth, uplink = paces
        if not (bandwidth or uplink):
            network.sent(message, now, now, network.launch(message, now))
            return
        size, begin, link = message.size, now, (source, message.target)
        paced_s = 0.0
        if bandwidth:
            paced_s = size / bandwidth
            free = self._link_free.get(link)
            if free is None:
                self._forget_idle(now)
            elif free > begin:
                begin = free
        if uplink:
            free = self._uplink_free.get(source, 0.0)
            if free > begin:
                begin = free
            need = size / uplink
            # A slow link leaves the rest of the uplink to other links.
            self._uplink_free[source] = begin + need
            if need > paced_s:
                paced_s = need
        message.paced_s = paced_s
        end = begin + paced_s
        if bandwidth:
            self._link_free[link] = end
        network.sent(message, begin, end, network.launch(message, begin))

    def _forget_idle(self, now: float) -> None:
        """Where pairs are many: forget those links that are free."""
        if len(self._link_free) >= self._most_links:
            self._link_free = {link: free for link, free in self._link_free.items() if free > now}
            self._most_links = max(KEPT_LINKS, 2 * len(self._link_free))

    def reach(self, message: Message) -> None:
        """Queue for the target's downlink: who uses it first is known when the bytes get there."""
        downlink = self._downlinks.get(message.target, self._downlink)
        if downlink:
            self._pass(message, downlink)
        else:
            self.network.arrive(message)

    def _pass(self, message: Message, downlink: float) -> None:
        # Bytes that came at a slower pace have already passed it.
        now, need = self.clock.now, message.size / downlink
        begin = max(now - min(message.paced_s, need), self._downlink_free.get(message.target, 0.0))
        end = self._downlink_free[message.target] = max(begin + need, now)
        self.clock.tell_at(end, self.network.arrive, message)

    def paced_s(self, source: Integer, target: Integer, size: Integer) -> float:
        """The slowest on the way paces them."""
        paces = self._bandwidth, self._uplinks.get(source, self._uplink), self._downlinks.get(target, self._downlink)
        return max(size / pace if pace else 0.0 for pace in paces)

    def backlog_s(self) -> float:
        """The end of the longest queue."""
        queues = (self._link_free, self._uplink_free, self._downlink_free)
        return max((max(queue.values()) for queue in queues if queue), default=0.0) - self.clock.now


@mypyc_attr(allow_interpreted_subclasses=True)
class Values:
    """What each link is like in one run: here all alike, but for the nodes that are not clients.

    Args:
        links: the links.
        streams: the run's streams.
    """

    def __init__(self, links: LinkModel, streams: Streams) -> None:
        self._links = links
        #: Draws the latency of a message from source to target that begins at a time; None: 0.
        self.latency_s = links.latencies(streams)
        #: Draws whether an attempt from source to target that begins at a time is lost; None: never.
        self.lost = links.losses(streams)
        #: Bytes per second out of (into) those nodes that are not clients.
        self.uplinks: dict[int, float | None] = {}
        self.downlinks: dict[int, float | None] = {}

    @property
    def free(self) -> bool:
        """Whether messages of clients take no time and are never lost."""
        links = self._links
        limits = links.bandwidth or links.uplink or links.downlink
        return not (self.latency_s or self.lost or limits or links.startup)

    @property
    def equal(self) -> bool:
        """Whether one link is as the other."""
        return type(self._links) is LinkModel

    @property
    def repeats(self) -> bool:
        """Whether a message takes as long as the one before it on its link, if that is through."""
        links = self._links
        return self.equal and not links.loss and not links.startup and isinstance(links.latency, Constant | None)

    def add_node(self, node: int, uplink: float | None, downlink: float | None) -> None:
        """Take over what a node that is not a client shares among its messages."""
        self.uplinks[node], self.downlinks[node] = uplink, downlink

    def bandwidth(self, source: Integer, target: Integer) -> Capacity:
        """Return the bytes per second of a link."""
        return self._links.bandwidth

    def uplink(self, node: int) -> Capacity:
        """Return the bytes per second that all messages out of a node share."""
        return self.uplinks.get(node, self._links.uplink)

    def downlink(self, node: int) -> Capacity:
        """Return the bytes per second that all messages into a node share."""
        return self.downlinks.get(node, self._links.downlink)

    def next_change(self, time: float) -> float:
        """Return a time until which no capacity changes; infinite: none ever does."""
        return math.inf

    def ever(
        self, quantity: Quantity, source: Integer, target: Integer, until: float = math.inf
    ) -> Collection[float | None]:
        """Return what a link has in the course of a run: several values if they change, of draws their mean.

        Args:
            quantity: of the link; of its source's uplink or its target's downlink.
            source, target: whose messages.
            until: when the run ends at the latest.
        """
        of_link = {"bandwidth": self._links.bandwidth, "loss": self._links.loss}
        if quantity == "latency":
            return (self.mean_latency_s(source, target, 0.0),)
        if quantity in of_link:
            return (of_link[quantity],)
        found = self.uplink(source) if quantity == "uplink" else self.downlink(target)
        return (found,)  # type: ignore[return-value]

    def mean_latency_s(self, source: Integer, target: Integer, time: float) -> float:
        """Return the mean latency of messages from source to target at a time."""
        latency = self._links.latency
        return 0.0 if latency is None else mean_of_sampler(latency)

    def mean_loss(self, source: Integer, target: Integer, time: float) -> float:
        """Return the probability that a message from source to target is lost, on average."""
        return self._links.loss


#: What `Network.send` reports about a message: (sent_s, delivered_s, source, target, bytes, resends).
MessageRow = tuple[float, float, int, int, int, int]


class Witness(Protocol):
    """Who is told what is in messages; what that is, algorithms and their witness know between them."""

    def sent(self, source: Integer, target: Integer, content: Any, deliver: Callable[[], None]) -> Callable[[], None]:
        """A message sets out; returns what is called in the place of `deliver` when it arrives."""

    def shown(self, source: Integer, target: Integer, content: Any) -> None:
        """A message arrives as it is sent."""

    def merged(self, node: int, content: Any) -> None:
        """A node has the sum of what came to it in a round, with what it had."""


class Network:
    """Carries messages between clients, and servers if there are any, in virtual time.

    Args:
        clock: the world's clock.
        links: the behaviour of links.
        num_clients: K.
        streams: the run's streams.
        availability: a message to a client that is away waits for it.
        on_delivery: called with a `MessageRow` for every delivered message, or None.
        carrier: makes what carries the messages; that of the links by default.
    """

    def __init__(
        self,
        clock: Clock,
        links: LinkModel,
        num_clients: int,
        streams: Streams,
        availability: Availability,
        on_delivery: Callable[[MessageRow], None] | None = None,
        carrier: Callable[[Network], Carrier] | None = None,
    ) -> None:
        self.clock = clock
        self.links = links
        self.availability = availability
        self.traffic = [Traffic() for _ in range(num_clients)]
        #: What each link is like.
        self.values = links.values(streams, num_clients)
        self._latency_s, self._lost = self.values.latency_s, self.values.lost
        self._cuts, self._starting = bool(links.cuts), links.startup is not None
        self._clients = num_clients
        self._trivial = availability.trivial
        #: Attempts that were delivered, and those that were lost or given up; the others are under way.
        self.delivered = self.lost = 0
        #: Messages that will never arrive, by source and target.
        self.stuck: Counter[tuple[int, int]] = Counter()
        #: Called with source and target of a message that will never arrive.
        self.on_stuck: Callable[[int, int], None] = lambda source, target: None
        self._sent: dict[tuple[int, int], int] = {}
        self._arrived: dict[tuple[int, int], int] = {}
        self._held: dict[tuple[int, int, int], Message] = {}
        #: Of each connection: when its last message could begin and was through, and its window.
        self._connections: dict[tuple[int, int], tuple[float, float, float]] = {}
        self._most_connections = KEPT_LINKS
        self._on_delivery = on_delivery
        #: Told what is in messages; None: nobody wants to know.
        self.witness: Witness | None = None
        self.carrier = (carrier or links.carrier)(self)
        self._carry, self._reach = self.carrier.carry, self.carrier.reach
        self._land = self._in_order if links.fifo else self._reach
        #: Whether what a client sends sets out at once.
        self._at_once = not (self._cuts or self._starting)
        #: Whether messages of clients take no time, are never lost, and find everybody there.
        self.free = self.values.free and not (self.carrier.costs or links.cuts) and availability.trivial

    def add_node(self, uplink: float | None = None, downlink: float | None = None) -> int:
        """Add a node that is not a client, a server for example, with links to everybody, and return its number.

        Args:
            uplink, downlink: bytes per second that its messages share, or None; those of clients do not count for it.
        """
        node = len(self.traffic)
        self.traffic.append(Traffic())
        self.values.add_node(node, uplink, downlink)
        return node

    @property
    def bytes_sent(self) -> int:
        """Bytes sent by all clients and servers so far, resends included."""
        return sum(t.sent_bytes for t in self.traffic)

    @property
    def messages(self) -> int:
        """Messages sent by all clients and servers so far, resends included."""
        return sum(t.messages for t in self.traffic)

    def bandwidth(self, source: Integer, target: Integer) -> float | None:
        """Return the bytes per second of a link now, None for infinite."""
        return self._now(self.values.bandwidth(source, target))

    def uplink(self, node: int) -> float | None:
        """Return the bytes per second that all messages out of a node share now, None for infinite."""
        return self._now(self.values.uplink(node))

    def downlink(self, node: int) -> float | None:
        """Return the bytes per second that all messages into a node share now, None for infinite."""
        return self._now(self.values.downlink(node))

    def _now(self, capacity: Capacity) -> float | None:
        return capacity if capacity is None or isinstance(capacity, float | int) else capacity.at(self.clock.now)

    def transfers_s(self, pairs: Sequence[tuple[int, int]], size: Integer) -> list[float]:
        """Draw how long messages take that are sent side by side where nothing else is, and count them, with resends.

        Args:
            pairs: source and target of each; nobody is the source of two, or the target of two.
            size: bytes of each.
        """
        size, now, lost_s, latencies_s = size + self.links.overhead, self.clock.now, [], []
        for source, target in pairs:
            seconds = self.carrier.paced_s(source, target, size)
            message, total = Message(source, target, size, None, None, now), 0.0
            if self._starting:
                total = self._ready_s(source, target, size) - now
            while (latency_s := self.launch(message, now + total)) is None:
                total = total + seconds + self.links.resend_timeout_s
            lost_s.append(total)
            latencies_s.append(latency_s)
        self.delivered += len(pairs)
        return self.carrier.together_s(pairs, size, lost_s, latencies_s)

    def expected_s(self, pairs: Sequence[tuple[int, int]], size: Integer) -> list[float]:
        """Return how long the same take on average; nothing is drawn or counted."""
        none, values, now, found = [0.0] * len(pairs), self.values, self.clock.now, []
        paced = self.carrier.together_s(pairs, size + self.links.overhead, none, none)
        for (source, target), seconds in zip(pairs, paced, strict=True):
            loss = values.mean_loss(source, target, now)
            resends = loss / (1.0 - loss) if loss < 1.0 else math.inf
            resends_s = resends * (seconds + self.links.resend_timeout_s) if loss else 0.0
            found.append(seconds + values.mean_latency_s(source, target, now) + resends_s)
        return found

    @property
    def repeats(self) -> bool:
        """Whether what is sent again over an idle network takes equally long again: `expected_s`."""
        return self.values.repeats

    def _ready_s(self, source: Integer, target: Integer, size: Integer) -> float:
        """Return when a message that is sent now has its connection, and no more acknowledgements to wait for."""
        startup, now = self.links.startup, self.clock.now
        if startup is None:
            return now
        values, link = self.values, (source, target)
        if link not in self._connections and len(self._connections) >= self._most_connections:
            kept = {one: state for one, state in self._connections.items() if now - state[1] <= startup.pause_s}
            self._connections, self._most_connections = kept, max(KEPT_LINKS, 2 * len(kept))
        began, ended, window = self._connections.get(link, (-math.inf, -math.inf, 0.0))
        round_trip_s = values.mean_latency_s(*link, now) + values.mean_latency_s(target, source, now)
        round_trip_s += self.carrier.beneath_s(*link) + self.carrier.beneath_s(target, source)
        ready = max(now, began)
        if now - ended > startup.pause_s:
            ready, window = ready + startup.round_trips * round_trip_s, float(startup.window)
        through_s = self.carrier.paced_s(source, target, size)
        ready += startup.wait_s(size, round_trip_s, size / through_s if through_s else None, window)
        self._connections[link] = ready, ready + through_s, window + size
        return ready

    @property
    def steady(self) -> bool:
        """Whether moreover equally many bytes take equally long, whoever sends them to whom."""
        return self.values.equal and self.repeats and not self.carrier.shares

    @property
    def in_flight(self) -> int:
        """Attempts to send that have not been delivered, lost or given up yet, those that are stuck aside."""
        return self.messages - self.delivered - self.lost

    def joined_s(self, nodes: Sequence[int], time: float) -> float:
        """Return when no partition separates the nodes: `time` itself, or later; infinite if never again."""
        if not self.links.cuts:
            return time
        return self.links.cuts.joined_s([min(node, self._clients) for node in nodes], time)

    def hit(self, nodes: Sequence[int], begin: float, end: float) -> Cut | None:
        """Return the partition that separates the nodes at some time from `begin` until `end`; None if none does."""
        if not self.links.cuts:
            return None
        return self.links.cuts.hit([min(node, self._clients) for node in nodes], begin, end)

    def backlog_s(self) -> float:
        """Return for how long the busiest of links, uplinks and downlinks has something to send."""
        return self.carrier.backlog_s()

    def launch(self, message: Message, begin: float) -> float | None:
        """Count an attempt to send that begins at a time, and return its latency, None if it is lost."""
        source = message.source
        traffic = self.traffic[source]
        traffic.sent_bytes += message.size
        traffic.messages += 1
        if self._lost is not None and self._lost(source, message.target, begin):
            self.lost += 1
            return None
        return self._latency_s(source, message.target, begin) if self._latency_s is not None else 0.0

    def count(self, source: Integer, size: Integer, messages: Integer = 1) -> None:
        """Count messages of `size` bytes each that arrive at once, without travelling."""
        traffic = self.traffic[source]
        traffic.sent_bytes += messages * (size + self.links.overhead)
        traffic.messages += messages
        self.delivered += messages

    def hand_over(self, source: Integer, target: Integer, size: Integer, content: Any = None) -> None:
        """Count a message that arrives at once: for senders that know that the network is `free`."""
        self.count(source, size)
        if content is not None and self.witness is not None:
            self.witness.shown(source, target, content)
        if self._on_delivery is not None:
            now = self.clock.now
            self._on_delivery((now, now, source, target, size + self.links.overhead, 0))

    def send(
        self,
        source: Integer,
        target: Integer,
        size: Integer,
        deliver: Callable[[], None],
        refused: Callable[[], None] | None = None,
        content: Any = None,
    ) -> None:
        """Send `size` bytes from source to target and call `deliver` when they arrive.

        Args:
            source, target: clients.
            size: bytes.
            deliver: called at the time of delivery.
            refused: called, a resend timeout later, if the target is away when the message arrives, or out of reach;
                without it the message waits until the target is back and in reach.
            content: what is in it that depends on data, a model or a promised gradient.
        """
        if content is not None and self.witness is not None:
            deliver = self.witness.sent(source, target, content, deliver)
        message = Message(source, target, size + self.links.overhead, deliver, refused, self.clock.now)
        if self.links.fifo:
            message.number = self._sent.get((source, target), 0)
            self._sent[source, target] = message.number + 1
        self._attempt(message)

    def _hold(self, message: Message, until: float) -> None:
        """Try to send at a later time; a message for which there is none is stuck."""
        if math.isinf(until):
            self._give_up(message)
            self._pass_over(message)
        else:
            self.clock.tell_at(until, self._attempt, message)

    def _give_up(self, message: Message) -> None:
        self.stuck[message.source, message.target] += 1
        self.on_stuck(message.source, message.target)

    def lose(self, message: Message, at: float, until: float = 0.0) -> None:
        """A partition has destroyed an attempt at that time: it is made again, or the sender learns that it was.

        Args:
            message: what was sent.
            at: when; the sender knows it a timeout later.
            until: when the partition is over.
        """
        self.lost += 1
        at += self.links.resend_timeout_s
        if message.refused is None:
            message.resends += 1
            self._hold(message, max(at, until))
            return
        self.clock.call_at(at, message.refused)
        self._pass_over(message)

    def _pass_over(self, message: Message) -> None:
        """Those behind a message that will not come do not wait for it."""
        if self.links.fifo:
            message.deliver = None
            self._in_order(message)

    def _attempt(self, message: Message) -> None:
        source = message.source
        begin = self.clock.now
        if self._at_once and (self._trivial or source < self._clients):
            self._carry(message, begin)
            return
        if source >= self._clients and (back_s := self.availability.back_s(source, begin)) > begin:
            self._hold(message, back_s)
            return
        if self._cuts and (joined_s := self.joined_s((source, message.target), begin)) > begin:
            if message.refused is None:
                self._hold(message, joined_s)
                return
            traffic = self.traffic[source]
            traffic.sent_bytes += message.size
            traffic.messages += 1
            self.lose(message, begin)
            return
        if self._starting and not message.started:
            message.started = True
            if (ready_s := self._ready_s(source, message.target, message.size)) > begin:
                self._hold(message, ready_s)
                return
        self._carry(message, begin)

    def sent(self, message: Message, begin: float, end: float, latency_s: float | None) -> None:
        """The first byte of an attempt leaves at `begin`, the last one at `end`; both may still be to come.

        Args:
            message: what is sent.
            begin, end: virtual times.
            latency_s: what `launch` returned.
        """
        if latency_s is None:
            message.resends += 1
            self.clock.tell_at(end + self.links.resend_timeout_s, self._attempt, message)
        elif self._cuts and (cut := self.hit((message.source, message.target), begin, end + latency_s)) is not None:
            self.lose(message, max(end, cut.start_s), cut.end_s)
        else:
            self.clock.tell_at(end + latency_s, self._land, message)

    def _in_order(self, message: Message) -> None:
        """Hold a message back until all that were sent before it on its link, lost ones too, have arrived."""
        link = message.source, message.target
        self._held[*link, message.number] = message
        while (ready := self._held.pop((*link, self._arrived.get(link, 0)), None)) is not None:
            self._arrived[link] = ready.number + 1
            if ready.number + 1 == self._sent[link]:  # nothing is under way: numbers begin anew
                del self._sent[link], self._arrived[link]
            if ready.deliver is not None:
                self._reach(ready)

    def arrive(self, message: Message) -> None:
        """The whole message is at the target, which may be away."""
        now = self.clock.now
        outage = None if self._trivial else self.availability.outage(message.target, now)
        if outage is None:
            self.delivered += 1
            if self._on_delivery is not None:
                self._on_delivery((message.sent_s, now, message.source, message.target, message.size, message.resends))
            assert message.deliver is not None, "what is given up is not delivered"
            message.deliver()
        elif message.refused is not None:
            self.lost += 1
            self.clock.call_at(now + self.links.resend_timeout_s, message.refused)
        elif outage.end_s != math.inf:
            self.clock.tell_at(outage.end_s, self.arrive, message)
        else:
            self.lost += 1
            self._give_up(message)
