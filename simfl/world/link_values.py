"""What each link is like, where they differ: layers of rules over one base, drawn, measured or changing in time.

The value of a link is that of the last layer that says something about it now. A layer gives a constant, a
distribution (drawn per message, once per link, or once per client), a trace of measurements, or, for losses, a
two-state chain. Whatever is drawn once follows from the seed and the link's ends alone, so that it is the same in every
run of one seed, whoever asks first.

A link whose two ends both have a value of their own (drawn once per client, or from a trace of clients) has that of the
worse end: the longer latency, the smaller bandwidth, the larger loss.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from simfl.errors import RunError
from simfl.streams import Streams
from simfl.world.compute import Constant, Draws, Law, Sampler
from simfl.world.steps import Steps

#: What a layer can say something about; the last two are those of nodes, the others of links.
Quantity = Literal["latency", "bandwidth", "loss", "uplink", "downlink"]
Ways = Literal["message", "link", "client"]

#: Changes of a capacity during one message, beyond which something is wrong with the trace, or with the message.
MOST_CHANGES = 100_000
#: Blocks of draws of links that are kept: some 70 MB.
KEPT_BLOCKS = 2**16


class Changing(Protocol):
    """A value that is constant between times at which it changes."""

    def at(self, time: float) -> float | None:
        """Return the value at a time; None is infinite, of capacities."""

    def next_change(self, time: float) -> float:
        """Return a time after `time` up to which the value stays as it is; infinite: for good."""


#: Bytes per second; None is infinite.
Capacity = float | Changing | None


def finish_s(size: int, begin: float, *capacities: Capacity) -> float:
    """Return when the last of `size` bytes that begin at a time has passed the smallest of capacities at any time.

    The t with  int_begin^t min_i c_i(s) ds = size.
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
        f"links: a message of {size} bytes is under way for more than {MOST_CHANGES:,} changes of what carries it; "
        "use longer windows or a coarser trace"
    )


@dataclass(frozen=True)
class Window:
    """When a layer holds: from `start_s` until `end_s`, and so again every `every_s`."""

    start_s: float = 0.0
    end_s: float = math.inf
    every_s: float | None = None

    def _phase(self, time: float) -> tuple[float, float]:
        """Return when the repetition that a time lies in began, and the time since."""
        if self.every_s is None or time < self.start_s:
            return self.start_s, time - self.start_s
        begun = self.start_s + math.floor((time - self.start_s) / self.every_s) * self.every_s
        return begun, time - begun

    def holds(self, time: float) -> bool:
        """Whether a time lies in it."""
        return 0.0 <= self._phase(time)[1] < self.end_s - self.start_s

    def next_change(self, time: float) -> float:
        """Return when it begins or ends next."""
        begun, _ = self._phase(time)
        after = [begun, begun + self.end_s - self.start_s]
        if self.every_s is not None:
            after += [begun + self.every_s, begun + 2.0 * self.every_s]  # the second where the first is rounded down
        return min((t for t in after if t > time), default=math.inf)


@dataclass(frozen=True)
class Drawn:
    """A distribution.

    Attributes:
        sampler: draws values.
        how: for each message anew, once for each link (its two directions alike), or once for each client.
        purpose: name of the stream.
    """

    sampler: Sampler
    how: Ways
    purpose: str


@dataclass(frozen=True)
class Traced:
    """Measurements of clients, or of links, each with steps of its own; under None, those of everybody."""

    steps: Mapping[int | tuple[int, int] | None, Steps]


@dataclass(frozen=True)
class TwoState:
    """Losses that come in bursts: a Markov chain in continuous time between a good and a bad state.

    Gilbert 1960, "Capacity of a burst-noise channel", https://doi.org/10.1002/j.1538-7305.1960.tb03959.x; Elliott 1963,
    "Estimates of error rates for codes on burst-noise channels". The state after a time s follows from that before:
    P(bad) = p + (1{was bad} - p) exp(-s (1/good_s + 1/bad_s)) with p = bad_s / (good_s + bad_s).

    Attributes:
        good_s, bad_s: mean lengths of the two states.
        loss_good, loss_bad: probability that a message is lost in each.
        how: one chain for each link (its two directions alike), or one for each client.
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
        """The loss over a long time."""
        return self.share * self.loss_bad + (1.0 - self.share) * self.loss_good

    def bad(self, before: bool | None, seconds: float, uniform: float) -> bool:
        """Return the state `seconds` after another one (None: nothing is known), given a uniform draw."""
        chance = self.share
        if before is not None:
            chance += (before - chance) * math.exp(-max(0.0, seconds) * (1.0 / self.good_s + 1.0 / self.bad_s))
        return uniform < chance


Value = float | Drawn | Traced | TwoState


class Layer(Protocol):
    """What is said about some links; `window`: when, None: always."""

    @property
    def window(self) -> Window | None:
        """When it holds."""

    def says(self, quantity: Quantity) -> bool:
        """Whether it says anything about this quantity."""

    def of_link(self, quantity: Quantity, source: int, target: int) -> Value | None:
        """Return what it says about the link of a message from source to target; None: nothing."""

    def of_node(self, quantity: Quantity, node: int) -> Value | None:
        """Return what it says about a node's uplink or downlink; None: nothing."""

    def concerns(self, node: int) -> bool:
        """Whether a value of a node's own is meant, where it is drawn once for each."""


@dataclass(frozen=True)
class Rule:
    """Some values for some links.

    Attributes:
        values: by quantity.
        ways: from whom to whom, any of these; None is everybody.
        nodes: whose own values are meant, and whose uplinks and downlinks; None is everybody's.
        window: when.
    """

    values: Mapping[Quantity, Value]
    ways: tuple[tuple[frozenset[int] | None, frozenset[int] | None], ...] = ((None, None),)
    nodes: frozenset[int] | None = None
    window: Window | None = None

    def says(self, quantity: Quantity) -> bool:
        """Whether there is a value."""
        return quantity in self.values

    def of_link(self, quantity: Quantity, source: int, target: int) -> Value | None:
        """Those of its ways."""
        for sources, targets in self.ways:
            if (sources is None or source in sources) and (targets is None or target in targets):
                return self.values.get(quantity)
        return None

    def of_node(self, quantity: Quantity, node: int) -> Value | None:
        """Those of its nodes."""
        return self.values.get(quantity) if self.concerns(node) else None

    def concerns(self, node: int) -> bool:
        """Its nodes."""
        return self.nodes is None or node in self.nodes


@dataclass(frozen=True)
class Base:
    """What holds where nothing else is said: one value for all links and clients, and those of other nodes.

    Attributes:
        values: by quantity.
        num_clients: K.
        nodes: the uplinks and downlinks of nodes that are not clients.
    """

    values: Mapping[Quantity, Value]
    num_clients: int
    nodes: dict[int, Mapping[Quantity, float]] = field(default_factory=dict)
    window: Window | None = None

    def says(self, quantity: Quantity) -> bool:
        """Whether there is a value."""
        return quantity in self.values

    def of_link(self, quantity: Quantity, source: int, target: int) -> Value | None:
        """The same for all."""
        return self.values.get(quantity)

    def of_node(self, quantity: Quantity, node: int) -> Value | None:
        """The same for all clients."""
        return (self.values if node < self.num_clients else self.nodes.get(node, {})).get(quantity)

    def concerns(self, node: int) -> bool:
        """Everybody."""
        return True


@dataclass(frozen=True)
class Matrix:
    """Values by the regions of both ends.

    Attributes:
        regions: of each node that is in one, by number.
        values: by quantity, [from][to]; None leaves the value as it is.
    """

    regions: Mapping[int, int]
    values: Mapping[Quantity, Sequence[Sequence[float | None]]]
    window: Window | None = None

    def says(self, quantity: Quantity) -> bool:
        """Whether there is a value."""
        return quantity in self.values

    def of_link(self, quantity: Quantity, source: int, target: int) -> Value | None:
        """What stands in the row of the source's region and the column of the target's."""
        rows, here, there = self.values.get(quantity), self.regions.get(source), self.regions.get(target)
        return None if rows is None or here is None or there is None else rows[here][there]

    def of_node(self, quantity: Quantity, node: int) -> Value | None:
        """Nothing."""
        return None

    def concerns(self, node: int) -> bool:
        """Whoever is in a region."""
        return node in self.regions


@dataclass(frozen=True)
class Edges:
    """Values of single links, by (source, target)."""

    values: Mapping[tuple[int, int], Mapping[Quantity, float]]
    window: Window | None = None

    def says(self, quantity: Quantity) -> bool:
        """Whether any edge has a value."""
        return any(quantity in values for values in self.values.values())

    def of_link(self, quantity: Quantity, source: int, target: int) -> Value | None:
        """What the graph says about this edge."""
        found = self.values.get((source, target))
        return None if found is None else found.get(quantity)

    def of_node(self, quantity: Quantity, node: int) -> Value | None:
        """Nothing."""
        return None

    def concerns(self, node: int) -> bool:
        """Edges have no values of nodes."""
        return False


@dataclass(frozen=True)
class Own:
    """Capacities of single nodes, by number."""

    values: Mapping[int, Mapping[Quantity, float]]
    window: Window | None = None

    def says(self, quantity: Quantity) -> bool:
        """Whether any node has a value."""
        return any(quantity in values for values in self.values.values())

    def of_link(self, quantity: Quantity, source: int, target: int) -> Value | None:
        """Nothing."""
        return None

    def of_node(self, quantity: Quantity, node: int) -> Value | None:
        """What the node has."""
        return self.values.get(node, {}).get(quantity)

    def concerns(self, node: int) -> bool:
        """Those that have any."""
        return node in self.values


class _Each:
    """A distribution that is drawn from for each message."""

    def __init__(self, draw: Callable[[], float], mean: float) -> None:
        self._draw, self.mean = draw, mean

    def at(self, time: float) -> float:
        """Return the next draw, whatever the time."""
        return self._draw()

    def next_change(self, time: float) -> float:
        """Nobody knows the next message."""
        return math.inf


@dataclass(slots=True, eq=False)
class _Chain:
    """The losses of one two-state chain; what it went through does not follow from the seed: it is always kept."""

    law: TwoState
    draws: Draws
    number: int
    bad: bool | None = None
    time: float = 0.0

    @property
    def mean(self) -> float:
        """The loss over a long time."""
        return self.law.mean

    def at(self, time: float) -> float:
        """Return the loss at a time; times come in order, but for those of clients whose messages queue."""
        self.bad = self.law.bad(self.bad, time - self.time, self.draws.next(self.number))
        self.time = max(self.time, time)
        return self.law.loss_bad if self.bad else self.law.loss_good

    def next_change(self, time: float) -> float:
        """Nobody knows."""
        return math.inf


#: What a layer makes of a value for one link or node.
_Part = float | Changing


@dataclass(frozen=True)
class _Worse:
    """The worst of several, at any time."""

    parts: Sequence[Changing]
    pick: Callable[[Iterable[float]], float]

    def at(self, time: float) -> float | None:
        """Return the worst of those that have a value at a time."""
        known = [value for part in self.parts if (value := part.at(time)) is not None]
        return self.pick(known) if known else None

    def next_change(self, time: float) -> float:
        """Return when any of them changes."""
        return min(part.next_change(time) for part in self.parts)


@dataclass(frozen=True)
class _Stack:
    """What several layers say, the strongest first."""

    layers: Sequence[tuple[Window | None, _Part]]

    def at(self, time: float) -> float | None:
        """Return what the strongest says that holds at a time."""
        for window, part in self.layers:
            if window is None or window.holds(time):
                value = part if isinstance(part, float) else part.at(time)
                if value is not None:
                    return value
        return None

    def next_change(self, time: float) -> float:
        """Return when any of them begins, ends or changes."""
        changes = [window.next_change(time) for window, _ in self.layers if window is not None]
        changes += [part.next_change(time) for _, part in self.layers if not isinstance(part, float)]
        return min(changes, default=math.inf)

    def mean(self, time: float) -> float:
        """Return the mean over draws of what the strongest says at a time; 0 if none does."""
        for window, part in self.layers:
            if window is None or window.holds(time):
                value = mean_of(part, time)
                if value is not None:
                    return value
        return 0.0


def settled(part: Changing) -> Capacity:
    """Return a capacity for one message: what is drawn for each is drawn."""
    if isinstance(part, _Each):
        return part.at(0.0)
    if isinstance(part, _Stack) and any(isinstance(inner, _Each) for _, inner in part.layers):
        return _Stack([(window, p.at(0.0) if isinstance(p, _Each) else p) for window, p in part.layers])
    return part


def mean_of(part: _Part | None, time: float) -> float | None:
    """Return the mean over draws of a value at a time; None where there is none."""
    if part is None or isinstance(part, float):
        return part
    if isinstance(part, _Stack):
        return part.mean(time)
    return part.mean if isinstance(part, _Each | _Chain) else part.at(time)


def ever(part: _Part | None, until: float = math.inf) -> set[float | None]:
    """Return all values that a part ever has before a time, perhaps some more; of draws their mean; None for none."""
    if part is None or isinstance(part, float):
        return {part}
    if isinstance(part, _Each | _Chain):
        return {part.mean}
    if isinstance(part, Steps):
        known = {value for time, value in zip(part.times, part.values, strict=True) if time < until}
        return {*known, *([None] if part.times[0] > 0.0 else [])}
    if isinstance(part, _Worse):
        return set().union(*(ever(inner, until) for inner in part.parts))
    assert isinstance(part, _Stack), "the last of the parts"
    found: set[float | None] = set()
    for window, inner in part.layers:
        if window is not None and window.start_s >= until:
            continue
        values = ever(inner, until)
        found |= values - {None}
        if window is None and None not in values:
            return found
    return found | {None}


_WORSE: Mapping[Quantity, Callable[[Iterable[float]], float]] = {
    "latency": max, "loss": max, "bandwidth": min, "uplink": min, "downlink": min,
}  # fmt: skip


class Lookup:
    """Finds the values of links and nodes in layers, and draws what is drawn.

    Args:
        layers: later ones win.
        streams: the run's streams.
        num_clients: K; nodes from K on are servers, which draw no values once per client beside clients that do.
    """

    def __init__(self, layers: Sequence[Layer], streams: Streams, num_clients: int) -> None:
        self._layers = tuple(reversed(layers))
        self._streams, self._num_clients = streams, num_clients
        self._each: dict[str, Draws] = {}
        self._chains: dict[tuple[str, int], _Chain] = {}
        self._seat = streams.generator("links")

    def of_link(self, quantity: Quantity, source: int, target: int) -> _Part | None:
        """Return the value of a link: a number, or what has one at any time; None if nothing is said."""
        found: list[tuple[Window | None, _Part]] = []
        for layer in self._layers:
            value = layer.of_link(quantity, source, target)
            if value is not None and self._add(found, layer, self._part(quantity, layer, value, source, target)):
                break
        return _merged(found)

    def of_node(self, quantity: Quantity, node: int) -> _Part | None:
        """Return the value of a node, as of a link."""
        found: list[tuple[Window | None, _Part]] = []
        for layer in self._layers:
            value = layer.of_node(quantity, node)
            if value is not None and self._add(found, layer, self._part(quantity, layer, value, node, node)):
                break
        return _merged(found)

    @property
    def constant(self) -> bool:
        """Whether a value once looked up holds for good, for every message."""
        values = [value for layer in self._layers if isinstance(layer, Rule) for value in layer.values.values()]
        each = any(isinstance(value, Traced) or getattr(value, "how", "") == "message" for value in values)
        return not each and all(layer.window is None for layer in self._layers)

    def next_change(self, time: float) -> float:
        """Return when any capacity changes next, whosever it is."""
        changes = [layer.window.next_change(time) for layer in self._layers if layer.window is not None]
        for layer in self._layers:
            for value in layer.values.values() if isinstance(layer, Rule) else ():
                if isinstance(value, Traced):
                    changes += [steps.next_change(time) for steps in value.steps.values()]
        return min(changes, default=math.inf)

    def _add(self, found: list[tuple[Window | None, _Part]], layer: Layer, part: _Part | None) -> bool:
        """Take a layer's part over, and return whether nothing below it can ever hold."""
        if part is None:
            return False
        found.append((layer.window, part))
        return layer.window is None and not isinstance(part, Steps | _Worse)

    def _part(self, quantity: Quantity, layer: Layer, value: Value, source: int, target: int) -> _Part | None:
        if isinstance(value, float):
            return value
        if isinstance(value, Drawn) and value.how == "message":
            draws = self._each.get(value.purpose)
            if draws is None:
                draws = self._each[value.purpose] = Draws(self._streams, value.purpose, value.sampler)
            return _Each(lambda: draws.next(source), mean_of_sampler(value.sampler))
        if isinstance(value, Traced):
            if (steps := value.steps.get((source, target))) is not None:
                return steps
            own = [steps for node in {source, target} if (steps := value.steps.get(node)) is not None]
            if own:
                return own[0] if len(own) == 1 else _Worse(own, _WORSE[quantity])
            return value.steps.get(None)
        if value.how == "link":
            return self._once(value, min(source, target) << 32 | max(source, target))
        ends = [node for node in dict.fromkeys((source, target)) if layer.concerns(node)] or [source]
        drawing = [node for node in ends if node < self._num_clients] or ends[:1]
        parts = [self._once(value, node) for node in drawing]
        if len(parts) == 1:
            return parts[0]
        numbers = [part for part in parts if isinstance(part, float)]
        return _WORSE[quantity](numbers) if numbers else _Worse([p for p in parts if not isinstance(p, float)], max)

    def _once(self, value: Drawn | TwoState, number: int) -> _Part:
        """Return what is drawn once for a client or link of that number."""
        if isinstance(value, Drawn):
            self._streams.reseat(self._seat, f"{value.purpose}-{value.how}", number)
            return float(value.sampler(self._seat, 1)[0])
        chain = self._chains.get((value.purpose, number))
        if chain is None:
            draws = self._each.get(value.purpose)
            if draws is None:
                uniform: Sampler = lambda g, n: g.random(n)  # noqa: E731
                draws = self._each[value.purpose] = Draws(self._streams, value.purpose, uniform, KEPT_BLOCKS)
            chain = self._chains[value.purpose, number] = _Chain(value, draws, number)
        return chain


def _merged(found: Sequence[tuple[Window | None, _Part]]) -> _Part | None:
    if not found:
        return None
    return found[0][1] if len(found) == 1 and found[0][0] is None else _Stack(found)


@functools.lru_cache(maxsize=64)
def mean_of_sampler(sampler: Sampler) -> float:
    """Return the mean of a sampler; of one that does not know it by some draws of its own."""
    if isinstance(sampler, Constant):
        return sampler.value
    if isinstance(sampler, Law):
        return sampler.mean
    return float(sampler(np.random.Generator(np.random.Philox(0)), 1000).mean())
