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

from typing import ClassVar

from mypy_extensions import mypyc_attr

from simfl.algorithms.aggregation import Message, Weighted
from simfl.algorithms.neighbor_rounds import GraphRounds
from simfl.algorithms.optimizers import State
from simfl.compiled import Number
from simfl.compression.base import AbstractScheme
from simfl.compression.schemes import SCHEMES
from simfl.robust.base import Among
from simfl.tape.recording import Model
from simfl.world.availability import CRASHED, GONE
from simfl.world.engine import Process


@mypyc_attr(allow_interpreted_subclasses=True)
class DecentralizedSGD(GraphRounds):
    """Rounds of gossip with all neighbors."""

    kind: ClassVar[str] = "decentralized_sgd"
    summary: ClassVar[str] = "D-PSGD: synchronous gossip with the mixing matrix; waits for the neighbors"
    family: ClassVar[str] = "gossip"
    who_waits: ClassVar[str] = "each client waits for its neighbors' models of the round"
    what_travels: ClassVar[str] = "models, to all neighbors"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    aggregates: ClassVar[frozenset[Among]] = frozenset({"many", "own"})

    def set_up(self, mixing: str = "metropolis") -> None:
        """Take the options.

        Args:
            mixing: rule of the mixing matrix; see `Topology.mixing_matrix`.
        """
        super().set_up(mixing)
        trivial = self.world.availability.trivial and self._changing is None
        self._complete = self._graph.topology.is_complete and trivial
        self._average: tuple[tuple[int, int], Model] | None = None
        self.aggregation = self.aggregator()
        plan = self.training.compression
        self._scheme: AbstractScheme | None = None
        if plan is not None:
            self._scheme = SCHEMES[plan.scheme](self.tape, plan, dict(enumerate(self.model)))
        terms = 1 + max(map(len, self._graph.neighbors)) + (plan is not None)
        if self._changing is None and terms <= self.tape.reads:
            self.combines = 0.0  # one operation mixes, and takes the step

    def worker(self, me: int) -> Process:
        """Send, compute, wait for the neighbors, mix and step."""
        yield from self.join(me)
        while True:
            round_num = self._client_round[me]
            gradient = self.gradient(self.model[me], me)
            size = gradient.size
            self._show(me, round_num)
            while (outcome := (yield self.compute(me))) is CRASHED:
                pass  # computed again at the same model: the neighbors still wait for this round
            if outcome is GONE:
                self.leave(me)
                return
            if not (yield from self.wait_for(me, round_num)):
                return
            step_size = self.step_size()
            mixed = self._mix(me, round_num)
            self.merged(me, mixed)
            stepped = self.descend(me, mixed, gradient, step_size)
            self.model[me] = stepped if self._scheme is None else self._scheme.after(me, self.model[me], stepped)
            del mixed, stepped  # a suspended process would keep them alive
            self._client_round[me] = round_num + 1
            self.updated(me, 0, size, step_size, round_num=round_num)

    def _show(self, me: int, round_num: int) -> None:
        """Send the model, or what takes its place, to the neighbors."""
        scheme, size = self._scheme, self.training.model_bytes
        model = self.model[me] if scheme is None else scheme.show(me, self.model[me])
        sent = model, None if self.optimizer is None else self.optimizer.shown(me)
        for neighbor in self.receivers(me, round_num):
            if scheme is not None:
                size = scheme.bytes(me, neighbor, round_num, self._first_round[me])
            self.send(me, neighbor, round_num, sent, size, model)

    def _mix(self, me: int, round_num: int) -> Model:
        """Return sum_j W_kj w_j; the weight of missing models goes to `me`'s own."""
        if self.aggregation is not None:
            weights, inbox = self._graph_of(round_num).weights[me], self._inbox[me]
            senders = [j for j in weights if j != me and (round_num, j) in inbox]
        own_weight, messages = self.received(me, round_num)
        if self._scheme is not None:
            return self._scheme.mix(me, self.model[me], [(weight, shown) for weight, (shown, _) in messages])
        terms: list[tuple[Number, Model]] = [(weight, model) for weight, (model, _) in messages]
        terms.append((own_weight, self.model[me]))
        if self.optimizer is not None:
            states: list[tuple[Number, State | None]] = [(weight, state) for weight, (_, state) in messages]
            self.optimizer.average(me, [*states, (own_weight, self.optimizer.shown(me))])
        if self.aggregation is not None:
            mail = [Message(j, model, weight) for j, (weight, model) in zip(senders, terms[:-1], strict=True)]
            return self.aggregation(me, sorted(mail), Weighted(self.model[me], own_weight))
        if not self._complete:
            return self.tape.combine(*terms)
        # On a complete graph all clients average the same models: compute the average once a round.
        if self._average is None or self._average[0] != (round_num, len(terms)):
            terms.sort(key=lambda term: -term[0])
            self._average = (round_num, len(terms)), self.tape.settle(self.tape.combine(*terms))
        return self._average[1]
