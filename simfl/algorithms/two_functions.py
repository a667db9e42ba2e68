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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from simfl.algorithms.base import Countdown
from simfl.algorithms.batches import Batches
from simfl.algorithms.choosing import Selection
from simfl.algorithms.fedavg import Presence
from simfl.algorithms.server import ServerAlgorithm
from simfl.compiled import Integer, Number
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


class LocalBatches(Batches):
    """Promises gradients on a tape of rounds: a gradient is a round of one step."""

    def gradient(self, model: Model, client: Integer) -> Gradient:
        """Promise the client's next mini-batch gradient at `model`: a sum."""
        return self.train(model, client, 1, (-self.sizes[client], 0.0, 0.0, 0.0, 0.0, 0.0))


class ClientData:
    """A client's examples, for one round of `steps` mini-batches."""

    __slots__ = ("_algorithm", "client", "step_size", "steps", "taken")

    def __init__(self, algorithm: RoundAlgorithm, client: int, steps: int, step_size: Number) -> None:
        self._algorithm, self.client, self.steps, self.step_size = algorithm, client, steps, step_size
        self.taken = 0

    @property
    def examples(self) -> int:
        """The number of the client's examples."""
        return self._algorithm.examples[self.client]

    def train(
        self,
        model: Model,
        steps: int | None = None,
        step_size: Number | None = None,
        *,
        decay: Number = 0.0,
        proximal: Number = 0.0,
        correction: Model | None = None,
    ) -> Model:
        """Return the model after local steps: one operation where none has noise.

        Step h = 0, 1, ... is w <- w - step_size / (1 + decay h) (gradient at w + proximal (w - model) + correction).

        Args:
            model: the one to begin with.
            steps: their number; None: all that are left of the round.
            step_size: None: that of the scenario.
            decay, proximal: at least 0.
            correction: is added to each gradient; None for nothing.
        """
        steps = self.steps - self.taken if steps is None else steps
        rate, algorithm = self.step_size if step_size is None else step_size, self._algorithm
        if algorithm.tape.local and (correction is None or algorithm.tape.corrected):
            self.taken += steps
            numbers = rate, decay, 0.0, 1.0, proximal, algorithm.training.l2
            change = algorithm.batches.train(model, self.client, steps, numbers, correction)
            return algorithm.tape.step(model, 1.0, change)
        start, further = model, [] if correction is None else [(1.0, correction)]
        for h in range(steps):
            pull = [(proximal, model), (-proximal, start)] if proximal else []
            terms = [*algorithm.descent.mean(self.gradient(model)), *pull, *further]
            model = algorithm.descent.along(self.client, model, terms, rate / (decay * h + 1.0))
        return model

    def gradient(self, model: Model) -> Gradient:
        """Promise the gradient of the next mini-batch at a model."""
        self.taken += 1
        return self._algorithm.batches.gradient(model, self.client)

    def step(self, model: Model) -> Model:
        """Return the model after a step along the gradient of the next mini-batch."""
        return self._algorithm.descent.step(self.client, model, self.gradient(model), self.step_size)


class RoundAlgorithm(ServerAlgorithm):
    """Base of your own algorithm in rounds.

    Write `client_update`, and `aggregate` where the mean is not enough.
    """

    #: Whether `selection` chooses the clients that take part.
    selects: ClassVar[bool] = True
    #: Whether rounds of local steps are operations of their own, where no step has noise or an optimizer.
    plays_rounds: ClassVar[bool] = True
    combines_per_gradient: ClassVar[float] = 0.3

    def set_up(self, *, fraction: Share = 1.0, local_steps: Count = 1) -> None:
        """Take the share of the clients in a round, and the mini-batches of each."""
        super().set_up()
        self.fraction, self.local_steps = fraction, local_steps
        #: The number of each client's examples.
        self.examples: list[int] = self.training.sizes.tolist()
        if self.tape.local:
            self.batches = LocalBatches(self.tape, self.training, self.world.streams, self.descent)
        self._present = Presence(self)
        self.selection = Selection(self, [local_steps] * self.num_clients)

    def steps(self, client: int) -> int:
        """Return the number of mini-batches of a round of the client that begins now."""
        del client
        return self.local_steps

    def client_update(self, model: Model, data: ClientData) -> Model:
        """Return the model that a client sends back; take `data.steps` gradients."""
        return data.train(model)

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
        this = _UnderWay(
            Countdown(self.clock.event(), len(cohort)), self.server_model, self.step_size(), self.clock.now
        )
        for client in cohort:
            self._ask(client, this)
        yield this.left.event
        if not this.came or not (yield from self.service.until_up()):
            return
        updates = [this.came[client] for client in sorted(this.came)]
        self.server_model = self.aggregate(this.model, updates)
        self.round_num += 1
        with self.together():
            for client, _, _ in updates:
                self.applied()
                self.updated(client, 0, this.sizes[client], this.step_size, round_num=self.round_num - 1)

    def _ask(self, client: int, this: _UnderWay) -> None:
        def begin() -> None:
            self.clock.start(self._client(client, this), client)

        if self.clock.now == 0.0 and self.round_num == 0:  # all clients have the initial model
            begin()
        else:
            self.to_client(client, begin, None, this.left.tick, this.model)

    def _client(self, me: int, this: _UnderWay) -> Process:
        self.exchanges.communicated(me, self.times.present_s(me, this.began_s, self.clock.now))
        outcome, steps = CRASHED, self.steps(me)
        size = steps * self.batches.sizes[me]
        while outcome is CRASHED:
            outcome = yield self.compute(me, size)
        if outcome is GONE:
            this.left.tick()
            return
        model, data = this.model, ClientData(self, me, steps, this.step_size)
        report = self.selection.report(me, model, self.batches.draws[me], steps)
        made, sent_s = self.client_update(model, data), self.clock.now
        if data.taken != steps:
            name = f"{type(self).__name__}.client_update"
            raise RunError(
                f"{name}: expected a gradient of each of the {steps} mini-batches of a round, found {data.taken}; take "
                "data.steps of them, or write `steps`"
            )

        def arrived() -> None:
            self.exchanges.communicated(me, self.times.present_s(me, sent_s, self.clock.now))
            this.came[me], this.sizes[me] = ClientUpdate(me, made, self.examples[me]), size
            report()
            this.left.tick()

        self.to_server(me, arrived, content=made)


@dataclass
class _UnderWay:
    """A round: whom it waits for, its model and beginning, and what came."""

    left: Countdown
    model: Model
    step_size: Number
    began_s: Number
    came: dict[int, ClientUpdate] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
