"""Noise that is correlated over a server's releases (matrix factorization).

Release n = 0, 1, ... of a server is a sum of users' updates, x_n, clipped to C each, plus z C zeta_n. The noises zeta_n
are linear in independent standard normal vectors xi_v. A strategy C turns the sums into C x, and each zeta_n is a
function of (xi_v) such that all releases follow from C x + z C xi. One user moves each x_n that it is in by at most C,
so the releases are one Gaussian mechanism of mu = sens(C) / z, with

    sens(C)^2 = max over allowed participations P of sum_(i, j in P) |(C^T C)_ij|.

That is exact if C^T C has no negative entry, as for all strategies here. It holds although updates depend on earlier
releases, because row v of C x is complete when xi_v is first used, and the noise is Gaussian (Denisov et al. 2022,
Theorem 2.1, https://arxiv.org/abs/2202.08312). P is what the server's gate allows: releases at least b apart, and at
most k of T (`simfl.privacy.in_time.Participation`).

- `Tree`: rows of C are the nodes of binary trees; x_0 + ... + x_n has the noise of at most log2(n + 1) + 1 nodes.
  Kairouz, McMahan, Song, Thakkar, Thakurta, Xu 2021, "Practical and private (deep) learning without sampling or
  shuffling" (DP-FTRL), https://arxiv.org/abs/2103.00039; Honaker 2015, "Efficient use of differentially private binary
  trees".
- `Banded`: C is a banded Toeplitz matrix. Choquette-Choo et al. 2023, https://arxiv.org/abs/2306.08153.
- `Blt`: C is a Toeplitz matrix of sums of geometric sequences. McMahan et al. 2024, https://arxiv.org/abs/2408.08868.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.privacy.in_time import GRID, Participation, blt_coefficients, optimized, toeplitz_sensitivity

#: Returns a new standard normal vector, to be used in one combination.
Fresh = Callable[[], Any]
#: Returns the sum of coefficients times vectors, which may be used again.
Combine = Callable[..., Any]


class Strategy(ABC):
    """A factorization of prefix sums, and the noise that follows from it."""

    @abstractmethod
    def noises(self, fresh: Fresh, combine: Combine) -> Iterator[Any]:
        """Yield zeta_0, zeta_1, ..., vectors of any kind."""

    @abstractmethod
    def sensitivity(self, releases: int, takes: Participation) -> float:
        """Return sens(C) of the first releases, for updates of norm at most 1."""

    def matrix(self, releases: int) -> NDArray[np.float64]:
        """Return zeta_n as combinations of (xi_v), [releases, normals]."""
        size, made = 2 * releases + 1, [0]

        def fresh() -> NDArray[np.float64]:
            made[0] += 1
            unit: NDArray[np.float64] = np.eye(1, size, made[0] - 1)[0]
            return unit

        def combine(*terms: tuple[float, NDArray[np.float64]]) -> NDArray[np.float64]:
            return np.sum([coefficient * vector for coefficient, vector in terms], axis=0)  # type: ignore[no-any-return]

        noises = self.noises(fresh, combine)
        rows: NDArray[np.float64] = np.array([next(noises) for _ in range(releases)])[:, : made[0]]
        return rows

    @abstractmethod
    def deviations(self, releases: int) -> tuple[float, ...]:
        """Return the standard deviation of each zeta_n, per coordinate."""

    @abstractmethod
    def errors(self, releases: int) -> NDArray[np.float64]:
        """Return the standard deviation of each zeta_0 + ... + zeta_n, per coordinate."""

    @property
    @abstractmethod
    def memory(self) -> int | None:
        """The vectors that a server keeps; None for log2 of the releases."""


@dataclass(frozen=True)
class Tree(Strategy):
    """Binary trees over the releases: each node has noise of its own.

    Node v of height h covers 2^h releases, and has the row sum_(n in v) x_n of C. A prefix sum is made of the complete
    nodes of its binary expansion. `efficient` estimates the sum over a node also from the nodes below it,

        y_v = a xi_v + (1 - a) (y_left + y_right),   a = 2 s / (1 + 2 s),   s the variance of y_left,

    of variance 1 / (2 - 2^-h) in place of 1. Otherwise right children are never used, and not counted.

    Attributes:
        restart: releases after which a new tree begins; None: one tree. Old trees keep their noise in the sum.
        efficient: whether nodes are estimated from those below, too.
    """

    restart: int | None = None
    efficient: bool = True

    def noises(self, fresh: Fresh, combine: Combine) -> Iterator[Any]:
        """Yield the differences of the prefix sums' noises."""
        while True:
            stack: list[Any] = []  # y of the complete nodes of the prefix, highest first
            number = 0
            while self.restart is None or number < self.restart:
                number += 1
                height = (number & -number).bit_length() - 1
                replaced = [stack.pop() for _ in range(height)]  # lowest first
                if self.efficient:
                    top, variance = combine((1.0, fresh())), 1.0
                    for left in replaced:
                        share = 2.0 * variance / (1.0 + 2.0 * variance)
                        variance = share
                        top = combine((1.0 - share, left), (1.0 - share, top), (share, fresh()))
                else:
                    top = combine((1.0, fresh()))
                stack.append(top)
                yield combine((1.0, top), *((-1.0, left) for left in replaced)) if replaced else top

    def deviations(self, releases: int) -> tuple[float, ...]:
        """Return them by the number of nodes that a release completes.

        With a node's y, its left and right part and the difference D to the nodes that it replaces,
        D = a (xi - y_left - y_right) + D_right, and cov(D, y) = (1 - a) cov(D_right, y_right).
        """
        squares, variance, shared = [1.0], 1.0, 1.0
        for _ in range(releases.bit_length()):
            share = 2.0 * variance / (1.0 + 2.0 * variance)
            added = share**2 * (1.0 + 2.0 * variance) - 2.0 * share * shared if self.efficient else 1.0
            squares.append(squares[-1] + added)
            variance, shared = share, (1.0 - share) * shared
        span = self.restart or releases
        numbers = (n % span + 1 for n in range(releases))
        return tuple(float(squares[(number & -number).bit_length() - 1] ** 0.5) for number in numbers)

    def errors(self, releases: int) -> NDArray[np.float64]:
        """Return the roots of the sums over nodes of the prefixes' binary expansions."""
        span = self.restart or releases
        heights = np.arange(releases.bit_length())
        each = 1.0 / (2.0 - 0.5**heights) if self.efficient else np.ones(len(heights))

        def nodes(size: NDArray[np.int64]) -> NDArray[np.float64]:
            summed: NDArray[np.float64] = ((size[:, None] >> heights & 1) * each).sum(axis=1)
            return summed

        sizes = np.arange(1, releases + 1)
        made: NDArray[np.float64] = np.sqrt(sizes // span * nodes(np.array([span])) + nodes(sizes % span))
        return made

    @property
    def memory(self) -> int | None:
        """None."""
        return None

    def sensitivity(self, releases: int, takes: Participation) -> float:
        """Return the root of the largest sum over nodes of (participations in it)^2."""
        most = min(takes.times, -(-releases // takes.separation))
        if releases == 0 or most == 0:
            return 0.0
        return float(np.sqrt(self._most(releases, takes.separation)[: most + 1].max()))

    def blocks(self, releases: int) -> list[int]:
        """Return the heights of the trees' highest complete nodes, in order of time."""
        span = self.restart or releases
        spans = [span] * (releases // span) + [releases % span] * (releases % span > 0)
        return [height for size in spans for height in range(size.bit_length() - 1, -1, -1) if size >> height & 1]

    @functools.lru_cache(maxsize=8)  # noqa: B019
    def _most(self, releases: int, apart: int) -> NDArray[np.float64]:
        """Return the largest sum of squares by the exact number of participations."""
        blocks = self.blocks(releases)
        if _work(max(blocks), apart) + len(blocks) * apart**2 * (releases / apart) ** 2 > MOST_WORK:
            return self._bound(releases, apart, blocks)
        limit = -(-releases // apart)
        tables = _tables(max(blocks), apart, self.efficient)
        # best[c, s]: c participations so far, the last one at least s releases ago.
        best = np.full((limit + 1, apart), -np.inf)
        best[0] = 0.0
        for height in blocks:
            table, size = tables[height], 1 << height
            own = np.arange(len(table), dtype=float) ** 2
            later = np.minimum(np.arange(apart) - size, apart - 1)
            following = best[:, np.maximum(later, 0)].copy()  # nobody in this block
            for count in range(1, len(table)):
                ends = table[count] + own[count]  # [front, back]
                before = best[: limit + 1 - count]  # [c, slack before]; the first may be at apart - 1 - slack
                after = (before[:, :, None] + ends[::-1][None]).max(axis=1)
                following[count : count + len(after)] = np.maximum(following[count : count + len(after)], after)
            best = following
        most: NDArray[np.float64] = best[:, 0]
        return most

    def _bound(self, releases: int, apart: int, blocks: list[int]) -> NDArray[np.float64]:
        """Return an upper bound: c participations, of which a node has m at most."""
        counts = np.arange(-(-releases // apart) + 1, dtype=float)
        levels = [np.minimum(counts, -(-(1 << height) // apart)) for height in range(max(blocks) + 1)]
        bound: NDArray[np.float64] = counts * np.sum(levels, axis=0)  # sum of squares <= largest * sum
        return bound


#: Number of steps of the exact search above which sens(C) of trees is bounded.
MOST_WORK = 1e9


def _work(height: int, apart: int) -> float:
    return max(1.0, 2.0**height / apart) ** 2 * apart**3 / 4.0


@functools.lru_cache(maxsize=8)
def _tables(height: int, apart: int, efficient: bool) -> tuple[NDArray[np.float64], ...]:
    """Return the largest sums of squares below a node, by height.

    Each is [count, front, back]. The first participation is at least `front` releases after the node's begin, the last
    one at least `back` before its end; both are at most apart - 1. The node itself is left out; if not `efficient`, so
    are all right children.
    """
    table = np.full((2, apart, apart), -np.inf)
    table[1, 0, 0] = 0.0
    tables = [table]
    for size in (1 << h for h in range(height)):
        own = np.arange(len(table), dtype=float) ** 2
        left, right = table + own[:, None, None], table + efficient * own[:, None, None]
        made = np.full((-(-2 * size // apart) + 1, apart, apart), -np.inf)
        shift = np.maximum(np.arange(apart) - size, 0)
        counts = min(len(table), len(made))
        made[:counts] = np.maximum(left[:counts][:, :, shift], right[:counts][:, shift])
        for one in range(1, len(table)):
            for other in range(1, min(len(table), len(made) - one)):
                # the left one ends x releases before the middle, the right one begins apart - 1 - x after it
                joint, flipped = left[one], right[other][::-1]
                for x in range(apart):
                    np.maximum(made[one + other], joint[:, x, None] + flipped[x][None], out=made[one + other])
        table = made
        tables.append(table)
    return tuple(tables)


@dataclass(frozen=True)
class Banded(Strategy):
    """A Toeplitz matrix C of coefficients c_0 = 1, c_1, ... >= 0 that do not increase.

    zeta_n = xi_n - sum_i c_i zeta_(n - i). With b >= the number of coefficients, the columns of a user's participations
    do not overlap.
    """

    coefficients: tuple[float, ...]

    def noises(self, fresh: Fresh, combine: Combine) -> Iterator[Any]:
        """Yield C^-1 xi, row by row."""
        last: list[Any] = []
        while True:
            made = combine(*((-c, v) for c, v in zip(self.coefficients[1:], last, strict=False)), (1.0, fresh()))
            last = [made, *last][: len(self.coefficients) - 1]
            yield made

    def deviations(self, releases: int) -> tuple[float, ...]:
        """Return the norms of the rows of C^-1."""
        return _norms_of_inverse(np.array(self.coefficients), releases)

    def errors(self, releases: int) -> NDArray[np.float64]:
        """Return the norms of the rows of the prefix sums of C^-1."""
        return _norms_of_prefixes(np.array(self.coefficients), releases)

    @property
    def memory(self) -> int | None:
        """The number of bands after the first."""
        return len(self.coefficients) - 1

    def sensitivity(self, releases: int, takes: Participation) -> float:
        """Return sens(C); see `toeplitz_sensitivity`."""
        coefficients = np.array(self.coefficients[:releases])
        return toeplitz_sensitivity(np.pad(coefficients, (0, releases - len(coefficients))), takes)


@dataclass(frozen=True)
class Blt(Strategy):
    """A Toeplitz matrix C with c_0 = 1 and c_t = sum_j weight_j decay_j^(t - 1).

    zeta_n = xi_n - sum_j weight_j B_j(n), where B_j(n + 1) = decay_j B_j(n) + zeta_n.
    """

    decays: tuple[float, ...]
    weights: tuple[float, ...]

    def noises(self, fresh: Fresh, combine: Combine) -> Iterator[Any]:
        """Yield C^-1 xi, row by row."""
        buffers: list[Any] = []
        while True:
            made = combine(*((-w, buffer) for w, buffer in zip(self.weights, buffers, strict=False)), (1.0, fresh()))
            if buffers:
                buffers = [combine((d, b), (1.0, made)) for d, b in zip(self.decays, buffers, strict=True)]
            else:
                buffers = [made] * len(self.decays)
            yield made

    def deviations(self, releases: int) -> tuple[float, ...]:
        """Return the norms of the rows of C^-1."""
        return _norms_of_inverse(self.coefficients(releases), releases)

    def errors(self, releases: int) -> NDArray[np.float64]:
        """Return the norms of the rows of the prefix sums of C^-1."""
        return _norms_of_prefixes(self.coefficients(releases), releases)

    @property
    def memory(self) -> int | None:
        """The number of sequences."""
        return len(self.decays)

    def coefficients(self, count: int) -> NDArray[np.float64]:
        """Return c_0, ..., c_(count - 1)."""
        return blt_coefficients(self.decays, self.weights, count)

    def sensitivity(self, releases: int, takes: Participation) -> float:
        """Return sens(C); see `toeplitz_sensitivity`."""
        return toeplitz_sensitivity(self.coefficients(releases), takes)


def _norms_of_inverse(coefficients: NDArray[np.float64], releases: int) -> tuple[float, ...]:
    """Return the norms of the rows of the inverse of a Toeplitz matrix."""
    from scipy.signal import lfilter

    row = lfilter([1.0], coefficients, np.eye(1, releases)[0])
    return tuple(np.sqrt(np.cumsum(np.square(row))).tolist())


def _norms_of_prefixes(coefficients: NDArray[np.float64], releases: int) -> NDArray[np.float64]:
    """Return the norms of the rows of A C^-1, A the lower triangle of ones."""
    from scipy.signal import lfilter

    row = np.cumsum(lfilter([1.0], coefficients, np.eye(1, releases)[0]))
    norms: NDArray[np.float64] = np.sqrt(np.cumsum(np.square(row)))
    return norms


def square_root(bands: int) -> Banded:
    """Return the first coefficients of 1 / sqrt(1 - x): 1, 1/2, 3/8, ..."""
    made = np.cumprod([1.0, *((2.0 * i - 1.0) / (2.0 * i) for i in range(1, bands))])
    return Banded(_on_grid(made, GRID))


def banded(bands: int, releases: int) -> Banded:
    """Return the matrix of least mean squared error of prefix sums, by jax_privacy."""
    made = np.array(optimized("banded", bands, releases, Participation(1, 1))[0])
    return Banded(_on_grid(made / made[0], GRID))


def blt(buffers: int, releases: int, takes: Participation) -> Blt:
    """Return the BLT of least maximal error of prefix sums, by jax_privacy."""
    return Blt(*(_on_grid(np.array(one), GRID / 16) for one in optimized("blt", buffers, releases, takes)))


def _on_grid(values: NDArray[Any], grid: float) -> tuple[float, ...]:
    """Round, so that float32 is exact and an optimizer's last bits have no effect."""
    rounded: list[float] = (np.round(values / grid) * grid).tolist()
    return tuple(rounded)
