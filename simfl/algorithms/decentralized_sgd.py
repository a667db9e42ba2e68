"""D-PSGD: decentralized parallel SGD, synchronous gossip with a mixing matrix.

Lian et al. 2017, https://arxiv.org/abs/1705.09056:

    each client k, round r: send w_k to the neighbors; compute the gradient at w_k meanwhile;
    when the models of round r of all neighbors have arrived: w_k <- sum_j W_kj w_j - step * gradient

A client waits for its neighbors only. It does not wait for a neighbor that has not joined or has left: the weight of
that neighbor goes to the client's own model.

Faults. A lost message, a partition or a crashed client delays the neighbors, and through them all clients. Messages of
later rounds that arrive early are kept. A client that crashes computes its round again. If a partition does not end, no
client continues.

If the graph changes, a round uses the graph at the time at which the first client starts it. W is doubly stochastic in
every round, and a client without neighbors continues alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import ClassVar

from simfl.algorithms.neighbor_rounds import NeighborRounds
from simfl.algorithms.optimizers import State
from simfl.tape import Model
from simfl.world.availability import Outcome
from simfl.world.engine import Process
from simfl.world.topology import Topology


class _Graph:
    """The neighbors and the rows of the mixing matrix of a topology."""

    def __init__(self, topology: Topology, rule: str) -> None:
        matrix = topology.mixing_matrix(rule).tocsr()
        self.topology = topology
        self.weights: list[dict[int, float]] = [
            dict(zip(matrix.indices[begin:end].tolist(), matrix.data[begin:end].tolist(), strict=True))
            for begin, end in itertools.pairwise(matrix.indptr)
        ]
        self.neighbors = [list(topology.neighbors(k)) for k in range(topology.num_clients)]


class DecentralizedSGD(NeighborRounds):
    """Rounds of gossip with all neighbors."""

    kind: ClassVar[str] = "decentralized_sgd"
    summary: ClassVar[str] = "D-PSGD: synchronous gossip with the mixing matrix; waits for the neighbors"

    def set_up(self, mixing: str = "metropolis") -> None:
        """Take the options.

        Args:
            mixing: rule of the mixing matrix; see `Topology.mixing_matrix`.
        """
        super().set_up()
        self._mixing = mixing
        self._changing = self.world.changing
        topology = self.world.topology if self._changing is None else self._changing.at(0.0)
        self._graph = _Graph(topology, mixing)
        self._graphs: dict[int, _Graph] = {}  # by round, for current rounds, if the graph changes
        self._inbox: list[dict[tuple[int, int], tuple[Model, State | None]]] = [{} for _ in range(self.num_clients)]
        self._complete = topology.is_complete and self.world.availability.trivial and self._changing is None
        self._average: tuple[tuple[int, int], Model] | None = None

    def _graph_of(self, round_num: int) -> _Graph:
        """Return the graph of a round: the graph in force when the round was first used."""
        if self._changing is None:
            return self._graph
        graph = self._graphs.get(round_num)
        if graph is None:
            topology = self._changing.at(self.clock.now)
            if topology is not self._graph.topology:
                self._graph = _Graph(topology, self._mixing)
            oldest = self.rounds
            self._graphs = {kept: old for kept, old in self._graphs.items() if kept >= oldest}
            graph = self._graphs[round_num] = self._graph
        return graph

    def partners(self, client: int) -> Iterable[int]:
        """Return the neighbors, or all clients if the graph changes."""
        return super().partners(client) if self._changing is not None else self._graph.neighbors[client]

    def worker(self, me: int) -> Process:
        """Send, compute, wait for the neighbors, mix and step."""
        yield from self.join(me)
        while True:
            round_num = self._client_round[me]
            gradient = self.gradient(self.model[me], me)
            size = gradient.size
            self._send_to_neighbors(me, round_num)
            while (outcome := (yield self.compute(me))) is Outcome.CRASHED:
                pass  # computed again at the same model: the neighbors still wait for this round
            if outcome is Outcome.GONE:
                self.leave(me)
                return
            if not (yield from self.wait_for(me, round_num)):
                return
            step_size = self.step_size()
            mixed = self._mix(me, round_num)
            self.merged(me, mixed)
            self.model[me] = self.descend(me, mixed, gradient, step_size)
            self._client_round[me] = round_num + 1
            self.updated(me, 0, size, step_size, round_num=round_num)

    def _send_to_neighbors(self, me: int, round_num: int) -> None:
        sent = self.model[me], None if self.optimizer is None else self.optimizer.shown(me)
        for neighbor in self._graph_of(round_num).neighbors[me]:
            if self.takes_part(neighbor, round_num):
                self.world.network.send(
                    me,
                    neighbor,
                    self.training.model_bytes,
                    lambda neighbor=neighbor: self._receive(neighbor, me, round_num, sent),  # type: ignore[misc]
                    content=sent[0],
                )

    def _receive(self, me: int, source: int, round_num: int, sent: tuple[Model, State | None]) -> None:
        if round_num >= self._client_round[me]:  # a message of a client that left may arrive too late
            self._inbox[me][round_num, source] = sent
            self.wake(me)

    def missing(self, me: int, round_num: int) -> Iterable[int]:
        """Yield the neighbors whose models have not arrived."""
        inbox = self._inbox[me]
        neighbors = self._graph_of(round_num).neighbors[me]
        return (j for j in neighbors if (round_num, j) not in inbox and self.takes_part(j, round_num))

    def awaits(self, client: int) -> str:
        """Name the neighbors whose models are missing."""
        round_num = self._client_round[client]
        missing = ", ".join(map(str, self.missing(client, round_num)))
        return f"waits for the model of round {round_num} of client {missing}"

    def _mix(self, me: int, round_num: int) -> Model:
        """Return sum_j W_kj w_j; the weight of missing models goes to `me`'s own."""
        inbox = self._inbox[me]
        terms: list[tuple[float, Model]] = []
        states: list[tuple[float, State | None]] = []
        weights = self._graph_of(round_num).weights[me]
        own_weight = weights.get(me, 0.0)
        for j, weight in weights.items():
            if j == me:
                continue
            message = inbox.pop((round_num, j), None)
            if message is None:
                own_weight += weight
            else:
                terms.append((weight, message[0]))
                states.append((weight, message[1]))
        terms.append((own_weight, self.model[me]))
        if self.optimizer is not None:
            self.optimizer.average(me, [*states, (own_weight, self.optimizer.shown(me))])
        if not self._complete:
            return self.tape.combine(*terms)
        # On a complete graph all clients average the same models: compute the average once a round.
        if self._average is None or self._average[0] != (round_num, len(terms)):
            terms.sort(key=lambda term: -term[0])
            self._average = (round_num, len(terms)), self.tape.settle(self.tape.combine(*terms))
        return self._average[1]
