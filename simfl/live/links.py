"""Message times between processes: round trips, and all sending at once."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simfl.live.transport import Transport, Vector

PING, PONG = 100, 101


def measure(transport: Transport, sizes: Sequence[int], rounds: int) -> list[tuple[int, float]]:
    """Return (bytes, seconds one way) of round trips between processes 0 and 1.

    Args:
        transport: of two processes, which call it together.
        sizes: bytes of vectors, multiples of 4.
        rounds: round trips of each size.
    """
    came: list[Vector] = []

    def take(source: int, numbers: NDArray[np.float64], vector: Vector) -> None:
        came.append(vector)

    transport.handlers |= {PING: take, PONG: take}
    times = []
    generator = np.random.default_rng(0)
    for size in sizes:
        vector = np.zeros(size // 4, np.float32)
        for _ in range(rounds):
            came.clear()
            begin = time.monotonic()
            if transport.rank == 0:
                # At a random moment of the other's rhythm, as messages come.
                transport.wait(lambda: False, begin + transport.poll_s * generator.random())
                begin = time.monotonic()
                transport.send(1, PING, (), vector)
            transport.wait(lambda: bool(came))
            if transport.rank == 0:
                times.append((size, (time.monotonic() - begin) / 2))
            else:
                transport.send(0, PONG, (), vector)
    transport.end()
    return times


def shift(transport: Transport, sizes: Sequence[int], rounds: int) -> list[tuple[int, float]]:
    """Return (bytes, seconds) of rounds in which every process sends to the next.

    Where more processes than cores talk at once, as in an all-reduce, messages take longer than one alone.

    Args:
        transport: of all that take part, who call it together.
        sizes: bytes of vectors, multiples of 4.
        rounds: of each size.
    """
    came = [0]

    def take(source: int, numbers: NDArray[np.float64], vector: Vector) -> None:
        came[0] += 1

    transport.handlers[PING] = take
    times, expected = [], 0
    for size in sizes:
        vector = np.zeros(size // 4, np.float32)
        for number in range(-2, rounds):  # two rounds to get into step
            if number == 0:
                begin = time.monotonic()
            transport.send((transport.rank + 1) % transport.size, PING, (), vector)
            expected += 1
            transport.wait(lambda: came[0] >= expected)  # noqa: B023
        times.append((size, (time.monotonic() - begin) / rounds))
    transport.end()
    return times
