"""D-PSGD: decentralized parallel SGD, synchronous gossip with a mixing matrix.

Lian et al. 2017, https://arxiv.org/abs/1705.09056:

    each client k, round r: send w_k to the neighbors; compute the gradient at w_k meanwhile;
    when all neighbors' models of round r are there: w_k <- sum_j W_kj w_j - step * gradient

A client waits for its neighbors only, not for all. A neighbor that has not joined yet or has left
for good is not waited for: its weight goes to the client's own model.

Faults. A lost message, a partition and a client that crashes are waited for by the neighbors, and through them by
all: messages of later rounds that come first are kept. A client that crashes computes its round again. Where a
partition does not end, nobody goes on.

Where the graph changes, that of a round is the one in force when the first client begins it: W is doubly stochastic in
every round, and who has no neighbor in one goes on alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import ClassVar

import simpy

from simfl.algorithms.base import Algorithm
from simfl.algorithms.optimizers import State
from simfl.tape import Model
from simfl.world.availability import Outcome
from simfl.world.engine import Process
from simfl.world.topology import Topology


class _Graph:
    """Neighbors, and rows of the mixing matrix.

    Args:
        topology: the graph.
        rule: of the mixing matrix.
    """

    def __init__(self, topology: Topology, rule: str) -> None:
        matrix = topology.mixing_matrix(rule).tocsr()
        ends = matrix.indptr
        self.topology = topology
        self.weights: list[dict[int, float]] = [
            dict(zip(matrix.indices[begin:end].tolist(), matrix.data[begin:end].tolist(), strict=True))
            for begin, end in itertools.pairwise(ends)
        ]
        self.neighbors = [list(topology.neighbors(k)) for k in range(topology.num_clients)]


class DecentralizedSGD(Algorithm):
    """Rounds of gossip with all neighbors."""

    kind: ClassVar[str] = "decentralized_sgd"
    summary: ClassVar[str] = "D-PSGD: synchronous gossip with the mixing matrix; waits for the neighbors"
    takes_optimizer: ClassVar[bool] = True
    combines_per_gradient: float = 1.0

    def set_up(self, mixing: str = "metropolis") -> None:
        """Take the options.

        Args:
            mixing: rule of the mixing matrix, see `Topology.mixing_matrix`.
        """
        self._mixing = mixing
        self._changing = self.world.changing
        topology = self.world.topology if self._changing is None else self._changing.at(0.0)
        self._graph = _Graph(topology, mixing)
        self._graphs: dict[int, _Graph] = {}  # of rounds under way, where the graph changes
        initial = self.tape.constant(self.training.initial)
        self.model: list[Model] = [initial] * self.num_clients
        self._client_round = [0] * self.num_clients
        self._first_round = [math.inf] * self.num_clients
        self._joining: dict[float, list[int]] = {}  # who joins when
        self._left = [False] * self.num_clients
        self._inbox: list[dict[tuple[int, int], tuple[Model, State | None]]] = [{} for _ in range(self.num_clients)]
        self._waiting: list[simpy.Event | None] = [None] * self.num_clients
        self._complete = topology.is_complete and self.world.availability.trivial and self._changing is None
        self._average: tuple[tuple[int, int], Model] | None = None

    def _graph_of(self, round_num: int) -> _Graph:
        """Return the graph of a round, settled when somebody first asks."""
        if self._changing is None:
            return self._graph
        found = self._graphs.get(round_num)
        if found is None:
            topology = self._changing.at(self.clock.now)
            if topology is not self._graph.topology:
                self._graph = _Graph(topology, self._mixing)
            oldest = self.rounds
            self._graphs = {kept: graph for kept, graph in self._graphs.items() if kept >= oldest}
            found = self._graphs[round_num] = self._graph
        return found

    def start(self) -> None:
        """Start the clients, and watch for those that leave for good."""
        for client in range(self.num_clients):
            joins_s = self.world.availability.joins_s(client)
            self._joining.setdefault(joins_s, []).append(client)
            if joins_s == 0.0:
                self._first_round[client] = 0
        for client in range(self.num_clients):
            self.clock.start(self.worker(client), client)
            leaves = self.world.availability.leaves_s(client)
            if leaves < math.inf:
                self.clock.call_at(leaves, lambda client=client: self._leave(client))  # type: ignore[misc]

    def models(self) -> Sequence[Model]:
        """One model per client."""
        return self.model

    @property
    def rounds(self) -> int:
        """Rounds that every client has completed, those aside that have not joined or have left."""
        clients = range(self.num_clients)
        there = [k for k in clients if self._first_round[k] < math.inf and not self._left[k]]
        return min((self._client_round[k] for k in there), default=max(self._client_round))

    def worker(self, me: int) -> Process:
        """One client: send, compute, wait for the neighbors, mix and step."""
        yield self.joined(me)
        if self._first_round[me] == math.inf:
            self._join_together(me)
        while True:
            round_num = self._client_round[me]
            gradient = self.gradient(self.model[me], me)
            size = gradient.size
            self._send_to_neighbors(me, round_num)
            while (outcome := (yield self.compute(me))) is Outcome.CRASHED:
                pass  # computed again at the same model: the round is not over for the neighbors
            if outcome is Outcome.GONE:
                self._leave(me)
                return
            while self._missing(me, round_num):
                self._waiting[me] = self.clock.event()
                yield self._waiting[me]
            if not (self._trivial or (yield from self.until_back(me))):
                return
            step_size = self.step_size()
            mixed = self._mix(me, round_num)
            self.merged(me, mixed)
            self.model[me] = self.descend(me, mixed, gradient, step_size)
            self._client_round[me] = round_num + 1
            self.updated(me, 0, size, step_size, round_num=round_num)

    def _join_together(self, me: int) -> None:
        """Who joins late begins in the first round that no neighbor has begun before; all of one moment at once.

        Where the graph changes, everybody may be a neighbor.
        """
        first = {}
        for client in self._joining[self.world.availability.joins_s(me)]:
            near = range(self.num_clients) if self._changing is not None else self._graph.neighbors[client]
            known = [self._client_round[j] for j in near if self._first_round[j] < math.inf]
            first[client] = max(known, default=-1) + 1
        for client, round_num in first.items():
            self._first_round[client] = self._client_round[client] = round_num

    def _send_to_neighbors(self, me: int, round_num: int) -> None:
        sent = self.model[me], None if self.optimizer is None else self.optimizer.shown(me)
        for neighbor in self._graph_of(round_num).neighbors[me]:
            if self._left[neighbor] or self._first_round[neighbor] > round_num:
                continue  # it has left, or will take part in later rounds only
            self.world.network.send(
                me,
                neighbor,
                self.training.model_bytes,
                lambda neighbor=neighbor: self._receive(neighbor, me, round_num, sent),  # type: ignore[misc]
                content=sent[0],
            )

    def _receive(self, me: int, source: int, round_num: int, sent: tuple[Model, State | None]) -> None:
        if round_num >= self._client_round[me]:  # else it comes from one that left, too late to be used
            self._inbox[me][round_num, source] = sent
            self._wake(me)

    def _wake(self, me: int) -> None:
        waiting = self._waiting[me]
        if waiting is not None:
            self._waiting[me] = None
            waiting.succeed()

    def _leave(self, client: int) -> None:
        """Nobody waits for a client that has left."""
        self._left[client] = True
        for neighbor in range(self.num_clients) if self._changing is not None else self._graph.neighbors[client]:
            self._wake(neighbor)

    def _missing(self, me: int, round_num: int) -> bool:
        inbox = self._inbox[me]
        return any(
            (round_num, j) not in inbox and not self._left[j] and self._first_round[j] <= round_num
            for j in self._graph_of(round_num).neighbors[me]
        )

    def awaits(self, client: int) -> str:
        """The models of its round."""
        round_num, inbox = self._client_round[client], self._inbox[client]
        neighbors = self._graph_of(round_num).neighbors[client]
        missing = [j for j in neighbors if (round_num, j) not in inbox and not self._left[j]]
        return f"waits for the model of round {round_num} of client {', '.join(map(str, missing))}"

    def _mix(self, me: int, round_num: int) -> Model:
        """Return sum_j W_kj w_j over what arrived, and average states likewise; missing weight goes to my own."""
        inbox = self._inbox[me]
        terms: list[tuple[float, Model]] = []
        states: list[tuple[float, State | None]] = []
        weights = self._graph_of(round_num).weights[me]
        own = weights.get(me, 0.0)
        for j, weight in weights.items():
            if j == me:
                continue
            came = inbox.pop((round_num, j), None)
            if came is None:
                own += weight
            else:
                terms.append((weight, came[0]))
                states.append((weight, came[1]))
        terms.append((own, self.model[me]))
        if self.optimizer is not None:
            self.optimizer.average(me, [*states, (own, self.optimizer.shown(me))])
        if not self._complete:
            return self.tape.combine(*terms)
        # On a complete graph everybody averages the same models: do it once a round.
        if self._average is None or self._average[0] != (round_num, len(terms)):
            terms.sort(key=lambda term: -term[0])
            self._average = (round_num, len(terms)), self.tape.settle(self.tape.combine(*terms))
        return self._average[1]
