"""Values of links that differ: ordered rules with values for selected links.

The latency, bandwidth or loss of a link, or the uplink or downlink of a node, comes from the last rule that selects the
link or node at the time and has a value. A value is a constant, a distribution (drawn per message, once per link or
once per client), a list by link, node or region (constants or traces), or, for losses, a two-state chain. A value that
is drawn once depends only on the seed and the link's ends, so it is the same in every run of a seed, in whatever order
links are looked up.

Where both ends of a link have a value (drawn once per client, or traced per client), the link has the worse of the two:
the longer latency, the smaller bandwidth, the larger loss.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simfl.errors import RunError
from simfl.streams import Seat, Streams
from simfl.world.compute import Constant, Draws, Law, Sampler
from simfl.world.steps import Changing, Steps

#: The names of values: the first three are of links, the last two of nodes.
Quantity = Literal["latency", "bandwidth", "loss", "uplink", "downlink"]
#: How often a random value is drawn: for each message, once per link, or once per client.
Ways = Literal["message", "link", "client"]

#: Largest number of changes of capacities during one message; with more, the run ends with an error.
MOST_CHANGES = 100_000
#: Number of blocks of draws of links that are kept in memory: some 70 MB.
KEPT_BLOCKS = 2**16

#: The value of one link or node: a constant, or one that depends on the time; None: no rule has a value.
Part = float | Changing | None
#: Bytes per second; None is infinite.
Capacity = Part


def finish_s(size: int, begin: float, *capacities: Capacity) -> float:
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
class Window:
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


# -- the values of a scenario ----------------------------------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """A distribution.

    Attributes:
        sampler: draws values.
        how: once per message, once per link (both directions alike), or once per client.
        purpose: name of the stream.
    """

    sampler: Sampler
    how: Ways
    purpose: str


#: A link (source, target), a node, or None for all others.
Key = tuple[int, int] | int | None


@dataclass(frozen=True)
class Listed:
    """Constants or traces by link.

    Attributes:
        values: by link (source, target), by node, and under None for all others; without None, others have no value.
        regions: the region of each node: links are then looked up by the regions of their ends. None: by their ends.
    """

    values: Mapping[Key, float] | Mapping[Key, Steps]
    regions: Mapping[int, int] | None = None


@dataclass(frozen=True)
class TwoState:
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


Value = float | Drawn | Listed | TwoState


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

    values: Mapping[Quantity, Value]
    ways: tuple[tuple[frozenset[int] | None, frozenset[int] | None], ...] = ((None, None),)
    nodes: Container[int] | None = None
    window: Window | None = None

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


# -- the values of links in a run ------------------------------------------------------------------


class _PerMessage(Changing):
    """A value that is drawn for each message."""

    def __init__(self, draw: Callable[[], float], mean: float) -> None:
        self._draw, self._mean = draw, mean

    def mean(self, time: float) -> float:
        return self._mean

    def ever(self, until: float) -> set[float | None]:
        return {self._mean}


class _Each(_PerMessage):
    """A distribution that is drawn from for each message."""

    def at(self, time: float) -> float:
        return self._draw()

    def settled(self) -> float:
        return self._draw()


class _Chain(_PerMessage):
    """The losses of one two-state chain, kept because they depend on past draws."""

    def __init__(self, law: TwoState, draw: Callable[[], float]) -> None:
        super().__init__(draw, law.mean)
        self._law = law
        self._bad: bool | None = None
        self._time = 0.0

    def at(self, time: float) -> float:
        """Return the loss at a time; times are in order, except in queues."""
        self._bad = self._law.bad(self._bad, time - self._time, self._draw())
        self._time = max(self._time, time)
        return self._law.loss_bad if self._bad else self._law.loss_good


@dataclass(frozen=True)
class _Worse(Changing):
    """The worst of several values at each time."""

    parts: Sequence[Changing]
    pick: Callable[[Iterable[float]], float]

    def at(self, time: float) -> float | None:
        return self._worst(part.at(time) for part in self.parts)

    def mean(self, time: float) -> float | None:
        return self._worst(part.mean(time) for part in self.parts)

    def _worst(self, values: Iterable[float | None]) -> float | None:
        numbers = [value for value in values if value is not None]
        return self.pick(numbers) if numbers else None

    def next_change(self, time: float) -> float:
        return min(part.next_change(time) for part in self.parts)

    def ever(self, until: float) -> set[float | None]:
        return set().union(*(part.ever(until) for part in self.parts))


@dataclass(frozen=True)
class _Stack(Changing):
    """The values of several rules; the first one with a value at a time counts."""

    layers: Sequence[tuple[Window | None, float | Changing]]

    def at(self, time: float) -> float | None:
        for window, part in self.layers:
            if window is None or window.holds(time):
                value = part if isinstance(part, float) else part.at(time)
                if value is not None:
                    return value
        return None

    def mean(self, time: float) -> float | None:
        means = (mean_of(part, time) for window, part in self.layers if window is None or window.holds(time))
        return next((value for value in means if value is not None), None)

    def next_change(self, time: float) -> float:
        changes = [window.next_change(time) for window, _ in self.layers if window is not None]
        changes += [part.next_change(time) for _, part in self.layers if not isinstance(part, float)]
        return min(changes, default=math.inf)

    def ever(self, until: float) -> set[float | None]:
        values: set[float | None] = set()
        for window, part in self.layers:
            if window is None or window.start_s < until:
                of_part = ever(part, until)
                values |= of_part - {None}
                if window is None and None not in of_part:
                    return values
        return values | {None}

    def settled(self) -> _Stack:
        if not any(isinstance(part, _Each) for _, part in self.layers):
            return self
        return _Stack([(window, part._draw() if isinstance(part, _Each) else part) for window, part in self.layers])


def mean_of(part: Part, time: float) -> float | None:
    """Return the mean over draws of a value at a time; None for no value."""
    return part if part is None or isinstance(part, float) else part.mean(time)


def ever(part: Part, until: float = math.inf) -> set[float | None]:
    """Return all values of a part before a time; of random values, the mean."""
    return {part} if part is None or isinstance(part, float) else part.ever(until)


class Lookup:
    """Finds the values of links and nodes in rules, and draws those that are random.

    Args:
        rules: later ones win.
        streams: the run's streams.
        num_clients: K. For a server (a node from K on), no value is drawn on a link to a client.
    """

    def __init__(self, rules: Sequence[Rule], streams: Streams, num_clients: int) -> None:
        self._rules = tuple(reversed(rules))
        self._streams, self._num_clients = streams, num_clients
        self._draws: dict[str, Draws] = {}
        self._chains: dict[tuple[str, int], _Chain] = {}
        self._seats: dict[str, Seat] = {}

    def of_link(self, quantity: Quantity, source: int, target: int) -> Part:
        """Return the value of a link: a constant, or one that depends on time, or None."""
        layers: list[tuple[Window | None, float | Changing]] = []
        for rule in self._rules:
            if (value := rule.values.get(quantity)) is None or not rule.selects(quantity, source, target):
                continue
            part = value if isinstance(value, float) else self._part(quantity, rule, value, source, target)
            if part is None:
                continue
            layers.append((rule.window, part))
            if rule.window is None and isinstance(part, float | _PerMessage):
                break  # it has a value at all times: earlier rules never matter
        if not layers:
            return None
        return layers[0][1] if len(layers) == 1 and layers[0][0] is None else _Stack(layers)

    def of_node(self, quantity: Quantity, node: int) -> Part:
        """Return the value of a node; see `of_link`."""
        return self.of_link(quantity, node, node)

    @property
    def constant(self) -> bool:
        """Whether no value depends on the time or the message."""
        return all(rule.window is None for rule in self._rules) and not any(
            (isinstance(value, Drawn) and value.how == "message")
            or (isinstance(value, Listed) and any(isinstance(part, Steps) for part in value.values.values()))
            for rule in self._rules
            for value in rule.values.values()
        )

    def _part(self, quantity: Quantity, rule: Rule, value: Drawn | Listed | TwoState, source: int, target: int) -> Part:
        if isinstance(value, Listed):
            return self._listed(quantity, value, source, target)
        if value.how == "message":
            assert isinstance(value, Drawn), "the schema has no chain per message"
            draws = self._stream(value.purpose, value.sampler)
            return _Each(lambda: draws.next(source), mean_of_sampler(value.sampler))
        if value.how == "link":
            return self._once(value, min(source, target) << 32 | max(source, target))
        ends = [node for node in dict.fromkeys((source, target)) if rule.concerns(node)] or [source]
        drawing = [node for node in ends if node < self._num_clients] or ends[:1]
        return _worst(quantity, [self._once(value, node) for node in drawing])

    def _listed(self, quantity: Quantity, value: Listed, source: int, target: int) -> Part:
        one: int | None = source
        other: int | None = target
        if value.regions is not None:
            one, other = value.regions.get(source), value.regions.get(target)
        if one is None or other is None:
            return None
        if (part := value.values.get((one, other))) is not None:
            return part
        ends = [part for node in {one, other} if (part := value.values.get(node)) is not None]
        return _worst(quantity, ends) if ends else value.values.get(None)

    def _once(self, value: Drawn | TwoState, number: int) -> float | Changing:
        """Return the value that is drawn once for the client or link of that number."""
        if isinstance(value, Drawn):
            purpose = f"{value.purpose}-{value.how}"
            seat = self._seats.get(purpose) or self._seats.setdefault(purpose, self._streams.seat(purpose))
            return float(value.sampler(seat.at(number, 0), 1)[0])
        chain = self._chains.get((value.purpose, number))
        if chain is None:
            draws = self._stream(value.purpose, lambda g, n: g.random(n), KEPT_BLOCKS)
            chain = self._chains[value.purpose, number] = _Chain(value, lambda: draws.next(number))
        return chain

    def _stream(self, purpose: str, sampler: Sampler, kept: float = math.inf) -> Draws:
        draws = self._draws.get(purpose)
        if draws is None:
            draws = self._draws[purpose] = Draws(self._streams, purpose, sampler, kept)
        return draws


def _worst(quantity: Quantity, parts: Sequence[float | Changing]) -> float | Changing:
    if len(parts) == 1:
        return parts[0]
    pick: Callable[[Iterable[float]], float] = max if quantity in ("latency", "loss") else min
    constants = [part for part in parts if isinstance(part, float)]
    return pick(constants) if constants else _Worse([p for p in parts if not isinstance(p, float)], pick)


@functools.lru_cache(maxsize=64)
def mean_of_sampler(sampler: Sampler) -> float:
    """Return the mean of a sampler; if that is unknown, the mean of 1000 draws."""
    if isinstance(sampler, Constant):
        return sampler.value
    if isinstance(sampler, Law):
        return sampler.mean
    return float(sampler(np.random.Generator(np.random.Philox(0)), 1000).mean())
