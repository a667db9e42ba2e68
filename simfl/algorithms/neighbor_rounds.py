"""Bases of synchronous gossip: rounds in which clients wait for their neighbors."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Generator, Iterable, Sequence
from typing import Any, ClassVar

import simpy
from mypy_extensions import mypyc_attr

from simfl.algorithms.base import Algorithm
from simfl.compiled import Integer, Number
from simfl.tape.recording import Model
from simfl.world.engine import Process
from simfl.world.topology import Topology


@mypyc_attr(allow_interpreted_subclasses=True)
class NeighborRounds(Algorithm):
    """Clients in rounds; a late client starts in a round that no partner has started.

    Subclasses write `worker`. It calls `join` first, `wait_for` to wait for messages, and `leave` when it ends.
    """

    combines_per_gradient: ClassVar[float] = 1.0

    def set_up(self) -> None:
        """Give every client the initial model."""
        initial = self.tape.constant(self.training.initial)
        self.model: list[Model] = [initial] * self.num_clients
        self._client_round = [0] * self.num_clients
        self._first_round = [math.inf] * self.num_clients
        self._joining: dict[Number, list[int]] = {}  # clients by the time at which they join
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
        yield self.world.joined(me)
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
        return self._trivial or (yield from self.world.until_back(me))

    def wake(self, me: int) -> None:
        """Let a waiting client check its messages again."""
        waiting = self._waiting[me]
        if waiting is not None:
            self._waiting[me] = None
            waiting.succeed()


class Graph:
    """The neighbors and the weights of clients in a round.

    Args:
        topology: the graph that the links are of.
        weights: of each client, its row of the mixing matrix: an entry for itself, and for each neighbor.
    """

    def __init__(self, topology: Topology, weights: list[dict[int, Number]]) -> None:
        self.topology, self.weights = topology, weights
        self.neighbors = [sorted(other for other in row if other != k) for k, row in enumerate(weights)]


def _mixed(topology: Topology, rule: str) -> Graph:
    """Return a topology with the weights of a rule."""
    matrix = topology.mixing_matrix(rule).tocsr()
    weights: list[dict[int, Number]] = [
        dict(zip(matrix.indices[begin:end].tolist(), matrix.data[begin:end].tolist(), strict=True))
        for begin, end in itertools.pairwise(matrix.indptr)
    ]
    return Graph(topology, weights)


@mypyc_attr(allow_interpreted_subclasses=True)
class GraphRounds(NeighborRounds):
    """Rounds in which clients send to their neighbors in the graph, and wait for them.

    A `worker` calls `send` for each of its `receivers`, waits, and takes the messages of the round with `received`. If
    the graph changes, a round uses the graph at the time at which the first client starts it.
    """

    def set_up(self, mixing: str = "metropolis") -> None:
        """Take the options.

        Args:
            mixing: rule of the mixing matrix, see `Topology.mixing_matrix`.
        """
        super().set_up()
        self._mixing = mixing
        self._changing = self.world.changing
        self._graph = _mixed(self.world.topology if self._changing is None else self._changing.at(0.0), mixing)
        self._graphs: dict[int, Graph] = {}  # of current rounds, if the graph changes
        self._inbox: list[dict[tuple[int, int], Any]] = [{} for _ in range(self.num_clients)]

    def _graph_of(self, round_num: int) -> Graph:
        """Return the graph of a round, which its first use determines."""
        if self._changing is None:
            return self._graph
        graph = self._graphs.get(round_num)
        if graph is None:
            topology = self._changing.at(self.clock.now)
            if topology is not self._graph.topology:
                self._graph = _mixed(topology, self._mixing)
            oldest = self.rounds
            self._graphs = {kept: old for kept, old in self._graphs.items() if kept >= oldest}
            graph = self._graphs[round_num] = self._graph
        return graph

    def partners(self, client: int) -> Iterable[int]:
        """Return the neighbors, or all clients if the graph changes."""
        return super().partners(client) if self._changing is not None else self._graph.neighbors[client]

    def receivers(self, me: int, round_num: int) -> list[int]:
        """Return the neighbors that take part in a round."""
        return [j for j in self._graph_of(round_num).neighbors[me] if self.takes_part(j, round_num)]

    def send(
        self, me: int, neighbor: int, round_num: int, message: Any, size: int, model: Model, *beside: Model
    ) -> None:
        """Send a neighbor a message of `size` bytes.

        An observer sees a model, and what is sent beside it.
        """
        self.world.network.send(
            me,
            neighbor,
            size,
            lambda: self._receive(neighbor, me, round_num, message),
            content=model,
            beside=beside,
        )

    def _receive(self, me: int, source: int, round_num: int, message: Any) -> None:
        if round_num >= self._client_round[me]:  # a message of a client that left may arrive too late
            self._inbox[me][round_num, source] = message
            self.wake(me)

    def missing(self, me: int, round_num: int) -> Iterable[int]:
        """Yield the neighbors whose messages have not arrived."""
        inbox = self._inbox[me]
        neighbors = self._graph_of(round_num).neighbors[me]
        return (j for j in neighbors if (round_num, j) not in inbox and self.takes_part(j, round_num))

    def awaits(self, client: Integer) -> str:
        """Name the neighbors whose messages are missing."""
        round_num = self._client_round[client]
        missing = ", ".join(map(str, self.missing(client, round_num)))
        return f"waits for the model of round {round_num} of client {missing}"

    def received(self, me: int, round_num: int) -> tuple[Number, list[tuple[Number, Any]]]:
        """Return `heard` without the senders."""
        own_weight, heard = self.heard(me, round_num)
        return own_weight, [(weight, message) for _, weight, message in heard]

    def heard(self, me: int, round_num: int) -> tuple[Number, list[tuple[int, Number, Any]]]:
        """Return the client's own weight, and senders, weights and messages of a round.

        The weight of neighbors that sent nothing goes to the client itself. Messages are taken out of the inbox.
        """
        inbox, weights = self._inbox[me], self._graph_of(round_num).weights[me]
        own_weight, messages = weights.get(me, 0.0), []
        for j, weight in weights.items():
            if j == me:
                continue
            message = inbox.pop((round_num, j), None)
            if message is None:
                own_weight += weight
            else:
                messages.append((j, weight, message))
        return own_weight, messages
