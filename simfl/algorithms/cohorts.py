"""A server's releases: sums of users' updates, with noise that it adds to each.

See `simfl.privacy.cohorts` for the account. An algorithm puts updates into a cohort by `join`, and makes the release by
`noised`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from simfl.privacy.cohorts import CohortPlan
from simfl.privacy.releases import Releases
from simfl.tape import Gradient, Model, Tape


class Cohorts:
    """The releases of a server, and the users in the next one.

    Args:
        tape: records and counts the releases.
        plan: noise, draws, and the number of releases.
        allowances: releases that each user may be in; None for any number.
        seen: the releases by the tape's count.
    """

    def __init__(self, tape: Tape, plan: CohortPlan, allowances: Sequence[int] | None, seen: Releases) -> None:
        self.plan = plan
        #: Number of releases so far.
        self.number = 0
        self._tape, self._allowances, self._seen = tape, allowances, seen
        #: Updates in the next release, by user.
        self._next: Counter[int] = Counter()

    @property
    def over(self) -> bool:
        """Whether the server has made all of its releases."""
        return self.plan.releases is not None and self.number >= self.plan.releases

    def affords(self, user: int) -> bool:
        """Whether one more update in the next release keeps the user's budget.

        m updates in one release cost as much as m^2 releases.
        """
        if self.over:
            return False
        if self._allowances is None:
            return True
        return self._seen.total(user) + (self._next[user] + 1) ** 2 <= self._allowances[user]

    def join(self, user: int) -> None:
        """Note that an update of a user will be in the next release."""
        self._next[user] += 1

    def noised(self, model: Model, terms: Sequence[tuple[float, Model | Gradient]]) -> list[tuple[float, Gradient]]:
        """Return the terms of a sum of updates and the server's noise: one release.

        Weights of at most 1 move the sum by at most C. `model` is any model.
        """
        self.number += 1
        self._next.clear()
        updates = [(weight, update) for weight, update in terms if isinstance(update, Gradient)]
        assert len(updates) == len(terms), "updates are promises: what they become is not clipped"
        return self._tape.noised(model, updates, self.plan.noise_scale)
