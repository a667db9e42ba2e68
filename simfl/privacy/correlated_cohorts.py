"""Account for users under noise that is correlated over a server's releases.

These are DP-FTRL, BandMF and BLT. All of the server's releases are one Gaussian mechanism
(`simfl.privacy.strategies`). A user that was in m of at most T releases, b apart as the server's gate enforces, has
mu = sens(C) / z, the largest over all such participations: which releases they were does not enter. Runs that end early
are accounted for T releases, which show more.

The gate makes this true, so the count checks it: a user twice in a sum, too early, or in more releases than k, a weight
above 1, noise of another scale, or more than T releases end the account.

Usually no draw amplifies: later releases contain the noise of earlier ones, so none can be considered alone. The
exception are strategies of at most b bands with users in b groups that are drawn in turn (Choquette-Choo et al. 2023,
https://arxiv.org/abs/2306.08153). Row v of C x is made of x_(v - b + 1), ..., x_v, of which a user is in one at
most. With n one of its turns, rows n, ..., n + b - 1 are a block, and its blocks do not overlap. If the user is drawn,
it moves the block by at most |c| C, c the column of C, by an update that is known before the block begins. What others
add follows from released rows, their own draws, and data that neighbors share. So the user's ceil(T / b) blocks are
sampled Gaussian releases of noise z / |c|, at the group's rate.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from simfl.privacy.accounting import Accountant, Release
from simfl.privacy.cohorts import CohortLedger, CohortTally
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.privacy.in_time import Participation
from simfl.privacy.ledger import Composition
from simfl.privacy.releases import Promise, Releases, Tally
from simfl.privacy.strategies import Banded
from simfl.privacy.terms import View


class CorrelatedTally(CohortTally):
    """Counts the releases of each user, and checks the rules that their account needs."""

    ledger: CorrelatedCohortLedger

    def count_sum(self, terms: Sequence[tuple[float, Promise]], noise_scale: float) -> None:
        """Count one release of a sum."""
        plan, number = self.ledger.plan, self.cohorts
        gate = plan.gate
        assert gate is not None
        assert plan.releases is not None
        if not hasattr(self, "_last"):
            self._last: dict[int, int] = {}
        shares, clients = self.shares(terms), {plan.user_of(promise.client): promise.client for _, promise in terms}
        for user, client in clients.items():
            updates = shares[client]
            last = self._last.get(user)
            if updates > 1:
                self.refuse(f"user {user} is {updates} times in release {number}, and the noise is for once")
            elif last is not None and number - last < gate.separation:
                self.refuse(
                    f"user {user} is in releases {last} and {number}, and the noise is for users that are in releases "
                    f"at least {gate.separation} apart"
                )
            elif gate.at_most is not None and self.total(client) >= gate.at_most:
                self.refuse(f"user {user} is in more than {gate.at_most} releases, for which the noise was made")
            self._last[user] = number
        if number >= plan.releases:
            self.refuse(f"the server makes more than {plan.releases} releases, for which the noise was made")
        if any(abs(weight) > 1.0 for weight, _ in terms):
            self.refuse(f"release {number} has an update of weight above 1, and the noise is for at most 1")
        super().count_sum(terms, noise_scale)
        if self.others:
            self.refuse(f"the noise of release {number} is not the scenario's, and correlated noise is made for that")


class CorrelatedCohortLedger(CohortLedger):
    """Accounts for every user in releases whose noise is correlated, exactly.

    The arguments are those of `CohortLedger`; the plan has a strategy, a gate and a number of releases.
    """

    counted_by: ClassVar[type[Tally]] = CorrelatedTally
    _of_drawn: ClassVar[str] = ", noise correlated in bands of which a user is in one release each"

    def _unamplified(self, releases: Releases | None) -> str | None:
        """Return the reason why draws do not amplify."""
        if not self._in_blocks:
            return "noise is correlated over releases, so none can be considered alone"
        return super()._unamplified(releases)

    @property
    def _in_blocks(self) -> bool:
        """Whether a user is in at most one of the releases that share a row of C."""
        strategy, turns = self.plan.strategy, self.plan.turns
        return isinstance(strategy, Banded) and turns > 1 and len(strategy.coefficients) <= turns

    def _drawn_level(self, client: int, level: float | None = None) -> float:
        """Return the noise multiplier of a drawn user's block of releases."""
        assert self.plan.strategy is not None
        assert self.plan.releases is not None
        column = self.plan.strategy.sensitivity(self.plan.releases, Participation(1, 1))
        return super()._drawn_level(client, level) / column

    @property
    def _accountant(self) -> str:
        """Say what the account covers."""
        gate, made = self.plan.gate, self.plan.releases
        assert gate is not None
        most = "" if gate.at_most is None else f" and in at most {gate.at_most}"
        return (
            f"noise correlated over {made} releases, exact as one Gaussian mechanism for users at least "
            f"{gate.separation} releases apart{most}, as the server enforces"
        )

    def sensitivity(self, count: int) -> float:
        """Return sens(C) of a user in at most `count` of all planned releases."""
        plan, gate = self.plan, self.plan.gate
        assert plan.strategy is not None
        assert plan.releases is not None
        assert gate is not None
        return plan.strategy.sensitivity(plan.releases, Participation(gate.separation, count))

    def mu(self, count: int, level: float) -> float:
        """Return the change of all releases by one user, in standard deviations."""
        moved = self.sensitivity(count) * self.terms.moved
        return moved / level if level else math.inf if moved else 0.0

    def compositions(self, releases: Releases, view: View | None = None) -> list[Composition]:
        """Return the one Gaussian release to which all of a user's are equivalent."""
        if self.amplifies(releases):
            return super().compositions(releases, view)
        sensitivity = functools.cache(self.sensitivity)
        return [
            ((Release(level / sensitivity(count), 1.0, "none"), 1),) if (count := releases.total(user)) else ()
            for user, level in enumerate(self.levels)
        ]

    def _epsilons(self, releases: Releases, view: View | None, final: bool) -> NDArray[np.float64]:
        if not self.accounts_for(releases):
            return np.full(len(self.sizes), math.nan)
        if self.amplifies(releases):
            return super()._epsilons(releases, view, final)
        spent = functools.cache(lambda count, level: gaussian_epsilon(self.delta, self.mu(count, level)))
        return np.array([*map(spent, releases.totals(), self.levels)])

    def epsilon_after(self, client: int, count: int, accountant: Accountant, level: float | None = None) -> float:
        """Return a user's epsilon after it was in `count` of all planned releases."""
        return gaussian_epsilon(self.delta, self.mu(count, self.levels[client] if level is None else level))
