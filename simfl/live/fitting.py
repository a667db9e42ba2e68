"""Fits of a scenario's times to measurements: lines, speeds and jitter.

    seconds = (seconds_per_batch + b * seconds_per_example) * speed * jitter,  jitter log-normal with mean 1

A line is fitted to the medians of equal sizes by least squares of relative errors, so that a call of a millisecond and
one of a second get the same relative accuracy. Other work on the machine disturbs medians little. Jitter's sigma is
half the width of the middle 68 % of the logarithms. The mean is exp(sigma^2 / 2) times the median.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Do not trust a fit whose line misses a median by a larger share than this.
MISFIT = 0.3
#: A machine without other work has less jitter than this, the standard deviation of the logarithm of compute times.
JITTER = 0.5
#: How often speeds, and the line to which they are relative, are fitted in turn.
_TURNS = 20


@dataclass(frozen=True)
class Line:
    """fixed + slope * x, both >= 0."""

    fixed: float
    slope: float

    def __call__(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return the values at x."""
        return self.fixed + self.slope * np.asarray(x, dtype=np.float64)


@dataclass(frozen=True)
class Pace:
    """The compute times of mini-batches."""

    seconds_per_batch: float  # at speed 1, as the next
    seconds_per_example: float
    sigma: float  # of the logarithm of jitter
    speeds: tuple[float, ...] = ()  # factor on the time of each client, with median 1; empty for a single machine
    error: float = 0.0  # the largest relative distance of a median from the line


def fit_line(x: ArrayLike, y: ArrayLike) -> Line:
    """Fit a line to medians by least squares of relative errors.

    The medians are those of y > 0 at equal x >= 0. If all x are equal, y is in proportion to x, without a fixed part.
    """
    sizes, medians = _medians(x, y)
    if len(sizes) == 1:
        return Line(0.0, float(medians[0] / sizes[0])) if sizes[0] else Line(float(medians[0]), 0.0)
    # Non-negative least squares of two unknowns: the free solution, or the better one with one of them zero.
    ones, slopes = 1.0 / medians, sizes / medians
    both, *_ = np.linalg.lstsq(np.stack((ones, slopes), axis=1), np.ones(len(sizes)), rcond=None)
    if (both >= 0).all():
        return Line(float(both[0]), float(both[1]))
    single = [Line(float(ones.sum() / (ones @ ones)), 0.0), Line(0.0, float(slopes.sum() / (slopes @ slopes)))]
    return min(single, key=lambda line: float((((line(sizes) - medians) / medians) ** 2).sum()))


def fit_pace(examples: ArrayLike, seconds: ArrayLike, clients: Sequence[int] | None = None) -> Pace:
    """Fit the time of a mini-batch by its size, and each client's speed.

    Args:
        examples: of each mini-batch, [n].
        seconds: duration of each mini-batch, [n].
        clients: that computed them, 0..K-1, each at least once, [n]; None for one machine.
    """
    x, y = np.asarray(examples, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    client = np.zeros(len(x), dtype=np.int64) if clients is None else np.asarray(clients, dtype=np.int64)
    speeds = np.ones(int(client.max()) + 1)
    line = fit_line(x, y)
    for _ in range(_TURNS if clients is not None else 0):
        speeds = np.array([np.median((y / line(x))[client == k]) for k in range(len(speeds))])
        speeds /= np.median(speeds)
        line = fit_line(x, y / speeds[client])
    low, high = np.quantile(np.log(y / (line(x) * speeds[client])), (0.16, 0.84))
    sigma = float(high - low) / 2.0
    mean_over_median = math.exp(sigma**2 / 2.0)
    return Pace(
        line.fixed * mean_over_median,
        line.slope * mean_over_median,
        sigma,
        () if clients is None else tuple(speeds.tolist()),
        misfit(line, x, y / speeds[client]),
    )


def misfit(line: Line, x: ArrayLike, y: ArrayLike) -> float:
    """Return the largest relative distance of a median from a line; see `fit_line`."""
    sizes, medians = _medians(x, y)
    return float(np.abs(line(sizes) / medians - 1.0).max())


def _medians(x: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the different x, and the median of y at each."""
    sizes, values = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    return np.unique(sizes), np.array([np.median(values[sizes == size]) for size in np.unique(sizes)])
