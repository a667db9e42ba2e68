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

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from mypy_extensions import mypyc_attr

from simfl.algorithms.aggregation import Message
from simfl.algorithms.local_rounds import LocalRounds, Update
from simfl.algorithms.staleness import Apply
from simfl.compiled import Integer, Number
from simfl.robust.base import Among
from simfl.tape.recording import Model, Round
from simfl.world.engine import Process


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
    aggregates: ClassVar[frozenset[Among]] = frozenset({"many"})
    #: Whether a client that does not wait gets the model before the step that its update completes.
    answers_first: ClassVar[bool] = False

    def set_up(  # type: ignore[override]
        self,
        buffer_size: int = 10,
        server_step: Number = 1.0,
        staleness_exponent: Number = 0.5,
        after_update: str = "continue",
        noise: str = "client",
        steps: Sequence[int] | None = None,
        concurrency: Integer | None = None,
    ) -> None:
        """Take the options.

        Args:
            buffer_size: K, the number of updates per step.
            server_step: eta_g, the server's step size.
            staleness_exponent: a in s(tau) = 1 / (1 + tau)^a.
            after_update: "continue": a client gets the current model at once; "wait": after the server's step.
            noise: who adds the noise, "client" or "server".
            steps, concurrency: see `LocalRounds`.
        """
        self.buffer_size = buffer_size
        self.server_step = server_step
        self.staleness_exponent = staleness_exponent
        self.waiting = after_update == "wait"
        self.buffer: list[Update] = []
        #: Arrivals during a secure sum; None if there is none under way.
        self._held: list[tuple[int, int, Apply]] | None = None
        super().set_up(steps, concurrency)
        self.aggregation = self.aggregator(self.num_clients)
        #: Scale of the server's noise on the sum of a buffer; None if clients add noise.
        self.server_noise: Number | None = None
        if noise == "server":
            self.server_noise = self._noise_scale[0]
            self._noise_scale = self._noise_std = [0.0] * self.num_clients
        self._shares: Counter[int] = Counter()

    # -- the server ----------------------------------------------------------------------------

    def take(self, update: Update) -> None:
        """Put an update into the buffer, and take a step when it is full."""
        cohorts = self.cohorts
        if update.weight == 0.0:
            self.drop(update)
            return
        if self._turned_away(update):
            return
        answered = self.answers_first and not (self.waiting or self.turns.waits)
        if answered:
            self.hand_out(update.client, update.came)
        self.buffer.append(update)
        self._shares[update.client] += 1
        if cohorts is not None:
            cohorts.join(update.client)
        if len(self.buffer) == self.buffer_size:
            self.step_or_sum()
        elif self.waiting:
            self._step_if_alone()
        if not (self.waiting or answered):
            self.hand_out(update.client, update.came)
            if self._gated:
                self._step_if_alone()

    @property
    def _gated(self) -> bool:
        """Whether users may wait at a gate, so that none may be left to fill the buffer."""
        return self.cohorts is not None and self.cohorts.plan.gate is not None

    def forget(self, client: int) -> None:
        """Stop expecting an update; step if no client is left to fill the buffer."""
        super().forget(client)
        if self.waiting or self._gated:
            self._step_if_alone()

    def _step_if_alone(self) -> None:
        if self.buffer and self._held is None and self.turns.idle and not self._ready:
            self.step_or_sum()

    def step_or_sum(self) -> None:
        """Take the step with the buffer, as soon as its sum is known."""
        if self.secure is None:
            self.step()
        else:
            self._held = []
            self.clock.start(self._sum_securely())

    def _sum_securely(self) -> Process:
        """Step with a secure sum of the buffer, or drop it; then take what came meanwhile."""
        assert self.secure is not None
        changes = {update.client: update.change for update in self.buffer}
        if (yield from self.secure.recover([update.number for update in self.buffer], changes)):
            self.step()
        else:
            buffer, self.buffer = self.buffer, []
            if self.cohorts is not None:
                self.cohorts.aborted(self.secure)
            self._shares.clear()
            for update in buffer:
                self.client_dropped[update.client] += 1
                if self.waiting and not self.secure.hopeless(range(self.num_clients)):
                    self._wait(update.client, update.taken_s)
                    self.hand_out(update.client, update.came)
            if self.cohorts is not None:
                self.cohorts.let_in()
        held, self._held = self._held or [], None
        for arrival in held:
            self.arrive(*arrival)

    def arrive(self, client: int, read: int, apply: Apply) -> None:
        """Take an update, after the secure sum under way."""
        if self._held is None:
            super().arrive(client, read, apply)
        else:
            self._held.append((client, read, apply))

    def step(self) -> None:
        """Take the step with all updates in the buffer, and record them."""
        buffer, self.buffer = self.buffer, []
        weights = [update.weight / (1 + update.staleness) ** self.staleness_exponent for update in buffer]
        noise_std = [self._noise_std[update.client] for update in buffer]
        self._shares.clear()
        if self.server_noise is not None:
            noise_std[-1] = self.server_noise
        sizes = [update.examples for update in buffer]
        self.server_model = self.stepped(buffer, weights)
        if self.cohorts is not None:
            noise_std[-1] = self.cohorts.noise_std(len(buffer))
        self.merged(self.server, self.server_model)
        self.applied()
        self.round_num += 1
        with self.together():
            for update, size, std in zip(buffer, sizes, noise_std, strict=True):
                self.updated(
                    update.client, update.staleness, size, update.step_size, round_num=self.round_num - 1, noise_std=std
                )
        if self.waiting:
            for update in buffer:
                self._wait(update.client, update.taken_s)
                self.hand_out(update.client, update.came)
        if self.cohorts is not None:
            self.cohorts.let_in()

    def stepped(self, buffer: Sequence[Update], weights: Sequence[Number]) -> Model:
        """Return w + eta_g / K * sum of s(tau) Delta, with the server's noise."""
        terms: Sequence[tuple[Number, Any]] = [
            (weight, update.change) for weight, update in zip(weights, buffer, strict=True)
        ]
        count = len(buffer)
        if self.cohorts is not None:
            count, terms = self.buffer_size, self.cohorts.noised(self.server_model, terms)
        if self.server_optimizer is None and self.aggregation is None:
            stepped = self._added(self.server_model, self.server_step / count, terms)
            if self.cohorts is not None:
                self.cohorts.shown(stepped, ((1.0, self.server_model),), self.server_step / count)
            return stepped
        if self.aggregation is not None:
            mean = self._aggregate(buffer, weights)
        else:
            mean = self._added(self.tape.combine(), 1.0 / count, terms)
        if self.server_optimizer is None:
            return self.tape.apply((1.0, self.server_model), (self.server_step, mean))
        # minus the mean change serves as the gradient
        return self.server_optimizer.step(0, self.server_model, ((-1.0, mean),), self.server_step)

    def _aggregate(self, buffer: Sequence[Update], weights: Sequence[Number]) -> Model:
        """Return what the rule makes of the weighted changes s(tau) Delta."""
        assert self.aggregation is not None
        changes = [
            Message(update.client, self.tape.combine((weight, update.change)), 1.0 / len(buffer))
            for update, weight in sorted(zip(buffer, weights, strict=True), key=lambda one: one[0].client)
        ]
        return self.aggregation(self.server, changes)

    def _added(self, base: Model, scale: Number, terms: Sequence[tuple[Number, Any]]) -> Model:
        """Return base + scale * (sum of the terms, with the server's noise)."""
        if self.server_noise is None:
            return self.tape.apply((1.0, base), *((scale * c, change) for c, change in terms))
        return self.tape.apply_with_noise(base, scale, terms, self.server_noise)

    def version_after(self, updates: int) -> int:
        """Return the version after further updates; only a full buffer increases it."""
        return self.version + (len(self.buffer) + updates) // self.buffer_size

    # -- privacy -------------------------------------------------------------------------------

    def release(self, change: Round) -> None:
        """Count the release now, unless the server adds noise to the buffer's sum."""
        if self.server_noise is None:
            super().release(change)

    def exhausted(self, client: Integer) -> bool:
        """Whether another update, possibly in this buffer, would exceed the budget."""
        if self._allowances is None or self.server_noise is None:
            return super().exhausted(client)
        if self.releases.counts[client] + (self._shares[client] + 1) ** 2 <= self._allowances[client]:
            return False
        self.exhausted_s.setdefault(client, self.clock.now)
        return True
