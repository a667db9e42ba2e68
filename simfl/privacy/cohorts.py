"""Account for users whose updates a trusted server sums, with noise on each sum.

A release is a *cohort*: the sum of the clipped updates of a set of users, plus one noise, divided by a fixed number. A
user is a client with all of its examples, or several clients (devices) with all of theirs. Neighbors differ in what one
user adds: its updates, or nothing (or other updates, of other data). Who takes part when is held fixed, because other
users would take part at other times.

- McMahan, Ramage, Talwar, Zhang 2018, "Learning differentially private recurrent language models",
  https://arxiv.org/abs/1710.06963: cohorts by Poisson sampling, updates clipped to C, N(0, (z C)^2) on the sum, the
  fixed divisor q K.
- Nguyen et al. 2022 (FedBuff): a cohort is a buffer. Users are in it because they were fast, so q = 1.

m updates of one user in one cohort move the sum by m C, which costs exactly as much as m^2 releases. All clients of a
user have its releases and its epsilon. A draw is of users: all m clients of a user that is drawn take part, which are
releases with noise z / m at rate q.

**Amplification.** A draw that the adversary does not know amplifies only if nothing else that it sees depends on the
draw. That is so for models x_1 ... x_T after T rounds if each enrolled user is drawn independently with probability q,
if every user that is drawn takes part, and if T is fixed beforehand. If availability decides who takes part, a user
that is drawn makes the round longer, others are online when the next one begins, and their updates show the draw. Then
every cohort that a user was in counts in full (q = 1), and the statement gives the reason. Times of releases and names
of users are not in the view: the time of a round shows who was in it.

**Groups.** Users may be split into b groups, from each of which the server draws in turn. A user then has the draws of
ceil(T / b) releases, at least b apart. Groups do not depend on data, and are public.

**Secure sums.** Without trust in the server, each user adds a part of the noise, N(0, (z C)^2 / (t - c)), and the
server sees sums of at least t updates only (`simfl.algorithms.secure_sums`). Up to c users of a sum may tell it their
parts, and the shares that they hold. The others have at least the noise that is accounted for; more is not counted.
Neighbors differ in a user's update, not in its part of the noise. An aborted sum is a release, too, unless too few
answers and shares can ever reach the server. What else a protocol may show is counted, or not certified
(`simfl.world.secure_sums`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from simfl.privacy.accounting import Accountant, epsilon_of
from simfl.privacy.adaptive import AdaptiveNorm
from simfl.privacy.calibration import releases_within
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.privacy.ledger import AFFORDABLE, NOT_CERTIFIED, OUTSIDE, Composition, Ledger
from simfl.privacy.releases import Promise, Releases, Tally
from simfl.privacy.strategies import Strategy
from simfl.privacy.terms import Terms, View

#: Is called with the number of a release, its virtual time in seconds, and how many updates each user has in it.
OnCohort = Callable[[int, float, Mapping[int, int]], None]


@dataclass(frozen=True)
class Gate:
    """How often a user may be in a server's releases, which the server enforces.

    Attributes:
        separation: b >= 1; a user of release n may be in release n + b at the earliest.
        at_most: k, the largest number of releases of a user; None for any number.
        waits: whether a user that comes too early waits, or its update is thrown away.
    """

    separation: int = 1
    at_most: int | None = None
    waits: bool = True


class AbstractGrid(ABC):
    """How users round updates to a grid and add noise (`simfl.privacy.distributed`)."""

    @abstractmethod
    def part(self) -> Callable[..., Any]:
        """Return what a user sends of its clipped update, a function for `Tape.map`."""

    @abstractmethod
    def whole(self) -> Callable[..., Any]:
        """Return the sum of what users sent, a function for `Tape.map`."""


@dataclass(frozen=True)
class CohortPlan:
    """How a server releases sums of users' updates.

    Attributes:
        noise_scale: z C, standard deviation of the noise on a sum; z if the norm is adaptive.
        rate: q, the probability with which each enrolled user is drawn for a cohort; None: the algorithm chooses.
        releases: T, the number of cohorts after which the server makes no more; None for any number.
        unamplified: why the draw of users does not amplify, in words; None if it does, after T releases.
        gate: how often a user may be in a release; None: as often as it comes, also several times in one.
        least: t, the smallest number of updates whose sum the server sees; 0: it sees the updates.
        parts: users whose parts of the noise make noise_scale; 0: the server adds the noise.
        grid: how users round updates and add discrete noise; None for noise of real numbers.
        strategy: how noise is correlated over releases (`simfl.privacy.correlated_cohorts`); None: independent.
        users: the user that owns each client, [K]; None: every client is a user.
        groups: the group of each user, from 0 to b - 1; only those of group n mod b are drawn for release n. None: all.
        adaptive: how the clipping norm follows the updates (`simfl.privacy.adaptive`); None: it is fixed.
    """

    noise_scale: float
    rate: float | None = None
    releases: int | None = None
    unamplified: str | None = "the algorithm chooses who is in a cohort"
    gate: Gate | None = None
    least: int = 0
    parts: int = 0
    grid: AbstractGrid | None = None
    strategy: Strategy | None = None
    users: tuple[int, ...] | None = None
    groups: tuple[int, ...] | None = None
    adaptive: AdaptiveNorm | None = None

    @functools.cached_property
    def turns(self) -> int:
        """The number b of groups that are drawn in turn; 1: all users at once."""
        return max(self.groups or (0,)) + 1

    @property
    def owned(self) -> str:
        """What a user is, in words."""
        return "a client with all its data" if self.users is None else "all its clients with all their data"

    @property
    def share(self) -> float:
        """The expected share of all users in a release, if they are drawn."""
        return (1.0 if self.rate is None else self.rate) / self.turns

    def has_turn(self, user: int, number: int) -> bool:
        """Whether a user may be drawn for a release, by its number."""
        return self.groups is None or self.groups[user] == number % self.turns

    def user_of(self, client: int) -> int:
        """Return the user that owns a client."""
        return client if self.users is None else self.users[client]

    @functools.cached_property
    def clients(self) -> dict[int, list[int]]:
        """The clients of each user, if users are given."""
        owned: dict[int, list[int]] = {}
        for client, user in enumerate(self.users or ()):
            owned.setdefault(user, []).append(client)
        return owned

    def clients_of(self, client: int) -> list[int]:
        """Return the clients of a client's user."""
        return [client] if self.users is None else self.clients[self.users[client]]

    def scale_of(self, members: int) -> float:
        """Return the standard deviation of the noise on a sum of updates.

        Raises:
            ValueError: the parts of so few users make less than `noise_scale`.
        """
        if members < max(self.parts, self.least):
            raise ValueError(f"a sum of {members} updates: expected at least {max(self.parts, self.least)}")
        return self.noise_scale * math.sqrt(members / self.parts) if self.parts else self.noise_scale

    def view(self, view: str) -> str:
        """Say what the adversary sees; `view` is what it sees if the server is trusted."""
        least, parts = self.least, self.parts
        if not least:
            return f"central view ({view}; the server itself sees what clients send)"
        if not parts:
            return (
                f"central view ({view}; the server itself sees sums of at least {least} updates, without noise, also "
                "aborted ones, and parts of a sum whose masks do not connect all users)"
            )
        colluding = f", of whom {least - parts} may tell the server their noise and shares" if least > parts else ""
        return (
            f"view of the server (sums of at least {least} noisy updates{colluding}, also aborted ones that late "
            f"answers may unmask, their times, and who takes part when; secure aggregation is simulated in time and "
            f"bytes, and taken for granted; noise of more than {least} users is not counted)"
        )


#: Largest number of releases that a budget may allow.
MOST_RELEASES = 10**6


class CohortTally(Tally):
    """Counts the cohorts that each user was in."""

    #: May be replaced before the run.
    on_cohort: OnCohort = staticmethod(lambda number, time_s, members: None)

    def shares(self, terms: Sequence[tuple[float, Promise]]) -> dict[int, int]:
        """Return the updates of its user in a sum, for each client of such users."""
        assert isinstance(self.ledger, CohortLedger)
        plan, found = self.ledger.plan, super().shares(terms)
        if plan.users is None:
            return found
        of_users: Counter[int] = Counter()
        for client, count in found.items():
            of_users[plan.user_of(client)] += count
        return {client: count for user, count in of_users.items() for client in plan.clients[user]}

    def count_sum(self, terms: Sequence[tuple[float, Promise]], noise_scale: float) -> None:
        """Count one release of a sum, also if nobody is in it."""
        number, self.cohorts = self.cohorts, self.cohorts + 1
        self.on_cohort(number, self._now(), Counter(promise.client for _, promise in terms))
        if terms:
            super().count_sum(terms, noise_scale)
        elif min(self._scales) * (1.0 - 1e-9) > noise_scale:
            self.refuse("a release without users carries less noise than the scenario's")


class CohortLedger(Ledger):
    """Accounts for every user in the cohorts of a server.

    The arguments are those of `Ledger`, and `plan`. A draw amplifies after exactly `plan.releases` releases: with
    fewer, their number may depend on who was drawn.
    """

    counted_by: ClassVar[type[Tally]] = CohortTally
    #: Whether there is a table of cohorts.
    counts_cohorts: ClassVar[bool] = True
    closed_form: ClassVar[bool] = True

    def __init__(
        self,
        terms: Terms,
        sizes: NDArray[np.int64],
        batch_size: int,
        sampling: str,
        levels: Sequence[float],
        plan: CohortPlan,
    ) -> None:
        self.plan = plan
        super().__init__(dataclasses.replace(terms, unit="user", by_server=True), sizes, batch_size, sampling, levels)

    @property
    def users(self) -> int:
        """The number of enrolled users."""
        return len(self.plan.clients) or len(self.sizes)

    def _drawn_level(self, client: int, level: float | None = None) -> float:
        """Return the noise multiplier of a drawn user's part in a sum."""
        level = self.levels[client] if level is None else level
        return level if self.plan.gate is not None else level / len(self.plan.clients_of(client))

    def _drawn_releases(self, releases: int) -> int:
        """Return the largest number of releases for which a user is drawn."""
        return -(-releases // self.plan.turns)

    def cohorts_after(self, count: int) -> int:
        """Return the server's releases, of which a user was drawn for `count`."""
        made = self.plan.releases
        return made if made is not None and count == self._drawn_releases(made) else count

    def amplifies(self, releases: Releases) -> bool:
        """Whether the account of these releases is that of independent secret draws."""
        return self._unamplified(releases) is None

    @property
    def draws_secretly(self) -> bool:
        """Whether all planned releases are accounted as independent secret draws."""
        return self._unamplified(None) is None

    def drawn(self, releases: int, level: float | None = None) -> Composition:
        """Return so many releases of secret draws, for a user with the most clients."""
        rate, clients = self.plan.rate, range(len(self.plan.users or (0,)))
        assert rate is not None
        least = min(self._drawn_level(client, level) for client in clients)
        return ((self._release(least, rate, "poisson"), self._drawn_releases(releases)),)

    @property
    def drawn_accountant(self) -> Accountant:
        """The accountant of secret draws at the end of a run."""
        kinds = {len(clients) for clients in self.plan.clients.values()}
        return "renyi" if self.terms.accountant == "tightest" and len(kinds) > AFFORDABLE else self.terms.accountant

    def _unamplified(self, releases: Releases | None) -> str | None:
        """Return why draws do not amplify, for planned releases if None are given."""
        plan, terms = self.plan, self.terms
        if plan.unamplified is not None or plan.rate is None or plan.releases is None:
            return plan.unamplified or "the algorithm chooses who is in a cohort"
        if terms.neighbors != "add_or_remove":
            return "draws amplify under neighbors: add_or_remove only"
        if not terms.amplification:
            return "amplification: false"
        if releases is not None and releases.cohorts != plan.releases:
            return (
                f"{releases.cohorts} of {plan.releases} releases were made, and when a run ends before the last one "
                "may show who was drawn"
            )
        return None

    def _said_of(self, releases: Releases | None) -> str:
        if self._refusal is not None:
            return f"{NOT_CERTIFIED}{self._refusal}"
        plan = self.plan
        what = {
            "add_or_remove": f"a user that takes part or adds {'noise only' if plan.parts else 'nothing'}",
            "replace_one": "replacing all data of one user",
        }[self.terms.neighbors]
        reason, shown, both = self._unamplified(releases), "the models", ""
        if plan.adaptive is not None:
            shown, both = "the models and clipping norms", ", of each sum and its count of unclipped updates together"
        if reason is None:
            view = f"{shown} that the server releases, without their times and the names of users"
            each = f"in each of {plan.releases} releases"
            if plan.turns > 1:
                each = f"of one of {plan.turns} groups in every release of {plan.releases} that is the group's turn,"
            made = (
                f"each of {self.users} enrolled users {each} with probability {plan.rate:g}, drawn by the server"
                f"{self._of_drawn}"
            )
        else:
            view = f"{shown} that the server releases, their times, and who takes part when"
            made = f"each release that a user is in, in full (q = 1: {reason})"
        return (
            f"(epsilon, delta = {self.delta:g}) per user ({plan.owned}), neighboring data sets by {what} "
            f"while others take part as they did, {plan.view(view)}, {made}, "
            f"{super()._accountant if reason is None else self._accountant}{both}; {OUTSIDE}"
        )

    #: What is special about releases of drawn users, in words.
    _of_drawn: ClassVar[str] = ""

    def compositions(self, releases: Releases, view: View | None = None) -> list[Composition]:
        """Return the composition of each user's releases."""
        if not self.amplifies(releases):
            return super().compositions(releases, view)
        assert self.plan.rate is not None
        rate = self.plan.rate
        levels = map(self._drawn_level, range(len(self.sizes)))
        made = self._drawn_releases(releases.cohorts)
        return [((self._release(level, rate, "poisson"), made),) for level in levels]

    def _epsilons(self, releases: Releases, view: View | None, final: bool) -> NDArray[np.float64]:
        if not self.accounts_for(releases) or self.amplifies(releases):
            return super()._epsilons(releases, view, final)

        @functools.cache
        def spent(kinds: tuple[tuple[float, int], ...]) -> float:
            return self._spent(sum(count / level**2 if level else math.inf for level, count in kinds if count))

        usual = zip(self.levels, releases.counts, strict=True)
        kinds = [
            tuple((level, count) for (_, level), count in self._kinds_of(user, releases).items())
            if user in releases.others
            else (nominal,)
            for user, nominal in enumerate(usual)
        ]
        return np.array([*map(spent, kinds)])

    def _spent(self, squares: float) -> float:
        """Return epsilon of Gaussian releases in full; `squares` is the sum of z^-2."""
        return gaussian_epsilon(self.delta, self.terms.moved * math.sqrt(squares))

    def epsilon_as_planned(self, count: int, accountant: Accountant, level: float) -> float:
        """Return a user's epsilon after all planned releases, `count` of them its own."""
        if not self.draws_secretly:
            return self.epsilon_after(0, count, accountant, level)
        assert self.plan.releases is not None
        by = accountant if accountant == "renyi" else self.drawn_accountant
        drawn = self.drawn(self.plan.releases, level)
        return epsilon_of(drawn, self.delta, neighbors=self.terms.neighbors, accountant=by)

    def epsilon_after(self, client: int, count: int, accountant: Accountant, level: float | None = None) -> float:
        """Return a user's epsilon after `count` releases in full."""
        level = self.levels[client] if level is None else level
        return self._spent(count / level**2 if level else math.inf if count else 0.0)

    def allowances(self, budgets: Sequence[float], most: int = 2**31) -> list[int]:
        """Return the releases in full within each user's budget, at most `most`."""
        most = min(most, MOST_RELEASES)

        @functools.cache
        def allowed(user: int, budget: float) -> int:
            return releases_within(lambda count: self.epsilon_after(user, count, "pld"), budget, most)

        return [allowed(0, budget) for budget in map(float, budgets)]

    @property
    def _accountant(self) -> str:
        return "exact as Gaussian releases"

    def kinds(self, releases: Releases) -> list[tuple[int, int, float, float, int]]:
        """Return (client, batch size, sampling rate, level, count) of every kind."""
        if self.amplifies(releases):
            rate = self.plan.rate or 1.0
            made = self._drawn_releases(releases.cohorts)
            return [(k, self.nominal(n), rate, self._drawn_level(k), made) for k, n in enumerate(self.sizes.tolist())]
        return [(user, size, 1.0, level, count) for user, size, _, level, count in super().kinds(releases)]
