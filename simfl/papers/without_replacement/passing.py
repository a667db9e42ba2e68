"""Base class of algorithms that pass on global models and use data up.

Jin, He, Dai, "Decentralized Differentially Private Without-Replacement Stochastic Gradient Descent", section III.

There is a global model for every task (one-vs-all classification has a task per class, other models are one task). Its
*holder* is the node that updated it last. After an update the holder broadcasts two integers: the version t and its own
number. A node that wants to update asks the holder and gets the model. A node is one processor: it works on models in
the order in which they arrive, and while it waits for one task it works on another.

    task's model at node h:  broadcast (t, h)  ->  next node m asks h  ->  model travels h -> m
    m:                       w_{t+1} = w_t - eta_t (mean gradient of m's next batch + noise)

Data: each (node, task) pair makes `visits` passes over the node's examples, in a random order of its own and in batches
of B that do not overlap. After that the pair makes no more updates. With n examples it has floor(visits n / B) batches.

Two options set what the paper leaves open:

- `order` picks the next of the nodes that wait for a task. "random": one of them is drawn. "round_robin": by number,
  beginning after the holder. "fewest": the node that has used the fewest batches of the task; ties are drawn. "rounds":
  every node acts once per round of the task (the paper's Assumption 2), by number within the round. Task c begins at
  node c mod M. A node that has acted waits for the next round, which begins when all nodes of this one have acted.
  Rounds are the paper's common clock t: they cost no messages. No round waits for a node that is offline, cut off from
  the holder, or out of privacy budget: such a node acts late, and takes part again after that.
- `contention` decides between two nodes that want one version. "token": one node at a time has the right to update,
  from its fetch to its update, so that the models are a chain. "race": nodes fetch whenever they are idle, so that
  several compute at one version. Each adds its step to the newest version, which it fetches from the holder if it does
  not have it. The staleness of its gradient is the number of updates of the task since its fetch.

A broadcast counts in full in the traffic, but travels only to nodes that wait for it. A node that is offline at its
turn is skipped; a node that leaves permanently passes on its rights to update. An offline holder still sends its model,
after a timeout.

Faults. Lost messages are sent again, and broadcasts of two integers may overtake each other. A node that is offline or
cannot reach the holder does not get the right to update: the model goes on only on the holder's side of a partition. A
node that crashes with the right keeps it, and computes again when it is back.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import simpy

from simfl.algorithms.base import Algorithm
from simfl.errors import RunError
from simfl.tape import Gradient, Model
from simfl.world.availability import MOST_OUTAGES, Outcome
from simfl.world.compute import Draws

#: Two integers: the version, and its holder.
INTEGERS_BYTES = 8

#: A model that has arrived: the task, the model as it was fetched, its version, its sender (-1: it was here already).
Arrived = tuple[int, Model, int, int]


@dataclass(eq=False)
class _Parked:
    """An unused right to update; the node `teller` made the last update."""

    teller: int


class PassedModels(Algorithm):
    """Base of the paper's algorithms: rights to update, fetches, and batches used."""

    combines_per_gradient = 0.1

    def begin(self, order: str, contention: str, visits: int) -> None:
        """Store the shared options (see the module) and put the models on the tape."""
        self.order = order
        self.racing = contention == "race"
        self.visits = visits
        self.num_tasks = self.training.tasks
        self._still = self._trivial and not self.world.network.links.cuts
        pairs = self.num_clients * self.num_tasks
        #: Batches that each pair (node * tasks + task) has used, or begun to use.
        self.used = [0] * pairs
        self._batches = [visits * int(n) // self.training.batch_size for n in self.training.sizes]
        initial, constant = self.training.tasks_initial, self.tape.constant
        #: The global model of each task, its version, and its holder (-1: all nodes, at the start).
        self.globals: list[Model]
        if initial is None:
            self.globals = [constant(self.training.initial)] * self.num_tasks
        else:
            self.globals = [constant(values) for values in initial]
        self.version = [0] * self.num_tasks
        self.holder = [-1] * self.num_tasks
        #: Nodes that wait for the right to update a task; whether a node has it.
        self._waiting: list[list[int]] = [[] for _ in range(self.num_tasks)]
        self._taken = [False] * self.num_tasks
        self._parked: list[_Parked | None] = [None] * self.num_tasks
        self.in_rounds = order == "rounds"
        #: Nodes that have still to act in the current round of each task, and nodes that wait for the next round.
        first = [node for node in range(self.num_clients) if self.in_rounds and self._batches[node]]
        self._acting = [set(first) for _ in range(self.num_tasks)]
        self._lined_up: list[list[int]] = [[] for _ in range(self.num_tasks)]
        #: Time at which a node of the current round becomes absent, so that the next round may begin; for each task.
        self._look_s = [math.inf] * self.num_tasks
        #: Looks at absences in a task's round.
        self._looks = [0] * self.num_tasks
        self._turn = Draws(self.world.streams, "turn", lambda g, n: g.random(n))
        self._jobs: list[deque[Any]] = [deque() for _ in range(self.num_clients)]
        self._idle: list[simpy.Event | None] = [None] * self.num_clients

    def models(self) -> Sequence[Model]:
        """Return the global model of each task."""
        return self.globals

    def evaluated(self) -> Sequence[Model]:
        """Return the global models of all tasks, also if there are as many as clients."""
        return self.models()

    @property
    def chains(self) -> int:
        """The number of independent chains: the updates of one task follow in order."""
        return self.num_clients * self.num_tasks if self.racing else self.num_tasks

    def has_data(self, node: int, task: int) -> bool:
        """Whether the pair has a batch left that it may use."""
        return self.used[node * self.num_tasks + task] < self._batches[node]

    # -- rounds ---------------------------------------------------------------------------------

    def act(self, node: int, task: int) -> None:
        """Make the node use its next batch of the task."""
        self.want(node, task)

    def acted(self, node: int, task: int) -> None:
        """Note that the node has acted; with data left it waits for the next round."""
        self._acting[task].discard(node)
        if self.has_data(node, task):
            self._lined_up[task].append(node)
        self._begin_round(task)

    def _begin_round(self, task: int) -> None:
        """Begin the task's next round if all nodes of this one have acted or are absent."""
        nodes, acting = self._lined_up[task], self._acting[task]
        if not nodes:
            return
        if acting:
            if self._still and not self.budgets.limited:
                return
            now = self.clock.now
            awaited = [k for k in acting if not self.budgets.spent(k) and self._in_reach_s(k, task) == now]
            if awaited:
                self._look_at_absences(task, awaited)
                return
        self._lined_up[task], self._looks[task] = [], 0
        acting.update(nodes)
        for node in sorted(nodes, key=lambda k: (k - task) % self.num_clients):
            self.act(node, task)

    def _look_at_absences(self, task: int, awaited: Sequence[int]) -> None:
        """Call `_begin_round` again when an awaited node goes offline or is cut off.

        Raises:
            RunError: nodes go offline more than `MOST_OUTAGES` times in one round, which would take hours.
        """
        now, availability, cuts = self.clock.now, self.world.availability, self.world.network.links.cuts
        times_s = [availability.away_s(node, now) for node in awaited]
        if cuts and (holder := self.holder[task]) >= 0:
            hits = (cuts.hit((node, holder), now, math.inf) for node in awaited)
            times_s += [cut.start_s for cut in hits if cut is not None]
        look_s = min(times_s)
        if math.isinf(look_s) or look_s == self._look_s[task]:
            return

        def look() -> None:
            self._look_s[task] = math.inf
            self._begin_round(task)

        self._looks[task] += 1
        if self._looks[task] > MOST_OUTAGES:
            raise RunError(
                f"availability: expected at most {MOST_OUTAGES} absences of clients during a round, found more until "
                f"{now:.3g} s; choose longer times between absences, or faster clients and links"
            )
        self._look_s[task] = look_s
        self.clock.call_at(look_s, look)

    # -- the right to update, and fetching a model ----------------------------------------------

    def want(self, node: int, task: int) -> None:
        """Make the node wait for the right to update the task's global model."""
        self._waiting[task].append(node)
        parked = self._parked[task]
        if parked is not None:
            self._next(task, parked.teller)
        elif not self._taken[task]:
            self._next(task, -1)

    def _next(self, task: int, teller: int) -> None:
        """Give the right to update to a waiting node; `teller` made the last update."""
        waiting = self._waiting[task]
        present = waiting
        if not self._still or self.budgets.limited:
            now, availability = self.clock.now, self.world.availability
            waiting[:] = [k for k in waiting if not (availability.gone(k, now) or self.budgets.spent(k))]
            present = [k for k in waiting if self._in_reach_s(k, task) == now]
        self._taken[task], self._parked[task] = bool(waiting), None
        if not waiting:
            if self.in_rounds:  # all nodes of this round may have left
                self._begin_round(task)
            return
        if not present:  # all are offline or cut off from the holder: go on when one of them is back, or another waits
            parked = self._parked[task] = _Parked(teller)
            back_s = min(self._in_reach_s(k, task) for k in waiting)
            if not math.isinf(back_s):
                self.clock.call_at(back_s, lambda: self._next(task, teller) if self._parked[task] is parked else None)
            return
        node = self._choose(task, present)
        waiting.remove(node)
        if teller in (-1, node) or self.world.network.free:
            self._fetch(node, task)
        else:
            self.world.network.count(teller, INTEGERS_BYTES, -1)  # `send` counts this message of the broadcast
            self.world.network.send(
                teller, node, INTEGERS_BYTES, lambda: self._fetch(node, task), lambda: self._refused(node, task)
            )

    def _in_reach_s(self, node: int, task: int) -> float:
        """Return when a node is online and reaches the task's holder."""
        holder = self.holder[task]
        return self.world.meets_s(node, (node, holder)) if holder >= 0 else self.world.meets_s(node, ())

    def _choose(self, task: int, present: list[int]) -> int:
        if self.order == "fewest":
            used = [self.used[node * self.num_tasks + task] for node in present]
            present = [node for node, count in zip(present, used, strict=True) if count == min(used)]
        if self.order in ("random", "fewest"):
            return present[int(self._turn.next(task) * len(present))]
        if self.in_rounds:
            return min(present, key=lambda k: (k - task) % self.num_clients)
        last = self.holder[task]
        if last < 0:
            last = task % self.num_clients - 1  # tasks begin at different nodes
        return min(present, key=lambda k: (k - last - 1) % self.num_clients)

    def _refused(self, node: int, task: int) -> None:
        """Give the turn of an offline node to another node; the first keeps waiting."""
        if self.racing:
            back_s = self.world.availability.back_s(node, self.clock.now)
            if not math.isinf(back_s):
                self.clock.call_at(back_s, lambda: self._fetch(node, task))
            return
        self._waiting[task].append(node)
        self._next(task, -1)

    def _fetch(self, node: int, task: int, then: Callable[[int], None] | None = None) -> None:
        """Fetch a task's model from its holder, as a job or by calling `then`."""
        arrive = then or (lambda source: self._arrived(node, task, source))
        holder, network, now = self.holder[task], self.world.network, self.clock.now
        if holder in (-1, node):
            arrive(-1)
        elif network.links.cuts and (joined_s := network.joined_s((node, holder), now)) > now:
            if not math.isinf(joined_s):  # by then, another node may be the holder
                self.clock.call_at(joined_s, lambda: self._fetch(node, task, then))
        elif network.free:
            network.hand_over(node, holder, INTEGERS_BYTES)
            network.hand_over(holder, node, self.training.model_bytes, self.globals[task])
            arrive(holder)
        else:

            def give() -> None:
                self.works_on_newest(holder, task)
                refused = None if then else lambda: self._refused(node, task)
                network.send(
                    holder, node, self.training.model_bytes, lambda: arrive(holder), refused, self.globals[task]
                )

            network.send(node, holder, INTEGERS_BYTES, give, refused=give)

    def works_on_newest(self, node: int, task: int) -> None:
        """Tell the witness that the node sees the newest version, in a race."""
        witness, holder = self.world.network.witness, self.holder[task]
        if witness is not None and self.racing and holder not in (-1, node):
            witness.shown(holder, node, self.globals[task])

    def _arrived(self, node: int, task: int, source: int) -> None:
        self.works_on_newest(node, task)
        arrived: Arrived = (task, self.globals[task], self.version[task], source)
        self.give(node, arrived)

    # -- nodes ----------------------------------------------------------------------------------

    def give(self, node: int, job: Any) -> None:
        """Put a job into the node's queue."""
        self._jobs[node].append(job)
        idle = self._idle[node]
        if idle is not None:
            self._idle[node] = None
            idle.succeed()

    def take(self, me: int) -> Generator[simpy.Event, Any, Any]:
        """Wait for the node's next job, and return it."""
        jobs = self._jobs[me]
        if not jobs:
            idle = self._idle[me] = self.clock.event()
            yield idle
        return jobs.popleft()

    def working(self, me: int) -> Generator[simpy.Event, Any, bool]:
        """Compute a mini-batch, again after each crash; false if the node has left."""
        while True:
            outcome = yield self.compute(me)
            if outcome is not Outcome.CRASHED:
                return outcome is Outcome.DONE

    def batch(self, model: Model, node: int, task: int, noise_scale: float) -> Gradient:
        """Record the gradient of the pair's next batch at a model."""
        pair = node * self.num_tasks + task
        draw = self.used[pair]
        self.used[pair] = draw + 1
        return self.tape.gradient(model, pair, draw, self.training.batch_size, noise_scale)

    def step_at(self, count: int) -> float:
        """Return the step size of the update after `count` updates of the task."""
        return self.descent.size_after(count, count * self.training.batch_size)

    def publish(
        self, node: int, task: int, read: int, model: Model, step_size: float, source: int, noise_std: float
    ) -> None:
        """Announce a new version of the task's model, computed at version `read`."""
        t = self.version[task]
        self.globals[task] = model
        self.version[task] = t + 1
        self.holder[task] = node
        self.world.network.count(node, INTEGERS_BYTES, self.num_clients - 1)
        self.finished(node, task, t - read, step_size, source, t, noise_std)

    def finished(
        self, node: int, task: int, staleness: int, step_size: float, source: int, version: int, noise_std: float
    ) -> None:
        """Record that a batch was used."""
        self.updated(node, staleness, self.training.batch_size, step_size, source, version, noise_std)

    def release(self, node: int, task: int) -> None:
        """Give back the right to update, and wait for it again if data is left."""
        if self.in_rounds:
            self.acted(node, task)
        elif self.has_data(node, task):
            self._waiting[task].append(node)
        self._next(task, node)

    def abandon(self, me: int, task: int | None) -> None:
        """Drop the jobs of a node that has left, and pass on its rights to update."""
        tasks = [] if task is None else [task]
        tasks += [job[0] for job in self._jobs[me] if isinstance(job, tuple)]
        self._jobs[me].clear()
        if not self.racing:
            for each in tasks:
                self._next(each, -1)
        if self.in_rounds:
            for each, lined_up in enumerate(self._lined_up):
                lined_up[:] = [node for node in lined_up if node != me]
                self._acting[each].discard(me)
                self._begin_round(each)

    def awaits(self, client: int) -> str:
        """Say what a client waits for, or that it has used its data."""
        left = [task for task in range(self.num_tasks) if self.has_data(client, task)]
        if not left:
            return f"has used its data {self.visits} time{'s' * (self.visits > 1)}"
        of = f" of task {left[0]}" if self.num_tasks > 1 else ""
        return f"waits for the {'next round' if client in self._lined_up[left[0]] else 'model'}{of}"

    @property
    def ending(self) -> str:
        """Say that every client has used its data, if so."""
        pairs = enumerate(self.used)
        spent = all(used >= self._batches[pair // self.num_tasks] for pair, used in pairs)
        return f"every client has used its data {self.visits} time{'s' * (self.visits > 1)}" if spent else ""
