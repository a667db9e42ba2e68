"""Measures a model's mini-batches on this machine, and messages between processes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simfl.assembly.setup import Setup
from simfl.live.fitting import Line, Pace, fit_line, fit_pace
from simfl.live.single import SingleClient
from simfl.live.transport import Transport
from simfl.records.folder import versions
from simfl.tape.problem import Batches

#: Sizes of the measured mini-batches, as multiples of the scenario's.
SHARES = (0.25, 0.5, 1.0, 2.0, 4.0)
#: Calls of each size: before measuring, measured at least and at most, and the host time for each size.
WARM, LEAST, MOST, EACH_S = 3, 15, 200, 0.5
#: Bytes of the vectors whose round trips are measured.
LINK_SIZES = (256, 4_096, 65_536, 262_144, 1_048_576, 4_194_304)
LINK_ROUNDS = 40
PING, PONG = 100, 101


@dataclasses.dataclass(frozen=True)
class Measured:
    """A pace, and its measurements: (batch size, seconds) of each call."""

    pace: Pace
    calls: list[tuple[int, float]]

    def spread(self) -> list[tuple[int, float, float, float]]:
        """Return (batch size, 10 %, 50 % and 90 % quantiles of seconds) for each size."""
        sizes, seconds = (np.array(column) for column in zip(*self.calls, strict=True))
        return [
            (size, *np.quantile(seconds[sizes == size], (0.1, 0.5, 0.9)).tolist()) for size in np.unique(sizes).tolist()
        ]


def measure_gradients(setup: Setup, device: Any, each_s: float = EACH_S) -> Measured:
    """Measure compiled mini-batches of several sizes in turn, and fit a pace.

    `each_s` are the host seconds for each size. One worker has all examples: the cost of a gather from memory depends
    little on their number.
    """
    problem, nominal = setup.problem, setup.problem.batches.size
    data = problem.data
    count = len(data.train_x)
    sizes = sorted({min(count, max(1, round(share * nominal))) for share in SHARES})
    whole = dataclasses.replace(data, indices=np.arange(count, dtype=np.int32), offsets=np.array([0, count]))
    workers = {
        size: SingleClient(
            dataclasses.replace(problem, data=whole, batches=Batches("with_replacement", size), rounds=None), 0, device
        )
        for size in sizes
    }
    params, calls = setup.training.initial, []
    for size, worker in workers.items():
        for draw in range(WARM):
            worker.gradient(params, draw, size)
    begin = time.perf_counter()
    for draw in range(MOST):
        for size, worker in workers.items():
            start = time.perf_counter()
            worker.gradient(params, draw, size)
            calls.append((size, time.perf_counter() - start))
        if draw + 1 >= LEAST and time.perf_counter() - begin > each_s * len(sizes):
            break
    return Measured(fit_pace(*zip(*calls, strict=True)), calls)


def fit_link(trips: list[tuple[int, float]]) -> Line:
    """Fit latency and seconds per byte to (bytes, seconds one way) of messages."""
    return fit_line(*zip(*trips, strict=True))


def measure_links(transport: Transport, sizes: Sequence[int], rounds: int) -> list[tuple[int, float]]:
    """Return (bytes, seconds one way) of round trips between processes 0 and 1.

    Args:
        transport: of two processes, which call this together.
        sizes: bytes of vectors, multiples of 4.
        rounds: round trips of each size.
    """
    received: list[int] = []
    transport.handlers |= dict.fromkeys((PING, PONG), lambda source, *_: received.append(source))
    times = []
    generator = np.random.default_rng(0)
    for size in sizes:
        vector = np.zeros(size // 4, np.float32)
        for _ in range(rounds):
            received.clear()
            begin = time.monotonic()
            if transport.rank == 0:
                # Wait for a random part of the other's polling interval: messages of a run are not in step with it.
                transport.wait(lambda: False, begin + transport.poll_s * generator.random())
                begin = time.monotonic()
                transport.send(1, PING, (), vector)
            transport.wait(lambda: bool(received))
            if transport.rank == 0:
                times.append((size, (time.monotonic() - begin) / 2))
            else:
                transport.send(0, PONG, (), vector)
    transport.end()
    return times


def measure_shifts(transport: Transport, sizes: Sequence[int], rounds: int) -> list[tuple[int, float]]:
    """Return (bytes, seconds) of rounds in which every process sends to the next.

    With more processes than cores, messages that are sent at the same time, as in an all-reduce, take longer than a
    single one. All processes call this together; arguments as of `measure_links`.
    """
    received: list[int] = []
    transport.handlers[PING] = lambda source, *_: received.append(source)
    times, expected = [], 0
    for size in sizes:
        vector = np.zeros(size // 4, np.float32)
        for number in range(-2, rounds):  # two rounds to get into step
            if number == 0:
                begin = time.monotonic()
            transport.send((transport.rank + 1) % transport.size, PING, (), vector)
            expected += 1
            transport.wait(lambda: len(received) >= expected)  # noqa: B023
        times.append((size, (time.monotonic() - begin) / rounds))
    transport.end()
    return times


def machine() -> str:
    """Describe the machine: processor, cores, system, versions."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        cpu = re.search(r"^model name[^:]*:(.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        name = cpu[1].strip() if cpu else name
    parts = versions()
    return f"{name}, {os.cpu_count()} cores, {platform.system()}, jax {parts['jax']}, Python {parts['python']}"
