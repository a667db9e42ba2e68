"""Servers in the oracle's world: those with rules for single gradients, and rounds as in FedAvg and FedAT."""

from __future__ import annotations

import math
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

from tests.oracle.core import Draws, Promise, World
from tests.oracle.families import Served, Server


class Ringmaster(Served):
    """The server applies gradients that are less than `threshold` steps old, and discards others.

    With `late: stop` it also sends its model to the clients whose gradients can only be late.
    """

    def __init__(self, world: World) -> None:
        self.stops = world.scenario.algorithm.late == "stop"
        self.computing: dict[int, tuple[int, Promise]] = {}  # by client, with the version of its model
        self.threshold = self.most_steps(world)
        super().__init__(world)

    def most_steps(self, world: World) -> int:
        """Return the number of steps after which a gradient is late."""
        return world.scenario.algorithm.threshold or world.clients

    def limit(self) -> Any:
        return SimpleNamespace(bound=self.threshold - 1, policy="drop")

    def begin(self, me: int, read: int) -> tuple[float, str]:
        self.computing[me] = read, Promise(self.clock)
        return super().begin(me, read)

    def until(self, me: int, end: float) -> float | Promise:
        if not self.stops:
            return end
        done = self.computing[me][1]

        def over() -> None:
            if self.computing.get(me, (0, None))[1] is done:
                del self.computing[me]
                done.keep(None)

        self.clock.at(end, over)
        return done

    def arrive(self, me: int, read: int, apply: Any) -> None:
        super().arrive(me, read, apply)
        reading = self.turns.reading  # in the order of reads
        while self.stops and reading and self.version - reading[first := next(iter(reading))] >= self.threshold:
            self.start_again(first)

    def start_again(self, me: int) -> None:
        """Send a client the model, at which it starts again if its gradient is still late by then."""
        del self.turns.reading[me]
        version = self.turns.read(me)

        def came() -> None:
            read, done = self.computing.get(me, (math.inf, None))
            if done is not None and version - read >= self.threshold:
                del self.computing[me]
                done.keep(version)

        self.network.send(self.server, me, self.world.model_bytes, came, lambda: self.missed(me))

    def take(self, me: int, staleness: int, came: Promise) -> None:
        if not self.turns.drops(staleness):
            self.version += 1
            self.world.updated(me, staleness)
        self.hand_out(me, came)


class Rennala(Ringmaster):
    """The server steps when it has S gradients at its model, and discards all others."""

    def __init__(self, world: World) -> None:
        self.batch: list[int] = []
        self.size = self.gradients(world)
        super().__init__(world)

    def gradients(self, world: World) -> int:
        """Return S."""
        return world.scenario.algorithm.gradients_per_step or world.clients

    def most_steps(self, world: World) -> int:
        return 1

    def version_after(self, more: int) -> int:
        return self.version + (len(self.batch) + more) // self.size

    def take(self, me: int, staleness: int, came: Promise) -> None:
        if not self.turns.drops(staleness):
            self.batch.append(me)
            if len(self.batch) == self.size:
                self.step()
        self.hand_out(me, came)

    def step(self) -> None:
        batch, self.batch = self.batch, []
        self.version += 1
        for me in batch:
            self.world.updated(me, 0)


class MSyncSGD(Rennala):
    """Rennala, whose clients wait for the step that their gradient is in."""

    def __init__(self, world: World) -> None:
        self.waiting: list[tuple[int, Promise]] = []
        super().__init__(world)

    def gradients(self, world: World) -> int:
        return world.scenario.algorithm.wait_for or world.clients

    def take(self, me: int, staleness: int, came: Promise) -> None:
        if self.turns.drops(staleness):
            self.step_if_alone()
            self.hand_out(me, came)
            return
        self.batch.append(me)
        if len(self.batch) == self.size:
            self.step()
        self.step_if_alone()
        if me in self.batch:
            self.waiting.append((me, came))
        else:
            self.hand_out(me, came)

    def step(self) -> None:
        super().step()
        waiting, self.waiting = self.waiting, []
        for me, came in waiting:
            self.hand_out(me, came)

    def step_if_alone(self) -> None:
        """Step if no other client can fill the batch."""
        if self.batch and not (self.turns.reading or self.turns.held or self.turns.queue):
            self.step()

    def forget(self, me: int) -> None:
        super().forget(me)
        self.step_if_alone()


class MindFlayer(Served):
    """Every client makes its trials at the model, each of a limited time; then the server steps."""

    def __init__(self, world: World) -> None:
        options = world.scenario.algorithm
        self.batch: list[int] = []
        self.waiting: list[tuple[int, Promise]] = []
        self.made = [0] * world.clients
        self.given_up = [False] * world.clients
        self.longest = [options.trial_factor * world.usual(k) for k in range(world.clients)]
        super().__init__(world)

    def version_after(self, more: int) -> int:
        return self.version

    def begin(self, me: int, read: int) -> tuple[float, str]:
        seconds = self.world.seconds(me)
        self.given_up[me] = seconds > self.longest[me]
        return self.world.presence[me].finish(self.clock.now, min(seconds, self.longest[me]))

    def hand_out(self, me: int, came: Promise) -> None:
        self.made[me] = 0
        super().hand_out(me, came)

    def push(self, me: int, read: int, came: Promise) -> None:
        completed = not self.given_up[me]
        self.made[me] += 1
        last = self.made[me] == self.options.trials

        def arrived() -> None:
            if completed and read == self.version:
                self.batch.append(me)
            if last:
                self.waiting.append((me, came))
                self.forget(me)

        if completed or last:
            self.to_server(me, self.world.model_bytes if completed else 0, arrived)
        if not last:
            came.keep(read)

    def forget(self, me: int) -> None:
        super().forget(me)
        if self.waiting and not (self.turns.reading or self.turns.held or self.turns.queue):
            self.step()

    def step(self) -> None:
        batch, self.batch = self.batch, []
        self.version += bool(batch)
        for me in batch:
            self.world.updated(me, 0)
        waiting, self.waiting = self.waiting, []
        for me, came in waiting:
            self.hand_out(me, came)


class Ringleader(Served):
    """The server waits for a gradient of each client, then takes a step for each of them."""

    def __init__(self, world: World) -> None:
        self.table: dict[int, int] = {}  # gradients by client, of this round and of the next one
        self.next: dict[int, int] = {}
        self.stepped: set[int] = set()
        self.members = {k for k in range(world.clients) if world.presence[k].back(0.0) == 0.0}
        self.read_at: dict[int, int] = {}
        super().__init__(world)

    def begin(self, me: int, read: int) -> tuple[float, str]:
        self.read_at[me] = read
        return super().begin(me, read)

    def ask(self, me: int, came: Promise) -> None:
        self.members.add(me)
        super().ask(me, came)

    def take(self, me: int, staleness: int, came: Promise) -> None:
        later = me in self.stepped
        table = self.next if later else self.table
        table[me] = table.get(me, 0) + 1
        steps = not later and (bool(self.stepped) or self.complete())
        if steps:
            self.version += 1
            self.stepped.add(me)
            self.end_round()
        self.world.updated(me, staleness)
        if steps:
            self.hand_out(me, came)
        else:  # it goes on at its own model
            read = self.read_at[me]

            def refused() -> None:
                self.missed(me)
                came.keep(None)

            self.network.send(self.server, me, 0, lambda: came.keep(read), refused)

    def complete(self) -> bool:
        """Return whether each client has sent a gradient, and enough of them."""
        if len(self.table) < len(self.members):
            return False
        return len(self.table) / sum(1 / count for count in self.table.values()) >= self.options.harmonic_batch - 1e-9

    def end_round(self) -> None:
        if len(self.stepped) >= len(self.members):
            self.table, self.next, self.stepped = self.next, {}, set()

    def left(self, me: int) -> None:
        self.when_online(lambda: self.remove(me))

    def remove(self, me: int) -> None:
        self.members.discard(me)
        self.table.pop(me, None)
        self.next.pop(me, None)
        self.stepped.discard(me)
        if self.stepped:
            self.end_round()


class Rounds(Server):
    """FedAvg and FedAT without deadlines: the clients of a tier have rounds of their own; FedAvg has one tier.

    Tiers are given, or measured in a first round of all clients.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.choice = Draws(world.streams, "cohort", lambda generator, count: generator.random(count).tolist())
        clients, tier_of = range(world.clients), getattr(self.options, "tier_of", [0] * world.clients)
        if tier_of is None:
            self.clock.advance(self.measured(clients))
        else:
            self.start([[k for k in clients if tier_of[k] == tier] for tier in range(max(tier_of) + 1)])

    def start(self, tiers: list[list[int]]) -> None:
        for members in tiers:
            self.clock.advance(self.rounds(members))

    def measured(self, clients: range) -> Generator:
        times = None
        while not times:
            times = yield from self.round(clients, len(clients))
            if times is None:
                return
        order = sorted(clients, key=lambda k: (times.get(k, math.inf), k))
        count = self.options.tiers
        tiers = [[k for at, k in enumerate(order) if at * count // len(order) == tier] for tier in range(count)]
        self.start([sorted(members) for members in tiers])

    def rounds(self, members: list[int]) -> Generator:
        size = max(1, math.ceil(self.options.fraction * len(members) - 1e-9))
        while (yield from self.round(members, size)) is not None:
            pass

    def reached(self, me: int) -> float:
        """Return when the server reaches a client: now, or later."""
        time, before = self.clock.now, -1.0
        while before < time < math.inf:
            before = time
            time = self.network.joined(me, self.server, self.world.presence[me].back(time))
        return time

    def online(self) -> Generator:
        """Wait for the server; false if it never comes back."""
        while (back := self.world.presence[self.server].back(self.clock.now)) > self.clock.now:
            if math.isinf(back):
                return False
            yield back
        return True

    def round(self, members: Any, size: int) -> Generator:
        """Make one round; return the seconds of each update that came, None if the rounds have ended."""
        if not (yield from self.online()):
            return None
        now = self.clock.now
        candidates = [k for k in members if self.reached(k) == now]
        if not candidates:
            later = min(self.reached(k) for k in members)
            if math.isinf(later):
                return None
            yield later
            return {}
        cohort = []
        while candidates and len(cohort) < size:
            cohort.append(candidates.pop(int(self.choice.next(0) * len(candidates))))
        version, missing, came, over = self.version, set(cohort), {}, Promise(self.clock)

        def done(me: int, arrived: bool) -> None:
            missing.discard(me)
            if arrived:
                came[me] = self.clock.now - now
            if not missing:
                over.keep()

        for me in sorted(cohort):
            if now == 0.0 and not self.version:
                self.clock.advance(self.client(me, done))
            else:
                self.network.send(
                    self.server, me, self.world.model_bytes,
                    lambda me=me: self.clock.advance(self.client(me, done)), lambda me=me: done(me, False),
                )  # fmt: skip
        yield over
        if not (yield from self.online()):
            return None
        staleness, self.version = self.version - version, self.version + bool(came)
        for me in sorted(came):
            self.world.updated(me, staleness)
        return came

    def client(self, me: int, done: Any) -> Generator:
        how = ""
        while how not in ("done", "gone"):
            end, how = self.world.finish(me, self.options.local_steps)
            yield end
        if how == "gone":
            done(me, False)
            return
        self.to_server(me, self.world.model_bytes, lambda: done(me, True))
