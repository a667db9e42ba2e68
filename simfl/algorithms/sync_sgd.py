"""SYNC: synchronous SGD with an all-reduce after every iteration.

    repeat: every learner computes the gradient of a mini-batch at the same w
            all-reduce when the slowest is done: w <- w - step * mean of the gradients

One iteration counts one update per learner, all at once: a run stops after a whole iteration. The all-reduce is one
of `simfl.world.collectives`, step by step over idle links: `ring`, `halving`, `doubling`, or of these whatever takes
least time for the model's size (`auto`, as libraries do). `ideal`, one latency and 2 (K-1)/K model bytes, is a bound
that none of them reaches: the papers' view. Nobody waits for a learner that goes offline after it has computed.

Who joins late knows the initial model only. A learner that has the present one, the lowest number of those in reach,
sends it, with the state of the optimizer; the others wait for the newcomer's first mini-batch. If all who had the model
have left for good, those who come start again from the initial model.

Faults. A lost message makes the all-reduce longer. A learner that crashes computes its mini-batch again, and all
wait. A partition that separates learners who have computed destroys an all-reduce under way and holds the next one up
until it is over; where it does not end, nobody goes on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import simpy
from numpy.typing import NDArray

from simfl.algorithms.base import Algorithm, Countdown
from simfl.tape import Gradient, Model
from simfl.world.availability import Outcome
from simfl.world.collectives import ALL_REDUCES, Plan, Step, equal_seconds, fastest, messages, pairs_of, seconds, sent
from simfl.world.engine import Process


class SyncSGD(Algorithm):
    """All learners in step, as fast as the slowest."""

    kind: ClassVar[str] = "sync_sgd"
    summary: ClassVar[str] = "SYNC: synchronous SGD with all-reduce; waits for the slowest"
    takes_optimizer: ClassVar[bool] = True
    one_model: ClassVar[bool] = True
    combines_per_gradient: float = 0.3

    def set_up(self, all_reduce: str = "auto") -> None:
        """Take the options.

        Args:
            all_reduce: a name of `simfl.world.collectives.ALL_REDUCES`; "auto": the fastest, "ideal" aside.
        """
        self.all_reduce = all_reduce
        self._members: list[int] = []
        self._plan: Plan = ()
        self._sent: list[tuple[int, int, int]] = []
        self._seconds = 0.0  # that the plan takes, where it takes equally long every time
        #: Who has the model; None: everybody, because it is the initial one.
        self._holders: set[int] | None = None
        self.model = self.tape.constant(self.training.initial)

    def start(self) -> None:
        """Start the one process that keeps everybody in step."""
        self.clock.start(self.iterations())

    def models(self) -> Sequence[Model]:
        """The one model all learners hold."""
        return [self.model]

    def iterations(self) -> Process:
        """Iterate: compute, barrier, all-reduce, step."""
        while True:
            members = self.members()
            if not members:
                coming = self.next_join()
                if coming is None:
                    return  # everybody has left for good
                yield self.clock.timeout(coming - self.clock.now)
                continue
            source = self._source(members)
            holders = set(members) if self._holders is None else self._holders
            gradients = {k: self.gradient(self.model, k) for k in members if k in holders}
            barrier = Countdown(self.clock.event(), len(members))
            for k in members:
                if k in holders:
                    self._compute_until_done(k, barrier)
                else:
                    self.clock.start(self._join(k, source, gradients, barrier), k)
            yield barrier.event
            finished = sorted(barrier.done)
            if not finished:
                continue
            sizes = {k: gradients[k].size for k in finished}
            network = self.world.network
            while True:  # a partition that separates learners holds the all-reduce up, or destroys it
                joined_s = network.joined_s(finished, self.clock.now)
                if math.isinf(joined_s):
                    return
                if joined_s > self.clock.now:
                    yield self.clock.timeout(joined_s - self.clock.now)
                duration, started = self.all_reduce_s(finished), self.clock.now
                cut = network.hit(finished, started, started + duration)
                if cut is None:
                    break
                cut_off = messages(self.plan(finished))
                network.lost, network.delivered = network.lost + cut_off, network.delivered - cut_off
                yield self.clock.timeout(cut.start_s - started)
            if duration > 0.0:
                yield self.clock.timeout(duration)
                for k in finished:
                    self.communicated(k, self.present_s(k, started, self.clock.now))
            self._show(finished, gradients)
            step_size = self.step_size()
            share = 1.0 / len(finished)
            if self.optimizer is None:
                terms = [self.descent(gradients[k], step_size, share) for k in finished]
                self.model = self.tape.combine((1.0, self.model), *(term for pair in terms for term in pair))
            else:
                mean = [term for k in finished for term in self.ascent(gradients[k], share)]
                self.model = self.optimizer.step(0, self.model, mean, step_size)
            self._holders = set(finished)
            for k in finished:
                self.merged(k, self.model)
            self.round_num += 1
            with self.together():
                for k in finished:
                    self.updated(k, 0, sizes[k], step_size, round_num=self.round_num - 1)

    def _source(self, members: Sequence[int]) -> int:
        """Return who sends the model to those who join; begin anew if all who had it have left for good."""
        if self._holders is None or self._holders >= set(members):
            return -1
        availability, network, now = self.world.availability, self.world.network, self.clock.now
        there = [k for k in sorted(self._holders) if not availability.gone(k, now)]
        if not there:
            self._holders, self.model = None, self.tape.constant(self.training.initial)
            if self.optimizer is not None:
                self.optimizer.begin(0)
            return -1
        new = [k for k in members if k not in self._holders]
        near = [k for k in there if availability.online(k, now) and network.joined_s((k, *new), now) == now]
        return (near or there)[0]

    def _join(self, k: int, source: int, gradients: dict[int, Gradient], barrier: Countdown) -> Process:
        """Wait for the model, which `source` sends, and compute; a learner that leaves meanwhile has no result."""
        network, came, since = self.world.network, self.clock.event(), self.clock.now
        model, state = self.model, () if self.optimizer is None else self.optimizer.rows(0)

        def arrived() -> None:
            if not came.triggered:
                for row in state:
                    if network.witness is not None:
                        network.witness.shown(source, k, row)
                came.succeed(True)

        leaves_s = self.world.availability.leaves_s(k)
        if not math.isinf(leaves_s):
            self.clock.call_at(leaves_s, lambda: None if came.triggered else came.succeed(False))
        size = 4 * len(self.training.initial) * (1 + len(state))
        network.send(source, k, size, arrived, content=model)
        there = yield came
        self.communicated(k, self.present_s(k, since, self.clock.now))
        if not there:
            barrier.tick()
            return
        self.merged(k, model)
        for row in state:
            self.merged(k, row)
        gradients[k] = self.gradient(model, k)
        self._compute_until_done(k, barrier)

    def _show(self, finished: Sequence[int], gradients: Mapping[int, Gradient]) -> None:
        """Say who sees what: an all-reduce passes sums of parts on, as though everybody saw every gradient."""
        witness = self.world.network.witness
        if witness is not None:
            for source, target in itertools.permutations(finished, 2):
                witness.shown(source, target, gradients[source])

    def members(self) -> list[int]:
        """Learners that have joined, have not left for good, and have something left of their privacy budget."""
        learners = [k for k in range(self.num_clients) if not self.exhausted(k)]
        if self.world.availability.trivial:
            return learners
        availability, now = self.world.availability, self.clock.now
        return [k for k in learners if availability.joins_s(k) <= now < availability.leaves_s(k)]

    def next_join(self) -> float | None:
        """When the next learner joins, None if nobody will."""
        joins = [self.world.availability.joins_s(k) for k in range(self.num_clients)]
        return min((t for t in joins if self.clock.now < t < float("inf")), default=None)

    def plan(self, members: list[int]) -> Plan:
        """Return the steps of an all-reduce among the members."""
        if members != self._members:
            count, size = len(members), self.training.model_bytes
            self._members = members
            name = self.all_reduce
            if name == "auto" and count > 1:
                name = fastest(count, size, self._expected_s)
            self._plan = ALL_REDUCES[name](count, size) if count > 1 else ()
            self._sent = sent(self._plan)
            if self.world.network.steady:
                self._seconds = equal_seconds(self._plan, self._expected_s)
            elif self.world.network.repeats:
                known = {id(step): self._expected_s(step) for step in self._plan}
                self._seconds = seconds(self._plan, count, lambda step: known[id(step)])
        return self._plan

    def _pairs(self, step: Step) -> list[tuple[int, int]]:
        return [(self._members[i], self._members[j]) for i, j in pairs_of(step)]

    def _expected_s(self, step: Step) -> NDArray[np.float64]:
        return np.array(self.world.network.expected_s(self._pairs(step), step.size))

    def all_reduce_s(self, members: list[int]) -> float:
        """Return how long the all-reduce takes, and count its messages."""
        network, plan = self.world.network, self.plan(members)
        if network.repeats:
            for source, size, times in self._sent:
                network.count(members[source], size, times)
            return self._seconds
        return seconds(plan, len(members), lambda step: np.array(network.transfers_s(self._pairs(step), step.size)))

    def awaits(self, client: int) -> str:
        """The all-reduce."""
        del client
        return "waits for the all-reduce"

    def _compute_until_done(self, k: int, barrier: Countdown) -> None:
        """Compute, again after each crash, and tick the barrier; a learner that leaves ticks without result."""

        def finished(k: int) -> Callable[[simpy.Event], None]:
            def call(event: simpy.Event) -> None:
                if event.value is Outcome.CRASHED:
                    self._compute_until_done(k, barrier)
                else:
                    barrier.tick(k if event.value is Outcome.DONE else None)

            return call

        self.compute(k).callbacks.append(finished(k))
