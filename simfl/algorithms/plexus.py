"""Plexus: rounds of a sampled committee without a server.

Dhasade, Kermarrec, Lavoie, Pouwelse, Sharma, de Vos 2025, "Practical federated learning without a server", EuroMLSys,
https://arxiv.org/abs/2503.05509, and de Vos et al. 2023, "Decentralized learning made practical with client sampling"
(MoDeST), https://arxiv.org/abs/2302.13837. In round r, with w the model of the round:

    sample:       the first s clients that are present, by a hash of round and client (`sampled_rounds`)
    each of them: stop the computation of an older round, train H local steps on w, and send the trained model to the
                  aggregator of round r + 1, the first client of its order
    aggregator:   with floor(success * s) trained models of the round:   w <- their mean
                  send w to the sample of round r + 1

So no round waits for its slowest clients. A model that comes after the end of its round is ignored. The paper's clients
find each other by pings and gossip, and may prefer an aggregator with a fast link; here all clients know who is
present, without messages, and the aggregator is the first one.

An update is a model that was trained and sent. With `success` below 1, some of them have no effect.

Faults. The aggregator waits for lost messages, a partition and a crashed client, and others wait for it while it is
away. If it leaves, the next client of the order takes its place, and the clients that have trained send their models
again. If members of a sample leave, the aggregator waits for fewer. If all have left before one has trained, a new
sample begins with the last model of its first client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import simpy

from simfl.algorithms.disclosure import merged
from simfl.algorithms.sampled_rounds import SampledRounds
from simfl.tape import Model
from simfl.tape.recording import Round
from simfl.world.availability import Outcome
from simfl.world.engine import Process


class Plexus(SampledRounds):
    """Samples that train one model, each with another aggregator."""

    kind: ClassVar[str] = "plexus"
    summary: ClassVar[str] = "Plexus: FedAvg without a server; each round has another sample and aggregator"
    family: ClassVar[str] = "gossip"
    who_waits: ClassVar[str] = "the aggregator of a round waits for a fraction `success` of the sample"
    what_travels: ClassVar[str] = "models, from the sample to the next aggregator, and from it to the next sample"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`)"
    combines_per_gradient: ClassVar[float] = 0.0

    def set_up(self, *, sample: int, success: float, steps: Sequence[int] | None = None) -> None:  # type: ignore[override]
        """Take the options.

        Args:
            steps: H, mini-batches of a round at each client, [K]; one each by default.
        """
        super().set_up()
        self.sample, self.success = min(sample, self.num_clients), success
        self.steps = [1] * self.num_clients if steps is None else list(steps)
        self.shared = self.model[0]
        #: The sample of the round, the order of the next round, and the models that its aggregator has, by client.
        self._sample: list[int] = []
        self._next: list[int] = []
        self._trained: dict[int, Model] = {}
        #: The round that each began last, its process while it computes, and the model that it sent for the round.
        self._began = [-1] * self.num_clients
        self._computing: dict[int, tuple[simpy.Process, Round]] = {}
        self._sent: dict[int, Model] = {}

    def models(self) -> Sequence[Model]:
        """Return the model of the round."""
        return [self.shared]

    def client_models(self) -> Sequence[Model]:
        """Return the last model of each client."""
        return self.model

    @property
    def chains(self) -> int:
        """s."""
        return self.sample

    def compute(self, client: int, examples: int | None = None) -> simpy.Event:
        """Let the client compute a round, or `examples`."""
        return super().compute(client, examples or self.steps[client] * self.batches.sizes[client])

    def begin(self) -> None:
        """Begin a round if no client of a sample is present."""
        if not any(not self._left[k] for k in self._sample) and (order := self.order(self.round_num)):
            if self._sample:
                self.shared = self.model[order[0]]
            self._draw(order, order[0] if self._sample else None)

    def _draw(self, order: list[int], aggregator: int | None) -> None:
        """Begin a round with the first clients; the aggregator, if any, sends the model."""
        self._sample, self._next, self._trained, self._sent = order[: self.sample], [], {}, {}
        number, model = self.round_num, self.shared
        for me in list(self._sample):
            if aggregator is None or me == aggregator:
                self._take(me, number, model)
            else:
                self.world.network.send(
                    aggregator,
                    me,
                    self.training.model_bytes,
                    lambda me=me: self._take(me, number, model),  # type: ignore[misc]
                    content=model,
                )

    def _take(self, me: int, number: int, model: Model) -> None:
        """Begin a round at a client, which leaves an older one."""
        if number <= self._began[me] or self._left[me]:
            return
        self._began[me], self.model[me] = number, model
        if me in self._computing:
            process, change = self._computing.pop(me)
            self.times.stopped(me)
            self.batches.lost(change)
            self.clock.cancel(process.target)
            process.interrupt()
        self.clock.start(self._train(me, number, model), me)

    def _train(self, me: int, number: int, model: Model) -> Process:
        """Train, and send the model to the next aggregator."""
        if number < self._began[me]:
            return  # a newer round came together with this one
        change = self.batches.train(model, me, self.steps[me], (self.step_size(), 0.0, 0.0, 0.0))
        self._computing[me] = self.clock.active_process, change
        try:
            while (outcome := (yield self.compute(me))) is Outcome.CRASHED:
                pass  # computed again: the aggregator may wait for it
        except simpy.Interrupt:
            return
        self._computing.pop(me, None)
        if outcome is Outcome.GONE:
            self.batches.lost(change)
            self.leave(me)
            return
        size, step_size = change.examples, change.step[0]
        self.model[me] = self.tape.combine((1.0, model), (1.0, self.descent.trained(change)))
        self.updated(me, 0, size, step_size, round_num=number)
        if number == self.round_num:
            self._sent[me] = self.model[me]
        self._send(me, number, self.model[me])

    def _send(self, me: int, number: int, trained: Model) -> None:
        """Send a client's model of a round to the aggregator of the next one."""
        if number == self.round_num:
            self._next = self._next or self.order(number + 1)
        order = self._next if number == self.round_num else self.order(number + 1)
        if (aggregator := order[0] if order else me) == me:
            self._receive(aggregator, me, number, trained)
        else:
            self.world.network.send(
                me,
                aggregator,
                self.training.model_bytes,
                lambda: self._receive(aggregator, me, number, trained),
                content=trained,
            )

    def _receive(self, aggregator: int, source: int, number: int, trained: Model) -> None:
        """Take a trained model, unless it comes too late or to a replaced client."""
        if number == self.round_num and self._next and self._next[0] == aggregator:
            self._trained[source] = trained
            self._end()

    def _end(self) -> None:
        """End the round if the aggregator has enough models."""
        possible = sum(not self._left[k] or k in self._trained for k in self._sample)
        needed = min(max(1, int(self.success * len(self._sample))), possible)
        if not self._trained or len(self._trained) < needed:
            return
        aggregator, share = self._next[0], 1.0 / len(self._trained)
        models = [model for _, model in sorted(self._trained.items(), key=lambda item: item[0])]
        self.shared = self.model[aggregator] = self.tape.settle(self.tape.combine(*((share, one) for one in models)))
        merged(self.world.network, aggregator, self.shared)
        self.round_num += 1
        self._draw(self.order(self.round_num), aggregator)

    def replace(self, client: int) -> None:
        """Replace an aggregator, and do not wait for a member of the sample."""
        self._computing.pop(client, None)
        if self._next and self._next[0] == client:
            number, sent = self.round_num, list(self._sent.items())
            self._next, self._trained = self.order(number + 1), {}
            for source, trained in sent if self._next else []:
                if not self._left[source] and number == self.round_num:
                    self._send(source, number, trained)
        if client in self._sample:
            self._end()
            self.begin()

    def awaits(self, client: int) -> str:
        """Say what the client waits for."""
        if self._next and self._next[0] == client:
            return f"waits for models of round {self.round_num}"
        return "waits for its turn" if client not in self._sample else "waits for the next model"
