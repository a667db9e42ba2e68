"""Ringleader ASGD: steps along a table with the mean gradients of all clients.

Maranjyan and Richtárik 2025, "Ringleader ASGD: the first asynchronous SGD with optimal time complexity under data
heterogeneity", https://arxiv.org/abs/2509.22860, Algorithm 1. Clients hold unlike data, and each counts alike,
whatever its speed. With b_i gradients of client i of n in the table, all at one model that it has read:

    gbar = 1/n sum_i (1/b_i sum of the gradients of client i)

    phase 1:   until every client has a gradient in the table: put each gradient into it;
               its client goes on at its own model
    phase 2:   the client that ended phase 1, then each other client at its next gradient, once each:
               put the gradient into the table, x <- x - gamma gbar, send x to this client
               gradients of clients that had their step go into the table of the next round; they go on at their model

So a round has n steps of the server, no gradient is wasted, and a gradient in the table is at most 2 n - 2 steps old.
For an eps-stationary point of functions with smoothness L on average and gradients of variance sigma^2 the paper takes
gamma = min(1 / (8 n L), eps B / (10 L sigma^2)), where B is the harmonic mean of the b_i. With random times of
computation it ends phase 1 only when B is large enough: `harmonic_batch`.

The server answers a gradient with its model, or with a message without size: go on. The staleness of a row of `updates`
is that of the gradient when it arrives; its step size is that of the next step. A client that has left takes its
gradients with it. For privacy, a gradient counts as released when it is sent.

Faults: those of `simfl.algorithms.server`. While a client is away or unreachable, the others send gradients, and the
server steps no more than once for each.
"""

from __future__ import annotations

from typing import Any, ClassVar

import simpy

from simfl.algorithms.async_sgd import AsyncSGD
from simfl.tape import Gradient, Model


class Ringleader(AsyncSGD):
    """A server whose steps are along the mean over clients, not over gradients."""

    summary: ClassVar[str] = "Ringleader ASGD: a server steps along a table of all clients' gradients, once for each"
    family: ClassVar[str] = "servers"
    who_waits: ClassVar[str] = "no client waits; the server waits for a gradient of every client"
    what_travels: ClassVar[str] = (
        "gradients to the server; the model to a client once per round, in between messages without size"
    )
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    kind: ClassVar[str] = "ringleader"
    answers_at_once: ClassVar[bool] = False
    combines_per_gradient = 2.0

    def set_up(self, *, harmonic_batch: float) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up(delays="world", delay_limit=None)
        self.harmonic_batch = harmonic_batch
        #: By client the mean of its gradients and their number, of this round and of the next one.
        self.table: dict[int, tuple[Model, int]] = {}
        self._next: dict[int, tuple[Model, int]] = {}
        #: Clients that had their step in this round; none in phase 1.
        self.stepped: set[int] = set()
        self._mean: Model | None = None
        self._goes_on: set[int] = set()
        self._content: dict[int, Any] = {}

    # -- the clients ---------------------------------------------------------------------------

    def gradient_at(self, me: int, content: Any) -> Gradient:
        """Promise the client's next gradient; keep the message, which it may go on from."""
        self._content[me] = content
        return super().gradient_at(me, content)

    def hand_out(self, client: int, came: simpy.Event | None = None) -> simpy.Event:
        """Send a client the model, or let it go on at its own."""
        if came is None or client not in self._goes_on:
            return super().hand_out(client, came)
        self._goes_on.discard(client)

        def refused() -> None:
            self.miss(client)
            came.succeed(None)

        self.to_client(client, lambda: came.succeed(self._content[client]), 0, refused)
        return came

    def leave(self, me: int) -> None:
        """Go on without the client and its gradients, now or when the server is back."""
        self.service.when_up(lambda: self._remove(me))

    # -- the server ----------------------------------------------------------------------------

    def apply(
        self, client: int, gradient: Gradient, size: int, sent: Model | None, weight: float, staleness: int
    ) -> None:
        """Put a gradient into the table, and step if the phase and the client allow it."""
        step_size, number, later = self.step_size(), self.round_num, client in self.stepped
        noise_std = self.noise_std_of(client, gradient)
        table = self._next if later else self.table
        before, count = table.get(client, (Model((), ()), 0))
        share = 1.0 / (count + 1)
        terms = self.descent.mean(gradient, share) if sent is None else ((share, sent),)
        mean = self.tape.settle(self.tape.combine((1.0 - share, before), *terms))
        table[client] = mean, count + 1
        if later or not (self.stepped or self._complete()):
            self._goes_on.add(client)
        else:
            self._step(client, before if count else None, step_size)
        self.updated(client, staleness, size, step_size, round_num=number, noise_std=noise_std)

    def _complete(self) -> bool:
        """Whether phase 1 is over."""
        count = len(self.table)
        if count < len(self._taking_part):
            return False
        inverses = sum(1.0 / gradients for _, gradients in self.table.values())
        return count >= (self.harmonic_batch - 1e-9) * inverses

    def _step(self, client: int, before: Model | None, step_size: float) -> None:
        """Take the step of a client whose entry in the table was `before`."""
        tape, share = self.tape, 1.0 / len(self.table)
        if self._mean is None or before is None:
            terms = [(share, mean) for mean, _ in self.table.values()]
        else:
            terms = [(1.0, self._mean), (share, self.table[client][0]), (-share, before)]
        self._mean = tape.settle(tape.apply(*terms))
        self.server_model = self.server_descent.along(self.server_model, ((1.0, self._mean),), step_size)
        self.stepped.add(client)
        self.applied()
        self.round_num += 1
        self._end_round()

    def _end_round(self) -> None:
        """Begin the next round if every client had its step."""
        if len(self.stepped) >= len(self._taking_part):
            self.table, self._next, self.stepped, self._mean = self._next, {}, set(), None

    def _remove(self, client: int) -> None:
        self._taking_part.discard(client)
        self.table.pop(client, None)
        self._next.pop(client, None)
        self.stepped.discard(client)
        self._mean = None
        if self.stepped:
            self._end_round()
