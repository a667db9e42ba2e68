"""AD-PSGD: asynchronous decentralized parallel SGD; with noise, A(DP)^2SGD.

Lian et al. 2018, https://arxiv.org/abs/1710.06952; Xu, Zhang, Wang, "A(DP)^2SGD: Asynchronous
Decentralized Parallel SGD with Differential Privacy", Algorithm 1 and Appendix A.

    each worker k repeats independently:
        read w-hat = w_k
        compute the gradient of a mini-batch at w-hat          (takes time)
        meanwhile: average with a random neighbor j            w_k, w_j <- (w_k + w_j) / 2
        w_k <- w_k - step * gradient

Staleness is defined as in the paper: the number of mini-batches that all workers applied between read and update.
`simfl.algorithms.staleness` enforces a bound on it, which the paper assumes. An exchange completes even if the
gradient is dropped.

By messages, a client sends its model to a neighbor, which answers with its own. If both start an exchange with each
other, and each request is sent before the other one arrives, the two are one exchange: each request is the answer to
the other. Two exchanges would swap the models: with d = (w_k - w_j) / 2, each client would add its difference twice.
If such a request is refused, its sender, which has averaged, sends its model again as an answer.

Faults. A lost message is sent again, which delays the exchange. Messages may overtake each other. A worker that crashes
loses its gradient but not an exchange: it subtracts the difference when it is back. An exchange with a neighbor that is
offline or unreachable is abandoned before any model changes. If a partition delays an answer, the worker that started
the exchange waits for it, forever if the partition does not end; the others continue, separately on each side. `atomic`
exchanges choose among reachable online neighbors only. If the graph changes, an exchange starts with a current
neighbor; a worker without neighbors skips it. Under a staleness bound with the policy `wait`, the others wait for a
worker that waits for an answer, unless that answer can never arrive.
"""

from __future__ import annotations

import functools
from array import array
from typing import ClassVar

import simpy
from mypy_extensions import mypyc_attr

from simfl.algorithms.pairing import Shown, pairing_of
from simfl.algorithms.staleness import OwnUpdates
from simfl.compiled import Integer, Number
from simfl.errors import ScenarioError
from simfl.tape.recording import Gradient, Model
from simfl.world.availability import CRASHED, DONE, GONE
from simfl.world.compute import ClientDraws
from simfl.world.engine import Process


@mypyc_attr(allow_interpreted_subclasses=True)
class ADPSGD(OwnUpdates):
    """Asynchronous workers on a graph that average in pairs."""

    kind: ClassVar[str] = "adpsgd"
    summary: ClassVar[str] = "AD-PSGD: asynchronous gossip in pairs; with privacy, A(DP)^2SGD"
    family: ClassVar[str] = "pairs"
    who_waits: ClassVar[str] = (
        "with `exchange: messages`, a client waits for its neighbor's answer if that takes longer than the "
        "gradient; with `atomic`, no client waits"
    )
    what_travels: ClassVar[str] = "models, to one neighbor and back; with `exchange: atomic`, links have no effect"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"

    def set_up(self, *, exchange: str, pairing: str) -> None:
        """Take the options."""
        topology = self.world.topology
        split = topology.is_bipartite and self.world.changing is None
        if pairing == "senders" and not split:
            raise ScenarioError(
                "algorithm.pairing: found 'senders' on a graph that is not bipartite, "
                "expected a bipartite topology (an even ring, a tree, a star); use pairing: everyone"
            )
        self.pairing = ("senders" if split else "everyone") if pairing == "auto" else pairing
        # Pairwise averages fit into the operations of the gradients, unless a client takes part in many.
        self.combines = 0.125 if self.pairing == "senders" else 0.5
        starters = set(topology.sides()[0] if self.pairing == "senders" else range(self.num_clients))
        self._starts = bytes(client in starters for client in range(self.num_clients))
        self._neighbors = self.world.neighbors()
        self._choice = ClientDraws(self.world.streams, "neighbor", lambda g, n: g.random(n), self.num_clients)
        self.exchange = exchange
        #: Updates of all clients when each client read its model. A suspended process keeps no number for longer.
        self._read_at = array("q", bytes(8 * self.num_clients))
        #: Whether an exchange needs a neighbor that is online and reachable.
        self._looks = exchange == "atomic" and not (self._trivial and not self.world.network.links.cuts)
        #: The exchange by messages that each client started and that is not over.
        self._under_way: list[Exchange | None] = [None] * (self.num_clients if exchange == "messages" else 0)
        initial = self.tape.constant(self.training.initial)
        self.model: list[Model] = [initial] * self.num_clients
        #: What a pair makes of its models.
        self._means = pairing_of(self)
        #: The difference in flight to each client, which it will subtract from its model.
        self.in_flight = self._means.in_flight
        self.combines += self._means.beside
        if self.waits:  # only an answer can be stuck: a first message that cannot arrive is refused
            self.world.network.on_stuck = lambda peer, me: self.turns.forget(me)

    def start(self) -> None:
        """Start the workers."""
        worker = self.atomic_worker if self.exchange == "atomic" else self.messaging_worker
        for client in range(self.num_clients):
            self.clock.start(worker(client), client)

    def atomic_worker(self, me: int) -> Process:
        """Run Algorithm 1: averaging with A_t and the gradient step at the same time."""
        yield self.world.joined(me)
        while True:
            if self.waits and not (yield from self.may_read(me)):
                return
            gradient = self.batches.gradient(self.present(me), me)
            self._read_at[me] = self.updates
            outcome = yield self.compute(me)
            if outcome is not DONE:
                self.turns.forget(me)
                if outcome is GONE:
                    return
                self.batches.lost(gradient)
                continue  # the client keeps its last model
            if not self.waits:
                # no name for the staleness: the frame of each waiting client would keep it
                weight = 1.0 if self.unbounded else self.turns.weight(self.updates - self._read_at[me])
                self.exchange_and_apply(me, gradient, weight, self.updates - self._read_at[me])
                continue
            apply = functools.partial(self.exchange_and_apply, me, gradient)
            del gradient  # a suspended process would keep it, and the model in it, alive
            if not (yield from self.in_turn(me, self._read_at[me], apply)):
                return
            del apply

    def exchange_and_apply(self, me: int, gradient: Gradient, weight: Number, staleness: int) -> None:
        """Average with a neighbor and take the step, both now."""
        peer = self.choose(me) if self._starts[me] else None
        if peer is not None:
            self.world.network.swap(me, peer, self._means.bytes, self.model[me], self.model[peer])
            self._average(me, peer)
        self.apply(me, gradient, peer, weight, staleness)

    def _average(self, me: Integer, peer: Integer) -> None:
        """Replace the models of a pair by their mean."""
        self._means.average(me, peer)

    def messaging_worker(self, me: int) -> Process:
        """Run Appendix A: the exchange travels while the gradient is computed."""
        yield self.world.joined(me)
        while True:
            if self.waits and not (yield from self.may_read(me)):
                return
            gradient = self.batches.gradient(self.present(me), me)
            self._read_at[me] = self.updates
            peer, averaging = self.start_averaging(me) if self._starts[me] else (None, None)
            outcome = yield self.compute(me)
            if outcome is not DONE:
                self.turns.forget(me)
                if outcome is GONE:
                    return
            if averaging is not None:
                computed_at = self.clock.now
                if not (yield averaging):
                    peer = None
                self.times.communicated(me, self.times.present_s(me, computed_at, self.clock.now))
                if not (self._trivial or (yield from self.world.until_back(me))):
                    self.turns.forget(me)
                    return
            if outcome is CRASHED:
                self.batches.lost(gradient)
                continue
            if not self.waits:
                staleness = self.updates - self._read_at[me]
                weight = 1.0 if self.unbounded else self.turns.weight(staleness)
                self.apply(me, gradient, peer, weight, staleness)
                continue
            apply = functools.partial(self.apply, me, gradient, peer)
            del gradient  # a suspended process would keep it, and the model in it, alive
            if not (yield from self.in_turn(me, self._read_at[me], apply)):
                return
            del apply

    def start_averaging(self, me: int) -> tuple[int | None, simpy.Event | None]:
        """Send `me`'s model to a neighbor, which averages and returns the difference.

        With d = (w_me - w_peer) / 2, the neighbor adds d and `me` later subtracts the same d from its current model.
        The sum of all models therefore changes by gradients only. If the neighbor's own request is on its way to `me`,
        w_peer is the model in it, and this request is its answer.

        Returns:
            The neighbor, and an event whose value says whether the exchange took place; None without a neighbor.
        """
        peer = self.choose(me)
        if peer is None:
            return None, None
        exchange = self._under_way[me] = Exchange(self, me, peer)
        # If the neighbor is offline or unreachable, the exchange is abandoned before any model changes.
        self.world.network.send(me, peer, self._means.bytes, exchange.at_peer, exchange.refused, exchange.shown[1])
        return peer, exchange.done

    def awaits(self, client: Integer) -> str:
        """Name the neighbor whose answer the client waits for."""
        exchange = self._under_way[client]
        assert exchange is not None
        return f"waits for the answer of client {exchange.peer}"

    def choose(self, me: int) -> int | None:
        """Pick a neighbor uniformly at random; None if there is none.

        An atomic exchange needs a neighbor that is online and reachable now.
        """
        neighbors = self._neighbors(me)
        draw = self._choice.next(me)
        if self._looks:
            now, joined_s = self.clock.now, self.world.network.joined_s
            neighbors = [
                k for k in neighbors if self.world.availability.online(k, now) and joined_s((me, k), now) == now
            ]
        return neighbors[int(draw * len(neighbors))] if neighbors else None


class Exchange:
    """An exchange under way: a model to a neighbor, and the difference back.

    Compiled functions inside of one another would refer to each other, and so keep models alive.

    Attributes:
        peer: the neighbor.
        shown: what the neighbor gets.
        done: the event at its end; its value says whether the exchange took place.
    """

    def __init__(self, owner: ADPSGD, me: int, peer: int) -> None:
        self._owner, self._me, self.peer = owner, me, peer
        self.shown = owner._means.show(me, peer, me)
        self.done = owner.clock.event()
        #: Whether no client has used the request yet.
        self._open = True
        #: The neighbor's exchange that this request answers, if the two cross.
        self._answers: Exchange | None = None

    def at_peer(self) -> None:
        """Let the neighbor average, and send the difference back."""
        if self._answers is not None:
            self._answers.at_home()
            return
        self._open = False
        owner, me, peer = self._owner, self._me, self.peer
        crossing = owner._under_way[peer]
        if crossing is not None and not (crossing._open and crossing.peer == me):
            crossing = None
        theirs = owner._means.show(me, peer, peer) if crossing is None else crossing.shown
        owner._means.meet(me, peer, self.shown, theirs, crossing is not None)
        if crossing is None:
            self._answer(theirs)
        else:
            crossing._open, crossing._answers = False, self
            crossing._end(True)

    def _answer(self, theirs: Shown) -> None:
        """Send the answer."""
        # The content is the neighbor's model: the receiver can derive it from the difference and what it sent.
        owner = self._owner
        owner.world.network.send(self.peer, self._me, owner._means.bytes, self.at_home, content=theirs[1])

    def at_home(self) -> None:
        """Subtract the difference."""
        self._owner._means.settle(self._me)
        self._end(True)

    def refused(self) -> None:
        """Abandon the exchange; if the neighbor's crosses it, answer that one."""
        if self._answers is not None:
            self._answers._answer(self.shown)
            return
        self.shown[2]()
        self._end(False)

    def _end(self, took_place: bool) -> None:
        self._owner._under_way[self._me] = None
        self.done.succeed(took_place)
