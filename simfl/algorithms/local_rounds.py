"""The base of FedAsync and FedBuff: local training, and updates taken one by one.

    client k:  wait for the model w and its version; w_0 = w
               w_{h+1} = w_h - eta * (mean gradient of a mini-batch at w_h + mu (w_h - w_0)),  h = 0 ... H - 1
               send the update w_H - w_0

A client's round is one operation on the tape. The server may limit the number of clients that train at a time
(`concurrency`): when one of them is done, a random one of those that wait may start.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import simpy
from mypy_extensions import mypyc_attr

from simfl.algorithms.choosing import Selection
from simfl.algorithms.gathering import Update as Update
from simfl.algorithms.secure_sums import LightSums, SecureSums
from simfl.algorithms.server import AsyncServerAlgorithm
from simfl.compiled import Integer, Number
from simfl.tape.recording import Round


@mypyc_attr(allow_interpreted_subclasses=True)
class LocalRounds(AsyncServerAlgorithm):
    """Base of algorithms with updates of many local steps; subclasses write `take`."""

    combines_per_gradient: ClassVar[float] = 0.0
    secure_sums: ClassVar[type[SecureSums]] = LightSums
    #: Whether `selection` chooses the clients that take part.
    selects: ClassVar[bool] = True

    def set_up(self, *, steps: Sequence[int] | None = None, concurrency: Integer | None = None) -> None:
        """Take the options.

        Args:
            steps: mini-batches of a round at each client, [K]; one each by default.
            concurrency: number of clients that train at a time; None: all.
        """
        super().set_up()
        self.steps = [1] * self.num_clients if steps is None else list(steps)
        self.concurrency = self.num_clients if concurrency is None else concurrency
        #: Number of updates sent by clients.
        self.sent = 0
        self._training: set[int] = set()
        self._ready: dict[int, Callable[[], None]] = {}
        self._choosing = False
        self.selection = Selection(self, self.steps)

    @property
    def chains(self) -> int:
        """The number of rounds in progress at a time."""
        return min(self.concurrency, self.num_clients)

    # -- the clients ---------------------------------------------------------------------------

    def gradient_at(self, me: int, content: Any) -> Round:
        """Promise the client's next round at the model in the server's message."""
        return self.batches.train(content[0], me, self.steps[me], (self.step_size(), 0.0, 0.0, 0.0))

    def compute(self, client: Integer, examples: Integer | None = None) -> simpy.Event:
        """Let the client compute a round, or `examples`."""
        return super().compute(client, examples or self.steps[client] * self.batches.sizes[client])

    def compute_for(self, client: Integer, seconds: Number) -> simpy.Event:
        """Let the client compute, and do its work for the sum."""
        return super().compute_for(client, seconds + self.gathering.work_s(client))

    def push(self, me: int, change: Round, read: int) -> simpy.Event:
        """Send an update to the server, which answers with the next model."""
        self.sent += 1
        update = Update(me, change.model, change, change.all_examples, change.step[0], self.clock.event(), self.sent)
        self.release(change)
        made = self.descent.trained(change)
        sent = update.change = self.channel.up(me, ((1.0, made),)) or made
        apply = functools.partial(self._take_now, update)
        report = self.selection.report(me, change.model, change.draw, change.steps)

        def arrived() -> None:
            report()
            self.arrive(me, read, apply)

        self.gathering.send(me, update.number, arrived, None, sent)
        return update.came

    def _take_now(self, update: Update, weight: Number, staleness: int) -> None:
        """Process an update that arrives now."""
        update.weight, update.staleness, update.taken_s = weight, staleness, self.clock.now
        self.take(update)

    def release(self, change: Round) -> None:
        """Count an update in flight as released, unless its sum is what is released."""
        self.sum.sent(change)

    # -- the server ----------------------------------------------------------------------------

    def take(self, update: Update) -> None:
        """Process an update, and hand out the model again."""
        raise NotImplementedError

    def drop(self, update: Update) -> None:
        """Drop an update; its client continues from the current model."""
        self.client_dropped[update.client] += 1
        self.gathering.forget(update.number)
        self.hand_out(update.client, update.came)

    def hand_out(self, client: int, came: simpy.Event | None = None) -> simpy.Event:
        """Send a client the model as soon as it is chosen and may read."""
        self._training.discard(client)
        if self.admission.holds(client):
            return self._hold(client, self.clock.event() if came is None else came)
        if self.concurrency >= self.num_clients:
            return super().hand_out(client, came)
        arrived, since = self.clock.event() if came is None else came, self.clock.now
        self._ready[client] = lambda: self._hand_out_now(client, arrived, since)
        self._choose_soon()
        return arrived

    def _hold(self, client: int, arrived: simpy.Event) -> simpy.Event:
        """Let a client wait at the gate until it may be in the next release."""
        since = self.clock.now

        def go_on() -> None:
            self.exchanges.waited(client, since)
            self.hand_out(client, arrived)

        self.admission.hold(client, go_on)
        if self._ready:
            self._choose_soon()
        return arrived

    def refused(self, update: Update) -> bool:
        """Drop an update that may not be in the next release; return whether it was."""
        if update.weight != 0.0 and self.admission.admits(update.client):
            return False
        self.drop(update)
        return True

    def _hand_out_now(self, client: int, arrived: simpy.Event, since: Number) -> None:
        self.exchanges.waited(client, since)
        super().hand_out(client, arrived)

    def forget(self, client: int) -> None:
        """Stop expecting the client's update; another client may train."""
        self._training.discard(client)
        if self._ready:
            self._choose_soon()
        super().forget(client)

    def _choose_soon(self) -> None:
        """Choose after this moment's events, so that all ready clients have equal chances."""
        if not self._choosing:
            self._choosing = True
            self.clock.call_at(self.clock.now, self._choose)

    def _choose(self) -> None:
        self._choosing = False
        online, now = self.world.availability.online, self.clock.now
        while self._ready and len(self._training) < self.concurrency:
            candidates = list(self._ready) if self._trivial else [k for k in self._ready if online(k, now)]
            candidates = candidates or list(self._ready)  # a message to an offline client is refused
            for client in self.selection.pick(candidates, self.concurrency - len(self._training)):
                self._training.add(client)
                self._ready.pop(client)()
