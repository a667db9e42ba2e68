"""SYNC: synchronous SGD with an all-reduce after every iteration.

    repeat: every learner computes the gradient of a mini-batch at the same w
            all-reduce when the slowest is done: w <- w - step * mean of the gradients

One iteration counts one update per learner, all at once: a run stops after a whole iteration. The
all-reduce is modelled: every learner sends 2 (K-1)/K model bytes over its link, plus latency, and
the slowest link decides. Nobody waits for a learner that goes offline after it has computed.

Faults. A lost message makes the all-reduce longer. A learner that crashes computes its mini-batch again, and all
wait. A partition that separates learners who have computed destroys an all-reduce under way and holds the next one up
until it is over; where it does not end, nobody goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import simpy

from simfl.algorithms.base import Algorithm, Countdown
from simfl.tape import Model
from simfl.world.availability import Outcome
from simfl.world.engine import Process


class SyncSGD(Algorithm):
    """All learners in step, as fast as the slowest."""

    kind: ClassVar[str] = "sync_sgd"
    summary: ClassVar[str] = "SYNC: synchronous SGD with all-reduce; waits for the slowest"
    combines_per_gradient: float = 0.3

    def set_up(self) -> None:
        """There are no options."""
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
            gradients = {k: self.gradient(self.model, k) for k in members}
            sizes = {k: gradient.size for k, gradient in gradients.items()}
            barrier = Countdown(self.clock.event(), len(members))
            for k in members:
                self._compute_until_done(k, barrier)
            yield barrier.event
            finished = sorted(barrier.done)
            if not finished:
                continue
            network = self.world.network
            while True:  # a partition that separates learners holds the all-reduce up, or destroys it
                joined_s = network.joined_s(finished, self.clock.now)
                if math.isinf(joined_s):
                    return
                if joined_s > self.clock.now:
                    yield self.clock.timeout(joined_s - self.clock.now)
                seconds, started = self.all_reduce_s(finished), self.clock.now
                cut = network.hit(finished, started, started + seconds)
                if cut is None:
                    break
                network.lost, network.delivered = network.lost + len(finished), network.delivered - len(finished)
                yield self.clock.timeout(cut.start_s - started)
            if seconds > 0.0:
                yield self.clock.timeout(seconds)
                for k in finished:
                    self.times[k].communicate_s += self.present_s(k, started, self.clock.now)
            step_size = self.step_size()
            share = 1.0 / len(finished)
            terms = [self.descent(gradients[k], step_size, share) for k in finished]
            self.model = self.tape.combine((1.0, self.model), *(term for pair in terms for term in pair))
            self.round_num += 1
            with self.together():
                for k in finished:
                    self.updated(k, 0, sizes[k], step_size, round_num=self.round_num - 1)

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

    def all_reduce_s(self, members: list[int]) -> float:
        """Return how long the all-reduce takes: the slowest of the members' links."""
        if len(members) < 2:
            return 0.0
        size = round(2 * (len(members) - 1) / len(members) * self.training.model_bytes)
        return max(self.world.network.transfer_s(k, size) for k in members)

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
