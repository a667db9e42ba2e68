"""Gossip without rounds, ASGD and FedBuff in the oracle's world: when each update happens, and how stale it is.

Each function or class starts its processes in a world; `World.updates` has the rows after the world's clock has run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any

from tests.oracle.core import Call, Draws, Promise, World


class Turns:
    """A bound on staleness. With `wait`, reads and updates wait until all updates can keep the bound.

    Args:
        limit: the scenario's `staleness_bound`, or None.
        version: returns the version after the given number of further updates.
    """

    def __init__(self, limit: Any, version: Callable[[int], int]) -> None:
        self.limit, self.version = limit, version
        self.waits = limit is not None and limit.policy == "wait"
        self.reading: dict[int, int] = {}
        self.held: list[tuple[int, int, Callable[[int], None]]] = []
        self.queue: list[Call] = []
        self._arrivals = 0

    def drops(self, staleness: int) -> bool:
        return self.limit is not None and self.limit.policy == "drop" and staleness > self.limit.bound

    def admit(self, give: Call) -> None:
        self.queue.append(give)
        self._let_in()

    def read(self, client: int) -> int:
        self.reading[client] = self.version(0)
        return self.reading[client]

    def forget(self, client: int) -> None:
        self.reading.pop(client, None)
        self._go_on()

    def arrive(self, client: int, read: int, apply: Callable[[int], None]) -> None:
        self.reading.pop(client, None)
        self._arrivals += 1
        self.held.append((read, self._arrivals, apply))
        self._go_on()

    def _go_on(self) -> None:
        while self.held:
            first = min(self.held) if self.waits else self.held[0]
            others = sorted([*self.reading.values(), *(one[0] for one in self.held if one is not first)])
            if self.waits and any(self.version(n) - read > self.limit.bound for n, read in enumerate(others, 1)):
                break
            self.held.remove(first)
            first[2](self.version(0) - first[0])
        self._let_in()

    def _let_in(self) -> None:
        """Let a client read if its update keeps the bound even after those of all others, one by one."""
        while self.queue:
            last = self.version(len(self.reading) + len(self.held)) - self.version(0)
            if self.waits and last > self.limit.bound:
                break
            self.queue.pop(0)()


# -- without a server --------------------------------------------------------------------------


class OwnUpdates:
    """Clients that apply their own updates."""

    def __init__(self, world: World) -> None:
        self.world, self.clock, self.options = world, world.clock, world.scenario.algorithm
        self.choice = Draws(world.streams, "neighbor", lambda generator, count: generator.random(count).tolist())
        self.turns = Turns(self.options.staleness_bound, lambda more: len(world.updates) + more)

    def back(self, me: int) -> float:
        return self.world.presence[me].back(self.clock.now)

    def may_read(self, me: int) -> Generator:
        """Wait until the bound lets the client read, and return the version that it reads; None if it has left."""
        while True:
            admitted = Promise(self.clock)

            def give(admitted: Promise = admitted) -> None:
                online = self.back(me) == self.clock.now
                if online:
                    self.turns.read(me)
                admitted.keep(online)

            self.turns.admit(give)
            if (yield admitted):
                return self.turns.read(me)
            if math.isinf(self.back(me)):
                return None
            yield self.back(me)

    def in_turn(self, me: int, read: int, peer: int) -> Generator:
        """Apply an update when the bound allows it and the client is online; false if it has left."""
        while True:
            turn = Promise(self.clock)

            def apply(staleness: int, turn: Promise = turn) -> None:
                online = self.back(me) == self.clock.now
                if online:
                    self.apply(me, staleness, peer)
                else:
                    self.turns.reading[me] = read
                turn.keep(online)

            self.turns.arrive(me, read, apply)
            if (yield turn):
                return True
            if math.isinf(self.back(me)):
                self.turns.forget(me)
                return False
            yield self.back(me)

    def apply(self, me: int, staleness: int, peer: int) -> None:
        if not self.turns.drops(staleness):
            self.world.updated(me, staleness, peer)

    def begin(self, me: int) -> Generator:
        """Read: return the version, None if the client has left."""
        if self.turns.waits:
            return (yield from self.may_read(me))
        return len(self.world.updates)

    def end(self, me: int, read: int, peer: int) -> Generator:
        """Apply; false if the client has left."""
        if self.turns.waits:
            return (yield from self.in_turn(me, read, peer))
        self.apply(me, len(self.world.updates) - read, peer)
        return True


def adpsgd(world: World) -> None:
    """Compute gradients while exchanging models with a random neighbor; update when both are done.

    Two requests of one pair that cross are one exchange.
    """
    clients, clock, network = OwnUpdates(world), world.clock, world.network
    atomic = clients.options.exchange == "atomic"
    starts = senders(world) if clients.options.pairing != "everyone" else set(range(world.clients))

    def reached(me: int) -> list[int]:
        near, now = world.neighbors[me], clock.now
        return [k for k in near if world.presence[k].back(now) == now == network.joined(me, k, now)] if atomic else near

    def choose(me: int) -> int:
        near, draw = reached(me), clients.choice.next(me)
        return near[int(draw * len(near))] if near else -1

    open_requests: dict[int, tuple[int, Promise, list[Promise]]] = {}

    def exchange(me: int, peer: int, done: Promise) -> None:
        answers: list[Promise] = []  # the neighbor's exchange, if it crosses this one

        def answer() -> None:
            network.send(peer, me, world.model_bytes, lambda: done.keep(True))

        def arrived() -> None:
            if answers:
                answers[0].keep(True)
                return
            del open_requests[me]
            if open_requests.get(peer, (-1,))[0] == me:
                _, theirs, cross = open_requests.pop(peer)
                cross.append(done)
                theirs.keep(True)
            else:
                answer()

        def refused() -> None:
            if answers:
                network.send(me, peer, world.model_bytes, lambda: answers[0].keep(True))
                return
            del open_requests[me]
            done.keep(False)

        open_requests[me] = peer, done, answers
        network.send(me, peer, world.model_bytes, arrived, refused)

    def worker(me: int) -> Generator:
        yield world.presence[me].back(0.0)
        while (read := (yield from clients.begin(me))) is not None:
            peer, done = -1, Promise(clock)
            if not atomic and me in starts:
                peer = choose(me)
                exchange(me, peer, done)
            end, how = world.finish(me)
            yield end
            if how != "done":
                clients.turns.forget(me)
                if how == "gone":
                    return
            if peer >= 0:
                if not (yield done):
                    peer = -1
                while (back := clients.back(me)) > clock.now:
                    if math.isinf(back):
                        clients.turns.forget(me)
                        return
                    yield back
            if how == "crashed":
                continue
            if not (yield from clients.end(me, read, peer)):
                return

    if atomic:
        plain = clients.apply

        def apply(me: int, staleness: int, peer: int) -> None:
            if me in starts and (peer := choose(me)) >= 0:
                for one in (me, peer):
                    network.attempts[one] += 1
                    network.bytes[one] += world.model_bytes + network.links.overhead
            plain(me, staleness, peer)

        clients.apply = apply
    if clients.turns.waits:
        network.on_stuck = lambda peer, me: clients.turns.forget(me)
    for me in range(world.clients):
        clock.advance(worker(me))


def senders(world: World) -> set[int]:
    """Return client 0's side of a bipartite graph; all clients if there is an odd cycle."""
    side, reached = {0: 0}, [0]
    for k in reached:
        for j in world.neighbors[k]:
            if j not in side:
                side[j] = 1 - side[k]
                reached.append(j)
            elif side[j] == side[k]:
                return set(range(world.clients))
    return {k for k in reached if side[k] == 0}


def gossip_learning(world: World) -> None:
    """Push models to random neighbors by a timer; a client that has merged a model trains on it."""
    clients, clock, network = OwnUpdates(world), world.clock, world.network
    phase = Draws(world.streams, "phase", lambda generator, count: generator.random(count).tolist())
    period = clients.options.period
    source = [-1] * world.clients  # sender of the last merged model; -1 once the client trains on it
    merged = [Promise(clock) for _ in range(world.clients)]

    def received(me: int, peer: int) -> None:
        source[me] = peer
        merged[me].keep(True)

    def timer(me: int) -> Generator:
        yield world.presence[me].back(0.0)
        yield clock.now + phase.next(me) * period
        while True:
            while (back := clients.back(me)) > clock.now:
                yield back
            near = world.neighbors[me]
            if all(math.isinf(clients.back(k)) for k in near):
                return
            peer = near[int(clients.choice.next(me) * len(near))]
            network.send(me, peer, world.model_bytes, lambda peer=peer: received(peer, me), lambda: None)
            yield clock.now + period

    def worker(me: int) -> Generator:
        yield world.presence[me].back(0.0)
        while True:
            if source[me] < 0:
                merged[me] = Promise(clock)
                yield merged[me]
            if (read := (yield from clients.begin(me))) is None:
                return
            peer, source[me] = source[me], -1
            end, how = world.finish(me)
            yield end
            if how != "done":
                clients.turns.forget(me)
                if how == "gone":
                    return
            elif not (yield from clients.end(me, read, peer)):
                return

    for me in range(world.clients):
        clock.advance(worker(me))
        clock.advance(timer(me))


# -- with a server -----------------------------------------------------------------------------


class Server:
    """A server that processes updates one by one."""

    def __init__(self, world: World) -> None:
        self.world, self.clock, self.network, self.options = world, world.clock, world.network, world.scenario.algorithm
        self.server, self.version, self._busy_until = world.clients, 0, 0.0

    def to_server(self, me: int, size: int, call: Call) -> None:
        self.network.send(me, self.server, size, lambda: self.work(call))

    def work(self, call: Call) -> None:
        """Process an update after those before it; the server pauses while it is offline."""
        seconds = self.world.scenario.server.seconds_per_update
        if not seconds:
            call()
            return
        begin = max(self.clock.now, self._busy_until)
        self._busy_until, how = self.world.presence[self.server].finish(begin, seconds)
        if how == "done":
            self.clock.at(self._busy_until, call)


class Served(Server):
    """Clients that pull a model, compute and push, and a server."""

    batches = 1

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.turns = Turns(self.limit(), self.version_after)
        for me in range(world.clients):
            self.clock.advance(self.client(me))

    def limit(self) -> Any:
        """Return the bound on staleness, None without one."""
        return self.options.staleness_bound

    def version_after(self, more: int) -> int:
        return self.version + more

    def client(self, me: int) -> Generator:
        presence, clock = self.world.presence[me], self.clock
        yield presence.back(0.0)
        came = Promise(clock)
        if clock.now == 0.0:
            self.hand_out(me, came)
        else:
            self.ask(me, came)
        while True:
            read = yield came
            came = Promise(clock)
            if read is None:  # the client was offline when the model arrived
                while clock.now < (back := presence.back(clock.now)) < math.inf:
                    yield back
                if math.isinf(back):
                    break
                self.ask(me, came)
                continue
            end, how = self.begin(me, read)
            if (restarted := (yield self.until(me, end))) is not None:
                came.keep(restarted)
                continue
            if how == "done":
                self.push(me, read, came)
                continue
            self.when_online(lambda: self.forget(me))
            if how == "gone":
                break
            self.ask(me, came)
        self.left(me)

    def begin(self, me: int, read: int) -> tuple[float, str]:
        """Return when and how a computation at version `read` ends that begins now."""
        del read
        return self.world.finish(me, self.batches)

    def until(self, me: int, end: float) -> float | Promise:
        """Return what a client that computes waits for; a value in place of None starts it again."""
        del me
        return end

    def left(self, me: int) -> None:
        """Handle a client that has left permanently."""

    def ask(self, me: int, came: Promise) -> None:
        self.network.send(me, self.server, 0, lambda: self.hand_out(me, came))

    def push(self, me: int, read: int, came: Promise) -> None:
        def arrived() -> None:
            self.arrive(me, read, lambda staleness: self.take(me, staleness, came))

        self.to_server(me, self.world.model_bytes, arrived)

    def when_online(self, call: Call) -> None:
        """Call an action of the server as soon as it is online."""
        if (back := self.world.presence[self.server].back(self.clock.now)) == self.clock.now:
            call()
        else:
            self.clock.at(back, call)

    def hand_out(self, me: int, came: Promise) -> None:
        """Send the model as soon as the bound allows it; at time 0 all clients have it."""

        def give() -> None:
            version = self.turns.read(me)
            if self.clock.now == 0.0:
                came.keep(version)
            else:
                self.network.send(self.server, me, self.world.model_bytes, lambda: came.keep(version), refused)

        def refused() -> None:
            self.missed(me)
            came.keep(None)

        self.turns.admit(give)

    def missed(self, me: int) -> None:
        """Let the server know that no update of a client will come, now or once it is online."""
        self.when_online(lambda: self.forget(me))

    def forget(self, me: int) -> None:
        """Stop expecting the update of a client."""
        self.turns.forget(me)

    def arrive(self, me: int, read: int, apply: Callable[[int], None]) -> None:
        self.turns.arrive(me, read, apply)

    def take(self, me: int, staleness: int, came: Promise) -> None:
        """Apply an update at the server."""
        raise NotImplementedError


class AsyncSGD(Served):
    """The server applies gradients as they arrive, or in turn, and answers the sender."""

    def __init__(self, world: World) -> None:
        self.turn, self.present, self.early = 0, set(), {}
        super().__init__(world)
        self.present = {k for k in range(world.clients) if world.presence[k].back(0.0) == 0.0}

    def take(self, me: int, staleness: int, came: Promise) -> None:
        if not self.turns.drops(staleness):
            self.version += 1
            self.world.updated(me, staleness)
        self.hand_out(me, came)

    def ask(self, me: int, came: Promise) -> None:
        self.present.add(me)
        super().ask(me, came)

    def arrive(self, me: int, read: int, apply: Callable[[int], None]) -> None:
        if self.options.delays == "cyclic":
            self.early[me] = read, apply
            self.take_turns()
        else:
            super().arrive(me, read, apply)

    def take_turns(self) -> None:
        while self.early:
            if self.turn in self.early:
                self.turns.arrive(self.turn, *self.early.pop(self.turn))
            elif self.turn in self.present:
                return
            self.turn = (self.turn + 1) % self.world.clients

    def left(self, me: int) -> None:
        self.present.discard(me)
        self.when_online(self.take_turns)


class FedBuff(Served):
    """The server collects updates of local rounds, and steps when its buffer is full.

    FedAsync and asynchronous local SGD step at each update. CA2FL takes other steps at the same times.
    """

    def __init__(self, world: World) -> None:
        options = world.scenario.algorithm
        self.batches, self.buffer = options.local_steps, []
        self.size, self.waiting = getattr(options, "buffer_size", 1), getattr(options, "after_update", "") == "wait"
        self.choice = Draws(world.streams, "cohort", lambda generator, count: generator.random(count).tolist())
        self.training, self.ready, self.choosing = set(), {}, False
        self.most = min(options.concurrency or world.clients, world.clients)
        super().__init__(world)

    def version_after(self, more: int) -> int:
        return self.version + (len(self.buffer) + more) // self.size

    def take(self, me: int, staleness: int, came: Promise) -> None:
        if self.turns.drops(staleness):
            self.hand_out(me, came)
            return
        self.buffer.append((me, staleness, came))
        if len(self.buffer) == self.size:
            self.step()
        else:
            self.step_if_alone()
        if not self.waiting:
            self.hand_out(me, came)

    def step(self) -> None:
        buffer, self.buffer = self.buffer, []
        self.version += 1
        for me, staleness, _ in buffer:
            self.world.updated(me, staleness)
        if self.waiting:
            for me, _, came in buffer:
                self.hand_out(me, came)

    def step_if_alone(self) -> None:
        """Step if clients wait for the step and no update is in progress that could fill the buffer."""
        turns = self.turns
        if self.waiting and self.buffer and not (turns.reading or turns.held or turns.queue or self.ready):
            self.step()

    def forget(self, me: int) -> None:
        self.training.discard(me)
        self.choose_soon()
        super().forget(me)
        self.step_if_alone()

    def hand_out(self, me: int, came: Promise) -> None:
        """Let at most `most` clients train at a time; the next is drawn after all events of the moment."""
        self.training.discard(me)
        if self.most == self.world.clients:
            super().hand_out(me, came)
            return
        self.ready[me] = came
        self.choose_soon()

    def choose_soon(self) -> None:
        if self.ready and not self.choosing:
            self.choosing = True
            self.clock.at(self.clock.now, self.choose)

    def choose(self) -> None:
        self.choosing = False
        while self.ready and len(self.training) < self.most:
            online = [k for k in self.ready if self.world.presence[k].back(self.clock.now) == self.clock.now]
            candidates = online or list(self.ready)
            me = candidates[int(self.choice.next(0) * len(candidates))]
            self.training.add(me)
            super().hand_out(me, self.ready.pop(me))
