"""Messages between clients: how long they take, what is lost, who queues behind whom.

delivery time = queueing + bytes / bandwidth + latency, with resends of what is lost

A message is a call at its time of delivery, not a process: one event in the heap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simfl.streams import Streams
from simfl.world.availability import Availability
from simfl.world.compute import Draws, Sampler
from simfl.world.engine import Clock


@dataclass(frozen=True)
class LinkModel:
    """How every link behaves. Another kind of link is a subclass with `losses` or `latencies` of its own.

    Attributes:
        latency: sampler of seconds.
        bandwidth: bytes per second of a link; None is infinite.
        loss: probability that a message is lost, 0 <= loss < 1; it is then sent again.
        resend_timeout_s: after a loss, the sender waits this long before it sends again.
        fifo: a message never overtakes an earlier one on the same link in the same direction.
        uplink, downlink: bytes per second that all messages out of (into) one node share, or None.
    """

    latency: Sampler | None = None
    bandwidth: float | None = None
    loss: float = 0.0
    resend_timeout_s: float = 0.1
    fifo: bool = False
    uplink: float | None = None
    downlink: float | None = None

    def paced_s(self, size: int) -> float:
        """Return how long `size` bytes take over an idle link, without latency: the slowest on the way paces them."""
        return max(_paced_s(size, self.bandwidth, self.uplink), _paced_s(size, self.downlink, None))

    def losses(self, streams: Streams) -> Callable[[int, int], bool] | None:
        """Return what says, for every attempt from source to target, whether it is lost; None: none ever is."""
        if not self.loss:
            return None
        chance, draws = self.loss, Draws(streams, "loss", lambda g, n: g.random(n))
        return lambda source, target: draws.next(source) < chance

    def latencies(self, streams: Streams) -> Callable[[int, int], float] | None:
        """Return what says how many seconds a message from source to target is under way; None: 0."""
        if self.latency is None:
            return None
        draws = Draws(streams, "latency", self.latency)
        return lambda source, target: draws.next(source)


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


@dataclass(slots=True)
class Traffic:
    """What a client sent: bytes and messages, resends included."""

    sent_bytes: int = 0
    messages: int = 0


@dataclass(slots=True)
class _Message:
    """A message on its way; `number` counts those of its link, for links that keep their order."""

    source: int
    target: int
    size: int
    deliver: Callable[[], None]
    refused: Callable[[], None] | None
    sent_s: float
    number: int = 0
    resends: int = 0
    paced_s: float = 0.0


def _paced_s(size: int, one: float | None, other: float | None) -> float:
    """Return how long so many bytes take at the slower of two paces in bytes per second; None is infinite."""
    if not one:
        return size / other if other else 0.0
    return size / (other if other and other < one else one)


#: What `Network.send` reports about a message: (sent_s, delivered_s, source, target, bytes, resends).
MessageRow = tuple[float, float, int, int, int, int]


class Network:
    """Carries messages between clients, and servers if there are any, in virtual time.

    Args:
        clock: the world's clock.
        links: the behaviour of links.
        num_clients: K.
        streams: the run's streams.
        availability: a message to a client that is away waits for it.
        on_delivery: called with a `MessageRow` for every delivered message, or None.
    """

    def __init__(
        self,
        clock: Clock,
        links: LinkModel,
        num_clients: int,
        streams: Streams,
        availability: Availability,
        on_delivery: Callable[[MessageRow], None] | None = None,
    ) -> None:
        self.clock = clock
        self.links = links
        self.availability = availability
        self.traffic = [Traffic() for _ in range(num_clients)]
        self._uplink: dict[int, float | None] = {}
        self._downlink: dict[int, float | None] = {}
        self._latency_s = links.latencies(streams)
        self._lost = links.losses(streams)
        limits = links.bandwidth or links.uplink or links.downlink
        #: Whether messages of clients take no time, are never lost, and find everybody there.
        self.free = not (self._latency_s or self._lost or limits) and availability.trivial
        self._uplink_free: dict[int, float] = {}
        self._downlink_free: dict[int, float] = {}
        self._link_free: dict[tuple[int, int], float] = {}
        self._sent: dict[tuple[int, int], int] = {}
        self._arrived: dict[tuple[int, int], int] = {}
        self._held: dict[tuple[int, int, int], _Message] = {}
        self._on_delivery = on_delivery

    def add_node(self, uplink: float | None = None, downlink: float | None = None) -> int:
        """Add a node that is not a client, a server for example, with links to everybody, and return its number.

        Args:
            uplink, downlink: bytes per second that its messages share, or None; those of clients do not count for it.
        """
        node = len(self.traffic)
        self.traffic.append(Traffic())
        self._uplink[node], self._downlink[node] = uplink, downlink
        return node

    @property
    def bytes_sent(self) -> int:
        """Bytes sent by all clients and servers so far, resends included."""
        return sum(t.sent_bytes for t in self.traffic)

    @property
    def messages(self) -> int:
        """Messages sent by all clients and servers so far, resends included."""
        return sum(t.messages for t in self.traffic)

    def transfer_s(self, source: int, size: int) -> float:
        """Draw how long `size` bytes take over one idle link of `source`, resends included, and count them."""
        seconds = self.links.paced_s(size)
        total = 0.0
        while (latency_s := self._try(source, source, size)) is None:
            total = total + seconds + self.links.resend_timeout_s
        return total + seconds + latency_s

    def _try(self, source: int, target: int, size: int) -> float | None:
        """Count an attempt to send and return its latency, None if it is lost."""
        traffic = self.traffic[source]
        traffic.sent_bytes += size
        traffic.messages += 1
        if self._lost is not None and self._lost(source, target):
            return None
        return self._latency_s(source, target) if self._latency_s is not None else 0.0

    def hand_over(self, source: int, target: int, size: int) -> None:
        """Count a message that arrives at once: for senders that know that the network is `free`."""
        traffic = self.traffic[source]
        traffic.sent_bytes += size
        traffic.messages += 1
        if self._on_delivery is not None:
            now = self.clock.now
            self._on_delivery((now, now, source, target, size, 0))

    def send(
        self,
        source: int,
        target: int,
        size: int,
        deliver: Callable[[], None],
        refused: Callable[[], None] | None = None,
    ) -> None:
        """Send `size` bytes from source to target and call `deliver` when they arrive.

        Args:
            source, target: clients.
            size: bytes.
            deliver: called at the time of delivery.
            refused: called, a resend timeout later, if the target is away when the message arrives;
                without it the message waits until the target is back.
        """
        message = _Message(source, target, size, deliver, refused, self.clock.now)
        if self.links.fifo:
            message.number = self._sent.get((source, target), 0)
            self._sent[source, target] = message.number + 1
        self._attempt(message)

    def _attempt(self, message: _Message) -> None:
        links, source = self.links, message.source
        begin = self.clock.now
        if links.bandwidth:
            begin = max(begin, self._link_free.get((source, message.target), 0.0))
        uplink = self._uplink.get(source, links.uplink)
        if uplink:
            begin = max(begin, self._uplink_free.get(source, 0.0))
            # A slow link leaves the rest of the uplink to other links.
            self._uplink_free[source] = begin + message.size / uplink
        busy_s = _paced_s(message.size, links.bandwidth, uplink)
        end = begin + busy_s
        if links.bandwidth:
            self._link_free[source, message.target] = end
        latency_s = self._try(source, message.target, message.size)
        if latency_s is None:
            message.resends += 1
            self.clock.call_at(end + links.resend_timeout_s, lambda: self._attempt(message))
            return
        message.paced_s = busy_s
        reach = self._in_order if links.fifo else self._reach
        self.clock.call_at(end + latency_s, lambda: reach(message))

    def _in_order(self, message: _Message) -> None:
        """Hold a message back until all that were sent before it on its link, lost ones too, have arrived."""
        link = message.source, message.target
        self._held[*link, message.number] = message
        while (ready := self._held.pop((*link, self._arrived.get(link, 0)), None)) is not None:
            self._arrived[link] = ready.number + 1
            self._reach(ready)

    def _reach(self, message: _Message) -> None:
        """The message has reached the target's end of the link."""
        if self._downlink.get(message.target, self.links.downlink):
            # Who uses the downlink first is known when the bytes get there, not when they are sent.
            self.clock.call_at(self._through_downlink(message), lambda: self._arrive(message))
        else:
            self._arrive(message)

    def _through_downlink(self, message: _Message) -> float:
        """Queue for the target's shared downlink; bytes that came at a slower pace have already passed it."""
        downlink = self._downlink.get(message.target, self.links.downlink)
        assert downlink is not None
        now, need = self.clock.now, message.size / downlink
        begin = max(now - min(message.paced_s, need), self._downlink_free.get(message.target, 0.0))
        end = max(begin + need, now)
        self._downlink_free[message.target] = end
        return end

    def _arrive(self, message: _Message) -> None:
        now = self.clock.now
        outage = self.availability.outage(message.target, now)
        if outage is None:
            if self._on_delivery is not None:
                self._on_delivery((message.sent_s, now, message.source, message.target, message.size, message.resends))
            message.deliver()
        elif message.refused is not None:
            self.clock.call_at(now + self.links.resend_timeout_s, message.refused)
        elif outage.end_s != float("inf"):
            self.clock.call_at(outage.end_s, lambda: self._arrive(message))
