"""m-synchronous SGD: a server waits for the first m of n clients in each step.

Chen, Pan, Monga, Bengio and Jozefowicz 2016, "Revisiting distributed synchronous SGD",
https://arxiv.org/abs/1604.00981, Algorithms 3 and 4, where n - m clients are backup workers; and "Do we need
asynchronous SGD? On the near-optimality of synchronous methods" 2026, https://arxiv.org/abs/2602.03802:

    client:   pull the model x^k, compute the gradient g of a mini-batch at x^k, push g, wait for x^{k+1}
    server:   with the first m gradients at x^k:  x^{k+1} = x^k - gamma / m * (their sum), sent to their clients
              discard gradients at older models, and send the present model to their clients

A client has at most one gradient in a step. So this is Rennala SGD with S = m whose clients wait after a gradient that
was accepted. With `late: stop` all clients start each step together. With fixed speeds a step lasts as long as the
m-th fastest client needs for a gradient, in both forms.

If clients have left and the others cannot fill a step, the server steps with the gradients that it has.

Faults: those of `simfl.algorithms.server`. The others wait for an unreachable client if they are fewer than m.
"""

from __future__ import annotations

from typing import ClassVar

import simpy

from simfl.algorithms.rennala import Rennala
from simfl.tape import Gradient, Model


class MSyncSGD(Rennala):
    """A server that takes one step for the first m clients that are done."""

    summary: ClassVar[str] = "m-synchronous SGD: each step waits for the first m clients, and ignores the stragglers"
    family: ClassVar[str] = "servers"
    who_waits: ClassVar[str] = "a client whose gradient was accepted waits for the first `wait_for` clients"
    what_travels: ClassVar[str] = (
        "gradients to the server, the model to clients; with `late: stop`, also to clients that should start again"
    )
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    kind: ClassVar[str] = "m_sync_sgd"
    answers_at_once: ClassVar[bool] = False

    def set_up(self, *, wait_for: int | None, late: str) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up(gradients_per_step=wait_for, late=late)
        self._waiting: list[tuple[int, simpy.Event, float]] = []

    def apply(
        self, client: int, gradient: Gradient, size: int, sent: Model | None, weight: float, staleness: int
    ) -> None:
        """Put a gradient into the batch; step if no other client can fill it."""
        super().apply(client, gradient, size, sent, weight, staleness)
        self._step_if_alone()

    def forget(self, client: int) -> None:
        """Stop expecting a gradient; step if no client is left to fill the batch."""
        super().forget(client)
        self._step_if_alone()

    def _step_if_alone(self) -> None:
        if self._batch and self.turns.idle:
            self.step()

    def hand_out(self, client: int, came: simpy.Event | None = None) -> simpy.Event:
        """Send a client the model, after the step that its gradient is part of."""
        if all(sender != client for sender, *_ in self._batch):
            return super().hand_out(client, came)
        arrived = self.clock.event() if came is None else came
        self._waiting.append((client, arrived, self.clock.now))
        return arrived

    def step(self) -> None:
        """Take the step, and send the new model to the clients that wait for it."""
        super().step()
        waiting, self._waiting = self._waiting, []
        for client, came, since in waiting:
            self.exchanges.waited(client, since)
            self.hand_out(client, came)
