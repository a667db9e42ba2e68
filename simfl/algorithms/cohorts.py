"""Sums of users' updates with noise of a server; `simfl.privacy.cohorts` accounts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simfl.algorithms.admission import Owner, Participation
from simfl.algorithms.steps import Terms
from simfl.algorithms.sum_noise import noise_of
from simfl.algorithms.sums import Part, Released, Shown, Sum
from simfl.privacy.cohorts import CohortPlan
from simfl.tape import Gradient, Model

#: Is called with a model that a release led to, the terms of it that were known before, and the factor of the sum.
OnModel = Callable[[Model, Terms, float], None]
#: Is called with the weights and clients of the updates in a release, and whether the server learns their sum.
OnRelease = Callable[[Sequence[tuple[float, int]], bool], None]


class Cohorts(Sum):
    """The releases of a server.

    Args:
        server: has the tape.
        plan: noise, draws, and the number of releases.
        users: those in the next release.
    """

    counts = True
    #: May be replaced before the run.
    on_model: OnModel = staticmethod(lambda model, known, factor: None)
    on_release: OnRelease = staticmethod(lambda members, is_summed: None)

    def __init__(self, server: Owner, plan: CohortPlan, users: Participation) -> None:
        super().__init__(server)
        self.plan, self.users = plan, users
        self.noise = noise_of(self._tape, plan, len(server.training.initial))

    @property
    def ended(self) -> str:
        """Say that the server has made all of its releases."""
        return f"the server has made its {self.users.number} releases" if self.users.over else ""

    @property
    def norm(self) -> Model | None:
        """The clipping norm of the next release in every entry, if it is adaptive."""
        return self.noise.norm

    def sent(self, change: Gradient) -> None:
        """Count nothing: the sum is what is released."""

    @property
    def of_none(self) -> bool:
        """Whether there is a release without updates: who was drawn is secret."""
        return self.plan.rate is not None

    def aborted(self, shown: Shown) -> None:
        """Count what a secure sum may show beside its result, or forget the next release."""
        if not self.plan.parts:  # the server adds the noise, and may see sums without it
            self.users.abort()
            return
        releases = self._tape.releases
        if shown.parts and releases is not None:
            releases.refuse(shown.parts)
        if not shown.updates:
            self.users.abort()
            return
        for user in shown.updates:
            if not self.users.updates[user]:
                self.users.join(user)
        self.on_release([(1.0, user) for user in shown.updates], False)
        self._close()
        if releases is not None:
            releases.count_sum([(1.0, update) for update in shown.updates.values()], self.plan.noise_scale)

    def _close(self) -> None:
        """Count the release; the last one ends the run."""
        self.users.close()
        if self.users.over:
            self._server.marks.end(self._server.updates)

    def shown(self, model: Model, known: Terms, factor: float) -> None:
        """Note the model that the last release led to: known terms and factor * sum."""
        if known:
            self.on_model(model, known, factor)

    def release(self, model: Model, parts: Sequence[Part], planned: float) -> Released:
        """Return the sum with its noise, over a divisor that does not depend on who came."""
        self._close()
        updates = [(part.scale, part.change) for part in parts if isinstance(part.change, Gradient)]
        assert len(updates) == len(parts), "updates are promises: what they become is not clipped"
        self.on_release([(scale, update.client) for scale, update in updates], True)
        terms, plan = self.noise.added(model, updates), self.plan
        noise_std: list[float | None] = [None] * len(parts)
        noise_std[-1:] = [self.noise.std(len(parts))] * bool(parts)
        total = planned if plan.rate is None else plan.share * self._server.num_clients
        return Released(terms, total, noise_std)
