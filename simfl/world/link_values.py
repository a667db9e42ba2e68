"""Values of links: what a link is like, and the rules by which links differ.

A latency, a bandwidth, a loss, an uplink and a downlink are the same kind of thing, a value: a number, a distribution
(`Sampled`, drawn per message, once per link or once per client), a trace (`simfl.world.steps.Steps`) or, for losses, a
two-state chain (`Chain`). `Listed` has numbers or traces by link, node or region.

The value of a link or node comes from the last rule that selects it at the time and has a value. A value that is drawn
once depends only on the seed and the link's ends, so it is the same in every run of a seed, in whatever order links are
looked up.

Where both ends of a link have a value (drawn once per client, or traced per client), the link has the worse of the two:
the longer latency, the smaller bandwidth, the larger loss.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from simfl.errors import RunError
from simfl.streams import Seat, Streams
from simfl.world.compute import Constant, Draws, Law, Sampler
from simfl.world.cuts import Cuts
from simfl.world.steps import Changing, Steps

#: The names of values: the first three are of links, the last two of nodes.
Quantity = Literal["latency", "bandwidth", "loss", "uplink", "downlink"]
#: How often a random value is drawn: for each message, once per link, or once per client.
Ways = Literal["message", "link", "client"]

#: Largest number of changes of capacities during one message; with more, the run ends with an error.
MOST_CHANGES = 100_000
#: Number of blocks of draws of links that are kept in memory: some 70 MB.
KEPT_BLOCKS = 2**16
#: Number of links whose state is kept in memory; with more, that of idle links is dropped. It is computed again, or no
#: longer matters.
KEPT_LINKS = 2**19

#: The value of one link or node in a run: a number, or one that depends on the time or the message; None: no rule has
#: one, so that a capacity is infinite.
Resolved = float | Changing | None


def finish_s(size: int, begin: float, *capacities: Resolved) -> float:
    """Return when `size` bytes from `begin` have passed the smallest capacity.

    This is the t with  int_begin^t min_i c_i(s) ds = size.
    """
    fixed = [c for c in capacities if isinstance(c, float)]
    changing = [c for c in capacities if c is not None and not isinstance(c, float)]
    if not changing:
        return begin + size / min(fixed) if fixed else begin
    left, now = float(size), begin
    for _ in range(MOST_CHANGES):
        paces = fixed + [pace for c in changing if (pace := c.at(now)) is not None]
        end = now + left / min(paces) if paces else now
        change = min(c.next_change(now) for c in changing)
        if end <= change:
            return end
        if paces:
            left -= (change - now) * min(paces)
        now = change
    raise RunError(
        f"links: a message of {size} bytes is in flight during more than {MOST_CHANGES:,} changes of the capacities on "
        "its way; use longer windows or a coarser trace"
    )


@dataclass(frozen=True)
class Period:
    """The time from `start_s` until `end_s`, repeated every `every_s` seconds."""

    start_s: float = 0.0
    end_s: float = math.inf
    every_s: float | None = None

    def _phase(self, time: float) -> tuple[float, float]:
        """Return when the repetition that contains `time` began, and the time since."""
        if self.every_s is None or time < self.start_s:
            return self.start_s, time - self.start_s
        begun = self.start_s + math.floor((time - self.start_s) / self.every_s) * self.every_s
        return begun, time - begun

    def holds(self, time: float) -> bool:
        """Return whether a time is inside the window."""
        return 0.0 <= self._phase(time)[1] < self.end_s - self.start_s

    def next_change(self, time: float) -> float:
        """Return when the window opens or closes next."""
        begun, _ = self._phase(time)
        after = [begun, begun + self.end_s - self.start_s]
        if self.every_s is not None:
            after += [begun + self.every_s, begun + 2.0 * self.every_s]  # the second if the first is rounded to `time`
        return min((t for t in after if t > time), default=math.inf)


# -- kinds of values -------------------------------------------------------------------------------


class Value(ABC):
    """A value that is not a number.

    Attributes:
        repeats: whether it depends neither on the time nor on the message.
    """

    repeats: bool = False

    @abstractmethod
    def resolve(self, values: Values, quantity: Quantity, rule: Rule, source: int, target: int) -> Resolved:
        """Return the value of a link or node that a rule selects; None for none."""


@dataclass(frozen=True)
class Sampled(Value):
    """A distribution.

    Attributes:
        sampler: draws values.
        how: once per message, once per link (both directions alike), or once per client.
        purpose: name of the stream.
    """

    sampler: Sampler
    how: Ways
    purpose: str

    @property
    def repeats(self) -> bool:  # type: ignore[override]
        """Whether it is drawn once."""
        return self.how != "message"

    def resolve(self, values: Values, quantity: Quantity, rule: Rule, source: int, target: int) -> Resolved:
        """Return the value that was drawn, or one that draws for each message."""
        if self.how == "message":
            return _PerMessage(values.draws(self.purpose, self.sampler), mean_of_sampler(self.sampler))
        seat = values.seat(f"{self.purpose}-{self.how}")
        numbers = values.owners(self.how, rule, source, target)
        return _worst(quantity, [float(self.sampler(seat.at(number, 0), 1)[0]) for number in numbers])


@dataclass(frozen=True)
class Chain(Value):
    """Losses in bursts: a two-state Markov chain in continuous time.

    Gilbert 1960, "Capacity of a burst-noise channel", https://doi.org/10.1002/j.1538-7305.1960.tb03959.x; Elliott 1963,
    "Estimates of error rates for codes on burst-noise channels". The state at a time s later depends on the state now:
    P(bad) = p + (1{bad now} - p) exp(-s (1/good_s + 1/bad_s)) with p = bad_s / (good_s + bad_s).

    Attributes:
        good_s, bad_s: mean lengths of the two states.
        loss_good, loss_bad: probability that a message is lost in each.
        how: one chain per link (both directions alike), or one per client.
        purpose: name of the stream.
    """

    good_s: float
    bad_s: float
    loss_good: float
    loss_bad: float
    how: Ways
    purpose: str

    @property
    def share(self) -> float:
        """The share of time in the bad state."""
        return self.bad_s / (self.good_s + self.bad_s)

    @property
    def mean(self) -> float:
        """The mean probability of a loss over a long time."""
        return self.share * self.loss_bad + (1.0 - self.share) * self.loss_good

    def bad(self, before: bool | None, seconds: float, uniform: float) -> bool:
        """Return whether the state is bad `seconds` after the state `before`.

        `before` is whether that state was bad, None if it is unknown; `uniform` is a random number from [0, 1).
        """
        chance = self.share
        if before is not None:
            chance += (before - chance) * math.exp(-max(0.0, seconds) * (1.0 / self.good_s + 1.0 / self.bad_s))
        return uniform < chance

    def resolve(self, values: Values, quantity: Quantity, rule: Rule, source: int, target: int) -> Resolved:
        """Return the chain of the link, or the worse of those of its ends."""
        draws = values.draws(self.purpose, lambda g, n: g.random(n), KEPT_BLOCKS)
        states: list[float | Changing] = []
        for number in values.owners(self.how, rule, source, target):
            key = self.purpose, number
            states.append(values.chains.get(key) or values.chains.setdefault(key, _ChainState(self, draws, number)))
        return _worst(quantity, states)


#: A link (source, target), a node, or None for all others.
Key = tuple[int, int] | int | None


@dataclass(frozen=True)
class Listed(Value):
    """Numbers or traces by link.

    Attributes:
        values: by link (source, target), by node, and under None for all others; without None, others have no value.
        regions: the region of each node: links are then looked up by the regions of their ends. None: by their ends.
    """

    values: Mapping[Key, float] | Mapping[Key, Steps]
    regions: Mapping[int, int] | None = None

    @property
    def repeats(self) -> bool:  # type: ignore[override]
        """Whether it has no trace."""
        return not any(isinstance(part, Steps) for part in self.values.values())

    def resolve(self, values: Values, quantity: Quantity, rule: Rule, source: int, target: int) -> Resolved:
        """Return the value of the link, the worse of those of its ends, or that of others."""
        one: int | None = source
        other: int | None = target
        if self.regions is not None:
            one, other = self.regions.get(source), self.regions.get(target)
        if one is None or other is None:
            return None
        if (part := self.values.get((one, other))) is not None:
            return part
        ends = [part for node in {one, other} if (part := self.values.get(node)) is not None]
        return _worst(quantity, ends) if ends else self.values.get(None)


@dataclass(frozen=True)
class Rule:
    """Values for the links and nodes that it selects.

    Attributes:
        values: by quantity.
        ways: directions of links as pairs of sources and targets, any of which selects a link; None is every node.
        nodes: the nodes whose uplinks and downlinks are selected, and whose values count if values are drawn once per
            client; None is every node.
        window: the time in which the rule holds; None is always.
    """

    values: Mapping[Quantity, float | Value]
    ways: tuple[tuple[frozenset[int] | None, frozenset[int] | None], ...] = ((None, None),)
    nodes: Container[int] | None = None
    window: Period | None = None

    def selects(self, quantity: Quantity, source: int, target: int) -> bool:
        """Return whether the link or node is selected at some time."""
        if quantity in ("uplink", "downlink"):
            return self.concerns(source)
        return any(
            (sources is None or source in sources) and (targets is None or target in targets)
            for sources, targets in self.ways
        )

    def concerns(self, node: int) -> bool:
        """Return whether this node is selected: its value counts."""
        return self.nodes is None or node in self.nodes


@dataclass(frozen=True)
class TcpStartup:
    """TCP's slow start: after a pause a connection starts slowly again.

    A message that is sent after a pause waits for the round trips of the connection. Then a window of w bytes is sent,
    and its acknowledgement awaited, before the next window of twice the size. While w is less than the link carries in
    a round trip R, each window costs R - w / bandwidth of idle time. For a message of S bytes

        wait = round_trips R + sum_{i < n - 1} max(0, R - 2^i w / bandwidth),   n = ceil(lg(1 + S / w)),

    the fluid version of the static model in Kurose and Ross, "Computer Networking", section on latency modeling of
    TCP. The windows are those of RFC 5681 (https://www.rfc-editor.org/rfc/rfc5681) and, by default, RFC 6928. A message
    without a pause before it continues with the window that earlier messages have reached: one byte more for each byte
    sent. Losses have a separate timeout.

    Attributes:
        window: bytes, > 0.
        pause_s: time without a message after which the connection is opened anew.
        round_trips: number of them before the first byte is sent; 0 if connections are kept open.
    """

    window: int = 14_600
    pause_s: float = 1.0
    round_trips: float = 1.0

    def wait_s(self, size: int, round_trip_s: float, bandwidth: float | None, window: float) -> float:
        """Return how long a message waits for acknowledgements before its last window.

        `window` is w at the first byte, and `round_trip_s` is R.
        """
        waited, left = 0.0, float(size) - window
        while left > 0.0:
            waited += max(0.0, round_trip_s - (window / bandwidth if bandwidth else 0.0))
            window *= 2.0
            left -= window
        return waited


@dataclass(frozen=True)
class LinkModel:
    """The behavior of links: what holds for all, and rules for those that differ.

    Attributes:
        latency: sampler of seconds; None is 0.
        bandwidth: bytes per second of a link; None is infinite.
        loss: probability that a message is lost and sent again, 0 <= loss < 1.
        resend_timeout_s: seconds from a loss to the next attempt.
        fifo: whether messages on one link in one direction arrive in the order of sending.
        uplink, downlink: bytes per second that all messages out of (into) one client share, or None.
        overhead: bytes that the protocol adds to each message.
        startup: the cost of a connection after a pause, or None.
        cuts: network partitions.
        rules: later ones win.
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
    rules: tuple[Rule, ...] = ()

    def values(self, streams: Streams, num_clients: int) -> Values:
        """Return the values of each link in a run."""
        return Values(self, streams, num_clients)

    def base_rules(self, num_clients: int) -> tuple[Rule, Rule]:
        """Return the values of all links, and those of all clients."""
        of_links: dict[Quantity, float | Value] = {"loss": float(self.loss)}
        if isinstance(self.latency, Constant):
            of_links["latency"] = float(self.latency.value)
        elif self.latency is not None:
            of_links["latency"] = Sampled(self.latency, "message", "latency")
        if self.bandwidth is not None:
            of_links["bandwidth"] = float(self.bandwidth)
        capacities: dict[Quantity, float | None] = {"uplink": self.uplink, "downlink": self.downlink}
        of_clients = {quantity: float(pace) for quantity, pace in capacities.items() if pace is not None}
        return Rule(of_links), Rule(of_clients, nodes=range(num_clients))


# -- the values of links in a run ------------------------------------------------------------------


class _PerMessage(Changing):
    """A distribution that is drawn from for each message."""

    def __init__(self, draws: Draws, mean: float) -> None:
        self._draws, self._mean = draws, mean

    def at(self, time: float, source: int = 0) -> float:
        return self._draws.next(source)

    def mean(self, time: float) -> float:
        return self._mean

    def settled(self, source: int) -> float:
        return self._draws.next(source)


class _ChainState(Changing):
    """The losses of one chain, kept because they depend on past draws."""

    def __init__(self, law: Chain, draws: Draws, number: int) -> None:
        self._law, self._draws, self._number = law, draws, number
        self._bad: bool | None = None
        self._time = 0.0

    def at(self, time: float, source: int = 0) -> float:
        """Return the loss at a time; times are in order, except in queues."""
        self._bad = self._law.bad(self._bad, time - self._time, self._draws.next(self._number))
        self._time = max(self._time, time)
        return self._law.loss_bad if self._bad else self._law.loss_good

    def mean(self, time: float) -> float:
        return self._law.mean


def _first(values: Iterator[float]) -> float | None:
    return next(values, None)


def _most(values: Iterator[float]) -> float | None:
    return max(values, default=None)


def _least(values: Iterator[float]) -> float | None:
    return min(values, default=None)


@dataclass(frozen=True)
class _Choice(Changing):
    """The first, or the worst, of the values that hold at each time."""

    layers: Sequence[tuple[Period | None, float | Changing]]
    pick: Callable[[Iterator[float]], float | None] = _first

    def _held(self, time: float) -> Iterator[float | Changing]:
        return (part for window, part in self.layers if window is None or window.holds(time))

    def at(self, time: float, source: int = 0) -> float | None:
        values = (part if isinstance(part, float) else part.at(time, source) for part in self._held(time))
        return self.pick(value for value in values if value is not None)

    def mean(self, time: float) -> float | None:
        return self.pick(value for part in self._held(time) if (value := mean_of(part, time)) is not None)

    def next_change(self, time: float) -> float:
        changing: Iterator[Period | Changing] = (
            one for layer in self.layers for one in layer if isinstance(one, Period | Changing)
        )
        return min((one.next_change(time) for one in changing), default=math.inf)

    def ever(self, until: float) -> set[float | None]:
        values: set[float | None] = set()
        for window, part in self.layers:
            if window is None or window.start_s < until:
                of_part = ever(part, until)
                values |= of_part - {None}
                if window is None and None not in of_part and self.pick is _first:
                    return values
        return values | {None}

    def settled(self, source: int) -> _Choice:
        return _Choice([(w, part if isinstance(part, float) else part.settled(source)) for w, part in self.layers])


def _worst(quantity: Quantity, parts: Sequence[float | Changing]) -> float | Changing:
    pick = _most if quantity in ("latency", "loss") else _least
    numbers = [part for part in parts if isinstance(part, float)]
    if len(parts) == 1 or not numbers:
        return parts[0] if len(parts) == 1 else _Choice([(None, part) for part in parts], pick)
    return max(numbers) if pick is _most else min(numbers)


def mean_of(part: Resolved, time: float) -> float | None:
    """Return the mean over draws of a value at a time; None for no value."""
    return part if part is None or isinstance(part, float) else part.mean(time)


def ever(part: Resolved, until: float = math.inf) -> set[float | None]:
    """Return all values of a part before a time; of random values, the mean."""
    return {part} if part is None or isinstance(part, float) else part.ever(until)


@dataclass(slots=True)
class LinkState:
    """The values of one link in a run; a bandwidth of None is infinite."""

    latency: float | Changing
    loss: float | Changing
    bandwidth: Resolved


class _OfNodes(dict[int, Resolved]):
    """The uplinks or downlinks of nodes, looked up on first use."""

    def __init__(self, find: Callable[[int], Resolved]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, node: int) -> Resolved:
        part = self[node] = self._find(node)
        return part


class Values:
    """The values of links and nodes in one run, looked up in the rules on first use.

    Args:
        links: with their rules.
        streams: the run's streams.
        num_clients: K. For a server (a node from K on), no value is drawn on a link to a client.
    """

    def __init__(self, links: LinkModel, streams: Streams, num_clients: int) -> None:
        self._streams, self._num_clients = streams, num_clients
        self._draws: dict[str, Draws] = {}
        self._seats: dict[str, Seat] = {}
        self.chains: dict[tuple[str, int], _ChainState] = {}
        self._of_servers: dict[Quantity, dict[Key, float]] = {"uplink": {}, "downlink": {}}
        servers = Rule({quantity: Listed(paces) for quantity, paces in self._of_servers.items()})
        base = links.base_rules(num_clients)
        rules = (*base, servers, *links.rules)
        self._rules = tuple(reversed(rules))
        given = {quantity for rule in (*base, *links.rules) for quantity in rule.values}
        #: Uplinks and downlinks by node, and whether any node has one; otherwise they are not looked up.
        self.uplinks = _OfNodes(functools.partial(self.of_node, "uplink"))
        self.downlinks = _OfNodes(functools.partial(self.of_node, "downlink"))
        self.limited = not given.isdisjoint(("uplink", "downlink"))
        #: Values of links that were used recently; dropped ones are looked up again, with the same draws.
        self.states: dict[tuple[int, int], LinkState] = {}
        #: The values of every link if all links are identical.
        self.same = None if links.rules else self._find(0, 0)
        self.losing = self.draws("loss", lambda g, n: g.random(n))
        varied = [value for rule in (base[0], *links.rules) for value in rule.values.values()]
        timed = any(rule.window is not None for rule in links.rules)
        losing = links.loss > 0.0 or any("loss" in rule.values for rule in links.rules)
        #: Whether every message of one size takes equally long on an idle link.
        self.repeats = not (losing or timed or links.startup) and all(
            isinstance(value, float) or value.repeats for value in varied
        )
        #: Whether messages of clients take no time and are never lost.
        self.free = self.same == LinkState(0.0, 0.0, None) and not (self.limited or links.startup)

    @property
    def equal(self) -> bool:
        """Whether all links are identical."""
        return self.same is not None

    def add_node(self, node: int, uplink: float | None, downlink: float | None) -> None:
        """Add a server's capacities, which rules may change."""
        for paces, pace in zip(self._of_servers.values(), (uplink, downlink), strict=True):
            if pace is not None:
                paces[node], self.limited = float(pace), True

    def of(self, source: int, target: int) -> LinkState:
        """Return the values of a link."""
        return self.same or self.states.get((source, target)) or self.look_up(source, target)

    def look_up(self, source: int, target: int) -> LinkState:
        """Look up the values of a link in the rules, and keep them."""
        if len(self.states) >= KEPT_LINKS:
            self.states.clear()
        state = self.states[source, target] = self._find(source, target)
        return state

    def _find(self, source: int, target: int) -> LinkState:
        latency, loss = self.of_link("latency", source, target), self.of_link("loss", source, target)
        bandwidth = self.of_link("bandwidth", source, target)
        return LinkState(0.0 if latency is None else latency, 0.0 if loss is None else loss, bandwidth)

    def bandwidth(self, source: int, target: int) -> Resolved:
        """Return the bandwidth of a link, drawn now if it is drawn per message."""
        bandwidth = self.of(source, target).bandwidth
        return bandwidth if bandwidth is None or isinstance(bandwidth, float) else bandwidth.settled(source)

    def ever(self, quantity: Quantity, source: int, target: int, until: float = math.inf) -> set[float | None]:
        """Return all values that a link has in a run; of random values, the mean.

        Args:
            quantity: of the link, of its source's uplink, or of its target's downlink.
            source, target: ends of the link.
            until: the latest end of the run.
        """
        if quantity == "uplink":
            return ever(self.uplinks[source], until)
        if quantity == "downlink":
            return ever(self.downlinks[target], until)
        part: Resolved = getattr(self.of(source, target), quantity)
        return ever(part, until)

    def mean_latency_s(self, source: int, target: int, time: float) -> float:
        """Return the mean latency of a link at a time."""
        return mean_of(self.of(source, target).latency, time) or 0.0

    def mean_loss(self, source: int, target: int, time: float) -> float:
        """Return the mean probability at a time that a message on a link is lost."""
        return mean_of(self.of(source, target).loss, time) or 0.0

    def of_link(self, quantity: Quantity, source: int, target: int) -> Resolved:
        """Return the value of a link: a number, or one that depends on time, or None."""
        layers: list[tuple[Period | None, float | Changing]] = []
        for rule in self._rules:
            if (value := rule.values.get(quantity)) is None or not rule.selects(quantity, source, target):
                continue
            part = value if isinstance(value, float) else value.resolve(self, quantity, rule, source, target)
            if part is None:
                continue
            layers.append((rule.window, part))
            if rule.window is None and not isinstance(part, Steps | _Choice):
                break  # it has a value at all times: earlier rules never matter
        if not layers:
            return None
        return layers[0][1] if len(layers) == 1 and layers[0][0] is None else _Choice(layers)

    def of_node(self, quantity: Quantity, node: int) -> Resolved:
        """Return the value of a node; see `of_link`."""
        return self.of_link(quantity, node, node)

    def owners(self, how: Ways, rule: Rule, source: int, target: int) -> list[int]:
        """Return the numbers of the link, or of its ends, for which values are drawn."""
        if how == "link":
            return [min(source, target) << 32 | max(source, target)]
        ends = [node for node in dict.fromkeys((source, target)) if rule.concerns(node)] or [source]
        return [node for node in ends if node < self._num_clients] or ends[:1]

    def seat(self, purpose: str) -> Seat:
        """Return the generators of values that are drawn once."""
        return self._seats.get(purpose) or self._seats.setdefault(purpose, self._streams.seat(purpose))

    def draws(self, purpose: str, sampler: Sampler, kept: float = math.inf) -> Draws:
        """Return the draws of a purpose, in `kept` blocks at most."""
        if purpose not in self._draws:
            self._draws[purpose] = Draws(self._streams, purpose, sampler, kept)
        return self._draws[purpose]


@functools.lru_cache(maxsize=64)
def mean_of_sampler(sampler: Sampler) -> float:
    """Return the mean of a sampler; if that is unknown, the mean of 1000 draws."""
    if isinstance(sampler, Constant):
        return sampler.value
    if isinstance(sampler, Law):
        return sampler.mean
    return float(sampler(np.random.Generator(np.random.Philox(0)), 1000).mean())
