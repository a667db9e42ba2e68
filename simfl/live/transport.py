"""Messages between MPI processes, served while a process computes or waits.

A message is a buffer: a header of a few numbers, then the bytes of a vector. No process blocks in MPI: a waiting
process polls for messages every `poll_s` and sleeps in between. MPI's own waiting spins, so that processes that share
cores would slow each other down. `simfl calibrate --links` measures how long such messages take.

Messages of one sender arrive in order. A process that ends sends a last message (FIN) to each other process. It
receives until it has the last messages of all others and its own messages have left. Then no message is in flight.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

#: Numbers at the start of every message, f64.
HEADER = 8
HEADER_BYTES = 8 * HEADER
#: Kind of a sender's last message.
FIN = 1
#: Polling intervals of a waiting process, in seconds: usually, and while a message that it sends has not left.
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
    """Carries buffers, in order by source; `simfl.live.mpi.MpiWire` uses MPI."""

    rank: int
    size: int

    def send(self, buffer: NDArray[np.uint8], target: int, kind: int) -> Callable[[], bool]:
        """Start to send; return a function that says whether the buffer has left."""

    def receive(self) -> tuple[int, int, NDArray[np.uint8]] | None:
        """Return source, kind and bytes of the next message, None without one."""


class Clock(Protocol):
    """A clock; the module `time` is the machine's."""

    def monotonic(self) -> float:
        """Return seconds since a fixed moment."""

    def sleep(self, seconds: float, /) -> None:
        """Return after `seconds`."""


class SlowWire:
    """Emulates slow links by delaying messages.

    delivery time = waiting for earlier messages to the same process + bytes / bandwidth + latency,

    as in a simulated world where all links are identical and carry one message at a time.

    Args:
        wire: carries the buffers after the delay.
        latency_s: of every link.
        bytes_per_s: bandwidth of every link.
        exempt: kinds of messages that are not delayed, since the simulated world does not send them.
        clock: the transport's clock.
    """

    def __init__(
        self, wire: Wire, latency_s: float, bytes_per_s: float, exempt: Sequence[int] = (), clock: Clock = time
    ) -> None:
        self._wire, self._clock, self.receive = wire, clock, wire.receive
        self._latency_s, self._bytes_per_s, self._exempt = latency_s, bytes_per_s, frozenset(exempt)
        self.rank, self.size = wire.rank, wire.size
        self._free_s = dict.fromkeys(range(wire.size), -np.inf)

    def send(self, buffer: NDArray[np.uint8], target: int, kind: int) -> Callable[[], bool]:
        """Delay a message as a slow link does; return as `Wire.send`."""
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


class Transport:
    """One process's end of all links.

    Args:
        wire: carries the buffers.
        poll_s: polling interval of a process that waits.
        clock: used for waiting, and by every object of this process that reads the time.
        busy_poll_s: polling interval while a message that the process sends has not left.
    """

    def __init__(
        self, wire: Wire, poll_s: float = POLL_S, clock: Clock = time, busy_poll_s: float = BUSY_POLL_S
    ) -> None:
        self._wire, self.clock = wire, clock
        self.rank, self.size = wire.rank, wire.size
        self.poll_s, self.busy_poll_s = poll_s, busy_poll_s
        #: The handler of each kind of message (an MPI tag > 1).
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
        """Pass received messages to their handlers, and forget sent ones."""
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

    def end(self, *handled: int) -> None:
        """Announce the end; wait for the others' ends and for sent messages to leave.

        Messages of the kinds in `handled` still reach their handlers, without an answer. All others are ignored.
        """
        self.handlers = {
            kind: handler if kind in handled else lambda *_: None for kind, handler in self.handlers.items()
        }
        for target in range(self.size):
            if target != self.rank:
                self.send(target, FIN)
        self.wait(lambda: self._ended == self.size - 1 and not self._pending)
