"""Fits of a scenario's times to measurements: lines, speeds and jitter.

    seconds = (seconds_per_batch + b * seconds_per_example) * speed * jitter,  jitter log-normal with mean 1

A line is fitted to the medians of equal sizes, by least squares of relative errors: a call of a millisecond is to be
right to a percent, and so is one of a second. What a machine does beside disturbs the medians little; the width of the
middle two thirds of the logarithms is jitter's sigma, and half its square is what the mean lies above the median.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: A fit is not to be trusted whose line misses a median by a larger share than this.
MISFIT = 0.3
#: One machine without other work has less jitter than this: the standard deviation of the logarithm of compute times.
JITTER = 0.5
#: Rounds in which speeds and the line they are relative to are fitted in turn.
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
    """How fast computing goes.

    Attributes:
        seconds_per_batch, seconds_per_example: at speed 1.
        sigma: of the logarithm of jitter.
        speeds: factor on the time of each client, of median 1; empty for a single machine.
        error: the largest relative distance of a median from the line.
    """

    seconds_per_batch: float
    seconds_per_example: float
    sigma: float
    speeds: tuple[float, ...] = ()
    error: float = 0.0


def fit_line(x: ArrayLike, y: ArrayLike) -> Line:
    """Fit a line to medians by least squares of relative errors.

    Where all x are equal nothing is fixed: y is in proportion to x.

    Args:
        x: sizes, >= 0, [n].
        y: seconds, > 0, [n].
    """
    sizes, medians = _medians(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64))
    if len(sizes) == 1:
        return Line(0.0, float(medians[0] / sizes[0])) if sizes[0] else Line(float(medians[0]), 0.0)
    # Non-negative least squares of two unknowns: the free solution, or the better one with one of them zero.
    ones, slopes = 1.0 / medians, sizes / medians
    both, *_ = np.linalg.lstsq(np.stack((ones, slopes), axis=1), np.ones(len(sizes)), rcond=None)
    if (both >= 0).all():
        return Line(float(both[0]), float(both[1]))
    alone = [Line(float(ones.sum() / (ones @ ones)), 0.0), Line(0.0, float(slopes.sum() / (slopes @ slopes)))]
    return min(alone, key=lambda line: float((((line(sizes) - medians) / medians) ** 2).sum()))


def fit_pace(examples: ArrayLike, seconds: ArrayLike, clients: Sequence[int] | None = None) -> Pace:
    """Fit the pace of a mini-batch by its size, and each client's speed.

    Args:
        examples: of each mini-batch, [n].
        seconds: that it took, [n].
        clients: who computed it, 0..K-1, each at least once, [n]; None: one machine.
    """
    x, y = np.asarray(examples, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    whose = np.zeros(len(x), dtype=np.int64) if clients is None else np.asarray(clients, dtype=np.int64)
    speeds = np.ones(int(whose.max()) + 1)
    line = fit_line(x, y)
    for _ in range(_TURNS if clients is not None else 0):
        speeds = np.array([np.median((y / line(x))[whose == k]) for k in range(len(speeds))])
        speeds /= np.median(speeds)
        line = fit_line(x, y / speeds[whose])
    logs = np.log(y / (line(x) * speeds[whose]))
    low, high = np.quantile(logs, (0.16, 0.84))
    sigma = float(high - low) / 2.0
    above = math.exp(sigma**2 / 2.0)
    return Pace(
        line.fixed * above,
        line.slope * above,
        sigma,
        () if clients is None else tuple(speeds.tolist()),
        misfit(line, x, y / speeds[whose]),
    )


def misfit(line: Line, x: ArrayLike, y: ArrayLike) -> float:
    """Return the largest relative distance of a median from a line; see `fit_line`."""
    sizes, medians = _medians(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64))
    return float(np.abs(line(sizes) / medians - 1.0).max())


def _medians(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    sizes = np.unique(x)
    return sizes, np.array([np.median(y[x == size]) for size in sizes])
