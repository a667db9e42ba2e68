"""Laws of a walk over clients, and what gradients that react to nothing reveal.

See `simfl.accounts.walks`. Laws of sums come from their generating functions, at points of a circle.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from simfl.privacy.gaussian import smallest_epsilon

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
#: Parts of a unit of loss; the largest loss; one more than the most gradients of u between two visits.
_FINE, _MOST_LOSS, _MOST_BETWEEN = 100, 32, 12
#: What a Fourier sum may misplace.
ERROR = 1e-8


def first_hits(w: Array, start: Array, ends: list[int], steps: int) -> Array:
    """Return the law of the first time >= 1 at each of `ends`, [steps + 1, ends]."""
    hits, now = np.zeros((steps + 1, len(ends))), start
    for t in range(1, steps + 1):
        now = now @ w
        hits[t], now[ends] = now[ends], 0.0
    return hits


def coefficient(steps: int, bins: int, function: Callable[[Complex], Complex]) -> Array:
    """Return the coefficient of x^steps of a function of 1, x, ..., x^steps, [bins]."""
    points = 2 * steps + 2
    radius, total = 10.0 ** (-10.0 / points), np.zeros(bins, np.complex128)
    for k in range(points // 2 + 1):
        x = radius * np.exp(-2j * math.pi * k / points)
        powers = x ** np.arange(steps + 1)
        total += (1.0 if k in (0, points // 2) else 2.0) * function(powers) / powers[-1]
    return np.maximum(0.0, np.fft.ifft(total).real / points)


def least_epsilon(delta: float, w: Array, steps: int, u: int, v: int, z: float) -> float:
    """Return epsilon of gradients that react to nothing, rounded down."""
    bins, starts = 2 * _MOST_LOSS * _FINE, (np.full(len(w), 1.0 / len(w)), np.eye(len(w))[v])
    laws, visits = np.zeros((2, steps + 1, bins)), [first_hits(w, start, [v], steps)[:, 0] for start in starts]
    for which, start in enumerate(starts):
        at = np.outer(start @ w, np.eye(_MOST_BETWEEN)[0])  # by client and gradients of u; more of these are dropped
        for length in range(1, steps + 1):
            if visits[which][length] > 0.0:
                _add_losses(laws[which, length], at[v] / visits[which][length], visits[which][length], length - 1, z)
            at[v] = 0.0
            at[u] = np.concatenate(([0.0], at[u, :-1]))
            at = w @ at
    first, again = np.fft.fft(laws[0]), np.fft.fft(laws[1])
    stays = 1.0 - np.cumsum(visits[1])
    law = coefficient(steps, bins, lambda x: np.asarray((x @ first) / (1.0 - x @ again) * (x @ stays)))
    loss = (np.arange(bins) - bins * (np.arange(bins) >= bins // 2)) / _FINE
    return smallest_epsilon(delta, lambda epsilon: float(law @ np.maximum(0.0, -np.expm1(epsilon - loss))) - ERROR)


def _add_losses(law: Array, shares: Array, weight: float, noises: int, z: float) -> None:
    """Add the losses of one visit that u reached k times with probability shares[k]."""
    k, std = np.arange(_MOST_BETWEEN), z * math.sqrt(noises)
    if noises == 0 or not shares.any():
        law[0] += weight * shares[0]
        return
    edges = np.linspace(-8.0 * std, 8.0 * std + float(np.flatnonzero(shares > 0.0)[-1]), 400)
    ratio = np.exp((edges[:, None] * k - 0.5 * k * k) / std**2) @ shares
    beyond = ndtr((edges[:, None] - k) / std) @ shares
    mass = np.append(np.diff(beyond), shares.sum() - beyond[-1])
    places = np.floor(np.minimum(np.log(ratio), _MOST_LOSS - 1.0) * _FINE).astype(np.int64)
    np.add.at(law, places, weight * mass)  # each cell at the loss of its left edge; what is below all is dropped
