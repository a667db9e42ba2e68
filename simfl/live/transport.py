"""Messages between MPI processes, served while a process computes or waits.

A message is a buffer: a header of a few numbers, then the bytes of a vector. No process blocks in MPI: one that waits
looks for messages every `poll_s` and sleeps in between, so that many more processes than cores disturb each other
little (MPI's own waiting spins). What such a message takes is measured by `simfl calibrate --links`.

The end. Messages of one sender arrive in order. A process that ends sends each other one a last one
(FIN), and receives until it has all their last messages and its own have left: then no message is in flight.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

#: Numbers in front of every message, f64.
HEADER = 8
HEADER_BYTES = 8 * HEADER
#: The last message of a sender.
FIN = 1
#: How often who waits looks for messages, in seconds; shorter while something large of its own is under way.
POLL_S = 5e-4
BUSY_POLL_S = 5e-5

Vector = NDArray[np.float32]
#: Called with the source, the numbers of the header, and the vector (empty if there is none).
Handler = Callable[[int, NDArray[np.float64], Vector], None]


def wake_on_time() -> None:
    """Ask Linux to end sleeps on time, not up to 50 us later."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(29, 1000, 0, 0, 0)  # PR_SET_TIMERSLACK, nanoseconds


class Wire(Protocol):
    """Carries buffers; `simfl.live.mpi.MpiWire` is MPI's."""

    rank: int
    size: int

    def send(self, buffer: NDArray[np.uint8], target: int, kind: int) -> Callable[[], bool]:
        """Start to send; return whether the buffer has left as a function."""

    def receive(self) -> tuple[int, int, NDArray[np.uint8]] | None:
        """Return the source, kind and bytes of the next message, in order by source."""


class Clock(Protocol):
    """A clock; the module `time` is the machine's."""

    def monotonic(self) -> float:
        """Return seconds since some moment."""

    def sleep(self, seconds: float, /) -> None:
        """Return after `seconds`."""


class SlowWire:
    """Emulates slow links by delaying messages.

    delivery time = waiting for earlier messages to the same process + bytes / bandwidth + latency,

    as in a simulated world whose links are all alike and carry one message at a time.

    Args:
        wire: carries the buffers at last.
        latency_s: of every link.
        bytes_per_s: bandwidth of every link.
        exempt: kinds of messages that are not delayed, since the simulated world has no such messages.
        clock: as the transport's.
    """

    def __init__(
        self, wire: Wire, latency_s: float, bytes_per_s: float, exempt: Sequence[int] = (), clock: Clock = time
    ) -> None:
        self._wire, self._clock = wire, clock
        self._latency_s, self._bytes_per_s, self._exempt = latency_s, bytes_per_s, frozenset(exempt)
        self.rank, self.size = wire.rank, wire.size
        self._free_s = dict.fromkeys(range(wire.size), -np.inf)

    def send(self, buffer: NDArray[np.uint8], target: int, kind: int) -> Callable[[], bool]:
        """Delay a message as a slow link does; return whether it has left."""
        if kind in self._exempt:
            return self._wire.send(buffer, target, kind)
        begin = max(self._clock.monotonic(), self._free_s[target])
        self._free_s[target] = begin + (buffer.size - HEADER_BYTES) / self._bytes_per_s
        due = self._free_s[target] + self._latency_s
        has_left: Callable[[], bool] | None = None

        def attempt() -> bool:
            nonlocal has_left
            if has_left is None and self._clock.monotonic() >= due:
                has_left = self._wire.send(buffer, target, kind)
            return has_left is not None and has_left()

        return attempt

    def receive(self) -> tuple[int, int, NDArray[np.uint8]] | None:
        """Return the next message; None without one."""
        return self._wire.receive()


class Transport:
    """One process's end of all links.

    Args:
        wire: carries buffers between those that take part.
        poll_s: how often it is looked for messages while nothing else is to be done.
        clock: by which it waits, and by which all that use it tell the time.
        busy_poll_s: how often it is looked for messages while one of its own is under way.
    """

    def __init__(
        self, wire: Wire, poll_s: float = POLL_S, clock: Clock = time, busy_poll_s: float = BUSY_POLL_S
    ) -> None:
        self._wire, self.clock = wire, clock
        self.rank, self.size = wire.rank, wire.size
        self.poll_s, self.busy_poll_s = poll_s, busy_poll_s
        #: What is done with a message, by its kind (an MPI tag > 1).
        self.handlers: dict[int, Handler] = {}
        #: Vectors sent, and their bytes: what a simulated run counts as messages.
        self.messages = self.sent_bytes = 0
        self._pending: list[tuple[Callable[[], bool], NDArray[np.uint8]]] = []
        self._ended = 0

    def send(self, target: int, kind: int, numbers: Sequence[float] = (), vector: Vector | None = None) -> None:
        """Send a message; returns at once."""
        size = 0 if vector is None else vector.nbytes
        buffer = np.zeros(HEADER_BYTES + size, np.uint8)
        buffer[:HEADER_BYTES].view(np.float64)[: len(numbers)] = numbers
        if vector is not None:
            buffer[HEADER_BYTES:] = np.ascontiguousarray(vector).view(np.uint8)
            self.messages += 1
            self.sent_bytes += size
        has_left = self._wire.send(buffer, target, kind)
        if not has_left():
            self._pending.append((has_left, buffer))

    def progress(self) -> None:
        """Receive messages for their handlers, and forget sent ones."""
        if self._pending:
            self._pending = [entry for entry in self._pending if not entry[0]()]
        while (message := self._wire.receive()) is not None:
            source, kind, buffer = message
            if kind == FIN:
                self._ended += 1
            else:
                head = buffer[:HEADER_BYTES].view(np.float64)
                self.handlers[kind](source, head, buffer[HEADER_BYTES:].view(np.float32))

    def wait(self, ready: Callable[[], bool], until: float = np.inf) -> bool:
        """Serve messages until `ready` or a time; return `ready`."""
        while True:
            self.progress()
            if ready():
                return True
            left = until - self.clock.monotonic()
            if left <= 0.0:
                return False
            self.clock.sleep(min(self.busy_poll_s if self._pending else self.poll_s, left))

    def end(self, *kept: int) -> None:
        """Announce the end, and wait for all others' ends and own messages.

        Args:
            kept: kinds of messages that are still handled, without an answer; the others are let go of.
        """
        handlers = self.handlers
        self.handlers = {kind: one if kind in kept else _let_go for kind, one in handlers.items()}
        for target in range(self.size):
            if target != self.rank:
                self.send(target, FIN)
        self.wait(lambda: self._ended == self.size - 1 and not self._pending)


def _let_go(source: int, numbers: NDArray[np.float64], vector: Vector) -> None:
    """It comes after the end."""
