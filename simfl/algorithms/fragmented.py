"""The base of DiLoCo in fragments: clients train on while fragments travel.

The model is cut into P fragments. A client trains in turns of L mini-batches. It keeps its own model x from turn to
turn. After turn n it mixes in fragments that have come from the server, x_p <- alpha x_p + (1 - alpha) X_p, and sends
fragment n mod P of x. So a fragment is synchronized about once in H = P L mini-batches. The server's step on a fragment
is that of `simfl.tape.fragment_steps`.

Each fragment has a version at the server, the number of steps on it. The staleness of a turn counts those steps on the
fragment that it sends which the client's model did not contain when the turn began.

Privacy: a client's change of each turn is clipped and noised as a whole, whether fragments of it are sent or not. All
else is a function of such changes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from simfl.algorithms.local_rounds import LocalRounds
from simfl.tape import Model
from simfl.tape.fragment_steps import FragmentStep
from simfl.tape.fragments import Fragments
from simfl.tape.recording import Round

#: A version of a fragment, and a model that it is cut from.
Fragment: TypeAlias = tuple[int, Model]


class Fragmented(LocalRounds):
    """Base of clients and a server that synchronize one fragment at a time."""

    def set_up(  # type: ignore[override]
        self,
        *,
        fragments: int,
        server_step: float,
        momentum: float,
        local_share: float,
        steps: Sequence[int] | None = None,
    ) -> None:
        """Take the options.

        Args:
            steps: L, mini-batches of a turn at each client, [K]; one each by default.
        """
        super().set_up(steps=steps)
        self.cut = self.cut_into(fragments)
        self.outer = FragmentStep(self.cut)
        self.server_step, self.momentum = server_step, momentum
        self.local_share = local_share
        self._velocity = self.tape.constant(np.zeros(len(self.training.initial), dtype=np.float32))
        #: The number of each client's turn.
        self.turn = [0] * self.num_clients
        #: The version of each fragment, and that in each client's model.
        self.stepped = [0] * self.cut.count
        self.held = [[0] * self.cut.count for _ in range(self.num_clients)]

    def cut_into(self, fragments: int) -> Fragments:
        """Return fragments of about equal sizes, blocks of coordinates."""
        return Fragments.equal(len(self.training.initial), fragments)

    def start(self) -> None:
        """Start the clients, and forget those that leave while they wait."""
        super().start()
        for client in range(self.num_clients):
            leaves_s = math.inf if self._trivial else self.world.availability.leaves_s(client)
            if not math.isinf(leaves_s):
                self.clock.call_at(leaves_s, functools.partial(self.leave, client))

    def content(self, client: int) -> Any:
        """Return a message with the whole model."""
        self.held[client] = list(self.stepped)
        return super().content(client)

    def finished(self, me: int, change: Round, fragment: int | None) -> Model:
        """Return the client's model after a turn, and record the update.

        The turn sends the fragment, or nothing if that is None.
        """
        self.release(change)
        staleness = 0 if fragment is None else self.stepped[fragment] - self.held[me][fragment]
        base, step_size, examples = change.model, change.step[0], change.all_examples
        model = self.tape.combine((1.0, base), (1.0, self.descent.trained(change)))
        self.turn[me] += 1
        self.updated(me, staleness, examples, step_size)
        return model

    def mixed(self, me: int, model: Model, arrived: Mapping[int, Fragment]) -> Model:
        """Return a client's model after it has mixed in fragments of the server."""
        alpha = self.local_share
        parts = [(1.0 - alpha, shared, fragment) for fragment, (_, shared) in arrived.items()]
        for fragment, (version, _) in arrived.items():
            self.held[me][fragment] = version
        return self.cut.combine(self.tape, model, parts, dict.fromkeys(arrived, alpha))

    def report(self, me: int, fragment: int, model: Model, receive: Callable[[], None]) -> None:
        """Send a fragment of the client's model; `receive` is called at the server."""
        self.to_server(me, receive, self.cut.bytes(fragment), content=model)

    def leave(self, me: int) -> None:
        """Stop expecting the fragments of a client that has left."""
        self.miss(me)

    def merge(self, fragment: int, parts: Sequence[tuple[float, Model]]) -> None:
        """Take the server's step on a fragment; `parts` are weights and models."""
        self.server_model, self._velocity = self.outer.take(
            self.tape, self.server_model, self._velocity, parts, fragment, self.server_step, self.momentum
        )
        self.stepped[fragment] += 1
        self.applied()
