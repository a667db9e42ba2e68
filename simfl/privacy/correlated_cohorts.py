"""Account for users of a server whose noise is correlated over its releases.

Such noise is that of DP-FTRL (trees), BandMF and BLT.

All of the server's releases are one Gaussian mechanism (`simfl.privacy.strategies`). A user that was in m of at most T
releases, b apart as the server's gate enforces, has mu = sens(C) / z, the largest over all such participations: which
releases they were does not enter. Runs that end early are accounted for T releases, which show more.

The gate makes this true, so the count checks it: a user twice in a sum, too early, or in more releases than k, a weight
above 1, noise of another scale, or more than T releases end the account.

No draw amplifies: later releases contain the noise of earlier ones, so none can be considered alone.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
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
        for user, updates in Counter(promise.client for _, promise in terms).items():
            last = self._last.get(user)
            if updates > 1:
                self.refuse(f"user {user} is {updates} times in release {number}, and the noise is for once")
            elif last is not None and number - last < gate.separation:
                self.refuse(
                    f"user {user} is in releases {last} and {number}, and the noise is for users that are in releases "
                    f"at least {gate.separation} apart"
                )
            elif gate.at_most is not None and self.total(user) >= gate.at_most:
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

    def _unamplified(self, releases: Releases | None) -> str | None:
        """Return the reason why draws do not amplify."""
        return "noise is correlated over releases, so none can be considered alone"

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
        moved = self.sensitivity(count) * (1.0 if self.terms.neighbors == "add_or_remove" else 2.0)
        return moved / level if level else math.inf if moved else 0.0

    def compositions(self, releases: Releases, view: View | None = None) -> list[Composition]:
        """Return the one Gaussian release to which all of a user's are equivalent."""
        sensitivity = functools.cache(self.sensitivity)
        return [
            ((Release(level / sensitivity(count), 1.0, "none"), 1),) if (count := releases.total(user)) else ()
            for user, level in enumerate(self.levels)
        ]

    def _epsilons(self, releases: Releases, view: View | None, final: bool) -> NDArray[np.float64]:
        if not self.accounts_for(releases):
            return np.full(len(self.sizes), math.nan)
        spent = functools.cache(lambda count, level: gaussian_epsilon(self.delta, self.mu(count, level)))
        return np.array([spent(releases.total(user), level) for user, level in enumerate(self.levels)])

    def epsilon_after(self, client: int, count: int, accountant: Accountant, level: float | None = None) -> float:
        """Return a user's epsilon after it was in `count` of all planned releases."""
        return gaussian_epsilon(self.delta, self.mu(count, self.levels[client] if level is None else level))
