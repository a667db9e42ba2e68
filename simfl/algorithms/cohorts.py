"""Sums of users' updates with noise of a server; `simfl.privacy.cohorts` accounts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from simfl.algorithms.sums import Owner, Part, Released, Shown, Sum
from simfl.each import filled
from simfl.privacy.adaptive import AdaptiveNorm, adapted_sum
from simfl.privacy.cohorts import AbstractGrid, CohortPlan
from simfl.privacy.strategies import Strategy
from simfl.tape import Gradient, Model
from simfl.tape.layout import padded_size

#: Is called with a model that a release led to, the terms of it that were known before, and the factor of the sum.
OnModel = Callable[[Model, Sequence[tuple[float, Model | Gradient]], float], None]
#: Is called with the weights and clients of the updates in a release, and whether the server learns their sum.
OnRelease = Callable[[Sequence[tuple[float, int]], bool], None]


class Cohorts(Sum):
    """The releases of a server, and the users in the next one.

    Args:
        server: has the tape, the account of releases and what each user may spend.
        plan: noise, draws, and the number of releases.
    """

    counts = True
    #: May be replaced before the run.
    on_model: OnModel = staticmethod(lambda model, known, factor: None)
    on_release: OnRelease = staticmethod(lambda members, is_summed: None)

    def __init__(self, server: Owner, plan: CohortPlan) -> None:
        super().__init__(server)
        self.plan = plan
        #: Number of releases so far.
        self.number = 0
        self._allowances, self._seen = server.training.allowances, server.releases
        self._user_of = plan.user_of
        self.gated = plan.gate is not None
        #: Updates in the next release, by user.
        self._next: Counter[int] = Counter()
        #: Its users, and the release that each was in before.
        self._before: list[tuple[int, int | None]] = []
        #: The number of the last release that each user was in, and how many it was in.
        self._last: dict[int, int] = {}
        self._made: Counter[int] = Counter()
        #: Calls for users that wait at the gate: the number of the release from which each may go on.
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        #: Noises of the releases and their deviations, if they are correlated; noise is drawn at this model.
        self._noises: Iterator[Model] | None = None
        self._stds: Sequence[float] | None = None
        self._model = Model((), ())
        if plan.strategy is not None:
            assert plan.releases is not None, "the account is for a number of releases"
            self._noises, self._stds = self._correlated(plan.strategy), plan.strategy.deviations(plan.releases)
        if plan.adaptive is not None:
            self.norm = self._tape.constant(filled(len(server.training.initial), plan.adaptive.start))

    @property
    def over(self) -> bool:
        """Whether the server has made all of its releases."""
        return self.plan.releases is not None and self.number >= self.plan.releases

    @property
    def ended(self) -> str:
        """Say that the server has made all of its releases."""
        return f"the server has made its {self.number} releases" if self.over else ""

    def affords(self, client: int) -> bool:
        """Whether one more update in the next release keeps its user's budget.

        m updates in one release cost as much as m^2 releases.
        """
        gate, user = self.plan.gate, self._user_of(client)
        if self.over or (gate is not None and gate.at_most is not None and self._made[user] >= gate.at_most):
            return False
        if self._allowances is None:
            return True
        return self._seen.total(client) + (self._next[user] + 1) ** 2 <= self._allowances[client]

    def opens(self, client: int) -> int:
        """Return the number of the first release that the client's user may be in."""
        gate, last = self.plan.gate, self._last.get(self._user_of(client))
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

    def choose(self, candidates: list[int], size: int, draw: Callable[[], float]) -> list[int]:
        """Draw the users of a release.

        With a rate each is drawn independently, also those who are offline.
        """
        plan = self.plan
        if plan.rate is None:
            return super().choose(candidates, size, draw)
        users = range(self._server.num_clients) if plan.users is None else sorted(plan.clients)
        turn = [user for user in users if plan.has_turn(user, self.number)]
        drawn = {user for user in turn if draw() < plan.rate}
        return sorted(self.one_each([k for k in sorted(candidates) if plan.user_of(k) in drawn]))

    def apart(self, candidates: list[int], client: int) -> list[int]:
        """Return the candidates that may be in a release beside a client."""
        if self.plan.gate is None:
            return candidates
        same = self.plan.clients_of(client)
        return [k for k in candidates if k not in same]

    def sent(self, change: Gradient) -> None:
        """Count nothing: the sum is what is released."""

    @property
    def of_none(self) -> bool:
        """Whether there is a release without updates: who was drawn is secret."""
        return self.plan.rate is not None

    def one_each(self, clients: Sequence[int]) -> list[int]:
        """Return the clients without others of the same user, if a rule says so."""
        if self.plan.gate is None:
            return list(clients)
        return list({self._user_of(client): client for client in reversed(clients)}.values())

    def holds(self, client: int) -> bool:
        """Whether the client must wait before it reads the model."""
        gate = self.plan.gate
        return gate is not None and gate.waits and not self.over and self.shuts(client)

    def hold(self, client: int, call: Callable[[], None]) -> None:
        """Call when the client may go on."""
        self._waiting.append((self.opens(client), call))

    def join(self, client: int) -> None:
        """Note that an update of a client will be in the next release."""
        user = self._user_of(client)
        self._next[user] += 1
        self._before.append((user, self._last.get(user)))
        self._last[user] = self.number
        self._made[user] += 1

    def aborted(self, shown: Shown) -> None:
        """Count what a secure sum may show beside its result, or forget the next release."""
        if not self.plan.parts:  # the server adds the noise, and may see sums without it
            self.abort()
            return
        releases = self._tape.releases
        if shown.parts and releases is not None:
            releases.refuse(shown.parts)
        if not shown.updates:
            self.abort()
            return
        for user in shown.updates:
            if not self._next[user]:
                self.join(user)
        self.on_release([(1.0, user) for user in shown.updates], False)
        self._close()
        if releases is not None:
            releases.count_sum([(1.0, update) for update in shown.updates.values()], self.plan.noise_scale)

    def abort(self) -> None:
        """Forget the updates in the next release: it is not made."""
        for user, last in reversed(self._before):
            self._made[user] -= 1
            if last is None:
                del self._last[user]
            else:
                self._last[user] = last
        self._forget()

    def _close(self) -> None:
        """Count the release; what comes now is in the next one."""
        self.number += 1
        self._forget()
        if self.over:
            self._server.marks.end(self._server.updates)

    def _forget(self) -> None:
        self._before.clear()
        self._next.clear()

    def let_in(self) -> None:
        """Call, in the order of their coming, the users who may be in the next release."""
        ready = [call for opens, call in self._waiting if opens <= self.number or self.over]
        self._waiting = [(opens, call) for opens, call in self._waiting if opens > self.number and not self.over]
        for call in ready:
            call()

    def shown(self, model: Model, known: Sequence[tuple[float, Model | Gradient]], factor: float) -> None:
        """Note the model that the last release led to: known terms and factor * sum."""
        self.on_model(model, known, factor)

    def release(self, model: Model, parts: Sequence[Part], planned: float) -> Released:
        """Return the sum with its noise, over a divisor that does not depend on who came."""
        terms = self._noised(model, [(part.scale, part.change) for part in parts])
        noise_std: list[float | None] = [None] * len(parts)
        noise_std[-1:] = [self.noise_std(len(parts))] * bool(parts)
        plan = self.plan
        total = planned if plan.rate is None else plan.share * self._server.num_clients
        return Released(terms, total, noise_std)

    def _noised(
        self, model: Model, terms: Sequence[tuple[float, Model | Gradient]]
    ) -> list[tuple[float, Model | Gradient]]:
        """Return the terms of a sum of updates and the server's noise: one release.

        Weights of at most 1 move the sum by at most C. `model` is any model.
        """
        self._close()
        updates = [(weight, update) for weight, update in terms if isinstance(update, Gradient)]
        assert len(updates) == len(terms), "updates are promises: what they become is not clipped"
        self.on_release([(weight, update.client) for weight, update in updates], True)
        plan = self.plan
        if plan.grid is not None:
            return [(1.0, self._on_grid(plan.grid, updates))]
        if plan.adaptive is not None:
            return [(1.0, self._adapted(plan.adaptive, model, updates))]
        if self._noises is not None:
            noises, self._model = self._noises, model
            return self._tape.noised(model, updates, plan.noise_scale, correlated=lambda: next(noises))
        if not plan.parts:
            return self._tape.noised(model, updates, plan.noise_scale)
        # more is not counted
        return self._tape.noised(model, updates, plan.scale_of(len(updates)), plan.noise_scale)

    def noise_std(self, members: int) -> float:
        """Return the deviation of the newest release's noise, a sum of so many updates.

        NaN if it follows from a clipping norm that the world does not know.
        """
        if self.norm is not None:
            return math.nan
        if self._stds is not None:
            return self.plan.noise_scale * self._stds[self.number - 1]
        return self.plan.scale_of(members)

    def _correlated(self, strategy: Strategy) -> Iterator[Model]:
        """Yield the noise of each release."""
        tape, scale = self._tape, self.plan.noise_scale
        return strategy.noises(lambda: tape.noise(self._model, scale), lambda *terms: tape.settle(tape.combine(*terms)))

    def _adapted(self, rule: AdaptiveNorm, model: Model, updates: Sequence[tuple[float, Gradient]]) -> Model:
        """Return the noisy sum of updates, clipped to the norm; set the next norm."""
        tape, plan = self._tape, self.plan
        assert self.norm is not None
        *_, (_, noise) = tape.noised(model, updates, rule.noise_on_sum(plan.noise_scale), plan.noise_scale)
        drawn = [noise, tape.noise(model, rule.count_noise), *(update for _, update in updates)]
        rows = [self.norm, *(tape.combine((1.0, promise)) for promise in drawn)]
        numbers = rule.numbers([weight for weight, _ in updates], padded_size(len(rows)))
        total, self.norm = tape.map(adapted_sum, rows, scalars=numbers, outputs=2, pads=True)
        return total

    def _on_grid(self, grid: AbstractGrid, updates: Sequence[tuple[float, Gradient]]) -> Model:
        """Return the sum of what users send, each with its part of the noise: one release."""
        assert all(weight == 1.0 for weight, _ in updates), "all parts of the noise count in full"
        plan, tape = self.plan, self._tape
        plan.scale_of(len(updates))
        if tape.releases is not None:
            tape.releases.count_sum(updates, plan.noise_scale)
        sent = [tape.map(grid.part(), [tape.combine((1.0, update))], client=update.client)[0] for _, update in updates]
        return tape.map(grid.whole(), sent, pads=True)[0]
