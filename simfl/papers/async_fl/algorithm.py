"""Asynchronous FL with growing rounds; with privacy, Proactive DP's DP-SGD.

Van Dijk et al. 2020, "Asynchronous Federated Learning with Reduced Number of Rounds and with Differential Privacy from
Less Aggregated Gaussian Noise", https://arxiv.org/abs/2007.09208, Algorithms 1 to 4; Van Dijk et al., "Proactive DP: A
Multiple Target Optimization Framework for DP-SGD", https://arxiv.org/abs/2102.09030, Algorithms 2 to 4.

    server:  v <- v - eta_i U_{i,c} for every (i, c, U) that comes, whatever its round
             when round k has come from all clients:  k <- k + 1, broadcast (v, k)
    client:  on (v, k), if k is newer than its own:  w <- v - eta_i U, U being the sum of round i so far
             round i:  wait while i > k + d
                       U = sum of [gradient of f(w; x)]_C over s_{i,c} examples, + N(0, (z C)^2)
                       send (i, c, U),  w <- w - eta_i U,  i <- i + 1

Updates are sums, so step sizes are those of single gradients. A broadcast (v, k) contains all updates of rounds below k
of all clients, and perhaps some later ones. Messages may arrive in another order: a client ignores a broadcast older
than the one it has, and an update may arrive before that of an earlier round.

`aggregation: mean` weighs each update by p_c; the listings add updates up. Clients that train long on similar data all
move in the same direction, so their sum moves n times as far as one of them.

Two ways to run a round:

- DP-valid (the default): all gradients of a round are taken at the model that the client has when the round begins, on
  a batch that is drawn once. An example enters the update through one clipped term only, which is what the accountant
  certifies. The client uses a model that arrives meanwhile from the next round on.
- `local_steps` (the first paper's listing): the client moves its model after every mini-batch, and a model that arrives
  meanwhile replaces its own at once. No proof covers its privacy: an example also acts through the steps after it.

The papers do not say what follows. A client that crashes restarts its round from the model it has, with a new batch, or
with the same one of shuffled data. A client that joins late requests the model from the server and begins with the
round that is then open. The server stops waiting for a client that has left or has spent its privacy budget; it learns
this at once, and applies the client's updates in flight.

Faults. Lost messages are delivered late. A client that crashes or is partitioned delays the round: the others continue
until the gate stops them, and all wait if the partition does not end. While the server is down, its aggregators
continue to add up updates, and the broadcast waits.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import simpy

from simfl.algorithms.base import Marks
from simfl.algorithms.server import ServerAlgorithm
from simfl.papers.async_fl.aggregators import Aggregators, Bundle, Part
from simfl.papers.async_fl.round_sizes import Gate, RoundsGate, RoundSizes, check_gate, check_size
from simfl.papers.async_fl.sizes import ConstantSizes
from simfl.tape import Gradient, Model
from simfl.world.availability import Outcome
from simfl.world.engine import Process

HEADER_BYTES = 8
"""Bytes of a message besides its parameters: the numbers of a round and of a client."""


class AsyncFL(ServerAlgorithm):
    """A server that broadcasts complete rounds, and clients that may run ahead."""

    kind: ClassVar[str] = "async_fl"
    summary: ClassVar[str] = (
        "asynchronous FL with growing sample sizes; with privacy, Proactive DP's asynchronous DP-SGD"
    )
    family: ClassVar[str] = "papers"
    who_waits: ClassVar[str] = "a client waits if it is too far ahead of the broadcasts"
    what_travels: ClassVar[str] = "sums of gradients to the server, broadcasts of the model to clients"
    what_is_private: ClassVar[str] = (
        "an example (`gaussian`, `laplace_l2`, `laplace`); with `local_steps`, not certified"
    )
    combines_per_gradient: ClassVar[float] = 1.0

    def set_up(  # type: ignore[override]
        self,
        *,
        sizes: RoundSizes | None,
        rounds: int | None,
        local_steps: bool,
        step_size_of: str,
        mask: int,
        aggregation: str,
        aggregators: Sequence[int],
        gate: Gate | None = None,
        decay: tuple[float, float] | None = None,
    ) -> None:
        """Set the options.

        Args:
            sizes: s_{i,c}; None: every client computes the nominal batch size in every round.
            gate: when a client waits; by default d = 1.
            decay: (eta_0, beta) of step sizes that fall from gradient to gradient ("diminishing_1"), with local steps
                only; None: one step size per round ("diminishing_2").
        """
        super().set_up()
        count, training = self.num_clients, self.training
        self._total = training.num_examples
        self.marks = Marks(  # epochs are counted by the sizes s_{i,c}
            lambda updates: self.gradients / self._total,
            lambda epochs: float(count * self.sizes.rounds_for(epochs * self._total)),
        )
        if training.allowances is not None:
            self.budgets.leave_to(self._affords)
        self.sizes = sizes or RoundSizes(
            ConstantSizes(training.batch_size), [1.0] * count, self.world.streams, each_client=True
        )
        self.gate = gate or RoundsGate()
        self.last_round = rounds
        if mask > 1 and (local_steps or training.sampling == "shuffle"):
            raise ValueError(f"mask: expected 1 with local steps or sampling shuffle, found {mask}")
        self.mask = mask
        self.local, self.decay = local_steps, decay
        self._counted_by = count if step_size_of == "each" else 1
        self.averaging = aggregation == "mean"
        self._update_bytes = 4 * -(-len(training.initial) // mask) + HEADER_BYTES * (1 if mask == 1 else 2)
        self.tree = Aggregators(
            self.world.network, self.tape, self.server, aggregators, count, self._update_bytes,
            training.model_bytes + HEADER_BYTES, self._expected,
            lambda bundle: self.service.process(lambda: self.apply(bundle)),
        )  # fmt: skip
        self.complete = 0  # k, the rounds that the server has from all participating clients
        self.applied_in: dict[int, set[int]] = {}  # H: incomplete round -> clients whose updates are applied
        joins = self.world.availability.joins_s
        self.members = {k: 0 for k in range(count) if joins(k) == 0.0}  # participating client -> its first round
        self.at_round = [0] * count  # each client's round i
        self.known = [0] * count  # the k of each client's latest broadcast
        self.model: list[Model] = [
            self.server_model if k in self.members else self.tape.combine() for k in range(count)
        ]
        self.sent = [0] * count  # updates
        self.ignored = 0  # broadcasts that arrived after a newer one
        self.gradients = 0
        self._version = [0] * count
        self._news: list[simpy.Event | None] = [None] * count
        self._left: set[int] = set()
        self._consumed = [0] * count
        self._rounds_counted = [(0, 0)] * count
        self._rounds: dict[int, _LocalRound] = {}

    def start(self) -> None:
        """Start the clients, and schedule their removal from the server when they leave."""
        availability = self.world.availability
        for client in range(self.num_clients):
            self.clock.start(self.client(client), client)
            leaves_s = math.inf if self._trivial else availability.leaves_s(client)
            if not math.isinf(leaves_s) and not math.isinf(availability.joins_s(client)):
                self.clock.call_at(leaves_s, lambda client=client: self.remove(client))  # type: ignore[misc]

    def client_models(self) -> Sequence[Model]:
        """Return the clients' models; the server's for those that have none yet."""
        return [model if model.rows else self.server_model for model in self.model]

    @property
    def ending(self) -> str:
        """Say that all rounds are complete, "" before that."""
        return f"all {self.last_round} rounds are complete" if self._past_last(self.complete) else ""

    @property
    def rounds(self) -> int:
        """The number k of complete rounds."""
        return self.complete

    def awaits(self, client: int) -> str:
        """Say which clients the oldest incomplete round waits for."""
        if client in self._left or self._past_last(self.at_round[client]):
            return "has made all its rounds"
        missing = sorted(self._expected(self.complete) - self.applied_in.get(self.complete, set()))
        return f"waits for round {self.complete}, which client {', '.join(map(str, missing))} has not sent"

    def _past_last(self, i: int) -> bool:
        return self.last_round is not None and i >= self.last_round

    def step_at(self, i: int) -> float:
        """Return eta_i of round i, the schedule's at t = S_i gradients or a share of them."""
        schedule = self.descent.schedule
        if not callable(schedule):
            return schedule
        before = self.sizes.total(i)
        return schedule(i, before // self._counted_by, before / self._total)

    def _affords(self, client: int) -> bool:
        """Return whether the client's next release keeps its privacy budget.

        Allowances count rounds with examples from the first on. A client that joins late has only the remaining ones,
        whose sizes are those that the budget was planned for.
        """
        allowances = self.training.allowances
        return allowances is None or self._rounds_before(client) < allowances[client]

    def _rounds_before(self, client: int) -> int:
        """Return the number of rounds with examples of the client before its current one."""
        (start, count), end = self._rounds_counted[client], self.at_round[client]
        count += sum(self.sizes.of(i, client) > 0 for i in range(start, end))
        self._rounds_counted[client] = end, count
        return count

    # -- server --------------------------------------------------------------------------------

    def apply(self, bundle: Bundle) -> None:
        """Apply one round's updates of one client, or a sum of several."""
        self.server_model = self.tape.apply((1.0, self.server_model), (1.0, bundle.change))
        i, step_size = bundle.round_num, self.step_at(bundle.round_num)
        with self.together():
            for part in bundle.parts:
                if i >= self.complete:
                    self.applied_in.setdefault(i, set()).add(part.client)
                self.gradients += self.sizes.of(i, part.client)
                noise_std = self.batches.noise_std[part.client] * self.sizes.noise_factor(i)
                staleness = self.version - part.version
                self.updated(part.client, staleness, part.examples, step_size, round_num=i, noise_std=noise_std)
            for _ in bundle.parts:
                self.applied()
            self._broadcast_if_complete()  # before evaluations, which must see the complete round

    def _expected(self, i: int) -> set[int]:
        """Return the clients that round i waits for."""
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
        """Stop waiting for a client that takes no further part."""

        def go_on() -> None:
            self.members.pop(client, None)
            self.tree.check()
            self._broadcast_if_complete()

        if client not in self._left:
            self._left.add(client)
            self.service.when_up(go_on)

    # -- clients -------------------------------------------------------------------------------

    def client(self, me: int) -> Process:
        """Run round after round, as far as the gate allows."""
        yield self.world.joined(me)
        if me not in self.members and not (yield from self._enter(me)):
            return
        run = self._local_round if self.local else self._batch_round
        while not self._past_last(self.at_round[me]):
            if self.budgets.spent(me) or not (yield from run(me)):
                self.remove(me)
                return

    def _enter(self, me: int) -> Generator[simpy.Event, Any, bool]:
        """Request the model from the server, and begin with the open round."""
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
        accepted = bool((yield came))
        self.times.communicated(me, self.times.present_s(me, began, self.clock.now))
        return accepted

    def receive(self, me: int, model: Model, k: int, version: int) -> None:
        """Replace the client's model, unless it already has a newer one (ISRReceive)."""
        if k <= self.known[me]:
            self.ignored += 1
            return
        self.known[me], self._version[me] = k, version
        under_way = self._rounds.get(me)
        if under_way is None:
            self.model[me] = model
        else:
            self._advance(me, under_way)
            change = under_way.change
            self.model[me] = model if change is None else self.tape.combine((1.0, model), (1.0, change))
            under_way.base = model
        news = self._news[me]
        if news is not None:
            self._news[me] = None
            news.succeed()

    def _permission(self, me: int, i: int, least: int) -> Generator[simpy.Event, Any, int]:
        """Wait until the gate allows `least` gradients; return how many it allows."""
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
        """Run a round of gradients at one model; return False if the client left."""
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
                    self._lost(gradient)
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
        """Return the promised gradient of a round's batch."""
        draw, start = self.batches.draws[me], None
        self.batches.draws[me] += 1
        if self.training.sampling == "shuffle":  # pieces of a pass have the nominal size, whatever the rounds have
            start = divmod(self._consumed[me], self.training.batch_size)
            self._consumed[me] += size
        noise_scale = self.batches.noise_scale[me] * self.sizes.noise_factor(i)
        return self.tape.gradient_in_pieces(model, me, draw, size, noise_scale, start)

    def _lost(self, promise: Gradient) -> None:
        """Drop a promise; if its batch is drawn again, shuffled data step back."""
        if self.batches.lost(promise):
            self._consumed[promise.client] -= promise.examples

    def _send(self, me: int, i: int, change: Model, part: Part) -> None:
        """Send (i, c, U), and advance to the next round."""
        self.at_round[me] = i + 1
        self.sent[me] += 1
        if self.averaging:
            change = self.tape.combine((float(self.sizes.weights[me]), change))
        self.tree.up(me, Bundle(i, change, [part]))

    # -- local steps ---------------------------------------------------------------------------

    def _local_round(self, me: int) -> Generator[simpy.Event, Any, bool]:
        """Run a round of local steps; return False if the client left."""
        i, nominal = self.at_round[me], self.training.batch_size
        steps = -(-self._size(me, i) // nominal)
        under_way = self._rounds[me] = _LocalRound(i, steps, self.model[me])
        crashed = False
        while under_way.done < steps and not crashed:
            begin = under_way.done * nominal
            allowed = yield from self._permission(me, i, min(begin + nominal, self.sizes.of(i, me)))
            until = -(-allowed // nominal) if allowed == self.sizes.of(i, me) else allowed // nominal
            before = self.times.begun_s(me)
            under_way.first, under_way.until, under_way.began_s = under_way.done, until, self.clock.now
            computing = self.compute(me, (until - under_way.done) * nominal)
            under_way.seconds = self.times.begun_s(me) - before
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
        self._send(me, i, change, Part(me, steps * nominal, self._version[me]))
        return True

    def _advance(self, me: int, under_way: _LocalRound) -> None:
        """Record the steps that the client has completed by now, except the last."""
        if under_way.until > under_way.done and under_way.seconds > 0.0:
            share = self.times.present_s(me, under_way.began_s, self.clock.now) / under_way.seconds
            steps = int(share * (under_way.until - under_way.first))
            self._run_steps(me, under_way, min(under_way.first + steps, under_way.until - 1))

    def _run_steps(self, me: int, under_way: _LocalRound, until: int) -> None:
        """Record local steps up to `until` as one operation; noise after the last."""
        steps = until - under_way.done
        if steps <= 0:
            return
        i, nominal = under_way.round_num, self.training.batch_size
        eta = self.step_at(i)
        noise = eta * self.batches.noise_scale[me] if until == under_way.steps else 0.0
        step = (eta * nominal, 0.0, 0.0, 0.0)
        if self.decay is not None:
            before, per_step = self.sizes.total(i) / self._counted_by, self.num_clients * nominal / self._counted_by
            step = (self.decay[0] * nominal, self.decay[1], before + per_step * under_way.done, per_step)
        draw = self.batches.draws[me]
        self.batches.draws[me] = draw + steps
        promise = self.tape.train(self.model[me], me, draw, steps, nominal, step, noise, self.sizes.of(i, me))
        made = self.tape.combine((1.0, promise))
        self.model[me] = self.tape.combine((1.0, self.model[me]), (1.0, made))
        change = made if under_way.change is None else self.tape.combine((1.0, under_way.change), (1.0, made))
        under_way.change = self.tape.settle(change)
        under_way.done = until


@dataclass(eq=False)
class _LocalRound:
    """A round of local steps in progress."""

    round_num: int
    steps: int
    base: Model  # the client's model without this round's steps
    done: int = 0
    change: Model | None = None  # sum of the steps so far
    first: int = 0  # step at which the current operation began
    until: int = 0  # step at which it ends
    began_s: float = 0.0
    seconds: float = 0.0
