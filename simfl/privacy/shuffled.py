"""How often an example is in the releases of shuffled data.

A client's shuffled data is a stream of epochs, each a new order of its n examples; a release takes an interval of it
(`simfl.tape.draws`). Orders are not secret, so any example may be anywhere in any epoch. It is in one release of every
epoch that some release touches, and it may be in a release that covers several epochs several times. An example that is
m times in a release changes it m times as much. With Gaussian noise this costs exactly as much as m^2 releases, with a
pure mechanism m times its epsilon.

A lost batch leaves a gap, so few releases may touch many epochs: the account depends on the positions of the releases
in the stream, not on their number. Released intervals are disjoint. So at most one release reaches from an epoch into
the next one, and an epoch inside of a release is in no other release.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class Uses(Protocol):
    """The most releases that an example is in, and how often it is in each."""

    @property
    def cost(self) -> int:
        """The largest sum over releases of m^2, for an example m times in a release."""

    def copies(self, additive: bool = False) -> Mapping[int, int]:
        """Return the worst case: copies m in a release -> number of such releases.

        `additive`: for releases whose epsilon is m times that of one copy, rather than for Gaussian noise.
        """


@dataclass(frozen=True)
class KnownUses:
    """Known uses: copies in a release -> number of such releases."""

    known: Mapping[int, int]

    @property
    def cost(self) -> int:
        """The sum over releases of m^2."""
        return sum(count * copies**2 for copies, count in self.known.items())

    def copies(self, additive: bool = False) -> Mapping[int, int]:
        """Return the known uses."""
        return self.known


class Passes:
    """The epochs that the releases of a client with n = `examples` have touched."""

    __slots__ = ("_best", "_epochs", "_short", "_since", "_starts", "_stops", "examples")

    def __init__(self, examples: int) -> None:
        self.examples = examples
        self._starts: list[int] = []  # of the released intervals of the stream, in order; adjacent ones are joined
        self._stops: list[int] = []
        self._epochs: list[int] = []  # touched ones, in order
        self._since: list[int] = []  # the first epoch of the release that enters this one; itself if none enters it
        self._short: list[bool] = []  # whether a release that touches at most two epochs touches it
        self._best = [0]  # the largest cost of the first i epochs, as far as computed

    def add(self, start: int, size: int) -> bool:
        """Add a release of [start, start + size); false if it overlaps an earlier one."""
        if size < 0:
            raise ValueError(f"size: expected the number of examples of a release, found {size}")
        if size == 0:
            return True
        stop, starts, stops = start + size, self._starts, self._stops
        if stops and start == stops[-1] and self._short[-1]:  # the hot path: the next release of the same pass
            end = (self._epochs[-1] + 1) * self.examples
            if start >= end - self.examples and stop <= end:
                stops[-1] = stop
                return True
        at = len(stops) if not stops or start >= stops[-1] else bisect_right(starts, start)
        if (at and stops[at - 1] > start) or (at < len(starts) and starts[at] < stop):
            return False
        if at and stops[at - 1] == start:
            stops[at - 1] = stop
            if at < len(starts) and starts[at] == stop:
                stops[at - 1] = stops.pop(at)
                starts.pop(at)
        elif at < len(starts) and starts[at] == stop:
            starts[at] = start
        else:
            starts.insert(at, start)
            stops.insert(at, stop)
        first, last = start // self.examples, (stop - 1) // self.examples
        short = last - first < 2
        self._touch(first, first, short)
        for epoch in range(first + 1, last + 1):
            self._touch(epoch, first, short)
        return True

    def _touch(self, epoch: int, since: int, short: bool) -> None:
        epochs = self._epochs
        at = len(epochs) if not epochs or epoch > epochs[-1] else bisect_left(epochs, epoch)
        if at == len(epochs) or epochs[at] != epoch:
            epochs.insert(at, epoch)
            self._since.insert(at, since)
            self._short.insert(at, short)
        else:
            self._short[at] |= short
            if since >= self._since[at]:
                return
            self._since[at] = since
        del self._best[at + 1 :]

    def _options(self, at: int) -> list[int]:
        """Return the relevant numbers of epochs in which one release may hold an example.

        All that the release has touched so far, or all but the first, which may count with the previous release.
        """
        reach = self._epochs[at] - self._since[at] + 1
        return [1] if reach == 1 else [reach] if reach == 2 else [reach, reach - 1]

    @property
    def cost(self) -> int:
        """The largest sum over releases of m^2, by dynamic programming along the epochs.

        best(p) = max over m of best(p - m) + m^2, where one release touches the epochs p - m + 1 to p, or m = 1.
        """
        best = self._best
        for at in range(len(best) - 1, len(self._epochs)):
            longest = max(best[at + 1 - m] + m * m for m in self._options(at))
            best.append(max(longest, best[at] + 1))
        return best[-1]

    def copies(self, additive: bool = False) -> Mapping[int, int]:
        """Return the worst case: copies in a release -> number of such releases.

        For additive epsilons the largest sum of squares need not be the worst: (3, 1) is not worse than (2, 2). But
        one release of 2 epsilon is worse than two of epsilon. So among releases that cover at most two epochs, the
        largest possible number of pairs is the worst case. Longer releases are all counted in full, in addition.
        """
        longest = max((self._options(at)[0] for at in range(len(self._epochs))), default=1)
        if additive and longest > 2:
            return self._without_long()
        uses: Counter[int] = Counter()
        at, left = len(self._epochs), self.cost
        while at:
            copies = next((m for m in self._options(at - 1) if left == self._best[at - m] + m * m), 1)
            left -= copies * copies
            uses[copies] += 1
            at -= copies
        return uses

    def _without_long(self) -> Mapping[int, int]:
        last = dict(zip(self._since, self._epochs, strict=True))
        long = {first: epoch for first, epoch in last.items() if epoch - first > 1}
        rest = Passes(self.examples)
        for epoch, since, short in zip(self._epochs, self._since, self._short, strict=True):
            if short:
                rest._touch(epoch, epoch if since in long and since < epoch else since, short)
        return Counter(rest.copies()) + Counter(epoch - first + 1 for first, epoch in long.items())


def planned_uses(examples: int, batches: Mapping[int, int], additive: bool = False) -> Mapping[int, int]:
    """Return the worst case of batches without gaps, in any order.

    ceil(total / n) epochs are touched. Batches of one size s <= n divide them into chains of s / gcd(n, s) epochs; in a
    chain a batch crosses every border. Otherwise a batch of s examples counts as touching as many epochs as it can,
    floor((s - 2) / n) + 2, until no epochs are left: this is the most expensive distribution of the epochs. `examples`
    is n, `batches` is size -> number, `additive` is as in `Uses.copies`.
    """
    n, sizes = examples, {size: count for size, count in batches.items() if size > 0 and count > 0}
    left = -(-sum(size * count for size, count in sizes.items()) // n)
    uses: Counter[int] = Counter()
    only = next(iter(sizes)) if len(sizes) == 1 else 0  # the size of all batches, if it is the same
    if 0 < only <= n:
        chain = only // math.gcd(n, only)
        pairs = (left // chain) * (chain // 2) + left % chain // 2
        return +Counter({1: left - 2 * pairs, 2: pairs})
    most = {size: (size - 2) // n + 2 if size > 1 else 1 for size in sizes}
    if only and only % n == 0:
        most = {only: only // n}
    if additive:  # as in `Passes.copies`: long ones in full, in addition
        for size in [size for size in sizes if most[size] > 2]:
            uses[most[size]] += sizes.pop(size)
        left = min(left, sum(most[size] * count for size, count in sizes.items()))
    for size in sorted(sizes, reverse=True):
        full = min(sizes[size], left // most[size])
        uses[most[size]] += full
        left -= full * most[size]
        if full < sizes[size]:
            uses[left] += left > 0
            left = 0
    return +uses
