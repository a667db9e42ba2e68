"""Fully collaborative SGD without replacement: all update one global model.

Jin, He, Dai, "Decentralized Differentially Private Without-Replacement Stochastic Gradient Descent", Algorithm 1.

    for t = 0, 1, ...: one node m that has data left
        fetches the global model w_t from the node that updated it last          (takes time)
        takes its next batch D_m(t) of b examples, none of which was used before
        w_{t+1} <- w_t - eta_t (gradient of the mean loss on D_m(t) at w_t + N_t)  (takes time)
        broadcasts that it has version t + 1

`passing` says how a model finds its way, and what several tasks mean. eta_t counts the updates of one
task. The noise N_t of mechanism `one_pass_gaussian` is that of Lemma 4, and all releases together are as private as
one, because no example is in two of them; without privacy this is the paper's "noiseless".

The listing has no projection onto the ball of radius R that the bounds of the strongly convex case need:
`projection` decides. Its range t = 0..T has one batch too many; here every batch is used once.

Faults: those of `passing`.
"""

from __future__ import annotations

from typing import ClassVar

from simfl.papers.without_replacement.passing import PassedModels
from simfl.tape import Gradient
from simfl.world.engine import Process


class WithoutReplacementSGD(PassedModels):
    """Nodes pass the global model of each task on; each example is used once per task."""

    kind: ClassVar[str] = "without_replacement_sgd"
    summary: ClassVar[str] = "decentralized SGD without replacement: a global model goes from node to node"
    family: ClassVar[str] = "papers"
    who_waits: ClassVar[str] = (
        "with `contention: token`, a client waits for the right to update; with `race`, no client waits"
    )
    what_travels: ClassVar[str] = "the model, to the next client; two integers, to all clients"
    what_is_private: ClassVar[str] = (
        "an example (`one_pass_gaussian`, `gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    )

    def set_up(self, *, order: str, contention: str) -> None:
        """Take the options; see `passing`."""
        self.begin(order, contention, visits=1)

    def start(self) -> None:
        """Start the nodes, and choose the first one of every task in token mode."""
        worker = self.racer if self.racing else self.node
        for node in range(self.num_clients):
            self.clock.start(worker(node), node)
        if not self.racing:
            for task in range(self.num_tasks):
                self._waiting[task] = [node for node in range(self.num_clients) if self.has_data(node, task)]
                self._next(task, -1)

    def node(self, me: int) -> Process:
        """Token mode: compute on the models that come, in their order."""
        while True:
            task, model, version, source = yield from self.take(me)
            gradient = self.batch(model, me, task, self.batches.noise_scale[me])
            if not (yield from self.working(me)):
                self.abandon(me, task)
                return
            self.apply(me, task, gradient, version, source)
            self.release(me, task)
            del model, gradient  # a suspended process would keep them, and their rows, alive

    def racer(self, me: int) -> Process:
        """Race: fetch the next task's model while computing on one."""
        yield self.world.joined(me)
        upcoming: int | None = self._following(me, me - 1)
        if upcoming is not None:
            self._fetch(me, upcoming)
        while upcoming is not None:
            task, model, version, source = yield from self.take(me)
            gradient = self.batch(model, me, task, self.batches.noise_scale[me])
            upcoming = self._following(me, task)
            ahead = upcoming is not None and upcoming != task
            if upcoming is not None and ahead:
                self._fetch(me, upcoming)
            if not (yield from self.working(me)):
                return
            if self.version[task] == version:
                self.apply(me, task, gradient, version, source)
            else:
                yield from self._take_over(me, task, gradient, version)
            if upcoming is not None and not ahead:
                self._fetch(me, upcoming)
            del model, gradient

    def _following(self, me: int, task: int) -> int | None:
        """Return the node's next task with data left, by number or drawn."""
        left = [task for task in range(self.num_tasks) if self.has_data(me, task)]
        if not left:
            return None
        if self.order == "random":
            return left[int(self._turn.next(me) * len(left))]
        return min(left, key=lambda other: (other - task - 1) % self.num_tasks)

    def _take_over(self, me: int, task: int, gradient: Gradient, read: int) -> Process:
        """Fetch the newest model, and apply a stale step to it."""
        came = self.clock.event()
        began = self.clock.now
        self._fetch(me, task, came.succeed)
        source = yield came
        self.times.communicated(me, self.times.present_s(me, began, self.clock.now))
        self.apply(me, task, gradient, read, source)

    def apply(self, me: int, task: int, gradient: Gradient, read: int, source: int) -> None:
        """Make the next version of a task's model."""
        self.works_on_newest(me, task)
        step_size = self.step_at(self.version[task])
        model = self.tape.combine((1.0, self.globals[task]), *self.descent.terms(gradient, step_size))
        self.publish(me, task, read, model, step_size, source, self.batches.noise_std[me])
