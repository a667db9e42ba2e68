"""MindFlayer SGD: clients give up computations that take too long and try again.

Maranjyan, Shaikh Omar and Richtárik 2025, "MindFlayer SGD: efficient parallel SGD in the presence of heterogeneous and
random worker compute times", https://arxiv.org/abs/2410.04285, Algorithm 1. With heavy-tailed times of computation, one
that has taken long will often take much longer: the time that is left grows with the time spent.

    client i:  take the model x^k; B times:  compute the gradient g of a mini-batch at x^k for at most the time t_i
                                             push g if it is done, else give it up
    server:    with all B trials of all clients:  x^{k+1} = x^k - gamma / D * (sum of the gradients), send it to them

The paper has a number of trials B_i for each client, and D = sum of p_i B_i, where p_i is the probability that client i
completes a trial. Here B is the same for all clients, t_i is `trial_factor` times the client's own usual time of a
mini-batch, without jitter, slowdowns and traces, and p is `completed`. Without `completed`, D is the number of
gradients that came. After a step without a gradient, all clients try again at the same model.

A client that has made its last trial without success says so by a message without size. A gradient that comes after its
step, because it was lost and sent again, is discarded.

For privacy, only gradients that are pushed are releases. If the data is shuffled, the mini-batch of a computation that
was given up is the client's next one.

Faults: those of `simfl.algorithms.server`. A client that crashes makes its trials anew; the others wait for it, but not
while it is away. They wait for an unreachable client.
"""

from __future__ import annotations

from typing import Any, ClassVar

import simpy

from simfl.algorithms.rennala import Rennala
from simfl.errors import RunError
from simfl.tape import Gradient

#: With more steps in a row without a gradient than this, no client will ever complete a trial.
MOST_EMPTY = 10_000


class MindFlayer(Rennala):
    """A server that steps when all clients have made their trials of a gradient."""

    summary: ClassVar[str] = "MindFlayer SGD: clients give up gradients that take too long; a step per number of trials"
    family: ClassVar[str] = "servers"
    who_waits: ClassVar[str] = "every client waits until all have made their trials, each of a limited time"
    what_travels: ClassVar[str] = "gradients to the server, the model to clients"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    kind: ClassVar[str] = "mindflayer"
    answers_at_once: ClassVar[bool] = False

    def set_up(self, *, trials: int, trial_factor: float, completed: float | None) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up(gradients_per_step=None, late="drop")
        self.trials = trials
        self.completed = completed
        usual = self.world.compute.usual
        self.trial_s = [trial_factor * usual(k, self.batches.sizes[k]) for k in range(self.num_clients)]
        self._made = [0] * self.num_clients
        self._given_up = [False] * self.num_clients
        self._waiting: list[tuple[int, simpy.Event, float]] = []
        self._empty = 0

    def version_after(self, updates: int) -> int:
        """Return the present version: no single gradient increases it."""
        del updates
        return self.version

    # -- the clients ---------------------------------------------------------------------------

    def read(self, client: int) -> int:
        """Note a read, and that the client has made no trial at this model."""
        self._made[client] = 0
        return super().read(client)

    def compute_for(self, client: int, seconds: float) -> simpy.Event:
        """Let the client compute for `seconds`, or until it gives up."""
        self._given_up[client] = seconds > self.trial_s[client]
        return super().compute_for(client, min(seconds, self.trial_s[client]))

    def push(self, me: int, gradient: Gradient, read: int) -> simpy.Event:
        """Send a gradient, or give it up; after the last trial, the server answers."""
        came, content, size = self.clock.event(), (gradient.model, read), gradient.size
        self._made[me] += 1
        last = self._made[me] == self.trials
        message: dict[str, Any] = {"size": 0}
        entry = None
        if self._given_up[me]:
            self.times.stopped(me)
            self.batches.lost(gradient)
        else:
            self.tape.release(gradient)
            sent = self.channel.up(me, self.descent.mean(gradient))
            entry = me, size, self.noise_std_of(me, gradient), sent or gradient
            message = {"content": sent or gradient}

        def arrived() -> None:
            if entry is not None and read == self.version:
                self._batch.append(entry)
            elif entry is not None:
                self.client_dropped[me] += 1
            if last:
                self._waiting.append((me, came, self.clock.now))
                self.forget(me)

        if entry is not None or last:
            self.to_server(me, arrived, **message)
        return came if last else came.succeed(content)

    # -- the server ----------------------------------------------------------------------------

    def forget(self, client: int) -> None:
        """Stop expecting trials of a client; step if all others have made theirs."""
        super().forget(client)
        if self._waiting and self.turns.idle:
            self.step()

    def divisor(self, gradients: int) -> float:
        """Return D, p times the number of trials or the number of gradients."""
        return gradients if self.completed is None else self.completed * self.trials * len(self._waiting)

    def step(self) -> None:
        """Take the step if there is a gradient, and send the model to all clients."""
        self._empty = 0 if self._batch else self._empty + 1
        if self._empty > MOST_EMPTY:
            raise RunError(f"algorithm.trial_factor: no client completed a trial in {MOST_EMPTY} steps; raise it")
        if self._batch:
            super().step()
        waiting, self._waiting = self._waiting, []
        for client, came, since in waiting:
            self.exchanges.waited(client, since)
            self.hand_out(client, came)
