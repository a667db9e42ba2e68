"""FAVAS: the server interrupts random clients; their progress counts per step.

Leconte, Nguyen and Moulines 2023, "FAVAS: federated averaging with asynchronous clients" (later FAVANO),
https://arxiv.org/abs/2305.16099. Each client trains on its own, from the model v_i that it received last:

    client i:  w_i = v_i; up to K times: w_i <- w_i - eta (mean gradient of a mini-batch at w_i); then wait
               when the server asks: stop, send v_i + (w_i - v_i) / alpha_i, wait for w, v_i <- w
    server:    `period` seconds after its last step: ask a random set S of clients, wait for their answers u_i
               w <- (w + sum of u_i over S) / (|S| + 1), send w to the clients in S

With E steps since v_i came, at most K, alpha_i makes the progress that of one step on average, whatever the client's
speed: E[E / alpha_i] = 1.

    expected:  alpha_i = E[E]                       (the paper's deterministic one)
    actual:    alpha_i = P(E > 0) E                 (its stochastic one)

Here the mean and the share are those of the client's answers so far, this one included, so that they hold for any times
of computation and messages. A client without a step answers with v_i.

What this rests on: the paper's abstract, and its equations from memory; its listing could not be read, and no public
program was found.

Privacy: the division comes after noise is added, and depends on times only. A client without a step releases nothing.

Faults: those of `simfl.algorithms.server`. The server asks clients that are online and reachable, and waits for their
answers. A client that crashes loses its progress and requests the model. If 10,000 steps of the server in a row have
no step of a client, since the period is shorter than a mini-batch, the run ends with this reason.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import simpy

from simfl.algorithms.disclosure import merged
from simfl.algorithms.interrupted import InterruptedRounds
from simfl.tape import Model
from simfl.world.engine import Process

#: The run ends after this many steps of the server in a row without a step of a client.
MOST_IDLE = 10_000


@dataclass
class Answer:
    """A client's u, and v's version; it waits for the event `came`, since `taken_s`."""

    model: Model
    version: int
    came: simpy.Event
    step_size: float
    examples: int
    taken_s: float


class FAVAS(InterruptedRounds):
    """A server that averages with what random clients have at the moment."""

    kind: ClassVar[str] = "favas"
    summary: ClassVar[str] = "FAVAS: a server periodically averages with random clients, which it interrupts"
    family: ClassVar[str] = "servers"
    who_waits: ClassVar[str] = "a client waits after `local_steps` steps, and from the server's request to its model"
    what_travels: ClassVar[str] = "requests and the model to clients, their reweighted models to the server"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`)"
    combines_per_gradient = 1.0

    def set_up(self, *, fraction: float, period: float, divisor: str, **options: Any) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up(**options)
        self.most_asked = max(1, math.ceil(fraction * self.num_clients - 1e-9))
        self.period_s, self.divisor = period, divisor
        #: By client: answers, those with steps, and steps in them.
        self.history = [(0, 0, 0)] * self.num_clients
        #: Clients that have not answered, and the event that all have.
        self.asked, self._all = set[int](), self.clock.event()
        self.answers: dict[int, Answer] = {}
        #: Steps of the server since the last one with a client's step.
        self.idle = 0

    @property
    def ending(self) -> str:
        """Say that requests interrupt all mini-batches."""
        if self.idle < MOST_IDLE:
            return super().ending
        return f"no client made a step between {MOST_IDLE} requests: algorithm.period is shorter than a mini-batch"

    def start(self) -> None:
        """Start the clients and the server."""
        super().start()
        self.clock.start(self.ticks())

    def ticks(self) -> Process:
        """Ask random clients and average with their answers, periodically."""
        since = self.clock.now
        while (yield from self.trains()):
            if (left_s := self.period_s - (self.clock.now - since)) > 0.0:  # clients may have waited for the model
                yield self.clock.timeout(left_s)
            if not (yield from self.service.until_up()):
                return
            if not (ready := self.ready()):
                continue
            cohort = sorted(self.selection.pick(ready, self.most_asked))
            self.asked, self._all = set(cohort), self.clock.event()
            for k in cohort:
                self.to_client(k, functools.partial(self._answer, k), 0, functools.partial(self._over, k))
            yield self._all
            if not (yield from self.service.until_up()):
                return
            if self.answers:
                self._step()
            if self.idle >= MOST_IDLE:
                return
            since = self.clock.now

    def _over(self, client: int) -> None:
        """Note that a client has answered, or will not."""
        self.asked.discard(client)
        if not self.asked:
            self._all.succeed()

    def _answer(self, me: int) -> None:
        """Stop training and answer the server, as a client."""
        if me not in self.progress:  # it has left, or has just joined
            self._over(me)
            return
        (model, version), steps, came = self.interrupt(me)
        count, some, total = self.history[me]
        count, some, total = self.history[me] = count + 1, some + (steps > 0), total + steps
        alpha = total / count if self.divisor == "expected" else some / count * steps
        answer, message = Answer(model, version, came, self.step_size(), 0, 0.0), dict[str, Any]()
        if steps:
            change = self.batches.train(model, me, steps, (answer.step_size, 0.0, 0.0, 0.0))
            self.release(change)
            answer.examples = change.all_examples
            message["content"] = made = self.descent.trained(change)
            self.sent += 1
            report = self.selection.report(me, model, change.draw, steps)

        def arrived() -> None:
            if steps:
                report()
                answer.model = self.tape.combine((1.0, model), (1.0 / alpha, made))
            answer.taken_s = self.clock.now
            self.answers[me] = answer
            self._over(me)

        self.to_server(me, arrived, **message)

    def _step(self) -> None:
        """Average with the answers, and send the model to their clients."""
        answers, self.answers = sorted(self.answers.items()), {}
        self.idle = 0 if any(answer.examples for _, answer in answers) else self.idle + 1
        share, before = 1.0 / (len(answers) + 1), self.version
        self.server_model = self.tape.combine(
            (share, self.server_model), *((share, answer.model) for _, answer in answers)
        )
        merged(self.world.network, self.server, self.server_model)
        self.applied()
        self.round_num += 1
        with self.together():
            for k, one in answers:
                if one.examples:
                    self.updated(k, before - one.version, one.examples, one.step_size, round_num=self.round_num - 1)
        for k, one in answers:
            self.exchanges.waited(k, one.taken_s)
            self.hand_out(k, one.came)
