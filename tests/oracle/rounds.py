"""Rounds without a server in the oracle's world: MATCHA, Plexus and Teleportation, of clients that never leave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator

import numpy as np

from tests.oracle.core import Promise, World


def back(world: World, me: int) -> Generator:
    """Wait until a client is online."""
    while (time := world.presence[me].back(world.clock.now)) > world.clock.now:
        yield time


def matcha(world: World) -> None:
    """Send to the neighbors in active matchings, compute, and wait for their models of the round."""
    came: list[set[tuple[int, int]]] = [set() for _ in range(world.clients)]
    waiting: dict[int, Promise] = {}
    drawn: dict[int, list[set[int]]] = {}

    def active(number: int) -> list[set[int]]:
        """Return the neighbors of each client in a round."""
        if number not in drawn:
            draws = world.streams.generator("matchings", 0, number).random(len(world.matchings))
            drawn[number] = [set() for _ in range(world.clients)]
            for (edges, chance), draw in zip(world.matchings, draws, strict=True):
                for one, other in edges if draw < chance else ():
                    drawn[number][one].add(other)
                    drawn[number][other].add(one)
        return drawn[number]

    def receive(me: int, number: int, sender: int) -> None:
        came[me].add((number, sender))
        if me in waiting:
            waiting.pop(me).keep()

    def worker(me: int) -> Generator:
        number = 0
        while True:
            near = sorted(active(number)[me])
            for k in near:
                world.network.send(me, k, world.model_bytes, lambda k=k, number=number: receive(k, number, me))
            how = ""
            while how != "done":
                end, how = world.finish(me)
                yield end
            while any((number, k) not in came[me] for k in near):
                waiting[me] = Promise(world.clock)
                yield waiting[me]
            yield from back(world, me)
            world.updated(me, 0)
            number += 1

    for me in range(world.clients):
        world.clock.advance(worker(me))


def by_hash(world: World, number: int) -> list[int]:
    """Return the clients in the order of a round."""
    return np.argsort(world.streams.generator("sample", 0, number).random(world.clients)).tolist()


class Plexus:
    """The first models of a sample make the model of the next one."""

    def __init__(self, world: World) -> None:
        self.world, options = world, world.scenario.algorithm
        self.size, self.steps = min(options.sample, world.clients), options.local_steps
        self.needed = max(1, int(options.success * self.size))
        self.round, self.trained, self.began = 0, set(), [-1] * world.clients
        for me in by_hash(world, 0)[: self.size]:
            self.take(me, 0)

    def take(self, me: int, number: int) -> None:
        """Begin a round at a client, which ends an older one there."""
        if number > self.began[me]:
            self.began[me] = number
            self.world.clock.advance(self.train(me, number))

    def train(self, me: int, number: int) -> Generator:
        how = ""
        while how != "done":
            end, how = self.world.finish(me, self.steps)
            yield end
            if self.began[me] != number:
                return
        self.world.updated(me, 0)
        aggregator = by_hash(self.world, number + 1)[0]
        if aggregator == me:
            self.receive(me, me, number)
        else:
            self.world.network.send(
                me, aggregator, self.world.model_bytes, lambda: self.receive(aggregator, me, number)
            )

    def receive(self, aggregator: int, sender: int, number: int) -> None:
        """Take a trained model of the present round; with enough of them, begin the next one."""
        if number != self.round:
            return
        self.trained.add(sender)
        if len(self.trained) < self.needed:
            return
        self.round, self.trained = self.round + 1, set()
        for me in by_hash(self.world, self.round)[: self.size]:
            if me == aggregator:
                self.take(me, self.round)
            else:
                self.world.network.send(
                    aggregator, me, self.world.model_bytes, lambda me=me, now=self.round: self.take(me, now)
                )


class Teleportation:
    """Models that are trained by other clients in every round, and averaged by index."""

    def __init__(self, world: World) -> None:
        self.world, options = world, world.scenario.algorithm
        self.count, self.graph = min(options.active, world.clients), options.graph
        self.rounds = [0] * self.count
        self.came: dict[tuple[int, int], set[int]] = defaultdict(set)
        self.waiting: dict[tuple[int, int], Promise] = {}
        self.queues: list[list[Promise]] = [[] for _ in range(world.clients)]  # the first of a queue computes
        for i in range(self.count):
            world.clock.advance(self.turn(self.active(0, i), i, 0))

    def active(self, number: int, i: int) -> int:
        """Return the client of an index in a round."""
        order = by_hash(self.world, number)
        return order[i % len(order)]

    def hops(self, number: int) -> list[int]:
        """Return the distances from an index to those that it sends to."""
        k = self.count
        if k == 1:
            return []
        if self.graph == "one_peer":
            return [2 ** (number % int(np.ceil(np.log2(k))))]
        return sorted({1, k - 1}) if self.graph == "ring" else list(range(1, k))

    def turn(self, me: int, i: int, number: int) -> Generator:
        """Compute, exchange models with other indices, and hand the mean on."""
        world, right = self.world, Promise(self.world.clock)
        self.queues[me].append(right)
        if len(self.queues[me]) == 1:
            right.keep()
        yield right
        how = ""
        while how != "done":
            end, how = world.finish(me)
            yield end
        self.queues[me].pop(0)
        if self.queues[me]:
            self.queues[me][0].keep()
        world.updated(me, 0)
        for hop in self.hops(number):
            other = (i + hop) % self.count
            target = self.active(number, other)
            if target == me:
                self.receive(number, other, i)
            else:
                world.network.send(me, target, world.model_bytes, lambda other=other: self.receive(number, other, i))
        sources = {(i - hop) % self.count for hop in self.hops(number)}
        while not sources <= self.came[number, i]:
            self.waiting[number, i] = Promise(world.clock)
            yield self.waiting[number, i]
        yield from back(world, me)
        self.rounds[i] = number + 1
        following = self.active(number + 1, i)
        if following == me:
            world.clock.advance(self.turn(me, i, number + 1))
        else:
            world.network.send(
                me, following, world.model_bytes, lambda: world.clock.advance(self.turn(following, i, number + 1))
            )

    def receive(self, number: int, i: int, source: int) -> None:
        self.came[number, i].add(source)
        if (number, i) in self.waiting:
            self.waiting.pop((number, i)).keep()
