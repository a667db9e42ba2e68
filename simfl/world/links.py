"""Messages between clients: transfer times, losses, resends and queues.

delivery time = queueing + bytes / bandwidth + latency, with resends of lost messages

A message is a call at its time of delivery, not a process: one event in the heap. Every send attempt is eventually
delivered, lost (and sent again, unless the sender asked to be told that it cannot arrive), or still in flight. A
message that is sent `once` is not sent again after any loss: its sender is told after the timeout. Under a
network partition:

- A message between separated nodes waits for the end of the partition before it is sent.
- A message in flight when a partition begins is lost. It is sent again after the timeout, or when the partition ends.
- A sender that asked to be told (it gave a function `refused`) is told after the timeout, in both cases.

The `Carrier` decides how bytes travel; the default, `Queues`, sends one message at a time.

An offline server sends nothing, and messages to it wait for its return. A message is `stuck` if its target never
returns, or if it waits for the end of a partition that never ends.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from mypy_extensions import mypyc_attr

from simfl.compiled import Integer, as_call
from simfl.streams import Streams
from simfl.world.availability import Availability
from simfl.world.cuts import Cut
from simfl.world.engine import Clock
from simfl.world.link_values import KEPT_LINKS, LinkModel, TcpStartup, Values, finish_s


@dataclass(frozen=True)
class ServerModel:
    """The capacity of a server.

    Attributes:
        uplink, downlink: bytes per second that all messages out of (into) the server share, or None.
        seconds_per_update: time to process each update; updates queue.
    """

    uplink: float | None = None
    downlink: float | None = None
    seconds_per_update: float = 0.0

    @property
    def free(self) -> bool:
        """Whether nothing waits at the server."""
        return not (self.uplink or self.downlink or self.seconds_per_update)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Support `copy` and `pickle`."""
        return as_call(self)


class Traffic(NamedTuple):
    """Bytes and messages that a node sent, resends included."""

    sent_bytes: int
    messages: int


class Message:
    """A message in flight.

    Attributes:
        size: bytes.
        deliver: called when it arrives; None if it will not arrive.
        refused: called if it cannot arrive, or None.
        once: whether a lost attempt is not repeated; then `refused` is called.
        number: counts the messages of its link, for links that keep their order.
        paced_s: time that the smallest capacity on its way needed for it.
        started: whether it has already waited for its connection.
    """

    __slots__ = (
        "deliver",
        "number",
        "once",
        "paced_s",
        "refused",
        "resends",
        "sent_s",
        "size",
        "source",
        "started",
        "target",
    )

    def __init__(
        self,
        source: Integer,
        target: Integer,
        size: Integer,
        deliver: Callable[[], None] | None,
        refused: Callable[[], None] | None,
        sent_s: float,
        once: bool = False,
    ) -> None:
        self.once = once
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
    """Moves the bytes of messages, and decides which messages wait for others.

    The network calls `carry` when an attempt may begin. The carrier calls `Network.launch` once per attempt, when its
    first byte leaves, to draw its loss and latency; `Network.sent` with the time at which its last byte leaves; and
    `Network.arrive` when the message, having reached the target's end of the link (`reach`), is delivered.

    Attributes:
        costs: whether the carrier takes time that the links do not account for.
        shares: whether messages with different sources and different targets may share a capacity on the way.
    """

    costs = False
    shares = False

    def __init__(self, network: Network) -> None:
        self.network = network
        self.clock = network.clock

    @abstractmethod
    def carry(self, message: Message, now: float) -> None:
        """Begin an attempt to send a message now."""

    def reach(self) -> Callable[[Message], None]:
        """Return what handles a message that has reached the target's end of the link."""
        return self.network.arrive

    @abstractmethod
    def paced_s(self, source: Integer, target: Integer, size: Integer) -> float:
        """Return how long `size` bytes take on an idle network, without latency."""

    def beneath_s(self, source: Integer, target: Integer) -> float:
        """Return the latency beneath the link, added to its own."""
        return 0.0

    def simultaneous_s(
        self, pairs: Sequence[tuple[int, int]], size: Integer, lost_s: Sequence[float], latency_s: Sequence[float]
    ) -> list[float]:
        """Return the seconds of simultaneous messages on an idle network.

        Args:
            pairs: source and target of each message; no node is the source, or the target, of two.
            size: bytes of each message.
            lost_s: time lost to earlier attempts, per message.
            latency_s: latency of the link, per message.
        """
        delays = zip(pairs, lost_s, latency_s, strict=True)
        return [lost + self.paced_s(source, target, size) + latency for (source, target), lost, latency in delays]

    @abstractmethod
    def backlog_s(self) -> float:
        """Return how long the busiest queue needs for the bytes in it."""


class Queues(Carrier):
    """Queues: a message waits for its link, the uplink, and then the downlink."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self._values = network.values
        self._same, self._states = network.values.same, network.values.states
        self._uplink_free: dict[int, float] = {}
        self._downlink_free: dict[int, float] = {}
        self._link_free: dict[tuple[int, int], float] = {}
        self._most_links = KEPT_LINKS

    def carry(self, message: Message, now: float) -> None:
        """Send when link and uplink are free, at the pace that they have at each time."""
        source, network, values = message.source, self.network, self._values
        link = source, message.target
        bandwidth = (self._same or self._states.get(link) or values.look_up(source, message.target)).bandwidth
        uplink = values.uplinks[source] if values.limited else None
        if bandwidth is None and uplink is None:
            network.sent(message, now, now, network.launch(message, now))
            return
        size, begin = message.size, now
        if bandwidth is not None:
            free = self._link_free.get(link)
            if free is None:
                self._forget_idle(now)
            elif free > begin:
                begin = free
        if uplink is not None:
            free = self._uplink_free.get(source, 0.0)
            if free > begin:
                begin = free
        # A slow link leaves the rest of the uplink to other links.
        if (bandwidth is None or isinstance(bandwidth, float)) and (uplink is None or isinstance(uplink, float)):
            paced_s = size / bandwidth if bandwidth else 0.0
            if uplink:
                need = size / uplink
                self._uplink_free[source] = begin + need
                if need > paced_s:
                    paced_s = need
            end = begin + paced_s
        else:
            if uplink is not None:
                self._uplink_free[source] = finish_s(size, begin, uplink)
            end = finish_s(size, begin, values.bandwidth(source, message.target), uplink)
            paced_s = end - begin
        message.paced_s = paced_s
        if bandwidth is not None:
            self._link_free[link] = end
        network.sent(message, begin, end, network.launch(message, begin))

    def _forget_idle(self, now: float) -> None:
        """Forget idle links when there are many."""
        if len(self._link_free) >= self._most_links:
            self._link_free = {link: free for link, free in self._link_free.items() if free > now}
            self._most_links = max(KEPT_LINKS, 2 * len(self._link_free))

    def reach(self) -> Callable[[Message], None]:
        """Return what delivers a message at once, or queues it for the target's downlink."""
        return self._queue if self._values.limited else self.network.arrive

    def _queue(self, message: Message) -> None:
        """Queue for the target's downlink, less the bytes that have passed it on the way."""
        values, target = self._values, message.target
        downlink = values.downlinks[target]
        if downlink is None:
            self.network.arrive(message)
            return
        now, free = self.clock.now, self._downlink_free.get(target, 0.0)
        if isinstance(downlink, float):
            need = message.size / downlink
            end = max(now - min(message.paced_s, need), free) + need
        else:
            end = finish_s(message.size, max(now - message.paced_s, free), downlink)
        end = self._downlink_free[target] = max(end, now)
        self.clock.tell_at(end, self.network.arrive, message)

    def paced_s(self, source: Integer, target: Integer, size: Integer) -> float:
        """Return the seconds that `size` bytes take at each time's smallest capacity."""
        values = self._values
        capacities = values.bandwidth(source, target), values.uplinks[source], values.downlinks[target]
        begin = 0.0 if all(isinstance(capacity, float | None) for capacity in capacities) else self.clock.now
        seconds: float = finish_s(size, begin, *capacities) - begin
        return seconds

    def backlog_s(self) -> float:
        """Return how long the longest queue still takes."""
        queues = (self._link_free, self._uplink_free, self._downlink_free)
        return max((max(queue.values()) for queue in queues if queue), default=0.0) - self.clock.now


class Connections:
    """Connections that begin with round trips and a small window."""

    def __init__(self, startup: TcpStartup, clock: Clock, values: Values, carrier: Carrier) -> None:
        self._startup, self._clock, self._values, self._carrier = startup, clock, values, carrier
        #: By link: when its last message could begin, when its last byte was sent, and the window.
        self._states: dict[tuple[int, int], tuple[float, float, float]] = {}
        self._most = KEPT_LINKS

    def ready_s(self, source: Integer, target: Integer, size: Integer, opens: bool = True) -> float:
        """Return when a message sent now has its connection and acknowledgements.

        If it `opens` the connection, later messages continue with its window.
        """
        startup, values, now, link = self._startup, self._values, self._clock.now, (source, target)
        if opens and link not in self._states and len(self._states) >= self._most:
            kept = {one: state for one, state in self._states.items() if now - state[1] <= startup.pause_s}
            self._states, self._most = kept, max(KEPT_LINKS, 2 * len(kept))
        began, ended, window = self._states.get(link, (-math.inf, -math.inf, 0.0))
        round_trip_s = values.mean_latency_s(*link, now) + values.mean_latency_s(target, source, now)
        round_trip_s += self._carrier.beneath_s(*link) + self._carrier.beneath_s(target, source)
        ready = max(now, began)
        if now - ended > startup.pause_s:
            ready, window = ready + startup.round_trips * round_trip_s, float(startup.window)
        through_s = self._carrier.paced_s(source, target, size)
        ready += startup.wait_s(size, round_trip_s, size / through_s if through_s else None, window)
        if opens:
            self._states[link] = ready, ready + through_s, window + size
        return ready


class InOrder:
    """Links whose messages arrive in the order in which they were sent."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._sent: dict[tuple[int, int], int] = {}
        self._arrived: dict[tuple[int, int], int] = {}
        self._held: dict[tuple[int, int, int], Message] = {}

    def enter(self, message: Message) -> None:
        """Number a message that is sent."""
        link = message.source, message.target
        message.number = self._sent.get(link, 0)
        self._sent[link] = message.number + 1

    def land(self, message: Message) -> None:
        """Hold a message until all earlier ones on its link have arrived."""
        link = message.source, message.target
        self._held[*link, message.number] = message
        while (ready := self._held.pop((*link, self._arrived.get(link, 0)), None)) is not None:
            self._arrived[link] = ready.number + 1
            if ready.number + 1 == self._sent[link]:  # no message is in flight: numbers start at 0 again
                del self._sent[link], self._arrived[link]
            if ready.deliver is not None:
                reach = self._carrier.reach()
                reach(ready)


#: A delivered message: (sent_s, delivered_s, source, target, bytes, resends).
MessageRow = tuple[float, float, int, int, int, int]


class Witness(Protocol):
    """Observes the content of messages."""

    def sent(self, source: Integer, target: Integer, content: Any, deliver: Callable[[], None]) -> Callable[[], None]:
        """Observe a message sent; return the function to call on arrival."""

    def beside(self, source: Integer, target: Integer, content: Any, deliver: Callable[[], None]) -> Callable[[], None]:
        """Observe a further vector of a message, which is not a model; see `sent`."""

    def shown(self, source: Integer, target: Integer, content: Any) -> None:
        """Observe a message that arrives at once."""

    def merged(self, node: int, content: Any) -> None:
        """Observe that `content`, held by a node, contains the sum of a round's messages."""


class Counts:
    """What clients and servers have sent so far.

    Args:
        overhead: bytes of a message besides its content.

    Attributes:
        delivered, lost: attempts that were delivered, and those that were lost or given up; the others are in flight.
    """

    def __init__(self, num_clients: int, overhead: int) -> None:
        #: By node, as in `traffic`.
        self._sent_bytes, self._messages = array("q", bytes(8 * num_clients)), [0] * num_clients
        self._overhead = overhead
        self.delivered = self.lost = 0

    @property
    def traffic(self) -> list[Traffic]:
        """The traffic of each client and server so far."""
        return [Traffic(*each) for each in zip(self._sent_bytes, self._messages, strict=True)]

    @property
    def bytes_sent(self) -> int:
        """Bytes sent by all clients and servers so far, resends included."""
        return sum(self._sent_bytes)

    @property
    def messages(self) -> int:
        """Messages sent by all clients and servers so far, resends included."""
        return sum(self._messages)

    @property
    def in_flight(self) -> int:
        """Number of attempts that are not yet delivered, lost, abandoned or stuck."""
        return self.messages - self.delivered - self.lost

    def count(self, source: Integer, size: Integer, messages: Integer = 1) -> None:
        """Count messages of `size` bytes each that arrive at once, without being sent."""
        self._sent_bytes[source] += messages * (size + self._overhead)
        self._messages[source] += messages
        self.delivered += messages

    def count_all(self, nodes: Sequence[Integer], sent: Iterable[tuple[Integer, Integer, Integer]]) -> None:
        """Count what nodes send, (place in `nodes`, size, messages); see `count`."""
        sent_bytes, counts, overhead = self._sent_bytes, self._messages, self._overhead
        for place, size, messages in sent:
            source = nodes[place]
            sent_bytes[source] += messages * (size + overhead)
            counts[source] += messages
            self.delivered += messages


class Network(Counts):
    """Sends messages between clients and servers in virtual time, and counts them.

    Args:
        availability: a message to an offline client waits for its return.
        on_delivery: called with a `MessageRow` for every delivered message, or None.
        carrier: makes the carrier; by default `Queues`.
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
        # CPython 3.11 looks up methods slowly on an object with 30 attributes or more; this one has 25.
        super().__init__(num_clients, links.overhead)
        self.clock = clock
        self.links = links
        self.availability = availability
        self.values = links.values(streams, num_clients)
        self._same, self._states = self.values.same, self.values.states
        self._cuts = bool(links.cuts)
        self._clients = num_clients
        self._trivial: bool = availability.trivial
        #: Messages that will never arrive, by source and target.
        self.stuck: Counter[tuple[int, int]] = Counter()
        #: Called with source and target of a message that will never arrive.
        self.on_stuck: Callable[[int, int], None] = lambda source, target: None
        self._on_delivery = on_delivery
        #: Observes the content of messages, or None.
        self.witness: Witness | None = None
        self.carrier = (carrier or Queues)(self)
        startup = links.startup
        self._connections = None if startup is None else Connections(startup, clock, self.values, self.carrier)
        self._order = InOrder(self.carrier) if links.fifo else None
        self._carry = self.carrier.carry
        self._land = self._landing()
        #: Whether every message starts at once.
        self._at_once = self._trivial and not self._cuts and startup is None
        #: Whether messages of clients take no time, are never lost, and all clients are always online.
        self.free = self.values.free and not (self.carrier.costs or links.cuts) and availability.trivial

    def add_node(self, uplink: float | None = None, downlink: float | None = None) -> int:
        """Add a node that is not a client, linked to all nodes; return its number.

        Its messages share `uplink` and `downlink`, in bytes per second; those of clients do not apply to it.
        """
        node = len(self._messages)
        self._sent_bytes.append(0)
        self._messages.append(0)
        self.values.add_node(node, uplink, downlink)
        self._land = self._landing()
        return node

    def _landing(self) -> Callable[[Message], None]:
        """Return what is called with a message at the target's end of the link."""
        return self.carrier.reach() if self._order is None else self._order.land

    def transfers_s(self, pairs: Sequence[tuple[int, int]], size: Integer) -> list[float]:
        """Draw how long simultaneous messages take on an idle network; count them.

        See `Carrier.simultaneous_s`.
        """
        size, now, lost_s, latencies_s = size + self._overhead, self.clock.now, [], []
        for source, target in pairs:
            seconds = self.carrier.paced_s(source, target, size)
            message, total = Message(source, target, size, None, None, now), 0.0
            if self._connections is not None:
                total = self._connections.ready_s(source, target, size) - now
            while (latency_s := self.launch(message, now + total)) is None:
                total = total + seconds + self.links.resend_timeout_s
            lost_s.append(total)
            latencies_s.append(latency_s)
        self.delivered += len(pairs)
        return self.carrier.simultaneous_s(pairs, size, lost_s, latencies_s)

    def expected_s(self, pairs: Sequence[tuple[int, int]], size: Integer) -> list[float]:
        """Return the mean of `transfers_s` without drawing or counting."""
        values, now, times, size = self.values, self.clock.now, list[float](), size + self._overhead
        starts = [0.0] * len(pairs)
        if self._connections is not None:
            starts = [self._connections.ready_s(source, target, size, opens=False) - now for source, target in pairs]
        paced = self.carrier.simultaneous_s(pairs, size, starts, [0.0] * len(pairs))
        for (source, target), seconds, start in zip(pairs, paced, starts, strict=True):
            loss = values.mean_loss(source, target, now)
            resends = loss / (1.0 - loss) if loss < 1.0 else math.inf
            resends_s = resends * (seconds - start + self.links.resend_timeout_s) if loss else 0.0
            times.append(seconds + values.mean_latency_s(source, target, now) + resends_s)
        return times

    @property
    def steady(self) -> bool:
        """Whether messages of one size take equally long on all links."""
        return self.values.equal and self.values.repeats and not self.carrier.shares

    def joined_s(self, nodes: Sequence[int], time: float) -> float:
        """Return when the nodes next reach each other, from `time` on; inf for never."""
        if not self.links.cuts:
            return time
        return self.links.cuts.joined_s([min(node, self._clients) for node in nodes], time)

    def hit(self, nodes: Sequence[int], begin: float, end: float) -> Cut | None:
        """Return the first partition from `begin` to `end` between the nodes, or None."""
        if not self.links.cuts:
            return None
        return self.links.cuts.hit([min(node, self._clients) for node in nodes], begin, end)

    def launch(self, message: Message, begin: float) -> float | None:
        """Count a send attempt and draw its latency; None if it is lost."""
        source = message.source
        self._sent_bytes[source] += message.size
        self._messages[source] += 1
        state = self._same or self._states.get((source, message.target)) or self.values.look_up(source, message.target)
        if loss := state.loss:
            chance = loss if isinstance(loss, float) else loss.at(begin, source)
            if chance and self.values.losing.next(source) < chance:
                self.lost += 1
                return None
        latency = state.latency
        return latency if isinstance(latency, float) else latency.at(begin, source) or 0.0

    def swap(self, one: Integer, other: Integer, size: Integer, mine: Any = None, theirs: Any = None) -> None:
        """Count a message with a model in each direction; both arrive at once."""
        size = size + self._overhead
        sent_bytes, messages = self._sent_bytes, self._messages
        sent_bytes[one] += size
        sent_bytes[other] += size
        messages[one] += 1
        messages[other] += 1
        self.delivered += 2
        if self.witness is not None:
            self.witness.shown(one, other, mine)
            self.witness.shown(other, one, theirs)

    def hand_over(self, source: Integer, target: Integer, size: Integer, content: Any = None) -> None:
        """Count a message that arrives at once; only for a network that is `free`."""
        self.count(source, size)
        if content is not None and self.witness is not None:
            self.witness.shown(source, target, content)
        if self._on_delivery is not None:
            now = self.clock.now
            self._on_delivery((now, now, source, target, size + self._overhead, 0))

    def send(
        self,
        source: Integer,
        target: Integer,
        size: Integer,
        deliver: Callable[[], None],
        refused: Callable[[], None] | None = None,
        content: Any = None,
        once: bool = False,
        beside: Sequence[Any] = (),
    ) -> None:
        """Send `size` bytes from source to target and call `deliver` when they arrive.

        Args:
            deliver: called at the time of delivery.
            refused: called, a resend timeout later, if the target is offline or unreachable when the message arrives;
                without it the message waits until the target is back and reachable.
            content: the part that depends on data: a model or a promised gradient.
            once: whether a lost attempt calls `refused` instead of another attempt.
            beside: further parts that depend on data and are not models, such as gradients that are tracked, and sums.
        """
        if beside and self.witness is not None:
            for vector in beside:
                deliver = self.witness.beside(source, target, vector, deliver)
        if content is not None and self.witness is not None:
            deliver = self.witness.sent(source, target, content, deliver)
        message = Message(source, target, size + self._overhead, deliver, refused, self.clock.now, once)
        if self._order is not None:
            self._order.enter(message)
        if self._at_once:
            self._carry(message, message.sent_s)
        else:
            self._attempt(message)

    def _hold(self, message: Message, until: float) -> None:
        """Send at a later time; the message is stuck if that is infinite."""
        if math.isinf(until):
            self._give_up(message)
            self._pass_over(message)
        else:
            self.clock.tell_at(until, self._attempt, message)

    def _give_up(self, message: Message) -> None:
        self.stuck[message.source, message.target] += 1
        self.on_stuck(message.source, message.target)

    def lose(self, message: Message, at: float, until: float = 0.0) -> None:
        """Send a message again whose attempt a partition destroyed, or tell the sender.

        It was lost at the time `at`, and the sender knows after a timeout. The partition ends at `until`.
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
        """Let later messages on the link stop waiting for one that will not arrive."""
        if self._order is not None:
            message.deliver = None
            self._order.land(message)

    def _attempt(self, message: Message) -> None:
        source = message.source
        begin = self.clock.now
        if source >= self._clients and (back_s := self.availability.back_s(source, begin)) > begin:
            self._hold(message, back_s)
            return
        if self._cuts and (joined_s := self.joined_s((source, message.target), begin)) > begin:
            if message.refused is None:
                self._hold(message, joined_s)
                return
            self._sent_bytes[source] += message.size
            self._messages[source] += 1
            self.lose(message, begin)
            return
        if self._connections is not None and not message.started:
            message.started = True
            if (ready_s := self._connections.ready_s(source, message.target, message.size)) > begin:
                self._hold(message, ready_s)
                return
        self._carry(message, begin)

    def sent(self, message: Message, begin: float, end: float, latency_s: float | None) -> None:
        """Schedule the arrival, or the resend, of an attempt.

        Its first and last byte leave at `begin` and `end`, perhaps in the future. `latency_s` comes from `launch`.
        """
        if latency_s is None and message.once and message.refused is not None:
            self.clock.call_at(end + self.links.resend_timeout_s, message.refused)
            self._pass_over(message)
        elif latency_s is None:
            message.resends += 1
            self.clock.tell_at(end + self.links.resend_timeout_s, self._attempt, message)
        elif self._cuts and (cut := self.hit((message.source, message.target), begin, end + latency_s)) is not None:
            self.lose(message, max(end, cut.start_s), cut.end_s)
        else:
            self.clock.tell_at(end + latency_s, self._land, message)

    def arrive(self, message: Message) -> None:
        """Deliver a message, unless the target is offline."""
        now = self.clock.now
        outage = None if self._trivial else self.availability.outage(message.target, now)
        if outage is None:
            self.delivered += 1
            if self._on_delivery is not None:
                self._on_delivery((message.sent_s, now, message.source, message.target, message.size, message.resends))
            assert message.deliver is not None, "a message that was given up is not delivered"
            message.deliver()
        elif message.refused is not None:
            self.lost += 1
            self.clock.call_at(now + self.links.resend_timeout_s, message.refused)
        elif outage.end_s != math.inf:
            self.clock.tell_at(outage.end_s, self.arrive, message)
        else:
            self.lost += 1
            self._give_up(message)
