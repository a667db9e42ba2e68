"""SGP: stochastic gradient push, synchronous gossip over directed graphs, de-biased by push-sum.

Assran, Loizou, Ballas, Rabbat 2019, "Stochastic gradient push for distributed deep learning",
https://arxiv.org/abs/1811.10792, Algorithm 1, and Algorithm 2 (overlap):

    each client i, round k:   x_i <- x_i - step * gradient at z_i
                              send (p_ji x_i, p_ji w_i) to every out-neighbor j of this round, keep (p_ii x_i, p_ii w_i)
                              when those of its in-neighbors of round k - overlap are there:
                              x_i <- x_i + all x that came,  w_i <- w_i + all w that came,  z_i = x_i / w_i

Every column of P sums to 1 (p_ji = 1 / (1 + number of out-neighbors)), its rows need not: w_i, 1 at first, counts how
much weight has gathered at a client, and z_i is free of it. The sum of all w, those on their way included, is the
number of clients, whatever the delays: a message that is late only arrives late. What a client that leaves for good
has, or is on its way to it, is lost; x and w go in proportion, so that z stays an average of models.

A client waits for its in-neighbors only. With overlap 0 it waits for this round's messages; with overlap s for those
sent s rounds ago, so that messages travel while it computes. Nobody waits for, or sends to, one that has left or has
not joined; who joins late begins in a round that nobody has reached.

Graphs: `one_peer` (the paper's: in round k, client i sends to i + 2^(k mod P) only, P hops in turn), `exponential` (to
all i + 2^h), `ring` (to i + 1), `topology` (both ways over the scenario's links). The first three count the clients
that are left when the first of them comes to the round (of a `topology` that changes, the graph in force then counts):
without its predecessor on a ring, a client would send its
weight away and get none.

Faults. A lost message, a partition and a client that crashes are waited for, `overlap` rounds later; weight on its
way is counted, and none is lost but with who leaves for good. Where a partition does not end, nobody goes on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import simpy

from simfl.algorithms.base import Algorithm
from simfl.tape import Model
from simfl.world.availability import Outcome
from simfl.world.engine import Process

#: What travels: a share of a client's x, and of its w.
Share = tuple[Model, float]
#: Out-neighbors and in-neighbors of every client in a round.
Edges = tuple[list[list[int]], list[list[int]]]


class SGP(Algorithm):
    """Rounds of gradient steps and pushes along directed edges."""

    kind: ClassVar[str] = "sgp"
    summary: ClassVar[str] = "SGP: stochastic gradient push over directed graphs; waits for the in-neighbors"
    takes_optimizer: ClassVar[bool] = True
    combines_per_gradient: float = 1.0

    def set_up(self, graph: str = "one_peer", overlap: int = 0) -> None:
        """Take the options.

        Args:
            graph: as above.
            overlap: rounds that a message may take before anybody waits for it.
        """
        self.overlap = overlap
        self.graph = graph
        self._neighbors = self.world.neighbors()
        self._changes = graph == "topology" and self.world.changing is not None
        self._edges: dict[int, Edges] = {}  # of rounds under way, where clients come and go
        self._built: dict[int, tuple[Sequence[int], Edges]] = {}  # of a hop, and for whom it was built last
        initial = self.tape.constant(self.training.initial)
        #: x of every client: a sum of models, biased by how much weight is in it.
        self.model: list[Model] = [initial] * self.num_clients
        #: w of every client.
        self.weight = [1.0] * self.num_clients
        #: w on its way to clients, or in their inboxes.
        self.flying = 0.0
        self._client_round = [0] * self.num_clients
        self._first_round = [math.inf] * self.num_clients
        self._joining: dict[float, list[int]] = {}  # who joins when
        self._left = [False] * self.num_clients
        self._inbox: list[dict[tuple[int, int], Share]] = [{} for _ in range(self.num_clients)]
        self._came: list[set[tuple[int, int]]] = [set() for _ in range(self.num_clients)]
        self._waiting: list[simpy.Event | None] = [None] * self.num_clients

    def edges(self, round_num: int) -> Edges:
        """Return who sends to whom in a round, settled when somebody first asks."""
        if self._trivial and self._allowances is None and not self._changes:
            return self._build(range(self.num_clients), round_num)
        edges = self._edges.get(round_num)
        if edges is None:
            edges = self._build([k for k in range(self.num_clients) if self._takes_part(k, round_num)], round_num)
            oldest = self.rounds - self.overlap
            self._edges = {kept: known for kept, known in self._edges.items() if kept >= oldest}
            self._edges[round_num] = edges
        return edges

    def _takes_part(self, client: int, round_num: int) -> bool:
        return not self._left[client] and self._first_round[client] <= round_num

    def _build(self, there: Sequence[int], round_num: int) -> Edges:
        """Return the edges of a round among the clients that are there."""
        count = len(there)
        hops = [1] if self.graph == "ring" else [2**power for power in range(max(count - 1, 0).bit_length())]
        phase = round_num % len(hops) if self.graph == "one_peer" and hops else 0
        known = self._built.get(phase)
        if known is not None and known[0] == there and not self._changes:
            return known[1]
        if self.graph == "one_peer":
            hops = hops[phase : phase + 1]
        out: list[list[int]] = [[] for _ in range(self.num_clients)]
        sources: list[list[int]] = [[] for _ in range(self.num_clients)]
        for place, client in enumerate(there):
            if self.graph == "topology":
                out[client] = list(self._neighbors(client))
            elif count > 1:
                out[client] = [there[(place + hop) % count] for hop in hops]
            for target in out[client]:
                sources[target].append(client)
        self._built[phase] = there, (out, sources)
        return out, sources

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
        """One model per client, z."""
        return [self.debiased(k) for k in range(self.num_clients)]

    def debiased(self, client: int) -> Model:
        """Return z = x / w."""
        weight, model = self.weight[client], self.model[client]
        return model if weight == 1.0 else self.tape.combine((1.0 / weight, model))

    @property
    def rounds(self) -> int:
        """Rounds that every client has completed, those aside that have not joined or have left."""
        clients = range(self.num_clients)
        there = [k for k in clients if self._first_round[k] < math.inf and not self._left[k]]
        return min((self._client_round[k] for k in there), default=max(self._client_round))

    def worker(self, me: int) -> Process:
        """One client: compute, step, push, wait, absorb."""
        yield self.joined(me)
        if self._first_round[me] == math.inf:
            self._join_together(me)
        while True:
            round_num = self._client_round[me]
            gradient = self.gradient(self.debiased(me), me)
            size = gradient.size
            while (outcome := (yield self.compute(me))) is Outcome.CRASHED:
                pass  # computed again at the same model: the round is not over for the others
            if outcome is Outcome.GONE:
                self._leave(me)
                return
            step_size = self.step_size()
            self.model[me] = self.descend(me, self.model[me], gradient, step_size)
            self.updated(me, 0, size, step_size, round_num=round_num)
            self.push(me, round_num)
            while self._missing(me, round_num - self.overlap):
                self._waiting[me] = self.clock.event()
                yield self._waiting[me]
            if not (self._trivial or (yield from self.until_back(me))):
                return
            self._came[me] = {key for key in self._came[me] if key[0] > round_num - self.overlap}
            self.absorb(me, round_num)
            self._client_round[me] = round_num + 1

    def _join_together(self, me: int) -> None:
        """Who joins late begins in the first round that nobody has reached; who joins at the same time, in the same."""
        reached = [self._client_round[k] for k in range(self.num_clients) if self._first_round[k] < math.inf]
        first = max(reached, default=-1) + 1
        for client in self._joining[self.world.availability.joins_s(me)]:
            self._first_round[client] = self._client_round[client] = first

    def push(self, me: int, round_num: int) -> None:
        """Send an equal share of x and w to each out-neighbor, and keep one."""
        targets = [k for k in self.edges(round_num)[0][me] if self._takes_part(k, round_num)]
        if not targets:
            return
        share = 1.0 / (1 + len(targets))
        sent = self.tape.combine((share, self.model[me])), share * self.weight[me]
        self.model[me], self.weight[me] = sent
        shown = None if self.world.network.witness is None else self.debiased(me)
        for target in targets:
            self.flying += sent[1]
            self.world.network.send(
                me,
                target,
                self.training.model_bytes,
                lambda target=target: self._receive(target, me, round_num, sent),  # type: ignore[misc]
                content=shown,
            )

    def absorb(self, me: int, round_num: int) -> None:
        """Add what came from rounds up to this one."""
        inbox = self._inbox[me]
        ready = [key for key in inbox if key[0] <= round_num]
        if not ready:
            return
        shares = [inbox.pop(key) for key in sorted(ready)]
        for _, weight in shares:
            self.flying -= weight
            self.weight[me] += weight
        self.model[me] = self.tape.combine((1.0, self.model[me]), *((1.0, model) for model, _ in shares))
        self.merged(me, self.model[me])

    def _receive(self, me: int, source: int, round_num: int, share: Share) -> None:
        self._inbox[me][round_num, source] = share
        self._came[me].add((round_num, source))
        self._wake(me)

    def _wake(self, me: int) -> None:
        waiting = self._waiting[me]
        if waiting is not None:
            self._waiting[me] = None
            waiting.succeed()

    def _leave(self, client: int) -> None:
        """Nobody waits for a client that has left."""
        if self._left[client]:
            return
        self._left[client] = True
        for other in range(self.num_clients):
            self._wake(other)

    def _missing(self, me: int, round_num: int) -> bool:
        """Whether a message of that round has not come that somebody sent or will send."""
        if round_num < self._first_round[me]:
            return False
        came = self._came[me]
        return any((round_num, k) not in came and self._takes_part(k, round_num) for k in self.edges(round_num)[1][me])

    def awaits(self, client: int) -> str:
        """The shares of an earlier round."""
        round_num = self._client_round[client] - self.overlap
        came, sources = self._came[client], self.edges(round_num)[1][client] if round_num >= 0 else []
        missing = [k for k in sources if (round_num, k) not in came and self._takes_part(k, round_num)]
        return f"waits for the share of round {round_num} of client {', '.join(map(str, missing))}"
