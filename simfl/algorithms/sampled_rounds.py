"""Base of rounds without a server, in each of which some clients take part."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import simpy

from simfl.algorithms.base import Algorithm
from simfl.tape import Model


class SampledRounds(Algorithm):
    """The clients of a round are the first ones by a hash of round and client.

    All clients can compute the hash, and know who is present. A client that is present has joined and has not left.
    Subclasses write `begin`, which runs when a client joins, and `replace`, which runs after a client has left.
    """

    def set_up(self) -> None:
        """Give every client the initial model."""
        count, availability = self.num_clients, self.world.availability
        self.model: list[Model] = [self.tape.constant(self.training.initial)] * count
        self._joins_s = [availability.joins_s(k) for k in range(count)]
        self._left = [False] * count
        self._devices: dict[int, simpy.Resource] = {}

    def start(self) -> None:
        """Begin when clients join, and watch for those that leave."""
        for joins_s in sorted({joins_s for joins_s in self._joins_s if joins_s < np.inf}):
            self.clock.call_at(joins_s, self.begin)
        for client in range(self.num_clients):
            if (leaves_s := self.world.availability.leaves_s(client)) < np.inf:
                self.clock.call_at(leaves_s, lambda client=client: self.leave(client))  # type: ignore[misc]

    def models(self) -> Sequence[Model]:
        """Return the last model of each client."""
        return self.model

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield all pairs of clients."""
        return combinations(range(self.num_clients), 2)

    @abstractmethod
    def begin(self) -> None:
        """Begin the first round, or go on after a time in which no client was present."""

    @abstractmethod
    def replace(self, client: int) -> None:
        """Let others do what a client that has left was to do."""

    def order(self, round_num: int) -> list[int]:
        """Return the clients that are present now, by the hash of the round and of each."""
        keys = self.world.streams.generator("sample", 0, round_num).random(self.num_clients)
        now = self.clock.now
        return [k for k in np.argsort(keys).tolist() if self._joins_s[k] <= now and not self._left[k]]

    def leave(self, client: int) -> None:
        """Replace a client that has left, or has spent its privacy budget."""
        if not self._left[client]:
            self._left[client] = True
            self.replace(client)

    def device(self, client: int) -> simpy.Resource:
        """Return the right to compute at a client, for one computation at a time."""
        if client not in self._devices:
            self._devices[client] = simpy.Resource(self.clock, 1)
        return self._devices[client]
