"""Gossip learning: models are pushed to random neighbors by the clock, merged by age, and trained where they arrive.

Ormandi, Hegedus, Jelasity 2013, "Gossip learning with linear models on fully distributed data",
https://arxiv.org/abs/1109.1396, Algorithm 1 with "merge, then update"; the merge by age is that of Hegedus, Danner,
Jelasity 2019, "Gossip learning as a decentralized alternative to federated learning",
https://doi.org/10.1007/978-3-030-22496-7_5:

    each client, every `period`:    send (w, t) to a random neighbor
    on receipt of (w_r, t_r):       a = t_r / (t + t_r);  w <- (1 - a) w + a w_r;  t <- max(t, t_r)
                                    w <- w - step * gradient at w;  t <- t + 1

t is a model's age, the updates in it. Two models of age 0 weigh the same. A merge takes no time; while a client
computes, further models are merged as they come, and when it is done they are trained on once: the period decides how
often messages go, the device how often it trains. Timers are not in step: each begins at a random moment of its first
period. A message to a neighbor that is away is lost, as in the paper; a client that hears from nobody does not train.

Faults. A message that the link loses is sent again; one to somebody who is away or out of reach is lost, so that the
two sides of a partition go on for themselves and merge by age when it is over. Messages may overtake each other: they
are merged as they come. A client that crashes loses the gradient under way, and nobody waits for it. A bound on
staleness is kept as `simfl.algorithms.staleness` says: under `wait` others wait for who computes, also while it is
away. Where the graph changes, models go to neighbors of now; who has none waits for one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import ClassVar

import simpy

from simfl.algorithms.optimizers import State
from simfl.algorithms.staleness import OwnUpdates
from simfl.tape import Gradient, Model
from simfl.world.availability import Outcome
from simfl.world.compute import Draws
from simfl.world.engine import Process


class GossipLearning(OwnUpdates):
    """Models that travel, merge and learn; nobody waits for an answer."""

    kind: ClassVar[str] = "gossip_learning"
    summary: ClassVar[str] = "gossip learning: models pushed to random neighbors by the clock, merged by age, trained"
    combines_per_gradient: float = 0.5

    def set_up(self, period_s: float = 0.01, merge: str = "age") -> None:
        """Take the options.

        Args:
            period_s: time between two messages of a client.
            merge: "age"; "average": a = 1/2; "none": a = 1, a model walks on alone (the 2013 paper's random walk).
        """
        self.period_s = period_s
        self.merge = merge
        self._neighbors = self.world.neighbors()
        changing = self.world.changing
        #: Whom a client may hear from, or reach, at some time.
        self._acquaintances = self.world.topology.neighbors if changing is None else changing.acquaintances
        self._choice = Draws(self.world.streams, "neighbor", lambda g, n: g.random(n))
        self._phase = Draws(self.world.streams, "phase", lambda g, n: g.random(n))
        initial = self.tape.constant(self.training.initial)
        self.model: list[Model] = [initial] * self.num_clients
        #: t of each client's model.
        self.age = [0] * self.num_clients
        #: Models on their way.
        self.flying = 0
        self._from = [-1] * self.num_clients  # who sent what was merged last; -1 when it has been trained on
        self._waiting: list[simpy.Event | None] = [None] * self.num_clients
        self._over = [False] * self.num_clients
        #: Whether everybody is there, and stays linked with the same neighbors.
        self._settled = self._trivial and changing is None

    def start(self) -> None:
        """Start the workers and the timers."""
        for client in range(self.num_clients):
            self.clock.start(self.worker(client), client)
            self.clock.start(self.timer(client), client)

    def models(self) -> Sequence[Model]:
        """One model per client."""
        return self.model

    def timer(self, me: int) -> Process:
        """Send the model to a random neighbor, again and again."""
        yield self.joined(me)
        yield self._timeout(self._phase.next(me) * self.period_s)
        while True:
            if not (self._trivial or (yield from self.until_back(me))):
                return
            if self._over[me] or not self._somebody_there(me):
                return
            if not self._settled and (meets_s := self._meets_s(me)) > self.clock.now:
                if math.isinf(meets_s):
                    return
                yield self._timeout(meets_s - self.clock.now)
                continue  # perhaps it is away by then
            self.push(me)
            yield self._timeout(self.period_s)

    def push(self, me: int) -> None:
        """Send my model and its age."""
        neighbors = self._neighbors(me)
        peer = neighbors[int(self._choice.next(me) * len(neighbors))]
        model, age = self.model[me], self.age[me]
        state = None if self.optimizer is None else self.optimizer.shown(me)
        self.flying += 1
        self.world.network.send(
            me, peer, self.training.model_bytes, lambda: self.receive(peer, me, model, age, state), self._lose, model
        )

    def _lose(self) -> None:
        self.flying -= 1

    def _meets_s(self, me: int) -> float:
        """When the client has a neighbor: now, or later; infinite if never again."""
        changing, now = self.world.changing, self.clock.now
        return now if changing is None else changing.meets_s(me, now)

    def _somebody_there(self, me: int) -> bool:
        """Whether a neighbor is left that could answer one day."""
        if self._settled:
            return len(self._acquaintances(me)) > 0
        gone, now = self.world.availability.gone, self.clock.now
        return any(not self._over[k] and (self._trivial or not gone(k, now)) for k in self._acquaintances(me))

    def receive(self, me: int, source: int, model: Model, age: int, state: State | None = None) -> None:
        """Merge what came, and wake the worker."""
        self.flying -= 1
        share = self.share(self.age[me], age)
        self.model[me] = self.tape.combine((1.0 - share, self.model[me]), (share, model)) if share < 1.0 else model
        if (optimizer := self.optimizer) is not None and state is not None:
            if share < 1.0:
                optimizer.average(me, [(1.0 - share, optimizer.shown(me)), (share, state)])
            else:
                optimizer.take(me, state)
        self.age[me] = age if share == 1.0 else max(self.age[me], age)
        self._from[me] = source
        waiting = self._waiting[me]
        if waiting is not None:
            self._waiting[me] = None
            waiting.succeed()

    def awaits(self, client: int) -> str:
        """Somebody's model."""
        if math.isinf(self._meets_s(client)):
            return "hears from nobody: it has no neighbor any more"
        return f"hears from nobody: all {len(self._acquaintances(client))} neighbors have left"

    def share(self, own: int, other: int) -> float:
        """Return a, the share of a received model of age `other`."""
        if self.merge == "none":
            return 1.0
        return 0.5 if self.merge == "average" or own + other == 0 else other / (own + other)

    def worker(self, me: int) -> Process:
        """Train on what was merged, whenever something was."""
        yield self.joined(me)
        while True:
            if self._from[me] < 0:
                self._waiting[me] = self.clock.event()
                yield self._waiting[me]
            if self.waits and not (yield from self.may_read(me)):
                return
            source, self._from[me] = self._from[me], -1
            gradient = self.gradient(self.model[me], me)
            read_at = self.updates
            outcome = yield self.compute(me)
            if outcome is not Outcome.DONE:
                self.turns.forget(me)
                if outcome is Outcome.GONE:
                    self._over[me], self._settled = True, False
                    return
                self.lost(gradient)
                continue  # the model is the last one it had
            if not self.waits:
                staleness = self.updates - read_at
                self.apply(me, gradient, source, self.turns.weight(staleness), staleness)
                continue
            apply = functools.partial(self.apply, me, gradient, source)
            del gradient  # a suspended process would keep it, and the model in it, alive
            if not (yield from self.in_turn(me, read_at, apply)):
                return
            del apply

    def apply(self, me: int, gradient: Gradient, peer: int, weight: float, staleness: int) -> None:
        """Count an update of the model, if it is one."""
        self.age[me] += weight > 0.0
        super().apply(me, gradient, peer, weight, staleness)
