"""Teleportation: a few clients gossip, and hand their models on to others.

Takezawa, Stich 2025, "Scalable decentralized learning with teleportation", ICLR, https://arxiv.org/abs/2501.15259,
Algorithm 1. There are k models. In round r, k clients are active, and each has an index i = 0 .. k - 1:

    the active client of index i:   receive x_i from the active client of index i of round r - 1
                                    x_i <- x_i - step * gradient at x_i, on its own data
                                    send x_i to the neighbors of i in a graph of k nodes, and wait for theirs
                                    x_i <- the mean of x_i and of the received ones
                                    send x_i to the active client of index i of round r + 1

So mixing takes as long as among k clients, however many there are. The graph has an edge from i to i + h modulo k:
`one_peer`: a single h = 1, 2, 4, ... in a round, in turn; `ring`: h = 1 and k - 1; `complete`: all h. All means are
doubly stochastic. A client that is drawn again before it is done has two models, and computes for one at a time. The
models of clients that are not active stay as they were; the k models under way are evaluated.

Faults. Others wait for a lost message, a partition and a crashed client. The round of a client that leaves is left out:
its neighbors average without it, and the client before sends its model to the next one. If the client before has left
too, the next one goes on with its own last model. If fewer than k clients are present, some have several indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import simpy

from simfl.algorithms.disclosure import merged
from simfl.algorithms.sampled_rounds import SampledRounds
from simfl.tape import Model
from simfl.world.availability import Outcome
from simfl.world.engine import Process


class Teleportation(SampledRounds):
    """k models that are trained and averaged by other clients in every round."""

    kind: ClassVar[str] = "teleportation"
    summary: ClassVar[str] = "Teleportation: a few active clients of a round gossip, and hand their models on"
    family: ClassVar[str] = "gossip"
    who_waits: ClassVar[str] = "each active client waits for its neighbors among the active clients of the round"
    what_travels: ClassVar[str] = "models, to active neighbors and to the next active clients"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    combines_per_gradient: ClassVar[float] = 1.0

    def set_up(self, *, active: int, graph: str) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up()
        self.active, self.graph = min(active, self.num_clients), graph
        #: The round of each model, the model at its start and now, and the client that had it before.
        self._rounds = [0] * self.active
        self._begun, self._current = [self.model[0]] * self.active, [self.model[0]] * self.active
        self._before: list[int | None] = [None] * self.active
        self._idle = set(range(self.active))  # models without a client
        self._chosen: dict[int, list[int]] = {}
        #: By round and index: the models that came, by index, and the event of a client that waits for more.
        self._inbox: dict[tuple[int, int], dict[int, Model | None]] = {}
        self._waiting: dict[tuple[int, int], simpy.Event] = {}

    def models(self) -> Sequence[Model]:
        """Return the k models under way."""
        return self._current

    def evaluated(self) -> Sequence[Model]:
        """Return all models under way: none of them is a client's."""
        return self.models()

    def client_models(self) -> Sequence[Model]:
        """Return the last model of each client."""
        return self.model

    @property
    def chains(self) -> int:
        """k."""
        return self.active

    @property
    def rounds(self) -> int:
        """Rounds that all k models have completed."""
        return min(self._rounds)

    def hops(self, round_num: int) -> list[int]:
        """Return the distances from an index to those that hear it."""
        k = self.active
        if self.graph == "one_peer":
            return [2 ** (round_num % (k - 1).bit_length())] if k > 1 else []
        return sorted({1, k - 1} - {0, k}) if self.graph == "ring" else list(range(1, k))

    def chosen(self, round_num: int) -> list[int]:
        """Return each index's active client, drawn at the first use; may be empty."""
        if round_num not in self._chosen:
            order, oldest = self.order(round_num), self.rounds
            self._chosen = {kept: old for kept, old in self._chosen.items() if kept >= oldest}
            self._inbox = {key: old for key, old in self._inbox.items() if key[0] >= oldest}
            self._chosen[round_num] = [order[i % len(order)] for i in range(self.active)] if order else []
        return self._chosen[round_num]

    def begin(self) -> None:
        """Start the models that no client has."""
        for i in sorted(self._idle):
            self._pass_on(i)

    def replace(self, client: int) -> None:
        """Leave out the rounds that the client was in."""
        for i, number in enumerate(self._rounds):
            if i not in self._idle and self._chosen[number][i] == client:
                self._pass_on(i)

    def _pass_on(self, i: int) -> None:
        """Send model i to its client; leave out rounds of clients that have left."""
        while (chosen := self.chosen(self._rounds[i])) and self._left[chosen[i]]:
            number = self._rounds[i]
            for hop in self.hops(number):
                self._receive(number, (i + hop) % self.active, i, None)
            self._rounds[i] = number + 1
        if not chosen:
            self._idle.add(i)
            del self._chosen[self._rounds[i]]
            return
        self._idle.discard(i)
        number, source, target = self._rounds[i], self._before[i], chosen[i]
        if source is not None and self._left[source]:
            source, self._begun[i] = None, self.model[target]
        model = self._current[i] = self._begun[i]

        def arrived() -> None:
            if self._rounds[i] == number:
                self.clock.start(self._turn(target, i, number, model), target)

        if source is None or source == target:
            arrived()
        else:
            self.world.network.send(source, target, self.training.model_bytes, arrived, content=model)

    def _turn(self, me: int, i: int, number: int, model: Model) -> Process:
        """Compute, step, exchange models with the neighbors of i, and pass the mean on."""
        with self.device(me).request() as right:
            yield right
            gradient = self.batches.gradient(model, me)
            size = gradient.size
            while (outcome := (yield self.compute(me))) is Outcome.CRASHED:
                pass  # computed again at the same model: the others wait for it
        if outcome is Outcome.GONE:
            self.leave(me)
            return
        if self._left[me]:  # at this moment: the round was left out
            return
        step_size, hops = self.step_size(), self.hops(number)
        self.model[me] = self._current[i] = stepped = self.descent.step(me, model, gradient, step_size)
        del model, gradient  # a suspended process would keep them alive
        self.updated(me, 0, size, step_size, round_num=number)
        for other in [(i + hop) % self.active for hop in hops]:
            self._show(me, number, i, other, stepped)
        inbox, sources = self._inbox.setdefault((number, i), {}), [(i - hop) % self.active for hop in hops]
        while any(source not in inbox for source in sources):
            self._waiting[number, i] = self.clock.event()
            yield self._waiting[number, i]
        if not (self._trivial or (yield from self.world.until_back(me))) or self._left[me]:
            return
        received = [one for source in sources if (one := inbox[source]) is not None]
        share = 1.0 / (1 + len(received))
        mixed = self.tape.combine((share, stepped), *((share, one) for one in received))
        self.model[me] = self._begun[i] = mixed
        merged(self.world.network, me, mixed)
        self._rounds[i], self._before[i] = number + 1, me
        self._pass_on(i)

    def _show(self, me: int, number: int, i: int, other: int, model: Model) -> None:
        """Send the model of index i to the client of another index."""
        target = self.chosen(number)[other]
        if target == me:
            self._receive(number, other, i, model)
        elif not self._left[target]:
            self.world.network.send(
                me, target, self.training.model_bytes, lambda: self._receive(number, other, i, model), content=model
            )

    def _receive(self, number: int, i: int, source: int, model: Model | None) -> None:
        """Take the model of another index, None if it is lost, unless it came before."""
        if number >= self._rounds[i]:
            self._inbox.setdefault((number, i), {}).setdefault(source, model)
            if (waiting := self._waiting.pop((number, i), None)) is not None:
                waiting.succeed()

    def awaits(self, client: int) -> str:
        """Say what the client waits for."""
        rounds = enumerate(self._rounds)
        mine = [str(i) for i, r in rounds if i not in self._idle and self._chosen[r][i] == client]
        return f"waits for models of the neighbors of index {', '.join(mine)}" if mine else "waits for its turn"
