"""Measures the mini-batches of a scenario's model on this machine."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

from simfl.build.setup import Setup
from simfl.live.fitting import Line, Pace, fit_line, fit_pace
from simfl.records.folder import versions
from simfl.tape.problem import Batches
from simfl.tape.single import SingleClient

#: Mini-batches measured, as shares of the scenario's.
SHARES = (0.25, 0.5, 1.0, 2.0, 4.0)
#: Calls of each size before it is measured, measured at least, and the host time for each.
WARM, LEAST, MOST, EACH_S = 3, 15, 200, 0.5
#: Bytes of vectors whose round trips are measured.
LINK_SIZES = (256, 4_096, 65_536, 262_144, 1_048_576, 4_194_304)
LINK_ROUNDS = 40


@dataclasses.dataclass(frozen=True)
class Measured:
    """A pace, and its measurements: (batch size, seconds) of each call."""

    pace: Pace
    calls: list[tuple[int, float]]

    def spread(self) -> list[tuple[int, float, float, float]]:
        """Return (batch size, 10 %, 50 % and 90 % quantiles of seconds) for each size."""
        sizes = sorted({size for size, _ in self.calls})
        quantiles = {size: np.quantile([s for b, s in self.calls if b == size], (0.1, 0.5, 0.9)) for size in sizes}
        return [(size, *quantiles[size].tolist()) for size in sizes]


def measure_gradients(setup: Setup, device: Any, each_s: float = EACH_S) -> Measured:
    """Measure warm mini-batches of several sizes in turn, and fit a pace.

    One worker has all examples: what a gather from memory costs depends little on how many there are.

    Args:
        setup: of the scenario.
        device: where to compute.
        each_s: host seconds for each size.
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
    return Measured(fit_pace([size for size, _ in calls], [seconds for _, seconds in calls]), calls)


def fit_link(trips: list[tuple[int, float]]) -> Line:
    """Return latency and seconds per byte of messages, from (bytes, seconds one way)."""
    return fit_line([size for size, _ in trips], [seconds for _, seconds in trips])


def machine() -> str:
    """Return the machine's description."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    parts = versions()
    return f"{name}, {os.cpu_count()} cores, {platform.system()}, jax {parts['jax']}, Python {parts['python']}"
