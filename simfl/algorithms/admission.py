"""Who may be in a server's next release: every client, or users by rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from simfl.algorithms.base import Marks
from simfl.algorithms.training import Training
from simfl.privacy.cohorts import CohortPlan
from simfl.privacy.releases import Releases
from simfl.tape import Tape


class Owner(Protocol):
    """What a sum needs of `simfl.algorithms.server.ServerAlgorithm`."""

    tape: Tape
    training: Training
    releases: Releases
    num_clients: int
    client_early: list[int]
    server: int
    marks: Marks
    updates: int


class Picks(Protocol):
    """What an admission needs of `simfl.algorithms.choosing.Selection`."""

    draw: Callable[[], float]

    def pick(self, candidates: Sequence[int], size: int) -> list[int]:
        """Return at most `size` of the candidates."""


class Admission:
    """Lets every client be in every release."""

    #: Whether a client may have to wait until others were in a release.
    holds_back: bool = False
    #: Whether a client in a release may exclude others, which have the same user.
    one_by_one: bool = False

    def affords(self, client: int) -> bool:
        """Whether one more update in the next release keeps the client's budget."""
        return True

    def admits(self, client: int) -> bool:
        """Whether an update that came may be in the next release."""
        return True

    def shuts(self, client: int) -> bool:
        """Whether the client may be in no release before others are made."""
        return False

    def holds(self, client: int) -> bool:
        """Whether the client must wait before it reads the model; `hold` calls it then."""
        return False

    def hold(self, client: int, call: Callable[[], None]) -> None:
        """Call when the client may go on: at once, since none has to wait."""
        call()

    def let_in(self) -> None:
        """Call, in the order of their coming, those who may be in the next release."""

    def choose(self, candidates: list[int], size: int, selection: Picks) -> list[int]:
        """Choose up to `size` clients for a release; perhaps one by one."""
        if not self.one_by_one:
            return sorted(selection.pick(candidates, size))
        cohort: list[int] = []
        while candidates and len(cohort) < size:
            cohort += selection.pick(candidates, 1)
            candidates = self.apart([k for k in candidates if k != cohort[-1]], cohort[-1])
        return sorted(cohort)

    def apart(self, candidates: list[int], client: int) -> list[int]:
        """Return the candidates that may be in a release beside a client."""
        return candidates

    def join(self, client: int) -> None:
        """Note that an update will be in the next release."""


class Participation(Admission):
    """Lets users be in releases as a plan and their budgets allow it.

    Args:
        server: has the account of releases and what each user may spend.
        plan: the number of releases, and how often a user may be in one.
    """

    def __init__(self, server: Owner, plan: CohortPlan) -> None:
        self._server, self._plan, self.holds_back = server, plan, plan.gate is not None
        self.one_by_one = self.holds_back and plan.users is not None
        #: Number of releases so far.
        self.number = 0
        #: Updates in the next release, by user.
        self.updates: Counter[int] = Counter()
        #: Its users, and the release that each was in before.
        self._before: list[tuple[int, int | None]] = []
        #: The number of the last release that each user was in, and how many it was in.
        self._last: dict[int, int] = {}
        self._made: Counter[int] = Counter()
        #: Calls for users that wait at the gate: the number of the release from which each may go on.
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    @property
    def over(self) -> bool:
        """Whether the server has made all of its releases."""
        return self._plan.releases is not None and self.number >= self._plan.releases

    def affords(self, client: int) -> bool:
        """Whether one more update in the next release keeps its user's budget.

        m updates in one release cost as much as m^2 releases.
        """
        gate, user, allowances = self._plan.gate, self._plan.user_of(client), self._server.training.allowances
        if self.over or (gate is not None and gate.at_most is not None and self._made[user] >= gate.at_most):
            return False
        if allowances is None:
            return True
        return self._server.releases.total(client) + (self.updates[user] + 1) ** 2 <= allowances[client]

    def opens(self, client: int) -> int:
        """Return the number of the first release that the client's user may be in."""
        gate, last = self._plan.gate, self._last.get(self._plan.user_of(client))
        return 0 if gate is None or last is None else last + gate.separation

    def admits(self, client: int) -> bool:
        """Whether an update may be in the next release; count one that is early."""
        if not self.over and self.shuts(client):
            self._server.client_early[client] += 1
            return False
        return not self.over and self.affords(client)

    def shuts(self, client: int) -> bool:
        """Whether the client may be in no release before others are made."""
        return self.opens(client) > self.number

    def choose(self, candidates: list[int], size: int, selection: Picks) -> list[int]:
        """Choose the users of a release.

        With a rate each is drawn independently, also those who are offline.
        """
        plan = self._plan
        if plan.rate is None:
            return super().choose(candidates, size, selection)
        users = range(self._server.num_clients) if plan.users is None else sorted(plan.clients)
        turn = [user for user in users if plan.has_turn(user, self.number)]
        drawn = {user for user in turn if selection.draw() < plan.rate}
        clients = [k for k in sorted(candidates) if plan.user_of(k) in drawn]
        return sorted({plan.user_of(k): k for k in reversed(clients)}.values()) if self.holds_back else clients

    def apart(self, candidates: list[int], client: int) -> list[int]:
        """Return the candidates that may be in a release beside a client."""
        same = self._plan.clients_of(client) if self.holds_back else ()
        return [k for k in candidates if k not in same]

    def holds(self, client: int) -> bool:
        """Whether the client must wait before it reads the model."""
        gate = self._plan.gate
        return gate is not None and gate.waits and not self.over and self.shuts(client)

    def hold(self, client: int, call: Callable[[], None]) -> None:
        """Call when the client may go on."""
        self._waiting.append((self.opens(client), call))

    def let_in(self) -> None:
        """Call, in the order of their coming, the users who may be in the next release."""
        ready = [call for opens, call in self._waiting if opens <= self.number or self.over]
        self._waiting = [(opens, call) for opens, call in self._waiting if opens > self.number and not self.over]
        for call in ready:
            call()

    def join(self, client: int) -> None:
        """Note that an update of a client will be in the next release."""
        user = self._plan.user_of(client)
        self.updates[user] += 1
        self._before.append((user, self._last.get(user)))
        self._last[user] = self.number
        self._made[user] += 1

    def abort(self) -> None:
        """Forget the updates in the next release: it is not made."""
        for user, last in reversed(self._before):
            self._made[user] -= 1
            if last is None:
                del self._last[user]
            else:
                self._last[user] = last
        self._forget()

    def close(self) -> None:
        """Count the release; what comes now is in the next one."""
        self.number += 1
        self._forget()

    def _forget(self) -> None:
        self._before.clear()
        self.updates.clear()
