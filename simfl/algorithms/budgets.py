"""Privacy budgets of clients, in releases."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simfl.compiled import Integer, Number
from simfl.privacy.releases import Releases, Tally
from simfl.world.engine import Clock


class Budgets:
    """Who has spent its budget, and since when.

    Args:
        allowances: releases of each client, [K]; None for no budget.
        seen: the releases of each client so far, as counted by the tape.
        promised: those that are promised; None if the tape counts none.
        draws: mini-batches that were handed out to each client, [K]; the algorithm's own list.
    """

    def __init__(
        self,
        clock: Clock,
        allowances: Sequence[int] | None,
        seen: Releases,
        promised: Tally | None,
        draws: Sequence[int],
    ) -> None:
        self._clock, self._allowances, self._draws = clock, allowances, draws
        self._seen, self._promised = seen, promised
        #: Whether a client may have to stop.
        self.limited = allowances is not None
        #: Whether a client may be in one more release, if that is not decided here.
        self._affords: Callable[[int], bool] | None = None
        limited = len(draws) if self.limited else 0
        self._counted, self._at_a_time = [0] * limited, [1] * limited
        #: Returns what counts a release that messages under way may still show, if any.
        self.owed: Callable[[], Callable[[], None] | None] = lambda: None
        #: Virtual time at which each client's privacy budget was spent, seconds.
        self.spent_s: dict[int, Number] = {}

    def leave_to(self, affords: Callable[[int], bool]) -> None:
        """Let a function decide whether a client may be in one more release."""
        self._affords, self.limited = affords, True

    def stops(self, client: Integer) -> bool:
        """Whether a client that is about to compute has spent its budget.

        Note how many releases it made since its last computation.
        """
        if self._allowances is not None:
            made, before = self._seen.total(client), self._counted[client]
            self._counted[client], self._at_a_time[client] = made, max(made - before, self._at_a_time[client])
        return self.spent(client)

    def spent(self, client: Integer) -> bool:
        """Whether the client's next release would exceed its privacy budget.

        The next computation is assumed to make as many releases as the one with the most so far, and at least
        those that are promised. A client that promised a release above the planned cost has no budget left. Where
        the account is by passes over shuffled data, or releases are numbered, the mini-batches that were handed out
        count too: a lost one uses up a part of a pass without a release.
        """
        if self._affords is not None:
            return not self._affords(client) and self._spend(client)
        if self._allowances is None:
            return False
        promised = 0 if self._promised is None else self._promised.promised[client]
        after = self._seen.total(client) + max(self._at_a_time[client], promised)
        if self._seen.passes is not None or self._seen.numbered:
            after = max(after, self._draws[client])
        within = after <= self._allowances[client] and client not in self._seen.dearer
        return not within and self._spend(client)

    def _spend(self, client: Integer) -> bool:
        """Note that the client's budget is spent by now; returns True."""
        self.spent_s.setdefault(client, self._clock.now)
        return True
