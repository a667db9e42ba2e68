"""ASGD: asynchronous SGD with a server; with noise on the gradients, AUDP.

Agarwal and Duchi 2011, "Distributed delayed stochastic optimization", https://arxiv.org/abs/1104.5525; Li, Yang, Ren
and Zhao 2019, "Asynchronous federated learning with differential privacy for edge intelligence",
https://arxiv.org/abs/1912.07902, Sections 3.2 and 5.1.

    client k:               pull the model x, compute the gradient g of a mini-batch at x     (takes time)
                            push g (clipped, with noise)                                      (takes time)
    server, one by one in   x <- x - gamma_t g, send x only to the client that sent g
    order of arrival:

All clients start with the initial model. A client that joins later, or is back online, requests the current model.

With `delays: cyclic` the server applies updates in turn, client 0, 1, ..., K - 1, 0, ..., and holds back those that
arrive out of turn. This gives the paper's simulated staleness, min(t - 1, K - 1) at the t-th update, at any speeds.
Clients that have left permanently, or have not joined, are skipped.

With `delay_limit: c` step sizes adapt to delays: an update of staleness tau has the step min(gamma_t, c / tau). This is
the form of Mishchenko, Bach, Even and Woodworth 2022, https://arxiv.org/abs/2206.07638, and of Koloskova, Stich and
Jaggi 2022, https://arxiv.org/abs/2206.08307, where c is a constant over the smoothness L.

For privacy, a gradient counts as released when it is sent to the server, whether or not it is applied.

Faults: those of `simfl.algorithms.server`. With `delays: cyclic` the server waits for an unreachable or crashed client
at its turn.
"""

from __future__ import annotations

from typing import Any, ClassVar

import simpy

from simfl.algorithms.cyclic import InTurn
from simfl.each import of_each
from simfl.tape import Gradient, Model


class AsyncSGD(InTurn):
    """A server that applies gradients as they arrive; no client waits for another."""

    summary: ClassVar[str] = "ASGD: a server applies each client's gradient as it arrives, and answers that client only"
    family: ClassVar[str] = "servers"
    who_waits: ClassVar[str] = "no client waits; with `delays: cyclic`, updates wait for their turn"
    what_travels: ClassVar[str] = "gradients to the server, the model to clients"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    kind: ClassVar[str] = "async_sgd"
    combines_per_gradient = 0.0
    #: Whether the server answers each gradient when it arrives.
    answers_at_once: ClassVar[bool] = True

    def set_up(self, *, delays: str, delay_limit: float | None) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up()
        self.delay_limit = delay_limit
        self.take_turns(delays == "cyclic")
        # Messages need no events if they take no time, clients are always online and no client ever waits.
        free = self.world.network.free and self.world.server.free
        self._at_once = self.answers_at_once and free and not self.turns.waits and not self.cyclic

    # -- the clients ---------------------------------------------------------------------------

    def gradient_at(self, me: int, content: Any) -> Gradient:
        """Promise the client's next gradient at the model in the server's message."""
        return self.batches.gradient(content[0], me)

    def push(self, me: int, gradient: Gradient, read: int) -> simpy.Event:
        """Send a gradient to the server, which applies it and answers with the model."""
        came, size = self.clock.event(), gradient.size
        self.tape.release(gradient)
        sent = self.channel.up(me, self.descent.mean(gradient))
        if self._at_once:
            network = self.world.network
            network.hand_over(me, self.server, self.channel.up_bytes, sent or gradient)
            staleness = self.version - read
            self.apply(me, gradient, size, sent, self.turns.weight(staleness), staleness)
            content = self.content(me)
            content = self.channel.down(me, content[0])[0], *content[1:]
            network.hand_over(self.server, me, self.channel.down_bytes, content[0])
            self.read(me)
            return came.succeed(content)

        def apply(weight: float, staleness: int) -> None:
            self.apply(me, gradient, size, sent, weight, staleness)
            self.hand_out(me, came)

        self.to_server(me, lambda: self.arrive(me, read, apply), content=sent or gradient)
        return came

    # -- the server ----------------------------------------------------------------------------

    def apply(
        self, client: int, gradient: Gradient, size: int, sent: Model | None, weight: float, staleness: int
    ) -> None:
        """Apply x <- x - gamma_t g, or drop g if its weight is 0.

        Args:
            client: the sender.
            gradient: the promise that it made.
            size: examples of the gradient.
            sent: what the server decodes of the mean gradient; None if it gets all of it.
            weight: factor on the step.
            staleness: updates applied since the read.
        """
        if weight == 0.0:
            self.client_dropped[client] += 1
            return
        step_size = weight * self.step_size()
        if self.delay_limit is not None:
            step_size = of_each(_limited, step_size, staleness, self.delay_limit)
        if sent is None:
            self.server_model = self.server_descent.step(self.server_model, gradient, step_size)
        else:
            self.server_model = self.server_descent.along(self.server_model, ((1.0, sent),), step_size)
        self.applied()
        self.updated(client, staleness, size, step_size, noise_std=self.noise_std_of(client, gradient))

    def noise_std_of(self, client: int, gradient: Gradient) -> float:
        """Return the standard deviation of the noise in a client's sum of gradients."""
        del gradient
        return self.batches.noise_std[client]


def _limited(step_size: float, staleness: int, limit: float) -> float:
    """Return a step whose product with the staleness is at most a limit."""
    return limit / staleness if step_size * staleness > limit else step_size
