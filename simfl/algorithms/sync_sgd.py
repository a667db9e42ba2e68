"""SYNC: synchronous SGD with an all-reduce after every iteration.

    repeat: every learner computes the gradient of a mini-batch at the same w
            all-reduce when the slowest is done: w <- w - step * mean of the gradients

One iteration counts one update per learner, all at the same time: a run stops after a whole iteration. The all-reduce
is one of `simfl.world.collectives`, step by step over idle links: `ring`, `halving`, `doubling`, or the fastest of
these for the model's size (`auto`, as libraries do). `ideal`, which papers assume, is a lower bound that none of them
reaches: one latency and 2 (K-1)/K model bytes. The others do not wait for a learner that goes offline after it has
computed.

A robust rule takes the place of the mean. It needs every learner's gradient and not only their sum, so that an
all-gather takes the place of the all-reduce: each learner receives K-1 gradients, and all compute the same result. An
attacker changes its own gradient, the same for all receivers, and passes on the others as they are.

A learner that joins late knows the initial model only. The lowest-numbered reachable learner with the current model
sends it, with the optimizer's state; the others wait for the newcomer's first mini-batch. If all learners with the
current model have left permanently, the learners that join next start again from the initial model.

Faults. A lost message makes the all-reduce longer. A learner that crashes computes its mini-batch again, and all others
wait for it. A partition between learners that have computed aborts the current all-reduce and delays the next one until
the partition ends; if it does not end, no learner continues.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import simpy
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simfl.algorithms.base import NO_NUMBER, Algorithm, Countdown
from simfl.algorithms.disclosure import merged, observed, shown
from simfl.algorithms.sums import RuledSum, Sum
from simfl.compiled import Integer, Number
from simfl.tape.recording import Gradient, Model
from simfl.world.availability import CRASHED, DONE
from simfl.world.collectives import (
    ALL_GATHERS,
    ALL_REDUCES,
    Plan,
    Step,
    equal_seconds,
    fastest,
    messages,
    pairs_of,
    seconds,
    sent,
)
from simfl.world.engine import Process


@mypyc_attr(allow_interpreted_subclasses=True)
class SyncSGD(Algorithm):
    """Learners in lockstep, as fast as the slowest."""

    kind: ClassVar[str] = "sync_sgd"
    summary: ClassVar[str] = "SYNC: synchronous SGD with all-reduce; waits for the slowest"
    family: ClassVar[str] = "rounds"
    who_waits: ClassVar[str] = "every client waits for the slowest, in every mini-batch"
    what_travels: ClassVar[str] = "gradients, by all-reduce; with a robust rule, by all-gather"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    combines_per_gradient: ClassVar[float] = 0.3

    def set_up(self, *, all_reduce: str) -> None:
        """Take the options."""
        self.all_reduce = all_reduce
        self.model = self.tape.constant(self.training.initial)
        #: What learners make of their gradients. Each makes it, and no server.
        self.sum, self.server = Sum(self), NO_NUMBER
        if (rule := self.aggregator(self.num_clients)) is not None:
            self.sum = RuledSum(self, rule)
        self._plans = ALL_GATHERS if self.sum.reads_each else ALL_REDUCES
        self._members: list[int] = []
        self._plan: Plan = ()
        self._sent: list[tuple[int, int, int]] = []
        self._seconds = 0.0  # duration of the plan, if it is constant
        #: Learners with the current model; None: all, because it is the initial one.
        self._holders: set[int] | None = None

    def start(self) -> None:
        """Start the one process that runs all iterations."""
        self.clock.start(self.iterations())

    def models(self) -> Sequence[Model]:
        """Return the one model that all learners hold."""
        return [self.model]

    def iterations(self) -> Process:
        """Iterate: compute, barrier, all-reduce, step."""
        while True:
            members = self.members()
            if not members:
                coming = self.next_join()
                if coming is None:
                    return  # all learners have left permanently
                yield self.clock.timeout(coming - self.clock.now)
                continue
            source = self._source(members)
            holders = set(members) if self._holders is None else self._holders
            gradients = {k: self.batches.gradient(self.model, k) for k in members if k in holders}
            barrier = Countdown(self.clock.event(), len(members))
            for k in members:
                if source is None or k in holders:
                    self._compute_until_done(k, barrier)
                else:
                    self.clock.start(self._join(k, source, gradients, barrier), k)
            yield barrier.event
            finished = sorted(barrier.done)
            if not finished:
                continue
            sizes = {k: gradients[k].size for k in finished}
            network = self.world.network
            while True:  # a partition between learners delays or aborts the all-reduce
                joined_s = network.joined_s(finished, self.clock.now)
                if math.isinf(joined_s):
                    return
                if joined_s > self.clock.now:
                    yield self.clock.timeout(joined_s - self.clock.now)
                duration, started = self.all_reduce_s(finished), self.clock.now
                cut = network.hit(finished, started, started + duration)
                if cut is None:
                    break
                aborted = messages(self.plan(finished))
                network.lost, network.delivered = network.lost + aborted, network.delivered - aborted
                yield self.clock.timeout(cut.start_s - started)
            if duration > 0.0:
                yield self.clock.timeout(duration)
                for k in finished:
                    self.times.communicated(k, self.times.present_s(k, started, self.clock.now))
            if observed(network):  # each learner may see every gradient
                for one, other in itertools.permutations(finished, 2):
                    shown(network, one, other, gradients[one])
            step_size = self.step_size()
            self.model = self.sum.step(self.descent, self.model, [gradients[k] for k in finished], step_size)
            self._holders = set(finished)
            for k in finished:
                merged(self.world.network, k, self.model)
            self.round_num += 1
            with self.together():
                for k in finished:
                    self.updated(k, 0, sizes[k], step_size, round_num=self.round_num - 1)

    def _source(self, members: Sequence[int]) -> int | None:
        """Return the learner that sends the model to new members; None if all have it.

        If all learners with the model have left permanently, start again from the initial model.
        """
        if self._holders is None or self._holders >= set(members):
            return None
        availability, network, now = self.world.availability, self.world.network, self.clock.now
        holders = [k for k in sorted(self._holders) if not availability.gone(k, now)]
        if not holders:
            self._holders, self.model = None, self.tape.constant(self.training.initial)
            self.descent.begin(0)
            return None
        new = [k for k in members if k not in self._holders]
        reachable = [k for k in holders if availability.online(k, now) and network.joined_s((k, *new), now) == now]
        return (reachable or holders)[0]

    def _join(self, k: int, source: int, gradients: dict[int, Gradient], barrier: Countdown) -> Process:
        """Wait for the model from `source`, and compute; no result if it leaves."""
        network, answer, since = self.world.network, self.clock.event(), self.clock.now
        model, state = self.model, self.descent.rows(0)

        def arrived() -> None:
            if not answer.triggered:
                for row in state:
                    shown(network, source, k, row)
                answer.succeed(True)

        leaves_s = self.world.availability.leaves_s(k)
        if not math.isinf(leaves_s):
            self.clock.call_at(leaves_s, lambda: None if answer.triggered else answer.succeed(False))
        size = 4 * len(self.training.initial) * (1 + len(state))
        network.send(source, k, size, arrived, content=model)
        arrived_in_time = yield answer
        self.times.communicated(k, self.times.present_s(k, since, self.clock.now))
        if not arrived_in_time:
            barrier.tick()
            return
        merged(self.world.network, k, model)
        for row in state:
            merged(self.world.network, k, row)
        gradients[k] = self.batches.gradient(model, k)
        self._compute_until_done(k, barrier)

    def members(self) -> list[int]:
        """Return the learners that take part and have privacy budget left."""
        learners = [k for k in range(self.num_clients) if not self.budgets.spent(k)]
        if self.world.availability.trivial:
            return learners
        availability, now = self.world.availability, self.clock.now
        return [k for k in learners if availability.joins_s(k) <= now < availability.leaves_s(k)]

    def next_join(self) -> Number | None:
        """Return the time at which the next learner joins, None for never."""
        joins = [self.world.availability.joins_s(k) for k in range(self.num_clients)]
        return min((t for t in joins if self.clock.now < t < math.inf), default=None)

    def plan(self, members: list[int]) -> Plan:
        """Return the steps of an all-reduce among the members."""
        if members != self._members:
            count, size = len(members), self.training.model_bytes
            self._members = members
            name = self.all_reduce
            if name == "auto" and count > 1:
                name = fastest(count, size, self._expected_s, self._plans)
            self._plan = self._plans[name](count, size) if count > 1 else ()
            self._sent = sent(self._plan)
            if self.world.network.steady:
                self._seconds = equal_seconds(self._plan, self._expected_s)
            elif self.world.network.values.repeats:
                times = {id(step): self._expected_s(step) for step in self._plan}
                self._seconds = seconds(self._plan, count, lambda step: times[id(step)])
        return self._plan

    def _pairs(self, step: Step) -> list[tuple[int, int]]:
        return [(self._members[i], self._members[j]) for i, j in pairs_of(step)]

    def _expected_s(self, step: Step) -> NDArray[np.float64]:
        """Return the expected seconds of each message."""
        if self.world.network.steady:  # all take as long as the first one
            first = self._members[step.sources[0]], self._members[step.targets[0]]
            return np.full(len(step.sources), self.world.network.expected_s([first], step.size)[0])
        return np.array(self.world.network.expected_s(self._pairs(step), step.size))

    def all_reduce_s(self, members: list[int]) -> Number:
        """Return the duration of the all-reduce, seconds, and count its messages."""
        network, plan = self.world.network, self.plan(members)
        if network.values.repeats:
            network.count_all(members, self._sent)
            return self._seconds
        return seconds(plan, len(members), lambda step: np.array(network.transfers_s(self._pairs(step), step.size)))

    def awaits(self, client: Integer) -> str:
        """Say that the client waits for the all-reduce."""
        del client
        return "waits for the all-reduce"

    def _compute_until_done(self, k: int, barrier: Countdown) -> None:
        """Compute, again after each crash, and tick the barrier.

        A learner that leaves ticks without a result.
        """

        def finished(event: simpy.Event) -> None:
            outcome = event.value
            if outcome is CRASHED:
                self._compute_until_done(k, barrier)
            else:
                barrier.tick(k if outcome is DONE else None)

        self.compute(k).callbacks.append(finished)
