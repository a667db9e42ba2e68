"""Accounting for data that is used a given number of times, by several tasks, perhaps at several nodes.

Jin, He, Dai, "Decentralized Differentially Private Without-Replacement SGD", Theorems 2 and 5: batches that do not
overlap are composed in parallel. One pass over a node's data is worth one release, however many batches it has, because
an example is in one of them only.

What the paper leaves out, and this ledger puts in:

- One-vs-all classification passes over the same data once for every class. An example is in one release of each task:
  c releases of a Gaussian are one of a sensitivity sqrt(c) times as large.
- Where nodes draw their data from one set, an example may be at several nodes, and is in a release of each of them.
- A batch of Algorithm 2 is protected by the noise of the next Global step only if the choice between Local and Global
  does not look at the data (`refusal` says so otherwise).

Everything is Gaussian and nothing is sampled, so the epsilon is exact for the worst case of disjoint batches: with m
releases of noise multiplier z, an example being replaced, that of one Gaussian with mu = 2 sqrt(m) / z.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from simfl.privacy.gaussian import gaussian_epsilon
from simfl.privacy.ledger import Ledger, Terms, View
from simfl.privacy.releases import ROUNDING, Promise, Releases, Tally


@dataclass
class PassReleases(Releases):
    """What every client released so far, with the batches used of each task.

    Attributes:
        tasks: c, number of tasks.
        used: batches used by each pair, client * tasks + task.
    """

    tasks: int = 1
    used: list[int] = field(default_factory=list)


class PassTally(Tally, PassReleases):
    """The releases that a tape has seen, with the batches used of each task; a promise's client is its pair.

    A node may keep a model of its own on which it takes steps without noise (`hold`). They are released, the tape hears
    (`count`), with the batch's end; what they give away the noise of the pair's next publication covers, if the
    conditions of Lemma 5 hold, which is the ledger's matter.
    """

    ledger: OnePassLedger

    def __init__(
        self,
        ledger: OnePassLedger,
        scales: Sequence[float],
        clipping_norm: float,
        rounds: bool = False,
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        super().__init__(ledger, scales, clipping_norm, rounds, now)
        self.tasks = ledger.tasks
        self.used = [0] * (len(ledger.sizes) * self.tasks)
        self.newest = [-1] * len(self.used)
        self._held: dict[int, Promise] = {}

    def hold(self, promise: Promise) -> None:
        """The node works on a batch whose result it keeps; it is counted when the tape hears that it is done."""
        if promise.client in self._held:
            client, task = divmod(promise.client, self.tasks)
            self.refuse(f"client {client} used a batch of task {task} that was not counted")
        promise.released = True
        self._held[promise.client] = promise
        self._check(promise, kept=True)

    def send(self, promise: Promise) -> None:
        """The node is done with a batch, or sends what it made of it."""
        if self._held.get(promise.client) is not promise:
            super().send(promise)
            return
        del self._held[promise.client]
        self.used[promise.client] += 1
        self.counts[promise.client // self.tasks] += promise.noise_scale > 0.0

    def count(self, promise: Promise) -> None:
        """Count a batch, and its release."""
        promise.released = True
        self.used[promise.client] += 1
        self.counts[promise.client // self.tasks] += 1
        self._check(promise)

    def _check(self, promise: Promise, kept: bool = False) -> None:
        client, scale = promise.client // self.tasks, promise.noise_scale
        too_little = scale < self._scales[client] * (1.0 - ROUNDING) and (scale or not kept)
        if promise.size != self._batch or promise.own_norm is not None or too_little:
            self.refuse(f"client {client} releases mini-batch {promise.draw} otherwise than passes over its data do")

    def look(self, client: int) -> None:
        """Decisions by losses are the ledger's matter, which certifies those by coin only."""

    def compare(self, own: Releases) -> Releases:
        """As of any tally; batches are compared, too."""
        used = own.used if isinstance(own, PassReleases) else []
        if own is not self and (len(used) != len(self.used) or any(map(int.__lt__, used, self.used))):
            self.refuse("the algorithm's own account says too little: it has fewer batches than the tape saw")
        return super().compare(own)


@dataclass(frozen=True)
class OnePassClaim:
    """What the paper says of a run.

    Attributes:
        epsilon, delta: what the noise is made for.
        calibration: of the noise, classic or analytic.
        budget: "per_task", one task of one client, as the paper has it, or "joint".
        visits: how often an example may be used.
    """

    epsilon: float
    delta: float
    calibration: str
    budget: str
    visits: int = 1


def uses(batches: NDArray[np.int64], sizes: NDArray[np.int64], batch_size: int) -> NDArray[np.int64]:
    """Return in how many releases an example of a client is after so many of its batches, at most.

    Where the size of a batch does not divide that of the data, a batch may straddle two passes and hold an example
    twice: two passes then count as one release of twice the sensitivity, which is as much as four.
    """
    passes = -(-batches * batch_size // sizes)
    straddles = (passes > 1) & (sizes % batch_size > 0)
    return np.where(straddles, passes + 2 * (passes // 2), passes)


def most_uses(sizes: NDArray[np.int64], batch_size: int, visits: int, copies: int) -> int:
    """Return in how many releases an example is at most when all batches are used, `copies` times over."""
    return copies * int(uses(visits * sizes // batch_size, sizes, batch_size).max())


class OnePassLedger(Ledger):
    """Accounts for disjoint batches: what counts is how often an example is used, by whom, and for how many tasks.

    Args:
        terms: what is promised; neighbors are those of replacing one example.
        sizes: examples per client, int [K].
        batch_size: B.
        level: noise multiplier of every release, std of the noise on the sum over the clipping norm.
        tasks: c, models trained on the same data.
        holders: the largest number of clients that hold one example.
        claim: what the paper says.
    """

    counts_holders: ClassVar[bool] = True
    counted_by = PassTally

    def __init__(
        self,
        terms: Terms,
        sizes: NDArray[np.int64],
        batch_size: int,
        level: float,
        tasks: int,
        holders: int,
        claim: OnePassClaim,
    ) -> None:
        super().__init__(terms, sizes, batch_size, "shuffle", [level] * len(sizes))
        self.level = level
        self.tasks = tasks
        self.holders = holders
        self.claim = claim

    def passes(self, releases: Releases) -> NDArray[np.int64]:
        """Return how many releases of each client an example of its own may be in, int [K]."""
        if not isinstance(releases, PassReleases):
            raise TypeError("releases: expected those of an algorithm that counts passes (PassReleases)")
        used = np.array(releases.used, dtype=np.int64).reshape(len(self.sizes), -1)
        return uses(used, self.sizes[:, None], self.batch_size).sum(axis=1)  # type: ignore[no-any-return]

    @property
    def most(self) -> int:
        """How many releases an example may be in when all data is used up."""
        return most_uses(self.sizes, self.batch_size, self.claim.visits, self.tasks * self.holders)

    def epsilon_of_passes(self, passes: int) -> float:
        """Return the exact epsilon of an example that is in so many releases."""
        if passes == 0:
            return 0.0
        if self.level == 0.0:
            return math.inf
        return gaussian_epsilon(self.delta, 2.0 * math.sqrt(passes) / self.level)

    def epsilon(self, releases: Releases, view: View | None = None) -> NDArray[np.float64]:
        """Return each client's epsilon, float [K]; NaN if not certified.

        An example that several clients may hold counts with the releases of those that made most.
        """
        if not self.certifies(releases):
            return np.full(len(self.sizes), math.nan)
        passes = self.passes(releases)
        if self.holders > 1:
            passes = np.full_like(passes, np.sort(passes)[-self.holders :].sum())
        found = {int(count): self.epsilon_of_passes(int(count)) for count in np.unique(passes)}
        return np.array([found[int(count)] for count in passes])

    def final_epsilon(self, releases: Releases, view: View | None = None) -> NDArray[np.float64]:
        """The same: there is nothing to tighten."""
        return self.epsilon(releases, view)

    def largest(self, releases: Releases) -> float:
        """Return the largest epsilon over clients."""
        return float(self.epsilon(releases).max())

    @property
    def statement(self) -> str:
        """One line: what the epsilon means, or why there is none, and what the paper claims."""
        claim = self.claim
        how = "parallel composition of disjoint batches" if claim.visits == 1 else f"{claim.visits} visits added up"
        whom = "for each task and client" if claim.budget == "per_task" else "for all tasks and clients together"
        claimed = (
            f"the noise is made for ({claim.epsilon:g}, {claim.delta:.6g}) {whom}, by {claim.calibration} calibration "
            f"and {how}"
        )
        if not self.certified:
            return f"{super().statement}; {claimed}"
        single = self.most // (self.tasks * self.holders)
        return (
            f"(epsilon, delta = {self.delta:.6g}) per example, neighbors by replacing one example, all that "
            f"was sent; exact for {self.tasks} task{'s' * (self.tasks > 1)} on the same data and an example at "
            f"{self.holders} client{'s' * (self.holders > 1)} at most, used {claim.visits} "
            f"time{'s' * (claim.visits > 1)}: one pass of disjoint batches is one release; "
            f"{self.epsilon_of_passes(self.most):.4g} in the end, {self.epsilon_of_passes(single):.4g} for one task "
            f"and client; {claimed}"
        )
