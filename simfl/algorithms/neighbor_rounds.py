"""Base of synchronous gossip: rounds in which clients wait for their neighbors."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Generator, Iterable, Sequence
from typing import Any, ClassVar

import simpy

from simfl.algorithms.base import Algorithm
from simfl.tape import Model
from simfl.world.engine import Process


class NeighborRounds(Algorithm):
    """Clients in rounds; a late client starts in a round that no partner has started.

    Subclasses write `worker`. It calls `join` first, `wait_for` to wait for messages, and `leave` when it ends.
    """

    takes_optimizer: ClassVar[bool] = True
    combines_per_gradient: float = 1.0

    def set_up(self) -> None:
        """Give every client the initial model."""
        initial = self.tape.constant(self.training.initial)
        self.model: list[Model] = [initial] * self.num_clients
        self._client_round = [0] * self.num_clients
        self._first_round = [math.inf] * self.num_clients
        self._joining: dict[float, list[int]] = {}  # clients by the time at which they join
        self._left = [False] * self.num_clients
        self._waiting: list[simpy.Event | None] = [None] * self.num_clients

    def start(self) -> None:
        """Start the clients, and watch for those that leave."""
        for client in range(self.num_clients):
            joins_s = self.world.availability.joins_s(client)
            self._joining.setdefault(joins_s, []).append(client)
            if joins_s == 0.0:
                self._first_round[client] = 0
        for client in range(self.num_clients):
            self.clock.start(self.worker(client), client)
            leaves = self.world.availability.leaves_s(client)
            if leaves < math.inf:
                self.clock.call_at(leaves, lambda client=client: self.leave(client))  # type: ignore[misc]

    def models(self) -> Sequence[Model]:
        """Return one model per client."""
        return self.model

    @property
    def rounds(self) -> int:
        """Rounds completed by every client that has joined and not left."""
        clients = range(self.num_clients)
        active = [k for k in clients if self._first_round[k] < math.inf and not self._left[k]]
        return min((self._client_round[k] for k in active), default=max(self._client_round))

    @abstractmethod
    def worker(self, me: int) -> Process:
        """Run one client."""

    def partners(self, client: int) -> Iterable[int]:
        """Return every client that may exchange messages with this one; all by default."""
        return range(self.num_clients)

    def takes_part(self, client: int, round_num: int) -> bool:
        """Whether the client has joined by that round and has not left."""
        return not self._left[client] and self._first_round[client] <= round_num

    def join(self, me: int) -> Process:
        """Wait until the client joins.

        Clients that join at the same time are given their first rounds together.
        """
        yield self.joined(me)
        if self._first_round[me] < math.inf:
            return
        first = {}
        for client in self._joining[self.world.availability.joins_s(me)]:
            started = [self._client_round[k] for k in self.partners(client) if self._first_round[k] < math.inf]
            first[client] = max(started, default=-1) + 1
        for client, round_num in first.items():
            self._first_round[client] = self._client_round[client] = round_num

    def leave(self, client: int) -> None:
        """Stop all waiting for a client that has left."""
        if not self._left[client]:
            self._left[client] = True
            for partner in self.partners(client):
                self.wake(partner)

    @abstractmethod
    def missing(self, me: int, round_num: int) -> Iterable[int]:
        """Yield the clients whose messages of the round `me` still waits for."""

    def wait_for(self, me: int, round_num: int) -> Generator[simpy.Event, Any, bool]:
        """Wait for a round's messages and until online; false if the client has left."""
        while next(iter(self.missing(me, round_num)), None) is not None:
            self._waiting[me] = event = self.clock.event()
            yield event
        return self._trivial or (yield from self.until_back(me))

    def wake(self, me: int) -> None:
        """Let a waiting client check its messages again."""
        waiting = self._waiting[me]
        if waiting is not None:
            self._waiting[me] = None
            waiting.succeed()
