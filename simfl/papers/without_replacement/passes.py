"""Account for data that tasks and nodes use a known number of times.

Jin, He, Dai, "Decentralized Differentially Private Without-Replacement SGD", Theorems 2 and 5: batches that do not
overlap are composed in parallel. One pass over a node's data costs one release, however many batches it has, because
each example is in only one of them.

The ledger also accounts for what the paper leaves out:

- One-vs-all classification passes over the same data once for every class. An example is in one release of each task:
  c Gaussian releases cost as much as one whose sensitivity is sqrt(c) times as large.
- If nodes draw their data from one set, an example may be at several nodes, and is in a release of each of them.
- A batch of Algorithm 2 is protected by the noise of the next Global step only if the choice between Local and Global
  does not look at the data (`refusal` says so otherwise).

All noise is Gaussian and nothing is sampled, so the epsilon is exact for the worst case of disjoint batches. For m
releases with noise multiplier z, when one example is replaced, it is that of one Gaussian with mu = 2 sqrt(m) / z.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from simfl.privacy.accounting import Release
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.privacy.ledger import OUTSIDE, Composition, Ledger
from simfl.privacy.releases import ROUNDING, Promise, Releases, Tally
from simfl.privacy.shuffled import KnownUses, planned_uses
from simfl.privacy.terms import Terms, View


class PassTally(Tally):
    """Releases that a tape counts; a promise's client is a pair of node and task.

    A node may keep a model of its own on which it takes steps without noise (`hold`). Such a batch counts as released
    when it ends (`send`). The noise of the pair's next publication covers it if the conditions of Lemma 5 hold, which
    the ledger checks.
    """

    ledger: OnePassLedger

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._held: dict[int, Promise] = {}

    def hold(self, promise: Promise) -> None:
        """Note a batch whose result the node keeps; it is counted later."""
        if promise.client in self._held:
            client, task = divmod(promise.client, self.ledger.tasks)
            self.refuse(f"client {client} used a batch of task {task} that was not counted")
        promise.released = True
        self._held[promise.client] = promise
        self._check(promise, kept=True)

    def send(self, promise: Promise) -> None:
        """Count a batch that the node has finished or sent."""
        if self._held.get(promise.client) is not promise:
            super().send(promise)
            return
        del self._held[promise.client]
        self._pass(promise, self._batches[promise.client])  # the promise's size before it was used
        self.counts[promise.client // self.ledger.tasks] += promise.noise_scale > 0.0

    def count(self, promise: Promise) -> None:
        """Count a batch, and its release."""
        promise.released = True
        self._pass(promise, promise.size)
        self.counts[promise.client // self.ledger.tasks] += 1
        self._check(promise)

    def _check(self, promise: Promise, kept: bool = False) -> None:
        client, scale = promise.client // self.ledger.tasks, promise.noise_scale
        too_little = scale < self._scales[client] * (1.0 - ROUNDING) and (scale or not kept)
        if promise.size != self._batches[promise.client] or promise.own_norm is not None or too_little:
            self.refuse(f"client {client} releases mini-batch {promise.draw} otherwise than passes over its data do")

    def look(self, client: int) -> None:
        """Do nothing: the ledger certifies only decisions by coin, not by losses."""


@dataclass(frozen=True)
class OnePassClaim:
    """The paper's claim for a run.

    Attributes:
        epsilon, delta: the values that the noise is calibrated to.
        calibration: of the noise, classic or analytic.
        budget: "per_task" for one task of one client, as in the paper, or "joint" for all.
        visits: how often an example may be used.
    """

    epsilon: float
    delta: float
    calibration: str
    budget: str
    visits: int = 1


def most_uses(sizes: NDArray[np.int64], batch_size: int, visits: int, copies: int) -> int:
    """Return the largest number of releases of an example when all batches are used.

    A batch that spans the end of one visit and the start of the next may contain an example twice, which costs as much
    as four releases.
    """
    each = ((int(n), {batch_size: visits * int(n) // batch_size}) for n in np.unique(sizes))
    return copies * max(KnownUses(planned_uses(n, batches)).cost for n, batches in each)


class OnePassLedger(Ledger):
    """Accounts for disjoint batches by the uses of an example.

    Args:
        terms: what is promised; neighboring data sets differ by replacing one example.
        sizes: examples per client, int [K].
        batch_size: B.
        level: noise multiplier of every release, std of the noise on the sum over the clipping norm.
        tasks: c, models trained on the same data.
        holders: the largest number of clients that hold one example.
        claim: the paper's claim.
    """

    counts_holders: ClassVar[bool] = True
    closed_form: ClassVar[bool] = True
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
        self.tasks = tasks
        super().__init__(terms, sizes, batch_size, "shuffle", [level] * len(sizes))
        self.level = level
        self.holders = holders
        self.claim = claim

    def passes(self, releases: Releases) -> NDArray[np.int64]:
        """Return the largest number of releases of one example, by client; int [K]."""
        if releases.passes is None:
            raise TypeError("releases: expected those of an algorithm that counts passes, found none counted")
        return np.array([sum(task.cost for task in tasks) for tasks in self.uses(releases)], dtype=np.int64)

    @property
    def most(self) -> int:
        """The largest number of releases of an example when all data is used up."""
        return most_uses(self.sizes, self.batch_size, self.claim.visits, self.tasks * self.holders)

    def epsilon_of_passes(self, passes: int) -> float:
        """Return the exact epsilon of an example in `passes` releases."""
        if passes == 0:
            return 0.0
        if self.level == 0.0:
            return math.inf
        return gaussian_epsilon(self.delta, 2.0 * math.sqrt(passes) / self.level)

    def epsilon(self, releases: Releases, view: View | None = None) -> NDArray[np.float64]:
        """Return each client's epsilon, float [K]; NaN if not certified.

        If several clients may hold an example, the releases of the clients that made most are added up.
        """
        if not self.accounts_for(releases):
            return np.full(len(self.sizes), math.nan)
        passes = self._of_holders(releases)
        epsilons = {int(count): self.epsilon_of_passes(int(count)) for count in np.unique(passes)}
        return self._of_honest(np.array([epsilons[int(count)] for count in passes]))

    def _of_holders(self, releases: Releases) -> NDArray[np.int64]:
        passes = self.passes(releases)
        if self.holders > 1:
            passes = np.full_like(passes, np.sort(passes)[-self.holders :].sum())
        return passes

    def compositions(self, releases: Releases, view: View | None = None) -> list[Composition]:
        """Return the releases of one example of each client, over all its holders."""
        level = Release(self.level, 1.0, "none")
        return [((level, int(count)),) if count else () for count in self._of_holders(releases)]

    def final_epsilon(self, releases: Releases, view: View | None = None) -> NDArray[np.float64]:
        """Return `epsilon`: there is nothing to tighten."""
        return self.epsilon(releases, view)

    def _stated(self, sizes: set[int]) -> str:
        """Return one line that says what the epsilon means and what the paper claims."""
        claim = self.claim
        how = "parallel composition of disjoint batches" if claim.visits == 1 else f"{claim.visits} visits added up"
        whom = "for each task and client" if claim.budget == "per_task" else "for all tasks and clients together"
        claimed = (
            f"the noise is made for ({claim.epsilon:g}, {claim.delta:.6g}) {whom}, by {claim.calibration} calibration "
            f"and {how}"
        )
        if not self.accounted:
            return f"{super()._stated(sizes)}; {claimed}"
        single = self.most // (self.tasks * self.holders)
        return (
            f"(epsilon, delta = {self.delta:.6g}) per example, neighbors by replacing one example, all that "
            f"was sent; exact for {self.tasks} task{'s' * (self.tasks > 1)} on the same data and an example at "
            f"{self.holders} client{'s' * (self.holders > 1)} at most, used {claim.visits} "
            f"time{'s' * (claim.visits > 1)}: one pass of disjoint batches is one release; "
            f"{self.epsilon_of_passes(self.most):.4g} in the end, {self.epsilon_of_passes(single):.4g} for one task "
            f"and client; {claimed}; {OUTSIDE}"
        )
