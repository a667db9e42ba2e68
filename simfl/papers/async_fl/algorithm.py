"""Asynchronous FL with reduced numbers of rounds; with privacy, the asynchronous DP-SGD of Proactive DP.

Van Dijk et al. 2020, "Asynchronous Federated Learning with Reduced Number of Rounds and with Differential Privacy from
Less Aggregated Gaussian Noise", https://arxiv.org/abs/2007.09208, Algorithms 1 to 4; Van Dijk et al., "Proactive DP: A
Multiple Target Optimization Framework for DP-SGD", https://arxiv.org/abs/2102.09030, Algorithms 2 to 4.

    server:  v <- v - eta_i U_{i,c} for every (i, c, U) that comes, whatever its round
             when round k has come from all clients:  k <- k + 1, broadcast (v, k)
    client:  on (v, k), if k is newer than the one it knows:  w <- v - eta_i U, U being what round i has so far
             round i:  wait while i > k + d
                       U = sum of [gradient of f(w; x)]_C over s_{i,c} examples, + N(0, (z C)^2)
                       send (i, c, U),  w <- w - eta_i U,  i <- i + 1

Updates are sums, so that step sizes are those of single gradients. A broadcast (v, k) contains all updates of rounds
below k of all clients, and perhaps some later ones. Messages that overtake each other do no harm: a broadcast that is
older than the one a client knows is ignored, and an update may come before that of an earlier round.

`aggregation: mean` divides by the number of clients (weighs by p_c) what the listings add up. Clients that train long
on like data all go the same way: n times as far together as one of them found right.

Two ways to spend a round:

- DP-valid (the default): all gradients of a round are taken at the model that the client has when the round begins, on
  a batch that is drawn once. What the client sends depends on an example through one clipped term only, which is what
  the accountant certifies. A model that comes meanwhile is used from the next round on.
- `local_steps` (the first paper's listing): the client moves its model after every mini-batch, and a model that comes
  meanwhile replaces its own at once. No proof covers its privacy: an example also acts through the steps after it.

Where the papers leave things open: a client that crashes begins its round again from the model it has, with a new
batch, or the same one of shuffled data. One that joins late asks the server for the model and begins with the round
that is then open. One that has left for good, or has spent its privacy budget, is no longer waited for; the server
learns so at once, and applies what is still on its way.

Faults. Lost messages come late, broadcasts that are overtaken are ignored. Who crashes, or is cut off, holds the
round up: clients go on until the gate stops them, and all wait if the partition does not end. While the server is
away its aggregators go on adding up, and the broadcast waits.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any, ClassVar

import simpy

from simfl.algorithms.aggregators import Aggregators, Bundle, Part
from simfl.algorithms.server import ServerAlgorithm
from simfl.papers.async_fl.round_sizes import Gate, RoundsGate, RoundSizes, check_gate, check_size
from simfl.papers.async_fl.sizes import ConstantSizes
from simfl.tape import Gradient, Model
from simfl.world.availability import Outcome
from simfl.world.engine import Process

#: A round's number and a client's: what a message has besides parameters.
HEADER_BYTES = 8


class AsyncFL(ServerAlgorithm):
    """A server that broadcasts when a round is complete, and clients that may be ahead of it."""

    kind: ClassVar[str] = "async_fl"
    summary: ClassVar[str] = (
        "asynchronous FL with growing sample sizes; with privacy, Proactive DP's asynchronous DP-SGD"
    )
    combines_per_gradient: float = 1.0

    def set_up(
        self,
        sizes: RoundSizes | None = None,
        gate: Gate | None = None,
        rounds: int | None = None,
        local_steps: bool = False,
        decay: tuple[float, float] | None = None,
        step_size_of: str = "all",
        mask: int = 1,
        aggregation: str = "sum",
        aggregators: Sequence[int] = (),
    ) -> None:
        """Take the options.

        Args:
            sizes: s_{i,c}; by default every client computes the nominal batch size in every round.
            gate: when a client waits; by default d = 1.
            rounds: T, after which a client has done its part; None: no end.
            local_steps: move the client's model after every mini-batch of the nominal size.
            decay: (eta_0, beta) of step sizes that fall from gradient to gradient ("diminishing_1"), with local steps
                only; None: one step size per round ("diminishing_2").
            step_size_of: whose gradients t of the step size counts: "all": S_i of all clients; "each": S_i over the
                number of clients.
            mask: D, each update has a random 1/D of the entries, D times as large; what is computed is the tape's
                matter (`LearningProblem.blocks`), here it decides about bytes.
            aggregation: "sum": the server adds all updates, as the listings do; "mean": each times p_c.
            aggregators: how many there are on each level, from the server down.
        """
        super().set_up()
        count, training = self.num_clients, self.training
        self.sizes = sizes or RoundSizes(
            ConstantSizes(self._nominal), [1.0] * count, self.world.streams, each_client=True
        )
        self.gate = gate or RoundsGate()
        self.last_round = rounds
        if mask > 1 and (local_steps or training.sampling == "shuffle"):
            raise ValueError(f"mask: expected 1 with local steps or sampling shuffle, found {mask}")
        self.mask = mask
        self.local, self.decay = local_steps, decay
        self._counted_by = count if step_size_of == "each" else 1
        self.averaging = aggregation == "mean"
        entries = len(training.initial)
        self._update_bytes = 4 * -(-entries // mask) + HEADER_BYTES * (1 if mask == 1 else 2)
        self.tree = Aggregators(
            self.world.network, self.tape, self.server, aggregators, count, self._update_bytes,
            training.model_bytes + HEADER_BYTES, self._expected,
            lambda bundle: self._turn_to(lambda: self.apply(bundle)),
        )  # fmt: skip
        #: k, the rounds that the server has from all clients that take part.
        self.complete = 0
        #: H: who has been applied, by round that is not complete.
        self.applied_in: dict[int, set[int]] = {}
        #: Who takes part, and from which round on.
        self.members = {k: 0 for k in range(count) if self.world.availability.joins_s(k) == 0.0}
        #: Each client's round i, the k it knows, its model w, and how many updates it has sent.
        self.at_round = [0] * count
        self.known = [0] * count
        self.model: list[Model] = [
            self.server_model if k in self.members else self.tape.combine() for k in range(count)
        ]
        self.sent = [0] * count
        #: Broadcasts that were ignored because a newer one had overtaken them.
        self.ignored = 0
        self.gradients = 0
        self._version = [0] * count
        self._news: list[simpy.Event | None] = [None] * count
        self._left: set[int] = set()
        self._consumed = [0] * count
        self._rounds_counted = [(0, 0)] * count
        self._rounds: dict[int, _LocalRound] = {}

    def start(self) -> None:
        """Start the clients, and let the server learn who leaves."""
        availability = self.world.availability
        for client in range(self.num_clients):
            self.clock.start(self.client(client), client)
            leaves_s = math.inf if self._trivial else availability.leaves_s(client)
            if not math.isinf(leaves_s) and not math.isinf(availability.joins_s(client)):
                self.clock.call_at(leaves_s, lambda client=client: self.remove(client))  # type: ignore[misc]

    def client_models(self) -> Sequence[Model]:
        """The clients' own models; the server's for those who have none yet."""
        return [model if model.rows else self.server_model for model in self.model]

    @property
    def ending(self) -> str:
        """All rounds are complete, if there is a last one."""
        done = self.last_round is not None and self.complete >= self.last_round
        return f"all {self.last_round} rounds are complete" if done else ""

    @property
    def rounds(self) -> int:
        """k, the rounds that are complete."""
        return self.complete

    def awaits(self, client: int) -> str:
        """The broadcast behind the oldest round that is not complete."""
        if client in self._left or (self.last_round is not None and self.at_round[client] >= self.last_round):
            return "has made all its rounds"
        missing = sorted(self._expected(self.complete) - self.applied_in.get(self.complete, set()))
        return f"waits for round {self.complete}, which client {', '.join(map(str, missing))} has not sent"

    @property
    def epochs(self) -> float:
        """Passes over all clients' examples so far, by the sizes s_{i,c}."""
        return self.gradients / self._total

    def updates_after(self, epochs: float) -> float:
        """Return the updates of the rounds that it takes to make so many passes."""
        return float(self.num_clients * self.sizes.rounds_for(epochs * self._total))

    def step_at(self, i: int) -> float:
        """Return eta_i, the step size of round i: the schedule's at t = S_i gradients, or a client's share."""
        if not callable(self._schedule):
            return self._schedule
        before = self.sizes.total(i)
        return self._schedule(i, before // self._counted_by, before / self._total)

    def exhausted(self, client: int) -> bool:
        """Whether the client's next release would exceed its privacy budget.

        Allowances count rounds with examples from the first on. Who joins late has made none of them, and goes on with
        those that are left, whose sizes are those that the budget was planned for.
        """
        if self._allowances is None or self._rounds_before(client) < self._allowances[client]:
            return False
        self.exhausted_s.setdefault(client, self.clock.now)
        return True

    def _rounds_before(self, client: int) -> int:
        """How many rounds the client has examples in, up to the one that it is in."""
        at, count = self._rounds_counted[client]
        count += sum(self.sizes.of(i, client) > 0 for i in range(at, self.at_round[client]))
        self._rounds_counted[client] = self.at_round[client], count
        return count

    # -- server --------------------------------------------------------------------------------

    def apply(self, bundle: Bundle) -> None:
        """Apply one round's updates of one client, or of several that an aggregator has added up."""
        self.server_model = self.tape.apply((1.0, self.server_model), (1.0, bundle.change))
        step_size = self.step_at(bundle.round_num)
        with self.together():
            for part in bundle.parts:
                if bundle.round_num >= self.complete:
                    self.applied_in.setdefault(bundle.round_num, set()).add(part.client)
                self.gradients += self.sizes.of(bundle.round_num, part.client)
                self.updated(
                    part.client, self.version - part.version, part.examples, step_size, round_num=bundle.round_num
                )
            for _ in bundle.parts:
                self.applied()
            self._broadcast_if_complete()  # first, so that who evaluates now sees the round that is complete

    def _expected(self, i: int) -> set[int]:
        """Who is waited for in round i."""
        return set() if i < self.complete else {client for client, first in self.members.items() if first <= i}

    def _broadcast_if_complete(self) -> None:
        before = self.complete
        while (expected := self._expected(self.complete)) and expected <= self.applied_in.get(self.complete, set()):
            self.applied_in.pop(self.complete)
            self.complete += 1
        if self.complete == before:
            return
        self.round_num = self.complete
        self.tree.forget(self.complete)
        model, k, version = self.server_model, self.complete, self.version
        if k == self.last_round:
            self.clock.stop()
            return
        self.tree.down(
            sorted(self.members),
            lambda client: self.receive(client, model, k, version),
            self.training.model_bytes + HEADER_BYTES,
            model,
        )

    def remove(self, client: int) -> None:
        """The client takes no further part: nobody waits for it any more."""
        if client in self._left:
            return
        self._left.add(client)
        self.when_up(lambda: self._without(client))

    def _without(self, client: int) -> None:
        """Go on without a client."""
        self.members.pop(client, None)
        self.tree.check()
        self._broadcast_if_complete()

    # -- clients -------------------------------------------------------------------------------

    def client(self, me: int) -> Process:
        """Round after round, as far as the gate allows."""
        yield self.joined(me)
        if me not in self.members and not (yield from self._enter(me)):
            return
        while self.last_round is None or self.at_round[me] < self.last_round:
            if self.exhausted(me):
                break
            if not (yield from (self._local_round(me) if self.local else self._batch_round(me))):
                break
        if self.last_round is None or self.at_round[me] < self.last_round:
            self.remove(me)

    def _enter(self, me: int) -> Generator[simpy.Event, Any, bool]:
        """Ask the server for the model, and begin with the round that is open."""
        came = self.clock.event()
        began = self.clock.now

        def register() -> None:
            if me in self._left:
                came.succeed(False)
                return
            self.members[me] = self.at_round[me] = k = self.complete
            model, version = self.server_model, self.version

            def welcome() -> None:
                if self.known[me] <= k:
                    self.known[me], self.model[me], self._version[me] = k, model, version
                came.succeed(True)

            self.to_client(me, welcome, content=model)

        self.world.network.send(me, self.server, HEADER_BYTES, register)
        taken = bool((yield came))
        self.communicated(me, self.present_s(me, began, self.clock.now))
        return taken

    def receive(self, me: int, model: Model, k: int, version: int) -> None:
        """ISRReceive: replace the client's model, unless a newer one has overtaken this one."""
        if k <= self.known[me]:
            self.ignored += 1
            return
        self.known[me], self._version[me] = k, version
        under_way = self._rounds.get(me)
        if under_way is None:
            self.model[me] = model
        else:
            self._advance(me, under_way)
            self.model[me] = under_way.added_to(self.tape, model)
            under_way.base = model
        news = self._news[me]
        if news is not None:
            self._news[me] = None
            news.succeed()

    def _permission(self, me: int, i: int, least: int) -> Generator[simpy.Event, Any, int]:
        """Wait until the gate lets the client compute `least` gradients of round i; return how many it does."""
        while (allowed := self.gate.gradients(self.sizes, i, me, self.known[me])) < least:
            if self.known[me] >= i:
                check_gate(self.gate, self.sizes, i, me, least)
            news = self._news[me] = self.clock.event()
            yield news
        return allowed

    def _size(self, me: int, i: int) -> int:
        size, examples = self.sizes.of(i, me), int(self.training.sizes[me])
        if self.training.sampling in ("poisson", "without_replacement"):
            check_size(i, me, size, examples)
        return size

    def _batch_round(self, me: int) -> Generator[simpy.Event, Any, bool]:
        """A round whose gradients are all taken at one model. False if the client has left."""
        i = self.at_round[me]
        size = self._size(me, i)
        yield from self._permission(me, i, size)
        model, version, step_size = self.model[me], self._version[me], self.step_at(i)
        gradient = self._batch(me, i, size, model) if size else None
        examples = gradient.examples if gradient else 0
        if size:
            outcome = yield self.compute(me, size)
            if outcome is not Outcome.DONE:
                if gradient is not None:
                    self.lost(gradient)
                return outcome is Outcome.CRASHED
        terms: list[tuple[float, Model | Gradient]] = [(-step_size, gradient)] if gradient else []
        if self.training.l2 and size and self.mask == 1:  # else it is masked with the rest
            terms.append((-step_size * size * self.training.l2, model))
        change = self.tape.combine(*terms)
        del model, gradient, terms  # a suspended process would keep them, and their rows, alive
        self.model[me] = self.tape.combine((1.0, self.model[me]), (1.0, change))
        self._send(me, i, change, Part(me, examples, version))
        return True

    def _batch(self, me: int, i: int, size: int, model: Model) -> Gradient:
        """Promise the gradient of a round's batch."""
        draw, start = self._draws[me], None
        self._draws[me] += 1
        if self.training.sampling == "shuffle":  # pieces of a pass have the nominal size, whatever the rounds have
            start = divmod(self._consumed[me], self._nominal)
            self._consumed[me] += size
        return self.tape.gradient_in_pieces(model, me, draw, size, self._noise_scale[me], start)

    def lost(self, promise: Gradient) -> bool:
        """As of any algorithm; shuffled data goes on by examples."""
        again = super().lost(promise)
        if again:
            self._consumed[promise.client] -= promise.examples
        return again

    def _send(self, me: int, i: int, change: Model, part: Part) -> None:
        """Send (i, c, U), and go on to the next round."""
        self.at_round[me] = i + 1
        self.sent[me] += 1
        if self.averaging:
            change = self.tape.combine((float(self.sizes.weights[me]), change))
        self.tree.up(me, Bundle(i, change, [part]))

    # -- local steps ---------------------------------------------------------------------------

    def _local_round(self, me: int) -> Generator[simpy.Event, Any, bool]:
        """A round of local steps, one operation for all of those between two models that come. False if it has left."""
        i = self.at_round[me]
        steps = -(-self._size(me, i) // self._nominal)
        under_way = self._rounds[me] = _LocalRound(i, steps, self.model[me])
        crashed = False
        while under_way.done < steps and not crashed:
            begin = under_way.done * self._nominal
            allowed = yield from self._permission(me, i, min(begin + self._nominal, self.sizes.of(i, me)))
            until = -(-allowed // self._nominal) if allowed == self.sizes.of(i, me) else allowed // self._nominal
            before = self.times[me].compute_s
            under_way.begin(self.clock.now, until)
            computing = self.compute(me, (until - under_way.done) * self._nominal)
            under_way.seconds = self.times[me].compute_s - before
            outcome = yield computing
            if outcome is Outcome.GONE:
                del self._rounds[me]
                return False
            crashed = outcome is Outcome.CRASHED
            if not crashed:
                self._run_steps(me, under_way, until)
        del self._rounds[me]
        if crashed:
            self.model[me] = under_way.base
            return True
        change = under_way.change or self.tape.combine()
        self._send(me, i, change, Part(me, steps * self._nominal, self._version[me]))
        return True

    def _advance(self, me: int, under_way: _LocalRound) -> None:
        """Record the steps that the client has made by now, all but the last."""
        if under_way.until > under_way.done and under_way.seconds > 0.0:
            share = self.present_s(me, under_way.began_s, self.clock.now) / under_way.seconds
            steps = int(share * (under_way.until - under_way.first))
            self._run_steps(me, under_way, min(under_way.first + steps, under_way.until - 1))

    def _run_steps(self, me: int, under_way: _LocalRound, until: int) -> None:
        """Record the local steps up to number `until` as one operation, the round's noise behind its last."""
        steps = until - under_way.done
        if steps <= 0:
            return
        i, nominal = under_way.round_num, self._nominal
        eta = self.step_at(i)
        noise = eta * self._noise_scale[me] if until == under_way.steps else 0.0
        step = (eta * nominal, 0.0, 0.0, 0.0)
        if self.decay is not None:
            before, per_step = self.sizes.total(i) / self._counted_by, self.num_clients * nominal / self._counted_by
            step = (self.decay[0] * nominal, self.decay[1], before + per_step * under_way.done, per_step)
        draw = self._draws[me]
        self._draws[me] = draw + steps
        promise = self.tape.train(self.model[me], me, draw, steps, nominal, step, noise, self.sizes.of(i, me))
        made = self.tape.combine((1.0, promise))
        self.model[me] = self.tape.combine((1.0, self.model[me]), (1.0, made))
        change = made if under_way.change is None else self.tape.combine((1.0, under_way.change), (1.0, made))
        under_way.change = self.tape.settle(change)
        under_way.done = until


class _LocalRound:
    """A round of local steps under way.

    Args:
        round_num: i.
        steps: how many it has.
        base: the client's model without this round's steps.
    """

    def __init__(self, round_num: int, steps: int, base: Model) -> None:
        self.round_num = round_num
        self.steps = steps
        self.base = base
        self.done = 0
        self.change: Model | None = None
        self.first = self.until = 0
        self.began_s = self.seconds = 0.0

    def begin(self, now: float, until: int) -> None:
        """The client begins to compute, up to step `until`."""
        self.first, self.until, self.began_s = self.done, until, now

    def added_to(self, tape: Any, model: Model) -> Model:
        """The steps made so far, made from another model."""
        result: Model = model if self.change is None else tape.combine((1.0, model), (1.0, self.change))
        return result
