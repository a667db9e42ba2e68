"""AD-PSGD: asynchronous decentralized parallel SGD; with noise, A(DP)^2SGD.

Lian et al. 2018, https://arxiv.org/abs/1710.06952; Xu, Zhang, Wang, "A(DP)^2SGD: Asynchronous
Decentralized Parallel SGD with Differential Privacy", Algorithm 1 and Appendix A.

    repeat, each worker k on its own:
        read w-hat = w_k
        compute the gradient of a mini-batch at w-hat          (takes time)
        meanwhile: average with a random neighbor j            w_k, w_j <- (w_k + w_j) / 2
        w_k <- w_k - step * gradient

Staleness is counted as in the paper: mini-batches that all workers together applied between the
read and the update. A bound on it, which the paper assumes, is kept as `simfl.algorithms.staleness` says; an exchange
takes place whatever becomes of the gradient.

Faults. A lost message is sent again, so that an exchange takes longer; messages that overtake each other do no harm.
A worker that crashes loses its gradient, not an exchange: the difference is subtracted when it is back. An exchange
with somebody who is away or out of reach is given up before anything changed; an answer that a partition holds up is
waited for by who asked, for good if it does not end, and the others go on, each side for itself. `atomic` exchanges
find only those who are there and in reach. Where the graph changes, an exchange is begun with a neighbor of now, and
who has none goes on without. Under a bound with the policy `wait` the others wait for who waits for an answer, unless
that can never come.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import ClassVar

import simpy

from simfl.algorithms.optimizers import State
from simfl.algorithms.staleness import OwnUpdates
from simfl.errors import ScenarioError
from simfl.tape import Gradient, Model
from simfl.world.availability import Outcome
from simfl.world.compute import Draws
from simfl.world.engine import Process


class ADPSGD(OwnUpdates):
    """Workers on a graph, averaging in pairs, never waiting for all."""

    kind: ClassVar[str] = "adpsgd"
    summary: ClassVar[str] = "AD-PSGD: asynchronous gossip in pairs; with privacy, A(DP)^2SGD"

    def set_up(self, exchange: str = "messages", pairing: str = "auto") -> None:
        """Take the options.

        Args:
            exchange: "messages": models travel over links while the gradient is computed; "atomic": a
                pair averages in no time when the gradient is applied (the paper's logical view).
            pairing: "senders": only one side of a bipartite graph starts exchanges (the paper's
                appendix); "everyone" starts them; "auto": senders where the graph is bipartite.
        """
        topology = self.world.topology
        split = topology.is_bipartite and self.world.changing is None
        if pairing == "senders" and not split:
            raise ScenarioError(
                "algorithm.pairing: found 'senders' on a graph that is not bipartite, "
                "expected a bipartite topology (an even ring, a tree, a star); use pairing: everyone"
            )
        self.pairing = ("senders" if split else "everyone") if pairing == "auto" else pairing
        # Averages of pairs fit into the operations of the gradients, unless a client is in many of them.
        self.combines_per_gradient = 0.125 if self.pairing == "senders" else 0.5
        starters = topology.sides()[0] if self.pairing == "senders" else range(self.num_clients)
        self._starts = [False] * self.num_clients
        for client in starters:
            self._starts[client] = True
        self._neighbors = self.world.neighbors()
        self._choice = Draws(self.world.streams, "neighbor", lambda g, n: g.random(n))
        self.exchange = exchange
        self._asked = [-1] * self.num_clients  # with whom each exchanged models last, or does
        initial = self.tape.constant(self.training.initial)
        self.model: list[Model] = [initial] * self.num_clients
        #: Differences on their way home, by client: what is still to be subtracted from its model.
        self.in_flight: dict[int, Model] = {}
        #: States of neighbors on their way, by client. No differences: a second moment must not become negative.
        self._states_in_flight: dict[int, State | None] = {}
        if self.waits:  # only an answer can be stuck: a request is refused
            self.world.network.on_stuck = lambda peer, me: self.turns.forget(me)

    def start(self) -> None:
        """Start the workers."""
        worker = self.atomic_worker if self.exchange == "atomic" else self.messaging_worker
        for client in range(self.num_clients):
            self.clock.start(worker(client), client)

    def models(self) -> Sequence[Model]:
        """One model per client."""
        return self.model

    def atomic_worker(self, me: int) -> Process:
        """Algorithm 1: averaging with A_t and the gradient step in one go."""
        yield self.joined(me)
        while True:
            if self.waits and not (yield from self.may_read(me)):
                return
            gradient = self.gradient(self.model[me], me)
            read_at = self.updates
            outcome = yield self.compute(me)
            if outcome is not Outcome.DONE:
                self.turns.forget(me)
                if outcome is Outcome.GONE:
                    return
                self.lost(gradient)
                continue  # the model is the last one it had
            if not self.waits:
                staleness = self.updates - read_at
                self.exchange_and_apply(me, gradient, self.turns.weight(staleness), staleness)
                continue
            apply = functools.partial(self.exchange_and_apply, me, gradient)
            del gradient  # a suspended process would keep it, and the model in it, alive
            if not (yield from self.in_turn(me, read_at, apply)):
                return
            del apply

    def exchange_and_apply(self, me: int, gradient: Gradient, weight: float, staleness: int) -> None:
        """Average with a neighbor, and take the step, both now."""
        peer = self.choose(me) if self._starts[me] else -1
        if peer >= 0:
            self._count_exchange(me, peer)
            # No name for the average: a suspended process would keep it, and its rows, alive.
            self.model[me] = self.model[peer] = self.tape.combine((0.5, self.model[me]), (0.5, self.model[peer]))
            if self.optimizer is not None:
                states = [(0.5, self.optimizer.shown(me)), (0.5, self.optimizer.shown(peer))]
                self.optimizer.average(me, states)
                self.optimizer.average(peer, states)
        self.apply(me, gradient, peer, weight, staleness)

    def messaging_worker(self, me: int) -> Process:
        """Appendix A: the exchange travels while the gradient is computed."""
        yield self.joined(me)
        while True:
            if self.waits and not (yield from self.may_read(me)):
                return
            gradient = self.gradient(self.model[me], me)
            read_at = self.updates
            peer, averaging = self.start_averaging(me) if self._starts[me] else (-1, None)
            outcome = yield self.compute(me)
            if outcome is not Outcome.DONE:
                self.turns.forget(me)
                if outcome is Outcome.GONE:
                    return
            if averaging is not None:
                computed_at = self.clock.now
                if not (yield averaging):
                    peer = -1
                self.communicated(me, self.present_s(me, computed_at, self.clock.now))
                if not (self._trivial or (yield from self.until_back(me))):
                    self.turns.forget(me)
                    return
            if outcome is Outcome.CRASHED:
                self.lost(gradient)
                continue
            if not self.waits:
                staleness = self.updates - read_at
                self.apply(me, gradient, peer, self.turns.weight(staleness), staleness)
                continue
            apply = functools.partial(self.apply, me, gradient, peer)
            del gradient  # a suspended process would keep it, and the model in it, alive
            if not (yield from self.in_turn(me, read_at, apply)):
                return
            del apply

    def start_averaging(self, me: int) -> tuple[int, simpy.Event | None]:
        """Send my model to a neighbor, which averages and sends the difference back.

        In difference form: with d = (w_me - w_peer) / 2, the neighbor adds d and I subtract the same
        d, whatever happened to my model in the meantime. The sum of all models changes by gradients
        only. Returns the neighbor and an event that is true if the exchange took place.
        """
        peer = self.choose(me)
        if peer < 0:
            return -1, None
        self._asked[me] = peer
        network, size = self.world.network, self.training.model_bytes
        combine, optimizer = self.tape.combine, self.optimizer
        sent = self.model[me]
        state = None if optimizer is None else optimizer.shown(me)
        done = self.clock.event()

        def at_peer() -> None:
            other = self.model[peer]
            difference = combine((0.5, sent), (-0.5, other))
            self.model[peer] = combine((1.0, other), (1.0, difference))
            self.in_flight[me] = difference
            if optimizer is not None and state is not None:
                self._states_in_flight[me] = own = optimizer.shown(peer)
                optimizer.average(peer, [(0.5, state), (0.5, own)])
            # To who knows what it sent, the difference says the neighbor's model.
            network.send(peer, me, size, at_home, content=other)

        def at_home() -> None:
            self.model[me] = combine((1.0, self.model[me]), (-1.0, self.in_flight.pop(me)))
            if optimizer is not None and state is not None:
                optimizer.average(me, [(0.5, optimizer.shown(me)), (0.5, self._states_in_flight.pop(me))])
            done.succeed(True)

        # A neighbor that is away cannot answer: the exchange is given up before anything changed.
        network.send(me, peer, size, at_peer, lambda: done.succeed(False), sent)
        return peer, done

    def awaits(self, client: int) -> str:
        """The answer of whom it exchanges models with."""
        return f"waits for the answer of client {self._asked[client]}"

    def choose(self, me: int) -> int:
        """Pick a neighbor uniformly at random, -1 if there is none.

        An atomic exchange needs the neighbor to be there, and in reach, now; a message may find that it is not.
        """
        neighbors = self._neighbors(me)
        draw = self._choice.next(me)
        if self.exchange == "atomic" and not (self._trivial and self._connected):
            now, joined_s = self.clock.now, self.world.network.joined_s
            neighbors = [
                k for k in neighbors if self.world.availability.online(k, now) and joined_s((me, k), now) == now
            ]
        return neighbors[int(draw * len(neighbors))] if neighbors else -1

    def _count_exchange(self, me: int, peer: int) -> None:
        """An atomic exchange takes no time, but two models change hands."""
        network, size = self.world.network, self.training.model_bytes
        for source, target in ((me, peer), (peer, me)):
            network.count(source, size)
            if network.witness is not None:
                network.witness.shown(source, target, self.model[source])
