"""Accounts in which all releases of a client have one epsilon in closed form."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simfl.privacy.accounting import Accountant
from simfl.privacy.calibration import releases_within
from simfl.privacy.ledger import Ledger
from simfl.privacy.releases import Releases
from simfl.privacy.terms import View

#: Maximum number of a client's releases that a budget allows.
MOST_RELEASES = 2**21


class ClosedFormLedger(Ledger):
    """Accounts by a client's examples, noise and number of releases."""

    closed_form = True

    @property
    def by_passes(self) -> bool:
        """Always false: releases are counted, and not the examples in them."""
        return False

    @abstractmethod
    def _spent(self, examples: int, level: float, releases: int) -> float:
        """Return epsilon of a client's releases."""

    def _level_of(self, client: int, releases: Releases) -> float:
        """Return the least noise of a client's releases."""
        return self.levels[client]

    def _epsilons(self, releases: Releases, view: View | None, final: bool) -> NDArray[np.float64]:
        if not self.accounts_for(releases):
            return np.full(len(self.sizes), math.nan)
        spent = functools.cache(self._spent)
        kinds = ((n, self._level_of(client, releases), client) for client, n in enumerate(self.sizes.tolist()))
        return np.array([spent(n, level, releases.total(client)) for n, level, client in kinds])

    def epsilon_after(self, client: int, count: int, accountant: Accountant, level: float | None = None) -> float:
        """Return a client's epsilon after `count` releases at the nominal or given level."""
        return self._spent(int(self.sizes[client]), self.levels[client] if level is None else level, count)

    def allowances(self, budgets: Sequence[float], most: int = 2**31) -> list[int]:
        """Return the number of releases within each client's budget, at most `most`."""
        most = min(most, MOST_RELEASES)

        @functools.cache
        def allowed(n: int, level: float, budget: float) -> int:
            return releases_within(functools.partial(self._spent, n, level), budget, most)

        return [allowed(*kind) for kind in zip(self.sizes.tolist(), self.levels, map(float, budgets), strict=True)]
