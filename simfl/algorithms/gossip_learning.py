"""Gossip learning: models are pushed periodically, merged by age, and trained.

Ormandi, Hegedus, Jelasity 2013, "Gossip learning with linear models on fully distributed data",
https://arxiv.org/abs/1109.1396, Algorithm 1 with "merge, then update"; the merge by age is that of Hegedus, Danner,
Jelasity 2019, "Gossip learning as a decentralized alternative to federated learning",
https://doi.org/10.1007/978-3-030-22496-7_5:

    each client, every `period`:    send (w, t) to a random neighbor
    on receipt of (w_r, t_r):       a = t_r / (t + t_r);  w <- (1 - a) w + a w_r;  t <- max(t, t_r)
                                    w <- w - step * gradient at w;  t <- t + 1

t is a model's age, the number of its updates. Two models of age 0 have equal weights. A merge takes no time. Models
that arrive while a client computes are merged at once; afterwards the client takes one training step on the merged
model. So the period sets the rate of messages, and the device sets the rate of training. Each timer starts at a random
time of its first period. A message to an offline neighbor is lost, as in the paper; a client trains only after it has
received a model.

Compression. Client i shows a neighbor j an estimate s_ij of its model, or Q(w_i) with or without an error memory (then
s_ij is the last message that i sent to any client). A merge moves towards the difference of what the two showed each
other; the equation is that of CHOCO-SGD (https://arxiv.org/abs/1902.00340) with a in place of a mixing weight:

    on receipt of (s_ji, t_j):      w_i <- w_i + gamma a (s_ji - s_ij)

Estimates are kept for each (sender, receiver), as the codecs of Danner, Jelasity 2018, "Robust decentralized mean
estimation with limited communication", https://doi.org/10.1007/978-3-319-96983-1_32. A change of an estimate can be
used only after the changes before it. So a client sends a neighbor nothing while its last message to this neighbor is
on its way, and takes its change of the estimate back if the message is lost.

Faults. A message that the link loses is sent again. A message to an offline or unreachable client is lost and not sent
again, so the two sides of a partition train separately and merge by age when it ends. Messages may overtake each other.
A client that crashes loses its current gradient; no client waits for it. `simfl.algorithms.staleness` enforces a bound
on staleness: under `wait`, others wait for a client that computes, even while it is offline. If the graph changes,
models go to current neighbors, and a client without neighbors waits for one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar

import simpy
from mypy_extensions import mypyc_attr

from simfl.algorithms.pairing import Shown, pairing_of
from simfl.algorithms.staleness import OwnUpdates
from simfl.compiled import Integer, Number
from simfl.tape.recording import Gradient, Model
from simfl.world.availability import DONE, GONE
from simfl.world.compute import ClientDraws
from simfl.world.engine import Process


@mypyc_attr(allow_interpreted_subclasses=True)
class GossipLearning(OwnUpdates):
    """Models that travel, merge and train; no client waits for an answer."""

    kind: ClassVar[str] = "gossip_learning"
    summary: ClassVar[str] = "gossip learning: models pushed to random neighbors at intervals, merged by age, trained"
    family: ClassVar[str] = "gossip"
    who_waits: ClassVar[str] = "no client waits; a client that receives nothing does not train"
    what_travels: ClassVar[str] = "models with their ages, to one neighbor, periodically"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    combines_per_gradient: ClassVar[float] = 0.5

    def set_up(self, *, merge: str, period_s: Number = 0.01) -> None:
        """Take the options.

        Args:
            period_s: seconds between two messages of a client.
        """
        self.period_s = period_s
        self.merge = merge
        self._neighbors = self.world.neighbors()
        changing = self.world.changing
        #: Clients that are a client's neighbors at some time.
        self._acquaintances = self.world.topology.neighbors if changing is None else changing.acquaintances
        self._choice = ClientDraws(self.world.streams, "neighbor", lambda g, n: g.random(n), self.num_clients)
        self._phase = ClientDraws(self.world.streams, "phase", lambda g, n: g.random(n), self.num_clients)
        initial = self.tape.constant(self.training.initial)
        self.model: list[Model] = [initial] * self.num_clients
        #: What a client makes of its model and of one that it receives.
        self._means = pairing_of(self)
        self.combines += self._means.beside
        #: Sender and receiver of the messages in flight that change an estimate.
        self._changing: set[tuple[int, int]] = set()
        #: t, the age of each client's model.
        self.age = [0] * self.num_clients
        #: Sender of the last merged model, by client; None once the client has begun to train on it.
        self._untrained: list[int | None] = [None] * self.num_clients
        self._waiting: list[simpy.Event | None] = [None] * self.num_clients
        self._over = [False] * self.num_clients
        #: Whether all clients stay online and keep their neighbors.
        self._settled = self._trivial and changing is None

    def start(self) -> None:
        """Start the workers and the timers."""
        for client in range(self.num_clients):
            self.clock.start(self.worker(client), client)
            self.clock.start(self.timer(client), client)

    def timer(self, me: int) -> Process:
        """Send the model to a random neighbor every period."""
        yield self.world.joined(me)
        yield self.clock.timeout(self._phase.next(me) * self.period_s)
        while True:
            if not (self._trivial or (yield from self.world.until_back(me))):
                return
            if self._over[me] or not self._has_partner(me):
                return
            if not self._settled and (meets_s := self._meets_s(me)) > self.clock.now:
                if math.isinf(meets_s):
                    return
                yield self.clock.timeout(meets_s - self.clock.now)
                continue  # the client may be offline by then
            self.push(me)
            yield self.clock.timeout(self.period_s)

    def push(self, me: int) -> None:
        """Send the client's model and its age to a random neighbor."""
        neighbors = self._neighbors(me)
        peer = neighbors[int(self._choice.next(me) * len(neighbors))]
        if (me, peer) in self._changing:
            return
        age = self.age[me]
        shown = self._means.show(me, peer, me)
        take_back = shown[2]  # a refusal keeps nothing else of the message
        if self._means.remembers:
            self._changing.add((me, peer))
        self.world.network.send(
            me,
            peer,
            self._means.bytes,
            lambda: self.receive(peer, me, shown, age),
            lambda: self._lose(me, peer, take_back),
            shown[1],
        )

    def _lose(self, me: int, peer: int, take_back: Callable[[], Any]) -> None:
        """Take back a message that was refused."""
        self._changing.discard((me, peer))
        take_back()

    def _meets_s(self, me: int) -> Number:
        """Return the next time at which the client has a neighbor; inf for never."""
        changing, now = self.world.changing, self.clock.now
        return now if changing is None else changing.meets_s(me, now)

    def _has_partner(self, me: int) -> bool:
        """Whether some neighbor, current or future, can still take part."""
        if self._settled:
            return len(self._acquaintances(me)) > 0
        gone, now = self.world.availability.gone, self.clock.now
        return any(not self._over[k] and (self._trivial or not gone(k, now)) for k in self._acquaintances(me))

    def receive(self, me: int, source: int, shown: Shown, age: int) -> None:
        """Merge a model, and wake the worker."""
        if self._changing:
            self._changing.discard((source, me))
        share = self.share(self.age[me], age)
        self._means.merge(me, source, share, shown)
        self.age[me] = age if share == 1.0 else max(self.age[me], age)
        self._untrained[me] = source
        waiting = self._waiting[me]
        if waiting is not None:
            self._waiting[me] = None
            waiting.succeed()

    def awaits(self, client: Integer) -> str:
        """Say why no model will arrive."""
        if math.isinf(self._meets_s(client)):
            return "waits for a model, and will have no neighbor again"
        return f"waits for a model, and all {len(self._acquaintances(client))} neighbors have left"

    def share(self, own: int, other: int) -> Number:
        """Return a, the share of a received model of age `other`."""
        if self.merge == "none":
            return 1.0
        return 0.5 if self.merge == "average" or own + other == 0 else other / (own + other)

    def worker(self, me: int) -> Process:
        """Train after every merge."""
        yield self.world.joined(me)
        while True:
            if self._untrained[me] is None:
                self._waiting[me] = self.clock.event()
                yield self._waiting[me]
            if self.waits and not (yield from self.may_read(me)):
                return
            source, self._untrained[me] = self._untrained[me], None
            gradient = self.batches.gradient(self.model[me], me)
            read_at = self.updates
            outcome = yield self.compute(me)
            if outcome is not DONE:
                self.turns.forget(me)
                if outcome is GONE:
                    self._over[me], self._settled = True, False
                    return
                self.batches.lost(gradient)
                continue  # the client keeps its last model
            if not self.waits:
                staleness = self.updates - read_at
                weight = 1.0 if self.unbounded else self.turns.weight(staleness)
                self.apply(me, gradient, source, weight, staleness)
                continue
            apply = functools.partial(self.apply, me, gradient, source)
            del gradient  # a suspended process would keep it, and the model in it, alive
            if not (yield from self.in_turn(me, read_at, apply)):
                return
            del apply

    def apply(self, me: int, gradient: Gradient, peer: int | None, weight: Number, staleness: int) -> None:
        """Take the step and increase the model's age, unless the gradient is dropped."""
        self.age[me] += weight > 0.0
        super().apply(me, gradient, peer, weight, staleness)
