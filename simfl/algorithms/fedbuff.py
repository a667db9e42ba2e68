"""FedBuff: a server collects updates in a buffer and steps when it is full.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba 2022, "Federated learning with buffered asynchronous aggregation",
https://arxiv.org/abs/2106.06639, Algorithms 1 and 2:

    clients:  at most `concurrency` of them at a time: take w^t, train, send Delta = w_Q - w^t
    server:   on receipt of Delta, tau steps after its read:  buffer <- buffer + s(tau) Delta
              when there are K in the buffer:                  w^{t+1} = w^t + eta_g / K * buffer,  buffer <- 0

with s(tau) = 1 / (1 + tau)^a, a = 1/2. (The paper has the opposite sign of Delta.) Staleness counts the server's steps,
not single updates. It is fixed when an update enters the buffer, because the model does not change until the step. With
`after_update: wait` and K clients this is federated averaging. If no client is left that could fill the buffer, the
server takes the step with the updates that it has.

Privacy protects all data of a client together: each update is clipped to norm C, and Gaussian noise is added

- by each client to its own update, which protects its messages from everyone (local view); or
- by the server to the sum of a buffer, as in the paper. This protects the models, but not from the server, which sees
  each update (or their sum, under secure aggregation). Weights are at most 1, so one update moves the sum by at most C,
  and m updates of one client in one buffer move it by at most m C: they are accounted as m^2 releases, which is exact.
  With `privacy.unit: user` a buffer is a cohort, and the divisor is K even if fewer updates came.
  The paper's noise comes from DP-FTRL and is correlated over the steps; here it is independent,
  unless `privacy.noise` says otherwise (`simfl.privacy.strategies`).

Faults: those of `simfl.algorithms.server`. With `after_update: wait` an unreachable client delays the buffer if the
others cannot fill it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from mypy_extensions import mypyc_attr

from simfl.algorithms.admission import Participation
from simfl.algorithms.disclosure import merged
from simfl.algorithms.local_rounds import LocalRounds, Update
from simfl.algorithms.sums import LastNoise, Part, Released
from simfl.compiled import Integer, Number
from simfl.privacy.cohorts import CohortPlan
from simfl.tape.recording import Model


@mypyc_attr(allow_interpreted_subclasses=True)
class FedBuff(LocalRounds):
    """A server that takes one step for every K updates."""

    summary: ClassVar[str] = "FedBuff: a server takes a step for every K updates in its buffer; clients need not wait"
    family: ClassVar[str] = "servers"
    who_waits: ClassVar[str] = "no client waits; with `after_update: wait`, clients wait for the server's step"
    what_travels: ClassVar[str] = "the model to clients, their changes to the server"
    what_is_private: ClassVar[str] = (
        "a client (`gaussian_update`); with `noise: server`, or `gaussian_cohort`, not from the server"
    )
    kind: ClassVar[str] = "fedbuff"
    #: Whether a client that does not wait gets the model before the step that its update completes.
    answers_first: ClassVar[bool] = False

    def set_up(  # type: ignore[override]
        self,
        *,
        buffer_size: int,
        server_step: Number,
        staleness_exponent: Number,
        after_update: str,
        noise: str,
        concurrency: Integer | None,
        steps: Sequence[int] | None = None,
    ) -> None:
        """Take the options.

        Args:
            steps: see `LocalRounds`.
        """
        self.buffer_size = buffer_size
        self.server_step = server_step
        self.staleness_exponent = staleness_exponent
        self.waiting = after_update == "wait"
        self.buffer: list[Update] = []
        super().set_up(steps=steps, concurrency=concurrency)
        self.take_rule(self.num_clients)
        if noise == "server":
            scale = self.batches.noise_scale[0]
            self.admission = users = Participation(self, CohortPlan(scale))
            self.sum = LastNoise(self, scale, users)
            self.batches.silence()
            self.budgets.leave_to(users.affords)

    # -- the server ----------------------------------------------------------------------------

    def take(self, update: Update) -> None:
        """Put an update into the buffer, and take a step when it is full."""
        if self.refused(update):
            return
        answered = self.answers_first and not (self.waiting or self.turns.waits)
        if answered:
            self.hand_out(update.client, update.came)
        self.buffer.append(update)
        self.admission.join(update.client)
        if len(self.buffer) == self.buffer_size:
            self.gathering.gather(self.buffer, self.step, self._empty)
        elif self.waiting:
            self._step_if_alone()
        if not (self.waiting or answered):
            self.hand_out(update.client, update.came)
            if self.admission.holds_back:
                self._step_if_alone()

    def forget(self, client: int) -> None:
        """Stop expecting an update; step if no client is left to fill the buffer."""
        super().forget(client)
        if self.waiting or self.admission.holds_back:
            self._step_if_alone()

    def _step_if_alone(self) -> None:
        if self.buffer and not self.gathering.busy and self.turns.idle and not self._ready:
            self.gathering.gather(self.buffer, self.step, self._empty)

    def _empty(self) -> None:
        """Drop all updates in the buffer, since their sum was aborted."""
        buffer, self.buffer = self.buffer, []
        for update in buffer:
            self.client_dropped[update.client] += 1
            if self.waiting and not self.gathering.hopeless(range(self.num_clients)):
                self._answer(update)
        self.admission.let_in()

    def _answer(self, update: Update) -> None:
        """Hand out the model to a client that has waited for it."""
        self.exchanges.waited(update.client, update.taken_s)
        self.hand_out(update.client, update.came)

    def step(self) -> None:
        """Take the step with all updates in the buffer, and record them."""
        buffer, self.buffer = self.buffer, []
        weights = [update.weight / (1 + update.staleness) ** self.staleness_exponent for update in buffer]
        sizes = [update.examples for update in buffer]
        parts = [Part(update.client, update.change, weight) for update, weight in zip(buffer, weights, strict=True)]
        released = self.sum.release(self.server_model, self.calibrated(parts), self.buffer_size)
        self.server_model = self.stepped(buffer, released)
        merged(self.world.network, self.server, self.server_model)
        self.applied()
        self.round_num += 1
        with self.together():
            for update, size, std in zip(buffer, sizes, released.noise_std, strict=True):
                self.updated(
                    update.client, update.staleness, size, update.step_size, round_num=self.round_num - 1, noise_std=std
                )
        if self.waiting:
            for update in buffer:
                self._answer(update)
        self.admission.let_in()

    def calibrated(self, parts: list[Part]) -> list[Part]:
        """Return what is summed instead of the updates; by default the updates."""
        return parts

    def stepped(self, buffer: Sequence[Update], released: Released) -> Model:
        """Return w + eta_g / K * sum of s(tau) Delta."""
        del buffer
        before, factor = self.server_model, self.server_descent.factor(self.server_step) / released.total
        terms = [(factor * c, change) for c, change in released.terms]
        stepped = self.server_descent.by(before, terms, self.server_step)
        self.sum.shown(stepped, self.server_descent.known(before), factor)
        return stepped

    def version_after(self, updates: int) -> int:
        """Return the version after further updates; only a full buffer increases it."""
        return self.version + (len(self.buffer) + updates) // self.buffer_size
