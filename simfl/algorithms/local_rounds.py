"""What FedAsync and FedBuff share: clients that train on their own for many steps, and a server that takes what comes.

    client k:  wait for the model w and its version; w_0 = w
               w_{h+1} = w_h - eta * (mean gradient of a mini-batch at w_h + mu (w_h - w_0)),  h = 0 ... H - 1
               send the update w_H - w_0

A round is one operation on the tape. The server may let only so many clients train at a time: whoever is done makes
room for one of those that wait, chosen at random (`concurrency`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import simpy

from simfl.algorithms.server import ServerAlgorithm
from simfl.tape.recording import Round
from simfl.world.availability import Outcome
from simfl.world.compute import Draws
from simfl.world.engine import Process


@dataclass
class Update:
    """A client's update as it reaches the server.

    Attributes:
        client: whose.
        change: the promised change of the model it began with, `change.model`.
        step_size: of its local steps.
        weight: what the bound on the staleness makes of it; 0 for an update that is dropped.
        staleness: steps of the server between the read and now.
        came: happens when the client gets the next model.
        taken_s: now.
    """

    client: int
    change: Round
    step_size: float
    weight: float
    staleness: int
    came: simpy.Event
    taken_s: float


class LocalRounds(ServerAlgorithm):
    """Base of algorithms whose clients send updates of many local steps; a subclass says what `take` does with one."""

    combines_per_gradient = 0.0

    def set_up(self, steps: Sequence[int] | None = None, concurrency: int | None = None) -> None:
        """Take the options.

        Args:
            steps: mini-batches of a round at each client, [K]; one each by default.
            concurrency: clients that train at a time; None for all.
        """
        super().set_up()
        self.steps = [1] * self.num_clients if steps is None else list(steps)
        self.concurrency = self.num_clients if concurrency is None else concurrency
        #: Updates that clients sent so far.
        self.sent = 0
        self._training: set[int] = set()
        self._ready: dict[int, Callable[[], None]] = {}
        self._choosing = False
        self._choice = Draws(self.world.streams, "cohort", lambda g, n: g.random(n))

    @property
    def chains(self) -> int:
        """So many rounds are under way at a time."""
        return min(self.concurrency, self.num_clients)

    def start(self) -> None:
        """Start the clients."""
        for client in range(self.num_clients):
            self.clock.start(self.client(client), client)

    # -- the clients ---------------------------------------------------------------------------

    def client(self, me: int) -> Process:
        """Wait for the model, train, send."""
        yield self.joined(me)
        came = self.hand_out(me) if self.clock.now == 0.0 else self.request(me)
        while True:
            since = self.clock.now
            content = yield came
            del came  # a suspended process would keep it, and the model in it, alive
            self.exchanged(me, since)
            if content is None:  # I was away when it came
                if not (yield from self.until_back(me)):
                    return
                came = self.request(me)
                continue
            model, read = content
            step_size = self.step_size()
            change = self.train(model, me, self.steps[me], (step_size, 0.0, 0.0, 0.0))
            del content, model
            outcome = yield self.compute(me, self.steps[me] * self._nominal)
            if outcome is Outcome.DONE:
                came = self.send(me, change, step_size, read)
                del change
                continue
            self.lost(change)
            del change
            self.miss(me)
            if outcome is Outcome.GONE:
                return
            came = self.request(me)

    def send(self, me: int, change: Round, step_size: float, read: int) -> simpy.Event:
        """Send an update to the server; returns the event that happens when the next model has come."""
        came = self.clock.event()
        self.sent += 1
        self.release(change)

        def apply(weight: float, staleness: int) -> None:
            self.take(Update(me, change, step_size, weight, staleness, came, self.clock.now))

        self.to_server(me, lambda: self.arrive(me, read, apply), content=change)
        return came

    def release(self, change: Round) -> None:
        """Note that an update is on its way: it is released, whether the server uses it or not."""
        self.tape.release(change)

    # -- the server ----------------------------------------------------------------------------

    def take(self, update: Update) -> None:
        """Do with an update what the algorithm does, and hand out the model again."""
        raise NotImplementedError

    def drop(self, update: Update) -> None:
        """Throw an update away; its client goes on from the present model."""
        self.client_dropped[update.client] += 1
        self.hand_out(update.client, update.came)

    def hand_out(self, client: int, came: simpy.Event | None = None) -> simpy.Event:
        """Send a client the model as soon as it is chosen, and may read it."""
        self._training.discard(client)
        if self.concurrency >= self.num_clients:
            return super().hand_out(client, came)
        arrived, since = self.clock.event() if came is None else came, self.clock.now
        self._ready[client] = lambda: self._hand_out_now(client, arrived, since)
        self._choose_soon()
        return arrived

    def _hand_out_now(self, client: int, arrived: simpy.Event, since: float) -> None:
        self._wait(client, since)
        super().hand_out(client, arrived)

    def forget(self, client: int) -> None:
        """The client's update will not come; somebody else may train."""
        self._training.discard(client)
        if self._ready:
            self._choose_soon()
        super().forget(client)

    def _choose_soon(self) -> None:
        """Choose behind all that happens at this time: those who get ready together have equal chances."""
        if not self._choosing:
            self._choosing = True
            self.clock.call_at(self.clock.now, self._choose)

    def _choose(self) -> None:
        self._choosing = False
        online, now = self.world.availability.online, self.clock.now
        while self._ready and len(self._training) < self.concurrency:
            there = list(self._ready) if self._trivial else [k for k in self._ready if online(k, now)]
            there = there or list(self._ready)  # a message to one that is away is refused, and then it is known
            client = there[int(self._choice.next(0) * len(there))]
            self._training.add(client)
            self._ready.pop(client)()
