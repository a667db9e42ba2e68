"""Compute times of clients: device, speed, jitter, stragglers and traces.

compute time of a mini-batch of b examples begun at t
    = (seconds_per_batch_k + b * seconds_per_example_k) * speed_k * slowdown_k(t, i) * trace_k(t) * jitter_{k,i}

with i the client's iteration. Several mini-batches in a row are one computation, and all of them use the factors at its
beginning. Every random factor of client k in its iteration i is a function of the seed, k and i alone, so two
algorithms with the same seed run on the same devices.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from simfl.compiled import Integer, Number, as_call
from simfl.streams import Seat, Streams
from simfl.world.engine import ROUNDING
from simfl.world.steps import Steps

#: Draws n values from a generator; a distribution of factors or of seconds.
Sampler = Callable[[np.random.Generator, int], NDArray[np.float64]]


@dataclass(frozen=True)
class Constant:
    """A sampler that always returns one value."""

    value: float

    def __call__(self, generator: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Return the value `count` times."""
        return np.full(count, self.value)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Support `copy` and `pickle`."""
        return as_call(self)


@dataclass(frozen=True)
class Law:
    """A sampler that knows its mean."""

    draw: Sampler
    mean: float

    def __call__(self, generator: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw `count` values."""
        return self.draw(generator, count)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Support `copy` and `pickle`."""
        return as_call(self)


#: Draws per block.
_DRAWS: Final = 32
#: With more clients than this, only so many draws of each block are kept: the others are drawn again.
_MANY_CLIENTS: Final = 1024
_KEPT: Final = 8
#: Iterations for which the random clients of a slowdown are drawn together.
_BLOCK: Final = 256
#: Bytes of drawn slow clients in memory; `_LEAST_KEPT` blocks are kept in any case.
#: Moves a time that misses a begin or an end by rounding over it.
_TO_EDGES = 1.0 + ROUNDING
_KEPT_BYTES = 2**25
_LEAST_KEPT = 8


class Draws:
    """An endless sequence of draws per client, in blocks.

    Args:
        purpose: name of the stream.
        sampler: draws a block.
        kept: the largest number of blocks in memory; others are drawn again when needed.
    """

    def __init__(self, streams: Streams, purpose: str, sampler: Sampler, kept: float = math.inf) -> None:
        self._seat = streams.seat(purpose)
        self._sampler = sampler
        self._kept = kept
        self._blocks: dict[int, array[float]] = {}
        self._counts: dict[int, int] = {}
        self._left: dict[int, int] = {}  # by client: draws left in its block, which was not kept

    def next(self, client: Integer) -> float:
        """Return the client's next draw."""
        block = self._blocks.get(client)
        if not block:
            block = self._draw(client)
        return block.pop()

    def _draw(self, client: Integer) -> array[float]:
        """Draw the client's next block, or the rest of one that was not kept.

        An array takes a third of a list's memory, in one place.
        """
        if len(self._blocks) >= self._kept:
            self._left |= {other: len(block) for other, block in self._blocks.items() if block}
            self._blocks.clear()
        left = self._left.pop(client, 0)
        count = self._counts.get(client, 0) - (left > 0)
        self._counts[client] = count + 1
        block = _drawn(self._seat, self._sampler, client, count)
        del block[left or _DRAWS :]
        self._blocks[client] = block
        return block


class ClientDraws:
    """`Draws` of the clients 0 to K - 1, in one array."""

    def __init__(self, streams: Streams, purpose: str, sampler: Sampler, num_clients: Integer) -> None:
        self._seat = streams.seat(purpose)
        self._sampler = sampler
        self._kept = _DRAWS if num_clients <= _MANY_CLIENTS else _KEPT
        self._values: Any = ()  # an array [K * kept], each client's backwards; empty before the first draw
        self._left = [0] * num_clients  # kept draws that the client has not used
        self._counts = array("i", bytes(4 * num_clients))  # times that the client has drawn

    def next(self, client: Integer) -> float:
        """Return the client's next draw."""
        left: int = self._left[client] - 1
        if left < 0:
            self._draw(client)
            left = self._kept - 1
        self._left[client] = left
        return self._values[client * self._kept + left]  # type: ignore[no-any-return]

    def _draw(self, client: Integer) -> None:
        """Draw the client's present block again, or its next one, and keep a part."""
        kept, count = self._kept, self._counts[client]
        self._counts[client] = count + 1
        number, end = divmod((count + 1) * kept - 1, _DRAWS)
        drawn = self._sampler(self._seat.at(client, number), _DRAWS)[end + 1 - kept : end + 1]
        if not self._values:
            code = "d" if drawn.dtype.kind == "f" else "q"
            self._values = array(code, [0]) * (kept * len(self._left))
            self._written = np.frombuffer(self._values, dtype=code)
        self._written[client * kept : (client + 1) * kept] = drawn[::-1]


def _drawn(seat: Seat, sampler: Sampler, client: Integer, count: Integer) -> array[float]:
    """Return a block of a client, backwards."""
    drawn = sampler(seat.at(client, count), _DRAWS)[::-1]
    code = "d" if drawn.dtype.kind == "f" else "q"
    block: array[float] = array(code)
    block.frombytes(drawn.astype(code, copy=False).tobytes())
    return block


@dataclass(frozen=True)
class Slowdown:
    """A scripted slowdown of some clients.

    Attributes:
        factor: multiplies the compute time, > 0.
        clients: the slow clients; None if they are drawn.
        random: number of clients drawn for every iteration (when `clients` is None).
        start_s, end_s: a computation is slow if it begins in the virtual time [start_s, end_s).
    """

    factor: float
    clients: frozenset[int] | None = None
    random: int = 0
    start_s: float = 0.0
    end_s: float = math.inf

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Support `copy` and `pickle`."""
        return as_call(self)


@dataclass(frozen=True)
class Trace:
    """Factors on compute times that change over time; 1 before the first one.

    Attributes:
        everyone: factors of all clients that are not in `own`.
        own: factors by client.
    """

    everyone: Steps
    own: Mapping[int, Steps] = field(default_factory=dict)

    def factor(self, client: int, now: float) -> float:
        """Return the factor on a computation that begins now."""
        factor = self.own.get(client, self.everyone).at(now)
        return 1.0 if factor is None else factor

    @property
    def largest(self) -> float:
        """The largest factor of any client at any time."""
        return max((value for steps in (self.everyone, *self.own.values()) for value in steps.values), default=1.0)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Support `copy` and `pickle`."""
        return as_call(self)


@dataclass(frozen=True)
class Pace:
    """The compute time of a mini-batch on a device of speed 1.

    Attributes:
        seconds_per_example: one number for all clients, or one per client, [K]; > 0.
        seconds_per_batch: fixed cost of a mini-batch: one number for all clients, or one per client, [K]; >= 0.
        batch_size: examples of a mini-batch: one number for all clients, or one per client, [K]; a computation of more
            examples is several mini-batches.
    """

    seconds_per_example: float | Sequence[float]
    seconds_per_batch: float | Sequence[float] = 0.0
    batch_size: int | Sequence[int] = 1

    def times(self, values: float | Sequence[float], speeds: Sequence[float]) -> list[float]:
        """Return values times speeds per client, [K]."""
        each = [values] * len(speeds) if isinstance(values, float | int) else values
        return [value * float(speed) for value, speed in zip(each, speeds, strict=True)]

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Support `copy` and `pickle`."""
        return as_call(self)


class Compute:
    """The compute times of all clients.

    Args:
        pace: the compute time on devices of speed 1; a number is seconds per example, > 0.
        speeds: factor on the compute time per client, [K]; 2 is half as fast.
        jitter: sampler of a factor per mini-batch, or None for exactly 1.
        slowdowns: if several apply, their factors are multiplied.
        trace: factors over time, or None.
    """

    def __init__(
        self,
        pace: Pace | float,
        speeds: Sequence[float],
        streams: Streams,
        jitter: Sampler | None = None,
        slowdowns: Sequence[Slowdown] = (),
        trace: Trace | None = None,
    ) -> None:
        pace = pace if isinstance(pace, Pace) else Pace(pace)
        self._base = array("d", pace.times(pace.seconds_per_example, speeds))
        overhead = pace.times(pace.seconds_per_batch, speeds)
        self._overhead = overhead if any(overhead) else None
        size = pace.batch_size
        self._batch_sizes = [size] * len(speeds) if isinstance(size, int) else list(size)
        self._trace = trace
        self._num_clients = len(self._base)
        self._streams = streams
        self._jitter = ClientDraws(streams, "jitter", jitter, self._num_clients) if jitter else None
        self._slowdowns = tuple(slowdowns)
        self._drawn: dict[tuple[int, int], NDArray[np.int32]] = {}  # recent blocks, by slowdown and block number
        self._iteration = [0] * (self._num_clients if slowdowns else 0)

    def usual(self, client: Integer, examples: Number) -> float:
        """Return the seconds of `examples` without jitter, slowdowns and trace."""
        seconds: float = examples * self._base[client]
        if self._overhead is not None:
            seconds += math.ceil(examples / self._batch_sizes[client]) * self._overhead[client]
        return seconds

    def duration(self, client: Integer, examples: Number, now: Number) -> float:
        """Return the seconds that the client's next `examples` take from now on."""
        seconds: float = examples * self._base[client]
        if self._overhead is not None:
            seconds += math.ceil(examples / self._batch_sizes[client]) * self._overhead[client]
        if self._jitter is not None:
            seconds *= self._jitter.next(client)
        if self._slowdowns:
            iteration = self._iteration[client]
            self._iteration[client] = iteration + 1
            at = now * _TO_EDGES
            for rule, slowdown in enumerate(self._slowdowns):
                if slowdown.start_s <= at < slowdown.end_s and self._applies(rule, slowdown, client, iteration):
                    seconds *= slowdown.factor
        if self._trace is not None:
            seconds *= self._trace.factor(client, now * _TO_EDGES)
        return seconds

    def _applies(self, rule: int, slowdown: Slowdown, client: Integer, iteration: int) -> bool:
        if slowdown.clients is not None:
            return client in slowdown.clients
        key = rule, iteration // _BLOCK
        block = self._drawn.get(key)
        if block is None:
            if len(self._drawn) >= max(_LEAST_KEPT, _KEPT_BYTES // (4 * _BLOCK * slowdown.random)):
                del self._drawn[next(iter(self._drawn))]  # the oldest; it is drawn again if a slow client needs it
            # The same k clients are slow in iteration i for every client and algorithm.
            generator = self._streams.generator("slowdown", *key)
            if slowdown.random == 1:
                block = generator.integers(0, self._num_clients, (_BLOCK, 1)).astype(np.int32)
            else:
                block = np.empty((_BLOCK, slowdown.random), dtype=np.int32)
                for row in block:  # row by row draws the same as all at once, with the memory of one row
                    keys = generator.random(self._num_clients)
                    row[:] = np.argpartition(keys, slowdown.random - 1)[: slowdown.random]
            self._drawn[key] = block
        return bool((block[iteration % _BLOCK] == client).any())
