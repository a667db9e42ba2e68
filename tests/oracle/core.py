"""A second, independent simulator of events, written from the pages in docs/; tests compare simfl's runs with it.

It uses a parsed scenario, the links of its graph, and simfl's random streams, because a draw is defined by its name.
It imports nothing else of simfl, no SimPy and no JAX. It is slow and simple: all rates are computed at every event.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from simfl.scenario import Scenario
from simfl.streams import Streams

DRAWS_PER_STREAM = 32
#: Bytes of a flow that rounding alone may leave over, as a share of its size.
ROUNDING = 1e-10
Call = Callable[[], None]


def law(config: Any, generator: Any, count: int) -> list[float]:
    """Draw from a distribution of the scenario; the mean is 1 if it has none."""
    mean = getattr(config, "mean", 1.0)
    if config.kind == "constant":
        return [config.value] * count
    if config.kind == "list":
        return list(config.values[:count])
    if config.kind == "uniform":
        return generator.uniform(config.low, config.high, count).tolist()
    if config.kind == "exponential":
        return generator.exponential(mean, count).tolist()
    return [mean * math.exp(x) for x in generator.normal(-0.5 * config.sigma**2, config.sigma, count)]


class Draws:
    """An endless sequence of draws for each client; stream (purpose, client, n) gives block n of 32 draws."""

    def __init__(self, streams: Streams, purpose: str, block: Callable[[Any, int], list[float]]) -> None:
        self._streams, self._purpose, self._block = streams, purpose, block
        self._of: dict[int, Iterator[float]] = {}

    def next(self, client: int) -> float:
        return next(self._of.setdefault(client, self._endless(client)))

    def _endless(self, client: int) -> Iterator[float]:
        for count in itertools.count():
            yield from self._block(self._streams.generator(self._purpose, client, count), DRAWS_PER_STREAM)


class Promise:
    """A value that is set once; then the process that waits for it continues, in the order of `keep` calls."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.process, self.value, self.kept, self.over = clock, None, None, False, False

    def keep(self, value: Any = None) -> None:
        if not self.kept:
            self.value, self.kept = value, True
            self.clock.at(self.clock.now, self._come)

    def _come(self) -> None:
        self.over = True
        if self.process is not None:
            self.clock.advance(self.process, self.value)

    def wait(self, process: Generator) -> None:
        self.process = process
        if self.over:
            self.clock.advance(process, self.value)


class Clock:
    """A heap of calls. Calls at one time happen in the order in which they were added."""

    def __init__(self) -> None:
        self.now, self._heap, self._count = 0.0, [], itertools.count()

    def at(self, time: float, call: Call) -> None:
        if time < math.inf:
            heapq.heappush(self._heap, (max(time, self.now), next(self._count), call))

    def advance(self, process: Generator, value: Any = None) -> None:
        """Run a process until it yields the time, or the promise, that it waits for next."""
        try:
            wait = process.send(value)
        except StopIteration:
            return
        if isinstance(wait, Promise):
            wait.wait(process)
        else:
            self.at(wait, lambda: self.advance(process))

    def run(self, until: float) -> None:
        while self._heap and self._heap[0][0] < until:
            self.now, _, call = heapq.heappop(self._heap)
            call()


# -- outages -----------------------------------------------------------------------------------


@dataclass
class Presence:
    """When one node is offline: (begin, end, whether it is a crash), sorted and disjoint."""

    absences: list[tuple[float, float, bool]] = field(default_factory=list)

    @staticmethod
    def of(client: int, scenario: Scenario, streams: Streams, horizon: float) -> Presence:
        """Return the absences of a client up to `horizon`, from all rules that name it."""
        absences: list[tuple[float, float, bool]] = []
        for rule in scenario.availability:
            if not (rule.all or client in (rule.clients or ())):
                continue
            absences.append((0.0, rule.join, False))
            timed = [(begin, end, False) for begin, end in rule.offline]
            timed += [(crash.at, math.inf if crash.back is None else crash.back, True) for crash in rule.crash]
            shifts = [0.0] if rule.every is None else [n * rule.every for n in range(int(horizon / rule.every) + 1)]
            absences += [(begin + shift, end + shift, crash) for shift in shifts for begin, end, crash in timed]
            if rule.random is not None:
                generator, time = streams.generator("availability", client), 0.0
                while time < horizon:
                    begin = time + law(rule.random.up, generator, 1)[0]
                    time = begin + law(rule.random.down, generator, 1)[0]
                    absences.append((begin, time, False))
        return Presence(merged(absences))

    def away(self, time: float) -> float | None:
        """Return when the node's current absence ends, None if it is online."""
        return next((end for begin, end, _ in self.absences if begin <= time < end), None)

    def back(self, time: float) -> float:
        return time if (end := self.away(time)) is None else end

    def finish(self, start: float, work: float) -> tuple[float, str]:
        """Return when and how a computation ends: an absence suspends it, a crash destroys it."""
        now, left = start, work
        for begin, end, crash in self.absences:
            if end <= now:
                continue
            if begin >= now + left:
                break
            if math.isinf(end):
                return max(begin, start), "gone"
            if crash and begin >= start:
                return end, "crashed"
            left -= max(0.0, begin - now)
            now = end
        return now + left, "done"


def merged(absences: list[tuple[float, float, bool]]) -> list[tuple[float, float, bool]]:
    """Join absences that overlap or touch; the result is a crash if one of them is."""
    joined: list[tuple[float, float, bool]] = []
    for begin, end, crash in sorted(one for one in absences if one[0] < one[1]):
        if joined and begin <= joined[-1][1]:
            last = joined.pop()
            begin, end, crash = last[0], max(end, last[1]), crash or last[2]
        joined.append((begin, end, crash))
    return joined


# -- messages ----------------------------------------------------------------------------------


@dataclass(eq=False)
class Message:
    """A message, and its current send attempt."""

    source: int
    target: int
    size: int
    deliver: Call
    refused: Call | None
    sent_s: float
    number: int
    resends: int = 0
    paced_s: float = 0.0
    # The attempt, used by `Flows`.
    left: float = 0.0
    lost: bool = False
    weight: float = 1.0
    rate: float = 0.0
    over: bool = False


class Network:
    """Delivers messages; a subclass decides how their bytes reach the other end of the link."""

    def __init__(self, clock: Clock, scenario: Scenario, presence: list[Presence], streams: Streams) -> None:
        links, self.server = scenario.links, scenario.clients.count
        self.clock, self.links, self.presence, self.server_limits = clock, links, presence, scenario.server
        self.rows: list[tuple[float, float, int, int, int, int]] = []
        self.attempts, self.bytes = Counter(), Counter()
        self.on_stuck: Callable[[int, int], None] = lambda source, target: None
        self._loss = Draws(streams, "loss", lambda generator, count: generator.random(count).tolist())
        self._latency = Draws(streams, "latency", lambda generator, count: law(links.latency, generator, count))
        self._sent, self._next, self._waiting = Counter(), Counter(), defaultdict(dict)
        self._cuts = [(rule.start, math.inf if rule.until is None else rule.until, rule) for rule in links.partitions]
        self._cuts.sort(key=lambda cut: cut[:2])

    def uplink(self, node: int) -> float:
        return self._last("uplink", [node]) or math.inf

    def downlink(self, node: int) -> float:
        return self._last("downlink", [node]) or math.inf

    def bandwidth(self, source: int, target: int) -> float:
        return self._last("bandwidth", [source, target]) or math.inf

    def _last(self, name: str, nodes: list[int]) -> float | None:
        """Return the value of the last rule that names one of the nodes, else the value for all links."""
        value = getattr(self.server_limits if name != "bandwidth" and nodes == [self.server] else self.links, name)
        for rule in self.links.rules:
            if getattr(rule, name) is not None and not {*nodes}.isdisjoint(rule.clients):
                value = getattr(rule, name).value
        return value

    def cuts(self, one: int, other: int) -> Iterator[tuple[float, float]]:
        """Yield the intervals in which two nodes cannot reach each other, sorted by their begin."""
        for begin, end, rule in self._cuts:
            sides = [
                next((i for i, group in enumerate(rule.groups) if self._in(node, group)), -1) for node in (one, other)
            ]
            if sides[0] != sides[1]:
                yield begin, end

    def _in(self, node: int, group: Any) -> bool:
        return ("server" if node == self.server else node) in group

    def joined(self, one: int, other: int, time: float) -> float:
        """Return when two nodes reach each other: now, or later."""
        for begin, end in self.cuts(one, other):
            if begin <= time < end:
                time = end
        return time

    # -- one message ---------------------------------------------------------------------------

    def send(self, source: int, target: int, size: int, deliver: Call, refused: Call | None = None) -> None:
        """Send a message.

        If the target is offline or unreachable, `refused` is called a timeout later; without it the message waits.
        """
        number = self._sent[source, target]
        self._sent[source, target] += 1
        self._try(Message(source, target, size + self.links.overhead, deliver, refused, self.clock.now, number))

    def _try(self, message: Message) -> None:
        now, source = self.clock.now, message.source
        if source == self.server and (back := self.presence[source].back(now)) > now:
            self._later(message, back)
        elif (joined := self.joined(source, message.target, now)) == now:
            self.carry(message)
        elif message.refused is None:
            self._later(message, joined)
        else:
            self._count(message)
            self._destroyed(message, now, joined)

    def _later(self, message: Message, time: float) -> None:
        if math.isinf(time):
            self.on_stuck(message.source, message.target)
            self._skip(message)
        self.clock.at(time, lambda: self._try(message))

    def _count(self, message: Message) -> None:
        self.attempts[message.source] += 1
        self.bytes[message.source] += message.size

    def launch(self, message: Message) -> float | None:
        """Count a send attempt, and draw its latency; None if it is lost."""
        self._count(message)
        if self.links.loss and self._loss.next(message.source) < self.links.loss:
            return None
        return self._latency.next(message.source)

    def carry(self, message: Message) -> None:
        """Begin an attempt to send now."""
        raise NotImplementedError

    def missed(self, message: Message, end: float) -> None:
        """Send again after a lost attempt, whose last byte leaves at `end`."""
        message.resends += 1
        self.clock.at(end + self.links.resend_timeout, lambda: self._try(message))

    def _destroyed(self, message: Message, at: float, until: float) -> None:
        """Send again, or tell the sender, a timeout after `at`, when a partition destroyed an attempt.

        The partition ends at `until`.
        """
        at += self.links.resend_timeout
        if message.refused is None:
            message.resends += 1
            self._later(message, max(at, until))
        else:
            self.clock.at(at, message.refused)
            self._skip(message)

    def _skip(self, message: Message) -> None:
        """Let later messages stop waiting for one that will never arrive."""
        message.deliver = None
        if self.links.fifo:
            self.passed_link(message)

    def passed_link(self, message: Message) -> None:
        """Handle a message that has passed its link; with `fifo` it waits for all that were sent before it."""
        if not self.links.fifo:
            self.take_in(message)
            return
        link = message.source, message.target
        self._waiting[link][message.number] = message
        while (first := self._waiting[link].pop(self._next[link], None)) is not None:
            self._next[link] += 1
            if first.deliver is not None:
                self.take_in(first)

    def take_in(self, message: Message) -> None:
        """Handle a message at the target's end of the link."""
        self.arrive(message)

    def arrive(self, message: Message) -> None:
        now = self.clock.now
        back = self.presence[message.target].away(now)
        if back is None:
            self.rows.append((message.sent_s, now, message.source, message.target, message.size, message.resends))
            message.deliver()
        elif message.refused is not None:
            self.clock.at(now + self.links.resend_timeout, message.refused)
        elif math.isinf(back):
            self.on_stuck(message.source, message.target)
        else:
            self.clock.at(back, lambda: self.arrive(message))


class Queues(Network):
    """Messages queue for the link and the uplink, and then for the downlink."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._free: dict[Any, float] = defaultdict(float)

    def carry(self, message: Message) -> None:
        latency, source, link = self.launch(message), message.source, (message.source, message.target)
        begin = max(self.clock.now, self._free[link], self._free["up", source])
        message.paced_s = message.size / min(self.bandwidth(*link), self.uplink(source))
        end = self._free[link] = begin + message.paced_s
        if self.uplink(source) < math.inf:  # in order: a message that waits for its link delays later ones
            self._free["up", source] = begin + message.size / self.uplink(source)
        if latency is None:
            self.missed(message, end)
            return
        for cut, over in self.cuts(*link):
            if cut <= end + latency and begin < over:
                self._destroyed(message, max(end, cut), over)
                return
        self.clock.at(end + latency, lambda: self.passed_link(message))

    def take_in(self, message: Message) -> None:
        """Let bytes pass the downlink as they arrive; if they arrive faster than its pace, they wait."""
        now, target = self.clock.now, message.target
        if math.isinf(self.downlink(target)):
            self.arrive(message)
            return
        need = message.size / self.downlink(target)
        begin = max(now - min(message.paced_s, need), self._free["down", target])
        end = self._free["down", target] = max(now, begin + need)
        self.clock.at(end, lambda: self.arrive(message))


class Flows(Network):
    """Messages in flight share the capacities on their way, max-min fairly."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._flows: list[Message] = []
        self._at, self._version = 0.0, 0

    def carry(self, message: Message) -> None:
        latency, now = self.launch(message), self.clock.now
        message.lost, message.over, message.left = latency is None, False, float(message.size)
        message.weight = 1.0 / max(latency or 0.0, 1e-6) if self.links.sharing == "by_latency" else 1.0
        cut = next((cut for cut in self.cuts(message.source, message.target) if now < cut[1]), None)
        attempt = message.resends
        if cut is not None and not message.lost:
            self.clock.at(cut[0], lambda: self._sever(message, attempt, cut[1]))
        self.clock.at(now + (latency or 0.0), lambda: self._begin(message, attempt))

    def _begin(self, message: Message, attempt: int) -> None:
        if not message.over and message.resends == attempt:
            self._pass_time()
            self._flows.append(message)
            self._share()

    def _sever(self, message: Message, attempt: int, until: float) -> None:
        if message.over or message.resends != attempt:
            return
        self._pass_time()
        message.over = True
        self._flows = [flow for flow in self._flows if flow is not message]
        self._share()
        self._destroyed(message, self.clock.now, until)

    def _pass_time(self) -> None:
        now = self.clock.now
        for flow in self._flows:
            if now > self._at:
                flow.left -= flow.rate * (now - self._at)
        self._at = now

    def _share(self) -> None:
        """Raise all rates together, in proportion to their weights; flows across a full capacity stop rising."""
        room: dict[Any, float] = {}
        crossing = defaultdict(list)
        for flow in self._flows:
            source, target, flow.rate = flow.source, flow.target, math.inf
            room["up", source], room["down", target] = self.uplink(source), self.downlink(target)
            room[source, target] = self.bandwidth(source, target)
            for place in (("up", source), ("down", target), (source, target)):
                crossing[place].append(flow)
        while crossing:
            levels = {place: room[place] / sum(flow.weight for flow in crossing[place]) for place in crossing}
            place = min(levels, key=levels.__getitem__)
            for flow in list(crossing[place]):
                flow.rate = flow.weight * levels[place]
                for other in (("up", flow.source), ("down", flow.target), (flow.source, flow.target)):
                    room[other] = max(0.0, room[other] - flow.rate) if room[other] < math.inf else math.inf
                    crossing[other].remove(flow)
                    if not crossing[other]:
                        del crossing[other]
        self._version += 1
        version = self._version
        ends = (self._at + flow.left / flow.rate for flow in self._flows)
        self.clock.at(min(ends, default=math.inf), lambda: self._end(version))

    def _end(self, version: int) -> None:
        if version != self._version:
            return
        self._pass_time()
        done = [flow for flow in self._flows if flow.left <= ROUNDING * flow.size or math.isinf(flow.rate)]
        self._flows = [flow for flow in self._flows if flow not in done]
        for flow in done:
            flow.over = True
            if flow.lost:
                self.missed(flow, self.clock.now)
            else:
                self.clock.at(self.clock.now, lambda flow=flow: self.passed_link(flow))
        self._share()


# -- the world ---------------------------------------------------------------------------------


class World:
    """A scenario at time 0.

    Args:
        scenario: the parsed scenario.
        edges: the links of its graph, as in the table `edges`.
        model_bytes: bytes of a message with a model.
        matchings: links of a round of MATCHA that are active together, with the probability that they are.
    """

    def __init__(
        self,
        scenario: Scenario,
        edges: list[tuple[int, int]],
        model_bytes: int,
        matchings: Iterable[tuple[Any, float]] = (),
    ) -> None:
        self.scenario, self.model_bytes, self.clients = scenario, model_bytes, scenario.clients.count
        self.streams, self.clock, self.end = Streams(scenario.seed), Clock(), scenario.stop.time
        self.presence = [Presence.of(k, scenario, self.streams, self.end) for k in range(self.clients)]
        offline = [(begin, math.inf if end is None else end, False) for begin, end in scenario.server.offline]
        self.presence.append(Presence(offline))
        carrying = Flows if scenario.links.sharing in ("fair", "by_latency") else Queues
        self.network = carrying(self.clock, scenario, self.presence, self.streams)
        both = [*edges, *((j, i) for i, j in edges)]
        self.neighbors = [sorted(j for i, j in both if i == k) for k in range(self.clients)]
        self.updates: list[tuple[float, int, int, int]] = []
        self.matchings = list(matchings)
        clients = scenario.clients
        self._jitter = Draws(self.streams, "jitter", lambda generator, count: law(clients.jitter, generator, count))
        self._speeds = law(clients.speed, self.streams.generator("speed"), self.clients)

    def seconds(self, client: int, batches: int = 1) -> float:
        """Return how long the client's next computation takes if it begins now."""
        now, seconds = self.clock.now, batches * self.usual(client)
        for rule in self.scenario.slowdowns:
            if client in rule.clients and rule.start <= now < (math.inf if rule.until is None else rule.until):
                seconds *= rule.factor
        return seconds * self._jitter.next(client)

    def usual(self, client: int) -> float:
        """Return the time of a client's mini-batch without jitter and slowdowns."""
        clients, size = self.scenario.clients, self.scenario.algorithm.batch_size
        return (clients.seconds_per_batch + size * clients.seconds_per_example) * self._speeds[client]

    def finish(self, client: int, batches: int = 1) -> tuple[float, str]:
        """Return when and how a computation that begins now ends."""
        return self.presence[client].finish(self.clock.now, self.seconds(client, batches))

    def updated(self, client: int, staleness: int, peer: int = -1) -> None:
        self.updates.append((self.clock.now, client, peer, staleness))
