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
    """How every link behaves.

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


@dataclass
class Traffic:
    """What a client sent: bytes and messages, resends included."""

    sent_bytes: int = 0
    messages: int = 0


#: What `Network.send` reports about a message: (sent_s, delivered_s, source, target, bytes, resends).
MessageRow = tuple[float, float, int, int, int, int]


class Network:
    """Carries messages between clients in virtual time.

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
        self._latency = Draws(streams, "latency", links.latency) if links.latency else None
        self._loss = Draws(streams, "loss", lambda g, n: g.random(n)) if links.loss > 0 else None
        self._uplink_free: dict[int, float] = {}
        self._downlink_free: dict[int, float] = {}
        self._link_free: dict[tuple[int, int], float] = {}
        self._last_arrival: dict[tuple[int, int], float] = {}
        self._on_delivery = on_delivery

    @property
    def bytes_sent(self) -> int:
        """Bytes sent by all clients so far, resends included."""
        return sum(t.sent_bytes for t in self.traffic)

    @property
    def messages(self) -> int:
        """Messages sent by all clients so far, resends included."""
        return sum(t.messages for t in self.traffic)

    def transfer_s(self, source: int, size: int) -> float:
        """Draw how long `size` bytes take over one idle link of `source`, resends included, and count them."""
        links = self.links
        seconds = size / links.bandwidth if links.bandwidth else 0.0
        traffic = self.traffic[source]
        total = 0.0
        while True:
            traffic.sent_bytes += size
            traffic.messages += 1
            total += seconds
            if self._loss is None or self._loss.next(source) >= links.loss:
                break
            total += links.resend_timeout_s
        return total + (self._latency.next(source) if self._latency else 0.0)

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
        self._attempt(source, target, size, deliver, refused, self.clock.now, 0)

    def _attempt(
        self,
        source: int,
        target: int,
        size: int,
        deliver: Callable[[], None],
        refused: Callable[[], None] | None,
        sent_s: float,
        resends: int,
    ) -> None:
        now = self.clock.now
        links = self.links
        traffic = self.traffic[source]
        traffic.sent_bytes += size
        traffic.messages += 1
        begin = now
        busy_s = 0.0  # the slowest of link, uplink and downlink paces the message
        if links.bandwidth:
            begin = max(begin, self._link_free.get((source, target), 0.0))
            busy_s = size / links.bandwidth
        if links.uplink:
            begin = max(begin, self._uplink_free.get(source, 0.0))
            busy_s = max(busy_s, size / links.uplink)
        end = begin + busy_s
        if links.bandwidth:
            self._link_free[source, target] = end
        if links.uplink:
            self._uplink_free[source] = end
        if self._loss is not None and self._loss.next(source) < links.loss:
            self.clock.call_at(
                end + links.resend_timeout_s,
                lambda: self._attempt(source, target, size, deliver, refused, sent_s, resends + 1),
            )
            return
        arrival = end + (self._latency.next(source) if self._latency else 0.0)
        if links.fifo:
            arrival = max(arrival, self._last_arrival.get((source, target), 0.0))
            self._last_arrival[source, target] = arrival
        if links.downlink:
            # Who uses the downlink first is known when the bytes get there, not when they are sent.
            self.clock.call_at(
                arrival,
                lambda: self._through_downlink(source, target, size, deliver, refused, sent_s, resends, busy_s),
            )
        else:
            self.clock.call_at(arrival, lambda: self._arrive(source, target, size, deliver, refused, sent_s, resends))

    def _through_downlink(
        self,
        source: int,
        target: int,
        size: int,
        deliver: Callable[[], None],
        refused: Callable[[], None] | None,
        sent_s: float,
        resends: int,
        paced_s: float,
    ) -> None:
        """Queue for the target's shared downlink; bytes that came at a slower pace have passed it meanwhile."""
        assert self.links.downlink is not None
        need = size / self.links.downlink
        begin = max(self.clock.now - min(paced_s, need), self._downlink_free.get(target, 0.0))
        end = max(begin + need, self.clock.now)
        self._downlink_free[target] = end
        self.clock.call_at(end, lambda: self._arrive(source, target, size, deliver, refused, sent_s, resends))

    def _arrive(
        self,
        source: int,
        target: int,
        size: int,
        deliver: Callable[[], None],
        refused: Callable[[], None] | None,
        sent_s: float,
        resends: int,
    ) -> None:
        outage = self.availability.outage(target, self.clock.now)
        if outage is None:
            if self._on_delivery is not None:
                self._on_delivery((sent_s, self.clock.now, source, target, size, resends))
            deliver()
        elif refused is not None:
            self.clock.call_at(self.clock.now + self.links.resend_timeout_s, refused)
        elif outage.end_s != float("inf"):
            self.clock.call_at(
                outage.end_s, lambda: self._arrive(source, target, size, deliver, refused, sent_s, resends)
            )
