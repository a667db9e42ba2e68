"""The base of DiLoCo in fragments: clients train on while fragments travel.

The model is cut into P fragments, blocks of about equal sizes. A client trains in turns of L mini-batches. It keeps its
own model x from turn to turn. After turn n it mixes in fragments that have come from the server, x_p <- alpha x_p +
(1 - alpha) X_p, and sends fragment n mod P of x. So a fragment is synchronized about once in H = P L mini-batches. The
server's step on a fragment is that of `simfl.tape.fragment_steps`.

Privacy: a client's change of each turn is clipped and noised as a whole, whether fragments of it are sent or not. All
else is a function of such changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from simfl.algorithms.local_rounds import LocalRounds
from simfl.tape import Model
from simfl.tape.fragment_steps import FragmentStep
from simfl.tape.fragments import Fragments
from simfl.tape.recording import Round


class Fragmented(LocalRounds):
    """Base of clients and a server that synchronize one fragment at a time."""

    def set_up(  # type: ignore[override]
        self,
        fragments: int = 8,
        server_step: float = 0.7,
        momentum: float = 0.9,
        averaging: str = "mean",
        local_share: float = 0.0,
        steps: Sequence[int] | None = None,
    ) -> None:
        """Take the options.

        Args:
            fragments: P; at most one for each parameter.
            server_step: lr.
            momentum: beta in [0, 1).
            averaging: "mean", or "radial" for the radial-directional mean.
            local_share: alpha in [0, 1).
            steps: L, mini-batches of a turn at each client, [K]; one each by default.
        """
        super().set_up(steps)
        size = len(self.training.initial)
        self.cut = Fragments.equal(size, fragments)
        self.outer = FragmentStep(self.cut, averaging == "radial")
        self.server_step, self.momentum = server_step, momentum
        self.local_share = local_share
        self._velocity = self.tape.constant(np.zeros(size, dtype=np.float32))
        #: The number of each client's turn.
        self.turn = [0] * self.num_clients
        #: Steps on each fragment, and those that each client knows of.
        self.stepped = [0] * self.cut.count
        self.known = [[0] * self.cut.count for _ in range(self.num_clients)]
        #: Fragments that have come to each client since its last turn.
        self.inbox: list[dict[int, Model]] = [{} for _ in range(self.num_clients)]

    def content(self, client: int) -> Any:
        """Return a message with the whole model."""
        self.inbox[client].clear()
        self.known[client] = list(self.stepped)
        return super().content(client)

    def finished(self, me: int, change: Round, read: int) -> Model:
        """Return the client's model after a turn, and record the update."""
        self.release(change)
        base, step_size, examples, staleness = change.model, change.step[0], change.all_examples, self.version - read
        model = self.tape.combine((1.0, base), (1.0, self.trained(change)))
        self.turn[me] += 1
        self.applied()
        self.updated(me, staleness, examples, step_size)
        return model

    def mixed(self, model: Model, arrived: dict[int, Model]) -> Model:
        """Return a client's model after it has mixed in fragments of the server."""
        alpha = self.local_share
        parts = [(1.0 - alpha, shared, fragment) for fragment, shared in arrived.items()]
        return self.cut.combine(self.tape, model, parts, dict.fromkeys(arrived, alpha))

    def report(self, me: int, fragment: int, model: Model, receive: Callable[[], None]) -> None:
        """Send a fragment of the client's model; `receive` is called at the server."""
        self.to_server(me, receive, self.cut.bytes(fragment), content=model)

    def leave(self, me: int) -> None:
        """Stop expecting the fragments of a client that has left."""
        self.forget(me)

    def merge(self, fragment: int, parts: Sequence[tuple[float, Model]]) -> None:
        """Take the server's step on a fragment; `parts` are weights and models."""
        self.server_model, self._velocity = self.outer.take(
            self.tape, self.server_model, self._velocity, parts, fragment, self.server_step, self.momentum
        )
        self.stepped[fragment] += 1

    def broadcast(self, fragment: int, clients: Iterable[int]) -> None:
        """Send a fragment to clients; an older one that arrives later is ignored."""
        shared, number = self.server_model, self.stepped[fragment]

        def arrived(client: int) -> None:
            if number > self.known[client][fragment]:
                self.known[client][fragment] = number
                self.inbox[client][fragment] = shared

        for client in sorted(clients):
            receive = functools.partial(arrived, client)
            self.to_client(client, receive, self.cut.bytes(fragment), lambda: None, shared)
