"""FedAvg: synchronous federated learning.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas 2017, "Communication-efficient learning of deep networks from
decentralized data", https://arxiv.org/abs/1602.05629, Algorithm 1 (FederatedAveraging):

    every round:  S = max(fraction K, 1) random clients
                  each k in S takes w, trains for H mini-batches (or E passes over its data), sends w_k - w
                  w <- w + sum over S of n_k (w_k - w) / sum over S of n_k        (times a server step, 1 by default)

A server optimiser takes minus the mean change for a gradient, and the server step for its step size: FedAvgM (Hsu, Qi,
Brown 2019, https://arxiv.org/abs/1909.06335), FedAdam, FedYogi and FedAdagrad (Reddi et al. 2021,
https://arxiv.org/abs/2003.00295, Algorithm 2).

The server waits for all of S that have not left for good; with a `deadline`, for those who are done by then, and at
least one. What comes later is thrown away. Clients that are away are not chosen; one that crashes begins its round
again; one that is away when the model reaches it takes no part in the round.

Privacy protects all data of a client together: each client clips its update to norm C and adds noise before it sends
it. Who takes part is seen by the server, and no epsilon counts on it being unknown.

Faults. Lost messages make a round longer. The server chooses those who are there and in reach, and waits for the
update of one that is cut off meanwhile, unless there is a deadline. While the server is away no round begins or ends.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any, ClassVar

import simpy

from simfl.algorithms.server import ServerAlgorithm
from simfl.tape import Model
from simfl.tape.recording import Round
from simfl.world.availability import Outcome
from simfl.world.compute import Draws
from simfl.world.engine import Process


class FedAvg(ServerAlgorithm):
    """Rounds of local training on some clients, and the mean of what they made of the model."""

    summary: ClassVar[str] = "FedAvg: rounds in which some clients train locally and a server averages"
    kind: ClassVar[str] = "fedavg"
    combines_per_gradient: float = 0.3
    #: Whether a client that would miss the deadline sends what it has made by then.
    partial_work: ClassVar[bool] = False

    def set_up(
        self,
        steps: Sequence[int] | None = None,
        fraction: float = 1.0,
        weighting: str = "data",
        server_step: float = 1.0,
        deadline: float | None = None,
    ) -> None:
        """Take the options.

        Args:
            steps: mini-batches of a round at each client, [K]; one each by default.
            fraction: share of the clients that take part in a round.
            weighting: "data": by examples, "uniform": all alike.
            server_step: step of the server on the mean change.
            deadline: seconds that a round takes at most, as long as somebody is done by then; None: no deadline.
        """
        super().set_up()
        self.steps = [1] * self.num_clients if steps is None else list(steps)
        self.cohort_size = max(1, math.ceil(fraction * self.num_clients - 1e-9))
        self.weights = [float(n) if weighting == "data" else 1.0 for n in self.training.sizes]
        self.server_step = server_step
        self.deadline = deadline
        #: Who trains or sends; nobody is chosen twice at a time.
        self.busy: set[int] = set()
        self._freed: simpy.Event | None = None
        self._choice = Draws(self.world.streams, "cohort", lambda g, n: g.random(n))

    @property
    def chains(self) -> int:
        """The clients of a round train side by side."""
        return self.cohort_size

    def start(self) -> None:
        """Start the server."""
        self.clock.start(self.rounds_of_server())

    # -- the server ----------------------------------------------------------------------------

    def rounds_of_server(self) -> Process:
        """Choose, wait, average."""
        while True:
            if not (yield from self._up()):
                return
            there = self._there()
            if not there and self.busy:  # those who missed a deadline are still at it
                self._freed = self.clock.event()
                yield self._freed
                continue
            if not there:
                coming_s = self._next_s()
                if math.isinf(coming_s):
                    return  # everybody has left, or has nothing left to spend
                yield self.clock.timeout(coming_s - self.clock.now)
                continue
            yield from self._round(self._choose(there))

    def _there(self) -> list[int]:
        """Clients that could take part in a round that begins now."""
        free = [k for k in range(self.num_clients) if k not in self.busy and not self.exhausted(k)]
        if self._trivial and self._connected:
            return free
        now = self.clock.now
        return [k for k in free if self.meets_s(k, (k, self.server)) == now]

    def _next_s(self) -> float:
        """When a client may be there, and in reach, that is not now; infinite if never."""
        waits = [self.meets_s(k, (k, self.server)) for k in range(self.num_clients) if not self.exhausted(k)]
        return min((when for when in waits if when > self.clock.now), default=math.inf)

    def _up(self) -> Generator[simpy.Event, Any, bool]:
        """Wait until the server is there; false if it has left for good."""
        return self._trivial or (yield from self.until_back(self.server))

    def _choose(self, there: list[int]) -> list[int]:
        """Draw the round's clients."""
        cohort: list[int] = []
        while there and len(cohort) < self.cohort_size:
            cohort.append(there.pop(int(self._choice.next(0) * len(there))))
        return sorted(cohort)

    def _round(self, cohort: list[int]) -> Process:
        """Send the model, wait for the updates, step."""
        this = _RoundUnderWay(self.clock.event(), set(cohort), self.round_num, self.step_size(), self.clock.now)
        for client in cohort:
            self.busy.add(client)
            if self.clock.now == 0.0:  # everybody has the initial model: nothing travels
                self.clock.start(self.client(client, self.server_model, this), client)
                continue

            model = self.server_model

            def begin(client: int = client, model: Model = model) -> None:
                self.clock.start(self.client(client, model, this), client)

            def missed(client: int = client) -> None:
                self._done(client, this, None)

            self.to_client(client, begin, None, missed, model)
        if self.deadline is not None:
            self.clock.call_at(this.began_s + self.deadline, lambda: self._expire(this))
        yield this.over
        if not (yield from self._up()):
            return
        this.closed = True
        if not this.came:
            return
        came = sorted(this.came)
        total = sum(self.weights[k] for k in came)
        step = self.server_step if self.server_optimizer is None else -1.0
        terms: list[tuple[float, Model | Round]] = [(step * self.weights[k] / total, this.came[k]) for k in came]
        if self.server_optimizer is None:
            self.server_model = self.tape.combine((1.0, self.server_model), *terms)
        else:  # minus the mean change is what an optimiser takes for the gradient
            self.server_model = self.server_optimizer.step(0, self.server_model, terms, self.server_step)
        self.merged(self.server, self.server_model)
        self.round_num += 1
        with self.together():
            for k in came:
                self.applied()
                self.updated(k, 0, this.sizes[k], this.step_size, round_num=this.number)
        this.came.clear()

    def _done(self, client: int, this: _RoundUnderWay, change: Round | None) -> None:
        """What a client made has come, or it is known that nothing will come."""
        self.busy.discard(client)
        freed = self._freed
        if freed is not None:
            self._freed = None
            freed.succeed()
        if this.closed:
            if change is not None:
                self.client_dropped[client] += 1
            return
        this.missing.discard(client)
        if change is not None:
            this.came[client] = change
            this.sizes[client] = change.first * change.size
        if not this.over.triggered and (not this.missing or (this.expired and this.came)):
            this.over.succeed()

    def _expire(self, this: _RoundUnderWay) -> None:
        this.expired = True
        if this.came and not this.over.triggered:
            this.over.succeed()

    # -- clients -------------------------------------------------------------------------------

    def client(self, me: int, model: Model, this: _RoundUnderWay) -> Process:
        """Train and send; again after a crash."""
        since = self.clock.now
        self.communicated(me, self.present_s(me, this.began_s, since))
        while True:
            seconds = self._duration(me, self.steps[me] * self._nominal, self.clock.now)
            steps, seconds = self._within(this, self.steps[me], seconds)
            outcome = yield self.compute_for(me, seconds)
            if outcome is not Outcome.CRASHED:
                break
        if outcome is Outcome.GONE:
            self._done(me, this, None)
            return
        change = self.train(model, me, steps, (this.step_size, 0.0, 0.0, 0.0))
        self.tape.release(change)
        sent_s = self.clock.now

        def arrived() -> None:
            self.communicated(me, self.present_s(me, sent_s, self.clock.now))
            self._done(me, this, change)

        self.to_server(me, arrived, content=change)

    def _within(self, this: _RoundUnderWay, steps: int, seconds: float) -> tuple[int, float]:
        """Return how many steps a client makes, and how long that takes."""
        if not self.partial_work or self.deadline is None:
            return steps, seconds
        left = this.began_s + self.deadline - self.clock.now
        made = min(steps, max(1, int(steps * left / seconds)))
        return made, seconds * made / steps


class _RoundUnderWay:
    """A round: who is still waited for, and what has come."""

    def __init__(self, over: simpy.Event, missing: set[int], number: int, step_size: float, began_s: float) -> None:
        self.over = over
        self.missing = missing
        self.number = number
        self.step_size = step_size
        self.began_s = began_s
        self.came: dict[int, Round] = {}
        self.sizes: dict[int, int] = {}
        self.expired = self.closed = False
