"""Asynchronous local SGD, with delayed Nesterov momentum and steps by speed.

Liu et al. 2024, "Asynchronous local-SGD training for language modeling", https://arxiv.org/abs/2401.09135:

    clients:  take theta, train for H_k mini-batches, send the change D
    server:   on receipt of D:  a step of `simfl.algorithms.delayed_nesterov` with s(tau) D

with s(tau) = 1 / (1 + tau)^a, tau updates after the read. With `steps: by_speed` a client makes fewer steps if it is
slower (DyLU): H_k = max(1, floor(H * fastest step / own step)), in mean seconds of a step over the run, with slowdowns
and traces.

With `grace`, an update that arrives within this time after another one is applied before any of their clients reads the
model. The server waits only for computations that end in time. It foresees their ends, as in the authors' notebook.

Privacy: as in `simfl.algorithms.fedasync`; momentum and weights by staleness are functions of noisy changes.

Faults: those of `simfl.algorithms.server`. The server does not wait for a client that crashed.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from simfl.algorithms.delayed_nesterov import DelayedNesterov
from simfl.algorithms.local_rounds import LocalRounds, Update
from simfl.algorithms.sums import Part
from simfl.tape.recording import Round


class AsyncLocalSgd(LocalRounds):
    """A server that steps on each change as it arrives, with delayed momentum."""

    kind: ClassVar[str] = "async_local_sgd"
    summary: ClassVar[str] = "asynchronous local SGD: each change is an outer step, with delayed Nesterov momentum"
    family: ClassVar[str] = "low communication"
    who_waits: ClassVar[str] = "no client waits; with `grace`, a client waits for one that is done within that time"
    what_travels: ClassVar[str] = "the model to clients, their changes to the server"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`), or a user, not from the server (`gaussian_cohort`)"

    def set_up(  # type: ignore[override]
        self,
        *,
        server_step: float,
        momentum: float,
        momentum_every: int | None,
        momentum_share: float,
        staleness_exponent: float,
        grace: float,
        **options: Any,
    ) -> None:
        """Take the options."""
        super().set_up(**options)
        every = self.num_clients if momentum_every is None else momentum_every
        self.step = DelayedNesterov(self.tape, server_step, momentum, every, momentum_share)
        self.staleness_exponent, self.grace_s = staleness_exponent, grace
        #: Updates whose clients wait for the end of the grace, and when it ends.
        self._applied: list[Update] = []
        self._closes_s = math.inf
        #: Clients whose updates have not arrived.
        self._awaited: set[int] = set()

    def gradient_at(self, me: int, content: Any) -> Round:
        """Promise the client's next round at the model in the server's message."""
        self._awaited.add(me)
        return super().gradient_at(me, content)

    # -- the server ----------------------------------------------------------------------------

    def take(self, update: Update) -> None:
        """Take the step, and hand out the model when the grace is over."""
        self._awaited.discard(update.client)
        if self.refused(update):
            self._close_if_over()
            return
        weight = update.weight / (1 + update.staleness) ** self.staleness_exponent
        before = self.server_model
        self.admission.join(update.client)
        terms, _, noise_std = self.sum.release(before, [Part(update.client, update.change)], 1.0)
        change = self.tape.combine(*terms)
        self.server_model = self.step(before, change, weight)
        self.applied()
        self.sum.shown(self.server_model, self.step.known(before), self.step.share_of(weight))
        self.updated(update.client, update.staleness, update.examples, update.step_size, noise_std=noise_std[0])
        self._applied.append(update)
        if self.grace_s and len(self._applied) == 1:
            self._closes_s = self.clock.now + self.grace_s
            self.clock.call_at(self._closes_s, self._close_if_over)
        self._close_if_over()
        self.admission.let_in()

    def _close_if_over(self) -> None:
        """Hand out the model if no computation that ends within the grace is left."""
        if not self._applied:
            return
        now, closes_s = self.clock.now, self._closes_s
        if self.grace_s and now < closes_s and any(now <= self.times.busy_until[k] <= closes_s for k in self._awaited):
            return
        applied, self._applied = self._applied, []
        for update in applied:
            self.exchanges.waited(update.client, update.taken_s)
            self.hand_out(update.client, update.came)

    def forget(self, client: int) -> None:
        """Stop expecting the client's update."""
        self._awaited.discard(client)
        super().forget(client)
        self._close_if_over()
