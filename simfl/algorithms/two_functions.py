"""Rounds in two functions: of a client on a model, of a server on updates.

A user's class has only these two, as in Flower or FedJAX:

    every round:  S = max(fraction K, 1) random clients that are online
                  each k in S receives w and sends  w_k = client_update(w, its data)
                  w <- aggregate(w, updates)          (by default the mean of w_k, weighted by examples)

A client's round takes the time of `local_steps` mini-batches, and `client_update` takes a gradient of each. The server
waits for all clients that have not left. A client that crashes begins again. Messages have the model's size.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from simfl.algorithms.base import Countdown
from simfl.algorithms.choosing import Selection
from simfl.algorithms.fedavg import Presence
from simfl.algorithms.server import ServerAlgorithm
from simfl.compiled import Number
from simfl.errors import RunError
from simfl.scenario.fields import Count, Share
from simfl.tape.recording import Gradient, Model
from simfl.world.availability import CRASHED, GONE
from simfl.world.engine import Process


class ClientUpdate(NamedTuple):
    """What a client sent: its model, and the number of its examples."""

    client: int
    model: Model
    examples: int


class ClientData:
    """A client's examples, for one round; `examples` is their number."""

    def __init__(self, algorithm: RoundAlgorithm, client: int) -> None:
        self.client, self.steps, self.step_size = client, algorithm.local_steps, algorithm.step_size()
        self.examples, self.taken = int(algorithm.training.sizes[client]), 0
        self._batches, self._descent = algorithm.batches, algorithm.descent

    def gradient(self, model: Model) -> Gradient:
        """Promise the gradient of the next mini-batch at a model."""
        self.taken += 1
        return self._batches.gradient(model, self.client)

    def step(self, model: Model) -> Model:
        """Return the model after a step along the gradient of the next mini-batch."""
        return self._descent.step(self.client, model, self.gradient(model), self.step_size)


class RoundAlgorithm(ServerAlgorithm):
    """Base of your own algorithm in rounds.

    Write `client_update`, and `aggregate` where the mean is not enough.
    """

    #: Whether `selection` chooses the clients that take part.
    selects: ClassVar[bool] = True

    def set_up(self, *, fraction: Share = 1.0, local_steps: Count = 1) -> None:
        """Take the share of the clients in a round, and the mini-batches of each."""
        super().set_up()
        self.fraction, self.local_steps = fraction, local_steps
        self._present = Presence(self)
        self.selection = Selection(self, [local_steps] * self.num_clients)

    @abstractmethod
    def client_update(self, model: Model, data: ClientData) -> Model:
        """Return the model that a client sends back; take `data.steps` gradients."""

    def aggregate(self, model: Model, updates: Sequence[ClientUpdate]) -> Model:
        """Return the server's next model; `updates`, at least one, are by client."""
        total = sum(update.examples for update in updates)
        return self.tape.combine(*((update.examples / total, update.model) for update in updates))

    def start(self) -> None:
        """Start the server."""
        self.clock.start(self._rounds())

    def _rounds(self) -> Process:
        clients = range(self.num_clients)
        size = max(1, math.ceil(self.fraction * self.num_clients - 1e-9))
        while (yield from self.service.until_up()):
            free = self._present.free(clients)
            if free:
                yield from self._round(self.admission.choose(free, size, self.selection))
            elif (coming := self._present.coming(clients)) is None:
                return  # all clients have left or spent their privacy budgets
            else:
                yield coming

    def _round(self, cohort: list[int]) -> Process:
        came: dict[int, Model] = {}
        this, model, step_size = Countdown(self.clock.event(), len(cohort)), self.server_model, self.step_size()
        for client in cohort:
            self._ask(client, model, this, came)
        yield this.event
        if not came or not (yield from self.service.until_up()):
            return
        sizes = self.training.sizes
        self.server_model = self.aggregate(model, [ClientUpdate(k, came[k], int(sizes[k])) for k in sorted(came)])
        self.round_num += 1
        with self.together():
            for client in sorted(came):
                self.applied()
                size = self.local_steps * self.batches.sizes[client]
                self.updated(client, 0, size, step_size, round_num=self.round_num - 1)

    def _ask(self, client: int, model: Model, this: Countdown, came: dict[int, Model]) -> None:
        began_s = self.clock.now

        def begin() -> None:
            self.clock.start(self._client(client, model, this, came, began_s), client)

        if self.clock.now == 0.0 and self.round_num == 0:  # all clients have the initial model
            begin()
        else:
            self.to_client(client, begin, None, this.tick, model)

    def _client(self, me: int, model: Model, this: Countdown, came: dict[int, Model], began_s: Number) -> Process:
        self.exchanges.communicated(me, self.times.present_s(me, began_s, self.clock.now))
        outcome = CRASHED
        while outcome is CRASHED:
            outcome = yield self.compute(me, self.local_steps * self.batches.sizes[me])
        if outcome is GONE:
            this.tick()
            return
        data, draw = ClientData(self, me), self.batches.draws[me]
        report = self.selection.report(me, model, draw, self.local_steps)
        made, sent_s = self.client_update(model, data), self.clock.now
        if data.taken != self.local_steps:
            name = f"{type(self).__name__}.client_update"
            raise RunError(
                f"{name}: expected a gradient of each of the {self.local_steps} mini-batches of a round, found "
                f"{data.taken}; take data.steps of them, or set local_steps"
            )

        def arrived() -> None:
            self.exchanges.communicated(me, self.times.present_s(me, sent_s, self.clock.now))
            came[me] = made
            report()
            this.tick()

        self.to_server(me, arrived, content=made)
