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

from simfl.algorithms.aggregation import Weighted
from simfl.algorithms.disclosure import merged
from simfl.algorithms.mixing import CommonMixing, Mixing, mixing_of
from simfl.algorithms.neighbor_rounds import GraphRounds
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
    #: Whether all clients of a complete graph have the same mean.
    means_are_common: ClassVar[bool] = True

    def set_up(self, mixing: str = "metropolis") -> None:
        """Take the options.

        Args:
            mixing: rule of the mixing matrix; see `Topology.mixing_matrix`.
        """
        super().set_up(mixing)
        trivial = self.world.availability.trivial and self._changing is None
        once = self.means_are_common and trivial and self._graph.topology.is_complete
        self._means = mixing_of(self, self.model, CommonMixing if once else Mixing)
        terms = 1 + max(map(len, self._graph.neighbors)) + self._means.beside
        if self._changing is None and terms <= self.tape.reads:
            self.combines = 0.0  # one operation mixes, and takes the step

    def worker(self, me: int) -> Process:
        """Send, compute, wait for the neighbors, mix and step."""
        yield from self.join(me)
        while True:
            round_num = self._client_round[me]
            gradient = self.batches.gradient(self.model[me], me)
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
            own_weight, heard = self.heard(me, round_num)
            mixed = self._means.mix(me, round_num, Weighted(self.model[me], own_weight), heard)
            merged(self.world.network, me, mixed)
            stepped = self.descent.step(me, mixed, gradient, step_size)
            self.model[me] = self._means.after(me, self.model[me], stepped)
            del mixed, stepped  # a suspended process would keep them alive
            self._client_round[me] = round_num + 1
            self.updated(me, 0, size, step_size, round_num=round_num)

    def _show(self, me: int, round_num: int) -> None:
        """Send the model to the neighbors."""
        sent = self._means.show(me, self.model[me])
        for neighbor in self.receivers(me, round_num):
            size = self._means.bytes(me, neighbor, round_num, self._first_round[me])
            self.send(me, neighbor, round_num, sent, size, sent.model)
